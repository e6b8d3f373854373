"""Volcano's verbs: what its `extender` plugin asks, and what it is answered.

allocateFunc is tentative: Volcano takes back what does not come to a whole job, and
nothing tells us when it is done. So chips are promised and written onto the pod when a
task is allocated; given back when Volcano says so, when it asks for the pod again as
for a pending one, or when the pod has not been bound for a long time. A bound pod is
never touched: its victims are deallocated as well, while they run.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Protocol

from aiohttp import web

from extender.cache import decode
from extender.cache.cache import Cache, step
from extender.cache.events import Assumed
from extender.clocks import Clock
from extender.gang.membership import to_be_planned
from extender.http.endpoint import Answering
from extender.metrics import Metrics
from extender.scheduling.decisions import Note, Notes
from extender.scheduling.node_filter import READING, UNSEEN, Verdict, pod_refusal
from extender.scheduling.reserve import Choice
from extender.volcano import protocol, victims
from extender.volcano.claims import Marks
from extender.volcano.podgroup_conditions import Groups
from extender.volcano.protocol import PLACED, Code, Job, Status, Task, Vote
from extender.volcano.sessions import Sessions
from kube.errors import KubeError
from kube.objects import Quantity
from scheduler_core.node import chips
from scheduler_core.wire import annotations, job_kind_marks
from scheduler_core.wire.annotations import ALLOCATED_ON, WireError
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: What kube-apiserver has not done by then, it never does: a pod that Volcano still
#: asks for has not been bound.
OPEN_S = 65.0
#: Volcano waits so long for a pod's volumes before it binds.
UNBOUND_S = 660.0
#: PodGroups whose refusal is remembered; forgetting one costs an event more.
_REFUSED_MOST = 10_000


class Tell(Protocol):
    """Says on a PodGroup why it is not taken up, and on its first pod."""

    def __call__(self, job: Job, pod: NpuPod | None, said: str) -> None:
        """Say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the verbs work with."""

    cache: Cache
    sessions: Sessions
    marks: Marks
    groups: Groups
    notes: Notes
    metrics: Metrics
    clock: Clock
    tell: Tell


class Volcano:
    """The verbs. Owner of the promises of pods that Volcano has allocated."""

    def __init__(self, parts: Parts, why_not_ready: Callable[[], str | None]) -> None:
        """Have given nothing to Volcano yet.

        Args:
            parts: its collaborators.
            why_not_ready: asked before each verb.
        """
        self._cache = parts.cache
        self._sessions = parts.sessions
        self._marks = parts.marks
        self._groups = parts.groups
        self._notes = parts.notes
        self._metrics = parts.metrics
        self._clock = parts.clock
        self._tell = parts.tell
        self._answering = Answering(parts.metrics, why_not_ready)
        #: {uid: when it was allocated}, until the pod is bound or gone
        self._allocated: dict[str, float] = {}
        #: {PodGroup: why it was refused}
        self._refused: dict[str, str] = {}

    def routes(self) -> list[web.RouteDef]:
        """What to serve, below the plugin's `urlPrefix`."""
        verb = self._answering.verb

        def error(text: str) -> bytes:
            return protocol.predicate_answer(text, Code.ERROR)

        def no_scores(_text: str) -> bytes:
            return protocol.scores_answer({})

        def abstain(_text: str) -> bytes:
            # Volcano has no words here: predicate is asked next, and has.
            return protocol.vote_answer(Vote.ABSTAIN)

        def no_victims(_text: str) -> bytes:
            return protocol.victims_answer(Vote.REJECT, ())

        found = {
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
            for name, (answer, on_error) in found.items()
        ]

    # -- where may a pod go ------------------------------------------------------

    async def _predicate(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.predicate_args(body)
        refused = self._refusal(args.task, args.node.name)
        if refused is None:
            return protocol.FITS
        self._metrics.refused_nodes.labels(refused.label).inc()
        code = Code.UNSCHEDULABLE if refused.is_resolvable else Code.UNRESOLVABLE
        return protocol.predicate_answer(refused.text, code)

    def _refusal(self, task: Task, node: str) -> Verdict | None:
        pod = self._cache.pods.get(task.uid)
        if pod is None:
            sent = protocol.pod_of(task)
            pod = decode.npu_pod(sent)
            if pod is None:
                return None  # asks for none of our resources: not ours to judge
            if to_be_planned(sent) is not None:
                return UNSEEN
        self._is_asked_again(task)
        return self._sessions.refusal(pod, node)

    def _is_asked_again(self, task: Task) -> None:
        """Take back what was allocated long ago, if Volcano has the pod pending."""
        since_s = self._allocated.get(task.uid)
        if since_s is not None and self._clock.now_s() - since_s >= OPEN_S:
            self._give_back(task.uid)
            self._marks.take_later(task.uid)

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
        # Volcano makes the pods of its own Jobs only when they are taken up.
        said = self._sessions.no_room(job.tasks) if job.tasks else self._too_little(job)
        if not said:
            self._refused.pop(job.group_uid, None)
            self._groups.let_in(job)
            return protocol.vote_answer(Vote.ABSTAIN)
        if said != READING:
            self._groups.refused(job, said)
        if said not in (self._refused.get(job.group_uid), READING):
            self._refused[job.group_uid] = said
            pods = (self._cache.pods.get(uid) for uid in job.tasks or ())
            self._tell(job, next(filter(None, pods), None), said)
        return protocol.vote_answer(Vote.REJECT)

    def _too_little(self, job: Job) -> str:
        """Whether all free chips together are fewer than the job needs at least."""
        for resource in decode.RESOURCES:
            wanted = _number(job.least.get(resource, 0))
            free = sum(
                state.free.bit_count()
                for state in self._cache.cluster.line(resource).values()
                if not state.barred
            )
            if wanted > free:
                return f"needs {wanted} of {resource}, and {free} are free"
        return ""

    # -- allocated, and taken back -----------------------------------------------

    async def _allocate(self, body: bytes, _request: web.Request) -> bytes:
        task = protocol.task_args(body)
        if task.status != Status.ALLOCATED:
            return protocol.task_answer("")  # pipelined, or running again
        pod = self._cache.pods.get(task.uid) or decode.npu_pod(protocol.pod_of(task))
        if pod is None or (pod.node and task.uid in self._cache.pods):
            return protocol.task_answer("")  # not ours, or bound
        pod = replace(pod, node="")  # a pod as sent has its new node on it already
        made = self._sessions.choose(pod, task.node)
        if isinstance(made, Verdict):
            self._metrics.bind_refused.labels(made.label).inc()
            return protocol.task_answer(made.text)
        return protocol.task_answer(await self._write(pod, made))

    async def _write(self, pod: NpuPod, made: Choice) -> str:
        """Write the claim onto the pod; what cannot be written is given back."""
        self._allocated[pod.uid] = self._clock.now_s()
        claim = {**made.annotations, ALLOCATED_ON: made.promise.node}
        try:
            await self._marks.put(pod, claim)
        except KubeError as error:
            self._give_back(pod.uid)
            self._marks.take_later(pod.uid)
            return f"the API server: {error}"
        if pod.uid not in self._allocated:
            return "Volcano has taken the pod back meanwhile"
        self._notes.put(pod.uid, Note(at_s=self._clock.wall_s(), text=made.sentence))
        self._metrics.allocated.inc()
        return ""

    async def _deallocate(self, body: bytes, _request: web.Request) -> bytes:
        task = protocol.task_args(body)
        pod = self._cache.pods.get(task.uid)
        if task.status & PLACED or (pod is not None and pod.node):
            return protocol.task_answer("")  # bound: what it has, it keeps
        self._give_back(task.uid)
        try:
            await self._marks.take(task.uid)
        except KubeError as error:
            return protocol.task_answer(f"the API server: {error}")
        return protocol.task_answer("")

    def _give_back(self, uid: str) -> None:
        if self._allocated.pop(uid, None) is not None:
            self._metrics.given_back.inc()
            self._sessions.give_back(uid)

    async def _victims(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.evict_args(body)
        evictor = self._cache.pods.get(args.evictor.uid) or decode.npu_pod(
            protocol.pod_of(args.evictor)
        )
        if evictor is None:
            return protocol.victims_answer(Vote.ABSTAIN, ())
        if pod_refusal(self._cache, evictor, self._clock.now_s()) is not None:
            return protocol.victims_answer(Vote.REJECT, ())
        found = victims.choose(self._cache, evictor, args.evictees)
        vote = Vote.PERMIT if found else Vote.REJECT
        return protocol.victims_answer(vote, [each.sent for each in found])

    # -- whatever else happens ---------------------------------------------------

    def tick(self) -> None:
        """Look at what was allocated, and at what could not be taken away."""
        now_s = self._clock.now_s()
        for uid, since_s in list(self._allocated.items()):
            if uid not in self._cache.assumed:  # bound or gone: that has been seen
                del self._allocated[uid]
                self._marks.forget(uid)
            elif now_s - since_s >= UNBOUND_S:
                log.warning("allocated and never bound", extra={"uid": uid})
                self._give_back(uid)
                self._marks.take_later(uid)
        self._marks.retry()
        self._groups.tick()
        self._sessions.forget()
        if len(self._refused) > _REFUSED_MOST:
            self._refused.clear()

    @property
    def promised(self) -> Collection[str]:
        """UIDs of the pods whose promises we answer for."""
        return self._allocated.keys()

    def adopt(self) -> None:
        """Take over what was allocated before we came, as far as pods say it."""
        now_s = self._clock.now_s()
        for pod in list(self._cache.pods.values()):
            node = pod.annotations.get(ALLOCATED_ON, "")
            if not node or pod.node or pod.terminal or pod.uid in self._allocated:
                continue
            promise = _promise(self._cache, pod, node)
            self._marks.found(pod, _keys(pod))
            if promise is None:
                self._marks.take_later(pod.uid)
            else:
                self._allocated[pod.uid] = now_s
                step(self._cache, promise, now_s)

    async def stop(self) -> None:
        """End what nobody waits for."""
        await self._marks.stop()
        await self._groups.stop()


def _promise(cache: Cache, pod: NpuPod, node: str) -> Assumed | None:
    """The claim of a pod that is not bound yet; None: it has none that is free."""
    state = cache.cluster.line(pod.shape.resource).get(node)
    if state is None:
        return None
    try:
        claim = annotations.parse_claim(pod.annotations, state.product)
    except WireError:
        return None
    mask = 0 if claim is None else chips.mask_of(claim.chips)
    if claim is None or not mask or mask & ~state.free:
        return None
    return Assumed(
        uid=pod.uid,
        node=node,
        chips=mask,
        predicate_time=claim.predicate_time,
        shape=pod.shape,
    )


def _keys(pod: NpuPod) -> set[str]:
    """What allocateFunc has written onto a pod; of the rest nobody knows who has."""
    return {pod.shape.resource, *_KEYS}


#: Not the rank, which may be the pod's own.
_KEYS = (
    annotations.PREDICATE_TIME,
    annotations.CONFIGURATION,
    annotations.NPU_CONFIGURATION,
    ALLOCATED_ON,
    job_kind_marks.DISTRIBUTED_JOB,
    job_kind_marks.SUPER_POD_RANK,
    job_kind_marks.SUPER_POD_ID,
    job_kind_marks.IS_SHARED_TOR,
    job_kind_marks.IS_HEALTHY,
    job_kind_marks.SHARED_TOR_IP,
)


def _number(quantity: Quantity) -> int:
    try:
        return int(quantity)
    except ValueError:
        return 0
