import io
from typing import Any

import pytest

from sandbox.inspect.terminal import Span, Style, Terminal

ESCAPE = "\x1b"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(stream: io.StringIO, environ: dict[str, str]) -> str:
    terminal = Terminal(stream, environ)
    terminal.title("1  A step")
    terminal.good("it holds")
    terminal.bad("it does not")
    return stream.getvalue()


def test_a_terminal_gets_colour() -> None:
    assert told(Screen(), {"TERM": "xterm"}) == (
        "\n\x1b[1m1  A step\x1b[0m\n"
        "   \x1b[32m✓ \x1b[0mit holds\n"
        "   \x1b[31m✗ \x1b[0mit does not\n"
    )


@pytest.mark.parametrize(
    ("stream", "environ"),
    [
        (io.StringIO(), {}),
        (Screen(), {"NO_COLOR": "1"}),
        (Screen(), {"TERM": "dumb"}),
    ],
)
def test_nobody_else_does(stream: Any, environ: dict[str, str]) -> None:
    assert ESCAPE not in told(stream, environ)


def test_an_empty_no_color_is_no_wish() -> None:
    assert ESCAPE in told(Screen(), {"NO_COLOR": ""})


def test_columns_are_aligned_and_nothing_trails() -> None:
    stream = io.StringIO()

    Terminal(stream, {}).table([("pod", "chips"), ("a-long-one", "0")])

    assert stream.getvalue() == "   pod         chips\n   a-long-one  0\n"


def test_lines_keep_their_blanks_inside_only() -> None:
    stream = io.StringIO()

    Terminal(stream, {}).line((Span("a  "), Span("b  ", Style.DIM)))

    assert stream.getvalue() == "   a  b\n"
