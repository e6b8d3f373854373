"""The interface of a driver, through which the agent reads the chips of the node.

    DriverError              the driver did not answer, or its answer made no sense
    └── DriverFileError      the file of a simulated driver is unusable

A driver that cannot read anything must raise `DriverError`. It must not return a
reading without chips, which would mean that all chips have vanished.
"""

from dataclasses import dataclass
from typing import Protocol

from agent.devices.reading import Reading


class Driver(Protocol):
    """Reader of the node's chips, through libdcmi or from a YAML file."""

    async def read(self) -> Reading:
        """Return the state of the node's chips, without blocking the event loop.

        Raises:
            DriverError: The chips, or the file that describes them, cannot be read now.
        """
        ...  # the body of a protocol method

    async def wait_for_news(self, within_s: float) -> bool:
        """Wait until the state of the chips may have changed, at most `within_s`.

        Args:
            within_s: Longest wait. Unit: seconds, above 0.

        Returns:
            Whether the chips may have changed since the latest `read`.
        """
        ...  # the body of a protocol method

    async def close(self) -> None:
        """Release the driver's resources; the driver must not be used afterwards."""
        ...  # the body of a protocol method


class DriverError(Exception):
    """The driver did not answer, or the driver's answer made no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One error in the fault configuration or in a file of simulated chips."""

    #: Path inside the document ("faults[1].chip"); "" for the document itself.
    at: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Return one line, like "faults[1].chip: expected a chip number, found 'x'"."""
        where = f"{self.at}: " if self.at else ""
        return f"{where}expected {self.expected}, found {self.found}"


class DriverFileError(DriverError):
    """The YAML file of the simulated driver is unusable; `flaws` has every reason."""

    def __init__(self, path: str, flaws: tuple[Flaw, ...]) -> None:
        self.path = path
        self.flaws = flaws
        super().__init__(f"{path}: " + "; ".join(str(flaw) for flaw in flaws))
