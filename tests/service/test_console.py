import os

import pytest

from tests.support.programs import run_python


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "sandbox", "faults"),
        ("-m", "agent", "--help"),
        ("-c", "from tests.service.test_settings import *; load(Settings, ['-h'], {})"),
    ],
    ids=["sandbox", "agent", "settings"],
)
def test_whoever_does_not_read_to_the_end_sees_no_traceback(
    words: tuple[str, ...],
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run_python(*words, stdout=writing, check=False)
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (0, "")


_TERMINAL = """
import os, sys
from sandbox.inspect.terminal import Terminal
from service.console import fit_stdout
fit_stdout()
terminal = Terminal(sys.stdout, os.environ)
terminal.good("checked")
terminal.bad("broken")
terminal.say("pod 训练")
"""
#: Each program, with words that have it write characters beyond ASCII, and what of
#: them an ASCII terminal shows.
_PROGRAMS = {
    "sandbox": (("-m", "sandbox", "faults"), ("ascend-agent-node-1 ...",)),
    "terminal": (
        ("-c", _TERMINAL),
        ("ok checked", "x broken", r"pod \u8bad\u7ec3"),
    ),
    "core": (
        (
            *("-m", "scheduler_core", "explain", "docs/examples/cluster.json"),
            *("docs/examples/job-8.json", "node-训"),
        ),
        (r"node-\u8bad",),
    ),
}


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "latin-1"])
@pytest.mark.parametrize("name", _PROGRAMS)
def test_d10_a_program_writes_what_the_terminal_can_show(
    name: str, encoding: str
) -> None:
    words, expected = _PROGRAMS[name]
    environ = {**os.environ, "PYTHONIOENCODING": encoding}

    done = run_python(*words, check=False, env=environ, encoding=encoding)

    assert "Traceback" not in done.stderr
    assert "UnicodeEncodeError" not in done.stderr
    if encoding == "ascii":
        told = done.stdout + done.stderr
        assert [each for each in expected if each not in told] == []


def test_d10_a_terminal_with_unicode_shows_it() -> None:
    words, _ = _PROGRAMS["terminal"]

    done = run_python(*words, env={**os.environ, "PYTHONIOENCODING": "utf-8"})

    assert done.stdout.split() == ["✓", "checked", "✗", "broken", "pod", "训练"]
