import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from agent.claims.store import LedgerStore
from agent.claims.values import Hold, Owner
from agent.journal import file as journals
from agent.journal import writer
from agent.journal.file import (
    Journal,
    JournalError,
    JournalProblem,
    ProblemKind,
)
from agent.journal.writer import JournalWriter
from tests.agent.node import NODE, current, ids, pod

BOOT = "boot-1"


#: What an agent before this one gave out.
HOLD = Hold(sequence=7, kubelet_ids=ids(7), chips=(7,), slot="u", need=1)


def entries(path: Path) -> tuple[Hold, ...]:
    return journals.decode(path.read_bytes(), boot_id=BOOT, node=NODE)


def writer_of(
    journal: Journal, now: LedgerStore, on_failure: Callable[[str], None]
) -> JournalWriter:
    """A writer of a journal that follows a ledger."""
    book = JournalWriter(
        journal,
        observe_s=lambda _: None,
        on_outcome=lambda failure: on_failure(failure) if failure else None,
    )
    book.follow(now)
    return book


class SlowJournal(Journal):
    """A disk that hangs until it is let go, or that is full."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, boot_id=BOOT, node=NODE)
        self.may_go = threading.Event()
        self.is_full = False
        self.writes = 0
        self.may_be_read = threading.Event()

    def read(self) -> tuple[Hold, ...] | JournalProblem:
        self.may_be_read.wait()
        return super().read()

    def write(self, entries: Sequence[Hold]) -> None:
        self.writes += 1
        if self.is_full:
            raise JournalError("no space left on device")
        self.may_go.wait()
        super().write(entries)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowJournal]:
    journal = SlowJournal(tmp_path / "holds")
    yield journal
    journal.may_go.set()
    journal.may_be_read.set()


STATIC = Owner(uid="u", namespace="ns", pod="p", container="c", cgroup_uid="s")
CONFIRMED = replace(
    HOLD,
    kubelet_ids=ids(7, 0),
    chips=(0, 1),
    need=0,
    owner=Owner(uid="u", namespace="ns", pod="p", container="c"),
    reserved=(7,),
)


@pytest.mark.parametrize(
    "hold",
    [
        HOLD,
        CONFIRMED,
        replace(CONFIRMED, lost=True),
        replace(CONFIRMED, owner=STATIC),
        replace(HOLD, recreated=True),
    ],
)
def test_a_hold_is_read_back_as_it_was_written(hold: Hold) -> None:
    content = journals.encode([hold], boot_id=BOOT, node=NODE)

    (read,) = journals.decode(content, boot_id=BOOT, node=NODE)
    assert (read, read.mask) == (hold, hold.mask)


async def test_what_is_held_is_on_disk_after_writing(tmp_path: Path) -> None:
    now = current(pod("train", [3]))
    journal = Journal(tmp_path / "holds", boot_id=BOOT, node=NODE)
    book = writer_of(journal, now, pytest.fail)
    now.allocate(3)

    await book.write()

    read = journal.read()
    assert read == (*now.ledger.holds.values(),)


async def test_a_disk_that_hangs_delays_allocate_only_so_long(
    slow: SlowJournal,
) -> None:
    now, failures = current(pod("train", [3])), list[str]()
    book = writer_of(slow, now, failures.append)
    now.allocate(3)

    async with asyncio.timeout(100 * writer.WITHIN_S):
        await book.write()

    assert failures == ["the disk did not answer within 0.2 s"]


async def test_writes_do_not_pile_up_behind_a_disk_that_hangs(
    slow: SlowJournal,
) -> None:
    train = [pod(f"train-{chip}", [chip], chip + 1) for chip in range(3)]
    now, failures = current(*train), list[str]()
    book = writer_of(slow, now, failures.append)
    for chip in range(3):
        now.allocate(chip)
        await book.write()

    slow.may_go.set()
    await book.write()

    assert (len(failures), slow.writes) == (3, 2)
    slow.may_be_read.set()
    read = slow.read()
    assert isinstance(read, tuple)
    assert [each.chips for each in read] == [(0,), (1,), (2,)]


async def test_a_full_disk_is_said_and_tried_again(slow: SlowJournal) -> None:
    now, failures = current(pod("train", [3])), list[str]()
    book = writer_of(slow, now, failures.append)
    now.allocate(3)
    slow.is_full = True
    await book.write()

    slow.is_full = False
    slow.may_go.set()
    await book.write()

    assert failures == ["no space left on device"]
    slow.may_be_read.set()
    assert isinstance(slow.read(), tuple)


async def test_a_journal_that_cannot_be_read_in_time_is_given_up_and_kept(
    slow: SlowJournal, tmp_path: Path
) -> None:
    before = Journal(tmp_path / "holds", boot_id=BOOT, node=NODE)
    before.write([HOLD])
    now, failures = current(pod("train", [3])), list[str]()
    book = writer_of(slow, now, failures.append)
    slow.may_go.set()

    async with asyncio.timeout(10 * writer.READ_WITHIN_S):
        found = await book.read()
    now.allocate(3)
    await book.write()
    slow.may_be_read.set()
    await book.write()

    assert found == JournalProblem(
        kind=ProblemKind.UNREADABLE,
        text=f"{tmp_path / 'holds'}: the disk did not answer within 3 s",
    )
    assert failures == ["the disk did not answer within 0.2 s"]
    assert [each.chips for each in entries(tmp_path / "holds.bad-1")] == [HOLD.chips]
    assert [each.chips for each in entries(tmp_path / "holds")] == [(3,)]


async def test_closing_waits_for_a_write_a_moment_and_then_makes_it_void(
    tmp_path: Path,
) -> None:
    now, failures = current(pod("train", [0, 1], 1)), list[str]()
    ended = Journal(tmp_path / "holds", boot_id=BOOT, node=NODE, numbers=count(1))
    book = writer_of(ended, now, failures.append)
    now.mounts_for("train", 0, 1)
    await book.write()
    now.delete("train")
    os.mkfifo(tmp_path / "holds.tmp-2")
    now.update(pod("next", [2], 2))
    now.mounts_for("next", 2)
    writing = asyncio.create_task(book.write())
    await book.close()
    await writing
    stored = entries(tmp_path / "holds")
    await asyncio.to_thread((tmp_path / "holds.tmp-2").read_bytes)
    await asyncio.wait({book._call} if book._call else set())

    assert [entry.chips for entry in stored] == [(0, 1)]
    assert entries(tmp_path / "holds") == stored


async def test_a_write_under_way_is_complete_after_closing(tmp_path: Path) -> None:
    now = current(pod("train", [0, 1], 1))
    journal = Journal(tmp_path / "holds", boot_id=BOOT, node=NODE)
    book = writer_of(journal, now, lambda _: None)
    now.mounts_for("train", 0, 1)
    writing = asyncio.create_task(book.write())
    await asyncio.sleep(0)
    writing.cancel()
    await book.close()

    assert [entry.chips for entry in entries(tmp_path / "holds")] == [(0, 1)]
