"""Simulated chips: a machine that a YAML file describes, edited while it runs.

The file is read anew at each look and parsed only when its bytes have changed.
Comparing bytes instead of time stamps and inodes notices every edit, in place or
by rename, also two within one tick of the file system's clock; the file is small
and in the page cache, so a look costs less than a tenth of a millisecond.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.devices import driver_file
from agent.devices.driver import DriverFileError, Flaw
from agent.devices.reading import ChipFault, Reading
from service.worker import Worker

#: Far more than 64 chips with 128 faults each need. Unit: bytes.
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Look:
    """What the file said last: its bytes, and what came of them."""

    content: bytes
    outcome: Reading | DriverFileError


class SimulatedDriver:
    """A `Driver` whose hardware is a file. Protects the last look at it."""

    def __init__(self, path: Path, *, wall_ms: Callable[[], int]) -> None:
        """Remember where the file is; nothing is read yet.

        Args:
            path: The YAML file; see `agent.devices.driver_file`.
            wall_ms: Unix milliseconds now: faults are stamped with the moment in
                which they were first seen.
        """
        self._path = path
        self._worker = Worker("driver")  # a file can hang, and a large one takes time
        self._wall_ms = wall_ms
        self._last: _Look | None = None
        #: The latest usable reading: which faults are known, and since when.
        self._good: Reading | None = None

    async def read(self) -> Reading:
        """Look at the file once.

        Raises:
            DriverFileError: It is absent, empty or wrong; every flaw with its place.
        """
        return await self._worker.call(self._look)

    async def news(self, within_s: float) -> None:
        """Wait: nobody tells of an edit, but the next look sees it."""
        await asyncio.sleep(within_s)

    async def close(self) -> None:
        """Do nothing: the worker goes when nobody needs it."""

    def _look(self) -> Reading:
        content = self._content()
        if self._last is None or self._last.content != content:
            self._last = _Look(content, self._outcome(content))
        if isinstance(self._last.outcome, DriverFileError):
            # A fresh one: raising the same object again would grow its traceback.
            raise DriverFileError(str(self._path), self._last.outcome.flaws)
        return self._last.outcome

    def _content(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except OSError as error:
            flaw = Flaw(at="", expected="a readable file", found=str(error.strerror))
            raise DriverFileError(str(self._path), (flaw,)) from error
        if len(content) > _MAX_BYTES:
            flaw = Flaw(at="", expected=f"at most {_MAX_BYTES} bytes", found="more")
            raise DriverFileError(str(self._path), (flaw,))
        return content

    def _outcome(self, content: bytes) -> Reading | DriverFileError:
        try:
            parsed = driver_file.parse(content.decode())
        except UnicodeDecodeError as error:
            flaw = Flaw(at=f"byte {error.start}", expected="UTF-8", found=error.reason)
            return DriverFileError(str(self._path), (flaw,))
        except driver_file.FlawsError as error:
            return DriverFileError(str(self._path), error.flaws)
        if self._good is not None and parsed.product != self._good.product:
            return DriverFileError(
                str(self._path),
                (_other_product(self._good.product.key, parsed.product.key),),
            )
        self._good = _stamped(parsed, self._good, self._wall_ms())
        return self._good


def _other_product(known: str, found: str) -> Flaw:
    return Flaw(
        at="product",
        expected=f"{known!r}, as when the agent started",
        found=repr(found),
    )


def _stamped(reading: Reading, before: Reading | None, now_ms: int) -> Reading:
    """Date each fault: as before when it is known already, else now."""
    known = {_key(fault): fault.since_ms for fault in before.faults} if before else {}
    faults = tuple(
        replace(fault, since_ms=known.get(_key(fault), now_ms))
        for fault in reading.faults
    )
    return replace(reading, faults=faults)


def _key(fault: ChipFault) -> tuple[int, str]:
    return (fault.chip, fault.code)
