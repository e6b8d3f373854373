"""Sessions of several jobs, whatever goes wrong: no chip twice, no job in part."""

import random  # noqa: TID251  # seeded: the same sessions in every run
from collections import Counter

import pytest

from kube.errors import UnreachableError
from scheduler_core.wire.annotations import ALLOCATED_ON
from tests.extender.volcanos import VolcanoWorld, volcano
from tests.support.caches import cluster
from tests.support.until import until
from tests.support.watched import RESOURCE, claim, member

NODES = ("n1", "n2", "n3", "n4")
#: {job: its pods}; together they ask for more than there is
JOBS = {"j": ("a", "b"), "k": ("c", "d", "e"), "l": ("f", "g")}


class Sessions:
    """Volcano's side: what it has bound, and chance."""

    def __init__(self, world: VolcanoWorld, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)  # noqa: S311  # no secret is made
        #: {pod: (node, its annotations)}
        self.bound: dict[str, tuple[str, dict[str, str]]] = {}
        #: what has happened, and how often
        self.counts: Counter[str] = Counter()

    async def hold(self) -> None:
        """One session over all jobs that wait."""
        for job, names in JOBS.items():
            if names[0] in self.bound:
                if self.chance.random() < 0.3:
                    self.end(job)
            elif await self.world.vote(*names) == 0:
                await self.allocate(job)
        self.world.pass_s(self.chance.choice((1.0, 5.0, 40.0)))

    async def allocate(self, job: str) -> None:
        done: list[tuple[str, str]] = []
        closed = {node for node in NODES if self.chance.random() < 0.1}
        for name in JOBS[job]:
            there = [n for n in NODES if n not in closed and not self.is_full(n, done)]
            fitting = await self.world.fitting(name, there)
            if not fitting:
                break
            if self.chance.random() < 0.1:
                self.world.pods.fates.append(UnreachableError("cut off"))
            node = self.chance.choice(fitting)
            if await self.world.allocate(name, node):
                self.counts["failed"] += 1
                await self.world.deallocate(name, node)
                break
            done.append((name, node))
        if len(done) < len(JOBS[job]) or self.chance.random() < 0.1:
            self.counts["taken back"] += bool(done)
            for name, node in reversed(done):
                await self.world.deallocate(name, node)
            return
        self.counts["bound"] += 1
        for name, node in done:
            self.bind(job, name, node)

    def is_full(self, node: str, done: list[tuple[str, str]]) -> bool:
        there = [*(where for where, _ in self.bound.values()), *(n for _, n in done)]
        return node in there

    def bind(self, job: str, name: str, node: str) -> None:
        there = dict(self.world.pods.on[f"uid-{name}"])
        assert there[ALLOCATED_ON] == node
        assert there[RESOURCE] == claim(range(8))[RESOURCE]
        self.bound[name] = node, there
        size = len(JOBS[job])
        self.world.learn(member(name, job=job, size=size, node=node))

    def end(self, job: str) -> None:
        """The job's pods end, and others of the same names begin."""
        for name in JOBS[job]:
            del self.bound[name]
            self.world.learn(member(name, job=job, size=len(JOBS[job]), deleting=True))
            self.world.forget(name)
            self.world.learn(member(name, job=job, size=len(JOBS[job])))

    def check(self) -> None:
        """After a session: all of a job are bound or none, and nothing is left over."""
        used = Counter(node for node, _ in self.bound.values())
        assert max(used.values(), default=1) == 1
        for names in JOBS.values():
            assert len({name in self.bound for name in names}) == 1


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_no_chip_is_given_twice_and_no_job_in_part(
    seed: int,
) -> None:
    async with volcano(cluster(nodes=NODES)) as world:
        for job, names in JOBS.items():
            world.learn(*(member(name, job=job, size=len(names)) for name in names))
        sessions = Sessions(world, seed)
        for _ in range(25):
            await sessions.hold()
            sessions.check()
        assert sessions.counts["bound"] > 1  # else nothing could have gone wrong

        def is_nothing_left() -> bool:
            world.volcano.tick()
            waiting = world.pods.on.keys() - {f"uid-{n}" for n in sessions.bound}
            return not any(world.pods.on[uid] for uid in waiting)

        await until(is_nothing_left)
