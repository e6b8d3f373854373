"""Faults on many nodes stop all evictions."""

from extender.rescheduling.moves import (
    EndPod,
)
from extender.rescheduling.state import Changed
from tests.extender.rescheduling.movejobs import NODES, Job
from tests.extender.rescheduling.movestories import (
    breaks,
    finish,
    reasons,
    spread,
    world,
    yes,
)


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


def test_faults_that_wait_long_for_a_place_stop_no_eviction_of_others() -> None:
    story = world(*spread(10))
    story.foreign = {(node, chip) for node, chip in story.free((), ())}
    for name in "acegi":
        breaks(story, next(uid for uid in story.pods if uid.startswith(f"{name}-")))
        yes(story, 20)
        for _ in range(70):
            story.tick(1)
    assert story.evicted == set()

    story.foreign.clear()
    for name in "acegi":
        story.apply(Changed(job=name))
    finish(story)

    assert len(story.evicted) == 5


def test_faults_that_came_together_stop_evictions_for_as_long_as_they_last() -> None:
    story = world(*spread(10))
    for name in "acegi":
        (uid,) = [uid for uid in story.pods if uid.startswith(f"{name}-")]
        story.broken.add((story.pods[uid].node, story.pods[uid].chip))
    story.look()
    for _ in range(200):
        story.tick(1)
        yes(story, 20)

    assert story.evicted == set()


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
