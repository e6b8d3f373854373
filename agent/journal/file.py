"""The journal file with all holds of this node, which survives the death of the agent.

Each write replaces the whole journal in four steps. It creates a temporary file in the
same directory. It renames the old journal to `<name>.old`. It renames the temporary
file to `<name>`. It removes `<name>.old`. If the agent dies between two steps, a whole
journal remains: `<name>`, or `<name>.old` if there is no `<name>`.

A rename over the old journal would need one step only. But ext4 then starts to write
the file out, which takes longer than all other steps together. There is no fsync: a
journal need not survive the death of the machine, which ends the containers too.

The file is one header line and a body:

    ascend-affinity-journal <version> <CRC-32 of the body> <length of the body>
    {"node":…,"boot_id":…,"entries":[…]}

The version is outside the body, so that the journal of a newer program does not look
damaged. An unusable journal is set aside for people, which means renamed to
`<name>.bad-<n>`. Only the newest `KEPT_ASIDE` (10) of these files are kept.
"""

import os
import re
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from agent.claims.values import Hold
from service.decoding import DECODE_ERRORS, describe_decode_error
from service.quote import quote_value

_MAGIC = "ascend-affinity-journal"
#: Changes with what an entry must have: an earlier agent then says so, and does not
#: take the journal for damaged.
_VERSION = 2

#: Longest journal, more than 100,000 holds need. Unit: bytes.
_MAX_BYTES = 64 << 20

#: Number of unusable journals kept for people. Each reboot leaves one, and they must
#: not fill the disk.
KEPT_ASIDE = 10
#: Of the temporary files of this process.
_NUMBERS: Final = count(1)
_NUMBER = re.compile("[1-9][0-9]{0,8}")


class ProblemKind(Enum):
    """Reason why a journal cannot be used.

    TORN means that the file is cut short. OTHER_VERSION means another version of the
    file format. OTHER_NODE means that the journal is of another node, OTHER_BOOT of
    another boot of the machine.
    """

    ABSENT = "absent"
    UNREADABLE = "unreadable"
    TORN = "torn"
    DAMAGED = "damaged"
    OTHER_VERSION = "other version"
    OTHER_NODE = "other node"
    OTHER_BOOT = "other boot"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalProblem:
    """Reason why the agent has no usable journal."""

    kind: ProblemKind
    #: Path, content that was expected and found, and new path of an unusable file.
    text: str


class JournalError(Exception):
    """A write of the journal failed, and the previous journal is unchanged."""


