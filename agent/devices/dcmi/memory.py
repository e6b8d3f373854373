"""The file with what the driver has told of a node's chips, for the next start.

After a boot, chips may come up one by one, and calls fail that have succeeded before.
An agent that remembers the rows of the product table begins at once with these rows,
and with the facts that it was told. What the driver tells anew replaces them.

Unlike the journal of holds, the file is good for every boot of the machine. Without the
file, the agent waits for all chips.
"""

import asyncio
import logging
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
        self._stored = Known()
        self._writing: asyncio.Future[str] | None = None

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
                self._stored = Known(tuple(rows), content.identities)
                return self._stored
            reason = (
                f"{self._path}: expected node {self._node!r}, found {content.node!r}"
            )
        log.warning("chips of this node not remembered", extra={"reason": reason})
        return Known()

    def store(self, known: Known) -> None:
        """Begin to write `known` into the file if it is news; wait for nothing.

        While an earlier call still writes, the call has no effect. A file that cannot
        be written costs a wait at the next start, and is logged.
        """
        if known == self._stored or (self._writing and not self._writing.done()):
            return
        self._stored = known
        self._writing = self._worker.call(self._write, self._encode(known))
        self._writing.add_done_callback(_log_failure)

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


def _log_failure(writing: asyncio.Future[str]) -> None:
    if not writing.cancelled() and writing.result():
        reason = writing.result()
        log.warning("chips of this node not stored", extra={"reason": reason})
