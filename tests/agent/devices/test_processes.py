"""Processes have names, as far as the kernel tells them; nobody waits for one long."""

import asyncio
import os
from pathlib import Path

import pytest

from agent.devices.processes import Occupant, ProcessNames
from tests.agent.devices.fake_proc import add, hanging, let_go, threads
from tests.support.until import until

ME = os.getuid()


async def test_a_process_has_a_name_and_a_user() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "600")
    found = await ProcessNames().describe([process.pid])
    process.kill()
    await process.wait()

    who = Occupant(pid=process.pid, name="sleep", user=ME)
    assert found == {process.pid: who}
    assert str(who) == f"{process.pid} (sleep, uid {ME})"


async def test_one_that_cannot_be_seen_has_its_number() -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()

    found = await ProcessNames().describe([gone.pid])

    assert [str(who) for who in found.values()] == [str(gone.pid)]


async def test_a_long_name_is_read_without_the_command_line(tmp_path: Path) -> None:
    with hanging(tmp_path, 21, "cmdline", "environ", "maps", "stat", "status"):
        (tmp_path / "21" / "comm").write_text("VLLM::EngineCor\n")

        found = await ProcessNames(tmp_path).describe([21])

    assert found == {21: Occupant(pid=21, name="VLLM::EngineCor", user=ME)}


async def test_a_name_of_any_bytes_is_one_line(tmp_path: Path) -> None:
    add(tmp_path, 21)
    (tmp_path / "21" / "comm").write_bytes(b"a\nb\x1b[2J\xff\n")

    found = await ProcessNames(tmp_path).describe([21])

    assert found[21].name == "a?b?[2J\N{REPLACEMENT CHARACTER}"


async def test_a_name_that_hangs_costs_one_thread_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, 20, comm="python3\n")
    before = threads("process names")
    with hanging(tmp_path, 21, "comm"):
        names = ProcessNames(tmp_path, deadline_s=1.0)
        first = await names.describe([20, 21])
        async with asyncio.timeout(50):  # each without waiting for a second
            others = [await names.describe([20]) for _ in range(100)]
        reading = threads("process names") - before
        let_go(tmp_path / "21" / "comm")
        again = await until(
            lambda: names.describe([20]), lambda who: bool(who[20].name)
        )

        os.mkfifo(tmp_path / "21" / "comm")
        hung_again = await names.describe([21])

    python = Occupant(pid=20, name="python3", user=ME)
    assert first == {20: python, 21: Occupant(pid=21)}
    assert others == [{20: Occupant(pid=20)}] * 100
    assert again == {20: python}
    assert hung_again == {21: Occupant(pid=21)}
    assert len(reading) == 1
    assert [record.message for record in caplog.records] == [
        "names of processes given up"
    ]
