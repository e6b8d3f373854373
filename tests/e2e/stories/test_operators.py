"""Stories of RayClusters and PyTorchJobs: each making is bound whole or not at all."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from sandbox.apiclient import Object
from tests.e2e.stories import controllers, kinds
from tests.e2e.stories.history import PATHS
from tests.e2e.stories.story import RIVAL, Story
from tests.e2e.stories.world import World, running

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: Operators take it for a signal of somebody else, and make the pod again.
KILLED = 137


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What makes a first pod and workers."""

    name: str
    make: Callable[[str, int], Object]
    #: ranks of the first pod and of a worker
    first: str
    worker: str
    #: patches of its object
    scaled: Callable[[int], Object]
    suspended: Callable[[bool], Object]

    @property
    def path(self) -> str:
        return PATHS[self.name]

    @property
    def job(self) -> str:
        return f"{self.name} train"


RAY = Kind(
    name="RayCluster",
    make=kinds.ray_cluster,
    first="head",
    worker="workers/1/0",
    # A merge of lists replaces them.
    scaled=lambda workers: {
        "spec": {
            "workerGroupSpecs": kinds.ray_cluster("", workers)["spec"][
                "workerGroupSpecs"
            ]
        }
    },
    suspended=kinds.suspended,
)
TORCH = Kind(
    name="PyTorchJob",
    make=kinds.torch_job,
    first="master/0",
    worker="worker/1",
    scaled=lambda workers: {
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}
    },
    suspended=lambda is_suspended: {"spec": {"runPolicy": {"suspend": is_suspended}}},
)
EACH = pytest.mark.parametrize("kind", [RAY, TORCH], ids=lambda kind: kind.name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world() -> AsyncIterator[World]:
    """KubeRay and the training operator, in place of the controllers of sets."""
    makers = (controllers.KUBERAY, controllers.TRAINING)
    async with running(makers=makers) as world:
        yield world


async def run_job(
    story: Story, kind: Kind, *, has_rival: bool, workers: int = 2
) -> str:
    """Have a first pod and workers run, and a job wait; return its making."""
    await story.create(kind.path, kind.make("train", workers))
    await story.runs(kind.job, 1 + workers)
    if has_rival:
        await story.rival(4 - workers)
    return story.generation(kind.job)


@RIVAL
@EACH
async def test_a_job_is_created(story: Story, kind: Kind, has_rival: bool) -> None:
    await story.create(kind.path, kind.make("train", 2))
    if has_rival:
        await story.create(kinds.JOBS, kinds.job("rival", 2))

    await story.runs_again(kind.job, 3, has_rival=has_rival)


@RIVAL
@EACH
async def test_a_job_is_scaled(story: Story, kind: Kind, has_rival: bool) -> None:
    await run_job(story, kind, has_rival=False, workers=1)

    await story.api.patch(f"{kind.path}/train", kind.scaled(3))
    await story.runs(kind.job, 4)
    if has_rival:
        await story.rival()
    await story.api.patch(f"{kind.path}/train", kind.scaled(1))

    await story.runs(kind.job, 2)
    if has_rival:
        await story.runs("Job rival", 2)


@RIVAL
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "worker"])
@EACH
async def test_a_pod_is_deleted_and_ends_late(
    story: Story, kind: Kind, has_rival: bool, is_first: bool
) -> None:
    """Both operators look at what is there: they replace it when it has gone."""
    await run_job(story, kind, has_rival=has_rival)
    name = story.name(kind.job, kind.first if is_first else kind.worker)
    story.kubelets.keep(name)

    await story.api.delete(f"{kinds.PODS}/{name}")
    await story.goes_on(3)
    await story.kubelets.end_all()

    await story.is_gone(name)
    await story.runs_again(kind.job, 3, has_rival=has_rival)


@RIVAL
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "worker"])
@EACH
async def test_a_pod_fails(
    story: Story, kind: Kind, has_rival: bool, is_first: bool
) -> None:
    await run_job(story, kind, has_rival=has_rival)
    name = story.name(kind.job, kind.first if is_first else kind.worker)

    await story.kubelets.fail(name, KILLED)

    await story.is_gone(name)
    await story.runs_again(kind.job, 3, has_rival=has_rival)


@RIVAL
@EACH
async def test_a_job_is_suspended_and_resumed(
    story: Story, kind: Kind, has_rival: bool
) -> None:
    before = await run_job(story, kind, has_rival=has_rival)

    await story.suspend_and_resume(kind.path, "train", kind.suspended)
    await story.goes_on(3)
    await story.kubelets.end_all()

    await story.made_anew(kind.job, before)
    await story.runs_again(kind.job, 3, has_rival=has_rival)


@RIVAL
@EACH
async def test_a_job_is_made_anew_while_old_pods_end(
    story: Story, kind: Kind, has_rival: bool
) -> None:
    before = await run_job(story, kind, has_rival=has_rival)

    await story.make_anew(kind.path, kind.make("train", 2))
    await story.goes_on(3)
    await story.kubelets.end_all()

    await story.made_anew(kind.job, before)
    await story.runs_again(kind.job, 3, has_rival=has_rival)


@RIVAL
async def test_a_cluster_is_updated(story: Story, has_rival: bool) -> None:
    """By the strategy `Recreate`, the only one that touches pods."""
    strategy = {"type": "Recreate"}
    body = kinds.ray_cluster("train", 2, upgradeStrategy=strategy)
    await story.create(RAY.path, body)
    await story.runs(RAY.job, 3)
    before = story.generation(RAY.job)
    if has_rival:
        await story.rival()

    head = {"headGroupSpec": {"template": kinds.updated()}}
    await story.api.patch(f"{RAY.path}/train", {"spec": head})

    await story.made_anew(RAY.job, before)
    await story.runs_again(RAY.job, 3, has_rival=has_rival)


@RIVAL
async def test_a_cluster_has_workers_of_several_hosts(
    story: Story, has_rival: bool
) -> None:
    """If one host fails, all hosts of its worker are made again, while one ends."""
    await story.create(RAY.path, kinds.ray_cluster("train", 1, hosts=2))
    await story.runs(RAY.job, 3)
    if has_rival:
        await story.rival()
    names = [story.name(RAY.job, f"workers/0/{host}") for host in range(2)]
    story.kubelets.keep(names[1])

    await story.kubelets.fail(names[0], KILLED)
    await story.goes_on(3)
    await story.kubelets.end_all()

    for name in names:
        await story.is_gone(name)
    await story.runs_again(RAY.job, 3, has_rival=has_rival)
