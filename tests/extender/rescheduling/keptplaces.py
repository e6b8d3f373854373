"""A job whose pods go, and the places that are kept for their successors."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from extender.cache import events
from extender.rescheduling.moves import KeptPlace
from scheduler_core.node import chips
from tests.extender.rescheduling.jobs import JOB, of_job
from tests.support.caches import (
    all_reservations,
    cluster,
)
from tests.support.extender import World
from tests.support.watched import (
    ALL,
    RESOURCE,
    gone,
    report,
)

NAMES = ("n1", "n2", "n3")
SET = "ReplicaSet/default/r"
WAITS = "waits until chips 0,1,2,3,4,5,6,7 of {} are free, which are kept for it"


def numbered(found: events.PodUpdated, number: int, name: str = "") -> Any:
    """A pod of the job that its controller numbers, perhaps under another name."""
    assert found.member is not None
    order = (9, "", number, 0)
    membership = replace(found.member.membership, order=order, index=str(number))
    name = name or found.pod.name
    made = replace(found.pod, name=name, uid=f"uid-{name}")
    return replace(
        found, pod=made, member=replace(found.member, name=name, membership=membership)
    )


def worker(number: int, name: str, where: str = "", **parts: Any) -> Any:
    """A pod with eight chips of a job of two; without a node it waits."""
    return numbered(of_job(name, where, ALL, **parts), number)


#: Number, name and node of the workers of a job.
WORKERS = ((0, "a", "n1"), (1, "b", "n2"))
#: A job that runs: worker 0 on n1, worker 1 on n2.
PAIR = (worker(0, "a", "n1"), worker(1, "b", "n2"))


def place(
    name: str, number: int, where: str, ids: Iterable[int] = ALL, **parts: Any
) -> KeptPlace:
    return KeptPlace(
        uid=f"uid-{name}",
        name=name,
        namespace="default",
        slot=("", (number, 0)),
        resource=RESOURCE,
        node=where,
        chips=chips.mask_of(ids),
        **parts,
    )


#: Worker 0 moves to n3, worker 1 comes back.
BOTH = (
    place("a", 0, "n3", home="n1", annotations={"hccl/rankIndex": "0"}),
    place("b", 1, "n2", home="n2", annotations={"hccl/rankIndex": "1"}),
)


@asynccontextmanager
async def world(*seen: events.Change, **options: Any) -> AsyncIterator[World]:
    found = World(cluster(*seen, nodes=NAMES), moves=True, **options)
    try:
        yield found
    finally:
        await found.stop()


def moving(w: World) -> dict[tuple[str, str], int]:
    """{(job, node): chips that are kept for it}."""
    kept_places = [each for each in all_reservations(w.cache) if each.is_of_move]
    return {(str(each.kept_for), each.node): each.chips for each in kept_places}


def leave(w: World, *names: str) -> None:
    """Pods go, and the agents show their chips free."""
    w.learn(report("n1", held=ALL), report("n2", held=ALL), *gone(*names))
    w.learn(report("n1"), report("n2"))


def begin(w: World) -> None:
    """Both pods of the job have gone; their successors wait."""
    assert w.returns.keep(JOB, BOTH) == ""
    leave(w, "a", "b")
    w.learn(worker(0, "a2"), worker(1, "b2"))


def ending(found: Any) -> Any:
    """A pod that is being deleted."""
    return replace(found, pod=replace(found.pod, deleting=True))
