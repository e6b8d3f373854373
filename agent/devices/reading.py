"""Fields of a reading, which is the state of the node's chips at one time.

A `Reading` has the chips that answered, their faults, and their processes. It does not
say whether a chip is healthy: `agent.health.conditions` does. Two readings are equal if
nothing about the chips has changed between them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf

from scheduler_core.products.table import Product


class Level(Enum):
    """Level of a fault, from `NORMAL` (no fault) up to the worst level.

    The values are the names of the levels in MindCluster's fault configuration.
    """

    NORMAL = "NormalNPU"
    NOT_HANDLED = "NotHandleFault"
    SUB_HEALTH = "SubHealthFault"
    RESTART_REQUEST = "RestartRequest"
    RESTART_BUSINESS = "RestartBusiness"
    FREE_RESTART = "FreeRestartNPU"
    RESTART = "RestartNPU"
    PRE_SEPARATE = "PreSeparateNPU"
    SEPARATE = "SeparateNPU"
    MANUALLY_SEPARATE = "ManuallySeparateNPU"


#: Level of a fault without one: a chip that may be broken is not given out.
UNKNOWN_LEVEL = Level.SEPARATE

_RANK = {level: rank for rank, level in enumerate(Level)}


def worst(levels: Iterable[Level]) -> Level:
    """Return the worst of these levels; `Level.NORMAL` if there are none."""
    return max(levels, key=_RANK.__getitem__, default=Level.NORMAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipFault:
    """One fault that one chip reports."""

    chip: int
    #: Upper-case hexadecimal, as the fault configuration writes it.
    code: str
    #: None: the driver gave no level, and the fault configuration decides.
    level: Level | None = None
    #: The driver's own: 0 warning, 1 minor, 2 major, 3 critical; None when not given.
    #: Decides for codes that no configuration names.
    severity: int | None = None
    #: True for a fault of the parameter-plane network, False for one of the chip, or
    #: where the code decides that.
    network: bool = False
    #: When it was first seen, or when it began again. Unit: Unix milliseconds.
    since_ms: int = 0
    #: Events of its begin since it was last absent; 0 when the driver sent none.
    count: int = 0

    @property
    def seriousness(self) -> Level:
        """Level of this fault; `UNKNOWN_LEVEL` if `level` is None."""
        return UNKNOWN_LEVEL if self.level is None else self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process that uses one chip."""

    chip: int
    pid: int


