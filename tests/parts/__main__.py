"""Run parts of the checks, and print what each took.

    python -m tests.parts ci             what each change must pass: .ci/run
    python -m tests.parts core           make e2e-core
    python -m tests.parts quarter [N]    make quarter
    python -m tests.parts everything     make everything

Exit code 1: a part failed or could not run. What each printed is in build/parts/.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from tests.parts import plans
from tests.parts.lanes import Interrupts, Lanes, Stage, State, show, summary
from tests.parts.quarters import QUARTERS, ROOT

_INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.parts")
    parser.add_argument("what", choices=("ci", "core", "quarter", "everything"))
    numbers = range(1, len(QUARTERS) + 1)
    parser.add_argument("number", type=int, nargs="?", choices=numbers)
    parser.add_argument("--before-s", type=float, default=0.0, help="of setting up")
    asked = parser.parse_args(arguments)
    stages, remark = _planned(asked.what, asked.number)
    show(remark)
    begun = time.monotonic() - asked.before_s
    lanes = Lanes(ROOT / "build" / "parts", show)
    try:
        with Interrupts():
            lanes.run(stages)
    except KeyboardInterrupt:
        show("\ninterrupted\n")
        return _INTERRUPTED
    finally:
        show(summary(lanes.outcomes, time.monotonic() - begun, asked.before_s))
        show(remark)
    return int(any(each.state is not State.OK for each in lanes.outcomes))


def _planned(what: str, number: int | None) -> tuple[Sequence[Stage], str]:
    """Return what runs, and what is to be said of it."""
    if what == "core":
        return plans.core(ROOT), ""
    if what == "everything":
        return plans.everything(ROOT), ""
    reason = "as asked for"
    if number is None:
        number, reason = plans.choose(ROOT)
    remark = (
        f"Quarter {number} of {len(QUARTERS)}, {reason}. Another: "
        f"make quarter QUARTER={number % len(QUARTERS) + 1}\n"
    )
    stages = plans.ci(ROOT, number) if what == "ci" else plans.quarter(number)
    return stages, remark


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
