"""Moves of jobs, story by story: each transition of a move and of its pods."""

from dataclasses import replace

import pytest

from extender.gang.fault_policy import Switch
from extender.preemption.attempt import Outcome
from extender.rescheduling import stages
from extender.rescheduling.ends import Reach
from extender.rescheduling.moves import (
    Bound,
    EndPod,
    Held,
    PlaceLost,
    PodEnded,
    Stage,
    Step,
    WriteRecord,
)
from scheduler_core.rescheduling.ladder import Rung
from tests.extender.rescheduling.movejobs import Job
from tests.extender.rescheduling.movestories import (
    BY_POD,
    breaks,
    finish,
    kept,
    moving,
    orders,
    reasons,
    short,
    steps,
    texts,
    wait,
    world,
    yes,
)


def test_a_job_moves_in_steps_and_nobody_goes_before_the_record_is_there() -> None:
    story = world()
    breaks(story, "a-1-2")

    assert orders(story) == [("ReadEnds", ["a-1-2"])]
    yes(story)
    assert orders(story) == [("ReadEnds", ["a-0-1", "a-1-2", "a-2-3"])]
    assert kept(story) == []
    yes(story)
    assert orders(story) == [("WriteRecord", ["a-1-2", "a-2-3", "a-0-1"])]
    assert kept(story) == ["a-1-2", "a-2-3", "a-0-1"]
    yes(story)
    assert orders(story) == [("EndPod", ("a-1-2", False)), ("EndPod", ("a-2-3", False))]
    yes(story)
    assert orders(story) == [("EndPod", ("a-2-3", False)), ("EndPod", ("a-0-1", False))]
    yes(story, 2)
    assert set(steps(story).values()) == {Step.LEAVING}

    finish(story)
    assert [pod.number for pod in story.pods.values() if pod.is_running] == [0, 1, 2]
    assert story.state.moves["a"].stage is Stage.RESTING
    assert story.records["a"].places == ()
    homes = {pod.number: (pod.node, pod.chip) for pod in story.pods.values()}
    assert (homes[0], homes[2]) == (("n0", 1), ("n1", 1)), "healthy pods are home"
    story.tick(700)
    yes(story)
    assert (story.state.moves, story.records) == ({}, {})


def test_each_pod_is_told_once_why_it_goes_and_where_to() -> None:
    story = moving()
    finish(story)

    assert reasons(story) == [
        (uid, "AscendFaultEvicted") for uid in ("a-0-1", "a-2-3", "a-1-2")
    ]
    broken, healthy, _ = texts(story)
    assert broken == (
        "evicted: chip 0 of this pod is broken (SeparateNPU A1). chips 1 of n1 are "
        "kept for its successor"
    )
    assert healthy == (
        "evicted: a chip of its job is broken. chips 0 of n1 are kept for its successor"
    )


def test_one_that_takes_the_others_with_it_is_evicted_alone() -> None:
    story = moving(Job(name="a", count=3, reach=Reach.JOB))

    yes(story)
    assert orders(story) == []
    story.end_others("a")
    finish(story)

    assert story.evicted == {"a-0-1"}
    assert len([pod for pod in story.pods.values() if pod.is_running]) == 3


def test_pods_that_their_controller_does_not_end_are_evicted_after_a_minute() -> None:
    story = moving(Job(name="a", count=3, reach=Reach.JOB))
    yes(story)
    story.tick(300)
    assert orders(story) == [], "the evicted one is not gone yet"
    story.end("a-0-1")
    story.look()

    story.tick(59)
    assert orders(story) == []
    story.tick(1)
    assert orders(story) == [("ReadEnds", ["a-1-2", "a-2-3"])]
    yes(story)
    assert orders(story) == [("EndPod", ("a-2-3", False)), ("EndPod", ("a-1-2", False))]


