"""A node with 64 chips and 250 pods, of which fifty start each second.

The agent is the real program; API server and kubelet are the sandbox's, in this
process. Pods are created as they are after a binding, node and claim written on them,
so that only node and agent are measured: 186 without chips, then 64 with a chip each,
which are deleted and come again. Their claims are in another order than the kubelet's
ids.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.node import NODE, agent
from benchmarks.table import Row, percentile
from sandbox.apiclient import Changed, Object
from sandbox.inspect import pods
from sandbox.inspect.observer import PODS, REAL
from sandbox.world import Machine, World, running

PRODUCT = "atlas-310p"
RESOURCE = "huawei.com/Ascend310P"
CHIPS = 64
PLAIN_PODS = 250 - CHIPS
RATE = 50.0
ROUNDS = 4
_SERVED = str(2**64 - 1)
_PATIENCE_S = 120.0


@dataclass(slots=True)
class Times:
    """When what happened to pods: {name: monotonic seconds}."""

    created: dict[str, float] = field(default_factory=dict)
    asked: list[float] = field(default_factory=list)
    running: dict[str, float] = field(default_factory=dict)
    confirmed: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def note(self, seen: Object) -> None:
        """Take a pod as it is now."""
        name, phase = seen["metadata"]["name"], seen["status"]["phase"]
        written = seen["metadata"].get("annotations", {})
        if phase == "Running":
            self.running.setdefault(name, time.perf_counter())
        # one that is deleted while it runs ends as Failed, too
        if phase == "Failed" and "deletionTimestamp" not in seen["metadata"]:
            self.failed[name] = seen["status"].get("message", "")
        if written.get("predicate-time") == _SERVED:
            self.confirmed.setdefault(name, time.perf_counter())


@dataclass(frozen=True, slots=True)
class _Seen:
    """What came of all rounds."""

    times: Times
    wrong: int
    #: pods with a chip that started in a second, the slowest round
    rate: float
    allocate_s: tuple[float, ...]
    #: of the agent, for all starts and ends
    processor_s: float


def rows() -> list[Row]:
    """Measure. Takes about a minute."""
    seen = asyncio.run(_seen())
    times = seen.times
    npu = sorted(times.confirmed)
    until_running = [times.running[name] - times.created[name] for name in npu]
    until_confirmed = [times.confirmed[name] - times.created[name] for name in npu]
    rejected = len(times.failed)
    count = f"{len(npu)} starts with a chip"
    return [
        Row(
            figure=f"64 chips, 250 pods, {count}: wrong or double, rejected",
            goal="0, 0",
            value=f"{seen.wrong}, {rejected}",
            passed=not seen.wrong and not rejected,
        ),
        Row(
            figure="the same: starts with a chip in a second, slowest of four rounds",
            goal="50 (they come so)",
            value=f"{seen.rate:.0f}",
            passed=seen.rate >= 0.9 * RATE,
        ),
        Row(
            figure="the same: processor time of the agent, for a start and its end",
            goal="≤ 20 ms (50 a second on one core)",
            value=f"{seen.processor_s / len(npu) * 1e3:.1f} ms",
            passed=seen.processor_s / len(npu) <= 1 / RATE,
        ),
        Row(
            figure="the same: Allocate, as the kubelet sees it",
            goal="p99 ≤ 100 ms",
            value=_quantiles(seen.allocate_s),
            passed=percentile(seen.allocate_s, 0.99) <= 0.1,
        ),
        Row(
            figure="the same: from its creation until a pod runs",
            goal="p99 ≤ 1 s",
            value=_quantiles(until_running),
            passed=percentile(until_running, 0.99) <= 1,
        ),
        Row(
            figure="the same: from its creation until its annotations are confirmed",
            goal="p99 ≤ 2 s",
            value=_quantiles(until_confirmed),
            passed=percentile(until_confirmed, 0.99) <= 2,
        ),
    ]


def _quantiles(samples: Iterable[float]) -> str:
    found = list(samples)
    middle, high = percentile(found, 0.5), percentile(found, 0.99)
    return f"p50 {middle * 1e3:.0f} ms, p99 {high * 1e3:.0f} ms"


async def _seen() -> _Seen:
    times, bad, rates = Times(), 0, []
    async with running([Machine(name=NODE, product=PRODUCT)]) as world:
        watching = asyncio.create_task(watch(world, times))
        kubelet = world.kubelets[NODE]
        kubelet.switches.before_allocate = lambda: times.asked.append(
            time.perf_counter()
        )
        await come(world, times, [pod(f"plain-{n}", None) for n in range(PLAIN_PODS)])
        began_s = spent_s()
        for number in range(ROUNDS):
            claims = [(number + chip * 7) % CHIPS for chip in range(CHIPS)]
            names = [f"npu-{number}-{chip}" for chip in range(CHIPS)]
            first = len(times.asked)
            await come(world, times, map(pod, names, claims))
            await until(times, names)
            asked = times.asked[first:]
            rates.append((len(asked) - 1) / (asked[-1] - asked[0]))
            bad += await wrong(world)
            await go(world, names)
        allocate_s = tuple(kubelet.allocate_s)
        processor_s = spent_s() - began_s
        watching.cancel()
    return _Seen(times, bad, min(rates), allocate_s, processor_s)


def spent_s() -> float:
    """Return the processor time of the agent so far. Unit: seconds."""
    spent = agent().cpu_times()
    return float(spent.user + spent.system)


async def watch(world: World, times: Times) -> None:
    """Note what becomes of pods, for ever."""
    async for event in world.api.follow(PODS):
        if isinstance(event, Changed) and not event.gone:
            times.note(event.item)


def pod(name: str, chip: int | None) -> Object:
    """Return a pod that is bound already; without a chip, or with a claim to one."""
    manifest = pods.manifest(name, 1, resource=RESOURCE)
    manifest["spec"]["nodeName"] = NODE
    if chip is None:
        manifest["spec"]["containers"][0]["resources"] = {}
    else:
        manifest["metadata"]["annotations"] = {
            RESOURCE: f"Ascend310P-{chip}",
            "predicate-time": str(time.time_ns()),
        }
    return manifest


async def come(world: World, times: Times, manifests: Iterable[Object]) -> None:
    """Create pods, fifty a second."""
    async with asyncio.TaskGroup() as group:
        next_s = time.perf_counter()
        for manifest in manifests:
            await asyncio.sleep(max(next_s - time.perf_counter(), 0))
            next_s += 1 / RATE
            times.created[manifest["metadata"]["name"]] = time.perf_counter()
            group.create_task(pods.create(world, manifest))


async def until(times: Times, names: Iterable[str]) -> None:
    """Wait until these pods run, confirmed, or have failed."""
    waiting = set(names)
    async with asyncio.timeout(_PATIENCE_S):
        while waiting:
            await asyncio.sleep(0.05)
            served = times.running.keys() & times.confirmed.keys()
            waiting -= served | times.failed.keys()


async def wrong(world: World) -> int:
    """Count containers that have other chips than their pods say, or another's."""
    written = {
        each["metadata"]["name"]: each["metadata"].get("annotations", {})
        for each in await world.api.items(PODS)
    }
    found = {
        record.pod: record.env["ASCEND_VISIBLE_DEVICES"]
        for record in world.kubelets[NODE].containers()
        if record.running and "ASCEND_VISIBLE_DEVICES" in record.env
    }
    said = {
        name: f"Ascend310P-{chips}"
        for name, chips in found.items()
        if {written[name].get(RESOURCE), written[name].get(REAL)}
        == {f"Ascend310P-{chips}"}
    }
    return len(found) - len(said) + CHIPS - len({*said.values()})


async def go(world: World, names: Iterable[str]) -> None:
    """Delete pods, and wait until the agent says that all chips are free."""
    for name in names:
        await world.api.delete(f"{PODS}/{name}")
    path = f"/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{NODE}"
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            published = (await world.api.get(path))["data"]["AscendAffinity"]
            if '"held":[],"releasing":[]' in published:
                return
            await asyncio.sleep(0.1)
