"""What others read of a scheduling decision, byte for byte.

The files in `outputs/` are what bind writes, as operators, clusterd and the device
plugin of MindCluster read it: keys, values and their form are theirs.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from extender.cache import events
from extender.cache.cache import Cache
from extender.planning.topology import Rules
from extender.scheduling import reserve
from scheduler_core.products import table
from scheduler_core.products.lookup import Traits
from scheduler_core.products.table import ATLAS_800_TRAINING
from scheduler_core.topology.leaves import Version
from scheduler_core.wire import annotations, configuration
from scheduler_core.wire.addresses import Address, Addresses
from scheduler_core.wire.pods import PodMeta, RawContainer, npu_pod
from tests.support.caches import (
    add_node,
    apply,
    bind,
    choose,
    empty,
    known_pod,
    planned,
    reservations,
    superpods,
    switched,
)
from tests.support.watched import LARGE, member, node, pod, pod_update, report, tenant

OUTPUTS = Path(__file__).parent / "outputs"
PARAMETER_PLANE = Addresses(
    super_pod_id=3,
    chips=MappingProxyType(
        {
            chip: Address(ip=f"192.168.20.{100 + chip}", super_device_id=64 + chip)
            for chip in range(8)
        }
    ),
)


def is_as_recorded(name: str, written: Mapping[str, str]) -> None:
    text = json.dumps(written, indent=1, ensure_ascii=False) + "\n"
    assert text == (OUTPUTS / f"{name}.json").read_text()


def one_node(addresses: Addresses | None = PARAMETER_PLANE) -> Cache:
    cache = empty()
    add_node(cache, "n1", address="10.0.0.5", superpod=3, addresses=addresses)
    return cache


def bound(cache: Cache, name: str) -> Mapping[str, str]:
    """What bind writes on a pod that its job's plan has on a node."""
    wanted = known_pod(cache, name)
    where = reservations(cache)[wanted.uid].node
    made = choose(cache, wanted, where)
    assert isinstance(made, reserve.Choice), made
    return made.annotations


def test_a_pod_by_itself_says_chips_time_and_that_it_is_alone() -> None:
    cache = one_node()
    apply(cache, tenant("a", "n1", (0, 1)))

    made = bind(cache, pod("p", count=2), "n1")

    is_as_recorded("one-pod", made.annotations)


def test_a_pod_of_a_deployment_gets_a_rank_where_nobody_else_gives_one() -> None:
    owner = "ReplicaSet/default/infer-6d"
    written = {"hccl/rankIndex": "7"}

    made = bind(one_node(), pod("p", owner=owner), "n1")
    ranked = pod("q", owner=owner, annotations=written)

    is_as_recorded("replica", made.annotations)
    assert "hccl/rankIndex" not in bind(one_node(), ranked, "n1").annotations


def test_a_pod_with_all_chips_of_its_node_has_its_configuration_at_once() -> None:
    made = bind(one_node(), pod("p", count=8), "n1")

    is_as_recorded("whole-node", made.annotations)


def test_that_configuration_is_the_one_that_the_agent_writes() -> None:
    made = bind(one_node(), pod("p", count=8), "n1")

    text = made.annotations[annotations.CONFIGURATION]
    assert text == configuration.render(
        "p", "uid-p", "10.0.0.5", range(8), PARAMETER_PLANE
    )


def test_a_configuration_has_the_addresses_that_the_node_lists_now() -> None:
    cache, wanted = one_node(), pod("p", count=8)
    apply(cache, pod_update("p", count=8))
    before = choose(cache, wanted, "n1")

    moved = replace(PARAMETER_PLANE, chips=dict.fromkeys(range(8), Address(ip="::1")))
    apply(cache, node("n1", address="10.0.0.5", addresses=moved))
    after = choose(cache, wanted, "n1")

    assert isinstance(before, reserve.Choice)
    assert isinstance(after, reserve.Choice)
    assert "::1" not in before.annotations[annotations.CONFIGURATION]
    assert after.annotations[annotations.CONFIGURATION].count('"::1"') == 8


