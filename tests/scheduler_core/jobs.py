"""Jobs of pods in a word, and the places that they got.

A module of its own: the tests of most packages of the core use it.
"""

from typing import Any

from scheduler_core.node.decision import JobPlacement, Placement
from scheduler_core.placement.job_rules import Job, Pod
from scheduler_core.products.table import Product


def job_of(row: Product | None, *chips: int, **more: Any) -> Job:
    """Return a job with a pod for each number of chips: `pod-0`, `pod-1`, …"""
    pods = tuple(Pod(name=f"pod-{at}", chips=count) for at, count in enumerate(chips))
    return Job(row=row, pods=pods, **more)


def place_of(answer: object) -> Placement:
    """Return the place that a pod must have got."""
    assert isinstance(answer, Placement), answer
    return answer


def places_of(answer: object) -> tuple[Placement, ...]:
    """Return the places that the pods of a job must have got, by rank."""
    assert isinstance(answer, JobPlacement), answer
    return answer.pods
