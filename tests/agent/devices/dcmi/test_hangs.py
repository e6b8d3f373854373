"""Each call of libdcmi hangs, at each moment; and workers that cannot be ended.

The agent's side is real, from the worker's messages to the conditions of the chips.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from errno import EAGAIN
from pathlib import Path

import pytest

from agent.devices.dcmi.conversion import NOTHING, Conversion
from agent.devices.dcmi.driver import MOST_UNENDED, DcmiDriver
from agent.devices.dcmi.library import NOT_EXIST
from agent.devices.dcmi.lifecycle import FORGIVE_S, LEAVE_OUT_S, RELOAD_EACH_S
from agent.devices.dcmi.memory import Known
from agent.devices.dcmi.reader import IDENTITIES_EACH_S, QUIET_LOOK_EACH_S
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

#: Deadline of a call: shorter than that of the product, which is `LONG_CALL_S`.
CALL_S = 1.0
LONG_CALL_S = 5.0
#: Until a chip has had its two turns to hang; to be looked at, then to be unread.
HUNG_S = 4 * CALL_S
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
    #: chips that have been out of service
    were_out: set[int] = field(default_factory=set)

    def observe(self, observation: Observation) -> bool:
        """Judge as a chip monitor does."""
        self.observation = observation
        reading = observation.reading
        if reading is None or observation.is_stale:
            return True
        taken = ReadingTaken(reading=reading)
        self.health, _ = step(self.health, taken, clock.loop_s())
        self.were_out |= {*self.health.chips} - {*self.health.in_service}
        return not is_stable(self.health, reading)

    @property
    def reading(self) -> Reading | None:
        return self.observation.reading

    @property
    def conditions(self) -> dict[int, object]:
        return {chip: health.condition for chip, health in self.health.chips.items()}

    async def hang(self) -> None:
        """Wait until a call is under way that does not come back."""
        async with asyncio.timeout(IDENTITIES_EACH_S):
            while not self.workers.processes[-1].is_hung:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def hung_node(
    path: Path,
    *,
    known: Known = NOTHING,
    are_mortal: bool = True,
    call_s: float = CALL_S,
    load_s: float = 0.0,
) -> AsyncIterator[HungNode]:
    """Run a node; its calls take no time as long as none hangs."""
    file = path / "libdcmi.so"
    file.touch(mode=0o644)
    library = ScriptedLibrary(chips=CHIPS, dies=DIES, facts=FACTS)
    workers = SimulatedWorkers(
        library, has_events=True, load_s=load_s, are_mortal=are_mortal
    )
    driver = DcmiDriver(
        file,
        Conversion(known=known, wait_s=600.0),
        call_s=call_s,
        wall_ms=lambda: 0,
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


async def test_a_call_that_hangs_now_and_then_begins_anew(tmp_path: Path) -> None:
    """The seventh time, a chip was out of service for an hour."""
    left_out_s = []
    async with hung_node(tmp_path) as node:
        for pause_s in (2.0, 20.0, 20.0, FORGIVE_S + 60.0):
            await asyncio.sleep(pause_s)
            node.library.outcomes["codes", HERE] = Hangs()
            await node.hang()
            await asyncio.sleep(CALL_S + 1.0)
            node.library.outcomes.clear()
            await asyncio.sleep(1.0)
            order = node.workers.processes[-1].order["leave_out"]
            left_out_s.append([for_s for *_, for_s in order])

    assert left_out_s == [[], [LEAVE_OUT_S], [2 * LEAVE_OUT_S], []]


async def test_a_library_that_needs_40_s_to_load_is_loaded_once(tmp_path: Path) -> None:
    """Finding D23: it was loaded anew each 30 s, for ever."""
    async with hung_node(tmp_path, load_s=40.0) as node:
        await asyncio.sleep(45.0)

    assert node.conditions == conditions()
    assert len(node.workers.processes) == 1


@pytest.mark.parametrize("is_killed", [False, True], ids=["hangs", "is killed"])
@pytest.mark.parametrize(
    "method", [m for m in METHODS if m not in {*OF_NODE, "is_chip"}]
)
async def test_a_call_that_hangs_once_takes_no_chip_out_of_service(
    tmp_path: Path, method: str, *, is_killed: bool
) -> None:
    """Finding D25: its chip was out of service for 45 s."""
    async with hung_node(tmp_path, call_s=LONG_CALL_S) as node:
        await asyncio.sleep(2.0)
        node.library.outcomes[method, HERE] = Hangs()
        if method not in {"codes", "check_ready", "pids"}:  # the next one asks all
            node.workers.processes[-1].kill()
        await node.hang()
        if is_killed:
            node.workers.processes[-1].kill()
        node.library.outcomes.clear()
        await asyncio.sleep(60.0)
        scar = find_scar(node)

    assert (node.were_out, scar) == (set(), "")


async def test_a_worker_that_cannot_be_started_is_started_later(
    tmp_path: Path,
) -> None:
    """A machine without a free process id ended the agent."""
    async with hung_node(tmp_path) as node:
        await asyncio.sleep(2.0)
        node.workers.problem = OSError(EAGAIN, "Resource temporarily unavailable")
        node.workers.processes[-1].kill()
        await asyncio.sleep(CALL_S + 2.0)
        said = node.observation.problem
        node.workers.problem = None
        await asyncio.sleep(2.0)
        scar = find_scar(node)

    assert said == (
        "no driver worker can be started: "
        f"[Errno {EAGAIN}] Resource temporarily unavailable"
    )
    assert (node.were_out, scar) == (set(), "")


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_chip_that_hangs_in_the_kernel_costs_no_other_chip_a_look(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    """Two workers hung in two calls about it, and then no chip was read any more."""
    known = KNOWN if is_restarted else NOTHING
    async with hung_node(tmp_path, known=known) as node:
        node.workers.are_mortal_hung = False
        if not is_restarted:
            await asyncio.sleep(2.0)
        node.library.outcomes |= {
            (method, HERE): Hangs() for method in METHODS if method not in OF_NODE
        }
        await asyncio.sleep(SETTLED_S + HUNG_S)
        node.library.codes_of[5] = (0x80E18402,)
        await asyncio.sleep(QUIET_LOOK_EACH_S + 1.0)
        found, alive = node.conditions, len(node.workers.alive)
        node.library.codes_of[5] = ()
        node.library.outcomes.clear()
        node.workers.processes[0].is_mortal = True
        node.workers.processes[0].kill()
        await asyncio.sleep(HEALED_S)
        scar = find_scar(node)

    assert (found, alive) == (conditions({CHIP, 5}), 2)
    assert scar == ""


async def test_while_the_library_is_loaded_anew_what_was_read_grows_old(
    tmp_path: Path,
) -> None:
    """What was read before counted as new for as long as loading took."""
    async with hung_node(tmp_path) as node:
        await asyncio.sleep(2.0)
        node.library.outcomes["codes", HERE] = Fails(NOT_EXIST)
        node.workers.load_s = 40.0
        async with asyncio.timeout(2 * RELOAD_EACH_S):
            while len(node.workers.processes) < 2:
                await asyncio.sleep(0.1)
        await asyncio.sleep(10.0)
        is_stale = node.observation.is_stale
        await asyncio.sleep(40.0)
        said = node.observation.problem

    assert (is_stale, said) == (True, "")
