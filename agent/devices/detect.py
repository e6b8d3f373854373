"""Choose how the agent reads this node's chips, through libdcmi or from a YAML file."""

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
class DriverSettings:
    """Command-line settings that say how the agent reads the node's chips."""

    #: One of KINDS.
    kind: str
    #: File of the simulated driver.
    file: Path
    #: Longest time between two checks of that file. Unit: seconds.
    poll_s: float
    #: Path of libdcmi.so; None to search for it.
    library: Path | None
    #: Key of the row of the product table; "" to detect it from the chips.
    product: str
    #: Longest time of one call of the library. Unit: seconds.
    call_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The driver chosen to read the node's chips, its kind, and why it was chosen."""

    driver: Driver
    kind: str
    reason: str


def choose_driver(
    settings: DriverSettings,
    *,
    wall_ms: Callable[[], int],
    environment: Mapping[str, str] = os.environ,
) -> Choice:
    """Create the driver of the kind `settings.kind`, which reads the node's chips.

    The kind `auto` means libdcmi if `settings.library` is set or libdcmi is found.
    Otherwise `auto` means the simulated driver, which reads a YAML file.

    Args:
        wall_ms: Returns Unix milliseconds now.
        environment: Environment variables of the agent. LD_LIBRARY_PATH names folders
            where libdcmi is searched.
    """
    library = settings.library or find_library.locate(environment)
    if settings.kind == SIMULATED or (settings.kind == AUTO and library is None):
        searched = ", ".join(map(str, find_library.search_folders(environment)))
        return Choice(
            driver=SimulatedDriver(
                settings.file, poll_s=settings.poll_s, wall_ms=wall_ms
            ),
            kind=SIMULATED,
            reason="as told"
            if settings.kind == SIMULATED
            else f"no {find_library.LIBRARY} in {searched}",
        )
    library = library or find_library.FOLDERS[0] / find_library.LIBRARY
    return Choice(
        driver=DcmiDriver(
            library,
            product=settings.product,
            call_s=settings.call_s,
            wall_ms=wall_ms,
            environment=find_library.make_environment(environment),
        ),
        kind=DCMI,
        reason=str(library),
    )
