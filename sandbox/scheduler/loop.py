"""How does kube-scheduler go through its pods with an extender?

One pod at a time: in-tree filters, the extender's filter, its prioritize if more
than one node is left; then the pod is assumed on its node and bound beside the
loop, so that the next pod's filter goes out before the bind has answered
(schedule_one.go).
"""

import asyncio
import random  # noqa: TID251  # ties are broken by chance; ours has a seed
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from sandbox.apiclient import FAILURES, ApiClient, Object, pod_path
from sandbox.control_loop import ControlLoop
from sandbox.pods import Pod, pod_of
from sandbox.scheduler import fit
from sandbox.scheduler.cluster import Cluster, changes, matters
from sandbox.scheduler.extender import Extender, ExtenderError, ExtenderSettings
from sandbox.scheduler.fit import Misfit
from sandbox.scheduler.queue import SchedulingQueue
from sandbox.scheduler.reporter import Reporter

_MINE = {"", "default-scheduler"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that the loop did, in the order in which it happened."""

    #: "filter", "prioritize", "bind" (sent), "bound", "bind failed", "unschedulable"
    kind: str
    #: "namespace/name"
    pod: str
    node: str = ""
    #: binds that were under way
    binding: int = 0


class UnschedulableError(Exception):
    """No node takes the pod."""


class SchedulingLoop(ControlLoop):
    """A scheduler for one API server, with one extender.

    Protects: one pod is decided at a time; an assumed pod counts until its bind
    has failed or the API server shows it.
    """

    def __init__(
        self,
        api_url: str,
        token: str,
        *,
        extender: ExtenderSettings,
        backoff_s: float = 1.0,
    ) -> None:
        """Describe the loop; `start` starts it.

        Args:
            api_url: Base URL of the API server.
            token: Bearer token for it.
            extender: Where its extender is, and how it is asked.
            backoff_s: Pause after a pod's first failure; doubles up to 10 s.
        """
        #: everything since the start
        self.trace: list[Step] = []
        self._settings = extender
        self._client = ApiClient(api_url, token)
        self._reporter = Reporter(self._client)
        self._chance = random.Random(0)  # noqa: S311  # a tie-break, not a secret
        self._cluster = Cluster()
        self._queue = SchedulingQueue(backoff_s)
        self._wake = asyncio.Event()
        self._listed = {"nodes": asyncio.Event(), "pods": asyncio.Event()}
        self._binding = 0
        self._extender: Extender | None = None

    @property
    def overlaps(self) -> int:
        """How many filters went out while a bind had not been answered."""
        return sum(step.kind == "filter" and step.binding > 0 for step in self.trace)

    # -- tasks -------------------------------------------------------------

    async def _run(self) -> None:
        async with (
            self._client,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
            asyncio.TaskGroup() as group,
        ):
            self._extender = Extender(session, self._settings)
            group.create_task(self._reporter.run())
            group.create_task(self._follow("nodes"))
            group.create_task(self._follow("pods"))
            for listed in self._listed.values():
                await listed.wait()
            await self._schedule(group)

    async def _follow(self, kind: str) -> None:
        take = self._take_node if kind == "nodes" else self._take_pod
        known: dict[str, Object] = {}
        async for event in self._client.follow(f"/api/v1/{kind}"):
            for item, gone in changes(known, event):
                take(item, gone=gone)
            self._listed[kind].set()
            self._wake.set()

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            pod = self._queue.take(now())
            if pod is not None:
                await self._attempt(pod, group)
                continue
            due = self._queue.next_due()
            pause = None if due is None else max(due - now(), 0.0)
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    # -- one pod -----------------------------------------------------------

    async def _attempt(self, pod: Pod, group: asyncio.TaskGroup) -> None:
        try:
            node = await self._choose(pod)
        except (UnschedulableError, ExtenderError) as error:
            self._failed(pod, error)
            return
        self._cluster.assume(pod, node)
        group.create_task(self._bind(pod, node))
        # The bind goes out beside the loop, which does not wait for it.
        await asyncio.sleep(0)

    async def _choose(self, pod: Pod) -> str:
        """Return the node that the pod shall have."""
        if not self._cluster.nodes:
            raise UnschedulableError("no nodes available to schedule pods")
        loads = self._cluster.loads()
        nodes = self._cluster.nodes
        misfits: dict[str, Misfit] = {}
        feasible: list[Object] = []
        for name, node in sorted(nodes.items()):
            misfit = fit.misfit(pod, node, loads[name])
            if misfit is None:
                feasible.append(node)
            else:
                misfits[name] = misfit
        if feasible and (extender := self._extender_for(pod)):
            feasible = await self._filtered(extender, pod, feasible, misfits)
        if not feasible:
            raise UnschedulableError(fit.text(len(nodes), misfits))
        return await self._best(pod, feasible)

    async def _filtered(
        self,
        extender: Extender,
        pod: Pod,
        nodes: list[Object],
        misfits: dict[str, Misfit],
    ) -> list[Object]:
        self._note("filter", pod)
        filtered = await extender.filter(pod, nodes)
        for name, reason in (*filtered.failed.items(), *filtered.unresolvable.items()):
            never = name in filtered.unresolvable
            misfits[name] = Misfit(reasons=(reason,), is_unresolvable=never)
        return [node for node in nodes if node["metadata"]["name"] in filtered.names]

    async def _best(self, pod: Pod, nodes: list[Object]) -> str:
        names = [node["metadata"]["name"] for node in nodes]
        if len(names) == 1:
            return str(names[0])
        scores: Mapping[str, int] = {}
        if extender := self._extender_for(pod):
            self._note("prioritize", pod)
            try:
                scores = await extender.prioritize(pod, nodes)
            except ExtenderError:
                # The real one goes on with its own scores (schedule_one.go:1005).
                scores = {}
        best = max(scores.get(name, 0) for name in names)
        return str(self._chance.choice([n for n in names if scores.get(n, 0) == best]))

    async def _bind(self, pod: Pod, node: str) -> None:
        self._binding += 1
        self._note("bind", pod, node)
        error: Exception | None = None
        try:
            if extender := self._extender_for(pod):
                await extender.bind(pod, node)
            else:
                await self._bind_directly(pod, node)
        except (ExtenderError, *FAILURES) as failure:
            error = failure
        self._binding -= 1
        if error is None:
            self._note("bound", pod, node)
            self._reporter.scheduled(pod, node)
            return
        self._note("bind failed", pod, node)
        self._cluster.forget(pod.uid)
        self._queue.move()
        self._failed(pod, error)
        self._wake.set()

    def _extender_for(self, pod: Pod) -> Extender | None:
        extender = self._extender
        return extender if extender and extender.is_interested(pod) else None

    async def _bind_directly(self, pod: Pod, node: str) -> None:
        body: Object = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._client.create(f"{pod_path(pod.source)}/binding", body)

    def _failed(self, pod: Pod, error: Exception) -> None:
        unschedulable = isinstance(error, UnschedulableError)
        if unschedulable:
            self._note("unschedulable", pod)
        if self._cluster.node_of(pod.uid):
            # Bound after all, only the answer was lost (schedule_one.go:1253).
            self._queue.drop(pod.uid)
            return
        now = asyncio.get_running_loop().time()
        self._queue.failed(pod.uid, now, unschedulable=unschedulable)
        self._reporter.failed(pod, str(error), unschedulable=unschedulable)

    def _note(self, kind: str, pod: Pod, node: str = "") -> None:
        name = f"{pod.namespace}/{pod.name}"
        self.trace.append(Step(kind=kind, pod=name, node=node, binding=self._binding))

    # -- what the API server tells -------------------------------------------

    def _take_node(self, node: Object, *, gone: bool) -> None:
        name = node["metadata"]["name"]
        if gone:
            self._cluster.nodes.pop(name, None)
            return
        if matters(self._cluster.nodes.get(name), node):
            self._queue.move()
        self._cluster.nodes[name] = node

    def _take_pod(self, source: Object, *, gone: bool) -> None:
        pod = pod_of(source)
        node = source["spec"].get("nodeName", "")
        if gone or pod.is_terminal:
            was_placed = self._cluster.is_placed(pod.uid)
            self._cluster.gone(pod.uid)
            self._queue.drop(pod.uid)
            if was_placed:
                self._queue.move()
        elif node:
            self._cluster.bound(pod, node)
            self._queue.drop(pod.uid)
            self._queue.move()
        elif pod.deleting or not _is_ours(source["spec"]):
            self._queue.drop(pod.uid)
        else:
            self._queue.put(pod)


def _is_ours(spec: Object) -> bool:
    """Say whether we are to schedule a pod, and may already."""
    return spec.get("schedulerName", "") in _MINE and not spec.get("schedulingGates")
