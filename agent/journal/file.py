"""The holds of this node on its own disk, so that they survive the agent.

A journal holds all entries, written anew each time: a temporary file beside it,
the old journal renamed to `<name>.old`, the new one renamed into its place, the old
one removed. Whenever the agent dies, the file of that name, or in its absence the
`.old` one, is the last journal that was acknowledged, or a newer one. (A rename over
the old journal would do in one step, but ext4 then starts to write the file out,
which takes longer than all the rest.) There is no fsync: a journal must survive the
agent's death, not the machine's, which ends the containers too. The file is one
header line and a body:

    ascend-affinity-journal <version> <CRC-32 of the body> <length of the body>
    {"node":…,"boot_id":…,"entries":[…]}

The version stands outside the body, so that a newer program's journal is told from
a damaged one. What cannot be used is set aside as `<name>.bad-<n>`, the newest of
those is the only witness of who holds what; older ones go when there are too many.
"""

import os
import re
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Annotated

import msgspec

from service.decoding import UNDECODABLE, undecodable
from service.quote import shown

_MAGIC = "ascend-affinity-journal"
_VERSION = 1

#: More than 100,000 holds need. Unit: bytes.
_MAX_BYTES = 64 << 20

#: Journals that could not be used and are kept for a person to look at: each reboot
#: leaves one, and a disk is not to fill with them.
KEPT_ASIDE = 10
_NUMBER = re.compile("[1-9][0-9]{0,8}")

