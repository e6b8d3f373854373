import dataclasses

import pytest

from extender.cache import events
from extender.cache.node_state import UNSHOWN_S
from scheduler_core.node.reasons import Reason
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import PodMeta, RawContainer, npu_pod
from tests.support.caches import (
    apply,
    backoff,
    barred,
    bind,
    cluster,
    conflicts,
    empty,
    free,
    has_unconfirmed,
    improved,
    record_rejection,
    reservations,
    take_improved,
)
from tests.support.clock import NOW_S
from tests.support.watched import (
    ALL_FREE,
    RESOURCE,
    claim,
    node,
    pod,
    pod_update,
    rejection,
    report,
    running,
    served,
    tenant,
)


def test_a_node_whose_agent_reports_is_free() -> None:
    cache = cluster()

    assert free(cache, "n1") == (0, 1, 2, 3, 4, 5, 6, 7)
    assert barred(cache) is None


def test_only_chips_that_the_node_has_are_free() -> None:
    cache = cluster(node("n1", there=(0, 1, 6)))

    assert free(cache, "n1") == (0, 1, 6)


def test_claimed_and_mounted_chips_are_both_taken() -> None:
    swapped = claim((0, 1)) | {annotations.ASCEND_REAL: "Ascend910-4,Ascend910-5"}

    cache = cluster(running("a", swapped))

    assert free(cache, "n1") == (2, 3, 6, 7)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_an_ended_pod_gives_its_chips_back(phase: str) -> None:
    cache = cluster(tenant("a", "n1", (0, 1)))
    ended = pod("a", node="n1", phase=phase, annotations=served((0, 1)))

    apply(cache, events.PodUpdated(pod=ended))
    apply(cache, events.Ticked(), now_s=NOW_S + UNSHOWN_S)

    assert len(free(cache, "n1")) == 8


def test_a_pod_that_is_being_deleted_keeps_its_chips_until_it_is_gone() -> None:
    ending = pod_update(
        "a", node="n1", phase="Running", deleting=True, annotations=served((0,))
    )
    cache = cluster(ending)
    assert 0 not in free(cache, "n1")

    apply(cache, events.PodDeleted(uid="uid-a"))
    apply(cache, events.Ticked(), now_s=NOW_S + UNSHOWN_S)

    assert 0 in free(cache, "n1")


def test_chips_that_no_report_showed_as_held_outlast_their_pod_for_a_while() -> None:
    cache = cluster(tenant("a", "n1", (0, 1)))
    take_improved(cache)

    apply(cache, events.PodDeleted(uid="uid-a"))
    apply(cache, events.Ticked(), now_s=NOW_S + UNSHOWN_S - 0.1)
    during = (free(cache, "n1"), improved(cache))
    apply(cache, events.Ticked(), now_s=NOW_S + UNSHOWN_S)

    assert during == ((2, 3, 4, 5, 6, 7), set())
    assert (len(free(cache, "n1")), improved(cache)) == (8, {"n1"})


def test_chips_that_were_shown_as_held_follow_the_reports_alone() -> None:
    cache = cluster(tenant("a", "n1", (0, 1)), report("n1", held=(0, 1)))

    apply(cache, events.PodDeleted(uid="uid-a"))
    held = free(cache, "n1")
    apply(cache, report("n1"))

    assert held == (2, 3, 4, 5, 6, 7)
    assert len(free(cache, "n1")) == 8


@pytest.mark.parametrize(
    "text",
    [
        "Ascend910-0, Ascend910-1",
        "Ascend910-0,Ascend910-1,",
        "Ascend910-0,Ascend910-0,Ascend910-1",
        "Ascend910-1,Ascend910-99,Ascend910-0",
        "Ascend910-0,Ascend310-7,Ascend910-1",
    ],
)
def test_chips_that_an_unreadable_claim_names_are_taken_all_the_same(text: str) -> None:
    cache = cluster(running("a", {RESOURCE: text, annotations.PREDICATE_TIME: "5"}))

    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize("time", ["", "-1", "soon", str(2**64), "1.5"])
def test_a_claim_with_an_unreadable_time_takes_its_chips(time: str) -> None:
    cache = cluster(running("a", claim((0,)) | {annotations.PREDICATE_TIME: time}))

    assert 0 not in free(cache, "n1")
    assert not has_unconfirmed(cache)


def test_a_node_without_the_resource_in_its_allocatable_is_barred() -> None:
    assert barred(cluster(node("n1", allocatable=0))) is Reason.NO_ALLOCATABLE


def test_a_deleted_node_leaves_nothing_behind() -> None:
    cache = cluster()

    apply(cache, events.NodeUpdated(name="n1"), events.ReportUpdated(node="n1"))

    assert len(cache.index) == 0
    assert not cache.nodes


def test_a_promise_takes_chips_until_the_watch_shows_the_pod() -> None:
    cache = cluster()
    wanted = pod("a", count=2)
    made = bind(cache, wanted, "n1")
    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)

    bound = pod("a", count=2, node="n1", annotations=made.annotations)
    apply(cache, events.PodUpdated(pod=bound))

    assert reservations(cache) == {}
    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)


def test_a_late_event_of_before_the_bind_does_not_end_the_promise() -> None:
    cache = cluster()
    wanted = pod("a", count=2)
    bind(cache, wanted, "n1")

    apply(cache, events.PodUpdated(pod=wanted))

    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)


