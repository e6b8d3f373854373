"""How soon a job is back after a chip of it has broken, and what planning that costs.

Agents and extender are the real programs, with `--rescheduling evict`; API server,
kubelets, scheduler and Job controller are the sandbox's, in this process. A job's pods
end at once, and its controller makes them again at once. Each time is that of another
job. A second spare node is there, and the next job waits until the chip is well again:
else it would find no place.

Plans are measured apart, on an extender's cache.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from benchmarks.table import Row, percentile
from extender.planning.plan_input import TopologySnapshot
from extender.rescheduling.judge import Question, judge
from sandbox.apiclient import ApiStatusError, Changed, Listed, Object
from sandbox.inspect import pods
from sandbox.inspect.observer import JOBS, PODS
from sandbox.world import Commands, Machine, World, running
from sandbox.world.world import ExtenderPlace, extender_command
from scheduler_core.placement.job_rules import Profile
from tests.extender.rescheduling import jobs
from tests.support.caches import cluster

#: Cards: one node has room for a pod of a card for each of 64.
PRODUCT, RESOURCE, CHIPS = "atlas-310p", "huawei.com/Ascend310P", 64
NODES = ("n1", "n2", "n3")
SIZES = (1, 8, 64)
ROUNDS = 10
#: {pods of a job: goals from the fault to the first eviction and to the last bind}
_GOALS: Mapping[int, tuple[float | None, float | None]] = {
    1: (0.3, 1.0),
    8: (None, 1.5),
    64: (0.3, None),
}
_PATIENCE_S = 180.0
_LOOK_S = 0.1
#: Nodes and pods of the job that is planned, each with all eight chips of a node.
_PLAN_NODES, _PLAN_PODS, _PLANS = 5_000, 1_000, 20


@dataclass(slots=True)
class _Seen:
    """What has become of pods, as a watch shows it: {UID: monotonic seconds}."""

    #: UIDs of pods that are there
    present: dict[str, Object] = field(default_factory=dict)
    ending: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)

    def note(self, item: Object, *, gone: bool) -> None:
        now_s, meta = time.perf_counter(), item["metadata"]
        uid = meta["uid"]
        conditions = item.get("status", {}).get("conditions", ())
        is_told = any(each["type"] == "DisruptionTarget" for each in conditions)
        if gone or is_told or "deletionTimestamp" in meta:
            self.ending.setdefault(uid, now_s)
        if item["spec"].get("nodeName"):
            self.bound.setdefault(uid, now_s)
        if gone:
            self.present.pop(uid, None)
        else:
            self.present[uid] = item


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recovery:
    """Seconds after the driver's file has said that a chip is broken."""

    asked_s: float
    bound_s: float


def rows() -> list[Row]:
    """Measure. Takes some eight minutes."""
    found = asyncio.run(_recoveries())
    return [
        *(row for size, times in found.items() for row in _rows_of(size, times)),
        *_plan_rows(),
    ]


def _rows_of(size: int, found: Sequence[_Recovery]) -> list[Row]:
    asked_goal_s, bound_goal_s = _GOALS[size]
    what = f"chip breaks under a job of {size}, worst of {len(found)}"
    return [
        _row(f"{what}: first eviction", asked_goal_s, [r.asked_s for r in found]),
        _row(f"{what}: all bound again", bound_goal_s, [r.bound_s for r in found]),
    ]


def _row(figure: str, goal_s: float | None, seconds: Sequence[float]) -> Row:
    worst_s, median_s = max(seconds), percentile(seconds, 0.5)
    return Row(
        figure=figure,
        goal="none" if goal_s is None else f"≤ {goal_s:g} s",
        value=f"{worst_s:.2f} s (median {median_s:.2f} s)",
        passed=goal_s is None or worst_s <= goal_s,
    )


# -- in the sandbox ------------------------------------------------------------------


def _evicting(place: ExtenderPlace) -> Sequence[str]:
    return (*extender_command(place), "--rescheduling", "evict")


async def _recoveries() -> Mapping[int, Sequence[_Recovery]]:
    machines = [Machine(name=name, product=PRODUCT) for name in NODES]
    seen = _Seen()
    async with running(machines, Commands(extender=_evicting)) as world:
        assert world.jobs is not None
        world.jobs.first_pause_s = 0.0
        watching = asyncio.create_task(_watch(world, seen))
        found = {
            size: [
                await _recovery(world, seen, f"train-{size}-{number}", size)
                for number in range(ROUNDS)
            ]
            for size in SIZES
        }
        watching.cancel()
    return found


async def _watch(world: World, seen: _Seen) -> None:
    async for event in world.api.follow(PODS):
        if isinstance(event, Changed):
            seen.note(event.item, gone=event.gone)
        elif isinstance(event, Listed):
            for item in event.items:
                seen.note(item, gone=False)


