"""Read simulated chips from a YAML file, which may be edited while the agent runs.

The driver parses the file again if its content is not that of the latest read: any
stamp of a file can be the same after a second edit.

`wait_for_news` checks the file each `poll_s` seconds.

The second file, with the processes of containers, is read when real drivers are asked
for processes: at each `read`, and at the end of `wait_for_news`. An edit of it ends no
wait.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from agent.devices.driver import DriverFileError
from agent.devices.reading import Process, Reading
from agent.devices.simulated import file as driver_file
from scheduler_core.documents.reader import DocumentError
from scheduler_core.node import chips as chip_sets
from service import clock
from service.worker import Worker

#: Longest file, far more than 64 chips with 128 faults each need. Unit: bytes.
_MAX_BYTES = 1 << 20
#: Read at once; the usual file is shorter. Unit: bytes.
_PART_BYTES = 1 << 14
#: Time after the wait of the thread before the file counts as hanging. Unit: seconds.
_LATE_S = 0.5

T = TypeVar("T")


class SimulatedDriver:
    """A `Driver` that takes the state of the node's chips from a YAML file."""

    def __init__(
        self,
        path: Path,
        *,
        poll_s: float,
        wall_ms: Callable[[], int],
    ) -> None:
        """Store the arguments; read nothing yet.

        Args:
            path: The YAML file; see `agent.devices.simulated.file`.
            poll_s: Longest pause between two checks of the file in `wait_for_news`, and
                before the next read of a file that could not be read. Unit: seconds,
                above 0.
            wall_ms: Returns Unix milliseconds now; used as the date of each new fault.
        """
        self._path = path
        # a file can hang, and a large one takes time to parse
        self._worker = Worker("driver")
        self._poll_s = poll_s
        self._wall_ms = wall_ms
        self._watch: asyncio.Future[bool] | None = None
        #: Content of the YAML file when last read; None when it could not be read.
        self._content: bytes | None = None
        self._outcome: Reading | DriverFileError | None = None
        self._process_path = path.with_suffix(".processes.yaml")
        #: Content of the second file when last read; b"" if there was none.
        self._process_text = b""
        self._processes: tuple[Process, ...] = ()
        #: The latest usable reading, with the known faults and their dates.
        self._last_good: Reading | None = None
        #: Set while a look is asked for that no reading has answered yet.
        self._asked = threading.Event()

    async def read(self) -> Reading:
        """Return the state of the chips that the YAML file describes.

        Raises:
            DriverFileError: The file is absent, unreadable, too large or invalid. Or it
                names other products than before, or other chips of them.
        """
        self._asked.clear()
        began_s = clock.loop_s()
        reading = await self._worker.call(self._read_if_changed)
        return replace(reading, looked_s=began_s)

    async def wait_for_news(self, within_s: float) -> bool:
        """Wait up to `within_s` for an edit of the file; 0.5 s longer if a check hangs.

        Returns:
            True if the file may have been edited, or if checking it takes too long.
            Otherwise False.
        """
        if self._watch is None or self._watch.done():
            self._watch = self._worker.call(self._wait_for_edit, within_s)
        watch = self._watch
        await asyncio.wait({watch}, timeout=within_s + _LATE_S)
        return not watch.done() or watch.result()

    @property
    def known_s(self) -> float:
        """Now: the file is the chips."""
        return clock.loop_s()

    def look_now(self) -> None:
        """Have the next reading made at once."""
        self._asked.set()

    def change_rows(self) -> None:
        """Do nothing: the rows of simulated chips change with the next start only."""

    def expect(self, inventory: Mapping[str, int]) -> None:
        """Do nothing: the file says which chips there are."""

    async def close(self) -> None:
        """Stop waiting for edits of the file, so that the driver's thread can end."""
        self._asked.set()

    def _wait_for_edit(self, for_s: float) -> bool:
        """Wait up to `for_s` for an edit; return whether the file may have been edited.

        Runs in the driver's thread.
        """
        if self._content is None:  # it must be read again in any case, but not at once
            self._asked.wait(min(for_s, self._poll_s))
            return True
        until_s = time.monotonic() + for_s
        while _is_content(self._content, self._path):
            pause_s = min(until_s - time.monotonic(), self._poll_s)
            if pause_s <= 0:
                return not _is_content(self._process_text, self._process_path)
            if self._asked.wait(pause_s):
                return True
        return True

    def _read_if_changed(self) -> Reading:
        last, self._content = self._content, None
        content = _read_file(self._path)
        if content != last or self._outcome is None:
            self._outcome = self._parse(content)
        self._content = content
        if isinstance(self._outcome, DriverFileError):
            # a new one: raising the same object again would grow its traceback
            raise DriverFileError(str(self._path), *self._outcome.problems)
        text = _read_file(self._process_path, absent=b"")
        if text != self._process_text:
            parse = driver_file.parse_processes
            self._processes = _parse(self._process_path, text, parse) if text else ()
            self._process_text = text
        if not self._processes:
            return self._outcome
        return driver_file.add_processes(self._outcome, self._processes)

    def _parse(self, content: bytes) -> Reading | DriverFileError:
        try:
            parsed = _parse(self._path, content, driver_file.parse)
        except DriverFileError as error:
            return error
        if self._last_good is not None and _keys(parsed) != _keys(self._last_good):
            expected = f"{_keys(self._last_good)!r}, as when the agent started"
            problem = f"product: expected {expected}, found {_keys(parsed)!r}"
            return DriverFileError(str(self._path), problem)
        self._last_good = _date_faults(parsed, self._last_good, self._wall_ms())
        return self._last_good


