"""A node of the Atlas A3, from the calls of libdcmi to the conditions of its chips."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agent.devices.board_size import UnknownMachineError
from agent.devices.dcmi.conversion import NOTHING, Conversion
from agent.devices.dcmi.library import CallError, Library
from agent.devices.dcmi.memory import Known
from agent.devices.dcmi.reader import ChipReader
from agent.devices.dcmi.rows import IncompleteError
from agent.devices.dcmi.values import Identity, SuperPodPlace
from agent.devices.reading import Reading
from agent.health.conditions import Condition, Health, ReadingTaken, step
from tests.agent.devices.scripted_library import ScriptedLibrary

CHIPS = 8
DIES = 2
#: What a chip of this node says.
FACTS: Mapping[str, Callable[[int], Any]] = {
    "version": lambda _chip: "24.1.rc2",
    "chip_info": lambda _chip: ("Ascend910", 24),
    "board_id": lambda _chip: 0xB0,
    "product_type": lambda _chip: "",
    "pids": lambda chip: (100 + chip,),
    "address": lambda chip: f"10.0.0.{chip + 1}",
    "memory_mb": lambda _chip: 65536,
    "super_pod": lambda chip: SuperPodPlace(
        super_device_id=4000 + chip, super_pod_id=4, server_index=2
    ),
    "virtual": lambda chip: ((100, "vir04"),) if chip == CHIPS - 1 else (),
}
#: The pause between two steps, longer than one look at a quiet chip without events.
STEP_S = 4.0
#: When the chips of a node that began at 0 are identified again.
IDENTIFIED_S = 60.0


@dataclass(frozen=True, slots=True)
class Published:
    """What the cluster is told of a node, apart from the health of its chips."""

    row: str
    chip_name: str
    ai_core_count: int
    super_pod: tuple[int, int]
    driver_version: str
    #: {chip: its address, memory and number in the SuperPoD}
    details: Mapping[int, tuple[str | None, int, int]]
    virtual: tuple[tuple[int, str], ...]


def published(reading: Reading) -> Published:
    return Published(
        row=reading.product.key,
        chip_name=reading.chip_name,
        ai_core_count=reading.ai_core_count,
        super_pod=(reading.super_pod_id, reading.server_index),
        driver_version=reading.driver_version,
        details={
            each.chip: (each.ip, each.memory_mb, each.super_device_id)
            for each in reading.details
        },
        virtual=tuple((part.chip, part.kind) for part in reading.virtual),
    )


@dataclass
class SimulatedNode:
    """Worker and agent in one, at times that the test gives."""

    known: Known = NOTHING
    wait_s: float = 600.0
    now: float = 0.0
    #: the last that was converted; None before the first
    reading: Reading | None = None
    #: why the last step has no reading
    problem: str = ""
    health: Health = field(default_factory=Health)

    def __post_init__(self) -> None:
        self.library = ScriptedLibrary(
            chips=CHIPS, dies=DIES, facts=FACTS, pass_s=self.pass_s
        )
        self.conversion = Conversion(known=self.known, wait_s=self.wait_s)
        self.start_worker()

    def start_worker(self) -> None:
        """Start a worker with what the agent knows."""
        self.chip_reader = ChipReader(
            cast("Library", self.library),
            now_s=lambda: self.now,
            nodes=Path("/none"),
            known=[
                Identity(
                    card=chip.card,
                    device=chip.device,
                    physical_id=chip.physical_id,
                    logic_id=chip.logic_id,
                )
                for chip in self.conversion.known.identities
            ],
        )

    def pass_s(self, seconds: float) -> None:
        self.now += seconds

    def look(self) -> None:
        """Read the chips and judge them."""
        try:
            survey = self.chip_reader.read_chips()
            reading = self.conversion.reading(survey, 0, self.now)
        except (CallError, UnknownMachineError, IncompleteError) as error:
            self.problem = str(error)
            return
        self.problem = ""
        if reading.unread and reading.is_old:
            self.problem = reading.unread[0].reason
            if self.reading is not None:
                return
        self.reading = reading
        self.health, _ = step(self.health, ReadingTaken(reading=reading), self.now)

    def run(self, until_s: float) -> None:
        """Look again and again until a time."""
        while self.now < until_s:
            self.look()
            self.now += STEP_S
        self.look()

    @property
    def conditions(self) -> dict[int, Condition]:
        return {chip: health.condition for chip, health in self.health.chips.items()}


def conditions(out: Iterable[int] = ()) -> dict[int, Condition]:
    """Return the conditions of all chips, if some are out of service."""
    out = set(out)
    return {
        chip: Condition.UNHEALTHY if chip in out else Condition.HEALTHY
        for chip in range(CHIPS)
    }


def well() -> tuple[Published, Known]:
    """Return what a node without faults tells, and what its agent remembers."""
    node = SimulatedNode()
    node.run(STEP_S)
    assert node.reading is not None
    return published(node.reading), node.conversion.known


WELL, KNOWN = well()
