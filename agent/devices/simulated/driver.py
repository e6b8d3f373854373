"""Simulated chips: a machine that a YAML file describes, edited while it runs.

A look asks the file system for the file's stamp, and reads the file only if that has
changed or is young: of two edits within one tick of the file system's clock the second
changes nothing but bytes. It is parsed only when its bytes have changed. So every edit
is noticed, in place or by rename, and a file that nobody edits costs one call.
Where the kernel tells of edits that is one call each second, else one each period.
"""

import asyncio
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.devices.driver import DriverFileError, Flaw
from agent.devices.file_changes import Edits
from agent.devices.reading import ChipFault, Reading
from agent.devices.simulated import file as driver_file
from scheduler_core.node import chips as chip_sets
from service.worker import Worker

#: Far more than 64 chips with 128 faults each need. Unit: bytes.
_MAX_BYTES = 1 << 20
#: The coarsest clock of a file system that is in use counts two seconds.
_YOUNG_NS = 3_000_000_000

#: How much longer than asked its thread may take before the file is said to hang.
_LATE_S = 0.5

#: What every edit changes, if it is not within a tick of the one before: device, inode,
#: bytes, and two times in nanoseconds, of which nobody can set the second.
_Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Look:
    """What the file said last: its bytes, and what came of them."""

    content: bytes
    outcome: Reading | DriverFileError
    #: The file's when it was read; None when it was young.
    stamp: _Stamp | None


class SimulatedDriver:
    """A `Driver` whose hardware is a file. Protects the last look at it."""

    def __init__(
        self,
        path: Path,
        *,
        poll_s: float,
        wall_ms: Callable[[], int],
        edits: Edits | None = None,
    ) -> None:
        """Remember where the file is; nothing is read yet.

        Args:
            path: The YAML file; see `agent.devices.simulated.file`.
            poll_s: How often the file's stamp is looked at while somebody waits for
                news, where the kernel does not tell of edits. Unit: seconds, above 0.
            wall_ms: Unix milliseconds now: faults are stamped with the moment in
                which they were first seen.
            edits: Tells of edits of the file; None: the kernel does.
        """
        self._path = path
        self._worker = Worker("driver")  # a file can hang, and a large one takes time
        self._poll_s = poll_s
        self._wall_ms = wall_ms
        self._watch: asyncio.Future[bool] | None = None
        self._edits = edits or Edits(path)
        self._last: _Look | None = None
        #: The latest usable reading: which faults are known, and since when.
        self._good: Reading | None = None

    async def read(self) -> Reading:
        """Look at the file once.

        Raises:
            DriverFileError: It is absent, empty or wrong; every flaw with its place.
        """
        return await self._worker.call(self._look)

    async def news(self, within_s: float) -> bool:
        """Wait until the file has been edited, but no longer than so."""
        if self._watch is None or self._watch.done():
            self._watch = self._worker.call(self._watched, within_s)
        watch = self._watch
        await asyncio.wait({watch}, timeout=within_s + _LATE_S)
        return not watch.done() or watch.result()

    async def close(self) -> None:
        """Let the thread end, which then goes when nobody needs it."""
        self._edits.end()

    def _watched(self, for_s: float) -> bool:
        """Wait for an edit, in the thread: nobody else wakes. Return if there is one.

        What the kernel tells says no more than that the stamp is worth a look.
        """
        is_told = self._edits.tell()
        if not self._is_known():  # it has to be read again in any case, but not at once
            self._edits.wait(min(for_s, self._poll_s))
            return True
        until_s = time.monotonic() + for_s
        while self._is_known():
            left_s = until_s - time.monotonic()
            pause_s = left_s if is_told else min(left_s, self._poll_s)
            if pause_s <= 0 or not self._edits.wait(pause_s):
                return False
        return True

    def _is_known(self) -> bool:
        return self._last is not None and self._is_unchanged(self._last)

    def _look(self) -> Reading:
        if self._last is None or not self._is_unchanged(self._last):
            self._last = self._read()
        if isinstance(self._last.outcome, DriverFileError):
            # A fresh one: raising the same object again would grow its traceback.
            raise DriverFileError(str(self._path), self._last.outcome.flaws)
        return self._last.outcome

    def _is_unchanged(self, last: _Look) -> bool:
        try:
            return last.stamp is not None and last.stamp == _stamp(self._path.stat())
        except OSError:
            return False  # reading it says why

    def _read(self) -> _Look:
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())  # first: what is edited later differs
                content = file.read(_MAX_BYTES + 1)
        except OSError as error:
            flaw = Flaw(at="", expected="a readable file", found=str(error.strerror))
            raise DriverFileError(str(self._path), (flaw,)) from error
        if len(content) > _MAX_BYTES:
            flaw = Flaw(at="", expected=f"at most {_MAX_BYTES} bytes", found="more")
            raise DriverFileError(str(self._path), (flaw,))
        is_file = stat.S_ISREG(found.st_mode)  # whatever else says more each time
        is_old = found.st_ctime_ns < self._wall_ms() * 1_000_000 - _YOUNG_NS
        last = self._last
        return _Look(
            content=content,
            outcome=last.outcome
            if last is not None and last.content == content
            else self._outcome(content),
            stamp=_stamp(found) if is_file and is_old else None,
        )

    def _outcome(self, content: bytes) -> Reading | DriverFileError:
        try:
            parsed = driver_file.parse(content.decode())
        except UnicodeDecodeError as error:
            flaw = Flaw(at=f"byte {error.start}", expected="UTF-8", found=error.reason)
            return DriverFileError(str(self._path), (flaw,))
        except driver_file.FlawsError as error:
            return DriverFileError(str(self._path), error.flaws)
        if self._good is not None and _keys(parsed) != _keys(self._good):
            flaw = _other_product(_keys(self._good), _keys(parsed))
            return DriverFileError(str(self._path), (flaw,))
        self._good = _stamped(parsed, self._good, self._wall_ms())
        return self._good


def _stamp(found: os.stat_result) -> _Stamp:
    return (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _keys(reading: Reading) -> str:
    """Which product lines there are, and of several which chips they have."""
    if not reading.beside:
        return reading.product.key
    return ", ".join(f"{line.product.key} {_ids(line)}" for line in reading.lines)


def _ids(line: Reading) -> list[int]:
    return list(chip_sets.ids_of(line.product.all_chips))


def _other_product(known: str, found: str) -> Flaw:
    return Flaw(
        at="product",
        expected=f"{known!r}, as when the agent started",
        found=repr(found),
    )


def _stamped(reading: Reading, before: Reading | None, now_ms: int) -> Reading:
    """Date each fault: as before when it is known already, else now."""
    old = before.lines if before else ()
    known = {_key(fault): fault.since_ms for line in old for fault in line.faults}
    first, *beside = (
        replace(
            line,
            faults=tuple(
                replace(fault, since_ms=known.get(_key(fault), now_ms))
                for fault in line.faults
            ),
        )
        for line in reading.lines
    )
    return replace(first, beside=tuple(beside))


def _key(fault: ChipFault) -> tuple[int, str]:
    return (fault.chip, fault.code)
