"""The states of all chips, as the worker process sends them to the agent."""

from dataclasses import dataclass

#: Number that the library did not give in usable form.
UNKNOWN = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Fault code of a chip, with severity and time if a driver event reported it."""

    code: int
    #: 0 to 3, from its event; None when only polling showed the code
    severity: int | None = None
    #: time of its event; None when only polling showed it. Unit: Unix milliseconds
    at_ms: int | None = None
    #: events of its begin since the chip's codes were last read
    count: int = 0
    #: whether an event said, before the last of these, that the fault was over
    has_been_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Facts about one chip that hardly ever change, like ids, model and IP address."""

    card: int
    device: int
    #: number used by people, /dev/davinciN and annotations
    physical_id: int
    #: number in the driver's own order, used by fault events
    logic_id: int
    #: "910B3"; "" when unknown
    name: str = ""
    board_id: int = 0
    ai_core_count: int = 0
    #: "Atlas 300I Duo"; "" when unknown
    product_type: str = ""
    #: NUMA node; None when unknown
    numa: int | None = None
    #: address in the parameter plane; "" when there is none
    ip: str = ""
    #: size of the chip's own memory; 0 when unknown. Unit: MB
    memory_mb: int = 0
    super_device_id: int = UNKNOWN
    super_pod_id: int = UNKNOWN
    server_index: int = UNKNOWN
    #: (number, name of the template) of its parts; None when they could not be read
    virtual: tuple[tuple[int, str], ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipState:
    """Ids, fault codes, network state and processes of one chip at one time."""

    identity: Identity
    codes: tuple[Code, ...] = ()
    #: result of the driver's check of the network; None when it does not check
    network: int | None = None
    pids: tuple[int, ...] = ()
    #: why the codes are not from this survey; "" when they are
    unread: str = ""
    #: why the processes are not from this survey; "" when they are
    unread_pids: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """States of all chips of the node, as the worker process read them at one time."""

    chips: tuple[ChipState, ...]
    #: (card, device, reason) of places with a chip that could not be identified
    unidentified: tuple[tuple[int, int, str], ...] = ()
    driver_version: str = ""
