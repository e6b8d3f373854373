"""Sessions as Volcano holds them, for pods that say `schedulerName: volcano`.

Once in a period: PodGroups that wait are taken up or not; then job by job and task by
task nodes are asked for and the best is taken, and the job's pods are bound if there
are enough, or all are taken back. Nothing is kept from session to session, so what is
taken back is tried again in the next one: that is the churn which an extender has to
prevent. What a node was refused for holds for all tasks of a job in that session.

Paths in comments are under `pkg/scheduler/` of Volcano v1.13.
"""

import asyncio
import random  # noqa: TID251  # ties are broken by chance; ours has a seed
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import aiohttp

from sandbox.apiclient import FAILURES, ApiClient, Object, pod_path
from sandbox.pods import Pod, pod_of
from sandbox.scheduler import fit
from sandbox.scheduler.background import Background
from sandbox.scheduler.cluster import Cluster
from sandbox.scheduler.extender import ExtenderError
from sandbox.scheduler.follow import changes
from sandbox.scheduler.volcanobodies import Status, Task, group_of
from sandbox.scheduler.volcanoextender import VolcanoExtender

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
#: Predicates under way at once (util/predicate_helper.go).
_PARALLEL = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the plugin, in order."""

    verb: str
    job: str
    pod: str = ""
    node: str = ""


class VolcanoLoop:
    """A Volcano for one API server.

    Protects: one session at a time; a job is bound with as many pods as it needs at
    least, or not at all.
    """

    def __init__(
        self,
        api_url: str,
        token: str,
        extender_url: str,
        *,
        period_s: float = 1.0,
        seed: int = 0,
    ) -> None:
        """Describe the loop; `start` starts it.

        Args:
            api_url: Base URL of the API server.
            token: Bearer token for it.
            extender_url: The plugin's `extender.urlPrefix`.
            period_s: From one session to the next.
            seed: Of the choice between nodes of equal score.
        """
        #: everything since the start
        self.calls: list[Call] = []
        self.sessions = 0
        #: {job: why it had no place in the last session}
        self.said: dict[str, str] = {}
        self._client = ApiClient(api_url, token)
        self._extender_url = extender_url
        self._period_s = period_s
        self._chance = random.Random(seed)  # noqa: S311  # a tie-break, not a secret
        self._cluster = Cluster()
        self._groups: dict[str, Object] = {}
        #: {uid: task}, of pods that have not ended
        self._tasks: dict[str, Task] = {}
        self._background = Background(self._run)

    async def start(self) -> None:
        """Begin to hold sessions."""
        self._background.start()

    async def stop(self) -> None:
        """Stop at once, in the middle of a session.

        Raises:
            Exception: the loop had failed before.
        """
        await self._background.stop()

    async def _run(self) -> None:
        async with (
            self._client,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._follow("/api/v1/nodes", self._take_node))
            group.create_task(self._follow("/api/v1/pods", self._take_pod))
            group.create_task(self._follow(GROUPS, self._take_group))
            extender = VolcanoExtender(http, self._extender_url)
            while True:
                await self._session(extender)
                self.sessions += 1
                await asyncio.sleep(self._period_s)

    # -- a session -----------------------------------------------------------------

    async def _session(self, extender: VolcanoExtender) -> None:
        for job, group in sorted(self._groups.items()):
            tasks = [task for task in self._tasks.values() if task.job == job]
            if _phase(group) == "Pending" and not await self._is_taken_up(
                extender, group, tasks
            ):
                continue
            await self._allocate(extender, group, tasks)

    async def _is_taken_up(
        self, extender: VolcanoExtender, group: Object, tasks: Sequence[Task]
    ) -> bool:
        """Ask for a job that waits (actions/enqueue/enqueue.go)."""
        job = _key(group)
        if (group.get("spec") or {}).get("minResources"):
            self.calls.append(Call(verb="jobEnqueueable", job=job))
            if not await extender.enqueueable(group, tasks):
                return False
        return await self._mark(group, "Inqueue")

    async def _allocate(
        self, extender: VolcanoExtender, group: Object, tasks: Sequence[Task]
    ) -> None:
        """Find places for a job's pods (actions/allocate/allocate.go)."""
        job, least = _key(group), int(group["spec"].get("minMember") or 1)
        waiting = [task for task in tasks if not task.node]
        if len(tasks) < least or not waiting:
            return
        placed: list[Task] = []
        refused: dict[str, str] = {}
        for task in sorted(waiting, key=lambda each: each.pod.name):
            found = await self._place(extender, task, refused)
            if found is None:
                break
            placed.append(found)
        if len(tasks) - len(waiting) + len(placed) < least:
            self.said[job] = ", ".join(sorted(set(refused.values())))
            for task in reversed(placed):
                await self._take_back(extender, task)
            return
        self.said.pop(job, None)
        for task in placed:
            await self._bind(task)
        await self._mark(group, "Running")

    async def _place(
        self, extender: VolcanoExtender, task: Task, refused: dict[str, str]
    ) -> Task | None:
        """Put one task on the best node that takes it; None: none does."""
        fitting = await self._fitting(extender, task, refused)
        if not fitting:
            return None
        try:
            node = await self._best(extender, task, fitting)
        except ExtenderError:
            return None
        put = replace(task, status=Status.ALLOCATED, node=node)
        self._cluster.assume(task.pod, node)
        self._note("allocateFunc", put)
        try:
            await extender.allocate(put)
        except ExtenderError as error:
            refused[node] = str(error)
            await self._take_back(extender, put)
            return None
        return put

    async def _fitting(
        self, extender: VolcanoExtender, task: Task, refused: dict[str, str]
    ) -> list[Object]:
        loads = self._cluster.loads()
        able = [
            node
            for name, node in sorted(self._cluster.nodes.items())
            if name not in refused and fit.misfit(task.pod, node, loads[name]) is None
        ]
        limit = asyncio.Semaphore(_PARALLEL)

        async def ask(node: Object) -> str:
            async with limit:
                self._note("predicate", replace(task, node=node["metadata"]["name"]))
                return await extender.predicate(task, node, self._there(node))

        said = await asyncio.gather(*(ask(node) for node in able))
        for node, text in zip(able, said, strict=True):
            if text:
                refused[node["metadata"]["name"]] = text
        return [node for node, text in zip(able, said, strict=True) if not text]

    async def _best(
        self, extender: VolcanoExtender, task: Task, nodes: Sequence[Object]
    ) -> str:
        names = [str(node["metadata"]["name"]) for node in nodes]
        if len(names) == 1:
            return names[0]
        self._note("prioritize", task)
        asked = [(node, self._there(node)) for node in nodes]
        scores = await extender.prioritize(task, asked)
        best = max(scores.get(name, 0.0) for name in names)
        return self._chance.choice([n for n in names if scores.get(n, 0.0) == best])

    async def _take_back(self, extender: VolcanoExtender, task: Task) -> None:
        """Undo one task (framework/statement.go: unallocate)."""
        self._cluster.forget(task.pod.uid)
        self._note("deallocateFunc", task)
        await extender.deallocate(replace(task, status=Status.PENDING), task)

    async def _bind(self, task: Task) -> None:
        body: Object = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": task.pod.name,
                "namespace": task.pod.namespace,
                "uid": task.pod.uid,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": task.node},
        }
        try:
            await self._client.create(f"{pod_path(task.pod.source)}/binding", body)
        except FAILURES:
            self._cluster.forget(task.pod.uid)  # as it is: nobody is told
            return
        if task.pod.uid in self._tasks:
            self._tasks[task.pod.uid] = replace(task, status=Status.BOUND)

    async def _mark(self, group: Object, phase: str) -> bool:
        """Write how far a PodGroup is."""
        meta = group["metadata"]
        path = GROUPS.replace("podgroups", f"namespaces/{meta['namespace']}/podgroups")
        body: Object = {"status": {"phase": phase}}
        try:
            found = await self._client.patch(f"{path}/{meta['name']}", body)
        except FAILURES:
            return False
        self._groups[_key(found)] = found
        return True

    def _there(self, node: Object) -> list[Task]:
        name = node["metadata"]["name"]
        return [task for task in self._tasks.values() if task.node == name]

    def _note(self, verb: str, task: Task) -> None:
        name = f"{task.pod.namespace}/{task.pod.name}"
        self.calls.append(Call(verb=verb, job=task.job, pod=name, node=task.node))

    # -- what the API server tells -----------------------------------------------------

    async def _follow(self, path: str, take: Callable[[Object, bool], None]) -> None:
        known: dict[str, Object] = {}
        async for event in self._client.follow(path):
            for item, gone in changes(known, event):
                take(item, gone)

    def _take_node(self, node: Object, gone: bool) -> None:  # noqa: FBT001  # one of three alike
        name = node["metadata"]["name"]
        if gone:
            self._cluster.nodes.pop(name, None)
        else:
            self._cluster.nodes[name] = node

    def _take_group(self, group: Object, gone: bool) -> None:  # noqa: FBT001  # one of three alike
        if gone:
            self._groups.pop(_key(group), None)
        else:
            self._groups[_key(group)] = group

    def _take_pod(self, source: Object, gone: bool) -> None:  # noqa: FBT001  # one of three alike
        pod = pod_of(source)
        node = source["spec"].get("nodeName", "")
        if gone or pod.is_terminal:
            self._cluster.gone(pod.uid)
            self._tasks.pop(pod.uid, None)
            return
        if node:
            self._cluster.bound(pod, node)
        if not _is_ours(pod):
            return
        known = self._tasks.get(pod.uid)
        if node or known is None or not known.node:
            status = Status.BOUND if node else Status.PENDING
            self._tasks[pod.uid] = Task(
                pod=pod, job=group_of(pod), status=status, node=node
            )


def _is_ours(pod: Pod) -> bool:
    return pod.source["spec"].get("schedulerName") == "volcano" and not pod.deleting


def _key(group: Object) -> str:
    meta = group["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def _phase(group: Object) -> str:
    return str((group.get("status") or {}).get("phase") or "Pending")
