"""A node that boots, in simulated time: driver, worker and agent in one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from agent.devices.board_size import UnknownMachineError
from agent.devices.dcmi.conversion import NOTHING, Conversion
from agent.devices.dcmi.library import CallError, Library
from agent.devices.dcmi.memory import Known
from agent.devices.dcmi.reader import ChipReader
from agent.devices.dcmi.rows import IncompleteError
from agent.devices.dcmi.values import Identity
from agent.devices.reading import Reading
from agent.health.conditions import Health, ReadingTaken, step
from tests.agent.devices.played_library import PlayedLibrary

WAIT_S = 600.0
STEP_S = 2.0


@dataclass(slots=True, kw_only=True)
class Seen:
    """What a node showed from one time on, until it showed something else."""

    at_s: float
    #: key of the row; "" while nothing is served
    row: str = ""
    served: tuple[int, ...] = ()
    unhealthy: tuple[int, ...] = ()
    #: why nothing is served, or why the agent begins anew
    text: str = ""


@dataclass(kw_only=True)
class Node:
    """A node whose cards come after its boot; each two seconds the driver is read."""

    chips: tuple[Identity, ...]
    #: {card: when it comes after the boot}; others are there. Unit: seconds.
    comes_s: Mapping[int, float] = field(default_factory=dict)
    #: whether cards that have not come yet are counted with negative ids
    counts_unnamed: bool = False
    #: whether /dev/davinci* shows all chips from the boot on
    shows_files: bool = False
    product: str = ""
    wait_s: float = WAIT_S
    known: Known = NOTHING
    #: {product line: mask of its chips} that the Node has had
    inventory: Mapping[str, int] = field(default_factory=dict)
    now_s: float = 1000.0
    library: PlayedLibrary = field(default_factory=PlayedLibrary)

    def __post_init__(self) -> None:
        self.booted_s = self.now_s
        self.course: list[Seen] = []
        self._come()
        self.start_agent()

    def _come(self) -> None:
        """Let the cards come whose time it is."""
        age_s = self.now_s - self.booted_s
        late = {card for card, at_s in self.comes_s.items() if at_s > age_s}
        come = (chip for chip in self.chips if chip.card not in late)
        new = [c for c in come if (c.card, c.device) not in self.library.chips]
        self.library.put(*new)
        self.library.unnamed = len(late) if self.counts_unnamed else 0

    def pull(self, card: int) -> None:
        """Take a card out, until it is plugged in."""
        self.comes_s = {**self.comes_s, card: float("inf")}
        chips = self.library.chips
        self.library.chips = {at: chips[at] for at in chips if at[0] != card}

    def plug(self, card: int) -> None:
        """Put a card in that was taken out."""
        self.comes_s = {**self.comes_s, card: 0.0}

    def start_agent(self) -> None:
        """Start an agent with what an earlier one was told, and its worker."""
        self.start_worker()
        self.conversion = Conversion(
            self.product,
            known=self.known,
            wait_s=self.wait_s,
            device_ids=self._device_ids,
        )
        self.conversion.expect(self.inventory)
        self.health = Health()

    def start_worker(self) -> None:
        """Start a worker, which knows nothing."""
        self.reader = ChipReader(
            cast("Library", self.library), now_s=lambda: self.now_s, nodes=Path("/none")
        )

    def _device_ids(self) -> Iterable[int]:
        chips = self.chips if self.shows_files else self.library.chips.values()
        return [chip.physical_id for chip in chips]

    def read(self) -> Reading | str:
        """Read the driver as worker and agent do; return why that failed."""
        try:
            survey = self.reader.read_chips()
            now_ms = round(self.now_s * 1000)
            reading = self.conversion.reading(survey, now_ms, self.now_s)
        except (CallError, IncompleteError, UnknownMachineError) as error:
            return str(error)
        self.known = self.conversion.known
        return reading

    def pass_step(self) -> Reading | str:
        """Let two seconds pass; an agent that has to begin anew does so."""
        self.now_s += STEP_S
        self._come()
        reading = self.read()
        if isinstance(reading, str):
            self._see(Seen(at_s=self.now_s, text=reading))
            return reading
        if not reading.is_old:  # else the poller marks it as stale
            taken = ReadingTaken(reading=reading, recover_s=1.0)
            self.health, _ = step(self.health, taken, self.now_s)
        self._see(
            Seen(
                at_s=self.now_s,
                row=reading.product.key,
                served=self.health.in_service,
                unhealthy=tuple(sorted({*self.health.chips} - {*self.served})),
                text=reading.changed_row,
            )
        )
        if reading.begins_anew:
            self.conversion.change_rows()
            self.health = Health()
        return reading

    @property
    def served(self) -> tuple[int, ...]:
        return self.health.in_service

    def _see(self, seen: Seen) -> None:
        last = self.course[-1] if self.course else Seen(at_s=-1.0)
        seen.at_s -= self.booted_s
        if (last.row, last.served, last.unhealthy, last.text) != (
            *(seen.row, seen.served, seen.unhealthy, seen.text),
        ):
            self.course.append(seen)

    def pass_s(self, duration_s: float) -> Reading | str:
        """Let seconds pass; return what is seen at their end."""
        until_s = self.now_s + duration_s
        seen = self.read()
        while self.now_s < until_s:
            seen = self.pass_step()
        return seen


def known_of(chips: tuple[Identity, ...]) -> Known:
    """What is known after a node has been served whole."""
    node = Node(chips=chips)
    node.pass_s(2.0)
    return node.known
