"""The interface of a driver, through which the agent reads the chips of the node.

    DriverError              the driver did not answer, or its answer made no sense
    └── DriverFileError      the file of a simulated driver is unusable

A driver that cannot read anything must raise `DriverError`. It must not return a
reading without chips, which would mean that all chips have vanished.
"""

from collections.abc import Mapping
from typing import Protocol

from agent.devices.reading import Reading


class Driver(Protocol):
    """Reader of the node's chips, through libdcmi or from a YAML file."""

    async def read(self) -> Reading:
        """Return the state of the node's chips, without blocking the event loop.

        Raises:
            DriverError: The chips, or the file that describes them, cannot be read now.
        """

    async def wait_for_news(self, within_s: float) -> bool:
        """Wait until the state of the chips may have changed, at most `within_s`.

        Args:
            within_s: Longest wait. Unit: seconds, above 0.

        Returns:
            Whether the chips may have changed since the latest `read`.
        """

    @property
    def known_s(self) -> float:
        """When the last reading was known to be the state of the chips.

        Unit: seconds of the event loop's clock.
        """

    def look_now(self) -> None:
        """Ask for a look at every chip; a reading with `looked_s` follows."""

    def change_rows(self) -> None:
        """Make the next readings of the rows that the chips have shown.

        Call it after a reading with `begins_anew`.
        """

    def expect(self, inventory: Mapping[str, int]) -> None:
        """Take the chips that the Node has had for those of this server.

        Call it before the first reading.

        Args:
            inventory: {product line, like "Ascend910": mask of its chips}; not empty.
        """

    async def close(self) -> None:
        """Release the driver's resources; the driver must not be used afterwards."""


class DriverError(Exception):
    """The driver did not answer, or the driver's answer made no sense."""


class DriverFileError(DriverError):
    """The YAML file of the simulated driver is unusable; has every problem."""

    def __init__(self, path: str, *problems: str) -> None:
        self.path = path
        self.problems = problems
        super().__init__(f"{path}: " + "; ".join(problems))
