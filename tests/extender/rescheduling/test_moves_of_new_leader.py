"""A new leader goes on with the moves of the one before, by their records."""

import pytest

from extender.preemption.attempt import Outcome
from extender.rescheduling.moves import EndPod, Held, Stage, Step, TellJob
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
    world,
    yes,
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


def test_a_new_leader_asks_no_pod_whose_place_is_lost() -> None:
    story = moving(Job(name="a", count=3))
    yes(story)
    places = {place.uid: place for place in story.kept["a"]}
    home = places["a-2-3"].node, places["a-2-3"].chips
    story.broken.add(home)
    story.pods["a-2-3"].node, story.pods["a-2-3"].chip = "n7", 2
    story.foreign.add(home)
    story.restart(is_sent=False, after_s=0)
    story.tick(1)

    asked = [each.uid for each in story.open if isinstance(each, EndPod)]
    assert asked == ["a-1-2"]


def test_a_new_leader_asks_nobody_before_it_knows_what_people_hold() -> None:
    """It asked all pods that were left, and saw a second later that they are held."""
    story = moving(Job(name="a", count=3))
    story.restart(is_sent=True, after_s=5)
    before = orders(story)
    story.apply(Held(jobs=frozenset({"a"})))
    story.tick(5)
    held = orders(story)
    story.apply(Held())

    assert (before, held) == ([], [])
    assert orders(story) == [("EndPod", ("a-1-2", False))]


@pytest.mark.parametrize("is_over", [True, False])
def test_a_new_leader_judges_a_single_pod_anew_that_was_not_asked(
    *, is_over: bool
) -> None:
    story = moving(Job(name="a", count=3, rungs=BY_POD), most_asks=1)
    breaks(story, "a-1-2")
    story.answer(1, Outcome.YES)
    story.answer(1, Outcome.YES)
    pod = story.pods["a-1-2"]
    if is_over:
        story.broken.discard((pod.node, pod.chip))
    story.restart(is_sent=True, after_s=20)
    assert steps(story) == {"a-0-1": Step.LEAVING}

    finish(story)

    assert story.evicted == ({"a-0-1"} if is_over else {"a-0-1", "a-1-2"})


def test_a_new_leader_goes_on_with_the_time_of_a_pod_that_does_not_end() -> None:
    story = moving(Job(name="a", count=1))
    yes(story)
    story.restart(is_sent=True, after_s=600)
    story.tick(200)
    assert orders(story) == []
    story.tick(101)

    assert orders(story) == [("EndPod", ("a-0-1", True))]


def test_a_record_that_was_left_behind_moves_nobody() -> None:
    """Evictions were switched off in the middle, and the pods that stayed run on."""
    story = moving(Job(name="a", count=3))
    yes(story)
    story.end("a-0-1")
    story.restart(is_sent=True, after_s=3000)
    story.tick(5)

    assert orders(story) == [("DeleteRecord", "a")]
    assert kept(story) == []


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
