"""The journal: whole after any death of the agent, and never believed when it lies."""

import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from itertools import count
from pathlib import Path

import pytest

from agent.claims.values import Hold, Owner
from agent.journal import file
from agent.journal.file import Journal, JournalError, JournalProblem, ProblemKind

HOLD = Hold(
    sequence=1,
    kubelet_ids=("Ascend910-7", "Ascend910-0"),
    chips=(0, 1),
    slot="uid-a",
    need=0,
    owner=Owner(uid="uid-a", namespace="default", pod="train-0", container="main"),
)
LATER = replace(HOLD, sequence=2, kubelet_ids=("Ascend910-2",), chips=(2,), need=1)


def journal_in(directory: Path, numbers: Iterator[int] | None = None) -> Journal:
    return Journal(
        directory / "holds", boot_id="boot-1", node="n1", numbers=numbers or count(1)
    )


def encoded(*entries: Hold, boot_id: str = "boot-1", node: str = "n1") -> bytes:
    return file.encode(entries, boot_id=boot_id, node=node)


def decoded(content: bytes) -> tuple[Hold, ...]:
    return file.decode(content, boot_id="boot-1", node="n1")


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    journal_in(tmp_path).write([HOLD, LATER])

    assert journal_in(tmp_path).read() == (HOLD, LATER)


def test_only_the_latest_write_is_left_and_only_its_owner_may_read_it(
    tmp_path: Path,
) -> None:
    holds = journal_in(tmp_path)
    for entries in ([HOLD], [HOLD, LATER], [LATER]):
        holds.write(entries)

    assert holds.read() == (LATER,)
    assert names_in(tmp_path) == ["holds"]
    assert (tmp_path / "holds").stat().st_mode & 0o777 == 0o600


def test_no_holds_is_not_the_same_as_no_journal(tmp_path: Path) -> None:
    journal_in(tmp_path).write([])

    assert journal_in(tmp_path).read() == ()


def sealed(body: bytes) -> bytes:
    """A body under a header line that is right."""
    return b"ascend-affinity-journal 2 %08x %d\n" % (zlib.crc32(body), len(body)) + body


def test_the_format_is_a_header_line_and_json() -> None:
    body = b'{"node":"n1","boot_id":"boot-1","entries":[]}'

    assert encoded() == sealed(body)


_OWNER = {"namespace", "pod", "container"}
_HOLD = {"sequence", "kubelet_ids", "chips", "need"}
#: {version: keys without which an agent of that version takes an entry for damaged;
#: and its owner}
NEEDED: dict[str, tuple[set[str], set[str]]] = {
    "1": ({*_HOLD, *_OWNER, "claim_uid", "pod_uid", "boot_id"}, set()),
    "2": ({*_HOLD, "slot"}, {*_OWNER, "uid"}),
}


def test_an_entry_has_what_agents_of_its_version_need() -> None:
    """An agent that was rolled back to took a journal without a key for damaged."""
    header, _, body = encoded(HOLD).partition(b"\n")
    needed = NEEDED[header.decode().split()[1]]
    entry = json.loads(body)["entries"][0]

    assert needed[0] <= entry.keys()
    assert needed[1] <= entry["owner"].keys()
    assert needed == tuple(
        {each.name for each in fields(kind) if each.default is MISSING}
        for kind in (Hold, Owner)
    )


def problem_of(tmp_path: Path, content: bytes) -> JournalProblem:
    path = tmp_path / "holds"
    path.write_bytes(content)
    problem = journal_in(tmp_path).read()
    assert isinstance(problem, JournalProblem)
    return problem


