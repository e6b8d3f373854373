"""Traces replayed: what our choices of node and chips leave, against others.

Time is simulated. A job that does not find room when it comes is rejected and does
not come again, so that what a way of choosing costs shows as jobs, not as a queue.

    python -m benchmarks replay             the figures, as JSON
    python -m benchmarks.replay PATH.svg    the same as a table, and a plot
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from itertools import product as every
from pathlib import Path

from benchmarks import trace
from benchmarks.fleet import Fleet, Places, Way, ways
from benchmarks.plot import Panel, Point, svg
from benchmarks.table import Row, render
from benchmarks.trace import TraceJob
from scheduler_core.products.table import ATLAS_800_TRAINING

PRODUCT = ATLAS_800_TRAINING
LOADS = (0.7, 0.9, 1.1)
OURS = "ours"
#: those that ours must be better than
_FAR_OFF = "random"
_MUST_BEAT = ("first fit", _FAR_OFF)
_GOAL = f"{OURS} better than {' and '.join(_MUST_BEAT)}, intervals apart"
#: of the cluster
NODES = trace.CLUSTER_CHIPS // PRODUCT.chip_count
#: share of a trace's time in which the cluster fills, and nothing is measured
_WARM_UP = 0.1
#: Student's t, two-sided 95 %, for ten runs
_T = 2.262


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to, after its warm-up."""

    #: over all nodes, averaged over time
    fragmentation: float
    #: free chips that no pod of a whole node could use, averaged over time
    stranded: float
    #: chip-seconds of jobs that were placed, of those that were asked for
    placed: float
    #: {chips of a job: share of such jobs that were rejected}
    rejected: Mapping[int, float]


@dataclass(slots=True)
class _Average:
    """The average of something over time, from a moment on."""

    since_s: float
    now_s: float = 0.0
    area: float = 0.0

    def add(self, value: float, until_s: float) -> None:
        """It had this value until then."""
        self.area += value * max(until_s - max(self.now_s, self.since_s), 0.0)
        self.now_s = until_s

    @property
    def value(self) -> float:
        """The average so far."""
        return self.area / (self.now_s - self.since_s)


