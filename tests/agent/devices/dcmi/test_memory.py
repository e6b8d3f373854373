"""The file with what is known of a node's chips, on every kind of disk."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from agent.devices.board_size import fit_row
from agent.devices.dcmi.memory import FLUSH_S, NAME, READ_WITHIN_S, Known, Memory
from agent.devices.dcmi.values import SuperPodPlace
from scheduler_core.products.table import PRODUCTS
from tests.agent.devices.played_library import A3_SUPERPOD, ATLAS_800, DUO
from tests.support.until import equal, until

NODE = "node-1"
KNOWN = Known((fit_row("atlas-800-training", 7),), ATLAS_800)
CHANGED = Known(KNOWN.products, (replace(ATLAS_800[0], ip="10.9.9.9"),))


def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path, NODE)


async def stored(directory: Path, known: Known) -> None:
    before = memory(directory)
    before.store(known)
    await before.flush()


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [cast("Any", record).reason for record in caplog.records]


@pytest.mark.parametrize("row", PRODUCTS, ids=lambda row: row.key)
async def test_each_row_is_known_to_the_next_agent(tmp_path: Path, row: Any) -> None:
    whole = fit_row(row.key, fit_row(row.key, 0).chip_count - 1)
    known = Known((whole,), ATLAS_800[:1])
    await stored(tmp_path, known)

    assert await memory(tmp_path).read() == known


@pytest.mark.parametrize(
    "known",
    [
        KNOWN,
        Known((fit_row("atlas-a3-16-superpod", 15),), A3_SUPERPOD),
        Known((fit_row("atlas-300i-duo-chip", 5),), DUO),
        Known((fit_row("atlas-a2-8", 7), fit_row("atlas-310p", 9, 0xFF)), ()),
        Known(
            KNOWN.products,
            (
                replace(
                    ATLAS_800[0],
                    virtual=((100, "vir04"), (101, "vir02")),
                    superpod=SuperPodPlace(
                        super_device_id=0xFFFFFFFF, super_pod_id=-2, server_index=0
                    ),
                    numa=-1,
                    ip="",
                ),
            ),
        ),
    ],
)
async def test_what_was_told_of_each_chip_is_known_to_the_next_agent(
    tmp_path: Path, known: Known
) -> None:
    await stored(tmp_path, known)

    assert await memory(tmp_path).read() == known


def corruptions(text: bytes) -> Iterator[bytes]:
    """The file cut off anywhere, and with nonsense in each of its parts."""
    yield from (text[:length] for length in range(0, len(text), 97))
    yield from (b"\x00" * len(text), b"null", b"[]", b"{}", b"\xff\xfe", b"\n")
    for old, new in (
        (b'"atlas-800-training"', b'"atlas-9000"'),
        (b'"highest":7', b'"highest":8'),
        (b'"highest":7', b'"highest":"7"'),
        (b'"node":"node-1"', b'"node":"node-2"'),
        (b'"node":"node-1"', b'"node":7'),
        (b'"physical_id":3', b'"physical_id":"three"'),
        (b'"rows":[', b'"rows":[[],'),
        (b'"highest":7', b'"highest":-9'),
        (b'"absent":0', b'"absent":255'),
        (b'"absent":0', b'"absent":-1'),
        (b'"physical_id":3', b'"physical_id":-3'),
        (b'"physical_id":3', b'"physical_id":2'),
        (b'"physical_id":3', b'"physical_id":1000000000000'),
    ):
        assert old in text
        yield text.replace(old, new)


async def test_of_a_file_that_is_no_good_nothing_is_known_and_the_reason_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stored(tmp_path, KNOWN)
    file = tmp_path / NAME
    good = file.read_bytes()
    for text in corruptions(good):
        caplog.clear()
        file.write_bytes(text)
        assert await memory(tmp_path).read() == Known(), text
        (reason,) = reasons(caplog)
        assert str(file) in reason


async def test_a_node_without_the_file_is_nothing_to_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await memory(tmp_path).read() == Known()
    assert not caplog.records


async def test_what_another_node_was_told_is_not_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stored(tmp_path, KNOWN)

    assert await Memory(tmp_path, "node-2").read() == Known()
    assert reasons(caplog) == [
        f"{tmp_path / NAME}: node: expected 'node-2', found 'node-1'"
    ]


async def test_a_folder_in_place_of_the_file_is_logged_and_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).mkdir()
    one = memory(tmp_path)
    assert await one.read() == Known()
    one.store(KNOWN)
    await one.flush()

    assert ["Is a directory" in reason for reason in reasons(caplog)] == [True, True]


async def test_it_is_written_when_facts_change_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / NAME

    def version() -> int:
        return file.stat().st_ino

    one = memory(tmp_path)
    one.store(KNOWN)
    await one.flush()
    first = version()
    kept = os.open(file, os.O_RDONLY)  # so that its number is given to no other file
    for _ in range(5):
        one.store(Known(KNOWN.products, tuple(KNOWN.identities)))
        await one.flush()
    assert version() == first
    two = memory(tmp_path)
    assert await two.read() == KNOWN
    two.store(KNOWN)
    await two.flush()
    assert version() == first

    two.store(CHANGED)
    await two.flush()
    assert version() != first
    assert await memory(tmp_path).read() == CHANGED
    os.close(kept)


async def test_of_changes_that_come_during_a_write_the_last_is_written(
    tmp_path: Path,
) -> None:
    one = memory(tmp_path)
    for chip in ATLAS_800:
        one.store(Known(KNOWN.products, (chip,)))
    await one.flush()

    assert await memory(tmp_path).read() == Known(KNOWN.products, ATLAS_800[-1:])


async def test_what_was_not_written_is_written_once_the_disk_is_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "not there yet"
    one = memory(folder)
    for _ in range(3):
        one.store(KNOWN)
        await one.flush()
    assert reasons(caplog) == [f"{folder / NAME}: No such file or directory"]

    folder.mkdir()
    one.store(KNOWN)
    await one.flush()
    assert await memory(folder).read() == KNOWN


async def test_a_full_disk_leaves_what_was_known_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stored(tmp_path, KNOWN)
    (tmp_path / NAME).with_suffix(".new").symlink_to("/dev/full")
    await stored(tmp_path, CHANGED)

    assert reasons(caplog) == [f"{tmp_path / NAME}: No space left on device"]
    assert await memory(tmp_path).read() == KNOWN


@pytest.mark.looptime
async def test_a_disk_that_hangs_at_the_start_is_waited_for_only_so_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / NAME
    os.mkfifo(file)  # to open it for reading takes until somebody writes
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    beat = asyncio.create_task(asyncio.sleep(1.0))

    known = await memory(tmp_path).read()

    assert known == Known()
    assert loop.time() == began_s + READ_WITHIN_S
    assert beat.done()
    assert reasons(caplog) == [f"{file}: the disk did not answer within 3 s"]
    threading.Thread(target=file.write_bytes, args=(b"",), daemon=True).start()


@pytest.mark.looptime
async def test_a_disk_that_hangs_delays_nobody(tmp_path: Path) -> None:
    hanging = tmp_path / "chips.new"
    os.mkfifo(hanging)  # to open it for writing takes until somebody reads
    one = memory(tmp_path)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for known in (KNOWN, CHANGED, KNOWN):
        one.store(known)
    assert loop.time() == began_s
    await one.flush()
    assert loop.time() == began_s + FLUSH_S

    reader = threading.Thread(target=hanging.read_bytes)
    reader.start()
    reader.join()


async def test_after_a_disk_has_hung_the_last_is_written(tmp_path: Path) -> None:
    hanging = tmp_path / "chips.new"
    os.mkfifo(hanging)
    one = memory(tmp_path)
    one.store(KNOWN)
    one.store(CHANGED)
    await asyncio.to_thread(hanging.read_bytes)

    async def content() -> Known | None:
        # the pipe has become the file, and is replaced by the next write
        return await memory(tmp_path).read() if (tmp_path / NAME).is_file() else None

    await until(content, equal(CHANGED), within_s=10.0)
