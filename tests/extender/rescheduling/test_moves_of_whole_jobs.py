"""Moves of whole jobs: slow controllers, budgets, and places that are lost."""

import pytest

from extender.gang.fault_policy import Switch
from extender.preemption.attempt import Outcome
from extender.rescheduling import departures, stages
from extender.rescheduling.assessment import Assessment, Word
from extender.rescheduling.ends import Reach
from extender.rescheduling.moves import (
    Held,
    PlaceLost,
    ReadEnds,
    ReleasePlaces,
    Step,
    TellJob,
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
    steps,
    texts,
    wait,
    world,
    yes,
)
from tests.extender.rescheduling.moveworld import World

# -- controllers that end the others, and budgets -----------------------------------


def following(**limits: object) -> World:
    """A job whose controller ends all pods with the evicted one, which has gone."""
    story = moving(Job(name="a", count=3, reach=Reach.JOB), **limits)
    yes(story)
    story.end("a-0-1")
    story.look()
    return story


def test_pods_that_are_being_deleted_have_their_homes_however_long_they_take() -> None:
    story = following()
    story.end_others("a")
    story.look()
    for _ in range(10):
        story.tick(60)

    assert orders(story) == []
    assert set(kept(story)) == {"a-0-1", "a-1-2", "a-2-3"}
    assert set(steps(story).values()) == {Step.LEAVING, Step.GONE}
    finish(story)
    assert story.evicted == {"a-0-1"}


def test_a_pod_that_its_controller_ends_for_too_long_is_deleted_with_grace_0() -> None:
    story = following()
    story.end_others("a")
    story.look()
    story.tick(899)
    assert orders(story) == []

    story.tick(1)

    assert orders(story) == [("EndPod", ("a-2-3", True)), ("EndPod", ("a-1-2", True))]


@pytest.mark.parametrize("is_over", [True, False])
def test_pods_that_are_late_keep_their_homes_while_it_is_unsafe_to_evict_them(
    *, is_over: bool
) -> None:
    """Their controller is being deleted, or it cannot be read."""
    story = following()
    for _ in range(3):
        story.over = {"a"} if is_over else set()
        wait(story)
        assert orders(story) == [("ReadEnds", ["a-1-2", "a-2-3"])]
        story.answer(0, Outcome.YES if is_over else Outcome.FAILED)
        assert orders(story) == []
        assert set(kept(story)) == {"a-0-1", "a-1-2", "a-2-3"}

    why = "its job would end" if is_over else "no answer"
    assert texts(story)[-1] == f"pods of its move are not evicted now: {why}"
    story.over.clear()
    wait(story)
    yes(story)
    assert orders(story) == [("EndPod", ("a-2-3", False)), ("EndPod", ("a-1-2", False))]


def test_a_move_whose_late_pods_never_may_go_is_given_up_as_any_other() -> None:
    story = following()
    story.over = {"a"}
    while kept(story):
        yes(story)
        story.tick(30)

    assert texts(story)[-1] == (
        "the move after a fault is given up: 2 pods have not gone, and 1 that went "
        "have no successor on its kept place"
    )
    assert story.evicted == {"a-0-1"}


def test_a_whole_job_does_not_begin_to_go_while_a_budget_refuses_one_of_its_pods() -> (
    None
):
    story = world()
    breaks(story, "a-0-1")
    yes(story)
    begun_s = story.now_s
    while story.now_s < begun_s + 600:
        wait(story)
        assert {name for name, _ in orders(story)} == {"ReadEnds"}
        story.answer(0, Outcome.BUDGET)

    assert (kept(story), story.evicted) == ([], set())
    assert reasons(story) == [("a-0-1", "AscendMoveWaits")]
    assert texts(story)[0].endswith("Its job waits with evictions: budget b")
    finish(story, 60)
    assert story.evicted == {"a-0-1", "a-1-2", "a-2-3"}


def test_a_budget_that_refuses_for_15_minutes_is_asked_no_more() -> None:
    story = world()
    breaks(story, "a-0-1")
    begun_s = story.now_s
    while not kept(story):
        wait(story)
        story.answer(0, Outcome.BUDGET if story.now_s < begun_s + 900 else Outcome.YES)
        assert story.now_s < begun_s + 960
    yes(story)
    story.answer(0, Outcome.BUDGET)
    yes(story, 2)
    story.tick(1)

    assert orders(story) == [("EndPod", ("a-0-1", True))]


def test_a_job_that_says_force_asks_no_budget() -> None:
    story = world(Job(name="a", count=3, switch=Switch.FORCE))
    breaks(story, "a-0-1")

    asked = [each.asks_budgets for each in story.open if isinstance(each, ReadEnds)]
    assert asked == [False]


