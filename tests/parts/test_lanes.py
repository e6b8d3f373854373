import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.parts.lanes import Lanes, Outcome, Part, Stage, State, summary
from tests.parts.quarters import ROOT


def part(name: str, script: str, *needs: str, is_end: bool = False) -> Part:
    command = ("sh", "-c", script)
    return Part(name=name, command=command, needs=needs, is_end=is_end)


class Shown:
    """Runs stages, and keeps what is shown."""

    def __init__(self, folder: Path) -> None:
        self.texts: list[str] = []
        self.lanes = Lanes(folder, self.texts.append)

    def run(self, *stages: Stage) -> Sequence[tuple[str, State]]:
        self.lanes.run(stages)
        return self.states()

    def states(self) -> Sequence[tuple[str, State]]:
        return [(each.name, each.state) for each in self.lanes.outcomes]

    @property
    def text(self) -> str:
        return "".join(self.texts)


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    return Shown(tmp_path / "logs")


def test_the_next_part_runs_though_one_has_failed(shown: Shown) -> None:
    states = shown.run(Stage(main=[part("a", "exit 3"), part("b", "echo here")]))

    assert states == [("a", State.FAILED), ("b", State.OK)]
    assert "here\n" in shown.text


def test_a_part_without_what_it_needs_does_not_run(shown: Shown) -> None:
    states = shown.run(
        Stage(
            main=[part("up", "exit 1"), part("tests", "echo ran", "up")],
            beside=[part("bare", "echo ran", "up"), part("long", "true")],
        )
    )

    assert dict(states) == {
        "up": State.FAILED,
        "tests": State.NOT_RUN,
        "bare": State.NOT_RUN,
        "long": State.OK,
    }
    assert "ran" not in shown.text


def test_beside_goes_on_with_what_needs_nothing_more(
    shown: Shown, tmp_path: Path
) -> None:
    # The build ends when the free part has run: it must not wait for its turn.
    built = f"until test -e {tmp_path}/free; do sleep 0.05; done"
    states = shown.run(
        Stage(
            main=[part("build", built)],
            beside=[
                part("needs it", "true", "build"),
                part("free", f"touch {tmp_path}/free"),
            ],
        )
    )

    assert {*states} == {
        ("build", State.OK),
        ("needs it", State.OK),
        ("free", State.OK),
    }
    assert [name for name, _ in states][-1] == "needs it"


def test_what_a_part_beside_prints_is_shown_whole(shown: Shown, tmp_path: Path) -> None:
    done = tmp_path / "done"
    shown.run(
        Stage(
            main=[
                part(
                    "main",
                    f"echo one; until test -e {done}; do sleep 0.05; done; echo two",
                )
            ],
            beside=[part("beside", f"echo three; echo four; touch {done}")],
        )
    )

    lines = [line for line in shown.text.splitlines() if line.isalpha()]
    assert lines in (["one", "two", "three", "four"], ["three", "four", "one", "two"])


def test_a_stage_begins_when_the_one_before_has_ended(
    shown: Shown, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    states = shown.run(
        Stage(main=[part("a", "true")], beside=[part("b", f"sleep 0.3; touch {mark}")]),
        Stage(main=[part("c", f"test -e {mark}")]),
    )

    assert states == [("a", State.OK), ("b", State.OK), ("c", State.OK)]


def test_the_log_of_each_part_is_kept(shown: Shown, tmp_path: Path) -> None:
    shown.run(Stage(main=[part("make test", "echo é; echo error >&2")]))

    log = (tmp_path / "logs" / "make-test.log").read_text(encoding="utf-8")
    assert log == "é\nerror\n"


def test_an_interrupt_ends_what_runs_and_takes_down_what_is_up(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from tests.parts.lanes import Interrupts, Lanes, Part, Stage

def part(name, script, *needs, is_end=False):
    return Part(name=name, command=("sh", "-c", script), needs=needs, is_end=is_end)

here = Path({str(tmp_path)!r})
lanes = Lanes(here / "logs", print)
try:
    with Interrupts():
        lanes.run([Stage(
            main=[
                part("up", "true"),
                part("tests", f"touch {{here}}/begun; exec sleep 600", "up"),
                part("more", f"touch {{here}}/more"),
                part("down", f"touch {{here}}/down", "up", is_end=True),
            ],
            beside=[part("long", "exec sleep 600"), part("last", f"touch {{here}}/l")],
        )])
except KeyboardInterrupt:
    sys.exit(130)
"""
    command = (sys.executable, "-c", script)
    with subprocess.Popen(  # noqa: S603  # own arguments only
        command, cwd=ROOT, stdout=subprocess.DEVNULL
    ) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"logs", "begun", "down"}


def test_the_summary_has_seconds_and_the_last_line_of_pytest_of_each_part() -> None:
    text = summary(
        [
            Outcome(
                name="make test",
                state=State.OK,
                seconds=301.4,
                text="....\n6265 passed, 20 deselected in 299.12s (0:04:59)\nbye\n",
            ),
            Outcome(name="make demo", state=State.OK, seconds=21, text="shown"),
        ],
        total_s=360,
        before_s=37.6,
    )

    assert text.splitlines()[1:] == [
        "setting up     38 s",
        "make test     301 s  ok      6265 passed, 20 deselected in 299.12s (0:04:59)",
        "make demo      21 s  ok",
        "all           360 s  (6.0 min)",
        "All 2 parts passed.",
    ]


def test_the_summary_ends_with_all_that_failed() -> None:
    failed = "FAILED tests/test_a.py::test_a - assert 1 == 2\n1 failed in 0.10s\n"
    text = summary(
        [
            Outcome(name="make test", state=State.FAILED, seconds=1, text=failed),
            Outcome(name="up", state=State.FAILED, text="no kubelet\n"),
            Outcome(name="core", state=State.NOT_RUN),
            Outcome(name="audit", state=State.OK),
        ],
        total_s=2,
        before_s=0,
    )

    assert text.partition("3 of 4 parts did not pass:\n")[2].splitlines() == [
        "  make test: FAILED",
        "    FAILED tests/test_a.py::test_a - assert 1 == 2",
        "  up: FAILED",
        "    no kubelet",
        "  core: NOT RUN",
    ]


def test_no_thread_is_left(shown: Shown) -> None:
    before = threading.active_count()

    shown.run(Stage(main=[part("a", "true")], beside=[part("b", "true")]))

    assert threading.active_count() == before
