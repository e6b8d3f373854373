"""The states of all chips, as the worker process sends them to the agent.

A value is None while libdcmi has not told it: that is no news, and the value that is
known stays.
"""

from dataclasses import dataclass, field, fields, replace
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Fault code of a chip, with severity and time if a driver event reported it."""

    code: int
    #: 0 to 3, from its event; None when only polling showed the code
    severity: int | None = None
    #: time of its event; None when only polling showed it. In the agent, when its fault
    #: began. Unit: Unix milliseconds
    at_ms: int | None = None
    #: events of its begin since the chip's codes were last read; in the agent, since
    #: the code was last absent
    count: int = 0
    #: whether an event said, before the last of these, that the fault was over
    has_been_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperPodPlace:
    """Where in a SuperPoD a chip is, as libdcmi numbers it."""

    super_device_id: int
    super_pod_id: int
    server_index: int


#: Number that the driver does not have. Source: MindCluster, `IsValidBoardInfo`.
NO_NUMBER = 0xFFFFFFFF
#: `ChipState.unread` of a chip without a look since the last survey.
SLOW = "its calls take long"
#: The answer of a chip that knows of no SuperPoD.
NO_SUPERPOD = SuperPodPlace(super_device_id=-2, super_pod_id=-2, server_index=-2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Facts about one chip that hardly ever change, like ids, model and IP address."""

    card: int
    device: int
    #: number used by people, /dev/davinciN and annotations
    physical_id: int
    #: number in the driver's own order, used by fault events
    logic_id: int
    #: "910B3"
    name: str | None = None
    board_id: int | None = None
    ai_core_count: int | None = None
    #: "Atlas 300I Duo"; "" for chips without one
    product_type: str | None = None
    #: NUMA node; -1 for a chip of no single node
    numa: int | None = None
    #: address in the parameter plane; "" when there is none
    ip: str | None = None
    #: size of the chip's own memory. Unit: MB
    memory_mb: int | None = None
    superpod: SuperPodPlace | None = None
    #: (number, name of the template) of its parts
    virtual: tuple[tuple[int, str], ...] | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Card, and device on that card."""
        return self.card, self.device

    def or_known(self, known: "Identity") -> "Identity":
        """Return these facts; those that were not told are the ones in `known`."""
        missing = {
            field.name: getattr(known, field.name)
            for field in fields(self)
            if getattr(self, field.name) is None
        }
        return replace(self, **missing) if missing else self


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipState:
    """Ids, fault codes and processes of one chip at one time."""

    identity: Identity
    codes: tuple[Code, ...] = ()
    pids: tuple[int, ...] = ()
    #: why the codes were not read in this survey: then `codes` are those of events; ""
    #: when they were read
    unread: str = ""
    #: why the processes are not from this survey; "" when they are
    unread_pids: str = ""
    #: whether the codes are from this survey or an earlier one; set by the agent
    was_read: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """States of all chips of the node, as the worker process read them at one time."""

    chips: tuple[ChipState, ...]
    #: when the oldest look began that `chips` are from, but for unread ones. Unit:
    #: seconds of the monotonic clock
    looked_s: float = field(default=-inf, compare=False)
    #: (card, device, reason) of places with a chip that could not be identified; the
    #: device is -1 for a whole card, and the card as well for cards without a number
    unidentified: tuple[tuple[int, int, str], ...] = ()
    driver_version: str = ""
