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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from aiohttp import web

from extender.cache import decode
from extender.cache.cache import Cache
from extender.cache.events import Effect, ReservationDue, ReservationEnded
from extender.cache.reservations import Claim, Owner, Reservation
from extender.clocks import Clock
from extender.dispatch import Apply
from extender.gang.membership import planned_membership
from extender.http.endpoint import OnError, Verb, VerbHandlers
from extender.metrics import Metrics
from extender.refusals import READING, UNSEEN, ExtenderReason, Refusal
from extender.scheduling.decisions import LastDecision, LastDecisions
from extender.scheduling.node_filter import pod_refusal
from extender.scheduling.reserve import Choice
from extender.volcano import protocol, victims
from extender.volcano.claims import ClaimWriter
from extender.volcano.podgroup_conditions import PodGroupConditions
from extender.volcano.protocol import PLACED, Code, Job, Status, Task, Vote
from extender.volcano.sessions import UNBOUND_S, Sessions
from kube.errors import KubeError
from scheduler_core.node import chips
from scheduler_core.wire import annotations, job_annotations, quantities
from scheduler_core.wire.annotations import ALLOCATED_ON, WireError
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: Seconds in which kube-apiserver may still execute a bind. A predicate after that
#: means that the pod is not bound.
OPEN_S = 65.0
#: PodGroups whose refusal is remembered; a forgotten one gets one more event.
_REFUSED_MOST = 10_000
_NO_SCORES = protocol.scores_answer({})
_NO_VICTIMS = protocol.victims_answer(Vote.REJECT, ())
_ABSTENTION = protocol.vote_answer(Vote.ABSTAIN)


class EmitEvent(Protocol):
    """Function that records a Kubernetes event: why a PodGroup is not enqueued."""

    def __call__(self, job: Job, pod: NpuPod | None, text: str) -> None:
        """Record `text` as an event on the job's PodGroup, and on `pod` if not None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Components of the extender that `VolcanoVerbs` uses; the app owns them."""

    cache: Cache
    apply: Apply
    sessions: Sessions
    marks: ClaimWriter
    groups: PodGroupConditions
    notes: LastDecisions
    metrics: Metrics
    clock: Clock
    tell: EmitEvent


