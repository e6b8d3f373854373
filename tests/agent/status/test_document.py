"""What `ascend-agent status` shows, and at which socket."""

import asyncio
import json
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.devices.processes import Occupant
from agent.devices.reading import Unread
from agent.devices.simulated import file
from agent.health.conditions import Health, ReadingTaken, step
from agent.health.findings import Change
from agent.status import document, socket
from agent.status.document import View
from tests.agent.announcing import Announced
from tests.agent.node import current, pod
from tests.support.servers import short_folder

BAD = file.parse(
    """
product: atlas-800-training
faults:
  - {chip: 3, code: "80818C00", level: SeparateNPU}
  - {chip: 4, code: "81078603", level: PreSeparateNPU, network: true}
processes: [{chip: 7, pid: 4711}]
"""
)


def view() -> View:
    """One pod has chips, one waits, a process is left on chip 7, chip 3 is broken."""
    now = current(pod("train", [0, 1], 1), pod("next", [2], 2))
    now.mounts_for("train", 0, 1)
    now.read_chips(unhealthy=0b1000, busy=0b10000000)
    health, transitions = step(Health(), ReadingTaken(reading=BAD), 0.0)
    return View(
        ledger=now.ledger,
        reading=BAD,
        health=health,
        changes=tuple(
            Change(at_ms=1_700_000_000_000, transition=each) for each in transitions
        ),
        stray_processes={7: (Occupant(pid=4711, name="python3", user=0),)},
    )


def node(
    *,
    waiting_for: str | None = None,
    stale_since_ms: int | None = None,
    **problems: str,
) -> dict[str, Any]:
    """The agent beside it, with problems by their keys in the document."""
    return {
        "node": "node-1",
        "version": "1.2.3",
        "mode": "scheduled",
        "waiting_for": waiting_for,
        "problems": {**Announced().problems.status(), **problems},
        "stale_since_ms": stale_since_ms,
    }


def test_an_agent_that_serves_no_chips_yet_says_for_what_it_waits() -> None:
    waiting = document.document(
        **node(waiting_for="driver: no file", driverProblem="no file")
    )

    assert waiting.keys() == document.document(view(), **node()).keys()
    assert document.text(waiting) == (
        "node-1: waiting: driver: no file\n"
        "scheduled, agent 1.2.3\n"
        "\n"
        "CHIP  CONDITION  OWNER  FAULTS"
    )


def test_a_person_reads_who_has_what() -> None:
    assert document.text(document.document(view(), **node())) == (
        "node-1: ready\n"
        "atlas-800-training, scheduled, agent 1.2.3\n"
        "\n"
        "CHIP  CONDITION          OWNER                                  FAULTS\n"
        "0     healthy            default/train/main                     -\n"
        "1     healthy            default/train/main                     -\n"
        "2     healthy            -                                      -\n"
        "3     unhealthy          -                                      "
        "SeparateNPU 80818C00\n"
        "4     network-unhealthy  -                                      "
        "PreSeparateNPU 81078603 network\n"
        "5     healthy            -                                      -\n"
        "6     healthy            -                                      -\n"
        "7     healthy            no pod; process 4711 (python3, uid 0)  -\n"
        "default/next waits for its chips: 2\n"
        "\n"
        "Last changes:\n"
        "  2023-11-14T22:13:20Z  chip 3  unhealthy  SeparateNPU 80818C00\n"
        "  2023-11-14T22:13:20Z  chip 4  network-unhealthy  PreSeparateNPU 81078603"
    )


def test_pods_that_have_chips_through_another_plugin_are_named() -> None:
    shown = view()
    theirs = "default/theirs (huawei.com/Ascend910B4)"
    ledger = replace(shown.ledger, foreign={1: theirs, 2: theirs, 7: theirs})
    status = document.document(replace(shown, ledger=ledger), **node())
    lines = document.text(status).splitlines()[4:12]

    assert [re.split(" {2,}", line)[2] for line in lines] == [
        "default/train/main",
        f"default/train/main; {theirs}",
        theirs,
        *("-", "-", "-", "-"),
        f"{theirs}; process 4711 (python3, uid 0)",
    ]


def test_what_is_waited_for_comes_first() -> None:
    waiting = node(
        waiting_for="not registered",
        driverProblem="no answer within 5 s",
        stale_since_ms=1_700_000_000_000,
    )
    status = document.document(view(), **waiting)

    assert status["staleSince"] == "2023-11-14T22:13:20Z"
    assert document.text(status).splitlines()[:3] == [
        "node-1: waiting: not registered",
        "atlas-800-training, scheduled, agent 1.2.3",
        (
            "no chip can be read since 2023-11-14T22:13:20Z, all is from then: "
            "no answer within 5 s"
        ),
    ]