def test_a_refused_eviction_is_asked_for_again_with_pauses_and_forced_at_last() -> None:
    story = moving(Job(name="a", count=1))
    begun_s, asked = story.now_s, list[tuple[float, bool]]()
    while orders(story) != [("EndPod", ("a-0-1", True))]:
        asked.append((story.now_s - begun_s, False))
        story.answer(0, Outcome.BUDGET)
        wait(story)
    asked.append((story.now_s - begun_s, True))

    assert asked[:8] == [(seconds, False) for seconds in (0, 1, 3, 7, 15, 31, 63, 123)]
    assert asked[-1:] == [(900, True)]
    assert reasons(story) == [
        ("a-0-1", "AscendFaultEvicted"),
        ("a-0-1", "AscendMoveWaits"),
    ]


def test_an_eviction_that_is_not_answered_is_not_asked_for_again() -> None:
    story = moving(Job(name="a", count=1))
    for _ in range(100):
        story.tick(5)

    assert orders(story) == [("EndPod", ("a-0-1", False))]


def test_a_pod_that_does_not_end_in_time_is_deleted_with_grace_0() -> None:
    story = moving(Job(name="a", count=1))
    yes(story)
    begun_s = story.now_s
    wait(story)

    assert (story.now_s - begun_s, orders(story)) == (
        900,
        [("EndPod", ("a-0-1", True))],
    )


def test_a_job_that_says_force_has_its_pods_deleted_at_once() -> None:
    story = moving(Job(name="a", count=2, switch=Switch.FORCE))

    assert orders(story) == [("EndPod", ("a-0-1", True)), ("EndPod", ("a-1-2", True))]


def test_a_pod_that_is_gone_before_it_is_asked_is_fine() -> None:
    story = moving(Job(name="a", count=3))
    del story.pods["a-1-2"]
    story.look()
    assert steps(story)["a-1-2"] is Step.GONE

    story.answer(0, Outcome.GONE)

    assert [short(each) for each in story.open] == [("a-2-3", False)]


def test_the_hold_stops_evictions_in_the_middle_and_what_went_is_brought_back() -> None:
    story = moving(Job(name="a", count=3))
    story.apply(Held(jobs=frozenset({"a"})))
    yes(story, 2)
    assert orders(story) == []

    finish(story, 5)
    assert list(steps(story)) == ["a-1-2"]
    assert reasons(story)[-1] == ("a", "AscendMoveWaits")
    story.apply(Held())
    assert orders(story) == [("EndPod", ("a-1-2", False))]


def test_a_job_that_is_held_begins_no_move_and_begins_it_when_it_is_let_go() -> None:
    story = world()
    story.apply(Held(is_all=True))
    breaks(story, "a-0-1")
    story.tick(100)
    assert (orders(story), kept(story)) == ([], [])
    assert reasons(story) == [("a-0-1", "AscendMoveWaits")]

    story.apply(Held())
    story.tick(1)

    assert orders(story) == [("ReadEnds", ["a-0-1"])]


def test_a_record_that_cannot_be_written_gives_the_places_back_after_three() -> None:
    story = world(Job(name="a", count=1))
    breaks(story, "a-0-1")
    yes(story)
    waits = []
    for _ in range(3):
        assert orders(story) == [("WriteRecord", ["a-0-1"])]
        story.answer(0, Outcome.FAILED)
        waits.append(0)
        while not story.open and kept(story):
            story.tick(1)
            waits[-1] += 1

    assert waits == [2, 4, 0]
    assert kept(story) == []
    assert reasons(story) == [("a-0-1", "AscendMoveWaits")]
    finish(story)
    assert story.evicted == {"a-0-1"}, "it is tried again"


def test_an_answer_to_an_earlier_record_counts_for_nothing() -> None:
    story = world(Job(name="a", count=1))
    breaks(story, "a-0-1")
    yes(story)
    (first,) = story.open
    story.delete("a")
    assert not story.state.moves
    assert kept(story) == []

    story.answer(0, Outcome.YES)

    assert isinstance(first, WriteRecord)
    assert [each for each in story.open if isinstance(each, EndPod)] == []