def test_a_bound_pod_does_not_become_unbound_by_old_news() -> None:
    cache = cluster(tenant("a", "n1", (0,)))

    apply(cache, pod_update("a"))

    assert 0 not in free(cache, "n1")


def test_a_new_pod_of_the_same_name_is_another_pod() -> None:
    cache = cluster(tenant("a", "n1", (0,)))

    apply(cache, pod_update("a", uid="new"))
    apply(cache, events.PodDeleted(uid="uid-a"))
    apply(cache, events.Ticked(), now_s=NOW_S + UNSHOWN_S)

    assert 0 in free(cache, "n1")
    found = cache.pod_named("default", "a")
    assert found is not None
    assert found.uid == "new"


def test_an_ended_pod_does_not_live_again_by_old_news() -> None:
    ended = pod_update("a", node="n1", phase="Failed", annotations=served((0,)))
    cache = cluster(ended)

    apply(cache, tenant("a", "n1", (0,)))

    assert 0 in free(cache, "n1")


def test_a_pod_may_be_seen_before_its_node() -> None:
    cache = empty()

    apply(cache, tenant("a", "n1", (0, 1)), node("n1"), report("n1"))

    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)


def test_a_pod_of_another_resource_takes_none_of_these_chips() -> None:
    limits = {"huawei.com/Ascend310": "1"}
    other = npu_pod(
        PodMeta(
            uid="u", namespace="d", name="p", node="n1", annotations=served((0, 1))
        ),
        [RawContainer(name="c", limits=limits)],
        "huawei.com/Ascend310",
    )
    assert other is not None

    cache = cluster(events.PodUpdated(pod=other))

    assert len(free(cache, "n1")) == 8


def test_a_claim_waits_until_it_is_confirmed() -> None:
    cache = cluster()
    made = bind(cache, pod("a"), "n1")
    bound = pod_update("a", node="n1", annotations=made.annotations)

    apply(cache, bound)
    unlike = dataclasses.replace(bound.pod.shape, role="another")
    assert conflicts(cache, unlike) == {"n1"}

    apply(cache, tenant("a", "n1", (0,)))
    assert not has_unconfirmed(cache)


def test_a_rejection_that_is_heard_of_twice_counts_once() -> None:
    cache = cluster()
    for name in "ab":
        wanted, seen = rejection(name)
        apply(cache, wanted, seen, seen)

    assert backoff(cache, "Job/default/j", NOW_S) is None


def test_rejections_are_counted_when_they_are_seen_to_happen() -> None:
    cache = cluster()
    for name in "abc":
        apply(cache, *rejection(name))

    assert backoff(cache, "Job/default/j", NOW_S) is not None


def test_pods_that_failed_before_we_came_are_no_storm() -> None:
    cache = cluster()
    for name in "abc":
        old = pod(name, owner="Job/default/j", node="n1", phase="Failed")
        apply(cache, events.PodUpdated(pod=old, rejected=True))

    assert backoff(cache, "Job/default/j", NOW_S) is None


def test_a_node_is_better_when_chips_become_free_and_not_when_they_are_taken() -> None:
    cache = cluster(tenant("train", "n1", (0, 1)))
    take_improved(cache)

    apply(cache, tenant("next", "n1", (2,)))
    taken = improved(cache)
    apply(cache, events.PodDeleted(uid="uid-train"))
    apply(cache, events.Ticked(), now_s=NOW_S + UNSHOWN_S)

    assert (taken, improved(cache)) == (set(), {"n1"})


@pytest.mark.parametrize(
    ("where", "better", "ids"),
    [("n1", set(), (2, 3, 4, 5, 6, 7)), ("n2", {"n1"}, ALL_FREE)],
)
def test_a_node_is_better_only_if_its_promised_pod_has_come_to_another(
    where: str, better: set[str], ids: tuple[int, ...]
) -> None:
    """Else each bind would have the scheduler try all pods again that wait."""
    cache = cluster(nodes=("n1", "n2"))
    waiting = pod_update("a", count=2)
    apply(cache, waiting)
    bind(cache, waiting.pod, "n1")
    take_improved(cache)

    apply(cache, pod_update("a", count=2, node=where, annotations=claim((0, 1))))

    assert (improved(cache), reservations(cache)) == (better, {})
    assert free(cache, "n1") == ids


def test_a_node_is_better_when_the_agent_has_released_what_it_held() -> None:
    cache = cluster(report("n1", held=(0, 1)))
    take_improved(cache)

    apply(cache, report("n1"))

    assert improved(cache) == {"n1"}


def test_a_node_is_better_when_a_claim_was_confirmed() -> None:
    waiting = pod_update("a", node="n1", count=2, annotations=claim((0, 1)))
    cache = cluster(waiting)
    confirmed = pod_update("a", node="n1", count=2, annotations=served((0, 1)))
    take_improved(cache)

    apply(cache, confirmed)

    assert improved(cache) == {"n1"}


def test_a_node_is_better_when_an_owner_has_waited_long_enough() -> None:
    cache = cluster()
    apply(cache, events.Ticked())
    for _ in range(3):
        record_rejection(cache, "Job/default/j")
    take_improved(cache)

    apply(cache, events.Ticked(), now_s=NOW_S + 9)
    during = improved(cache)
    apply(cache, events.Ticked(), now_s=NOW_S + 10)
    after = improved(cache)
    take_improved(cache)
    apply(cache, events.Ticked(), now_s=NOW_S + 11)

    assert (during, after, improved(cache)) == (set(), {"n1"}, set())
    assert backoff(cache, "Job/default/j", NOW_S + 10) is None
