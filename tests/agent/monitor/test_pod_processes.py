"""A process that cannot be told from its cgroup keeps only what may be its pod's."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from agent.claims import values
from agent.claims.events import StrayProcessesRead
from agent.devices.cgroups import Cgroups, PodPids
from agent.devices.processes import ProcessNames
from agent.devices.reading import Process, Reading
from agent.devices.simulated import file
from agent.monitor.pod_processes import PodProcesses
from tests.agent.devices.fake_proc import hanging
from tests.agent.node import NodeLedger, pod, running

IDLE = file.parse("product: atlas-800-training\n")
HUNG = 4711
#: A process whose cgroup cannot be read; none can be missed besides.
ONE_HUNG = PodPids(pids={}, unread=frozenset({HUNG}))


class Told(Cgroups):
    """Cgroups as they are told."""

    def __init__(self, found: PodPids) -> None:
        super().__init__()
        self.found = found

    async def find(self, uids: Collection[str], *, within_s: float) -> PodPids:
        assert within_s > 0
        pids = {uid: pids for uid, pids in self.found.pids.items() if uid in uids}
        return replace(self.found, pids=pids)


class World:
    """A node with pods `a` on chip 0 and `b` on chip 1, and what is read of it."""

    def __init__(self, found: PodPids, *, sees: Collection[int] = ()) -> None:
        """Construct it; the driver sees the process that hangs on these chips."""
        self.now = running(pod("a", [0], 1), pod("b", [1], 2))
        self.cgroups = Told(found)
        uses = tuple(Process(chip=chip, pid=HUNG) for chip in sees)
        self.reading: Reading = replace(IDLE, processes=uses)
        self.processes = PodProcesses(
            self.now, last_reading=lambda: self.reading, cgroups=self.cgroups
        )

    async def held_after(self, *names: str) -> tuple[int, ...]:
        """The chips that are held after a pass, once these pods have gone."""
        uids = frozenset(f"uid-{name}" for name in names)
        for name in names:
            self.now.delete(name)
            self.now.knows_not(name)
        pids = await self.processes.find(uids)
        self.now.apply(StrayProcessesRead(uids=uids, pids=pids))
        self.now.passes()
        return self.now.affinity.held


def come(now: NodeLedger, name: str, chip: int) -> None:
    """A pod comes and has this chip."""
    now.update(pod(name, [chip], chip + 1, phase="Running"))
    assert now.mounts_for(name, chip) == (chip,)


async def test_chips_are_free_again_while_a_process_hangs(tmp_path: Path) -> None:
    world = World(ONE_HUNG, sees=(1,))
    with hanging(tmp_path, HUNG, "cgroup", "comm", "cmdline", "status"):
        world.processes = PodProcesses(
            world.now, last_reading=lambda: world.reading, cgroups=Cgroups(tmp_path)
        )
        names = ProcessNames(tmp_path, deadline_s=0.1)
        await names.describe([HUNG])
        held = [await world.held_after("a", "b") for _ in range(4)]

    assert held == [(1,)] * 4


@pytest.mark.parametrize(
    ("found", "sees", "held"),
    [
        # nothing hangs
        (PodPids(pids={}, unread=frozenset()), (), ()),
        (PodPids(pids={"uid-a": (7,)}, unread=frozenset()), (), (0,)),
        # one hangs, and may be of each
        (ONE_HUNG, (), (0, 1)),
        # of one with this chip
        (ONE_HUNG, (0,), (0,)),
        (ONE_HUNG, (1,), (1,)),
        (ONE_HUNG, (0, 1), (0, 1)),
        # of somebody else
        (ONE_HUNG, (5,), ()),
        (PodPids(pids={"uid-b": (7,)}, unread=frozenset({HUNG})), (5,), (1,)),
        # too many hang
        (PodPids(pids={}, unread=None), (), (0, 1)),
        (PodPids(pids={"uid-b": (7,)}, unread=None), (5,), (0, 1)),
    ],
)
async def test_a_hold_stays_if_a_process_may_be_of_its_pod(
    found: PodPids, sees: tuple[int, ...], held: tuple[int, ...]
) -> None:
    assert await World(found, sees=sees).held_after("a", "b") == held


async def test_pods_that_came_after_a_process_hung_do_not_own_it() -> None:
    world = World(ONE_HUNG)
    before = await world.held_after("a")

    come(world.now, "c", 2)
    come(world.now, "d", 3)

    assert before == (0, 1)
    assert await world.held_after("c", "d") == (0, 1)
    assert await world.held_after("a", "b") == (0, 1)


async def test_a_container_that_was_recreated_may_own_what_hung_before() -> None:
    world = World(ONE_HUNG)
    await world.held_after("a")
    come(world.now, "c", 2)
    [hold] = values.holds_of_pod(world.now.ledger, "uid-c")
    recreated = replace(hold, recreated=True)
    world.now.replace(values.put_holds(world.now.ledger, recreated))

    assert await world.held_after("c") == (0, 1, 2)


async def test_a_process_that_hangs_for_a_moment_is_forgotten() -> None:
    world = World(ONE_HUNG)
    held = [await world.held_after("a")]
    world.cgroups.found = PodPids(pids={}, unread=frozenset())
    held += [await world.held_after("a")]
    come(world.now, "c", 2)
    world.cgroups.found = ONE_HUNG  # another process of this number
    held += [await world.held_after("c")]

    assert held == [(0, 1), (1,), (1, 2)]


async def test_what_was_found_is_told_and_what_may_be_is_empty() -> None:
    found = PodPids(pids={"uid-b": (7, 8)}, unread=frozenset({HUNG}))
    world = World(found)

    pids = await world.processes.find(frozenset({"uid-a", "uid-b"}))

    assert pids == {"uid-a": (), "uid-b": (7, 8)}


async def test_what_a_static_pod_has_left_is_found_by_the_uid_of_its_group() -> None:
    static = "2f6f5a1e0c110b9f0f3c3f3e4a4b9c7d"
    world = World(PodPids(pids={static: (7,)}, unread=frozenset()))
    mirror = {"kubernetes.io/config.mirror": static}
    world.now.update(pod("c", [2], 3, phase="Running", annotations=mirror))
    assert world.now.mounts_for("c", 2) == (2,)

    held = await world.held_after("a", "c")

    assert held == (1, 2)
    assert world.now.ledger.stray_processes == {"uid-c": (7,)}