def test_the_record_of_the_move_before_is_not_taken_for_that_of_the_next() -> None:
    story = moving(Job(name="a", count=1), first_move_s=0.0)
    yes(story)
    story.end("a-0-1")
    story.look()
    story.make_again("a", early=False, double=False)
    story.schedule()
    story.look()
    assert orders(story) == [("WriteRecord", [])]
    (uid,) = story.pods
    breaks(story, uid)
    story.answer(1, Outcome.YES)
    assert orders(story) == [("WriteRecord", []), ("WriteRecord", [uid])]

    yes(story)
    assert orders(story) == [("WriteRecord", [uid])]
    yes(story)
    assert orders(story) == [("EndPod", (uid, False))]


def test_a_successor_counts_once_the_pod_before_it_is_gone() -> None:
    story = moving(Job(name="a", count=1))
    yes(story)
    bound = Bound(job="a", uid="a-0-1", successor="a-0-9", node="n0")
    story.end_places(bound)
    assert steps(story) == {"a-0-1": Step.LEAVING}
    assert kept(story) == ["a-0-1"]

    story.apply(PodEnded(job="a", uid="a-0-1"))
    story.end_places(bound)

    assert kept(story) == []
    assert story.state.moves["a"].stage is Stage.RESTING


def test_a_pod_with_another_place_is_not_asked_while_it_has_not_answered() -> None:
    story = moving(Job(name="a", count=2, rungs=BY_POD), first_move_s=0.0)
    (place,) = story.kept["a"]
    story.broken.add((place.node, place.chips))
    story.look()
    story.answer(1, Outcome.YES)
    story.tick(1)
    assert orders(story) == [
        ("EndPod", ("a-0-1", False)),
        ("ReadEnds", ["a-0-1"]),
    ]
    story.answer(1, Outcome.YES)
    story.answer(1, Outcome.YES)

    assert orders(story) == [("EndPod", ("a-0-1", False))]
    assert steps(story) == {"a-0-1": Step.ASKED}


def test_a_successor_that_is_bound_elsewhere_is_told() -> None:
    story = moving(Job(name="a", count=1))
    story.apply(PodEnded(job="a", uid="a-0-1"))
    story.end_places(Bound(job="a", uid="a-0-1", successor="a-0-9", node="n7"))

    assert texts(story)[-1] == (
        "chips 0 of n1 were kept for this pod, and it is bound elsewhere"
    )


def test_what_may_still_stay_makes_room_for_what_is_added() -> None:
    """A pod that was not asked has its place among those that are added, or stays."""
    story = moving(Job(name="a", count=3, rungs=BY_POD), most_asks=1)
    breaks(story, "a-1-2")
    story.answer(1, Outcome.YES)
    story.answer(1, Outcome.YES)
    assert steps(story) == {"a-1-2": Step.STAYS, "a-0-1": Step.ASKED}
    before = story.state.moves["a"]
    facts = stages.facts_of(before, story.now_s, story.limits)
    assert (set(facts.asked), set(facts.avoid)) == ({"a-0-1"}, {"n0"})
    assert [place.uid for place in facts.kept_places] == ["a-1-2"]
    added = replace(
        before, addition=(replace(before.unasked[0], uid="a-2-3"),), is_whole=False
    )

    assert list(stages.record_next(added, 1.0).departures) == ["a-0-1"]


def test_a_place_that_is_lost_is_told_and_its_pod_is_planned_as_any_other() -> None:
    story = moving(Job(name="a", count=2, rungs=BY_POD))
    yes(story)
    (place,) = story.kept["a"]

    story.end_places(PlaceLost(job="a", uid=place.uid, why="its chip 0 broke"))

    assert kept(story) == []
    assert texts(story)[-1] == (
        "chips 0 of n1 are kept for the successor of a-0-1 no more: its chip 0 broke"
    )
    finish(story)
    assert len([pod for pod in story.pods.values() if pod.is_running]) == 2