def _read_file(path: Path, *, absent: bytes | None = None) -> bytes:
    """Return the content of a file.

    Args:
        path: The file.
        absent: Returned if there is no file; None if that is an error.

    Raises:
        DriverFileError: The file cannot be read, or is too large.
    """
    try:
        content = b""
        with path.open("rb", buffering=0) as file:
            # a buffer of the longest file takes 0.1 ms to make, at each check
            while len(content) <= _MAX_BYTES and (part := file.read(_PART_BYTES)):
                content += part
    except OSError as error:
        if absent is not None and isinstance(error, FileNotFoundError):
            return absent
        problem = f"expected a readable file, found {error.strerror}"
        raise DriverFileError(str(path), problem) from error
    if len(content) > _MAX_BYTES:
        problem = f"expected at most {_MAX_BYTES} bytes, found more"
        raise DriverFileError(str(path), problem)
    return content


def _is_content(content: bytes, path: Path) -> bool:
    try:
        return _read_file(path, absent=b"") == content
    except DriverFileError:
        return False  # the next read gives the reason


def _parse(path: Path, content: bytes, parser: Callable[[str], T]) -> T:
    """Return the result of a parser for the content of a file.

    Raises:
        DriverFileError: The content is no UTF-8, or the parser raises `DocumentError`.
    """
    try:
        return parser(content.decode())
    except UnicodeDecodeError as error:
        problem = f"byte {error.start}: expected UTF-8, found {error.reason}"
        raise DriverFileError(str(path), problem) from error
    except DocumentError as error:
        raise DriverFileError(str(path), *error.problems) from error


def _keys(reading: Reading) -> str:
    """Return the products of a reading as a text, to compare two readings."""
    if not reading.other_lines:
        return reading.product.key
    rows = (line.product for line in reading.lines)
    return ", ".join(
        f"{row.key} {list(chip_sets.ids_of(row.all_chips))}" for row in rows
    )


def _date_faults(
    reading: Reading, last_reading: Reading | None, now_ms: int
) -> Reading:
    """Return `reading` with a start date (`since_ms`) on each fault.

    A fault that is also in `last_reading` keeps its date. A new fault gets `now_ms`.
    """
    old_lines = last_reading.lines if last_reading else ()
    since_ms_by_key = {
        driver_file.FAULT_KEY(fault): fault.since_ms
        for line in old_lines
        for fault in line.faults
    }
    first, *others = (
        replace(
            line,
            faults=tuple(
                replace(
                    fault,
                    since_ms=since_ms_by_key.get(driver_file.FAULT_KEY(fault), now_ms),
                )
                for fault in line.faults
            ),
        )
        for line in reading.lines
    )
    return replace(first, other_lines=tuple(others))
