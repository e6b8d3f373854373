"""Moves of jobs, story by story: each transition of a move and of its pods."""

from dataclasses import replace

import pytest

from extender.gang.fault_policy import Switch
from extender.preemption.attempt import Outcome
from extender.rescheduling.ends import Reach
from extender.rescheduling.moves import (
    DeleteRecord,
    EndPod,
    Held,
    PlaceLost,
    ReadEnds,
    Stage,
    Step,
    Tell,
    TellJob,
    WriteRecord,
)
from extender.rescheduling.state import Effect
from scheduler_core.rescheduling.ladder import Rung
from tests.extender.rescheduling.moveworld import LIMITS, NODES, Job, World

BY_POD = (Rung.PODS, Rung.JOB)


def world(*jobs: Job, **limits: object) -> World:
    chosen = jobs or (Job(name="a", count=3),)
    return World(
        {job.name: job for job in chosen},
        limits=replace(LIMITS, **limits),  # type: ignore[arg-type]  # limits by name
    )


def breaks(story: World, uid: str) -> None:
    pod = story.pods[uid]
    story.broken.add((pod.node, pod.chip))
    story.look()


def orders(story: World) -> list[tuple[str, object]]:
    """What is ordered and not answered, in short."""
    return [(type(each).__name__, short(each)) for each in story.open]


def short(effect: Effect) -> object:
    match effect:
        case ReadEnds(uids=uids):
            return sorted(uids)
        case WriteRecord(record=record):
            return [place.uid for place in record.places]
        case DeleteRecord(job=job):
            return job
        case EndPod(uid=uid, is_forced=is_forced):
            return uid, is_forced
        case _:
            return effect


def yes(story: World, times: int = 1) -> None:
    for _ in range(times):
        story.answer(0, Outcome.YES)


def kept(story: World, key: str = "a") -> list[str]:
    """UIDs of the pods for whose successors chips are reserved."""
    return [place.uid for place in story.kept.get(key, ())]


def wait(story: World) -> None:
    """Let time pass until something is ordered."""
    while not story.open:
        story.tick(1)


def reasons(story: World) -> list[tuple[str, str]]:
    return [
        (each.uid if isinstance(each, Tell) else each.job, each.reason)
        for each in story.events
    ]


def texts(story: World) -> list[str]:
    return [each.text for each in story.events]


def moving(*jobs: Job, **limits: object) -> World:
    """A world in which the last pod of the first job has a fault, and is asked."""
    story = world(*jobs, **limits)
    breaks(story, min(uid for uid in story.pods if uid.startswith("a-")))
    while not any(isinstance(each, EndPod) for each in story.open):
        yes(story)
    return story


def steps(story: World, key: str = "a") -> dict[str, Step]:
    move = story.state.moves[key]
    return {uid: departure.step for uid, departure in move.departures.items()}


def finish(story: World, rounds: int = 20) -> None:
    """Let all go well until nothing more happens."""
    for _ in range(rounds):
        yes(story, 5)
        for uid in list(story.pods):
            story.end(uid)
        for name in story.jobs:
            story.make_again(name, early=False, double=False)
        story.look()
        story.schedule()
        story.tick(1)


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


def spread(count: int) -> tuple[Job, ...]:
    """Jobs of one pod, each on a node of its own but for its neighbour."""
    return tuple(Job(name=name, count=1) for name in "abcdefghijklmnop"[:count])


def test_faults_on_many_nodes_stop_all_evictions_until_there_are_fewer() -> None:
    story = world(*spread(10))
    for name in "acegi":
        (uid,) = [uid for uid in story.pods if uid.startswith(f"{name}-")]
        story.broken.add((story.pods[uid].node, story.pods[uid].chip))
    story.look()
    yes(story, 20)
    assert [each for each in story.open if isinstance(each, EndPod)] == []
    assert ("e-0-5", "AscendMoveWaits") in reasons(story)

    story.broken = {chip for chip in story.broken if chip[0] in ("n0", "n1")}
    story.look()
    story.tick(59)
    yes(story, 20)
    assert story.evicted == set()
    story.tick(2)
    yes(story, 20)
    assert story.evicted == {"a-0-1", "c-0-3"}


def test_the_brake_can_be_off() -> None:
    story = world(*spread(10), is_braking=False)
    for name in "acegi":
        breaks(story, next(uid for uid in story.pods if uid.startswith(f"{name}-")))

    finish(story)

    assert len(story.evicted) == 5


def test_the_brake_counts_a_tenth_of_the_nodes_of_a_large_cluster() -> None:
    story = world(Job(name="a", count=1), brake_nodes=0)
    story.tick(1)
    assert story.state.most_wanting(story.limits) == len(NODES) // 10 == 0

    breaks(story, "a-0-1")

    assert reasons(story) == [("a-0-1", "AscendMoveWaits")]


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


def test_a_place_that_is_lost_is_told_and_its_pod_is_planned_as_any_other() -> None:
    story = moving(Job(name="a", count=2, rungs=BY_POD))
    yes(story)
    (place,) = story.kept["a"]

    story.apply(PlaceLost(job="a", uid=place.uid, why="its chip 0 broke"))

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
    story.apply(Held())
    breaks(story, "a-0-1")
    yes(story)
    (place,) = story.kept["a"]
    story.broken.add((place.node, place.chips))
    yes(story)

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


def test_a_new_leader_goes_on_with_what_has_begun() -> None:
    story = moving(Job(name="a", count=3))
    yes(story)
    story.restart(is_sent=True, after_s=20)

    assert steps(story)["a-0-1"] is Step.LEAVING
    assert len(kept(story)) == 3
    finish(story)
    assert story.evicted == {"a-0-1", "a-1-2", "a-2-3"}
    assert story.state.moves["a"].stage is Stage.RESTING


@pytest.mark.parametrize("is_over", [True, False])
def test_a_new_leader_judges_a_job_anew_whose_move_had_not_begun(
    *, is_over: bool
) -> None:
    story = world()
    breaks(story, "a-0-1")
    yes(story, 3)
    if is_over:
        story.broken.clear()
    story.open.clear()
    story.restart(is_sent=False, after_s=5)
    assert kept(story) == []

    finish(story)

    assert story.evicted == (set() if is_over else {"a-0-1", "a-1-2", "a-2-3"})
    assert (story.records == {}) is is_over


def test_a_new_leader_remembers_how_often_a_job_has_moved() -> None:
    story = moving(Job(name="a", count=1))
    finish(story)
    assert len(story.records["a"].history) == 1
    story.restart(is_sent=True, after_s=0)
    (pod,) = story.pods.values()
    breaks(story, pod.uid)

    assert orders(story) == []
    assert reasons(story)[-1] == (pod.uid, "AscendMoveWaits")


def test_a_record_without_anything_left_is_deleted_at_the_start() -> None:
    story = moving(Job(name="a", count=1))
    finish(story)
    story.restart(is_sent=True, after_s=5000)

    assert orders(story) == [("DeleteRecord", "a")]


def test_a_new_leader_tells_which_places_are_lost() -> None:
    story = moving(Job(name="a", count=1))
    yes(story)
    (place,) = story.kept["a"]
    story.end("a-0-1")
    story.foreign.add((place.node, place.chips))
    story.restart(is_sent=True, after_s=0)

    assert [each.reason for each in story.events if isinstance(each, TellJob)] == [
        "AscendPlaceLost"
    ]
    assert kept(story) == []