def test_a_pod_that_loses_its_place_before_it_goes_is_not_asked_without_another() -> (
    None
):
    story = world(Job(name="a", count=2, rungs=BY_POD))
    breaks(story, "a-0-1")
    yes(story)
    (place,) = story.kept["a"]
    story.apply(Held(is_all=True))
    yes(story)
    story.broken.add((place.node, place.chips))
    story.look()
    assert kept(story) == []
    story.apply(Held())
    assert [each for each in story.open if isinstance(each, EndPod)] == []
    yes(story)
    story.tick(1)
    assert orders(story) == [("ReadEnds", ["a-0-1"])], "it is judged at once"
    yes(story, 2)

    places = [each.place for each in story.state.moves["a"].departures.values()]
    assert all((p.node, p.chips) not in story.broken for p in places)
    finish(story)
    assert len([pod for pod in story.pods.values() if pod.is_running]) == 2


def test_a_second_fault_joins_the_move_and_is_recorded_before_its_pod_goes() -> None:
    story = moving(Job(name="a", count=3, rungs=BY_POD))
    breaks(story, "a-1-2")
    assert orders(story) == [
        ("EndPod", ("a-0-1", False)),
        ("ReadEnds", ["a-1-2"]),
    ]
    story.answer(1, Outcome.YES)
    assert orders(story) == [
        ("EndPod", ("a-0-1", False)),
        ("WriteRecord", ["a-1-2", "a-0-1"]),
    ]
    story.answer(1, Outcome.YES)
    assert orders(story) == [
        ("EndPod", ("a-0-1", False)),
        ("EndPod", ("a-1-2", False)),
    ]


def test_a_second_fault_of_a_job_that_goes_whole_takes_one_pod_that_has_come() -> None:
    story = moving(Job(name="a", count=3))
    yes(story, 3)
    for uid in ("a-0-1", "a-1-2"):
        story.end(uid)
    story.look()
    story.make_again("a", early=False, double=False)
    story.schedule()
    story.look()
    come = [uid for uid, pod in story.pods.items() if pod.is_running]
    assert len(come) == 2

    breaks(story, come[0])
    yes(story, 3)
    assert story.evicted == {"a-0-1", "a-1-2", "a-2-3", come[0]}
    finish(story)
    assert story.evicted == {"a-0-1", "a-1-2", "a-2-3", come[0]}


def test_a_second_fault_leaves_places_to_pods_that_are_still_to_go() -> None:
    """`a-1-2` goes with the others, and was not asked yet: its home is kept for it."""
    story = moving(Job(name="a", count=3), most_asks=1)
    yes(story)
    story.end("a-0-1")
    story.look()
    story.make_again("a", early=False, double=False)
    story.schedule()
    story.look()
    (come,) = (uid for uid in story.pods if uid.startswith("a-0-"))
    home = next(p for p in story.kept["a"] if p.uid == "a-1-2")
    assert steps(story) == {"a-2-3": Step.ASKED, "a-1-2": Step.STAYS}

    breaks(story, come)
    facts = stages.facts_of(story.state.moves["a"], story.now_s, story.limits)
    assert (facts.kept_places, facts.is_gathering) == ((), True)
    story.answer(1, Outcome.YES)
    story.answer(1, Outcome.YES)

    assert steps(story) == {
        come: Step.STAYS,
        "a-2-3": Step.ASKED,
        "a-1-2": Step.STAYS,
    }
    assert home in story.kept["a"]


def test_what_goes_for_a_fault_that_is_over_before_it_was_asked_stays() -> None:
    story = world(Job(name="a", count=2))
    breaks(story, "a-0-1")
    yes(story, 2)
    assert len(kept(story)) == 2

    story.broken.clear()
    story.look()
    assert kept(story) == []
    yes(story, 3)

    assert (story.evicted, story.state.moves) == (set(), {})
    assert story.records == {}


