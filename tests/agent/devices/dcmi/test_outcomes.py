"""Each call of libdcmi, with each outcome, at each moment: what the cluster is told.

The law: a chip whose fault codes cannot be read is not healthy 15 s later, if others
can be read. A node whose row is known is served as long as codes can be read. A fact
that was told once stays while its call fails. All is well once the calls are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from agent.devices.dcmi.conversion import NOTHING
from agent.devices.dcmi.library import (
    ABSENT,
    LEFT_OUT,
    MEANINGS,
    NOT_EXIST,
    NOT_READY,
)
from agent.devices.reading import Reading
from agent.health.conditions import UNREAD_S
from tests.agent.devices.dcmi.outcomes import CHIP, HERE, METHODS, OF_NODE, Moment
from tests.agent.devices.dcmi.simulated_node import (
    CHIPS,
    IDENTIFIED_S,
    KNOWN,
    STEP_S,
    WELL,
    Published,
    SimulatedNode,
    conditions,
    published,
)
from tests.agent.devices.scripted_library import (
    Answers,
    Fails,
    IsLate,
    Outcome,
    Place,
)

pytestmark = pytest.mark.long

EVERY_CHIP = tuple(range(CHIPS))
#: Answers that are no errors, and cannot be.
WRONG: Mapping[str, tuple[object, ...]] = {
    "logic_id": (5,),
    "physical_id": (5,),
    "near_cpus": ("x" * 1023, "0-4294967295"),
    "pids": ((2**31 - 1,),),
}
#: Calls about the ids of a chip.
IDS = ("logic_id", "physical_id")
#: Calls about a fact of a chip that agents remember, as the driver tells it.
FACTS = frozenset({"chip_info", "address", "memory_mb", "super_pod", "virtual"})


@dataclass(frozen=True, slots=True)
class Cell:
    """One outcome of one call, for one chip or for all, from one moment on."""

    method: str
    outcome: Outcome
    place: Place
    moment: Moment

    @property
    def code(self) -> int:
        """The error code; 0 for an answer."""
        return self.outcome.code if isinstance(self.outcome, Fails) else 0

    @property
    def is_at_start(self) -> bool:
        return self.moment in {Moment.FIRST, Moment.START}

    @property
    def unread(self) -> tuple[int, ...]:
        """Chips of which it is not known whether they have faults."""
        chips = EVERY_CHIP if self.place is None else (CHIP,)
        is_silent = self.code == LEFT_OUT and self.place is not None
        if self.method == "check_ready":
            return chips if is_silent else ()
        is_unread = self.method == "codes" and self.code not in {0, NOT_EXIST}
        return chips if is_unread else ()

    @property
    def lost(self) -> tuple[int, ...]:
        """Chips of which the driver says that they are not there, or not ready."""
        cases = {("check_ready", NOT_READY), ("codes", NOT_EXIST)}
        if self.moment is Moment.FIRST:
            cases |= {(method, NOT_EXIST) for method in ("is_chip", *IDS)}
        if (self.method, self.code) not in cases:
            return ()
        return EVERY_CHIP if self.place is None else (CHIP,)

    @property
    def published(self) -> Published:
        """What the cluster is told of the node after all."""
        absent = set(self.lost if self.method == "codes" else ())
        if self.moment is Moment.START:
            absent |= set(self.unread)
        # what a chip has told holds while it is away: pods that have it need it
        virtual = tuple(part for part in WELL.virtual if part[0] not in absent)
        # the agent does not remember the version, and cannot ask without cards
        is_unknown = self.moment is Moment.START and self.method in OF_NODE
        version = "" if is_unknown and self.code else WELL.driver_version
        return replace(WELL, virtual=virtual, driver_version=version)


def outcomes_of(method: str) -> Iterator[Outcome]:
    """Yield all that can come of a call but its own answer, and that it hangs."""
    yield from map(Fails, (*MEANINGS, 7))
    yield IsLate(4.0)
    yield from map(Answers, WRONG.get(method, ()))


def find_breach(node: SimulatedNode, cell: Cell) -> str:
    """Return what is not as it should be after an outcome that has lasted; or ""."""
    is_blind = cell.unread == EVERY_CHIP
    if node.reading is None:
        is_lawful = is_blind or cell.lost == EVERY_CHIP or cell.moment is Moment.FIRST
        return "" if is_lawful else f"not served: {node.problem}"
    if bool(node.problem) != is_blind:
        return f"stale: {node.problem!r}"
    # while nothing can be read, conditions stay
    out = () if is_blind else (*cell.unread, *cell.lost)
    if node.conditions != conditions(out):
        return f"conditions: {node.conditions}"
    return find_change(node.reading, cell)


def find_change(reading: Reading, cell: Cell) -> str:
    """Return which fact has changed that was told before; or ""."""
    if reading.changed_row:
        return f"changed row: {reading.changed_row}"
    # "not supported" is an answer of a chip that has not told otherwise
    is_answer = cell.code in ABSENT and cell.method in FACTS
    if cell.moment is Moment.FIRST or (is_answer and cell.moment is Moment.START):
        return ""
    found = published(reading)
    return "" if found == cell.published else f"published: {found}"


def find_scar(node: SimulatedNode) -> str:
    """Return what is not as before when all calls have succeeded for a minute."""
    node.library.outcomes.clear()
    node.run(node.now + STEP_S)
    node.now += 60.0
    node.run(node.now + 2 * STEP_S)
    if node.reading is not None and node.reading.changed_row:
        node = SimulatedNode(known=node.conversion.known)
        node.run(STEP_S)
    if node.problem or node.reading is None:
        return f"not healed: {node.problem}"
    if node.conditions != conditions():
        return f"not healed: {node.conditions}"
    found = published(node.reading)
    return "" if found == WELL else f"not healed: {found}"


def play(cell: Cell) -> str:
    """Return what breaks the law in a cell; "" if nothing does."""
    is_start = cell.moment is Moment.START
    node = SimulatedNode(known=KNOWN if is_start else NOTHING)
    if not cell.is_at_start:
        node.run(STEP_S)
    if cell.moment is Moment.IDENTIFYING:
        node.now = IDENTIFIED_S
    node.library.outcomes[cell.method, cell.place] = cell.outcome
    node.run(node.now + UNREAD_S + STEP_S)
    return find_breach(node, cell) or find_scar(node)


@pytest.mark.parametrize("moment", Moment, ids=lambda moment: moment.value)
@pytest.mark.parametrize(
    ("method", "place"),
    [
        *((method, None) for method in METHODS),
        *((method, HERE) for method in METHODS if method not in OF_NODE),
    ],
)
def test_no_outcome_of_a_call_breaks_the_law(
    method: str, place: Place, moment: Moment
) -> None:
    """Findings F5, F6 and F7 are rows of this table."""
    cells = [Cell(method, each, place, moment) for each in outcomes_of(method)]

    assert {cell: breach for cell in cells if (breach := play(cell))} == {}
