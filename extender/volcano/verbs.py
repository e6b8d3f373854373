"""Answer the verbs of Volcano's `extender` plugin over HTTP.

When Volcano allocates a task, which stands for a pod, it calls allocateFunc. The
extender then reserves chips and writes the claim onto the pod. An allocation is
tentative: Volcano takes it back if it finds no places for the other pods of the job. No
request tells that an allocation is final. The extender undoes an allocation if

- Volcano deallocates the task,
- Volcano sends a predicate for the pod `OPEN_S` or more after its allocation, or
- the pod is not bound after `UNBOUND_S`.

The claim is then removed. The chips become free, or return to the plan of the job
(`Sessions.unreserve`). A bound pod keeps its chips, because Volcano also deallocates
the pods that it evicts, while they still run.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Protocol

from aiohttp import web

from extender.cache import decode
from extender.cache.cache import Cache, step
from extender.cache.events import Reservation
from extender.clocks import Clock
from extender.gang.membership import planned_membership
from extender.http.endpoint import VerbHandlers
from extender.metrics import Metrics
from extender.scheduling.decisions import LastDecision, LastDecisions
from extender.scheduling.node_filter import READING, UNSEEN, Refusal, pod_refusal
from extender.scheduling.reserve import Choice
from extender.volcano import protocol, victims
from extender.volcano.claims import ClaimWriter
from extender.volcano.podgroup_conditions import PodGroupConditions
from extender.volcano.protocol import PLACED, Code, Job, Status, Task, Vote
from extender.volcano.sessions import Sessions
from kube.errors import KubeError
from scheduler_core.node import chips
from scheduler_core.wire import annotations, job_annotations, quantities
from scheduler_core.wire.annotations import ALLOCATED_ON, WireError
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: Seconds in which kube-apiserver may still execute a bind. A predicate after that
#: means that the pod is not bound.
OPEN_S = 65.0
#: Longest time in seconds that Volcano waits for a pod's volumes before its bind.
UNBOUND_S = 660.0
#: PodGroups whose refusal is remembered; a forgotten one gets one more event.
_REFUSED_MOST = 10_000


class EmitEvent(Protocol):
    """Function that records a Kubernetes event: why a PodGroup is not enqueued."""

    def __call__(self, job: Job, pod: NpuPod | None, text: str) -> None:
        """Record `text` as an event on the job's PodGroup, and on `pod` if not None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Components of the extender that `VolcanoVerbs` uses; the app owns them."""

    cache: Cache
    sessions: Sessions
    marks: ClaimWriter
    groups: PodGroupConditions
    notes: LastDecisions
    metrics: Metrics
    clock: Clock
    tell: EmitEvent


