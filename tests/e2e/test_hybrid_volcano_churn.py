"""Jobs that come and go under the real Volcano: no chip twice, no job in part.

The nodes are kubelets of the sandbox with real agents; Volcano holds a session every
0.1 s. Containers, agents and the API server say what is true: nobody asks the extender.
"""

import itertools
import random  # noqa: TID251  # seeded: the same kinds of jobs in every run
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from sandbox.inspect import checks, observer
from sandbox.inspect.facts import PodFacts
from sandbox.world import World
from sandbox.world.machines import Machine
from tests.e2e import ours, volcanos
from tests.e2e.bare import BareCluster, until
from tests.e2e.bindings import Record
from tests.e2e.stages import CannotError
from tests.e2e.volcanos import GROUPS, Volcano
from tests.support.objects import PODS
from tests.support.tasks import in_background

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = ("node-0", "node-1", "node-2", "node-3")
#: Sessions of the churn, and jobs of several pods that are served in it, at least.
SESSIONS, GANGS = 100, 5
#: Jobs that exist at once; together they ask for more than there is.
AT_ONCE = 6
#: How many chips each pod of a job asks for; a kind of job in each row.
KINDS: Sequence[Sequence[int]] = ((8, 8), (8, 8), (8, 8), (8,), (4,), (2,))
_PERIOD_S = 0.1
_WITHIN_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster whose Volcano asks our extender, with nodes that run pods."""

    cluster: BareCluster
    world: World
    volcano: Volcano
    record: Record


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    """API server, Volcano, extender, and four nodes with their agents."""
    machines = [Machine(name=name) for name in NODES]
    async with ours.with_nodes(*machines, folder="overlays/volcano") as (
        cluster,
        world,
    ):
        url = f"{world.extender_url}/volcano"
        volcano = await volcanos.start(cluster, url, period_s=_PERIOD_S)
        record = Record(world)
        async with in_background(record.follow()):
            yield Site(cluster=cluster, world=world, volcano=volcano, record=record)


class Churn:
    """Jobs that exist. Protects: together they ask for more than there is."""

    def __init__(self, site: Site) -> None:
        """Nothing is made before `turn`."""
        #: how many jobs of several pods were served
        self.gang_count = 0
        #: how many jobs ended while they waited
        self.cancelled_count = 0
        self._site = site
        #: {job: its pods}
        self._jobs: dict[str, Sequence[str]] = {}
        self._chance = random.Random(7)  # noqa: S311  # no secret is made
        self._numbers = itertools.count()

    async def turn(self) -> None:
        """End some of the jobs, and begin others in their place."""
        pods = {pod.name: pod for pod in await observer.pods(self._site.world)}
        for job, names in tuple(self._jobs.items()):
            is_served = all(_is_served(pods[name]) for name in names)
            if self._chance.random() < (0.5 if is_served else 0.02):
                self.gang_count += is_served and len(names) > 1
                self.cancelled_count += not is_served
                await self._end(job)
        while len(self._jobs) < AT_ONCE:
            await self._begin(self._chance.choice(KINDS))

    async def end_all(self) -> None:
        """End all jobs."""
        for job in tuple(self._jobs):
            await self._end(job)

    async def _begin(self, chips: Sequence[int]) -> None:
        job = f"job{next(self._numbers)}"
        counts = {f"{job}-{number}": count for number, count in enumerate(chips)}
        await volcanos.make(self._site.cluster, job, counts)
        self._jobs[job] = tuple(counts)

    async def _end(self, job: str) -> None:
        """Delete a job; its pods with or without time to end."""
        await _delete(
            self._site, job, self._jobs.pop(job), grace_s=self._chance.choice((0, 1))
        )


async def test_a_job_that_is_taken_back_is_not_allocated_in_each_session(
    site: Site,
) -> None:
    await volcanos.make_torn(site.cluster, "apart")
    await until(
        lambda: site.record.allocations["apart-0"],
        "apart-0 allocated",
        within_s=_WITHIN_S,
    )
    for _ in range(20):
        await _hold_session(site)
    await _until_nothing(lambda: _wrong(site))
    await _delete(site, "apart", ("apart-0", "apart-1"))
    await _until_nothing(lambda: _left(site))

    assert site.record.allocations["apart-0"] <= 5
    assert site.record.problems == []
    assert _bound(site).isdisjoint(("apart-0", "apart-1"))


async def test_jobs_come_and_go_whole_and_nothing_is_left(site: Site) -> None:
    churn = Churn(site)
    await volcanos.make_torn(site.cluster, "torn")
    last = await site.volcano.session_count() + SESSIONS
    while await site.volcano.session_count() < last or churn.gang_count < GANGS:
        await churn.turn()
        await _hold_session(site)
    await _delete(site, "torn", ("torn-0", "torn-1"))
    await _until_nothing(lambda: _wrong(site))

    await churn.end_all()
    await _until_nothing(lambda: _left(site))
    whole = {f"whole-{number}": 8 for number in range(len(NODES))}
    await volcanos.make(site.cluster, "whole", whole)

    async def are_served() -> bool:
        pods = {pod.name: pod for pod in await observer.pods(site.world)}
        return all(_is_served(pods[name]) for name in whole)

    await until(are_served, f"{sorted(whole)} served", within_s=_WITHIN_S)
    await _until_nothing(lambda: _wrong(site))
    await _delete(site, "whole", whole)
    await _until_nothing(lambda: _left(site))

    assert site.record.problems == []
    assert churn.cancelled_count > 0
    assert _bound(site).isdisjoint(("torn-0", "torn-1"))


def _bound(site: Site) -> set[str]:
    """Return the pods that have ever had a node."""
    return {choice.pod for choice in site.record.choices.values()}


async def _hold_session(site: Site) -> None:
    """Wait until Volcano has ended one more session."""
    before = await site.volcano.session_count()

    async def is_held() -> bool:
        return await site.volcano.session_count() > before

    await until(is_held, "one more session")


async def _until_nothing(wrong: Callable[[], Awaitable[Sequence[str]]]) -> None:
    """Wait until nothing is wrong; a failure says what was at last."""
    last: list[str] = []

    async def is_right() -> bool:
        last[:] = await wrong()
        return not last

    try:
        await until(is_right, "nothing wrong", within_s=_WITHIN_S)
    except CannotError as error:
        raise AssertionError(last) from error


async def _wrong(site: Site) -> Sequence[str]:
    """Compare all sources, and check that each job is served whole or waits."""
    seen = await observer.cluster(site.world)
    bound = tuple(pod for pod in seen.pods if pod.node)
    return (
        *_in_part(seen.pods),
        *checks.paired(seen).problems,
        *checks.agreed(seen),
        *checks.placed_well(bound),
        *checks.as_chosen(replace(seen, pods=bound), site.record.choices),
    )


async def _left(site: Site) -> Sequence[str]:
    """Check that no pod and no container is there, and that all chips are offered."""
    seen = await observer.cluster(site.world)
    return (
        *(f"{pod.name} is there" for pod in seen.pods),
        *(f"{mount.pod} has {mount.chips}" for mount in seen.mounts),
        *checks.registered(seen.nodes),
        *checks.agreed(seen),
    )


def _in_part(pods: Iterable[PodFacts]) -> Iterator[str]:
    """Check that each job is served whole, or waits with no chips."""
    jobs: defaultdict[str, list[PodFacts]] = defaultdict(list)
    for pod in pods:
        jobs[pod.name.rpartition("-")[0]].append(pod)
    for job, members in jobs.items():
        waits = not any(pod.node or pod.claimed for pod in members)
        if not waits and not all(map(_is_served, members)):
            told = [f"{m.name} {m.phase} {m.node} {m.claimed}" for m in members]
            yield f"{job} is neither served nor waits: {', '.join(told)}"


def _is_served(pod: PodFacts) -> bool:
    return pod.is_confirmed and pod.phase == "Running"


async def _delete(
    site: Site, job: str, pods: Iterable[str], *, grace_s: int = 0
) -> None:
    for pod in pods:
        await site.cluster.api.delete(f"{PODS}/{pod}", grace_s=grace_s)
    await site.cluster.api.delete(f"{GROUPS}/{job}")
