"""Moves of whole jobs: slow controllers, budgets, and places that are lost."""

from extender.preemption.attempt import Outcome
from extender.rescheduling import departures
from extender.rescheduling.moves import (
    PlaceLost,
    ReleasePlaces,
    TellJob,
)
from tests.extender.rescheduling.movejobs import Job
from tests.extender.rescheduling.movestories import (
    BY_POD,
    breaks,
    kept,
    moving,
    texts,
    world,
    yes,
)

# -- jobs that go as a whole, and places that are lost --------------------------------


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
