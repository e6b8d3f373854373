"""Each call of libdcmi hangs, at each moment; and workers that cannot be ended.

The agent's side is real, from the worker's messages to the conditions of the chips.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agent.devices.dcmi.conversion import NOTHING, Conversion
from agent.devices.dcmi.driver import (
    LEAVE_OUT_MOST_S,
    LEAVE_OUT_S,
    MOST_UNENDED,
    RELOAD_EACH_S,
    DcmiDriver,
)
from agent.devices.dcmi.library import NOT_EXIST
from agent.devices.dcmi.memory import Known
from agent.devices.dcmi.reader import QUIET_LOOK_EACH_S
from agent.devices.poller import Observation, Poller
from agent.devices.reading import Reading
from agent.health.conditions import (
    UNREAD_S,
    Health,
    ReadingTaken,
    is_stable,
    step,
)
from service import clock
from service.backoff import Backoff
from tests.agent.devices.dcmi.outcomes import (
    CHIP,
    HERE,
    METHODS,
    OF_NODE,
    Moment,
)
from tests.agent.devices.dcmi.simulated_node import (
    CHIPS,
    DIES,
    FACTS,
    KNOWN,
    WELL,
    conditions,
    published,
)
from tests.agent.devices.dcmi.simulated_workers import SimulatedWorkers
from tests.agent.devices.scripted_library import (
    FUNCTIONS,
    Answers,
    Fails,
    Hangs,
    Place,
    ScriptedLibrary,
)

pytestmark = [pytest.mark.looptime, pytest.mark.long]

#: Deadline of a call, and the back-off: not those of the product.
CALL_S = 1.0
PAUSE_S = 0.01
#: Until a chip has had its turn to hang; to be looked at, and then to be unread.
HUNG_S = 2 * CALL_S
SETTLED_S = QUIET_LOOK_EACH_S + UNREAD_S + 2.0
#: For which a call that hung once or twice is left out, and chips are identified.
HEALED_S = 125.0


@dataclass
class HungNode:
    """A node whose worker hangs, with what its agent makes of it."""

    library: ScriptedLibrary
    workers: SimulatedWorkers
    driver: DcmiDriver
    observation: Observation = field(default_factory=Observation)
    health: Health = field(default_factory=Health)

    def observe(self, observation: Observation) -> bool:
        """Judge as a chip monitor does."""
        self.observation = observation
        reading = observation.reading
        if reading is None or observation.is_stale:
            return True
        taken = ReadingTaken(reading=reading)
        self.health, _ = step(self.health, taken, clock.loop_s())
        return not is_stable(self.health, reading)

    @property
    def reading(self) -> Reading | None:
        return self.observation.reading

    @property
    def conditions(self) -> dict[int, object]:
        return {chip: health.condition for chip, health in self.health.chips.items()}


@asynccontextmanager
async def hung_node(
    path: Path, *, known: Known = NOTHING, are_mortal: bool = True
) -> AsyncIterator[HungNode]:
    """Run a node; its calls take no time as long as none hangs."""
    file = path / "libdcmi.so"
    file.touch(mode=0o644)
    library = ScriptedLibrary(chips=CHIPS, dies=DIES, facts=FACTS)
    workers = SimulatedWorkers(library, has_events=True, are_mortal=are_mortal)
    driver = DcmiDriver(
        file,
        Conversion(known=known, wait_s=600.0),
        call_s=CALL_S,
        wall_ms=lambda: 0,
        new_backoff=lambda: Backoff(base_s=PAUSE_S, cap_s=PAUSE_S),
        start=workers.start,
    )
    node = HungNode(library, workers, driver)
    poller = Poller(driver, poll_s=1.0, deadline_s=5.0)
    polling = asyncio.create_task(poller.run(node.observe))
    try:
        yield node
    finally:
        polling.cancel()
        await asyncio.wait({polling})
        workers.end()
        await driver.close()


def find_breach(node: HungNode, method: str, place: Place, moment: Moment) -> str:
    """Return what is not as it should be while a call hangs; "" if all is."""
    is_blind = method == "codes" and place is None
    if node.reading is None:
        is_lawful = is_blind or moment is Moment.FIRST
        return "" if is_lawful else f"not served: {node.observation.problem}"
    if node.observation.is_stale != is_blind:
        return f"stale: {node.observation.problem!r}"
    is_out = place is not None and method in {"codes", "check_ready"}
    if node.conditions != conditions({CHIP} if is_out else ()):
        return f"conditions: {node.conditions}"
    if moment is Moment.FIRST:
        return ""  # no fact has been told before
    found = published(node.reading)
    is_start = moment is Moment.START
    wanted = replace(
        WELL,
        # the agent does not remember the version, and cannot ask without cards
        driver_version="" if is_start and method in OF_NODE else WELL.driver_version,
    )
    return "" if found == wanted else f"published: {found}"


def find_scar(node: HungNode) -> str:
    """Return what is not as before when no call hangs any more; "" if all is."""
    if node.observation.problem or node.reading is None:
        return f"not healed: {node.observation.problem}"
    if node.conditions != conditions():
        return f"not healed: {node.conditions}"
    found = published(node.reading)
    return "" if found == WELL else f"not healed: {found}"


@pytest.mark.parametrize("moment", Moment, ids=lambda moment: moment.name)
@pytest.mark.parametrize(
    ("method", "place"),
    [
        *((method, None) for method in FUNCTIONS),
        *((method, HERE) for method in METHODS if method not in OF_NODE),
    ],
)
async def test_no_hang_of_a_call_breaks_the_law(
    tmp_path: Path, method: str, place: Place, moment: Moment
) -> None:
    is_start = moment in {Moment.FIRST, Moment.START}
    known = KNOWN if moment is Moment.START else NOTHING
    async with hung_node(tmp_path, known=known) as node:
        if not is_start:
            await asyncio.sleep(59.5 if moment is Moment.IDENTIFYING else 2.0)
        node.library.outcomes[method, place] = Hangs()
        await asyncio.sleep(SETTLED_S + HUNG_S * (CHIPS if place is None else 1))
        breach = find_breach(node, method, place, moment)
        node.library.outcomes.clear()
        await asyncio.sleep(HEALED_S)
        scar = find_scar(node)

    assert (breach, scar) == ("", "")


async def test_of_workers_that_cannot_be_ended_there_are_two(tmp_path: Path) -> None:
    """Finding F12."""
    async with hung_node(tmp_path, are_mortal=False) as node:
        await asyncio.sleep(2.0)
        node.library.outcomes["codes", None] = Hangs()
        most = 0
        for _ in range(600):
            await asyncio.sleep(1.0)
            most = max(most, len(node.workers.alive))
        said = node.observation.problem
        node.library.outcomes.clear()
        node.workers.end()
        await asyncio.sleep(HEALED_S)
        healed = node.observation.problem

    assert (most, len(node.workers.processes) - 1) == (MOST_UNENDED, MOST_UNENDED)
    assert said == (
        "dcmi_get_device_errorcode_v2 (card 0, device 1) has not come back for 1 s; "
        "the processes 1000, 1001 hang in the driver and cannot be ended, so no other "
        "is started before one of them ends"
    )
    assert healed == ""


async def test_of_workers_that_show_no_chip_and_cannot_be_ended_there_are_two(
    tmp_path: Path,
) -> None:
    """Finding F12, where libdcmi is loaded anew because it shows no chip."""
    async with hung_node(tmp_path, are_mortal=False) as node:
        node.library.outcomes["cards", None] = Answers(((), 0))
        await asyncio.sleep(600.0)
        said, alive = node.observation.problem, node.workers.alive

    assert alive == [1000, 1001]
    assert said == (
        "libdcmi should be loaded anew; the processes 1000, 1001 hang in the driver "
        "and cannot be ended, so no other is started before one of them ends"
    )


@pytest.mark.parametrize("has_list", [False, True])
async def test_a_driver_that_loses_all_chips_is_loaded_anew_each_half_minute(
    tmp_path: Path, *, has_list: bool
) -> None:
    """As if others were shown, it was loaded after 30, 60, 120 … seconds."""
    async with hung_node(tmp_path) as node:
        await asyncio.sleep(2.0)
        node.library.outcomes["codes", None] = Fails(NOT_EXIST)
        if not has_list:
            node.library.outcomes["cards", None] = Answers(((), 0))
        await asyncio.sleep(20 * RELOAD_EACH_S)
        loaded = len(node.workers.processes)
        node.library.outcomes.clear()
        await asyncio.sleep(HEALED_S)

    assert 15 <= loaded <= 21
    assert node.conditions == conditions()


async def test_a_call_that_hangs_once_a_day_is_left_out_for_a_minute(
    tmp_path: Path,
) -> None:
    """The seventh time, a chip was out of service for an hour."""
    minutes = []
    async with hung_node(tmp_path) as node:
        for pause_s in (2.0, LEAVE_OUT_S + 20.0, LEAVE_OUT_MOST_S + 180.0):
            await asyncio.sleep(pause_s)
            node.library.outcomes["codes", HERE] = Hangs()
            await asyncio.sleep(QUIET_LOOK_EACH_S + HUNG_S)
            node.library.outcomes.clear()
            call = next(iter(node.workers.processes[-1].order["leave_out"]))
            minutes.append(round(call[3] / LEAVE_OUT_S))

    assert minutes == [1, 2, 1]