# -- jobs that go as a whole, and places that are lost --------------------------------


def test_a_job_goes_whole_though_one_fault_is_over_before_its_record_is_there() -> None:
    story = world()
    first, second = (story.pods[uid] for uid in ("a-0-1", "a-1-2"))
    story.broken = {(first.node, first.chip), (second.node, second.chip)}
    story.look()
    yes(story, 2)
    assert [name for name, _ in orders(story)] == ["WriteRecord"]

    story.broken.discard((first.node, first.chip))
    story.look()

    assert set(kept(story)) == {"a-0-1", "a-1-2", "a-2-3"}
    finish(story)
    assert story.evicted == {"a-0-1", "a-1-2", "a-2-3"}


def test_a_whole_job_stays_whole_if_nothing_can_be_added_to_it() -> None:
    story = world()
    breaks(story, "a-0-1")
    yes(story, 2)
    story.apply(Held(is_all=True))
    yes(story)
    move = story.state.moves["a"]
    assert (move.is_whole, move.has_begun) == (True, False)
    found = Assessment(word=Word.MOVES, rung=Rung.PODS, kept_places=())

    added, _ = stages.keep(move, found, {}, (), story.now_s)

    assert not added.goes_whole
    assert stages.step_back(added).is_whole


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_pod_of_a_whole_job_that_loses_its_place_before_it_goes_gets_another(
    *, is_refused: bool
) -> None:
    story = moving(Job(name="a", count=3), most_asks=1)
    yes(story)
    if is_refused:
        story.answer(0, Outcome.BUDGET)
    lost = "a-2-3" if is_refused else "a-1-2"
    why = "its node takes no pods"

    story.end_places(PlaceLost(job="a", uid=lost, why=why))

    assert lost not in kept(story)
    finish(story, 3)
    assert lost in {*kept(story), *story.evicted}
    finish(story)
    assert story.evicted == {"a-0-1", "a-1-2", "a-2-3"}
    assert len([pod for pod in story.pods.values() if pod.is_running]) == 3
    assert story.state.jobs == {}, "a pod without a fault is no fault pod for ever"


def test_a_pod_that_goes_anyway_is_not_judged_again_for_its_lost_place() -> None:
    story = moving(Job(name="a", count=3))
    yes(story, 3)

    story.end_places(PlaceLost(job="a", uid="a-2-3", why="its node takes no pods"))

    assert story.state.jobs == {}


def test_places_that_are_lost_at_once_are_told_at_once() -> None:
    story = moving(Job(name="a", count=3))
    yes(story, 3)
    before = len(story.events)
    story.end_places(
        PlaceLost(job="a", uid="a-0-1", why="it is closed"),
        PlaceLost(job="a", uid="a-1-2", why="it is closed"),
        PlaceLost(job="a", uid="a-2-3", why="its chip 0 broke"),
    )

    are_lost = "are kept for the successor of"
    assert texts(story)[before:] == [
        f"chips 1 of n1 {are_lost} a-0-1 no more: it is closed; so 1 other places",
        f"chips 0 of n1 {are_lost} a-2-3 no more: its chip 0 broke",
    ]
    assert kept(story) == []


def test_places_of_pods_that_stay_as_the_fault_is_over_are_told() -> None:
    story = world(Job(name="a", count=2, rungs=BY_POD))
    breaks(story, "a-0-1")
    yes(story)
    story.broken.clear()
    story.look()

    assert kept(story) == []
    assert texts(story)[-1] == (
        "chips 0 of n1 are kept for the successor of a-0-1 no more: the faults are "
        "over, or their pods end by themselves"
    )


def test_what_is_given_up_is_told_while_its_places_are_known() -> None:
    """Else nobody knows the pod that waits for the place of a pod by itself."""
    story = moving(Job(name="a", count=1, is_alone=True))
    yes(story)
    story.end("a-0-1")
    story.look()
    after, effects = departures.give_up(story.state.moves["a-0-1"])

    assert [type(each) for each in effects] == [TellJob, ReleasePlaces]
    assert after.departures == {}


def test_an_addition_whose_record_cannot_be_written_is_told_to_the_job() -> None:
    story = moving(Job(name="a", count=3, rungs=BY_POD))
    breaks(story, "a-1-2")
    story.answer(1, Outcome.YES)
    for _ in range(3):
        story.answer(1, Outcome.FAILED)
        while len(story.open) < 2 and "a-1-2" in kept(story):
            story.tick(1)

    assert kept(story) == ["a-0-1"]
    assert "no more: its record cannot be written" in "".join(texts(story))
