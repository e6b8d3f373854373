"""The contract between the agent and whatever knows the chips.

    DriverError              the driver could not be asked, or made no sense
    └── DriverFileError      the file of a simulated driver is not usable

A driver that cannot answer raises; it never answers with less than it knows.
"""

from dataclasses import dataclass
from typing import Protocol

from agent.devices.reading import Reading


class Driver(Protocol):
    """Whatever can say which chips there are and how they are."""

    async def read(self) -> Reading:
        """Look once, without blocking the event loop.

        Raises:
            DriverError: the hardware or its description cannot be read now.
        """
        ...  # the body of a protocol method

    async def news(self, within_s: float) -> bool:
        """Wait until there may be something new to read, but no longer than so.

        Args:
            within_s: Unit: seconds, above 0.

        Returns:
            Whether there may be; else all is as it was last read.
        """
        ...  # the body of a protocol method

    async def close(self) -> None:
        """Let go of what the driver has; it is not used any more."""
        ...  # the body of a protocol method


class DriverError(Exception):
    """The driver could not be asked, or its answer made no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One thing that is wrong in a document, and where."""

    #: Path inside the document ("faults[1].chip"); "" is the document itself.
    at: str
    expected: str
    found: str

    def __str__(self) -> str:
        """One line: where, what was expected, what was found."""
        where = f"{self.at}: " if self.at else ""
        return f"{where}expected {self.expected}, found {self.found}"


class DriverFileError(DriverError):
    """The file of a simulated driver cannot be used; every reason at once."""

    def __init__(self, path: str, flaws: tuple[Flaw, ...]) -> None:
        """Keep the facts; the text is made from them."""
        self.path = path
        self.flaws = flaws
        super().__init__(f"{path}: " + "; ".join(str(flaw) for flaw in flaws))
