"""Run one of our programs by a clock on the wall that can be stepped.

`python -m sandbox.clock FILE MODULE [ARGUMENT …]` runs a module as `python -m` does.
FILE holds how far ahead its clock is, in seconds, as one double; whoever writes another
number there has stepped it.

Our programs read the clock on the wall in one place, and there two functions are stood
in for. Libraries keep the machine's clock: gRPC, for one, takes a deadline from
Python and compares it with the kernel, whose clock a real step would have stepped too.
Time that passes stays as it is: no step of a real clock reaches that either.
"""

import mmap
import runpy
import sys
from pathlib import Path

from service import clock

_NS = 1_000_000_000


def begin(file: Path) -> None:
    """Make the file of a clock that is right."""
    file.write_bytes(bytes(8))


def step(file: Path, by_s: float) -> None:
    """Step a clock, beside what it has been stepped before.

    Args:
        file: Of that clock.
        by_s: How far ahead; below 0: back. Unit: seconds.
    """
    with (
        file.open("r+b") as opened,
        mmap.mmap(opened.fileno(), 8) as shared,
        memoryview(shared) as whole,
        whole.cast("d") as ahead,
    ):
        ahead[0] += by_s


def _follow(file: Path) -> None:
    """Let our clock on the wall tell what this one tells, from now on."""
    with file.open("rb") as opened:
        shared = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    ahead = memoryview(shared).cast("d")
    true_s, true_ns = clock.wall_s, clock.wall_ns

    def stepped_s() -> float:
        return true_s() + ahead[0]

    def stepped_ns() -> int:
        return true_ns() + int(ahead[0] * _NS)

    clock.wall_s = stepped_s
    clock.wall_ns = stepped_ns


if __name__ == "__main__":
    _, _file, _module, *_arguments = sys.argv
    _follow(Path(_file))
    sys.argv = [_module, *_arguments]
    runpy.run_module(_module, run_name="__main__", alter_sys=True)