async def _recovery(world: World, seen: _Seen, name: str, size: int) -> _Recovery:
    """Run a job, break a chip of its last pod, and wait until it is back."""
    await world.api.create(JOBS, _job(name, size))
    await _until(lambda: _are_served(seen, size), f"{name} runs")
    old = dict(seen.present)
    last = max(old.values(), key=_index)
    node = last["spec"]["nodeName"]
    chip = int(last["metadata"]["annotations"]["huawei.com/AscendReal"].split("-")[1])

    begun_s = time.perf_counter()
    world.nodes[node].set_faults((chip,))

    def bound_again() -> bool:
        return len(seen.bound.keys() - old.keys()) >= size and _are_served(seen, size)

    seen.bound = {uid: seen.bound[uid] for uid in old}
    await _until(bound_again, f"{name} is back")
    new = seen.bound.keys() - old.keys()
    assert len(new) == size, "a pod was made twice"
    recovery = _Recovery(
        asked_s=min(seen.ending[uid] for uid in old) - begun_s,
        bound_s=max(seen.bound[uid] for uid in new) - begun_s,
    )
    await _clean(world, seen, name, node)
    return recovery


def _job(name: str, size: int) -> Object:
    """A Job whose pods have a card each, and ask to go at once after a fault."""
    pod = pods.manifest(name, 1, resource=RESOURCE)
    template = {
        "metadata": {"labels": {"fault-scheduling": "force"}},
        "spec": {**pod["spec"], "restartPolicy": "Never"},
    }
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": size,
            "parallelism": size,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [ignored]},
            "template": template,
        },
    }


def _index(pod: Object) -> int:
    written = pod["metadata"]["annotations"]
    return int(written["batch.kubernetes.io/job-completion-index"])


def _are_served(seen: _Seen, size: int) -> bool:
    """Whether there are so many pods and no others, and all have their chips."""
    return len(seen.present) == size and all(
        "huawei.com/AscendReal" in pod["metadata"].get("annotations", {})
        for pod in seen.present.values()
    )


async def _clean(world: World, seen: _Seen, name: str, node: str) -> None:
    """Delete a job; wait until all its chips are free and well."""
    await world.api.delete(f"{JOBS}/{name}")
    for pod in list(seen.present.values()):
        with suppress(ApiStatusError):  # the controller may have been faster
            await world.api.delete(f"{PODS}/{pod['metadata']['name']}")
    await _until(lambda: not seen.present, f"pods of {name} are gone")
    world.nodes[node].set_faults(())

    async def are_free() -> bool:
        return all([await _is_free(world, name) for name in NODES])

    await _until(are_free, "all chips are free and well")


async def _is_free(world: World, node: str) -> bool:
    status = (await world.api.get(f"/api/v1/nodes/{node}"))["status"]
    path = f"/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{node}"
    published = (await world.api.get(path))["data"]["AscendAffinity"]
    is_whole = int(status["allocatable"][RESOURCE]) == CHIPS
    return is_whole and '"held":[],"releasing":[]' in published


async def _until(is_so: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                answer = is_so()
                if answer if isinstance(answer, bool) else await answer:
                    return
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise TimeoutError(f"not within {_PATIENCE_S:g} s: {what}") from None


# -- plans -----------------------------------------------------------------------------


def _plan_rows() -> list[Row]:
    what = f"job of {_PLAN_PODS:,} pods on {_PLAN_NODES:,} nodes: plan after a fault"
    return [
        _plan_row(f"{what}, the fault pod alone", jobs.BY_POD, 0.005),
        _plan_row(f"{what}, all pods", jobs.GRACE, 0.1),
    ]


def _plan_row(figure: str, says: dict[str, str], goal_s: float) -> Row:
    names = [f"n{number}" for number in range(_PLAN_NODES)]
    members = [
        jobs.of_job(f"p{number}", names[number], range(8), size=_PLAN_PODS, says=says)
        for number in range(_PLAN_PODS)
    ]
    cache = cluster(*members, jobs.broken(names[7], 0), nodes=names)
    question = Question(job=jobs.JOB, faulty={"uid-p7": 1})
    topology = TopologySnapshot(profile=Profile.PER_POD)
    seconds = []
    for _ in range(_PLANS):
        begun_s = time.perf_counter()
        assessment = judge(cache, question, lambda _gang: topology)
        seconds.append(time.perf_counter() - begun_s)
        assert assessment.places, assessment
    median_s, worst_s = percentile(seconds, 0.5), max(seconds)
    return Row(
        figure=figure,
        goal=f"≤ {goal_s * 1e3:g} ms",
        value=f"{median_s * 1e3:.1f} ms (worst of {_PLANS} {worst_s * 1e3:.1f} ms)",
        passed=median_s <= goal_s,
    )