class VolcanoVerbs:
    """Handlers of Volcano's verbs, which remember the last refusal of each PodGroup.

    A pod is allocated if Volcano has called allocateFunc for it and the extender has
    reserved chips. The handlers own these reservations.
    """

    def __init__(self, parts: Parts, why_not_ready: Callable[[], str | None]) -> None:
        """Start without refusals.

        Args:
            parts: Components of the extender to use.
            why_not_ready: Returns why the extender may not answer Volcano now; None if
                it may. Called at each request.
        """
        self._cache = parts.cache
        self._apply = parts.apply
        self._sessions = parts.sessions
        self._marks = parts.marks
        self._groups = parts.groups
        self._decisions = parts.notes
        self._metrics = parts.metrics
        self._clock = parts.clock
        self._tell = parts.tell
        self._handlers = VerbHandlers(parts.metrics, why_not_ready)
        #: {UID of a PodGroup: last refusal}
        self._refusals: dict[str, str] = {}

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of all verbs, under the plugin's `urlPrefix` `/volcano`."""
        verb = self._handlers.wrap

        handlers: dict[str, tuple[Verb, OnError]] = {
            "predicate": (
                self._predicate,
                partial(protocol.predicate_answer, code=Code.ERROR),
            ),
            "prioritize": (self._prioritize, lambda _: _NO_SCORES),
            # A vote has no text. Volcano asks predicate next, which has one.
            "jobEnqueueable": (self._job_enqueueable, lambda _: _ABSTENTION),
            "allocateFunc": (self._allocate, protocol.task_answer),
            "deallocateFunc": (self._deallocate, protocol.task_answer),
            "preemptable": (self._victims, lambda _: _NO_VICTIMS),
            "reclaimable": (self._victims, lambda _: _NO_VICTIMS),
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
        self._metrics.nodes_refused.labels(refusal.reason).inc()
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

    def _pod(self, task: Task) -> NpuPod | None:
        """Return the pod of a task, if possible from the cache; None without NPUs."""
        pod = self._cache.pods.get(task.uid)
        return pod or decode.npu_pod(protocol.pod_of(task))

    def _drop_stale_allocation(self, task: Task) -> None:
        """Undo a task's allocation if it is at least `OPEN_S` old.

        Call this when Volcano sends a predicate for the task. Until `OPEN_S` have
        passed, the API server may still execute an earlier bind of the pod.
        """
        allocated = self._allocated(task.uid)
        if allocated is None:
            return
        left_s = allocated.until_s - self._clock.now_s()
        if left_s <= UNBOUND_S - OPEN_S:
            self._unreserve(task.uid)
            self._marks.remove_later(task.uid)

    def _allocated(self, uid: str) -> Reservation | None:
        """Return the reservation of an allocated, unbound pod; None for any other."""
        reservation = self._cache.reservation(uid)
        is_ours = reservation is not None and reservation.owner is Owner.VOLCANO
        return reservation if is_ours else None

    async def _prioritize(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.prioritize_args(body)
        pod = self._pod(args.task)
        if pod is None:
            return _NO_SCORES
        return protocol.scores_answer(self._sessions.scores(pod, args.names))

    async def _job_enqueueable(self, body: bytes, _request: web.Request) -> bytes:
        job = protocol.job_args(body)
        # Volcano makes the pods of its own Jobs only when they are enqueued.
        refusal = (
            self._sessions.job_refusal(job.tasks)
            if job.tasks
            else self._capacity_refusal(job)
        )
        if refusal is None:
            self._refusals.pop(job.group_uid, None)
            self._groups.record_admitted(job)
            return _ABSTENTION
        text = refusal.text
        if text != READING:
            self._groups.record_refusal(job, text)
        if text not in (self._refusals.get(job.group_uid), READING):
            self._refusals[job.group_uid] = text
            pods = map(self._cache.pods.get, job.tasks or ())
            self._tell(job, next(filter(None, pods), None), text)
        return protocol.vote_answer(Vote.REJECT)

    def _capacity_refusal(self, job: Job) -> Refusal | None:
        """Return why the free chips do not suffice for a PodGroup's `minResources`.

        Return None if the free chips suffice. Nodes that take no new pods, for example
        because their agent is silent, count as full.
        """
        for resource in decode.RESOURCES:
            needed = quantities.count(job.least.get(resource, 0))
            free = sum(
                state.free.bit_count()
                for state in self._cache.index.nodes(resource).values()
                if not state.barred
            )
            if needed > free:
                text = f"needs {needed} of {resource}, and {free} are free"
                return Refusal(reason=ExtenderReason.UNSCHEDULABLE, text=text)
        return None

    # -- allocate, deallocate, victims---------------------------------------------

    async def _allocate(self, body: bytes, _request: web.Request) -> bytes:
        task = protocol.task_args(body)
        if task.status != Status.ALLOCATED:
            return protocol.task_answer("")  # pipelined, or restored to running
        pod = self._pod(task)
        if pod is None or (pod.node and self._cache.pods.get(task.uid) is not None):
            return protocol.task_answer("")  # asks for no NPU, or is bound
        pod = replace(pod, node="")  # Volcano sends the pod with its new node
        choice = self._sessions.choose(pod, task.node)
        if isinstance(choice, Refusal):
            self._metrics.bind_refused.labels(choice.reason).inc()
            return protocol.task_answer(choice.text)
        failed = await self._write(pod, choice)
        return protocol.task_answer("" if failed is None else failed.text)

    async def _write(self, pod: NpuPod, choice: Choice) -> Refusal | None:
        """Write the claim in `choice` onto the pod; if that fails, unreserve its chips.

        Returns:
            None if the claim is on the pod, otherwise the error for Volcano.
        """
        claim = {**choice.annotations, ALLOCATED_ON: choice.reservation.node}
        try:
            await self._marks.put(pod, claim)
        except KubeError as error:
            self._unreserve(pod.uid)
            self._marks.remove_later(pod.uid)
            return Refusal(reason=ExtenderReason.API, text=f"the API server: {error}")
        if self._allocated(pod.uid) is None:
            return TAKEN_BACK
        self._decisions.put(
            pod.uid, LastDecision(at_s=self._clock.wall_s(), text=choice.sentence)
        )
        self._metrics.allocated.inc()
        return None

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
        if self._allocated(uid) is not None:
            self._metrics.deallocated.inc()
            self._sessions.unreserve(uid)

    async def _victims(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.evict_args(body)
        evictor = self._pod(args.evictor)
        if evictor is None:
            return protocol.victims_answer(Vote.ABSTAIN, ())
        if pod_refusal(self._cache, evictor, self._clock.now_s()) is not None:
            return _NO_VICTIMS
        chosen_victims = victims.choose(self._cache, evictor, args.evictees)
        vote = Vote.PERMIT if chosen_victims else Vote.REJECT
        return protocol.victims_answer(
            vote, [evictee.sent for evictee in chosen_victims]
        )

    # -- ticks, start, stop ------------------------------------------------------

    def carry_out(self, effect: Effect) -> None:
        """Undo allocations that are due, and forget those that ended; ignore the rest.

        An allocation is due if its pod is not bound within `UNBOUND_S`.
        """
        match effect:
            case ReservationDue(reservation=due) if due.owner is Owner.VOLCANO:
                uid = str(due.kept_for)
                log.warning("allocated and never bound", extra={"uid": uid})
                self._unreserve(uid)
                self._marks.remove_later(uid)
            case ReservationEnded(reservation=ended) if ended.owner is Owner.VOLCANO:
                self._marks.forget(str(ended.kept_for))
            case _:
                pass

    def tick(self) -> None:
        """Try failed removals of claims and PodGroup conditions again."""
        self._marks.retry()
        self._groups.tick()
        self._sessions.forget()
        if len(self._refusals) > _REFUSED_MOST:
            self._refusals.clear()

    def adopt(self) -> None:
        """Reserve the chips that an earlier extender process claimed for unbound pods.

        If a claim's chips cannot be reserved, the claim is removed from its pod.
        """
        until_s = self._clock.now_s() + UNBOUND_S
        for pod in list(self._cache.pods.values()):
            node = pod.annotations.get(ALLOCATED_ON, "")
            if not node or pod.node or pod.terminal or self._allocated(pod.uid):
                continue
            reservation = _reservation(self._cache, pod, node, until_s)
            self._marks.record_existing(pod, {pod.shape.resource, *_KEYS})
            if reservation is None or self._apply(reservation) is not None:
                self._marks.remove_later(pod.uid)

    async def stop(self) -> None:
        """Cancel background tasks that remove claims or write PodGroup conditions."""
        await self._marks.stop()
        await self._groups.stop()


#: Answer to an allocation that ended while its claim was being written.
TAKEN_BACK = Refusal(
    reason=ExtenderReason.UNCLEAR, text="Volcano has taken the pod back meanwhile"
)


def _reservation(
    cache: Cache, pod: NpuPod, node: str, until_s: float
) -> Reservation | None:
    """Return the reservation of the chips that an unbound pod's claim names on `node`.

    Return None if the cache lacks the node, if the claim is missing or malformed, or if
    one of the claim's chips is not free.
    """
    state = cache.index.nodes(pod.shape.resource).get(node)
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
        kept_for=pod.uid,
        owner=Owner.VOLCANO,
        node=node,
        resource=pod.shape.resource,
        chips=mask,
        until_s=until_s,
        claim=Claim(predicate_time=claim.predicate_time, shape=pod.shape),
    )


#: Keys of a claim's annotations that are removed with it, besides the pod's resource.
#: The key of the rank is left out: the pod may have had a rank before its claim.
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
