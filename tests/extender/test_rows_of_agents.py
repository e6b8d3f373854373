"""By which row a node is served whose Node has no label `accelerator-type`."""

import json
from collections.abc import Mapping

import pytest

from agent.devices.simulated import file
from agent.report import content
from extender.cache import decode, events, verify
from kube.objects import ConfigMap, Meta, Node, NodeStatus, Quantity
from scheduler_core.node.reasons import Reason
from scheduler_core.node.state import NodeState
from scheduler_core.products import table
from scheduler_core.products.table import by_key
from scheduler_core.wire.deviceinfo import configmap_name
from tests.agent.reporting import report_of
from tests.support.caches import apply, empty, free, node_states
from tests.support.clock import NOW_S
from tests.support.watched import claim, pod_update

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
    changes = decode.node_change(shown), _report(reported)
    found = []
    for order in (changes, changes[::-1]):
        cache = empty()
        apply(cache, *order)
        found.append(dict(node_states(cache, *shown.allocatable)))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    "key", ["atlas-a3-16", "atlas-a3-16-superpod", "atlas-a2-box16", "atlas-a2-8"]
)
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


@pytest.mark.parametrize(
    ("label", "products", "key"),
    [
        # a label that contradicts the chips, and one that means no server
        ("module-910b-8", ["atlas-a3-16"], "atlas-a3-16"),
        ("what-is-this", ["atlas-a3-16"], "atlas-a3-16"),
        # one of the rows that the chips leave open
        ("module-a3-16", ["atlas-a3-16-superpod", "atlas-a3-16"], "atlas-a3-16"),
        ("module-910b-8", ["atlas-a3-16-superpod", "atlas-a3-16"], None),
        # an agent of an earlier release
        ("module-a3-16", None, "atlas-a3-16"),
        # an agent of a later one, which knows a row that we do not
        ("module-a3-16", ["of-tomorrow"], "atlas-a3-16"),
        ("module-a3-16", ["of-tomorrow", "atlas-a3-16-superpod"], None),
    ],
)
def test_d1_the_label_decides_where_the_agent_leaves_rows_open_or_says_nothing(
    label: str, products: list[str] | None, key: str | None
) -> None:
    shown = node("atlas-a3-16", **{"accelerator-type": label})
    reported = configmap("atlas-a3-16", products=products or [])

    [state] = entries(shown=shown, reported=reported).values()

    assert (state.product.key, state.barred) == (key or "atlas-a3-16-superpod", None)


def test_d1_a_node_follows_its_labels_again_when_its_agent_has_gone() -> None:
    key = "atlas-a3-16"
    shown, reported = node(key, **{"accelerator-type": "half"}), configmap(key)
    cache = empty()
    apply(cache, decode.node_change(shown), _report(reported))
    assert node_states(cache)[NAME].product.key == key

    apply(cache, _report(reported, is_deleted=True))

    assert node_states(cache)[NAME].product.key == "atlas-800-training-half"


def test_d1_rows_that_cannot_be_read_leave_the_row_as_it_was() -> None:
    key = "atlas-a3-16"
    cache = empty()
    apply(cache, decode.node_change(node(key)), _report(configmap(key)))

    apply(cache, _report(configmap(key, products="atlas-a2-8")))

    [state] = node_states(cache).values()
    assert (state.product.key, state.barred) == (key, Reason.BAD_NODE_REPORT)


def test_d1_a_node_whose_label_means_no_server_waits_for_the_word_of_its_agent() -> (
    None
):
    shown = node("atlas-a2-8", **{"accelerator-type": "what-is-this"})
    cache = empty()
    apply(cache, decode.node_change(shown))
    assert not node_states(cache)

    apply(cache, _report(configmap("atlas-a2-8")))
    assert node_states(cache)[NAME].product.key == "atlas-a2-8"

    apply(cache, events.NodeUpdated(name=NAME))
    apply(cache, _report(configmap("atlas-a2-8"), is_deleted=True))
    assert not cache.nodes


def test_d1_claims_are_read_by_the_row_that_the_agent_tells() -> None:
    """Chip 12 of a pod is none of an Atlas 800, which the node was taken for."""
    pod = pod_update("p", of=by_key("atlas-a3-16"), node=NAME, annotations=claim([12]))
    cache = empty()
    apply(cache, decode.node_change(node("atlas-a3-16")), pod)
    apply(cache, _report(configmap("atlas-a3-16")))

    assert 12 not in free(cache, NAME)


def test_d1_the_sweep_finds_a_row_that_was_followed_in_order() -> None:
    shown, reported = node("atlas-a3-16"), configmap("atlas-a3-16")
    cache = empty()
    seen = decode.node_change(shown), _report(reported)
    apply(cache, *seen)

    assert [verify.find_drift(cache, change) for change in seen] == ["", ""]


def _report(reported: ConfigMap, *, is_deleted: bool = False) -> events.ReportUpdated:
    change = decode.report_change(reported, is_deleted=is_deleted)
    assert change is not None
    return change
