"""Ask every parser so many questions: `make fuzz FUZZ_INPUTS=1000000`.

Each row of the table first gets every leaf at every place of its seeds, then what
hypothesis makes of them. A parser that takes longer than `--hang-s` for one input, or
that wants more memory than the limit, has broken the law as well.
"""

import argparse
import resource
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.hostile import mutations
from tests.hostile.row import LawError, Row, check
from tests.hostile.rows import ROWS

_MEMORY_BYTES = 4 << 30
#: Inputs between two looks at the clock.
_TURN = 500


class _EnoughError(Exception):
    """The time is over."""


class _HangError(Exception):
    """One input has taken too long."""


class _Asked:
    """Asks one row; counts, and knows when it is enough."""

    def __init__(self, row: Row, *, count: int, until_s: float, hang_s: float) -> None:
        self._row = row
        self._left = count
        self._until_s = until_s
        self._hang_s = hang_s
        self.count = 0
        self.taken = 0
        self.longest_s = 0.0

    @property
    def left(self) -> int:
        return self._left - self.count

    def ask(self, content: bytes) -> None:
        if self.left <= 0 or time.monotonic() > self._until_s:
            raise _EnoughError
        signal.setitimer(signal.ITIMER_REAL, self._hang_s)
        began_s = time.monotonic()
        try:
            self.taken += check(self._row, content)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.count += 1


def _fuzz(asked: _Asked, row: Row, seed: int) -> NoReturn:
    leaves = tuple(row.leaves.values())
    for content in mutations.everywhere(row.seeds, leaves):
        asked.ask(content)
    while True:
        _some(asked.ask, row, seed, min(_TURN, asked.left) or 1)
        seed += 1


def _some(ask: Callable[[bytes], None], row: Row, seed: int, count: int) -> None:
    @seeded(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(mutations.mutated(row.seeds, tuple(row.leaves.values())))
    def holds(content: bytes) -> None:
        ask(content)

    holds()


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise _HangError


def _run(row: Row, asked: _Asked, seed: int) -> str:
    """Ask one row to the end; what broke the law, or nothing."""
    try:
        _fuzz(asked, row, seed)
    except _EnoughError:
        return ""
    except LawError as error:
        return str(error)
    except _HangError:
        return f"{row.name}: an input took too long"


def main(argv: list[str]) -> int:
    """Ask all rows; 1 when one has broken the law."""
    told = _parser().parse_args(argv)
    signal.signal(signal.SIGALRM, _hang)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    rows = [row for row in ROWS if told.only in row.name]
    began_s = time.monotonic()
    broken, total = 0, 0
    # of slow ones fewer, or nearly all of the time would be theirs
    parts = sum(_part(row) for row in rows)
    for number, row in enumerate(rows):
        share_s = (told.seconds - (time.monotonic() - began_s)) / (len(rows) - number)
        asked = _Asked(
            row,
            count=-(-told.inputs * _part(row) // parts),
            until_s=time.monotonic() + share_s,
            hang_s=told.hang_s,
        )
        found = _run(row, asked, told.seed)
        _say(
            f"{row.name:50} {asked.count:>9,} inputs, {asked.taken:>9,} taken, "
            f"longest {asked.longest_s:.2f} s"
        )
        if found:
            broken += 1
            _say(f"  BROKEN: {found}")
        total += asked.count
    _say(f"{total:,} inputs, {broken} parsers broken, seed {told.seed}")
    return 1 if broken else 0


def _part(row: Row) -> int:
    return 1 if row.is_slow else 20


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    def option(name: str, default: Any, text: str) -> None:
        kind = type(default)
        parser.add_argument(name, type=kind, default=default, help=text)

    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    option("--inputs", sys.maxsize, "inputs in all")
    option("--seconds", 1e9, "time in all")
    option("--seed", 1, "another seed, other inputs")
    option("--hang-s", 10.0, "longest time for one input")
    option("--only", "", "part of a row's name")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
