"""Print the figures of docs/performance.md, measured here and now.

Each part runs in a process of its own, so that none is measured in another's
heap or beside another's threads.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from importlib import import_module

from benchmarks import go_filter
from benchmarks.table import Row, render
from tests.e2e import bare
from tests.e2e.stages import CannotError

PARTS = (
    *("core", "products", "networks", "parts", "library", "replay", "regret"),
    *("allocate", "extender", "volcano", "start", "gang", "visible", "recovery"),
    *("node", "crowd", "idle", "day", "hardware"),
)
#: {part: check}, left out where Go is missing, or Kubernetes' programs are not built
OPTIONAL = {"go_filter": go_filter.check, "scheduler": bare.check}
#: Asked for by name only: the first needs the real cluster of `make e2e-up`, the
#: others take a quarter of an hour, fifty times an agent's memory, and gigabytes.
BY_NAME = ("kubelet", "steady", "agents", "growth")


def measured(part: str) -> list[Row]:
    """Run one part and return its rows."""
    command = [sys.executable, "-m", "benchmarks", part]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603  # our own
    return [Row(**row) for row in json.loads(done.stdout)]


def main(arguments: list[str]) -> int:
    """Print the rows of one part as JSON, or the table of all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure on this machine what docs/performance.md tells.",
    )
    parser.add_argument(
        "part",
        nargs="?",
        choices=[*PARTS, *OPTIONAL, *BY_NAME],
        metavar="PART",
        help="only this part, as JSON: %(choices)s; without it all but the last four, "
        "as a table",
    )
    part = parser.parse_args(arguments).part
    if part is not None:
        rows = import_module(f"benchmarks.{part}").rows()
        json.dump([asdict(row) for row in rows], sys.stdout)
        return 0
    found: list[Row] = []
    for part in PARTS:
        sys.stderr.write(f"measuring {part} …\n")
        found += measured(part)
    for part, check in OPTIONAL.items():
        try:
            check()
        except CannotError as error:
            sys.stderr.write(f"leaving out {part}: {error}\n")
        else:
            sys.stderr.write(f"measuring {part} …\n")
            found += measured(part)
    sys.stdout.write(render(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