def test_the_record_names_no_pod_that_stays_after_all() -> None:
    """Another leader would evict it."""
    story = moving(Job(name="a", count=3, rungs=BY_POD), most_asks=1)
    breaks(story, "a-1-2")
    story.answer(1, Outcome.YES)
    story.answer(1, Outcome.YES)
    assert steps(story) == {"a-1-2": Step.STAYS, "a-0-1": Step.ASKED}
    assert {place.uid for place in story.records["a"].places} == {"a-1-2", "a-0-1"}

    pod = story.pods["a-1-2"]
    story.broken.discard((pod.node, pod.chip))
    story.look()
    assert orders(story)[1:] == [("WriteRecord", ["a-0-1"])]
    story.answer(1, Outcome.FAILED)
    story.tick(2)
    assert orders(story)[1:] == [("WriteRecord", ["a-0-1"])]
    story.answer(1, Outcome.YES)

    assert [place.uid for place in story.records["a"].places] == ["a-0-1"]
    assert orders(story) == [("EndPod", ("a-0-1", False))]


def test_a_move_that_has_begun_goes_on_though_the_fault_is_over() -> None:
    story = moving(Job(name="a", count=3))
    yes(story)
    story.broken.clear()
    story.look()

    finish(story)

    assert story.evicted == {"a-0-1", "a-1-2", "a-2-3"}


def test_a_job_waits_between_moves_and_longer_if_the_same_chip_breaks_again() -> None:
    story = world(Job(name="a", count=1))
    waits = []
    for _ in range(4):
        (pod,) = story.pods.values()
        story.broken = {(pod.node, pod.chip)}
        begun_s = story.now_s
        story.look()
        wait(story)
        waits.append(story.now_s - begun_s)
        finish(story, 3)

    assert waits[0] == 0
    assert waits[1:] == pytest.approx([27, 57, 117], abs=4)


def test_the_same_chip_sends_pods_away_three_times_and_then_no_more() -> None:
    """All other chips are taken: the pod comes back to where it was."""
    story = world(Job(name="a", count=1), first_move_s=1.0)
    (pod,) = story.pods.values()
    story.foreign = {*story.free((), ())} - {("n0", 2)}
    begun_s = story.now_s
    moved_s: list[float] = []
    for _ in range(1400):
        (pod,) = story.pods.values()
        chip = pod.node, pod.chip
        story.broken = {chip} if chip == ("n0", 1) else set()
        before = len(story.evicted)
        finish(story, 1)
        if len(story.evicted) > before:
            moved_s.append(story.now_s - begun_s)
            (pod,) = story.pods.values() or [pod]
        if chip == ("n0", 2):  # a person brings it back to the chip that flaps
            story.pods.clear()
            story.make("a", 0)
            (again,) = story.pods.values()
            again.node, again.chip = "n0", 1

    assert len([at_s for at_s in moved_s if at_s < 550]) == 3
    assert len(moved_s) > 3, "after ten minutes it goes again"


def test_the_history_of_a_pod_by_itself_is_its_successors() -> None:
    story = moving(Job(name="a", count=1, is_alone=True))
    finish(story)

    (pod,) = story.pods.values()
    assert story.state.moves.keys() == story.records.keys() == {pod.uid}
    assert len(story.records[pod.uid].history) == 1
    assert story.records[pod.uid].job == pod.uid


def test_an_elastic_job_without_a_spare_loses_its_fault_pod_and_keeps_nothing() -> None:
    story = world(Job(name="a", count=3, least=2, rungs=(Rung.PODS,)))
    story.foreign = {*story.free((), ())}
    breaks(story, "a-1-2")
    yes(story, 2)

    assert orders(story) == [("EndPod", ("a-1-2", False))]
    assert kept(story) == []
    yes(story)
    story.end("a-1-2")
    story.look()
    assert story.state.moves["a"].stage is Stage.RESTING


def test_a_move_whose_successors_do_not_come_gives_its_places_back() -> None:
    story = moving(Job(name="a", count=1))
    yes(story)
    story.end("a-0-1")
    story.look()

    story.tick(899)
    assert len(kept(story)) == 1
    story.tick(1)

    assert kept(story) == []
    assert texts(story)[-1] == (
        "the move after a fault is given up: 0 pods have not gone, and 1 that went "
        "have no successor on its kept place"
    )