#: Number that the driver does not have or give; also used on the wire.
UNKNOWN = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipDetails:
    """Ids, network address and memory size of one chip."""

    chip: int
    #: The driver's own order; `UNKNOWN` of a chip that was never seen.
    logic_id: int
    #: Address in the parameter plane; "" when it has none, None while it is not known.
    ip: str | None = ""
    #: Size of the chip's own memory; 0 when unknown. Unit: MB.
    memory_mb: int = 0
    #: Its number within the SuperPoD.
    super_device_id: int = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualDevice:
    """A part of a chip that the agent can offer to the kubelet as a device of its own.

    The agent never creates virtual devices. It offers only kinds that existed when the
    agent started.
    """

    #: Physical id of its chip.
    chip: int
    #: The driver's number for it, unique on the node.
    number: int
    #: Its share of a chip, as in names of resources ("4c.3cpu"); "" for a template that
    #: is not known: it has no resource, but its chip is not given out whole.
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A chip that the driver could not read completely, with the reason.

    In place of the missing values, the reading has the chip's earlier values. A chip
    that was never read is absent from `Reading.chips`. A chip of a product line that
    the agent does not serve also has an `Unread`, and is absent too.
    """

    chip: int
    #: The failed call and its error, for people.
    reason: str
    #: Whether only its processes could not be read.
    is_partial: bool = False
    #: Whether nothing has failed: its calls take long, and it was not read again yet.
    is_slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """State of the chips of one product line (like "Ascend910") at one time.

    If the node has further product lines, `other_lines` has their readings.
    """

    product: Product
    #: Model of the chips as the driver names it ("910A"); "" when unknown.
    chip_name: str = ""
    #: AI cores per chip; 0 when unknown.
    ai_core_count: int = 0
    #: Physical ids that answered, ascending. A chip that is missing has vanished.
    chips: tuple[int, ...]
    #: NUMA node of each chip by physical id, vanished ones too; () when unknown.
    numa: tuple[int, ...] = ()
    #: Name under which the cards are sold ("Atlas 300I Duo"); "" when unknown.
    product_type: str = ""
    #: Ordered by chip, also of vanished chips that told some; () when there are none.
    details: tuple[ChipDetails, ...] = ()
    #: Id of the server's SuperPoD; -1 when it belongs to none.
    super_pod_id: int = UNKNOWN
    #: Index of the server in its SuperPoD.
    server_index: int = UNKNOWN
    #: Version of the driver; "" when unknown.
    driver_version: str = ""
    #: Ordered by chip. Faults and processes of these chips are from an earlier reading.
    unread: tuple[Unread, ...] = ()
    #: Ordered by chip, then as reported.
    faults: tuple[ChipFault, ...] = ()
    #: Ordered by chip, then pid.
    processes: tuple[Process, ...] = ()
    #: Ordered by number. A chip with any of them is not given out whole.
    virtual: tuple[VirtualDevice, ...] = ()
    #: Readings of the node's other product lines, each with its own chips; their
    #: `other_lines` are empty.
    other_lines: tuple["Reading", ...] = ()
    #: What shows that the node has to be served by other rows of the product table; ""
    #: when nothing does.
    changed_row: str = ""
    #: Whether all is read on which those rows depend, so that the agent begins anew.
    begins_anew: bool = False
    #: What was still missing when the wait for all chips was over, and is missing now;
    #: "" if nothing is. The rows may be too small then.
    missing: str = field(default="", compare=False)
    #: When the oldest look began that this is from, but for chips that are unread;
    #: -inf: that is not known. Unit: seconds of the event loop's clock.
    looked_s: float = field(default=-inf, compare=False)
    #: When this was last known to be the state of the chips. Units: seconds of the
    #: event loop's clock, Unix milliseconds.
    read_s: float = field(default=-inf, compare=False)
    read_ms: int = field(default=0, compare=False)
    #: Host device that containers get instead of each chip's own; "" where the
    #: container runtime mounts the chips.
    stand_in: str = ""

    @property
    def lines(self) -> tuple["Reading", ...]:
        """Readings of all product lines of the node, with this reading first.

        All have the dates of this reading.
        """
        looked_s, read_s, read_ms = self.looked_s, self.read_s, self.read_ms
        others = (
            replace(line, looked_s=looked_s, read_s=read_s, read_ms=read_ms)
            for line in self.other_lines
        )
        return (replace(self, other_lines=()), *others)

    def line_of(self, resource: str) -> "Reading | None":
        """Return the reading of one product line; None if the line has vanished."""
        lines = (line for line in self.lines if line.product.resource == resource)
        return next(lines, None)

    @property
    def is_old(self) -> bool:
        """Whether the faults of every chip of the node are from an earlier reading."""
        reasons = [line.why_unread(chip) for line in self.lines for chip in line.chips]
        return bool(reasons) and all(reasons)

    @property
    def chips_read(self) -> frozenset[int]:
        """Chips of this product line whose faults are not from an earlier reading."""
        return frozenset(self.chips) - {u.chip for u in self.unread if not u.is_partial}

    def why_unread(self, chip: int) -> str:
        """Return why the faults of one chip cannot be read; "" if they can."""
        reasons = (
            f"cannot be read: {unread.reason}"
            for unread in self.unread
            if unread.chip == chip and not (unread.is_partial or unread.is_slow)
        )
        return next(reasons, "")

    def faults_of(self, chip: int) -> tuple[ChipFault, ...]:
        """Return the faults of one chip, in the order in which the driver gave them."""
        return tuple(fault for fault in self.faults if fault.chip == chip)

    def pids_of(self, chip: int) -> tuple[int, ...]:
        """Return the pids of the processes on one chip, ascending."""
        return tuple(process.pid for process in self.processes if process.chip == chip)
