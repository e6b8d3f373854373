"""What is said of a job that asks for another kind of server than the nodes are."""

from typing import Any

import pytest

from extender.cache import decode, events
from kube import objects as kinds
from scheduler_core.products.lookup import SCHEDULE_POLICY
from scheduler_core.products.table import by_key
from tests.support import objects
from tests.support.caches import add_node, empty
from tests.support.extender import World

A2, A3 = by_key("atlas-a2-8"), by_key("atlas-a3-16")
ASKS: list[Any] = [
    {"nodeSelector": {"accelerator-type": "module-a3-16"}},
    {"annotations": {SCHEDULE_POLICY: A3.policies[0]}},
]
SUFFIX = "; it needs atlas-a3-16, and what is offered is atlas-a2-8"


def seen(
    name: str,
    count: int,
    *,
    resource: str = A3.resource,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> events.Change:
    """A pod, as the watch shows it."""
    meta = {"uid": f"uid-{name}", "annotations": annotations or {}}
    found = objects.pod(name, count, resource=resource, meta=meta, **spec)
    return decode.pod_change(kinds.convert(found, kinds.Pod))


def extender(*pods: events.Change, **nodes: str) -> World:
    cache = empty()
    for name, key in nodes.items():
        add_node(cache, name, by_key(key))
    found = World(cache)
    found.learn(*pods)
    return found


@pytest.mark.parametrize("asks", ASKS)
def test_d1_explain_names_what_the_pod_asks_for_and_what_the_server_is(
    asks: Any,
) -> None:
    world = extender(seen("p", 16, **asks), n1=A2.key, n2=A3.key)

    assert world.explain("p")["nodes"] == {
        "n1": "cannot give a pod 16 chips, only 1 to 8" + SUFFIX,
        "n2": "fits",
    }


def test_d1_a_pod_that_names_no_kind_of_server_is_told_of_none() -> None:
    pods = [seen("p", 16), seen("q", 2, resource="huawei.com/Ascend310P")]
    world = extender(*pods, n1=A2.key, n2="atlas-310p")

    assert world.explain("p")["nodes"]["n1"] == (
        "cannot give a pod 16 chips, only 1 to 8"
    )
    assert world.explain("q")["nodes"]["n2"] == "fits"


def test_d1_a_pod_that_asks_for_nothing_any_more_is_told_of_nothing() -> None:
    world = extender(seen("p", 16, **ASKS[1]), seen("p", 16), n1=A2.key)

    assert "asks for" not in str(world.explain("p"))


@pytest.mark.parametrize("asks", ASKS)
def test_d1_explain_says_the_same_of_the_nodes_of_a_refused_job(asks: Any) -> None:
    pair = {"ascend-affinity/job": "j", "ascend-affinity/job-size": "2"}
    given: dict[str, Any] = {**asks, "annotations": asks.get("annotations", {}) | pair}
    members = [seen(name, 16, **given) for name in "ab"]
    world = extender(*members, n1=A2.key, n2=A2.key)

    world.filter("a", ["n1", "n2"])
    nodes = world.explain("a")["nodes"]

    assert {name: text.endswith(SUFFIX) for name, text in nodes.items()} == {
        "n1": True,
        "n2": True,
    }
