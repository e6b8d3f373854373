"""What one look at the hardware of a node shows.

A `Reading` is a fact without a verdict: which chips answered, which faults they
report, which processes use them. `agent.health.conditions` turns faults into
conditions. Two readings of an unchanged machine are equal, so that a change is a
comparison.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from scheduler_core.products.table import Product


class Level(Enum):
    """How serious a fault is, from none to worst: the order of the members.

    The values are the wire names of MindCluster's fault configuration.
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


#: Of a fault that nobody has given one: a chip that may be broken is not given out.
UNSAID = Level.SEPARATE

_RANK = {level: rank for rank, level in enumerate(Level)}


def worst(levels: Iterable[Level]) -> Level:
    """The most serious of some levels; none at all is `Level.NORMAL`."""
    return max(levels, key=_RANK.__getitem__, default=Level.NORMAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipFault:
    """One fault that one chip reports."""

    chip: int
    #: Upper-case hexadecimal, as the fault configuration writes it.
    code: str
    #: None: whoever reported it did not say, and the fault configuration does.
    level: Level | None = None
    #: What the driver makes of it: 0 a warning, 1 minor, 2 major, 3 critical; None
    #: when it did not say. Decides for codes that no configuration names.
    severity: int | None = None
    #: A fault of the parameter-plane network, not of the chip itself.
    network: bool = False
    #: When it was first seen. Unit: Unix milliseconds.
    since_ms: int = 0

    @property
    def seriousness(self) -> Level:
        """Its level, or `UNSAID`."""
        return UNSAID if self.level is None else self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchFault:
    """One fault of a switch of a SuperPoD node, as the reference describes it."""

    #: As the fault configuration writes it: `[0x08520003,na,L2,na]`.
    code: str
    event_type: int = 0
    #: What the port leads to: 0 a CPU, 1 an NPU, 2 another switch, 65535 nothing.
    peer: int = 65535
    peer_port: int = 0
    #: The switch chip, and its port.
    chip: int = 0
    port: int = 0
    #: 0 a warning, 1 minor, 2 major, 3 critical.
    severity: int = 0
    #: When it was first seen. Unit: Unix milliseconds.
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process that uses a chip, whoever started it."""

    chip: int
    pid: int


#: The driver has no such number, or does not say it. Also the wire's.
UNKNOWN = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipDetails:
    """What a chip has besides its number."""

    chip: int
    #: The driver's own order.
    logic_id: int
    #: In the parameter plane; "" when it has none.
    ip: str = ""
    #: Of its own; 0 when unknown. Unit: MB.
    memory_mb: int = 0
    #: Its number within the SuperPoD.
    super_device_id: int = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualDevice:
    """A part of a chip, cut before we came: a device of its own to the kubelet."""

    #: The chip that it is a part of: its parent.
    chip: int
    #: The driver's number for it, which no other on the node has.
    number: int
    #: How much of a chip it is, as resources and names have it ("4c.3cpu").
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A chip of which this look could not tell everything: the rest is older."""

    chip: int
    #: For a person: which call, and what came of it.
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything that one look at the hardware shows."""

    product: Product
    #: Model of the chips as the driver names it ("910A"); "" when unknown.
    chip_name: str = ""
    #: AI cores per chip; 0 when unknown.
    ai_core_count: int = 0
    #: Physical ids that answered, ascending. A chip that is missing has vanished.
    chips: tuple[int, ...]
    #: NUMA node of each chip by physical id, vanished ones too; () when unknown.
    numa: tuple[int, ...] = ()
    #: Under what name the cards are sold ("Atlas 300I Duo"); "" when unknown.
    product_type: str = ""
    #: Ordered by chip; () when there are none.
    details: tuple[ChipDetails, ...] = ()
    #: Which SuperPoD the server belongs to; -1 when it could and does not.
    super_pod_id: int = UNKNOWN
    #: Which server of it.
    server_index: int = UNKNOWN
    #: "" when unknown.
    driver_version: str = ""
    #: Ordered by chip. Faults and processes of these are from an earlier look.
    unread: tuple[Unread, ...] = ()
    #: Ordered by chip, then as reported.
    faults: tuple[ChipFault, ...] = ()
    #: Chips whose parameter-plane network the driver's own check finds broken, with or
    #: without a fault code, ascending.
    unreachable: tuple[int, ...] = ()
    #: Of the node's own switches, which A3 servers have.
    switch_faults: tuple[SwitchFault, ...] = ()
    #: Ordered by chip, then pid.
    processes: tuple[Process, ...] = ()
    #: Ordered by number. A chip with any of them is not given out whole.
    virtual: tuple[VirtualDevice, ...] = ()
    #: What the same look shows of the node's other product lines, each its own chips
    #: and what is said of them; of no further ones in turn.
    beside: tuple["Reading", ...] = ()
    #: Device of the host that containers get in the place of each chip's own; "" where
    #: the container runtime mounts the chips.
    stand_in: str = ""

    @property
    def lines(self) -> tuple["Reading", ...]:
        """What it shows of each product line: the first, and those beside it."""
        return (replace(self, beside=()) if self.beside else self, *self.beside)

    def faults_of(self, chip: int) -> tuple[ChipFault, ...]:
        """The faults of one chip, in the order in which they were reported."""
        return tuple(fault for fault in self.faults if fault.chip == chip)

    def pids_of(self, chip: int) -> tuple[int, ...]:
        """The processes on one chip, ascending."""
        return tuple(use.pid for use in self.processes if use.chip == chip)
