"""Stories of several kinds of NPU in one cluster: each has jobs, all at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from sandbox.apiclient import Object
from scheduler_core.products.table import Product, by_key
from tests.e2e.stories import kinds
from tests.e2e.stories.lives import NEVER
from tests.e2e.stories.story import Story
from tests.e2e.stories.world import World, running

pytestmark = pytest.mark.asyncio(loop_scope="session")

A2, A3, A310P = "atlas-a2-8", "atlas-a3-16", "atlas-310p"
KEYS = (A2, A3, A310P)
#: Pods of each job, each of which takes a node.
PODS = 2
#: {node: what it is}
SERVERS = {f"{key}.{number}": by_key(key) for number in range(PODS) for key in KEYS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What makes the pods of a job."""

    path: str
    make: Callable[[str, Product], Object]
    #: what the laws call the job of that name
    job: str


MADE = {
    "job": Made(
        path=kinds.JOBS, make=lambda name, it: kinds.job(name, PODS, it), job="Job {}"
    ),
    "job-set": Made(
        path=kinds.JOB_SETS,
        make=lambda name, it: kinds.job_set(name, PODS, 1, it),
        job="JobSet {}",
    ),
    "worker-set": Made(
        path=kinds.WORKER_SETS,
        make=lambda name, it: kinds.worker_set(name, 1, PODS, it),
        job="LeaderWorkerSet {}/0",
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world() -> AsyncIterator[World]:
    """Two nodes of each kind, in place of four of one."""
    async with running(SERVERS) as world:
        yield world


async def create(story: Story, made: Made, *beginnings: str) -> None:
    """Make a job for each kind and beginning of a name, all at once."""
    await asyncio.gather(
        *(
            story.create(made.path, made.make(f"{beginning}-{key}", by_key(key)))
            for beginning in beginnings
            for key in KEYS
        )
    )


def nodes(story: Story, job: str) -> set[str]:
    """Return the nodes that a job's pods have."""
    pods = [e for e in story.pods() if e.job == job]
    return {e.node for e in pods if e.bound_s < NEVER and e.ended_s == NEVER}


async def run_all(story: Story, made: Made, beginning: str) -> None:
    """See each kind's job run, on the nodes of its kind."""
    for key in KEYS:
        job = made.job.format(f"{beginning}-{key}")
        await story.runs(job, PODS)
        assert nodes(story, job) == {name for name in SERVERS if name.startswith(key)}


@pytest.mark.parametrize("name", MADE)
async def test_each_kind_has_a_job(story: Story, name: str) -> None:
    await create(story, MADE[name], "train")

    await run_all(story, MADE[name], "train")


@pytest.mark.parametrize("name", MADE)
async def test_two_jobs_want_the_nodes_of_each_kind(story: Story, name: str) -> None:
    """One of the two gets them, and the other when the first is deleted."""
    made = MADE[name]
    await create(story, made, "one", "two")
    won: dict[str, str] = {}

    def have_won() -> bool:
        for key in KEYS:
            for beginning in ("one", "two"):
                if len(nodes(story, made.job.format(f"{beginning}-{key}"))) == PODS:
                    won[key] = beginning
        return len(won) == len(KEYS)

    await story.until(have_won, "a job of each kind runs")
    await story.goes_on()
    for key in KEYS:
        await story.delete(made.path, f"{won[key]}-{key}")

    for key in KEYS:
        other = "two" if won[key] == "one" else "one"
        await story.runs(made.job.format(f"{other}-{key}"), PODS)


async def test_a_pod_of_each_kind_fails(story: Story) -> None:
    made = MADE["job"]
    await create(story, made, "train")
    await run_all(story, made, "train")
    jobs = [made.job.format(f"train-{key}") for key in KEYS]
    names = [story.name(job, "1") for job in jobs]

    await asyncio.gather(*(story.kubelets.fail(name) for name in names))

    await story.until(
        lambda: not {*names} & {story.name(job, "1") for job in jobs},
        "pods in their places",
    )
    await run_all(story, made, "train")


async def test_jobs_of_all_makers_are_made_at_once(story: Story) -> None:
    """A Job for A2, a JobSet for A3 and a LeaderWorkerSet for 310P."""
    given = dict(zip(MADE.values(), KEYS, strict=True))
    await asyncio.gather(
        *(
            story.create(made.path, made.make("train", by_key(key)))
            for made, key in given.items()
        )
    )

    for made, key in given.items():
        job = made.job.format("train")
        await story.runs(job, PODS)
        assert nodes(story, job) == {name for name in SERVERS if name.startswith(key)}
