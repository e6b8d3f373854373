"""Churn and faults by chance for a long time: nothing grows, nothing is lost.

MINUTES=30 and SEED choose how long and which faults; the seed is printed.
"""

import os
import random  # noqa: TID251  # with a seed, which is printed
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import truth
from tests.e2e.cluster import Cluster
from tests.e2e.components import Component
from tests.e2e.faults import ours, witness
from tests.e2e.faults.audit import audit
from tests.e2e.faults.trial import Load
from tests.e2e.stages import say

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

_MINUTES = float(os.environ.get("MINUTES", "30"))
_SEED = int(os.environ.get("SEED", str(time.time_ns() % 100_000)))
_SAMPLE_EACH_S = 5.0
_AGREE_WITHIN_S = 20.0
#: What a program may need more in the last quarter of its life than in the second.
_MORE_MEMORY = 1.10
_MORE_COUNT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one of our programs needed at one moment."""

    at_s: float
    pid: int
    memory_mib: float
    descriptors: int
    threads: int
    requests: float


class Gauge:
    """Samples of a program. Protects when the next is due."""

    def __init__(self, program: ours.Program) -> None:
        """None yet."""
        self.program = program
        self.samples: list[Sample] = []
        self._due = 0.0

    def look(self) -> None:
        """Take a sample if one is due; none while the program is away."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _SAMPLE_EACH_S
        try:
            self.samples.append(_sample(self.program, now))
        except (OSError, LookupError):
            return

    def longest(self) -> list[Sample]:
        """Those of the process that lived longest."""
        pids = [sample.pid for sample in self.samples]
        pid = max(set(pids), key=pids.count)
        return [sample for sample in self.samples if sample.pid == pid]


def test_nothing_grows_and_nothing_is_lost(load: Load) -> None:
    say(f"\nsoak: MINUTES={_MINUTES:g} SEED={_SEED}")
    cluster = load.cluster
    chance = random.Random(_SEED)  # noqa: S311  # which fault comes next
    gauges = [Gauge(ours.agent(cluster)), Gauge(ours.extender(cluster))]
    faults = _faults(cluster)
    begun = time.monotonic()
    end = begun + _MINUTES * 60
    load.have_staying()
    counts: dict[str, int] = {}
    while time.monotonic() < end:
        load.churn.go_on()
        _watch(gauges, chance.uniform(5, 15))
        # Later they live on, so that it shows whether they grow.
        early = time.monotonic() < begun + (end - begun) / 4
        name = chance.choice([each for each in faults if early or "our" not in each])
        counts[name] = counts.get(name, 0) + 1
        faults[name]()
        cluster.heal()
        for gauge in gauges:
            gauge.program.wait_ready()
        load.churn.pause()
        truth.until_agreed(cluster, within_s=_AGREE_WITHIN_S)
        load.have_staying()
    load.churn.pause()
    load.churn.wait_idle()
    truth.until_agreed(cluster)

    found = audit(load.chronicle.stories(), witness.lines())
    say(f"faults: {counts}")
    say(f"pods: {found.pod_count}, unconfirmed at their end {len(found.unconfirmed)}")
    grown = [text for gauge in gauges for text in _filter_nodes(gauge, load)]
    assert (found.wrong, found.doubles, grown) == ((), (), [])


def _watch(gauges: Sequence[Gauge], for_s: float) -> None:
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        for gauge in gauges:
            gauge.look()
        time.sleep(0.5)


def _faults(cluster: Cluster) -> dict[str, Callable[[], object]]:
    programs = cluster.programs
    chips = ours.Chips(cluster)
    agent, extender = ours.agent(cluster), ours.extender(cluster)
    return {
        "our agent killed": agent.kill,
        "our extender killed": extender.kill,
        "kubelet killed": programs.kubelet.kill,
        "containerd killed": programs.containerd.kill,
        "API server killed": programs.apiserver.kill,
        "etcd killed": programs.etcd.kill,
        "scheduler killed": programs.scheduler.kill,
        "kubelet frozen": lambda: _frozen(programs.kubelet, 5),
        "API server frozen": lambda: _frozen(programs.apiserver, 8),
        "scheduler frozen": lambda: _frozen(programs.scheduler, 5),
        "chip fails": lambda: _broken(cluster, chips),
        "driver hangs": lambda: _hanging(agent, chips),
    }


def _frozen(component: Component, for_s: float) -> None:
    component.freeze()
    time.sleep(for_s)
    component.thaw()


def _broken(cluster: Cluster, chips: ours.Chips) -> None:
    chips.break_(6)
    truth.wait_node(cluster, unhealthy=(6,), within_s=20)
    time.sleep(3)
    chips.mend()
    truth.wait_node(cluster, unhealthy=(), within_s=20)


def _hanging(agent: ours.Program, chips: ours.Chips) -> None:
    pid = agent.running_pid()
    chips.hang(pid)
    time.sleep(8)
    chips.let_go(pid)


def _sample(program: ours.Program, now: float) -> Sample:
    pid = program.running_pid()
    process = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1)
        for line in (process / "status").read_text(encoding="ascii").splitlines()
    )
    return Sample(
        at_s=now,
        pid=pid,
        memory_mib=int(status["VmRSS"].split()[0]) / 1024,
        descriptors=len(list((process / "fd").iterdir())),
        threads=int(status["Threads"]),
        requests=sum(
            value
            for name, value in program.metrics().items()
            if "api_requests_total" in name
        ),
    )


def _filter_nodes(gauge: Gauge, load: Load) -> list[str]:
    """Print what a program needed over time; say what has grown."""
    samples = gauge.longest()
    quarter = max(1, len(samples) // 4)
    quarters = [samples[n * quarter : (n + 1) * quarter] for n in range(4)]
    name = gauge.program.name
    say(f"{name}: process {samples[0].pid} for {_span_s(samples) / 60:.1f} min")
    say("| quarter | RSS MiB | descriptors | threads | API requests a second |")
    for number, each in enumerate(quarters, 1):
        say(
            f"| {number} | {_median(each, 'memory_mib'):.1f} "
            f"| {_median(each, 'descriptors'):g} | {_median(each, 'threads'):g} "
            f"| {_rate(each):.2f} |"
        )
    before, after = quarters[1], quarters[3]
    grown = []
    if _median(after, "memory_mib") > _median(before, "memory_mib") * _MORE_MEMORY:
        grown.append(f"{name}: memory")
    grown += [
        f"{name}: {what}"
        for what in ("descriptors", "threads")
        if _median(after, what) > _median(before, what) + _MORE_COUNT
    ]
    return grown


def _median(samples: Sequence[Sample], what: str) -> float:
    return statistics.median(float(getattr(each, what)) for each in samples)


def _rate(samples: Sequence[Sample]) -> float:
    taken = samples[-1].requests - samples[0].requests
    return taken / max(_span_s(samples), 1.0)


def _span_s(samples: Sequence[Sample]) -> float:
    return samples[-1].at_s - samples[0].at_s