GOOD = encoded(HOLD)
BODY = GOOD.partition(b"\n")[2]


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        (b"", ProblemKind.TORN, "torn: expected a header line, found 0 bytes"),
        (GOOD[:10], ProblemKind.TORN, "torn: expected a header line, found 10 bytes"),
        (
            GOOD[:-1],
            ProblemKind.TORN,
            f"torn: expected {len(BODY)} bytes, found {len(BODY) - 1} bytes",
        ),
        (
            GOOD + b"}",
            ProblemKind.DAMAGED,
            None,
        ),
        (
            b"\0" * 100 + b"\n",
            ProblemKind.DAMAGED,
            None,
        ),
        (
            GOOD.replace(b"journal 2", b"journal 3", 1),
            ProblemKind.OTHER_VERSION,
            "other version: expected version 2, found version 3",
        ),
        (
            GOOD.replace(b"train-0", b"train-1", 1),
            ProblemKind.DAMAGED,
            None,
        ),
        (
            encoded(HOLD, node="n2"),
            ProblemKind.OTHER_NODE,
            "other node: expected 'n1', found 'n2'",
        ),
        (
            encoded(HOLD, boot_id="boot-0"),
            ProblemKind.OTHER_BOOT,
            "other boot: expected 'boot-1', found 'boot-0'",
        ),
    ],
)
def test_what_cannot_be_used_is_named_and_set_aside(
    tmp_path: Path, content: bytes, kind: ProblemKind, text: str | None
) -> None:
    problem = problem_of(tmp_path, content)

    path, bad = tmp_path / "holds", tmp_path / "holds.bad-1"
    where, _, found = problem.text.partition(": ")
    found, _, moved = found.partition(", kept as ")
    assert (problem.kind, where, moved) == (kind, str(path), str(bad))
    assert text in {None, found}
    assert bad.read_bytes() == content
    assert names_in(tmp_path) == ["holds.bad-1"]


def test_a_body_of_another_form_is_damaged_though_its_checksum_holds(
    tmp_path: Path,
) -> None:
    body = b'{"node":"n1","boot_id":"boot-1","entries":[{}]}'

    assert problem_of(tmp_path, sealed(body)).kind is ProblemKind.DAMAGED


def test_a_second_bad_journal_does_not_replace_the_first(tmp_path: Path) -> None:
    problem_of(tmp_path, b"first")

    problem_of(tmp_path, b"second")

    assert (tmp_path / "holds.bad-1").read_bytes() == b"first"
    assert (tmp_path / "holds.bad-2").read_bytes() == b"second"


def test_the_problem_tells_a_person_where_the_file_is_now(tmp_path: Path) -> None:
    path = tmp_path / "holds"

    assert problem_of(tmp_path, b"").text == (
        f"{path}: torn: expected a header line, found 0 bytes, kept as {path}.bad-1"
    )


def test_an_absent_journal_is_said_to_be_absent(tmp_path: Path) -> None:
    assert journal_in(tmp_path).read() == JournalProblem(
        kind=ProblemKind.ABSENT, text=f"{tmp_path / 'holds'}: there is no journal"
    )


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "something").write_text("")


def make_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_bytes(GOOD)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (make_directory, "Is a directory"),
        (make_link, "Too many levels of symbolic links"),
    ],
    ids=["directory", "symbolic link"],
)
@pytest.mark.parametrize("has_old", [False, True])
def test_what_is_no_file_is_set_aside_and_does_not_hinder_the_next_journal(
    tmp_path: Path, make: Callable[[Path], None], text: str, *, has_old: bool
) -> None:
    path = tmp_path / "holds"
    make(path)
    if has_old:
        make_directory(tmp_path / "holds.old")
    holds = journal_in(tmp_path)

    problem = holds.read()

    bad = tmp_path / f"holds.bad-{2 if has_old else 1}"
    assert problem == JournalProblem(
        kind=ProblemKind.UNREADABLE, text=f"{path}: {text}, kept as {bad}"
    )
    for entries in ([HOLD], [HOLD, LATER]):
        holds.write(entries)
    assert journal_in(tmp_path).read() == (HOLD, LATER)


def test_of_journals_that_were_set_aside_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(1, 3 * file.KEPT_ASIDE):
        problem_of(tmp_path, b"%d" % number)

    kept = range(2 * file.KEPT_ASIDE, 3 * file.KEPT_ASIDE)
    assert {name: (tmp_path / name).read_bytes() for name in names_in(tmp_path)} == {
        f"holds.bad-{number}": b"%d" % number for number in kept
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("chips", [0, 10**12]),
        ("chips", [0, -1]),
        ("reserved", [1024]),
        ("sequence", -1),
    ],
)
def test_a_hold_that_cannot_be_is_damage_though_its_checksum_holds(
    tmp_path: Path, key: str, value: object
) -> None:
    body = json.loads(BODY)
    body["entries"][0][key] = value

    content = sealed(json.dumps(body).encode())
    assert problem_of(tmp_path, content).kind is ProblemKind.DAMAGED


