"""Pods that ask for parts of chips which were cut beforehand."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from extender.cache import decode, events, verify
from extender.cache.cache import Cache
from extender.planning.topology import NetworkTopology, Rules
from extender.preemption import victims
from extender.queries import explain, snapshot
from extender.refusals import Refusal
from extender.scheduling import node_filter
from kube import objects
from scheduler_core.node.chips import ids_of
from scheduler_core.products import lookup
from scheduler_core.products.columns import Product
from scheduler_core.products.table import ATLAS_800_TRAINING
from scheduler_core.snapshot import document
from scheduler_core.wire import annotations, deviceinfo, inventory
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo, StaticParts
from scheduler_core.wire.pods import NpuPod
from tests.extender.kube_scheduler.test_verbs import served
from tests.extender.volcanos import volcano
from tests.support import objects as support
from tests.support.caches import apply, bind, choose, empty
from tests.support.clock import NOW_S
from tests.support.extender import World

QUARTER = "huawei.com/Ascend910-4c"
CHIP = ATLAS_800_TRAINING.resource


def row_of(resource: str) -> Product:
    row = lookup.find_virtual_row(resource)
    assert row is not None
    return row


ROW = row_of(QUARTER)
SERVED = {annotations.PREDICATE_TIME: str(annotations.SERVED)}
#: two parts of chip 6, four of chip 7
PARTS = (96, 97, 112, 113, 114, 115)


def node_of(
    name: str, parts: Iterable[int] = PARTS, *, count: int | None = None, **more: int
) -> events.NodeUpdated:
    """A Node with eight chips, and with these parts.

    Args:
        count: How many parts the kubelet offers; None: all of them.
    """
    named = tuple(parts)
    offered = {CHIP: "6", QUARTER: str(len(named) if count is None else count)}
    lines = [inventory.Line(named, ROW, Addresses())] if named else []
    marks = inventory.render(range(8), ATLAS_800_TRAINING, None, lines)
    node = {
        "metadata": {"name": name, "annotations": {"baseDeviceInfos": marks}},
        "status": {"capacity": offered, "allocatable": offered},
    }
    return decode.node_change(objects.convert(node, objects.Node))


def report_of(
    name: str,
    *,
    held: Iterable[int] = (),
    unhealthy: tuple[int, ...] = (),
    knows_parts: bool = True,
) -> events.ReportUpdated:
    """What the agent of a node reports; held parts, and chips that are unhealthy."""
    affinity = Affinity(held=tuple(held), sequence=1)
    data = deviceinfo.render(
        DeviceInfo(available=(0, 1), unhealthy=unhealthy, update_time=int(NOW_S)),
        Affinity(held=(6, 7), sequence=1),
        ATLAS_800_TRAINING,
        static_parts=[StaticParts(ROW, affinity)] if knows_parts else [],
    )
    return events.ReportUpdated(
        node=name,
        device_info=data[deviceinfo.DEVICE_INFO_KEY],
        affinity=data[deviceinfo.AFFINITY_KEY],
    )


def pod_object(
    name: str,
    limits: Mapping[str, str] | None = None,
    *,
    node: str = "",
    said: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> objects.Pod:
    asked: dict[str, Any] = {"limits": dict(limits or {QUARTER: "1"})}
    made = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": dict(said or {}),
            "labels": dict(labels or {}),
        },
        "spec": {
            "containers": [{"name": "main", "resources": asked}],
            "nodeName": node,
        },
    }
    return objects.convert(made, objects.Pod)


def pod_of(
    name: str, limits: Mapping[str, str] | None = None, **more: Any
) -> events.PodUpdated:
    change = decode.pod_change(pod_object(name, limits, **more))
    assert isinstance(change, events.PodUpdated)
    return change


def cluster_of(*changes: events.Change, names: Iterable[str] = ("n1",)) -> Cache:
    cache = empty()
    for name in names:
        apply(cache, node_of(name), report_of(name))
    apply(cache, *changes)
    return cache


def free_of(cache: Cache, name: str = "n1", resource: str = QUARTER) -> tuple[int, ...]:
    return ids_of(cache.index.nodes(resource)[name].free)


def texts(cache: Cache, wanted: NpuPod, *names: str) -> dict[str, str]:
    result = node_filter.judge_nodes(cache, wanted, names, NOW_S)
    found = result.texts(is_resolvable=True) | result.texts(is_resolvable=False)
    return dict.fromkeys(result.fitting, "fits") | found


@pytest.mark.seed("002-01")
def test_a_pod_gets_a_part_of_the_chip_with_the_fewest_left() -> None:
    cache = cluster_of()
    wanted = pod_of("p")
    apply(cache, wanted)

    made = bind(cache, wanted.pod, "n1")

    time = made.annotations[annotations.PREDICATE_TIME]
    assert made.annotations == {
        QUARTER: "Ascend910-4c-196-6",
        annotations.PREDICATE_TIME: time,
        **{k: v for k, v in made.annotations.items() if k.startswith("distributed")},
    }
    assert made.sentence == (
        "Ascend910-4c-196-6 of n1: 1 of the 2 free chips of one chip (4 more free on "
        "the node), on a node with all 6 parts healthy"
    )
    assert free_of(cache) == (97, 112, 113, 114, 115)


def test_a_bound_pod_keeps_its_part_by_either_annotation() -> None:
    claim = {QUARTER: "Ascend910-4c-197-6", annotations.PREDICATE_TIME: "7"}
    real = {annotations.ASCEND_REAL: "Ascend910-4c-212-7"}
    cache = cluster_of(
        pod_of("a", node="n1", said=claim), pod_of("b", node="n1", said=real)
    )

    assert free_of(cache) == (96, 113, 114, 115)
    assert choose_time(cache) == 8


def choose_time(cache: Cache) -> int:
    """The time of the next claim on n1."""
    made = choose(cache, pod_of("next").pod, "n1", now_ns=1)
    assert not isinstance(made, Refusal)
    return int(made.annotations[annotations.PREDICATE_TIME])


def test_held_parts_are_not_free_and_cut_chips_are_not_given_whole() -> None:
    cache = cluster_of(report_of("n1", held=(97, 114)))

    assert free_of(cache) == (96, 112, 113, 115)
    assert free_of(cache, resource=CHIP) == (0, 1, 2, 3, 4, 5)


def test_a_part_is_as_healthy_as_its_chip() -> None:
    cache = cluster_of(report_of("n1", unhealthy=(7,)))
    assert free_of(cache) == (96, 97)

    apply(cache, report_of("n1", unhealthy=(6, 7)))

    assert texts(cache, pod_of("p").pod, "n1") == {"n1": "chip unhealthy"}


def test_a_node_whose_agent_is_silent_gives_no_parts() -> None:
    cache = cluster_of()
    apply(cache, events.Ticked(), now_s=NOW_S + 1000)

    assert texts(cache, pod_of("p").pod, "n1") == {"n1": "agent silent"}


def test_more_than_one_part_or_parts_beside_chips_are_refused_everywhere() -> None:
    cache = cluster_of()
    two = pod_of("two", {QUARTER: "2"})
    mixed = pod_of("mixed", {QUARTER: "1", CHIP: "1"})

    assert texts(cache, two.pod, "n1") == {"n1": "cannot give a pod 2 chips, only 1"}
    assert texts(cache, mixed.pod, "n1") == {
        "n1": f"a pod gets NPUs of one kind: ask for {CHIP} or {QUARTER}"
    }


def test_nodes_with_touched_chips_come_first() -> None:
    claim = {QUARTER: "Ascend910-4c-196-6", annotations.PREDICATE_TIME: "7"}
    cache = cluster_of(pod_of("a", node="n2", said=claim), names=("n1", "n2", "n3"))

    assert texts(cache, pod_of("p").pod, "n1", "n2", "n3") == {
        "n1": "another node fits better",
        "n2": "fits",
        "n3": "another node fits better",
    }


# -- nodes that name no parts ------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "knows_parts"),
    [
        (node_of("n1", (), count=2), False),  # an older agent
        (node_of("n1", (), count=2), True),
    ],
)
def test_where_no_parts_are_named_they_are_counted_and_no_claim_is_written(
    node: events.NodeUpdated, *, knows_parts: bool
) -> None:
    cache = empty()
    apply(cache, node, report_of("n1", knows_parts=knows_parts))
    first, second, third = pod_of("a"), pod_of("b"), pod_of("c")
    apply(cache, first, second, third)

    made = bind(cache, first.pod, "n1")
    apply(cache, pod_of("a", node="n1"))
    again = bind(cache, second.pod, "n1")

    assert made.annotations == again.annotations == {}
    assert made.sentence == (
        "a part of n1: the kubelet chooses which, as the node names none"
    )
    assert texts(cache, third.pod, "n1") == {"n1": "no free part"}


def test_where_parts_are_counted_an_evicted_pod_frees_one() -> None:
    cache = empty()
    apply(cache, node_of("n1", (), count=1), report_of("n1"))
    apply(cache, pod_of("a", node="n1"))
    wanted = pod_of("p").pod

    assert victims.do_help(cache, wanted, "n1", ["uid-a"])
    assert not victims.do_help(cache, wanted, "n1", [])


def test_an_evicted_pod_frees_the_part_that_it_has() -> None:
    claims = [
        {QUARTER: f"Ascend910-4c-{100 + part}-{part // 16}", **SERVED} for part in PARTS
    ]
    pods = [pod_of(f"p{at}", node="n1", said=one) for at, one in enumerate(claims)]
    cache = cluster_of(*pods)
    wanted = pod_of("p").pod

    assert texts(cache, wanted, "n1") == {"n1": "no free part"}
    assert victims.do_help(cache, wanted, "n1", ["uid-p3"])
    assert not victims.do_help(cache, wanted, "n1", [])


def test_a_node_without_any_report_is_counted_too() -> None:
    cache = empty()
    apply(cache, node_of("n1"))

    assert texts(cache, pod_of("p").pod, "n1") == {"n1": "fits"}
    assert texts(cache, pod_of("p", {CHIP: "1"}).pod, "n1") == {"n1": "agent silent"}


def test_a_node_that_offers_none_now_is_refused() -> None:
    cache = cluster_of(node_of("n1", count=0))
    assert texts(cache, pod_of("p").pod, "n1") == {"n1": "kubelet offers no NPU"}

    apply(cache, node_of("n1", (), count=0))

    assert texts(cache, pod_of("p").pod, "n1") == {"n1": "no such NPU"}


def test_numbers_that_are_not_those_of_their_chips_are_counted() -> None:
    node = node_of("n1", ())
    marks = json.loads(node.inventory) | {"Ascend910-4c-100-7": {}}
    offered = {QUARTER: "1"}
    shown = {
        "metadata": {
            "name": "n1",
            "annotations": {"baseDeviceInfos": json.dumps(marks)},
        },
        "status": {"capacity": offered, "allocatable": offered},
    }
    cache = empty()
    apply(
        cache,
        decode.node_change(objects.convert(shown, objects.Node)),
        report_of("n1"),
    )

    made = bind(cache, pod_of("p").pod, "n1")

    assert made.annotations == {}


# -- jobs, answers ---------------------------------------------------------------------


def test_pods_with_parts_are_no_gang_but_count_in_a_group_of_all_pods() -> None:
    job = {"scheduling.x-k8s.io/pod-group": "g"}
    cache = cluster_of()
    part = pod_of("part", labels=job)
    apply(cache, part, pod_of("chip", {CHIP: "1"}, labels=job))
    (gang,) = cache.gangs.values()

    assert cache.gang_of("uid-part") is None or "uid-part" not in gang.members
    assert gang.others == {"uid-part"}
    assert [*gang.members] == ["uid-chip"]
    assert verify.find_drift(cache, part) == ""

    apply(cache, events.PodDeleted(uid="uid-part"))

    assert gang.others == set()


def test_explain_names_the_part() -> None:
    claim = {QUARTER: "Ascend910-4c-197-6", annotations.PREDICATE_TIME: "7"}
    bound = pod_of("a", node="n1", said=claim)
    cache = cluster_of(bound)

    answer = explain.explain(World(cache).sources, bound.pod, move={})

    assert (answer["part"], answer["chips"]) == ("Ascend910-4c-197-6", [97])
    assert "  part: Ascend910-4c-197-6\n" in explain.render_text(answer)


def test_a_snapshot_has_the_parts_and_is_read_back() -> None:
    claim = {QUARTER: "Ascend910-4c-197-6", annotations.PREDICATE_TIME: "7"}
    cache = cluster_of(pod_of("a", node="n1", said=claim), report_of("n1", held=(97,)))

    taken = snapshot.take(cache, NetworkTopology(cache, Rules()))
    read = document.parse(document.render(taken))

    assert read == taken
    (part_node,) = [node for node in read.nodes if node.product is ROW]
    assert (part_node.chips, part_node.held) == (PARTS, (97,))


# -- both schedulers ---------------------------------------------------------------


async def test_kube_schedulers_pods_get_a_part_each_and_the_rest_wait() -> None:
    cache = cluster_of(names=("n1", "n2", "n3"))
    given = []
    async with served(cache) as (extender, api):
        for number in range(20):
            change = pod_of(f"p{number}")
            apply(cache, change)
            api.add(change.pod.name, change.pod.uid)
            meta = {"uid": change.pod.uid}
            sent = support.pod(change.pod.name, 1, resource=QUARTER, meta=meta)
            answer = await extender.filter(sent, "n1", "n2", "n3")
            if not answer["NodeNames"]:
                given.append(answer["FailedNodes"])
                continue
            node = answer["NodeNames"][0]
            assert await extender.bind(sent, node) == {"Error": ""}
            said = api.bindings[-1]["metadata"]["annotations"]
            given.append((node, said[QUARTER]))
            apply(cache, pod_of(change.pod.name, node=node, said=said))

    # the chips with two parts first, on all nodes, then those with four
    assert given == [
        (node, f"Ascend910-4c-{100 + part}-{part // 16}")
        for chip in (PARTS[:2], PARTS[2:])
        for node in ("n1", "n2", "n3")
        for part in chip
    ] + 2 * [dict.fromkeys(("n1", "n2", "n3"), "no free part")]


async def test_volcanos_pods_get_a_part_each_and_give_it_back() -> None:
    names = [f"p{number}" for number in range(7)]
    async with volcano(cluster_of(*map(pod_of, names))) as world:
        refused = [await world.allocate(name, "n1") for name in names]
        parts = [world.pods.on[f"uid-{name}"][QUARTER] for name in names[:6]]

        assert refused == [*6 * [""], "no free part"]
        assert len(set(parts)) == 6
        assert await world.predicate("p6", "n1") == "no free part"
        assert await world.deallocate("p2", "n1") == ""
        assert world.pods.on["uid-p2"] == {}
        assert await world.predicate("p6", "n1") == ""
