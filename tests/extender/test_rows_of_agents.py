"""By which row a node is served whose Node has no label `accelerator-type`."""

import json
from collections.abc import Mapping

import pytest

from agent.devices.simulated import file
from agent.report import content
from extender.cache import decode
from kube.objects import ConfigMap, Meta, Node, NodeStatus, Quantity
from scheduler_core.node.state import NodeState
from scheduler_core.products import table
from scheduler_core.wire.deviceinfo import configmap_name
from tests.agent.reporting import report_of
from tests.support.caches import apply, empty, node_states
from tests.support.clock import NOW_S

NAME = "n1"


def node(key: str, **labels: str) -> Node:
    """A Node whose kubelet and agent have told of all chips of a row."""
    row = table.by_key(key)
    offered: dict[str, Quantity] = {row.resource: row.chip_count}
    marks = content.node_marks(report_of(file.parse(f"product: {key}")))
    return Node(
        metadata=Meta(name=NAME, labels=labels, annotations=dict(marks.annotations)),
        status=NodeStatus(capacity=offered, allocatable=offered),
    )


def configmap(key: str, **affinity: object) -> ConfigMap:
    """The ConfigMap of an agent with the chips of a row.

    Args:
        affinity: What `AscendAffinity` has besides, or in place of the agent's own.
    """
    reading = file.parse(f"product: {key}")
    data = content.configmap_data(report_of(reading), update_time=int(NOW_S))
    data["AscendAffinity"] = json.dumps(json.loads(data["AscendAffinity"]) | affinity)
    return ConfigMap(metadata=Meta(name=configmap_name(NAME)), data=data)


def entries(*, shown: Node, reported: ConfigMap) -> Mapping[str, NodeState]:
    """Return the nodes of the index, the same in whichever order both are seen."""
    events = decode.node_change(shown), decode.report_change(reported)
    found = []
    for order in (events, events[::-1]):
        cache = empty()
        apply(cache, *(event for event in order if event is not None))
        found.append(dict(node_states(cache, *shown.allocatable)))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    "key", ["atlas-a3-16", "atlas-a3-16-superpod", "atlas-a2-box16", "atlas-a2-8"]
)
@pytest.mark.xfail(reason="D1", strict=True)
def test_d1_a_node_without_the_label_is_served_by_the_row_of_its_agent(
    key: str,
) -> None:
    row = table.by_key(key)

    [state] = entries(shown=node(key), reported=configmap(key)).values()

    assert state == NodeState(
        name=NAME,
        product=row,
        inventory=row.all_chips,
        healthy=row.all_chips,
        free=row.all_chips,
    )