class VolcanoVerbs:
    """Handlers of Volcano's verbs, with the reservations of allocated, unbound pods.

    A pod is allocated if Volcano has called allocateFunc for it and the extender has
    reserved chips.
    """

    def __init__(self, parts: Parts, why_not_ready: Callable[[], str | None]) -> None:
        """Start without allocated pods.

        Args:
            parts: Components of the extender to use.
            why_not_ready: Returns why the extender may not answer Volcano now; None if
                it may. Called at each request.
        """
        self._cache = parts.cache
        self._sessions = parts.sessions
        self._marks = parts.marks
        self._groups = parts.groups
        self._decisions = parts.notes
        self._metrics = parts.metrics
        self._clock = parts.clock
        self._tell = parts.tell
        self._handlers = VerbHandlers(parts.metrics, why_not_ready)
        #: {uid: time of allocation} until the pod is bound or gone
        self._allocated: dict[str, float] = {}
        #: {UID of a PodGroup: last refusal}
        self._refusals: dict[str, str] = {}

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of all verbs, under the plugin's `urlPrefix` `/volcano`."""
        verb = self._handlers.wrap

        def error(text: str) -> bytes:
            return protocol.predicate_answer(text, Code.ERROR)

        def no_scores(_text: str) -> bytes:
            return protocol.scores_answer({})

        def abstain(_text: str) -> bytes:
            # A vote has no text. Volcano asks predicate next, which has one.
            return protocol.vote_answer(Vote.ABSTAIN)

        def no_victims(_text: str) -> bytes:
            return protocol.victims_answer(Vote.REJECT, ())

        handlers = {
            "predicate": (self._predicate, error),
            "prioritize": (self._prioritize, no_scores),
            "jobEnqueueable": (self._job_enqueueable, abstain),
            "allocateFunc": (self._allocate, protocol.task_answer),
            "deallocateFunc": (self._deallocate, protocol.task_answer),
            "preemptable": (self._victims, no_victims),
            "reclaimable": (self._victims, no_victims),
        }
        return [
            web.post(f"/volcano/{name}", verb(f"volcano-{name}", answer, on_error))
            for name, (answer, on_error) in handlers.items()
        ]

    # -- predicate, prioritize, enqueue--------------------------------------------

    async def _predicate(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.predicate_args(body)
        refusal = self._refusal(args.task, args.node.name)
        if refusal is None:
            return protocol.FITS
        self._metrics.refused_nodes.labels(refusal.reason).inc()
        code = Code.UNSCHEDULABLE if refusal.is_resolvable else Code.UNRESOLVABLE
        return protocol.predicate_answer(refusal.text, code)

    def _refusal(self, task: Task, node: str) -> Refusal | None:
        pod = self._cache.pods.get(task.uid)
        if pod is None:
            pod_object = protocol.pod_of(task)
            pod = decode.npu_pod(pod_object)
            if pod is None:
                return None  # asks for no NPU: fits everywhere
            if planned_membership(pod_object) is not None:
                return UNSEEN
        self._drop_stale_allocation(task)
        return self._sessions.refusal(pod, node)

    def _drop_stale_allocation(self, task: Task) -> None:
        """Undo a task's allocation if it is at least `OPEN_S` old.

        Call this when Volcano sends a predicate for the task. Until `OPEN_S` have
        passed, the API server may still execute an earlier bind of the pod.
        """
        since_s = self._allocated.get(task.uid)
        if since_s is not None and self._clock.now_s() - since_s >= OPEN_S:
            self._unreserve(task.uid)
            self._marks.remove_later(task.uid)

    async def _prioritize(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.prioritize_args(body)
        pod = self._cache.pods.get(args.task.uid)
        if pod is None:
            pod = decode.npu_pod(protocol.pod_of(args.task))
        if pod is None:
            return protocol.scores_answer({})
        return protocol.scores_answer(self._sessions.scores(pod, args.names))

    async def _job_enqueueable(self, body: bytes, _request: web.Request) -> bytes:
        job = protocol.job_args(body)
        # Volcano makes the pods of its own Jobs only when they are enqueued.
        text = (
            self._sessions.job_refusal(job.tasks)
            if job.tasks
            else self._capacity_refusal(job)
        )
        if not text:
            self._refusals.pop(job.group_uid, None)
            self._groups.record_admitted(job)
            return protocol.vote_answer(Vote.ABSTAIN)
        if text != READING:
            self._groups.record_refusal(job, text)
        if text not in (self._refusals.get(job.group_uid), READING):
            self._refusals[job.group_uid] = text
            pods = (self._cache.pods.get(uid) for uid in job.tasks or ())
            self._tell(job, next(filter(None, pods), None), text)
        return protocol.vote_answer(Vote.REJECT)

    def _capacity_refusal(self, job: Job) -> str:
        """Return why the free chips do not suffice for a PodGroup's `minResources`.

        Return "" if the free chips suffice. Nodes that take no new pods, for example
        because their agent is silent, count as full.
        """
        for resource in decode.RESOURCES:
            needed = quantities.count(job.least.get(resource, 0))
            free = sum(
                state.free.bit_count()
                for state in self._cache.cluster.nodes(resource).values()
                if not state.barred
            )
            if needed > free:
                return f"needs {needed} of {resource}, and {free} are free"
        return ""

    # -- allocate, deallocate, victims---------------------------------------------

    async def _allocate(self, body: bytes, _request: web.Request) -> bytes:
        task = protocol.task_args(body)
        if task.status != Status.ALLOCATED:
            return protocol.task_answer("")  # pipelined, or restored to running
        pod = self._cache.pods.get(task.uid) or decode.npu_pod(protocol.pod_of(task))
        if pod is None or (pod.node and task.uid in self._cache.pods):
            return protocol.task_answer("")  # asks for no NPU, or is bound
        pod = replace(pod, node="")  # Volcano sends the pod with its new node
        choice = self._sessions.choose(pod, task.node)
        if isinstance(choice, Refusal):
            self._metrics.bind_refused.labels(choice.reason).inc()
            return protocol.task_answer(choice.text)
        return protocol.task_answer(await self._write(pod, choice))

    async def _write(self, pod: NpuPod, choice: Choice) -> str:
        """Write the claim in `choice` onto the pod; if that fails, unreserve its chips.

        Returns:
            "" if the claim is on the pod, otherwise the error for Volcano.
        """
        self._allocated[pod.uid] = self._clock.now_s()
        claim = {**choice.annotations, ALLOCATED_ON: choice.reservation.node}
        try:
            await self._marks.put(pod, claim)
        except KubeError as error:
            self._unreserve(pod.uid)
            self._marks.remove_later(pod.uid)
            return f"the API server: {error}"
        if pod.uid not in self._allocated:
            return "Volcano has taken the pod back meanwhile"
        self._decisions.put(
            pod.uid, LastDecision(at_s=self._clock.wall_s(), text=choice.sentence)
        )
        self._metrics.allocated.inc()
        return ""

    async def _deallocate(self, body: bytes, _request: web.Request) -> bytes:
        task = protocol.task_args(body)
        pod = self._cache.pods.get(task.uid)
        if task.status & PLACED or (pod is not None and pod.node):
            return protocol.task_answer("")  # a bound pod keeps its chips
        self._unreserve(task.uid)
        try:
            await self._marks.remove(task.uid)
        except KubeError as error:
            return protocol.task_answer(f"the API server: {error}")
        return protocol.task_answer("")

    def _unreserve(self, uid: str) -> None:
        if self._allocated.pop(uid, None) is not None:
            self._metrics.volcano_returns.inc()
            self._sessions.unreserve(uid)

    async def _victims(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.evict_args(body)
        evictor = self._cache.pods.get(args.evictor.uid) or decode.npu_pod(
            protocol.pod_of(args.evictor)
        )
        if evictor is None:
            return protocol.victims_answer(Vote.ABSTAIN, ())
        if pod_refusal(self._cache, evictor, self._clock.now_s()) is not None:
            return protocol.victims_answer(Vote.REJECT, ())
        chosen_victims = victims.choose(self._cache, evictor, args.evictees)
        vote = Vote.PERMIT if chosen_victims else Vote.REJECT
        return protocol.victims_answer(
            vote, [evictee.sent for evictee in chosen_victims]
        )

    # -- ticks, start, stop ------------------------------------------------------

    def tick(self) -> None:
        """Forget allocations of bound and deleted pods; undo expired allocations.

        An allocation expires if its pod is not bound within `UNBOUND_S`. Failed
        removals of claims are tried again. Removals of PodGroup conditions are started
        when they are due.
        """
        now_s = self._clock.now_s()
        for uid, since_s in list(self._allocated.items()):
            if uid not in self._cache.reservations:  # the watch showed it bound or gone
                del self._allocated[uid]
                self._marks.forget(uid)
            elif now_s - since_s >= UNBOUND_S:
                log.warning("allocated and never bound", extra={"uid": uid})
                self._unreserve(uid)
                self._marks.remove_later(uid)
        self._marks.retry()
        self._groups.tick()
        self._sessions.forget()
        if len(self._refusals) > _REFUSED_MOST:
            self._refusals.clear()

    @property
    def reserved_uids(self) -> Collection[str]:
        """UIDs of allocated, unbound pods, whose chips this object has reserved."""
        return self._allocated.keys()

    def adopt(self) -> None:
        """Reserve the chips that an earlier extender process claimed for unbound pods.

        If a claim's chips cannot be reserved, the claim is removed from its pod.
        """
        now_s = self._clock.now_s()
        for pod in list(self._cache.pods.values()):
            node = pod.annotations.get(ALLOCATED_ON, "")
            if not node or pod.node or pod.terminal or pod.uid in self._allocated:
                continue
            reservation = _reservation(self._cache, pod, node)
            self._marks.record_existing(pod, _claim_keys(pod))
            if reservation is None:
                self._marks.remove_later(pod.uid)
            else:
                self._allocated[pod.uid] = now_s
                step(self._cache, reservation, now_s)

    async def stop(self) -> None:
        """Cancel background tasks that remove claims or write PodGroup conditions."""
        await self._marks.stop()
        await self._groups.stop()


def _reservation(cache: Cache, pod: NpuPod, node: str) -> Reservation | None:
    """Return the reservation of the chips that an unbound pod's claim names on `node`.

    Return None if the cache lacks the node, if the claim is missing or malformed, or if
    one of the claim's chips is not free.
    """
    state = cache.cluster.nodes(pod.shape.resource).get(node)
    if state is None:
        return None
    try:
        claim = annotations.parse_claim(pod.annotations, state.product)
    except WireError:
        return None
    mask = 0 if claim is None else chips.mask_of(claim.chips)
    if claim is None or not mask or mask & ~state.free:
        return None
    return Reservation(
        uid=pod.uid,
        node=node,
        chips=mask,
        predicate_time=claim.predicate_time,
        shape=pod.shape,
    )


def _claim_keys(pod: NpuPod) -> set[str]:
    """Return the keys of a claim's annotations that must be removed with the claim.

    The key of the rank is left out: the pod may have had a rank before its claim.
    """
    return {pod.shape.resource, *_KEYS}


#: Without the rank, which may be the pod's own.
_KEYS = (
    annotations.PREDICATE_TIME,
    annotations.CONFIGURATION,
    annotations.NPU_CONFIGURATION,
    ALLOCATED_ON,
    job_annotations.DISTRIBUTED_JOB,
    job_annotations.SUPER_POD_RANK,
    job_annotations.SUPER_POD_ID,
    job_annotations.IS_SHARED_TOR,
    job_annotations.IS_HEALTHY,
    job_annotations.SHARED_TOR_IP,
)