#: Larger than any chip of any product. A hold of the chip 10^12 would be a mask of so
#: many bits.
_Chip = Annotated[int, msgspec.Meta(ge=0, lt=1024)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldEntry:
    """One hold: what one Allocate has given out, and to whom as far as is known."""

    #: Place in the order of all holds of this node; unique.
    sequence: Annotated[int, msgspec.Meta(ge=0)]
    #: What the kubelet asked for, in its order; an id can stand there twice.
    kubelet_ids: tuple[str, ...]
    #: Physical ids of the chips that were given, parallel to `kubelet_ids`; other in
    #: number where a hold was found without a journal, and not all of it is certain.
    chips: tuple[_Chip, ...]
    #: The pod whose claim was consumed; "" when there was none.
    claim_uid: str
    #: The pod that holds the chips; "" while unconfirmed.
    pod_uid: str
    namespace: str
    pod: str
    container: str
    #: Which of the claiming pod's containers it served, counted from 0; -1: all.
    need: int
    #: Chips that may be mounted as well, because that is not known for certain.
    reserved: tuple[_Chip, ...] = ()
    #: Whether the kubelet was found to know no longer that the pod has its ids.
    lost: bool = False
    #: Whether it was given to a container that ran already, and asked by itself.
    anew: bool = False
    #: The machine's boot in which the hold was made.
    boot_id: str


class ProblemKind(Enum):
    """Why a journal cannot be used."""

    ABSENT = "absent"
    UNREADABLE = "unreadable"
    TORN = "torn"
    DAMAGED = "damaged"
    OTHER_VERSION = "other version"
    OTHER_NODE = "other node"
    OTHER_BOOT = "other boot"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContents:
    """A journal of this node and this boot, whole and unharmed."""

    entries: tuple[HoldEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalProblem:
    """There is no usable journal, and why."""

    kind: ProblemKind
    path: str
    #: What was expected and what was found.
    text: str
    #: Where the file was put; "" when there was none, or it could not be moved.
    set_aside: str = ""

    def __str__(self) -> str:
        """One line for a log."""
        moved = f", kept as {self.set_aside}" if self.set_aside else ""
        return f"{self.path}: {self.text}{moved}"


class JournalError(Exception):
    """The journal could not be written; the old one is untouched."""


class Journal:
    """One node's journal file. Protects which of two writes is the newer."""

    def __init__(self, path: Path, *, boot_id: str, node: str) -> None:
        """Touches nothing yet.

        Args:
            path: The file; its directory must exist.
            boot_id: Of the machine now (/proc/sys/kernel/random/boot_id).
            node: The Kubernetes node that this agent serves.
        """
        self._path = path
        self._old = path.with_name(f"{path.name}.old")
        self._boot_id = boot_id
        self._node = node
        self._numbers = count(1)
        self._newest = 0

    def write(self, entries: Sequence[HoldEntry]) -> None:
        """Replace the journal by these entries; all of them or none.

        May be called from a worker thread. When a write hangs (a stalled disk) and
        another begins meanwhile, the older one gives up before its rename.

        Raises:
            JournalError: The disk refused; the journal is as before.

        Cost:
            One file created, two renamed, one removed, no fsync: about 0.1 ms for
            64 holds.
        """
        number = next(self._numbers)
        self._newest = number
        content = encode(entries, boot_id=self._boot_id, node=self._node)
        temporary = f"{self._path}.tmp-{number}"
        try:
            _create(temporary, content)
            if number == self._newest:
                self._swap(temporary)
            else:
                _remove(temporary)
        except OSError as error:
            _remove(temporary)
            raise JournalError(f"{self._path}: {error.strerror}") from error

    def read(self) -> JournalContents | JournalProblem:
        """Read the journal; one that cannot be used is set aside.

        Called once, at start and before any write: it also clears away what a
        predecessor that died while writing has left.
        """
        for leftover in self._path.parent.glob(f"{self._path.name}.tmp-*"):
            _remove(str(leftover))
        try:
            content = self._content()
        except FileNotFoundError:
            return self._problem(ProblemKind.ABSENT, "there is no journal")
        except OSError as error:
            # aside with it: the next write would be made over the only witness
            problem = self.not_read(str(error.strerror))
            return replace(problem, set_aside=self.set_aside())
        try:
            return JournalContents(
                entries=decode(content, boot_id=self._boot_id, node=self._node)
            )
        except UnusableError as error:
            return self._problem(error.kind, str(error), self.set_aside())

    def _content(self) -> bytes:
        if os.path.lexists(self._old):
            if os.path.lexists(self._path):
                self._clear_old()
            else:
                self._old.rename(self._path)  # died between two renames
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC  # a link is none of ours
        with open(os.open(self._path, flags), "rb") as file:  # noqa: PTH123  # flags
            return file.read(_MAX_BYTES)

    def _clear_old(self) -> None:
        """Remove what would be in the way of the next write."""
        _remove(str(self._old))
        if os.path.lexists(self._old):  # a directory, of whomever
            self._old.rename(self._next_aside())

    def _swap(self, temporary: str) -> None:
        # os and not pathlib: this is in Allocate's path.
        with suppress(FileNotFoundError):  # the first journal has none before it
            os.rename(self._path, self._old)  # noqa: PTH104
        os.rename(temporary, self._path)  # noqa: PTH104
        _remove(str(self._old))

    def _problem(
        self, kind: ProblemKind, text: str, set_aside: str = ""
    ) -> JournalProblem:
        return JournalProblem(
            kind=kind, path=str(self._path), text=text, set_aside=set_aside
        )

    def not_read(self, why: str) -> JournalProblem:
        """Return the problem that the disk has not let the journal be read."""
        return self._problem(ProblemKind.UNREADABLE, why)

    def set_aside(self) -> str:
        """Move the file to the next name and return that; "" if it cannot be moved.

        Two agents never share a journal. Of those that were set aside before, the
        newest few are kept.
        """
        target = self._next_aside()
        try:
            self._path.rename(target)
        except OSError:
            return ""  # the problem's text then names no place; the next write wins
        for old in self._aside()[:-KEPT_ASIDE]:
            _remove(str(self._path.with_name(f"{self._path.name}.bad-{old}")))
        return str(target)

    def _next_aside(self) -> Path:
        number = max(self._aside(), default=0) + 1
        return self._path.with_name(f"{self._path.name}.bad-{number}")

    def _aside(self) -> list[int]:
        """Return the numbers of what was set aside, ascending."""
        beginning = f"{self._path.name}.bad-"
        found = self._path.parent.glob(f"{beginning}*")
        numbers = (path.name.removeprefix(beginning) for path in found)
        return sorted(int(n) for n in numbers if _NUMBER.fullmatch(n))


class UnusableError(Exception):
    """The bytes are not a journal that this agent can use."""

    def __init__(self, kind: ProblemKind, *, expected: str, found: str) -> None:
        """Keep the kind; the text is made from the facts."""
        self.kind = kind
        super().__init__(f"{kind.value}: expected {expected}, found {found}")


@dataclass(frozen=True, slots=True)
class _Body:
    node: str
    boot_id: str
    entries: tuple[HoldEntry, ...]


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Body)


def encode(entries: Sequence[HoldEntry], *, boot_id: str, node: str) -> bytes:
    """The journal's bytes."""
    body = _ENCODER.encode(_Body(node, boot_id, tuple(entries)))
    header = f"{_MAGIC} {_VERSION} {zlib.crc32(body):08x} {len(body)}\n"
    return header.encode() + body


def decode(content: bytes, *, boot_id: str, node: str) -> tuple[HoldEntry, ...]:
    """The entries of a journal that this node wrote in this boot.

    Raises:
        UnusableError: Torn, damaged, or not of this version, node or boot.
    """
    try:
        body = _DECODER.decode(_checked_body(content))
    except UNDECODABLE as error:
        raise UnusableError(
            ProblemKind.DAMAGED, expected="entries", found=undecodable("body", error)
        ) from error
    if body.node != node:
        raise UnusableError(
            ProblemKind.OTHER_NODE, expected=repr(node), found=shown(body.node)
        )
    if body.boot_id != boot_id:
        raise UnusableError(
            ProblemKind.OTHER_BOOT, expected=repr(boot_id), found=shown(body.boot_id)
        )
    return body.entries


def _checked_body(content: bytes) -> bytes:
    """The body, after all that the header says about it has held."""
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
    announced = fields[1] if len(fields) == 2 else ""
    is_length = announced.isdecimal() and len(announced) <= len(str(sys.maxsize))
    if is_length and len(body) < int(announced):
        raise UnusableError(
            ProblemKind.TORN, expected=f"{announced} bytes", found=f"{len(body)} bytes"
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
    with suppress(OSError):  # a leftover is cleared away at the next start
        os.unlink(path)  # noqa: PTH108  # as _swap
