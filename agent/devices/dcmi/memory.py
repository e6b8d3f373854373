"""The file with what the driver has told of a node's chips, for the next start.

After a boot, chips may come up one by one, and calls fail that have succeeded before.
An agent that remembers the rows of the product table begins at once with these rows,
and with the facts that it was told. What the driver tells anew replaces them.

Unlike the journal of holds, the file is good for every boot of the machine. Without the
file, the agent waits for all chips.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.devices.board_size import UnknownMachineError, fit_row
from agent.devices.dcmi.values import Identity
from scheduler_core.products.table import Product
from service.decoding import DECODE_ERRORS, describe_decode_error
from service.worker import Worker

log = logging.getLogger(__name__)

NAME = "chips"
#: Longest wait for the end of the writes, when the agent ends. Unit: seconds.
FLUSH_S = 1.0


@dataclass(frozen=True, slots=True)
class Known:
    """The rows by which a node has been served, and what was told of each chip."""

    products: tuple[Product, ...] = ()
    #: ascending by physical id
    identities: tuple[Identity, ...] = ()


class _Row(msgspec.Struct, frozen=True):
    """A row of the product table, reduced to the chips of one server."""

    key: str
    #: highest physical id
    highest: int
    #: mask of the ids that are not of this row
    absent: int


class _Content(msgspec.Struct, frozen=True):
    node: str
    rows: tuple[_Row, ...]
    identities: tuple[Identity, ...]


class Memory:
    """The file, and whether it has what is known."""

    def __init__(self, directory: Path, node: str) -> None:
        """Store the arguments; read nothing yet."""
        self._path = directory / NAME
        self._node = node
        # a disk can hang
        self._worker = Worker("memory")
        #: what the file has; None: not known, since a write has failed
        self._stored: Known | None = Known()
        #: what is being written, and what is to be written next
        self._written: Known | None = None
        self._next: Known | None = None
        self._problem = ""
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def read(self) -> Known:
        """Return what is known of the node's chips; nothing if the file tells nothing.

        A file that cannot be used is logged.
        """
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_Content)
            rows = [fit_row(row.key, row.highest, row.absent) for row in content.rows]
        except FileNotFoundError:
            return Known()
        except DECODE_ERRORS as error:
            reason = describe_decode_error(str(self._path), error)
        except (OSError, UnknownMachineError) as error:
            reason = f"{self._path}: {error}"
        else:
            if content.node == self._node:
                known = Known(tuple(rows), content.identities)
                self._stored = known
                return known
            reason = (
                f"{self._path}: expected node {self._node!r}, found {content.node!r}"
            )
        log.warning("chips of this node not remembered", extra={"reason": reason})
        return Known()

    def store(self, known: Known) -> None:
        """Begin to write `known` into the file if it is news; wait for nothing.

        While an earlier call still writes, the last `known` waits for the end of that.
        A file that cannot be written costs a wait at the next start. It is logged, and
        the next call tries again.
        """
        if self._written is not None:
            self._next = known
        elif known != self._stored:
            self._written = known
            self._is_idle.clear()
            writing = self._worker.call(self._write, self._encode(known))
            writing.add_done_callback(self._end_write)

    def _end_write(self, writing: asyncio.Future[str]) -> None:
        problem = writing.result()
        self._stored, self._written = None if problem else self._written, None
        if problem and problem != self._problem:
            log.warning("chips of this node not stored", extra={"reason": problem})
        self._problem = problem
        known, self._next = self._next, None
        if known is not None and not problem:
            self.store(known)
        if self._written is None:
            self._is_idle.set()

    async def flush(self) -> None:
        """Wait until what was stored is in the file, at most `FLUSH_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._is_idle.wait()

    def _encode(self, known: Known) -> bytes:
        rows = [_Row(row.key, row.chip_count - 1, row.absent) for row in known.products]
        content = _Content(self._node, tuple(rows), known.identities)
        return msgspec.json.encode(content)

    def _write(self, text: bytes) -> str:
        """Replace the file, in the thread; return why that failed, or ""."""
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_bytes(text)
            temporary.replace(self._path)
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        return ""
