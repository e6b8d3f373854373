"""What a filter costs kube-scheduler: a Go client marshals, calls and decodes.

The client does what kube-scheduler's HTTPExtender does (`go_client/main.go`), fifty
times a second with 5,000 names. The extender is that of `benchmarks.extender`. Beside
the time of a call, the processor time that the extender spends on it: that depends less
on what else the machine does.

`python -m benchmarks.go_filter CHECKOUT` measures another checkout and this in turn,
five times each, and prints the medians. Both must be set up (`make .venv/dev.stamp`).
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.deployed import served
from benchmarks.extender import RATE, pod_for
from benchmarks.table import Row, percentile
from tests.e2e.stages import CannotError

_SOURCE = Path(__file__).parent / "go_client"
_NAMES = 5_000
_CALLS = 1_000
_ROUNDS = 5
#: milliseconds
_P50, _P99, _PROCESSOR = 4.0, 10.0, 1.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Milliseconds of one run of the client."""

    p50: float
    p99: float
    #: processor time of the extender, for each call
    processor: float


def check(path: str | None = None) -> None:
    """Check that the client can be built.

    Args:
        path: Folders of programs, as in PATH; None is PATH.

    Raises:
        CannotError: There is no Go.
    """
    if shutil.which("go", path=path) is None:
        raise CannotError("there is no program go in PATH, which builds the client")


def rows() -> list[Row]:
    """Measure. Takes half a minute."""
    what = f"extender filter by a Go client, {_NAMES:,} names, {RATE} a second"
    with built_client() as client, served("benchmarks.extender") as (address, process):
        run = _measured(client, address, process)
    return [
        Row(
            figure=what,
            goal=f"p50 ≤ {_P50:g} ms, p99 ≤ {_P99:g} ms",
            value=f"p50 {run.p50:.2f} ms, p99 {run.p99:.2f} ms",
            passed=run.p50 <= _P50 and run.p99 <= _P99,
        ),
        Row(
            figure=f"{what}: the extender's processor time of a call",
            goal=f"≤ {_PROCESSOR:g} ms",
            value=f"{run.processor:.2f} ms",
            passed=run.processor <= _PROCESSOR,
        ),
    ]


@contextmanager
def built_client() -> Iterator[Path]:
    """The client, built.

    Raises:
        CannotError: There is no Go.
    """
    check()
    with tempfile.TemporaryDirectory() as folder:
        client = Path(folder, "client")
        subprocess.run(  # noqa: S603  # our own
            ["go", "build", "-o", str(client), "main.go"],  # noqa: S607  # by PATH
            cwd=_SOURCE,
            check=True,
        )
        yield client


def _measured(client: Path, address: str, process: psutil.Process) -> Run:
    warm_up = ("--calls", "0", "--warm-up", "50")
    counted = ("--calls", str(_CALLS), "--warm-up", "0")
    _call(client, address, *warm_up)
    before_s = _processor_s(process)
    samples: list[float] = json.loads(_call(client, address, *counted))
    spent_s = _processor_s(process) - before_s
    return Run(
        p50=percentile(samples, 0.5),
        p99=percentile(samples, 0.99),
        processor=spent_s * 1000 / _CALLS,
    )


def _call(client: Path, address: str, *arguments: str) -> bytes:
    command = [str(client), "--url", f"http://{address}/filter", *arguments]
    command += ["--names", str(_NAMES), "--rate", str(RATE)]
    pod = json.dumps(pod_for(1)).encode()
    done = subprocess.run(command, input=pod, stdout=subprocess.PIPE, check=True)  # noqa: S603  # our own
    return done.stdout


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _compare(checkout: Path) -> None:
    """Print the medians of another checkout and of this one, measured in turn."""
    runs: dict[str, list[Run]] = {"before": [], "after": []}
    with (
        built_client() as client,
        served("benchmarks.extender", checkout=checkout) as before,
        served("benchmarks.extender") as after,
    ):
        for _ in range(_ROUNDS):
            runs["before"].append(_measured(client, *before))
            runs["after"].append(_measured(client, *after))
    for title, found in runs.items():
        p50, p99 = median(run.p50 for run in found), median(run.p99 for run in found)
        processor = median(run.processor for run in found)
        print(
            f"{title:6}  p50 {p50:.2f} ms  p99 {p99:.2f} ms  "
            f"extender's processor time {processor:.2f} ms a call"
        )


if __name__ == "__main__":
    _compare(Path(sys.argv[1]).resolve())
