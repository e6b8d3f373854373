"""Which pods of a job would go, and where to, on caches of a few nodes."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.requests import Resources
from extender.cache.reservations import Owner
from extender.gang.fault_policy import FaultWishes
from extender.gang.membership import SizeSource
from extender.planning.plan_input import TopologySnapshot
from extender.refusals import READING
from extender.rescheduling.assessment import Assessment, Word
from extender.rescheduling.judge import Question, judge
from kube.objects import UNSCHEDULABLE, Taint
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products.lookup import Traits
from scheduler_core.rescheduling.ladder import Rung
from scheduler_core.wire.annotations import ALLOCATED_ON
from tests.extender.rescheduling.jobs import (
    BY_POD,
    GRACE,
    JOB,
    broken,
    lone,
    of_job,
)
from tests.support.caches import all_reservations, apply, cluster, kept, set_aside
from tests.support.watched import node, report, tenant

ALL = range(8)
PER_POD = TopologySnapshot(profile=Profile.PER_POD)
SOURCE = SizeSource(path="/apis/x", kind="JobSet")


def asked(
    cache: Cache,
    job: str = JOB,
    faulty: Mapping[str, int] | None = None,
    **parts: object,
) -> Assessment:
    """The assessment; unless said otherwise chip 0 of `a` is broken."""
    before = cache.version, all_reservations(cache)
    question = Question(job=job, faulty=faulty or {"uid-a": 1}, **parts)  # type: ignore[arg-type]  # parts by name
    found = judge(cache, question, lambda _gang: PER_POD)
    assert (cache.version, all_reservations(cache)) == before, "judging only reads"
    return found


def pair(**parts: object) -> tuple[events.PodUpdated, events.PodUpdated]:
    """A job of two: `a` has all of n1, `b` all of n2."""
    return (
        of_job("a", "n1", ALL, **parts),  # type: ignore[arg-type]  # parts by name
        of_job("b", "n2", ALL, **parts),  # type: ignore[arg-type]  # parts by name
    )


def moves(*leaving: str, rung: Rung = Rung.JOB, **places: str) -> Assessment:
    return Assessment(word=Word.MOVES, rung=rung, leaving=leaving, places=places)


EIGHT = "(chips 0,1,2,3,4,5,6,7)"
NAMES = ("n1", "n2", "n3")


def test_a_whole_job_goes_and_the_healthy_pod_returns() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)

    assert asked(cache) == moves("a", "b", a=f"n3 {EIGHT}")


def test_the_fault_pod_goes_alone_where_the_job_allows_it() -> None:
    cache = cluster(*pair(says=BY_POD), broken("n1", 0), nodes=NAMES)

    assert asked(cache) == moves("a", rung=Rung.PODS, a=f"n3 {EIGHT}")


def test_a_pod_by_itself_goes_to_good_chips_of_its_own_node_if_no_other_has_room() -> (
    None
):
    pods = lone("a", "n1", (0, 1, 2, 3)), tenant("x", "n2", ALL)
    cache = cluster(*pods, broken("n1", 0), nodes=("n1", "n2"))

    found = asked(cache, "uid-a")

    assert found == moves("a", rung=Rung.PODS, a="n1 (chips 4,5,6,7)")


def test_the_node_of_the_fault_is_avoided_if_another_has_room() -> None:
    """By itself a pod of two chips would go where just two are free together."""
    pods = lone("a", "n1", (0, 1)), tenant("x", "n1", (4, 5, 6, 7))
    cache = cluster(*pods, broken("n1", 0), nodes=("n1", "n2"))

    assert asked(cache, "uid-a").places["a"].startswith("n2 ")


def test_cpu_of_the_pod_that_goes_counts_as_free() -> None:
    large = Resources(cpu=3000, memory=0)
    pods = lone("a", "n1", (0, 1)), tenant("x", "n2", ALL)
    cache = cluster(
        replace(pods[0], ask=large), pods[1], broken("n1", 0), nodes=("n1", "n2")
    )
    apply(cache, replace(node("n1"), allocatable_resources=Resources(4000, 0, 110)))

    assert asked(cache, "uid-a").places == {"a": "n1 (chips 4,5)"}


def test_the_nodes_that_are_best_for_chips_alone_are_not_the_last_word() -> None:
    small = [f"m{number:02}" for number in range(20)]
    fault = replace(lone("a", "n1", (0, 1)), ask=Resources(cpu=3000, memory=0))
    taken = [tenant(f"x{name}", name, range(2, 8)) for name in small]
    cache = cluster(fault, *taken, broken("n1", 0), nodes=("n1", *small, "z"))
    apply(cache, replace(node("z"), allocatable_resources=Resources(4000, 0, 110)))
    for name in small:
        apply(cache, replace(node(name), allocatable_resources=Resources(99, 0, 110)))

    assert asked(cache, "uid-a").places == {"a": "z (chips 0,1)"}


def test_a_chip_that_is_restarted_once_it_is_free_serves_no_more() -> None:
    """FreeRestartNPU: it counts as healthy as long as the pod has it."""
    pods = lone("a", "n1", ALL), tenant("x", "n2", range(1, 8))
    cache = cluster(*pods, nodes=("n1", "n2"))

    found = asked(cache, "uid-a", {"uid-a": 1})

    assert found.word is Word.NO_SPARE


def test_nobody_goes_without_a_place_and_what_is_missing_is_told() -> None:
    pods = *pair(), tenant("x", "n3", (5,))
    cache = cluster(*pods, broken("n1", 0), nodes=NAMES)

    found = asked(cache)

    assert found.word is Word.NO_SPARE
    assert found.leaving == ()
    assert "of 1 pods fit" in found.why
    assert "1 without 8 free chips" in found.why or "free" in found.why


def test_reserved_chips_are_no_spare() -> None:
    spare = kept("uid-z", "n3", 0b1)
    cache = cluster(*pair(), broken("n1", 0), spare, nodes=NAMES)

    assert asked(cache).word is Word.NO_SPARE


def test_nodes_that_are_kept_for_another_job_are_no_spare() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)
    set_aside(cache, "n3", "Job/default/large")

    assert asked(cache).word is Word.NO_SPARE


@pytest.mark.parametrize(
    ("change", "is_spare"),
    [
        ({}, True),
        ({"taints": (UNSCHEDULABLE,)}, False),
        ({"taints": (Taint(key="k", effect="NoSchedule"),)}, False),
        ({"taints": (Taint(key="k", effect="PreferNoSchedule"),)}, True),
        ({"labels": {"zone": "b"}}, True),
    ],
)
def test_a_node_that_takes_no_such_pods_is_no_spare(
    change: dict[str, object], *, is_spare: bool
) -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)
    apply(cache, replace(node("n3"), **change))  # type: ignore[arg-type]  # fields by name

    assert (asked(cache).word is Word.MOVES) is is_spare


def test_a_node_without_the_labels_that_the_pod_selects_is_no_spare() -> None:
    selecting = json.dumps({"node_selector": {"zone": "a"}})
    cache = cluster(*pair(on_nodes=selecting), broken("n1", 0), nodes=NAMES)
    assert asked(cache).word is Word.NO_SPARE

    apply(cache, replace(node("n3"), labels={"zone": "a"}))
    assert asked(cache).word is Word.MOVES


def test_two_fault_pods_are_one_question() -> None:
    cache = cluster(
        *pair(says=BY_POD), broken("n1", 0), broken("n2", 1), nodes=(*NAMES, "n4")
    )

    found = asked(cache, faulty={"uid-a": 1, "uid-b": 2})

    assert found == moves("b", "a", rung=Rung.PODS, a=f"n3 {EIGHT}", b=f"n4 {EIGHT}")


def test_places_follow_ranks_the_lowest_first() -> None:
    pods = (
        of_job("a", "n1", ALL, rank=1, says=BY_POD),
        of_job("b", "n2", ALL, rank=0, says=BY_POD),
    )
    cache = cluster(*pods, broken("n1", 0), broken("n2", 1), nodes=(*NAMES, "n4"))

    found = asked(cache, faulty={"uid-a": 1, "uid-b": 2})

    assert found == moves("a", "b", rung=Rung.PODS, a=f"n4 {EIGHT}", b=f"n3 {EIGHT}")


def test_healthy_pods_move_where_only_that_makes_room() -> None:
    """`b` makes room for `a`: all eight chips are free on n2 only without it."""
    pods = (
        of_job("a", "n1", ALL, size=2),
        of_job("b", "n2", (0, 1, 2, 3), size=2),
        tenant("x", "n3", (4, 5, 6, 7)),
    )
    cache = cluster(*pods, broken("n1", 0), nodes=NAMES)

    found = asked(cache)

    assert found == moves("a", "b", a=f"n2 {EIGHT}", b="n3 (chips 0,1,2,3)")


def test_chips_that_are_freed_for_another_pod_are_no_spare() -> None:
    pods = (
        of_job("a", "n1", ALL, size=2),
        of_job("b", "n2", (0, 1, 2, 3), size=2),
        tenant("x", "n3", (4, 5, 6, 7)),
    )
    freed = kept("uid-z", "n2", 0b1, owner=Owner.PREEMPTION)
    cache = cluster(*pods, broken("n1", 0), freed, nodes=NAMES)

    assert asked(cache).word is Word.NO_SPARE


def elastic(**parts: object) -> list[events.PodUpdated]:
    """Three pods of a job that goes on with two."""
    places = ("a", "n1"), ("b", "n2"), ("c", "n3")
    return [of_job(name, on, ALL, least=2, **parts) for name, on in places]  # type: ignore[arg-type]  # parts by name


def test_an_elastic_job_loses_its_fault_pod_where_none_has_room() -> None:
    cache = cluster(*elastic(), broken("n2", 0), nodes=NAMES)

    found = asked(cache, faulty={"uid-b": 1})

    assert (found.word, found.leaving) == (Word.SHRINKS, ("b",))


def test_an_elastic_job_has_its_fault_pod_alone_replaced() -> None:
    cache = cluster(*elastic(), broken("n2", 0), nodes=(*NAMES, "n4"))

    found = asked(cache, faulty={"uid-b": 1})

    assert found == moves("b", rung=Rung.PODS, b=f"n4 {EIGHT}")


def test_an_elastic_job_below_its_least_number_does_not_shrink() -> None:
    reports = broken("n2", 0), broken("n3", 0)
    cache = cluster(*elastic(), *reports, nodes=NAMES)

    assert asked(cache, faulty={"uid-b": 1, "uid-c": 1}).word is Word.NO_SPARE


def test_s7_an_elastic_job_does_not_lose_the_last_pod_that_runs() -> None:
    """The one beside it has succeeded."""
    runs = of_job("a", "n1", ALL, least=1, rank=1)
    done = of_job("b", "n2", ALL, least=1, rank=0)
    done = replace(done, pod=replace(done.pod, phase="Succeeded"))
    busy = tenant("x", "n2", ALL)
    cache = cluster(runs, done, busy, broken("n1", 0), nodes=NAMES[:2])

    assert asked(cache).word is Word.NO_SPARE


def test_an_elastic_job_does_not_lose_the_pod_to_which_the_others_connect() -> None:
    cache = cluster(*elastic(), broken("n1", 0), nodes=NAMES)

    assert asked(cache).word is Word.NO_SPARE


def test_a_job_of_logical_superpods_does_not_lose_one_of_their_pods() -> None:
    blocks = [
        replace(
            one,
            member=replace(one.member, traits=Traits(annotations={"sp-block": "8"})),
        )
        for one in elastic()
        if one.member is not None
    ]
    cache = cluster(*blocks, broken("n2", 0), nodes=NAMES)

    assert asked(cache, faulty={"uid-b": 1}).word is Word.NO_SPARE


def test_pods_that_wait_for_a_node_are_left_to_their_own_plans() -> None:
    waiting = of_job("c", "", ALL, size=3)
    pods = *pair(size=3), waiting
    cache = cluster(*pods, broken("n1", 0), nodes=NAMES)

    assert asked(cache) == moves("a", "b", a=f"n3 {EIGHT}")


@pytest.mark.parametrize(
    ("says", "group", "word"),
    [
        ({}, None, Word.UNASKED),
        ({"fault-scheduling": "off"}, None, Word.UNASKED),
        ({"fault-scheduling": "Grace"}, None, Word.STAYS),
        ({"fault-scheduling": "external-grace"}, None, Word.STAYS),
        ({"fault-scheduling": "force"}, None, Word.MOVES),
        ({}, GRACE, Word.MOVES),
        (GRACE, {"fault-scheduling": "off"}, Word.UNASKED),
        (GRACE, {"fault-scheduling": "grace|force"}, Word.STAYS),
    ],
)
def test_whether_it_moves_is_what_the_job_and_its_group_say(
    says: dict[str, str], group: dict[str, str] | None, word: Word
) -> None:
    cache = cluster(*pair(says=says), broken("n1", 0), nodes=NAMES)

    assert asked(cache, group=group).word is word


def test_a_group_that_cannot_be_read_moves_nothing_of_a_job_that_asks() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)
    silent = cluster(*pair(says={}), broken("n1", 0), nodes=NAMES)

    found = asked(cache, group={}, problem="its PodGroup cannot be read")

    assert (found.word, found.why) == (Word.STAYS, "its PodGroup cannot be read")
    assert asked(silent, group={}, problem="no").word is Word.UNASKED


def test_pods_of_volcano_are_only_reported() -> None:
    by_name = [
        replace(one, wishes=FaultWishes(texts=GRACE, is_of_volcano=True))
        for one in pair()
    ]
    by_mark = [
        replace(
            one,
            pod=replace(
                one.pod, annotations={**one.pod.annotations, ALLOCATED_ON: "n"}
            ),
        )
        for one in pair()
    ]

    for pods in (by_name, by_mark):
        found = asked(cluster(*pods, broken("n1", 0), nodes=NAMES))
        assert (found.word, found.why) == (
            Word.STAYS,
            "pods that Volcano schedules are not moved yet",
        )


def test_a_job_of_unknown_size_is_not_judged_before_that_is_read() -> None:
    cache = cluster(*pair(size=None, source=SOURCE), broken("n1", 0), nodes=NAMES)
    found = asked(cache)
    assert (found.word, found.why) == (Word.UNKNOWN, READING)

    apply(cache, events.SizeRead(job=JOB, size=None, problem="its JobSet is gone"))
    found = asked(cache)
    assert (found.word, found.why) == (Word.STAYS, "its JobSet is gone")


def test_a_pod_that_is_not_confirmed_is_not_touched() -> None:
    late = of_job("b", "n2", ALL, is_confirmed=False)
    cache = cluster(pair()[0], late, broken("n1", 0), nodes=NAMES)

    assert asked(cache).word is Word.UNKNOWN

    by_pod = replace(late, wishes=FaultWishes(texts=BY_POD))
    first = replace(pair()[0], wishes=FaultWishes(texts=BY_POD))
    apply(cache, first, by_pod)
    assert asked(cache) == moves("a", rung=Rung.PODS, a=f"n3 {EIGHT}")


def test_a_pod_that_has_gone_leaves_nothing_to_judge() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)
    apply(cache, events.PodDeleted(uid="uid-a"))

    assert asked(cache).word is Word.UNASKED
    assert asked(cache, "uid-nobody", {"uid-nobody": 1}).word is Word.UNASKED


def test_what_the_job_says_to_no_effect_is_told_with_the_assessment() -> None:
    says = GRACE | {"fault-retry-times": "3"}
    cache = cluster(*pair(says=says), broken("n1", 0), nodes=NAMES)

    found = asked(cache)

    assert found.remarks == ("fault-retry-times='3' is not served yet",)
    assert found.text.endswith(". fault-retry-times='3' is not served yet")


def test_a_silent_agents_node_is_no_spare() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=("n1", "n2"))
    apply(cache, node("n3"))
    assert asked(cache).word is Word.NO_SPARE

    apply(cache, report("n3"))
    assert asked(cache).word is Word.MOVES
