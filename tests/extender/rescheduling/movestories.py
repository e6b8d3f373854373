"""A world of moving jobs, and what tests say and ask of it in a word."""

from dataclasses import replace

from extender.preemption.attempt import Outcome
from extender.rescheduling.moves import (
    DeleteRecord,
    EndPod,
    ReadEnds,
    Step,
    Tell,
    WriteRecord,
)
from extender.rescheduling.state import Effect
from scheduler_core.rescheduling.ladder import Rung
from tests.extender.rescheduling.movejobs import LIMITS, Job
from tests.extender.rescheduling.moveworld import World

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


def spread(count: int) -> tuple[Job, ...]:
    """Jobs of one pod, each on a node of its own but for its neighbour."""
    return tuple(Job(name=name, count=1) for name in "abcdefghijklmnop"[:count])
