import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Return what is logged; the process's own logging is put back afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    made = io.StringIO()
    logs.setup("info", stream=made)
    yield made
    root.handlers[:], level = before
    root.setLevel(level)


def test_a_fact_is_one_line_of_json(stream: io.StringIO) -> None:
    extra = {"node": "n1", "chip": 3, "path": Path("/x")}
    logging.getLogger("agent.health.conditions").warning(
        "chip\n%s", "broke", extra=extra
    )

    (text,) = stream.getvalue().splitlines()
    line = json.loads(text)

    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "agent.health.conditions",
        "msg": "chip\nbroke",
        "node": "n1",
        "chip": 3,
        "path": "/x",
    }


def test_a_traceback_is_in_the_same_line(stream: io.StringIO) -> None:
    try:
        int("boom")
    except ValueError:
        logging.getLogger("x").exception("failed")

    (text,) = stream.getvalue().splitlines()

    assert json.loads(text)["exc"].endswith("with base 10: 'boom'")


def test_what_is_below_the_level_is_left_out(stream: io.StringIO) -> None:
    logging.getLogger("x").debug("detail")

    assert stream.getvalue() == ""
