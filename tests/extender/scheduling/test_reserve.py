import pytest

from extender.cache import events
from extender.cache.cache import Cache
from extender.refusals import ExtenderReason, Refusal
from extender.scheduling import reserve
from scheduler_core.node import chips
from scheduler_core.node.reasons import Reason
from scheduler_core.placement import pod as pod_placement
from scheduler_core.wire.pods import NpuPod
from tests.support.caches import apply, bind, choose, cluster, time_of
from tests.support.clock import NOW_NS
from tests.support.watched import RESOURCE, claim, node, pod, report, tenant


def refused(cache: Cache, wanted: NpuPod, where: str = "n1") -> Refusal:
    made = choose(cache, wanted, where)
    assert isinstance(made, Refusal), made
    return made


@pytest.mark.seed("000-02")
@pytest.mark.seed("004-07")
@pytest.mark.seed("004-10")
def test_bind_writes_the_chips_and_the_time_of_the_choice() -> None:
    cache = cluster(tenant("a", "n1", (0, 1, 4)))

    placed = pod_placement.place(RESOURCE, 2, cache.index)

    made = bind(cache, pod("p", count=2), "n1")

    assert made.annotations == {
        RESOURCE: "Ascend910-2,Ascend910-3",
        "predicate-time": str(NOW_NS),
        "distributed-job": "false",
    }
    assert isinstance(placed, pod_placement.Placement)
    assert made.sentence == f"chips 2,3 of n1: {placed.reason}"


@pytest.mark.seed("004-10")
def test_the_chips_are_those_of_the_moment_of_bind_not_of_filter() -> None:
    cache = cluster()
    first, second = (pod(name, count=2) for name in "ab")
    # Both were filtered on the empty node; then both are bound.
    chosen = [bind(cache, wanted, "n1").reservation.chips for wanted in (first, second)]

    assert [chips.ids_of(mask) for mask in chosen] == [(0, 1), (2, 3)]


@pytest.mark.seed("004-11")
@pytest.mark.seed("004-12")
def test_tasks_of_one_moment_on_one_node_never_share_a_chip() -> None:
    cache = cluster()
    given = 0
    for i in range(8):
        mask = bind(cache, pod(f"p{i}"), "n1").reservation.chips
        assert not given & mask
        given |= mask

    assert refused(cache, pod("late")).reason is Reason.TOO_FEW_FREE


@pytest.mark.seed("000-09")
def test_times_grow_on_a_node_even_if_the_clock_stands_or_goes_back() -> None:
    cache = cluster()
    times = []
    for i, now_ns in enumerate((NOW_NS, NOW_NS, NOW_NS - 10**9, 5, NOW_NS + 7)):
        wanted = pod(f"p{i}")
        made = choose(cache, wanted, "n1", now_ns=now_ns)
        assert isinstance(made, reserve.Choice)
        apply(cache, made.reservation)
        times.append(time_of(made.reservation))

    assert times == [NOW_NS, NOW_NS + 1, NOW_NS + 2, NOW_NS + 3, NOW_NS + 7]


@pytest.mark.seed("000-09")
def test_times_grow_above_those_that_another_leader_wrote() -> None:
    ahead = NOW_NS + 10**12
    other = pod("a", node="n1", annotations=claim((0,), ahead))
    cache = cluster(events.PodUpdated(pod=other))

    made = bind(cache, pod("p"), "n1")

    assert time_of(made.reservation) == ahead + 1


def test_a_time_that_no_clock_can_show_is_not_outdone() -> None:
    poison = pod("a", node="n1", annotations=claim((0,), 2**64 - 2))
    cache = cluster(events.PodUpdated(pod=poison))

    assert time_of(bind(cache, pod("p"), "n1").reservation) == NOW_NS


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (node("n1", allocatable=0), Reason.NO_ALLOCATABLE),
        (report("n1", lost=(0,)), Reason.IDS_LOST),
        (events.ReportUpdated(node="n1"), Reason.AGENT_SILENT),
        (tenant("full", "n1", range(8)), Reason.TOO_FEW_FREE),
        (tenant("split", "n1", (0, 1, 2, 4, 5, 6)), Reason.GROUP_TOO_SMALL),
        (report("n1", unhealthy=range(1, 8)), Reason.CHIP_UNHEALTHY),
    ],
)
def test_what_changed_since_filter_refuses_the_bind(
    change: events.Change, reason: Reason
) -> None:
    assert refused(cluster(change), pod("p", count=2)).reason is reason


def test_a_node_that_is_not_known_is_refused() -> None:
    assert refused(cluster(), pod("p"), "n9").reason is Reason.NO_SUCH_NPU


def test_a_conflict_is_refused_even_on_the_last_node() -> None:
    cache = cluster()
    bind(cache, pod("a", reads_annotation=True), "n1")

    assert refused(cache, pod("b")).reason is Reason.CONFLICT


def test_a_pod_that_is_ending_is_refused() -> None:
    assert refused(cluster(), pod("p", deleting=True)).reason is ExtenderReason.POD


def test_an_open_bind_is_tried_again_with_the_same_chips_and_time() -> None:
    cache = cluster()
    wanted = pod("p", count=2)
    first = bind(cache, wanted, "n1")

    again = choose(cache, wanted, "n1", now_ns=NOW_NS + 99)

    assert isinstance(again, reserve.Choice)
    assert again.reservation == first.reservation
    assert again.annotations == first.annotations


def test_an_open_bind_is_not_tried_on_another_node_or_a_broken_one() -> None:
    cache = cluster(nodes=("n1", "n2"))
    wanted = pod("p", count=2)
    bind(cache, wanted, "n1")

    assert refused(cache, wanted, "n2").reason is ExtenderReason.OPEN_BIND

    apply(cache, report("n1", unhealthy=(0,)))
    assert refused(cache, wanted).reason is Reason.CHIP_UNHEALTHY

    apply(cache, node("n1", allocatable=0))
    assert refused(cache, wanted).reason is ExtenderReason.OPEN_BIND