class Journal:
    """Journal file that stores the holds of one node."""

    def __init__(
        self, path: Path, *, boot_id: str, node: str, numbers: Iterator[int] = _NUMBERS
    ) -> None:
        """Construct without touching the disk.

        Args:
            path: Path of the journal; its directory must exist.
            boot_id: Id of the machine's present boot (/proc/sys/kernel/random/boot_id).
            node: Name of the Kubernetes node that this agent serves.
            numbers: Of its temporary files: of the process, since an agent that begins
                anew in its process may meet a write of the one before.
        """
        self._path = path
        self._old = path.with_name(f"{path.name}.old")
        self._boot_id = boot_id
        self._node = node
        self._numbers = numbers
        #: number of the latest write that may replace the journal
        self._newest = 0
        self._lock = threading.Lock()

    def write(self, entries: Sequence[Hold]) -> None:
        """Replace the journal's content by these entries.

        Call it in a worker thread, because a write can hang on a stalled disk. If a
        newer write begins before this one's temporary file is complete, this one is
        dropped.

        Raises:
            JournalError: The disk refused the write. The previous entries are still on
                disk, but perhaps in `<name>.old`.

        Cost:
            One file created, two renamed, one removed, no fsync: about 0.1 ms for 64
            holds.
        """
        with self._lock:
            number = next(self._numbers)
            self._newest = max(number, self._newest)
        content = encode(entries, boot_id=self._boot_id, node=self._node)
        temporary = f"{self._path}.tmp-{number}"
        try:
            _create(temporary, content)
            with self._lock:
                if number == self._newest:
                    self._swap(temporary)
                else:
                    _remove(temporary)
        except OSError as error:
            _remove(temporary)
            raise JournalError(f"{self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Let no write that hangs replace the journal any more.

        It waits for nothing: a rename under way goes on.
        """
        self._newest = sys.maxsize

    def read(self) -> tuple[Hold, ...] | JournalProblem:
        """Return the entries of the journal, or the problem that makes it unusable.

        An unusable file is renamed by `set_aside`. Temporary files of an agent that
        died while writing are removed. Call this method once, at start and before any
        write.
        """
        for leftover in self._path.parent.glob(f"{self._path.name}.tmp-*"):
            _remove(str(leftover))
        try:
            content = self._content()
        except FileNotFoundError:
            return self.problem(ProblemKind.ABSENT, "there is no journal")
        except OSError as error:
            # set aside: the next write would replace the only record of the holds
            reason = str(error.strerror)
            return self.problem(ProblemKind.UNREADABLE, reason, self.set_aside())
        try:
            return decode(content, boot_id=self._boot_id, node=self._node)
        except UnusableError as error:
            return self.problem(error.kind, str(error), self.set_aside())

    def _content(self) -> bytes:
        if os.path.lexists(self._old):
            if os.path.lexists(self._path):
                self._clear_old()
            else:
                self._old.rename(self._path)  # the last agent died between two renames
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC  # the agent makes no link
        with open(os.open(self._path, flags), "rb") as file:  # noqa: PTH123  # flags
            return file.read(_MAX_BYTES)

    def _clear_old(self) -> None:
        """Remove `<name>.old`, or rename it to the next `<name>.bad-<n>` if that fails.

        A directory cannot be removed. If it stayed at `<name>.old`, it would block the
        next write.
        """
        _remove(str(self._old))
        if os.path.lexists(self._old):  # a directory, not made by the agent
            self._old.rename(self._next_aside())

    def _swap(self, temporary: str) -> None:
        # os and not pathlib: Allocate waits for this
        with suppress(FileNotFoundError):  # the first journal replaces none
            os.rename(self._path, self._old)  # noqa: PTH104
        os.rename(temporary, self._path)  # noqa: PTH104
        _remove(str(self._old))

    def problem(
        self, kind: ProblemKind, text: str, set_aside: str = ""
    ) -> JournalProblem:
        """Return why this journal cannot be used, and its new path if there is one."""
        moved = f", kept as {set_aside}" if set_aside else ""
        return JournalProblem(kind=kind, text=f"{self._path}: {text}{moved}")

    def set_aside(self) -> str:
        """Rename the journal to the next free `<name>.bad-<n>`; return the new path.

        The result is "" if the rename fails. Only the newest KEPT_ASIDE of the files
        `<name>.bad-<n>` stay. The others are removed.
        """
        target = self._next_aside()
        try:
            self._path.rename(target)
        except OSError:
            return ""  # the problem then names no path, and the next write replaces it
        for old in self._aside()[:-KEPT_ASIDE]:
            _remove(str(self._path.with_name(f"{self._path.name}.bad-{old}")))
        return str(target)

    def _next_aside(self) -> Path:
        number = max(self._aside(), default=0) + 1
        return self._path.with_name(f"{self._path.name}.bad-{number}")

    def _aside(self) -> list[int]:
        """Return the numbers <n> of the files `<name>.bad-<n>`, ascending."""
        prefix = f"{self._path.name}.bad-"
        paths = self._path.parent.glob(f"{prefix}*")
        numbers = (path.name.removeprefix(prefix) for path in paths)
        return sorted(int(n) for n in numbers if _NUMBER.fullmatch(n))


class UnusableError(Exception):
    """The content of a journal file cannot be used, for the reason in `kind`."""

    def __init__(self, kind: ProblemKind, *, expected: str, found: str) -> None:
        self.kind = kind
        super().__init__(f"{kind.value}: expected {expected}, found {found}")


@dataclass(frozen=True, slots=True)
class _Body:
    node: str
    boot_id: str
    entries: tuple[Hold, ...]


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Body)


def encode(entries: Sequence[Hold], *, boot_id: str, node: str) -> bytes:
    """Return the content of a journal file: header line, and `entries` as JSON."""
    body = _ENCODER.encode(_Body(node, boot_id, tuple(entries)))
    header = f"{_MAGIC} {_VERSION} {zlib.crc32(body):08x} {len(body)}\n"
    return header.encode() + body


def decode(content: bytes, *, boot_id: str, node: str) -> tuple[Hold, ...]:
    """Return the entries from the content of a journal file.

    Args:
        content: The whole file.
        boot_id: Id of the boot in which the journal must have been written.
        node: Name of the node for which the journal must have been written.

    Raises:
        UnusableError: The content is cut short or damaged. Or it has another format
            version, node or boot.
    """
    try:
        body = _DECODER.decode(_checked_body(content))
    except DECODE_ERRORS as error:
        raise UnusableError(
            ProblemKind.DAMAGED,
            expected="entries",
            found=describe_decode_error("body", error),
        ) from error
    if body.node != node:
        raise UnusableError(
            ProblemKind.OTHER_NODE, expected=repr(node), found=quote_value(body.node)
        )
    if body.boot_id != boot_id:
        raise UnusableError(
            ProblemKind.OTHER_BOOT,
            expected=repr(boot_id),
            found=quote_value(body.boot_id),
        )
    return body.entries


def _checked_body(content: bytes) -> bytes:
    """Return the body of a journal file after checking the header line.

    Raises:
        UnusableError: The content has no header line of a journal. Or the header has
            another format version than this program, or another checksum or length than
            the body.
    """
    header, newline, body = content.partition(b"\n")
    fields = header.decode(errors="replace").split(" ")
    if not newline:
        raise UnusableError(
            ProblemKind.TORN, expected="a header line", found=f"{len(content)} bytes"
        )
    if len(fields) < 2 or fields[0] != _MAGIC:
        raise UnusableError(
            ProblemKind.DAMAGED, expected=_MAGIC, found=repr(fields[0][:40])
        )
    if fields[1] != str(_VERSION):
        raise UnusableError(
            ProblemKind.OTHER_VERSION,
            expected=f"version {_VERSION}",
            found=f"version {fields[1][:20]}",
        )
    _check(fields[2:], body)
    return body


def _check(fields: list[str], body: bytes) -> None:
    expected = [f"{zlib.crc32(body):08x}", str(len(body))]
    if fields == expected:
        return
    announced_length = fields[1] if len(fields) == 2 else ""
    is_length = announced_length.isdecimal() and len(announced_length) <= len(
        str(sys.maxsize)
    )
    if is_length and len(body) < int(announced_length):
        raise UnusableError(
            ProblemKind.TORN,
            expected=f"{announced_length} bytes",
            found=f"{len(body)} bytes",
        )
    raise UnusableError(
        ProblemKind.DAMAGED,
        expected="checksum and length " + " ".join(expected),
        found=repr(" ".join(fields)[:40]),
    )


def _create(path: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        while content:
            content = content[os.write(file, content) :]
    finally:
        os.close(file)


def _remove(path: str) -> None:
    with suppress(OSError):  # the next start removes a leftover
        os.unlink(path)  # noqa: PTH108  # as _swap
