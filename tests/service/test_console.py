import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "words",
    [("-m", "sandbox", "faults"), ("-m", "agent", "--help")],
)
def test_whoever_does_not_read_to_the_end_sees_no_traceback(
    words: tuple[str, ...],
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(  # noqa: S603  # our own program
            [sys.executable, *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (0, "")