def test_of_chips_that_are_asked_for_as_npus_it_has_a_key_of_its_own() -> None:
    cache = empty()
    add_node(cache, "n1", table.by_key("npu-flat-16"), address="10.0.0.5")
    meta = PodMeta(uid="u", namespace="default", name="p", annotations={})
    asking = RawContainer(name="c", limits={"huawei.com/npu": "16"})
    wanted = npu_pod(meta, [asking], "huawei.com/npu")
    assert wanted is not None

    made = bind(cache, wanted, "n1")

    assert annotations.CONFIGURATION not in made.annotations
    text = made.annotations["ascend.kubectl.kubernetes.io/ascend-npu-configuration"]
    assert len(json.loads(text)["devices"]) == 16


@pytest.mark.parametrize(
    "change",
    [
        node("n1", there=range(4), allocatable=8),
        report("n1", unhealthy=range(4)),
        node("n1", allocatable=4),
    ],
    ids=["chips are not listed", "chips are broken", "chips are not offered"],
)
def test_of_less_than_a_whole_node_only_the_agent_knows_the_configuration(
    change: events.Change,
) -> None:
    cache = one_node()
    apply(cache, change)

    made = bind(cache, pod("p", count=4), "n1")

    assert annotations.CONFIGURATION not in made.annotations


def test_a_job_that_shares_a_leaf_says_which() -> None:
    names = ("n1", "n2", "n3", "n4", "n5", "n6")
    cache = switched(*names)
    traits = Traits(
        labels=LARGE.labels, annotations={"huawei.com/schedule_minAvailable": "5"}
    )
    apply(cache, *(member(each, size=5, traits=traits) for each in "abcde"))

    found = planned(cache, names, Rules(switches=Version.TWO))

    assert isinstance(found, dict)
    [shared] = [
        name for name, (_, marks) in found.items() if marks["isSharedTor"] == "1"
    ]
    is_as_recorded("shared-leaf", bound(cache, shared))


def test_a_job_of_superpods_says_the_logical_and_the_physical_one() -> None:
    cache = superpods(n1=0, n2=1, n3=1)
    traits = Traits(annotations={"sp-block": "32"})
    apply(cache, *(member(name, count=16, traits=traits) for name in "ab"))

    planned(cache, ("n1", "n2", "n3"), Rules(superpod_reserve=0))

    is_as_recorded("superpod", bound(cache, "b"))


def test_a_pod_by_itself_says_its_superpod_if_it_asked_for_one() -> None:
    asks = {"sp-block": "8"}

    made = bind(one_node(), pod("p", count=8, annotations=asks), "n1")
    plain = bind(one_node(), pod("q", count=8), "n1")

    assert made.annotations["super-pod-rank"] == "0"
    assert made.annotations["super-pod-id"] == "3"
    assert "super-pod-id" not in plain.annotations


def test_a_node_whose_addresses_cannot_be_read_has_a_configuration_later() -> None:
    cache = one_node()
    told = '{"Ascend910-0":{"IP":7}}'
    offer = events.Offer(
        resource=ATLAS_800_TRAINING.resource, product=ATLAS_800_TRAINING, allocatable=1
    )
    seen = events.NodeUpdated(
        name="n1", offers=(offer,), inventory=told, internal_ips=("10.0.0.5",)
    )
    apply(cache, seen)

    made = bind(cache, pod("p", count=1), "n1")

    assert annotations.CONFIGURATION not in made.annotations


def test_a_node_without_an_address_has_a_configuration_later() -> None:
    cache = empty()
    add_node(cache, "n1", address="", superpod=3, addresses=PARAMETER_PLANE)

    made = bind(cache, pod("p", count=8), "n1")

    assert annotations.CONFIGURATION not in made.annotations
