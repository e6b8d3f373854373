"""Traces of jobs for `benchmarks.replay`, and the generator that made them.

    python -m benchmarks.trace

writes `benchmarks/traces/` again, byte for byte the same. A line is one job: how many
seconds after the one before it comes (at load 1), its pods, the chips of each, how
many seconds it runs. Load 1 asks for as many chips as there are, on the average; at
another load the same jobs come closer together or further apart.
"""

import random  # noqa: TID251  # seeded: the same traces in every run
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

#: chips of the cluster for which load 1 is load 1
CLUSTER_CHIPS = 256
SEEDS = range(10)
FOLDER = Path(__file__).parent / "traces"

_JOBS = 4_000
#: (pods, chips of each): share of the jobs
_SIZES = {(1, 1): 40, (1, 2): 20, (1, 4): 20, (1, 8): 15, (2, 8): 5}
#: of the duration, log-normal: the median in seconds, and the spread
_MEDIAN_S, _SIGMA = 3_600.0, 1.0
_SHORTEST_S, _LONGEST_S = 60, 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job."""

    arrival_s: int
    pods: int
    #: of each pod
    chips: int
    duration_s: int

    @property
    def size(self) -> int:
        """Chips of all its pods."""
        return self.pods * self.chips


def make(seed: int) -> tuple[TraceJob, ...]:
    """The jobs of a seed, by arrival."""
    chance = random.Random(seed)  # noqa: S311  # no secret is made
    kinds = chance.choices(list(_SIZES), list(_SIZES.values()), k=_JOBS)
    durations = [_duration_s(chance) for _ in kinds]
    chip_seconds = sum(
        pods * chips * duration
        for (pods, chips), duration in zip(kinds, durations, strict=True)
    )
    rate = _JOBS * CLUSTER_CHIPS / chip_seconds
    return tuple(
        TraceJob(arrival_s=arrival, pods=pods, chips=chips, duration_s=duration)
        for arrival, (pods, chips), duration in zip(
            _arrivals(chance, rate), kinds, durations, strict=False
        )
    )


def _duration_s(chance: random.Random) -> int:
    drawn = _MEDIAN_S * chance.lognormvariate(0.0, _SIGMA)
    return min(max(round(drawn), _SHORTEST_S), _LONGEST_S)


def _arrivals(chance: random.Random, rate: float) -> Iterator[int]:
    now = 0.0
    while True:
        now += chance.expovariate(rate)
        yield round(now)


def render(jobs: Sequence[TraceJob]) -> str:
    """The text of a trace."""
    arrivals = [0, *(job.arrival_s for job in jobs)]
    return "".join(
        f"{job.arrival_s - before_s} {job.pods} {job.chips} {job.duration_s}\n"
        for before_s, job in zip(arrivals, jobs, strict=False)
    )


def read(seed: int) -> tuple[TraceJob, ...]:
    """The committed trace of a seed."""
    lines = path(seed).read_text(encoding="ascii").splitlines()
    numbers = [[int(word) for word in line.split()] for line in lines]
    arrivals = accumulate(after_s for after_s, *_ in numbers)
    return tuple(
        TraceJob(arrival_s=arrival_s, pods=pods, chips=chips, duration_s=duration_s)
        for arrival_s, (_, pods, chips, duration_s) in zip(
            arrivals, numbers, strict=True
        )
    )


def path(seed: int) -> Path:
    """Where the trace of a seed is."""
    return FOLDER / f"seed-{seed}.txt"


def main() -> int:
    """Write all traces."""
    FOLDER.mkdir(exist_ok=True)
    for seed in SEEDS:
        path(seed).write_text(render(make(seed)), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