def test_chips_that_cannot_be_read_are_told_with_the_reason() -> None:
    unread = (Unread(chip=2, reason="timed out (-8006)"),)
    reading = replace(BAD, chips=(0, 1, 2, 3, 4, 5, 6), unread=unread)
    status = document.document(
        replace(view(), reading=reading), **node(driverProblem="chip 2: timed out")
    )
    lines = document.text(status).splitlines()

    assert status["staleSince"] is None
    assert lines[2] == "not all chips can be read: chip 2: timed out"
    assert [chip["problem"] for chip in status["chips"]] == [
        *(None, None, "cannot be read: timed out (-8006)"),
        *(None, None, None, None, "vanished"),
    ]
    assert lines[7].endswith("  cannot be read: timed out (-8006)")


def test_what_of_the_fault_configuration_is_not_used_is_named() -> None:
    status = document.document(view(), **node(faultConfigProblem="all but x: wrong"))

    assert status["faultConfigProblem"] == "all but x: wrong"
    assert document.text(status).splitlines()[2] == "all but x: wrong"
    assert document.document(view(), **node())["faultConfigProblem"] is None


def test_d1_a_label_that_contradicts_the_chips_is_named() -> None:
    status = document.document(view(), **node(labelProblem="label: wrong"))

    assert status["labelProblem"] == "label: wrong"
    assert document.text(status).splitlines()[2] == "label: wrong"
    assert document.document(view(), **node())["labelProblem"] is None


def test_d27_pod_resources_that_do_not_answer_are_named() -> None:
    status = document.document(view(), **node(podResourcesProblem="no answer"))

    assert status["podResourcesProblem"] == "no answer"
    assert document.text(status).splitlines()[2] == "no answer"
    assert document.document(view(), **node())["podResourcesProblem"] is None


def test_a_program_reads_the_same() -> None:
    found = document.document(view(), **node())

    assert found["chips"][3] == {
        "chip": 3,
        "condition": "unhealthy",
        "owners": [],
        "releasing": False,
        "pids": [],
        "strayProcesses": [],
        "faults": [
            {
                "code": "80818C00",
                "level": "SeparateNPU",
                "network": False,
                "since": None,
            }
        ],
        "problem": None,
    }
    assert found["chips"][7]["strayProcesses"] == [
        {"pid": 4711, "name": "python3", "user": 0}
    ]
    assert found["claims"] == [{"pod": "default/next", "chips": [2]}]
    assert json.loads(json.dumps(found)) == found


def test_a_pod_that_has_gone_is_named_beside_the_process_that_it_has_left() -> None:
    now = view()
    now = replace(
        now, ledger=replace(now.ledger, pods={}, busy=0b1), stray_processes={}
    )

    lines = document.text(document.document(now, **node())).splitlines()

    assert lines[4].split("  ")[-2].strip() == "default/train/main (gone)"


@pytest.fixture
def path() -> Iterator[Path]:
    with short_folder() as root:
        yield root / "status.sock"


def tell() -> dict[str, Any]:
    return document.document(view(), **node())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def names_in(root: Path) -> list[str]:
    return sorted(str(each) for each in root.rglob("*"))


async def test_whoever_asks_is_told_and_only_root_may(path: Path) -> None:
    async with socket.serve_status(path, tell):
        mode = mode_of(path)
        found = await asyncio.to_thread(socket.ask, path)

    assert (mode, found) == (0o600, tell())
    assert names_in(path.parent) == []


async def test_the_program_prints_it(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"ASCEND_AGENT_STATE_DIR": str(path.parent)}
    async with socket.serve_status(path, tell):
        codes = [
            await asyncio.to_thread(socket.main, argv, environ)
            for argv in ([], ["--json"])
        ]

    assert codes == [0, 0]
    shown = document.text(tell()) + "\n" + json.dumps(tell(), indent=2) + "\n"
    assert capsys.readouterr().out == shown


def test_without_an_agent_it_says_so(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert socket.main(["--socket", str(path)], {}) == 1
    assert capsys.readouterr().err == (
        f"the agent does not answer at {path}: [Errno 2] No such file or directory: "
        f"'{path}'\n"
    )


async def test_a_socket_that_an_agent_left_is_replaced(path: Path) -> None:
    left = socket._bind(path)
    left.close()

    async with socket.serve_status(path, tell):
        found = await asyncio.to_thread(socket.ask, path)

    assert found == tell()


def obstructed(path: Path, kind: str) -> Path:
    """Put something in a socket's place; return where that is."""
    target = path.with_name("target")
    if kind == "file":
        path.write_text("mine")
    elif kind == "link":
        target.write_text("mine")
        path.symlink_to(target)
    else:
        target.mkdir()
        path.with_name("state").symlink_to(target)
        path = path.with_name("state") / path.name
    return path


@pytest.mark.parametrize("kind", ["file", "link", "linked directory"])
async def test_what_is_not_ours_is_neither_followed_nor_removed(
    path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    there = obstructed(path, kind)
    before = names_in(path.parent)

    async with socket.serve_status(there, tell):
        during = names_in(path.parent)

    assert (before, before) == (during, names_in(path.parent))
    assert [each.message for each in caplog.records] == ["no status socket"]


def test_the_program_asks_at_sockets_only(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))

    with pytest.raises(OSError, match="expected a socket, found something else"):
        socket.ask(path)