def test_a_hold_of_which_not_all_is_certain_is_read_again() -> None:
    entries = (
        replace(HOLD, chips=(), reserved=(0, 1)),
        replace(HOLD, chips=(0,)),
        replace(HOLD, chips=(0, 1, 2)),
    )

    assert decoded(encoded(*entries)) == entries


def test_no_bit_of_a_journal_can_turn() -> None:
    for position in range(8 * len(GOOD)):
        flipped = bytearray(GOOD)
        flipped[position // 8] ^= 1 << position % 8

        with pytest.raises(file.UnusableError):
            decoded(bytes(flipped))


def test_no_part_of_a_journal_passes_for_one() -> None:
    for length in range(len(GOOD)):
        with pytest.raises(file.UnusableError):
            decoded(GOOD[:length])


def while_writing(path: Path) -> None:
    path.with_name("holds.tmp-9").write_bytes(b"half of it")


def between_the_renames(path: Path) -> None:
    path.rename(path.with_name("holds.old"))


@pytest.mark.parametrize("dies", [while_writing, between_the_renames])
def test_an_agent_that_died_leaves_the_old_journal(
    tmp_path: Path, dies: Callable[[Path], None]
) -> None:
    journal_in(tmp_path).write([HOLD])
    dies(tmp_path / "holds")

    assert journal_in(tmp_path).read() == (HOLD,)
    assert names_in(tmp_path) == ["holds"]


def test_an_agent_that_died_before_the_clean_up_leaves_the_new_journal(
    tmp_path: Path,
) -> None:
    holds = journal_in(tmp_path)
    holds.write([HOLD])
    (tmp_path / "holds").rename(tmp_path / "holds.old")
    journal_in(tmp_path).write([HOLD, LATER])
    (tmp_path / "holds.old").write_bytes(GOOD)

    again = journal_in(tmp_path)

    assert again.read() == (HOLD, LATER)
    again.write([LATER])
    assert names_in(tmp_path) == ["holds"]


def test_a_write_that_fails_says_so_and_leaves_the_old_journal(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    holds = journal_in(directory)
    holds.write([HOLD])
    directory.rename(tmp_path / "elsewhere")

    with pytest.raises(JournalError, match="No such file or directory"):
        holds.write([LATER])

    (tmp_path / "elsewhere").rename(directory)
    assert holds.read() == (HOLD,)


def test_the_disk_being_full_leaves_the_old_journal() -> None:
    full = Path("/dev/full")

    # Every write to it fails with ENOSPC; a rename in /dev is never reached.
    with pytest.raises(OSError, match="No space left"):
        file._create(str(full), b"x")


def test_a_write_that_hung_gives_way_to_the_newer_one(tmp_path: Path) -> None:
    holds = journal_in(tmp_path)
    stalled = tmp_path / "holds.tmp-1"
    os.mkfifo(stalled)  # opening it for writing hangs until somebody reads
    older = threading.Thread(target=holds.write, args=([HOLD],))
    older.start()
    while holds._newest < 1:  # until the older one has begun
        pass
    holds.write([LATER])

    with stalled.open("rb") as disk:
        disk.read()
    older.join()

    assert holds.read() == (LATER,)
    assert names_in(tmp_path) == ["holds"]


def test_a_write_that_hung_does_not_replace_the_journal_of_the_next_agent(
    tmp_path: Path,
) -> None:
    numbers = count(1)
    ended, begun = journal_in(tmp_path, numbers), journal_in(tmp_path, numbers)
    stalled, disk = tmp_path / "holds.tmp-1", tmp_path / "disk"
    os.mkfifo(stalled)
    os.link(stalled, disk)
    older = threading.Thread(target=ended.write, args=([HOLD],))
    older.start()
    while ended._newest < 1:  # until it has begun
        pass
    ended.close()
    begun.write([LATER])

    with disk.open("rb") as end:
        end.read()
    older.join()
    disk.unlink()

    assert begun.read() == (LATER,)
    assert names_in(tmp_path) == ["holds"]
