"""The contract between the agent and a driver, which reads the chips of the node.

    DriverError              the driver did not answer, or its answer made no sense
    └── DriverFileError      the file of a simulated driver is unusable

A driver without an answer raises; it never leaves out what it knows.
"""

from dataclasses import dataclass
from typing import Protocol

from agent.devices.reading import Reading


class Driver(Protocol):
    """A source of readings of the node's chips."""

    async def read(self) -> Reading:
        """Return a reading of the chips, without blocking the event loop.

        Raises:
            DriverError: The hardware or its description cannot be read now.
        """
        ...  # the body of a protocol method

    async def wait_for_news(self, within_s: float) -> bool:
        """Wait until there may be a new reading, at most `within_s`.

        Args:
            within_s: Longest wait. Unit: seconds, above 0.

        Returns:
            Whether there may be a new reading; else nothing has changed since the last.
        """
        ...  # the body of a protocol method

    async def close(self) -> None:
        """Release the resources of the driver; it must not be used afterwards."""
        ...  # the body of a protocol method


class DriverError(Exception):
    """The driver did not answer, or its answer made no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One error in a document, with its place."""

    #: Path inside the document ("faults[1].chip"); "" for the document itself.
    at: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Return one line: place, expected and found content."""
        where = f"{self.at}: " if self.at else ""
        return f"{where}expected {self.expected}, found {self.found}"


class DriverFileError(DriverError):
    """The file of a simulated driver cannot be used; every reason at once."""

    def __init__(self, path: str, flaws: tuple[Flaw, ...]) -> None:
        """Keep the facts; the text is made from them."""
        self.path = path
        self.flaws = flaws
        super().__init__(f"{path}: " + "; ".join(str(flaw) for flaw in flaws))
