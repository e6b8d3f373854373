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
from typing import Annotated

import msgspec

from agent.devices.board_size import UnknownMachineError, fit_row
from agent.devices.dcmi.values import Identity
from scheduler_core.products.table import Product
from service.decoding import DECODE_ERRORS, describe_decode_error
from service.quote import quote_value
from service.worker import Worker

log = logging.getLogger(__name__)

NAME = "chips"
#: Longest wait for the read at the start. Unit: seconds. The node has no plugin until
#: then.
READ_WITHIN_S = 3.0
#: Longest wait for the end of the writes, when the agent ends. Unit: seconds.
FLUSH_S = 1.0
#: Above all ids of chips: that of chip 10^12 would need a mask of that many bits.
_CHIPS = 1024


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
    highest: Annotated[int, msgspec.Meta(ge=0, lt=_CHIPS)]
    #: mask of the ids that are not of this row
    absent: Annotated[int, msgspec.Meta(ge=0)]


class _Content(msgspec.Struct, frozen=True):
    node: str
    rows: tuple[_Row, ...]
    identities: tuple[Identity, ...]


class UnusableError(Exception):
    """The content of the file cannot be used; says what was expected and found."""


def encode(known: Known, node: str) -> bytes:
    """Return the content of the file for what is known of a node's chips."""
    rows = [_Row(row.key, row.chip_count - 1, row.absent) for row in known.products]
    return msgspec.json.encode(_Content(node, tuple(rows), known.identities))


def decode(content: bytes, node: str) -> Known:
    """Return what is known of a node's chips, from the content of the file.

    Raises:
        UnusableError: The content is damaged, or of another node, or names rows or
            chips that there cannot be.
    """
    try:
        found = msgspec.json.decode(content, type=_Content)
    except DECODE_ERRORS as error:
        raise UnusableError(describe_decode_error("content", error)) from error
    try:
        rows = tuple(fit_row(row.key, row.highest, row.absent) for row in found.rows)
    except UnknownMachineError as error:
        text = "rows: expected rows of the product table with their chips, found "
        raise UnusableError(text + quote_value(found.rows)) from error
    if found.node != node:
        text = f"node: expected {node!r}, found {quote_value(found.node)}"
        raise UnusableError(text)
    if not all(row.all_chips for row in rows):
        raise UnusableError("rows: expected chips in each row, found none")
    if len({row.resource for row in rows}) < len(rows):
        raise UnusableError("rows: expected one for each resource, found several")
    ids = [chip.physical_id for chip in found.identities]
    strange = [chip for chip in ids if not 0 <= chip < _CHIPS]
    if strange or len(set(ids)) < len(ids):
        text = f"different ids below {_CHIPS}, found {quote_value(strange or ids)}"
        raise UnusableError(f"identities: expected {text}")
    return Known(rows, found.identities)


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

    async def read(self) -> Known:
        """Return what is known of the node's chips; nothing if the file tells nothing.

        A file that cannot be used, or not within `READ_WITHIN_S`, is logged.
        """
        reading = self._worker.call(self._read)
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                known = await asyncio.shield(reading)
        except TimeoutError:
            known = f"the disk did not answer within {READ_WITHIN_S:g} s"
        if isinstance(known, Known):
            self._stored = known
            return known
        reason = f"{self._path}: {known}"
        log.warning("chips of this node not remembered", extra={"reason": reason})
        return Known()

    def _read(self) -> Known | str:
        """Read the file, in the thread; return what it has, or why that is unusable."""
        try:
            return decode(self._path.read_bytes(), self._node)
        except FileNotFoundError:
            return Known()
        except OSError as error:
            return str(error.strerror)
        except UnusableError as error:
            return str(error)

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
            writing = self._worker.call(self._write, encode(known, self._node))
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

    def _write(self, text: bytes) -> str:
        """Replace the file, in the thread; return why that failed, or ""."""
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_bytes(text)
            temporary.replace(self._path)
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        return ""
