"""Which driver knows the chips of this node."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.devices.dcmi import find_library
from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.driver import Driver
from agent.devices.simulated.driver import SimulatedDriver

AUTO, DCMI, SIMULATED = "auto", "dcmi", "simulated"
KINDS = (AUTO, DCMI, SIMULATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What we were told about the driver."""

    #: One of KINDS.
    kind: str
    #: Of the simulated driver.
    file: Path
    #: How often that is looked at. Unit: seconds.
    poll_s: float
    #: The libdcmi.so; None to look for it.
    library: Path | None
    #: Key of the row of the table; "" to tell it from the chips.
    product: str
    #: How long one call of the library may take. Unit: seconds.
    call_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A driver, and in words which it is and why."""

    driver: Driver
    kind: str
    why: str


def choose(
    wish: Wish,
    *,
    wall_ms: Callable[[], int],
    environment: Mapping[str, str] = os.environ,
) -> Choice:
    """Take the driver that was asked for; of `auto`, libdcmi where there is one.

    Args:
        wish: What we were told.
        wall_ms: Unix milliseconds now.
        environment: Ours: where libraries are looked for, and what they find.
    """
    library = wish.library or find_library.found(environment)
    if wish.kind == SIMULATED or (wish.kind == AUTO and library is None):
        looked = ", ".join(map(str, find_library.folders(environment)))
        return Choice(
            driver=SimulatedDriver(wish.file, poll_s=wish.poll_s, wall_ms=wall_ms),
            kind=SIMULATED,
            why="as told"
            if wish.kind == SIMULATED
            else f"no {find_library.LIBRARY} in {looked}",
        )
    library = library or find_library.FOLDERS[0] / find_library.LIBRARY
    return Choice(
        driver=DcmiDriver(
            library,
            product=wish.product,
            call_s=wish.call_s,
            wall_ms=wall_ms,
            environment=find_library.with_libraries(environment),
        ),
        kind=DCMI,
        why=str(library),
    )
