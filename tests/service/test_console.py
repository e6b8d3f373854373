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