def replay(jobs: Sequence[TraceJob], load: float, way: Way) -> Outcome:
    """Run a trace once.

    Args:
        jobs: By arrival.
        load: How many times as fast as at load 1 they come.
        way: How node and chips are chosen.
    """
    fleet = Fleet(PRODUCT, NODES)
    since_s = _WARM_UP * jobs[-1].arrival_s / load
    fragmentation, stranded = _Average(since_s), _Average(since_s)
    asked: Counter[int] = Counter()
    refused: Counter[int] = Counter()
    asked_s = placed_s = 0
    running: list[tuple[float, int, Places]] = []
    order = count()

    def pass_until(now_s: float) -> None:
        fragmentation.add(fleet.fragmentation, now_s)
        stranded.add(fleet.stranded, now_s)

    for job in jobs:
        now_s = job.arrival_s / load
        while running and running[0][0] <= now_s:
            ended_s, _, places = heappop(running)
            pass_until(ended_s)
            for name, mask in places:
                fleet.give_back(name, mask)
        pass_until(now_s)
        places = way(fleet, job.pods, job.chips) or ()
        for name, mask in places:
            fleet.take(name, mask)
        if places:
            heappush(running, (now_s + job.duration_s, next(order), places))
        if now_s >= since_s:
            asked[job.size] += 1
            refused[job.size] += not places
            asked_s += job.size * job.duration_s
            placed_s += job.size * job.duration_s if places else 0
    return Outcome(
        fragmentation=fragmentation.value,
        stranded=stranded.value,
        placed=placed_s / asked_s,
        rejected={size: refused[size] / asked[size] for size in sorted(asked)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """What is looked at."""

    name: str
    less_is_better: bool
    of: Callable[[Outcome], float]
    #: whether ours must be better than some others
    has_goal: bool = False


def _figures() -> tuple[_Figure, ...]:
    sizes = sorted({job.size for job in trace.make(0)})

    def rejected(size: int) -> Callable[[Outcome], float]:
        return lambda outcome: 100 * outcome.rejected[size]

    return (
        _Figure(
            name="fragmentation, time-averaged",
            has_goal=True,
            less_is_better=True,
            of=lambda outcome: outcome.fragmentation,
        ),
        _Figure(
            name=f"stranded({PRODUCT.chip_count}), chips, time-averaged",
            has_goal=True,
            less_is_better=True,
            of=lambda outcome: outcome.stranded,
        ),
        _Figure(
            name="chip-hours placed, % of those asked for",
            has_goal=True,
            less_is_better=False,
            of=lambda outcome: 100 * outcome.placed,
        ),
        *(
            _Figure(
                name=f"jobs of {size} chip{'s' * (size > 1)} rejected, %",
                less_is_better=True,
                of=rejected(size),
            )
            for size in sizes
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean, and half the width of its 95 % interval."""

    mean: float
    half: float

    def is_below(self, other: "Interval") -> bool:
        """Whether all of it is below all of the other."""
        return self.mean + self.half < other.mean - other.half


def interval(values: Sequence[float]) -> Interval:
    """The mean of ten independent runs."""
    runs = len(values)
    mean = math.fsum(values) / runs
    variance = math.fsum((value - mean) ** 2 for value in values) / (runs - 1)
    return Interval(mean=mean, half=_T * math.sqrt(variance / runs))


#: {way: a figure of each seed}
Samples = Mapping[str, Sequence[float]]
#: {(way, load): outcome of each seed}
Runs = Mapping[tuple[str, float], Sequence[Outcome]]


def run() -> Runs:
    """Every way, load and seed. Takes about half a minute."""
    found: dict[tuple[str, float], list[Outcome]] = {}
    for seed, load in every(trace.SEEDS, LOADS):
        jobs = trace.make(seed)
        for name, way in ways(seed).items():
            found.setdefault((name, load), []).append(replay(jobs, load, way))
    return found


def rows() -> list[Row]:
    """The figures of all runs, and whether ours are better where they must be."""
    return list(_rows(run()))


def _rows(runs: Runs) -> Iterator[Row]:
    for figure in _figures():
        if figure.has_goal:
            for load in LOADS:
                yield _row(
                    f"load {load:g}: {figure.name}", _samples(figure, runs, load)
                )
        samples = _samples(figure, runs, None)
        row = _row(f"all loads: {figure.name}", samples)
        if figure.has_goal:
            beaten = [_beats(figure, samples, name) for name in _MUST_BEAT]
            row = replace(row, goal=_GOAL, passed=all(beaten))
        yield row


def _samples(figure: _Figure, runs: Runs, load: float | None) -> Samples:
    """The figure by way and seed, at a load; without one, the mean over all loads."""
    loads = LOADS if load is None else (load,)
    names = dict.fromkeys(name for name, _ in runs)
    return {
        name: [
            math.fsum(map(figure.of, outcomes)) / len(loads)
            for outcomes in zip(*(runs[name, load] for load in loads), strict=True)
        ]
        for name in names
    }


def _row(figure: str, samples: Samples) -> Row:
    """Means with their intervals, and how far the others are from ours, in pairs."""
    own = samples[OURS]
    parts = []
    for name, values in samples.items():
        found = interval(values)
        part = f"{name} {found.mean:.1f} ± {found.half:.1f}"
        if name != OURS:
            pairs = zip(values, own, strict=True)
            beyond = interval([theirs - mine for theirs, mine in pairs])
            part += f" ({beyond.mean:+.2f} ± {beyond.half:.2f})"
        parts.append(part)
    return Row(
        figure=figure, goal="reported as it is", value=", ".join(parts), passed=True
    )


def _beats(figure: _Figure, samples: Samples, other: str) -> bool:
    mine, theirs = interval(samples[OURS]), interval(samples[other])
    if figure.less_is_better:
        return mine.is_below(theirs)
    return theirs.is_below(mine)


def plot(runs: Runs) -> str:
    """The figures that have a goal, as SVG; random is too far off to be shown."""
    shown = {key: runs[key] for key in runs if key[0] != _FAR_OFF}
    panels = []
    for figure in _figures():
        if figure.has_goal:
            groups = [
                (f"load {load:g}", _points(_samples(figure, shown, load)))
                for load in LOADS
            ]
            panels.append(Panel(title=figure.name, groups=groups))
    return svg(panels, list(dict.fromkeys(name for name, _ in shown)))


def _points(samples: Samples) -> list[Point]:
    found = map(interval, samples.values())
    return [Point(mean=each.mean, half=each.half) for each in found]


def main(arguments: Sequence[str]) -> int:
    """Print the table, and write the plot where an argument says."""
    runs = run()
    sys.stdout.write(render(_rows(runs)) + "\n")
    for path in arguments:
        Path(path).write_text(plot(runs), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
