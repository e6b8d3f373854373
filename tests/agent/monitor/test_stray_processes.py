"""A process that stays on a chip without a pod is news; one that is ending is not."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from agent.claims.events import ForeignRead, StrayProcessesRead
from agent.devices.processes import Occupant, ProcessNames
from agent.devices.reading import Process, Reading
from agent.devices.simulated import file
from agent.monitor.stray_processes import StrayProcesses
from agent.observe.problems import STAYS_S
from tests.agent.announcing import Announced
from tests.agent.node import NodeLedger, confirmed, current

PID = 4711
IDLE = file.parse("product: atlas-800-training\n")

pytestmark = pytest.mark.looptime


class Known(ProcessNames):
    """All processes are called the same."""

    async def describe(self, pids: Collection[int]) -> Mapping[int, Occupant]:
        return {pid: Occupant(pid=pid, name="python3", user=1000) for pid in pids}


class World(Announced):
    """Leftovers at work on a ledger, and what people and programs are told."""

    def __init__(self, now: NodeLedger) -> None:
        super().__init__()
        self.now = now
        self.reading: Reading = IDLE
        self.stray_processes = StrayProcesses(
            now,
            last_reading=lambda: self.reading,
            names=Known(),
            announcer=self.announcer,
        )

    def use(self, *chips: int) -> None:
        """The driver shows a process on these chips, and on no others."""
        uses = tuple(Process(chip=chip, pid=PID) for chip in chips)
        self.reading = replace(IDLE, processes=uses)
        self.now.read_chips(busy=sum(1 << chip for chip in chips))

    @property
    def shown(self) -> list[tuple[dict[str, str], float]]:
        """What the metric says, with its labels."""
        return [
            (dict(sample.labels), sample.value)
            for metric in self.registry.collect()
            if metric.name == "ascend_agent_releasing_chip_processes"
            for sample in metric.samples
        ]


async def passing(world: World, for_s: float) -> None:
    """Let so much time go by."""
    with suppress(TimeoutError):
        async with asyncio.timeout(for_s):
            await world.stray_processes.run()


async def test_one_that_stays_is_told_with_its_pod_and_when_it_has_ended() -> None:
    world = World(confirmed())
    world.now.delete("train")
    world.use(0)

    await passing(world, STAYS_S + 0.1)
    shown, told = world.shown, list(world.events)
    world.use()
    await passing(world, 0.1)

    text = (
        "chip 0 is not free, though pod default/train has gone: process 4711 (python3, "
        "uid 1000) uses it. It is free as soon as that has ended"
    )
    over = "no process keeps chip 0 from being free any more"
    assert shown == [({"chip": "0"}, 1)]
    assert told == [("NpuStillInUse", text)]
    assert world.events[1:] == [("NpuNoLongerInUse", over)]
    assert world.shown == []


async def test_one_that_ends_soon_is_shown_and_not_told() -> None:
    world = World(confirmed())
    world.now.delete("train")
    world.use(0)

    await passing(world, STAYS_S - 0.1)
    shown = world.shown
    world.use()
    await passing(world, STAYS_S)

    assert len(shown) == 1
    assert (world.events, world.shown) == ([], [])


async def test_one_of_nobodys_is_told_as_such() -> None:
    world = World(current())
    world.use(5)

    await passing(world, STAYS_S + 0.1)

    text = (
        "chip 5 is not free, though no pod has it: process 4711 (python3, uid 1000) "
        "uses it. It is free as soon as that has ended"
    )
    assert world.events == [("NpuStillInUse", text)]


async def test_one_of_another_plugins_pod_is_not_told_and_one_beside_it_is() -> None:
    world = World(confirmed())
    world.now.apply(ForeignRead(dict.fromkeys(range(8), "perhaps default/theirs")))
    world.now.delete("train")
    world.use(0, 5)

    await passing(world, STAYS_S + 0.1)

    assert world.shown == [({"chip": "0"}, 1)]
    assert [reason for reason, _ in world.events] == ["NpuStillInUse"]


async def test_one_that_the_driver_does_not_see_is_told_too() -> None:
    world = World(confirmed())
    world.now.delete("train")
    world.now.apply(
        StrayProcessesRead(uids=frozenset({"uid-train"}), pids={"uid-train": ()})
    )

    await passing(world, STAYS_S + 0.1)

    text = (
        "chip 0 is not free, though pod default/train has gone: a process that cannot "
        "be seen from here uses it. It is free as soon as that has ended"
    )
    assert world.shown == [({"chip": "0"}, 1)]
    assert world.events == [("NpuStillInUse", text)]


async def test_the_metric_counts_processes_and_names_none() -> None:
    world = World(confirmed())
    world.now.delete("train")
    uses = (Process(chip=0, pid=PID), Process(chip=0, pid=8), Process(chip=5, pid=8))
    world.reading = replace(IDLE, processes=uses)
    world.now.read_chips(busy=0b100001)

    await passing(world, 0.1)

    assert world.shown == [({"chip": "0"}, 2), ({"chip": "5"}, 1)]
