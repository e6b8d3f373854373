"""Traces of jobs for `benchmarks.replay`, each made from a seed.

As text, a line is one job: how many seconds after the one before it comes (at load 1),
its pods, the chips of each, how many seconds it runs. Load 1 asks for as many chips as
there are, on the average; at another load the same jobs come closer together or further
apart.
"""

import random  # noqa: TID251  # seeded: the same traces in every run
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: chips of the cluster for which load 1 is load 1
CLUSTER_CHIPS = 256
SEEDS = range(10)
#: SHA-256 of the text of each seed's trace: the figures in docs/performance.md are of
#: these jobs. A Python or a libm that draws other numbers gives other ones.
CHECKSUMS = (
    "7fba8dabb0550c93fdd40979d492c204ec564872ef596117cdc82b2b343f89a2",
    "d90e66eb34404f9d76d17db5eaf613c12b7a267ea1644f0e5a8b72aeea4fd3a8",
    "6f76ba1cbe7594b5e01684d461046366ead00d263f90475b57d14a5a191308b8",
    "6105510435d85d58d58d0235af31ac0327ed1f71cc6cf227964dd7ed7c8b913d",
    "cd0e26bb2d13e1956bb6e766443c8ee320558947d2e081167381ccaee734e5fd",
    "01f732ad9ee168d0696d200e5c7510b100a41792af4b8a5f04bd2f4c1fc77270",
    "e52a488fc011c913f4f8e3b4ac3a3a829c238d340f641ca58e40cd7565f305ea",
    "0367bb3303af243563e673ef8562c173313705ca8dffdb129454918f9c07894e",
    "4c0d0ff9e7ca429e182227ea672423e419567c5ab79a49f6eed3aea5e8cba885",
    "a7516333e6ddd2f5fc5f1c82540b9272691fdc81bfb538ebc8c60c0621eeb828",
)

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
    """Return the jobs of a seed, by arrival."""
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
    """Return a trace as text."""
    arrivals = [0, *(job.arrival_s for job in jobs)]
    return "".join(
        f"{job.arrival_s - before_s} {job.pods} {job.chips} {job.duration_s}\n"
        for before_s, job in zip(arrivals, jobs, strict=False)
    )
