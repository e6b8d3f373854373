"""What the worker tells the agent: one look at every chip, as the library said it."""

from dataclasses import dataclass
from typing import Any

#: The library said nothing usable where it was asked for a number.
UNKNOWN = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A fault code that a chip reports."""

    code: int
    #: 0 to 3, from the event that brought it; None when only polling has
    severity: int | None = None
    #: when the event came; None when only polling has. Unit: Unix milliseconds
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Where a chip sits and what it is. Hardly ever changes."""

    card: int
    device: int
    #: what users, /dev/davinciN and annotations count by
    physical_id: int
    #: the driver's own order; fault events count by it
    logic_id: int
    #: "910B3"; "" when unknown
    name: str = ""
    board_id: int = 0
    ai_core_count: int = 0
    #: "Atlas 300I Duo"; "" when unknown
    product_type: str = ""
    #: NUMA node; None when unknown
    numa: int | None = None
    #: of the parameter plane; "" when there is none
    ip: str = ""
    #: of the chip's own memory; 0 when unknown
    memory_mb: int = 0
    super_device_id: int = UNKNOWN
    super_pod_id: int = UNKNOWN
    server_index: int = UNKNOWN
    #: parts of it: (number, name of the template); None when that could not be read
    virtual: tuple[tuple[int, str], ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipLook:
    """One look at one chip."""

    identity: Identity
    codes: tuple[Code, ...] = ()
    #: what the driver's check of the network says; None when it does not check
    network: int | None = None
    pids: tuple[int, ...] = ()
    #: why the codes are not from this look; "" when they are
    unread: str = ""
    #: why the processes are not; "" when they are
    unread_pids: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """One look at the machine."""

    chips: tuple[ChipLook, ...]
    #: (card, device, why): places where a chip is, but not which
    unidentified: tuple[tuple[int, int, str], ...] = ()
    driver_version: str = ""


def of_message(message: dict[str, Any]) -> Survey:
    """Read what `dataclasses.asdict` and JSON have made of one.

    Raises:
        KeyError, TypeError, ValueError: It is no survey.
    """
    return Survey(
        chips=tuple(_chip(chip) for chip in message["chips"]),
        unidentified=tuple(
            (int(card), int(device), str(why))
            for card, device, why in message["unidentified"]
        ),
        driver_version=message["driver_version"],
    )


def _chip(chip: dict[str, Any]) -> ChipLook:
    return ChipLook(
        identity=_identity(chip["identity"]),
        codes=tuple(Code(**code) for code in chip["codes"]),
        network=chip["network"],
        pids=tuple(chip["pids"]),
        unread=chip["unread"],
        unread_pids=chip["unread_pids"],
    )


def _identity(found: dict[str, Any]) -> Identity:
    said = found["virtual"]
    parts = None
    if said is not None:
        parts = tuple((int(number), str(name)) for number, name in said)
    return Identity(**{**found, "virtual": parts})
