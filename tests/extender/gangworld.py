"""Jobs of several pods between a simulated kube-scheduler and the extender.

The scheduler tries each waiting pod once a second. It offers the nodes that pass its
own rules (`scheduler_rules.py`), counts a pod on its node as soon as the extender has
accepted it, and sends its bind. Pods are objects, and the extender reads them as its
watch does.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import msgspec

from extender.cache import decode, events
from extender.cache.cache import Cache
from extender.cache.reservations import Owner
from extender.gang import events as gang_events
from extender.gang.events import Caller
from extender.planning import plan_input
from extender.refusals import Refusal
from kube import objects
from sandbox.apiclient import Object
from scheduler_core.node import chips
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products.table import ATLAS_800_TRAINING
from tests.extender import scheduler_rules as rules
from tests.support.caches import apply, cluster, reservations
from tests.support.clock import Time
from tests.support.extender import World
from tests.support.objects import container, pod
from tests.support.watched import node as watched_node
from tests.support.watched import report, served

P = ParamSpec("P")
T = TypeVar("T")
PER_POD = plan_input.TopologySnapshot(profile=Profile.PER_POD)


def sim_node(name: str, taint: str = "", **labels: str) -> Object:
    """A node as the scheduler sees it."""
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    meta = {"name": name, "labels": {rules.HOST_NAME: name, **labels}}
    return {"metadata": meta, "spec": {"taints": taints}}


def sim_pod(  # the parts of a pod
    name: str,
    *,
    job: str = "j",
    size: int = 2,
    npus: int = 4,
    role: str = "worker",
    port: int = 0,
    **spec: Any,
) -> Object:
    """A pod of a job that says itself how many pods it has."""
    ports: dict[str, Any] = (
        {"ports": [{"hostPort": port, "protocol": "TCP"}]} if port else {}
    )
    meta = {
        "uid": f"uid-{name}",
        "labels": {"job": job, "role": role},
        "annotations": {
            "ascend-affinity/job": job,
            "ascend-affinity/job-size": f"{size}",
        },
    }
    return pod(name, containers=[container(npus=npus, **ports)], meta=meta, **spec)


#: Nodes of `world`, the first of them.
NODES = ("n1", "n2", "n3", "n4", "n5")


class GangWorld:
    """Scheduler, API server and extender in simulated time."""

    def __init__(
        self,
        nodes: Iterable[Object],
        *,
        refused: Iterable[tuple[str, str]] = (),
        is_patient: bool = False,
    ) -> None:
        """Start with free nodes of eight chips each.

        Args:
            is_patient: Whether a pod for which the scheduler itself finds no node is
                left alone until an event may help it, or for five minutes.
            refused: (role, node) of pods that never come to their bind there, as if a
                volume could not be attached.
        """
        self.loop = asyncio.new_event_loop()
        self.time = Time()
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.refused = set(refused)
        self.is_patient = is_patient
        #: {name of a pod that is left alone: until when}
        self.left_alone: dict[str, float] = {}
        self.cache: Cache = cluster(nodes=self.nodes)
        self.world = World(self.cache, time=self.time, topology=lambda _gang: PER_POD)
        #: {name: pod as the API server has it}
        self.pods: dict[str, Object] = {}
        #: {name: node} of pods whose bind was sent; {name: call}
        self.assumed: dict[str, str] = {}
        self.calls: dict[str, asyncio.Task[Refusal | None]] = {}
        #: {name: node} the scheduler asks about first, as for a nominated pod
        self.nominated: dict[str, str] = {}
        #: told which pods the gate lets through at one time, before they are bound
        self.on_let: Callable[[set[str]], None] = lambda _let: None
        #: seconds for which chips were reserved, by job, second for second
        self.held: dict[str, list[float]] = {}

    def _run(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Act on the loop, where requests to the API server can begin."""

        async def acted() -> T:
            return act(*args, **kwargs)

        return self.loop.run_until_complete(acted())

    @property
    def bound(self) -> dict[str, str]:
        """{name: node} of the pods that have one."""
        return {
            name: pod["spec"]["nodeName"]
            for name, pod in self.pods.items()
            if "nodeName" in pod["spec"]
        }

    @property
    def placed(self) -> dict[str, tuple[Object, str]]:
        """What the scheduler counts on nodes."""
        places = {**self.bound, **self.assumed}
        return {name: (self.pods[name], node) for name, node in places.items()}

    def show_node(self, name: str) -> None:
        """Let the watch show labels and taints of a node as the scheduler has them."""
        seen = decode.node_change(msgspec.convert(self.nodes[name], objects.Node))
        marks = {key: getattr(seen, key) for key in ("labels", "taints", "marks")}
        self._run(self.world.learn, replace(watched_node(name), **marks))
        self._settle()

    def cordon(self, name: str) -> None:
        taint = {"key": objects.UNSCHEDULABLE.key, "effect": "NoSchedule"}
        self.nodes[name]["spec"]["taints"].append(taint)
        self.show_node(name)

    def add(self, *pods: Object) -> None:
        for each in pods:
            self.pods[each["metadata"]["name"]] = deepcopy(each)
            self.show(each["metadata"]["name"])

    def lift_gates(self, *names: str) -> None:
        for name in names:
            del self.pods[name]["spec"]["schedulingGates"]
            self.show(name)

    def delete(self, *names: str) -> None:
        """Let pods go, and their chips be free."""
        for name in names:
            self.remove(name)
        for _ in range(3):
            self.pass_s()
        self.report()

    def remove(self, name: str) -> None:
        """Let the API server forget a pod."""
        uid = self.pods.pop(name)["metadata"]["uid"]
        self.left_alone.pop(name, None)
        self._retry(after_bind=False)
        self._run(self.world.learn, events.PodDeleted(uid=uid))
        self._settle()

    def show(self, name: str) -> None:
        """Let the watch show a pod as the API server has it."""
        found = msgspec.convert(self.pods[name], objects.Pod)
        self._run(self.world.learn, decode.pod_change(found))
        self._settle()

    # -- the scheduler ---------------------------------------------------------------

    def schedule(self, name: str) -> None:
        """One cycle of the scheduler for one pod."""
        pod = self.pods[name]
        if self.cache.pods.get(pod["metadata"]["uid"]) is None:
            self._place(name, next(iter(self.nodes)))  # it asks for no NPUs
            return
        names = rules.offered(pod, self.nodes, self.placed)
        nominated = self.nominated.get(name)
        if nominated in names and self._accepted(name, [nominated]):
            return
        if names:
            self._accepted(name, names)
        elif self.is_patient:
            self.left_alone[name] = self.time.now_s + 300

    def _accepted(self, name: str, names: Sequence[str]) -> bool:
        wanting = self.cache.pods[self.pods[name]["metadata"]["uid"]]
        result = self._run(self.world.planner.filter_nodes, wanting, names)
        if result is None:
            return self._bind_alone(name, names)
        assert set(result.fitting) <= set(names)
        if not result.fitting:
            return False
        (node,) = result.fitting
        if (self.pods[name]["metadata"]["labels"]["role"], node) in self.refused:
            return True  # the scheduler gives up before the bind
        self.assumed[name] = node
        caller = Caller(uid=wanting.uid, node=node, is_there=lambda: True)
        self.calls[name] = self.loop.create_task(self.world.permits.wait(caller))
        self._settle()
        return True

    def _settle(self) -> None:
        for _ in range(4):
            self.loop.run_until_complete(asyncio.sleep(0))
        let: dict[str, str] = {}
        for name, call in list(self.calls.items()):
            if call.done():
                del self.calls[name]
                node = self.assumed.pop(name)
                if call.result() is None:
                    let[name] = node
                else:
                    self._retry(after_bind=False)
        if let:
            self.on_let({*let})
        for name, node in let.items():
            self._bind(name, node)

    def _retry(self, *, after_bind: bool) -> None:
        """Try pods again that were left alone, after a pod was bound, or has gone.

        That a pod has gone helps none that waits for others to be near.
        """
        self.left_alone = {
            name: until_s
            for name, until_s in self.left_alone.items()
            if not after_bind and rules.is_near_others(self.pods[name])
        }

    def _bind_alone(self, name: str, names: Sequence[str]) -> bool:
        """Bind a pod that is a job by itself."""
        fitting = self._run(self.world.filter, name, names)
        for node in fitting:
            if not isinstance(self._run(self.world.reserve, name, node), str):
                self._bind(name, node)
                return True
        return False

    def _bind(self, name: str, node: str) -> None:
        uid = self.pods[name]["metadata"]["uid"]
        kept = reservations(self.cache)[uid]
        assert kept.node == node
        until_s = self.time.now_s + 65
        self._run(
            self.world.learn,
            kept._replace(owner=Owner.BIND, until_s=until_s),
            gang_events.Bound(uid=uid),
        )
        notes: dict[str, str] = self.pods[name]["metadata"]["annotations"]
        notes |= kept.claim.annotations if kept.claim is not None else {}
        notes |= served(chips.ids_of(kept.chips))
        self._place(name, node)

    def _place(self, name: str, node: str) -> None:
        pod = self.pods[name]
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running"}
        self.show(name)
        self._retry(after_bind=True)

    @property
    def waiting(self) -> list[str]:
        """The pods that the scheduler tries."""
        placed = self.placed
        return [
            name
            for name, pod in self.pods.items()
            if name not in placed
            and self.left_alone.get(name, 0) <= self.time.now_s
            and not pod["spec"].get("schedulingGates")
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def pass_s(self, order: Sequence[str] = ()) -> None:
        """Try each waiting pod, then let a second pass.

        Args:
            order: Names of pods to try first.
        """
        first = [name for name in order if name in self.waiting]
        for name in [*first, *(n for n in self.waiting if n not in first)]:
            if name in self.waiting:
                self.schedule(name)
        for job, gang in self.cache.gangs.items():
            if gang.plan.phase == "planned":
                self.held.setdefault(job, []).append(self.time.now_s)
        self._run(self.world.pass_s, 1)
        self._settle()

    def report(self) -> None:
        """Let the agents say that they live, and have chips of no pod that has gone."""
        for name in self.nodes:
            alive = report(name, update_time=self.time.now_s)
            apply(self.cache, alive, now_s=self.time.now_s)

    def run(self, seconds: int, *names: str, order: Sequence[str] = ()) -> int | None:
        """Let time pass until these pods are bound; return how long it took.

        Returns None if they are not bound after `seconds`.
        """
        for passed in range(seconds):
            if names and all(name in self.bound for name in names):
                return passed
            self.pass_s(order)
        return seconds if all(name in self.bound for name in names) else None

    def held_s(self, job: str) -> int:
        """The most seconds of an hour in which chips were reserved for a job."""
        times = self.held.get(job, [])
        return max((sum(t <= u < t + 3600 for u in times) for t in times), default=0)

    def run_reported(self, seconds: int, *names: str) -> int | None:
        """Do as `run`, once the agents have reported."""
        self.report()
        return self.run(seconds, *names)

    def close(self) -> None:
        self.loop.run_until_complete(self.world.stop())
        for call in self.calls.values():
            assert self.loop.run_until_complete(call) is not None
        self.loop.close()


def can_place(
    pods: Sequence[Object],
    nodes: Mapping[str, Object],
    placed: rules.Placed,
    free: Mapping[str, int],
    refused: Iterable[tuple[str, str]] = (),
) -> bool:
    """Whether the scheduler could place all pods, in some order, by brute force.

    It must not object to any of them once all others are on their nodes: a job that
    fits only if one pod is asked about before another is none that can be planned.

    Args:
        free: {node: mask of its free chips}.
        refused: (role, node) that does not go together.
    """
    search = _Search(pods, nodes, set(refused))
    return search.is_done(placed, free)


class _Search:
    """All ways to place the pods of a job, one after the other."""

    def __init__(
        self,
        pods: Sequence[Object],
        nodes: Mapping[str, Object],
        refused: set[tuple[str, str]],
    ) -> None:
        self._pods = pods
        self._nodes = nodes
        self._refused = refused
        self._seen: set[tuple[object, ...]] = set()

    def is_done(self, placed: rules.Placed, free: Mapping[str, int]) -> bool:
        left = [pod for pod in self._pods if pod["metadata"]["name"] not in placed]
        if not left:
            return all(self._is_lasting(pod, placed) for pod in self._pods)
        state = (
            tuple(sorted((name, node) for name, (_, node) in placed.items())),
            tuple(sorted(free.items())),
        )
        if state in self._seen:
            return False
        self._seen.add(state)
        return any(
            self.is_done({**placed, pod["metadata"]["name"]: (pod, name)}, after)
            for pod in left
            for name, after in self._places(pod, placed, free)
        )

    def _places(
        self, pod: Object, placed: rules.Placed, free: Mapping[str, int]
    ) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Nodes for a pod, and what is free with it there."""
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        count = sum(map(int, limits.values()))
        role = pod["metadata"]["labels"]["role"]
        for name in rules.offered(pod, self._nodes, placed):
            chosen = chips.choose(ATLAS_800_TRAINING, free[name], count)
            if chosen and (role, name) not in self._refused:
                yield name, {**free, name: free[name] & ~chosen}

    def _is_lasting(self, pod: Object, placed: rules.Placed) -> bool:
        """Whether the scheduler offers the node of a pod when it is asked last."""
        name = pod["metadata"]["name"]
        others = {key: place for key, place in placed.items() if key != name}
        return placed[name][1] in rules.offered(pod, self._nodes, others)


@contextmanager
def world(nodes: int) -> Iterator[GangWorld]:
    """Have a world with the first of `NODES` while the context lasts."""
    found = GangWorld(map(sim_node, NODES[:nodes]))
    try:
        yield found
    finally:
        found.close()


def rival(w: GangWorld, count: int = 2) -> list[str]:
    """Let another job of whole nodes come."""
    names = [f"rival-{number}" for number in range(count)]
    w.add(*(sim_pod(name, job="rival", size=count, npus=8) for name in names))
    return names
