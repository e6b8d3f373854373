"""Plan jobs of several pods at filter, and hold a job's binds until all have arrived.

`plan` chooses nodes and chips. `gang.permit` decides when the bind calls of a job may
go on. This module carries out both decisions. It reserves and unreserves chips in the
cache, and holds each bind call until the call is permitted or refused. No await stands
between a plan and its reservations, so no other plan can take the same chips.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter
from typing import Protocol, assert_never

from prometheus_client import CollectorRegistry

from extender.cache import events
from extender.cache.cache import Cache, step
from extender.clocks import Clock
from extender.gang import events as gang_events
from extender.gang.gangs import Gang, Phase
from extender.gang.membership import SizeSource
from extender.gang.size import Size
from extender.gang.waiting_binds import WaitingBinds
from extender.metrics import Metrics
from extender.planning import plan
from extender.planning.candidates import (
    CandidateNodes,
    Question,
    Version,
    exclude_names,
)
from extender.planning.plan import TopologySnapshot
from extender.planning.reservation import NodeReservations
from extender.scheduling import node_filter, reserve
from extender.scheduling.node_filter import ExtenderReason, FilterResult, Refusal
from scheduler_core.wire.pods import NpuPod

#: Pods that kube-scheduler sends to bind in 1 s, at least. A larger job would not be
#: permitted before the scheduler gives up.
PODS_PER_S = 100

_STOPPING = "the extender is stopping"


class JobsApi(Protocol):
    """Calls of the planner to the API server, about the pods of jobs."""

    async def size(self, source: SizeSource) -> Size | str:
        """Read from the API server how many pods a job needs.

        If the read fails or gives no number, returns a sentence that says so.

        Args:
            source: Names the Kubernetes object that has the number.
        """

    async def remove(self, pod: NpuPod) -> None:
        """Evict a pod because other pods of its job were not bound in time."""

    def tell(self, pod: NpuPod, reason: str, text: str) -> None:
        """Emit a Kubernetes event on a pod about the pod's job.

        Args:
            pod: The pod that the event is shown on.
            reason: Reason of the event.
            text: Message of the event.
        """

    def wake(self) -> None:
        """Make schedulers try all refused pods again."""


class Planner:
    """Planner of jobs with several pods, which also holds their bind calls.

    A bind call is held until the job permits or refuses the bind. If a job loses its
    plan, the planner ends the reservations of members whose bind has not begun.
    """

    def __init__(
        self,
        cache: Cache,
        api: JobsApi,
        *,
        clock: Clock,
        topology: Callable[[Gang], TopologySnapshot] = lambda _gang: plan.PLAIN,
        metrics: Metrics | None = None,
    ) -> None:
        """Start without plans and without waiting bind calls.

        Args:
            cache: Plans read it; the planner writes reservations into it.
            api: Calls to the API server.
            clock: Source of all times.
            topology: Returns leaf switches, SuperPoDs and job rules for a job. Called
                each time a job is planned, or nodes are to be reserved for a job.
            metrics: If None, counts are dropped.
        """
        self._cache = cache
        self._api = api
        self._clock = clock
        self._topology = topology
        self._metrics = metrics or Metrics(CollectorRegistry())
        self._waiting_binds = WaitingBinds()
        #: jobs whose size is being read from the API server
        self._size_reads: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._candidates = CandidateNodes()
        #: jobs not planned while a member has a bind without an outcome
        self._postponed: set[str] = set()
        self._is_stopping = False
        self._node_reservations = NodeReservations(cache, topology)

    @property
    def largest(self) -> int:
        """Return the largest number of pods whose bind calls may be held for one job.

        A bind call is held for at most `--gate-s` seconds. In a larger job, the first
        call would time out before kube-scheduler has sent the last call.
        """
        return int(self._cache.limits.gate_s * PODS_PER_S)

    # -- filter --------------------------------------------------------------

    def filter_nodes(self, pod: NpuPod, names: Sequence[str]) -> FilterResult | None:
        """Return which nodes a pod may go to by the plan of its job.

        If no node among `names` is planned for the pod, the pod's job may be planned
        first (`offer`). Returns None for a one-pod job that asks for no leaf switches.
        Such a pod needs no plan.

        Args:
            pod: Asks for NPUs.
            names: Nodes that the scheduler offers to the pod.
        """
        gang = self._cache.gangs.gang_of(pod.uid)
        if gang is None:
            return None
        now_s = self._clock.now_s()
        refused = node_filter.pod_refusal(self._cache, pod, now_s) or self.why_wait(
            gang
        )
        if refused is not None:
            return node_filter.refuse_all(refused, names)
        if self.is_under_way(pod.uid):
            return node_filter.filter_nodes(self._cache, pod, names, now_s)
        self._find_place(gang, pod, names)
        reservation = self._cache.reservations.get(pod.uid)
        if reservation is None:
            return node_filter.refuse_unplanned(self._cache, pod, names, gang.text)
        return node_filter.accept_only(reservation.node, names)

    def _find_place(self, gang: Gang, pod: NpuPod, names: Sequence[str]) -> None:
        """Plan the job of `pod` unless its plan gives `pod` one of the nodes `names`.

        If the plan gives `pod` a different node, the event `NodeNotOffered` is first
        applied to the job. If this event does not end the plan, no new plan is made.
        """
        reservation = self._cache.reservations.get(pod.uid)
        if reservation is not None and reservation.node not in names:
            self.apply_event(
                gang_events.NodeNotOffered(uid=pod.uid, of_one=len(names) == 1)
            )
        if pod.uid not in gang.places:
            self.offer(gang, names)

    def offer(self, gang: Gang, names: Sequence[str]) -> None:
        """Plan a job, but first the waiting jobs that are ahead of it.

        A job is ahead if it has a higher priority, or the same priority and is older.
        No job is planned if one of these is true:

        - The size of the job `gang` is unknown, or a pod of it is missing.
        - All pods of `gang` are bound, or `gang` has a plan.
        - `gang` is in back-off.
        - `gang` has more unbound pods than `largest`, and its scheduler is not Volcano.

        Args:
            gang: The job.
            names: Candidate nodes of the job.
        """
        if self._is_due(gang):
            self._candidates.put(gang.job, names)
            self._plan_in_order(gang)

    def job_refusal(self, gang: Gang, names: Sequence[str]) -> str:
        """Return why a job's unbound pods do not fit the nodes `names`; "" if they fit.

        Nodes that are closed to the job (`Cache.nodes_reserved_from`) are left out. The
        call reserves nothing.
        """
        reserved_nodes = self._cache.nodes_reserved_from(next(iter(gang.members), ""))
        free_names = [name for name in names if name not in reserved_nodes]
        outcome = plan.plan(self._cache, gang, free_names, 0, self._topology(gang))
        return outcome if isinstance(outcome, str) else ""

    def why_wait(self, gang: Gang) -> Refusal | None:
        """Return why a job must not be planned now; None if it may be.

        The reasons are an unknown size, missing pods, too many pods, and back-off. If
        the size is unknown and no task reads it yet, a task is started that does so.
        """
        if gang.size is None:
            self._request_size(gang)
            text = gang.problem or node_filter.READING
        elif gang.missing:
            text = f"waits for {gang.missing} of the {gang.size.count} pods of its job"
        elif self._is_too_large(gang):
            text = (
                f"its job has {gang.unbound_count} pods, more than the {self.largest} "
                "that can be bound together"
            )
        elif self._clock.now_s() < gang.again_s:
            text = gang.text
        else:
            return None
        return Refusal(reason=ExtenderReason.JOB, text=text)

    def _plan_in_order(self, gang: Gang) -> None:
        """Plan a job, but first the waiting jobs with a lower `Gang.queue_key`.

        A waiting job is skipped if it was refused and the cache has not changed since.
        """
        pods = self._cache.pods
        waiting_gangs = [
            self._cache.gangs.jobs[job]
            for job in self._candidates.jobs
            if job in self._cache.gangs.jobs and job != gang.job
        ]
        own_key = gang.queue_key(pods) if waiting_gangs else ()
        gangs_ahead = [
            (turn, gang_ahead)
            for gang_ahead in waiting_gangs
            if (turn := gang_ahead.queue_key(pods)) < own_key
        ]
        for _, gang_ahead in sorted(gangs_ahead, key=itemgetter(0)):
            was_tried = self._candidates.was_tried(gang_ahead.job, self._version)
            if not was_tried and self._is_due(gang_ahead):
                self._plan(gang_ahead)
        if gang.phase is not Phase.RESERVED:
            self._plan(gang)

    def _is_due(self, gang: Gang) -> bool:
        return (
            gang.phase is Phase.GATHERING
            and gang.unbound_count > 0
            and gang.size is not None
            and not gang.missing
            and not self._is_too_large(gang)
            and self._clock.now_s() >= gang.again_s
        )

    def _is_too_large(self, gang: Gang) -> bool:
        return gang.is_gated and gang.unbound_count > self.largest

    def _plan(self, gang: Gang) -> None:
        """Plan a job on its candidate nodes, and reserve the chips of the plan.

        No await stands between plan and reservations, so no other plan can take the
        chips.
        """
        if self._has_open_bind(gang):
            self._postponed.add(gang.job)
            return
        uid = next(iter(gang.members), "")
        reserved_nodes = self._cache.nodes_reserved_from(uid)
        names = exclude_names(self._candidates.get(gang.job), reserved_nodes)
        question = plan.make_question(self._cache, gang, names)
        outcome = self._plan_or_refusal(gang, names, question)
        result = "no room" if isinstance(outcome, str) else "made"
        self._metrics.plans.labels(result).inc()
        if isinstance(outcome, str):
            if gang.format_names(gang.members) in outcome:
                question = (
                    None  # the refusal names the pod, so no other pod can reuse it
                )
            self._candidates.record_refusal(gang.job, question, outcome, self._version)
            self.apply_event(gang_events.PlanFailed(job=gang.job, text=outcome))
            self._node_reservations.consider(gang, names, self._clock.now_s())
            return
        now_s = self._clock.now_s()
        for reservation in outcome:
            step(self._cache, reservation, now_s)
        self._candidates.drop(gang.job)
        places = {reservation.uid: reservation.node for reservation in outcome}
        self.apply_event(gang_events.JobPlanned(job=gang.job, places=places))

    def _plan_or_refusal(
        self, gang: Gang, names: tuple[str, ...], question: Question | None
    ) -> tuple[events.Reservation, ...] | str:
        """Return the reservations of a plan for a job, or why the job does not fit.

        A refusal stored for the same question and version of the cache is returned
        without a new plan. Nodes that plans of the job avoid for a while (`gang.avoid`)
        are used only if the job does not fit without them.

        Args:
            gang: The job.
            names: Candidate nodes of the job.
            question: What a one-pod job asks for. None for any other job.
        """
        if question is not None:
            text = self._candidates.known_refusal(question, self._version)
            if text is not None:
                return text
        topology, now_ns = self._topology(gang), self._clock.now_ns()
        preferred_names = exclude_names(names, gang.avoid)
        outcome = plan.plan(self._cache, gang, preferred_names, now_ns, topology)
        if isinstance(outcome, str) and len(preferred_names) < len(names):
            outcome = plan.plan(self._cache, gang, names, now_ns, topology)
        return outcome

    @property
    def _version(self) -> Version:
        """Return two numbers: version of the cache, and version of the requests in it.

        The first grows with each change of free chips or leaf switches. The second
        grows with each change of a pod's requests for CPU and memory.
        """
        return self._cache.version, self._cache.requested_resources.version

    def _has_open_bind(self, gang: Gang) -> bool:
        """Return whether an unbound member has a bind whose outcome is not known yet.

        The member may still be bound to a node that a new plan would not give it.
        """
        return any(map(self.is_under_way, gang.members.keys() - gang.bound))

    # -- bind ----------------------------------------------------------------

    async def wait(self, caller: gang_events.Caller) -> str | None:
        """Hold a bind call for a pod until the pod's job permits or refuses the bind.

        A job permits binds once it has a bound member, or bind calls for all its
        unbound members have arrived. A call is not held if its pod is a job by itself,
        or if the pod's bind has begun. Returns None if the bind may be sent, else why
        it is refused.

        Args:
            caller: Pod and node of the bind call, and whether the client that sent it
                still waits for the answer.
        """
        if self._is_stopping:
            return _STOPPING
        gang = self._cache.gangs.gang_of(caller.uid)
        if gang is None or self.is_under_way(caller.uid):
            return None
        if len(gang.waiting_calls) + (caller.uid not in gang.waiting_calls) >= len(
            gang.places
        ):
            self._drop_abandoned_calls(gang)
        number = self._waiting_binds.add(caller)
        self.apply_event(
            gang_events.BindArrived(uid=caller.uid, node=caller.node, call=number)
        )
        try:
            with self._metrics.measure_permit_wait() as ended:
                return ended(await self._waiting_binds.wait(number))
        finally:
            self._waiting_binds.forget(number)
            self.apply_event(gang_events.BindAbandoned(uid=caller.uid, call=number))

    def record_bind_outcome(self, uid: str, text: str) -> None:
        """Record whether a bind that `wait` had permitted has bound its pod.

        Args:
            uid: UID of the pod.
            text: "" if the pod is bound; else why it is not, or that this is unknown.
        """
        self.apply_event(
            gang_events.BindFailed(uid=uid) if text else gang_events.Bound(uid=uid)
        )

    def unreserve(self, uid: str, *, is_gone: bool = False) -> None:
        """Free the chips of a pod whose bind did not happen, if no plan needs them.

        If the plan of the pod's job still contains the pod, the chips stay reserved for
        a later bind. The chips of a deleted pod become free in any case.

        Args:
            uid: UID of the pod.
            is_gone: True if the pod is deleted. The pod watch may not show this yet.
        """
        now_s = self._clock.now_s()
        if is_gone:
            step(self._cache, events.Unreserved(uid=uid), now_s)
            self.apply_event(gang_events.MemberRemoved(uid=uid))
            return
        gang = self._cache.gangs.gang_of(uid)
        reservation = self._cache.reservations.get(uid)
        if gang is not None and reservation is not None and uid in gang.places:
            step(self._cache, reservation._replace(planned=True), now_s)
        else:
            step(self._cache, events.Unreserved(uid=uid), now_s)

    def is_under_way(self, uid: str) -> bool:
        """Return whether a pod has reserved chips and its bind has begun."""
        reservation = self._cache.reservations.get(uid)
        return reservation is not None and not reservation.planned

    def _drop_abandoned_calls(self, gang: Gang) -> None:
        """Refuse a job's waiting bind calls that come from disconnected callers."""
        for uid, number in list(gang.waiting_calls.items()):
            caller = self._waiting_binds.caller(number)
            if caller is None or not caller.is_there():
                self.apply_event(gang_events.BindAbandoned(uid=uid, call=number))
                self._waiting_binds.answer(number, "the caller has gone")

    # -- changes, ticks, stop -------------------------------------------------

    def carry_out_effects(self) -> None:
        """Carry out the effects that changes of the cache have left in `cache.effects`.

        If the members or the size of a job changed, schedulers are made to try refused
        pods again. Call this after each `cache.step` that may affect a job.
        """
        if self._cache.gangs.changed:
            self._cache.gangs.changed.clear()
            self._api.wake()
        self._carry_out()

    def tick(self) -> None:
        """Refuse bind calls of disconnected callers; wake schedulers if a job may fit.

        Schedulers are made to try refused pods again in two cases:

        - A node reservation has ended.
        - A job was not planned because a bind had no outcome yet. Now all have one, or
          the job is gone.

        Also forgets the candidate nodes of jobs that no longer exist.
        """
        gangs = self._cache.gangs.jobs
        for gang in gangs.values():
            if gang.waiting_calls:
                self._drop_abandoned_calls(gang)
        postponed = {
            job
            for job in self._postponed
            if job in gangs and self._has_open_bind(gangs[job])
        }
        if (
            self._node_reservations.review(self._clock.now_s())
            or postponed < self._postponed
        ):
            self._api.wake()
        self._postponed = postponed
        self._candidates.retain(gangs)

    async def stop(self) -> None:
        """Refuse waiting and later bind calls, and cancel calls to the API server."""
        self._is_stopping = True
        self._waiting_binds.answer_all(_STOPPING)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- effects ---------------------------------------------------------------

    def apply_event(self, event: gang_events.Event) -> None:
        """Apply an event to the jobs in the cache; carry out the resulting effects."""
        self._cache.step_gang(event, self._clock.now_s())
        self._carry_out()

    def _carry_out(self) -> None:
        while self._cache.effects:
            effects, self._cache.effects = self._cache.effects, []
            for effect in effects:
                self._carry_out_one(effect)

    def _carry_out_one(self, effect: gang_events.Effect) -> None:
        match effect:
            case gang_events.ReleaseBinds(job=job, calls=calls):
                self._release_binds(job, list(calls.values()))
            case gang_events.RefuseBind(call=call, text=text):
                self._waiting_binds.answer(call, text)
            case gang_events.Unreserve(uids=uids):
                self._metrics.plans.labels("given back").inc()
                self._unreserve(uids)
            case gang_events.EmitEvent() | gang_events.EvictMembers():
                self._notify_members(effect)
            case gang_events.WakeScheduler():
                self._api.wake()
            case _:
                assert_never(effect)

    def _notify_members(
        self, effect: gang_events.EmitEvent | gang_events.EvictMembers
    ) -> None:
        pods = self._cache.pods
        for pod in [pods[uid] for uid in effect.uids if uid in pods]:
            if isinstance(effect, gang_events.EmitEvent):
                self._api.tell(pod, effect.reason, effect.text)
            else:
                self._start_task(self._api.remove(pod))

    def _release_binds(self, job: str, numbers: Sequence[int]) -> None:
        """Let the waiting bind calls of a job go on, or refuse them all.

        They are refused if one of their pods can no longer get its reserved chips. The
        job then loses its plan.

        Args:
            job: Key of the job.
            numbers: Serial numbers of the bind calls.
        """
        now_s = self._clock.now_s()
        for caller in filter(None, map(self._waiting_binds.caller, numbers)):
            pod, node = self._cache.pods[caller.uid], caller.node
            refused = reserve.why_not_reserved(self._cache, pod, node, now_s=now_s)
            if refused is not None and not pod.node:
                why = refused.text
                text = f"pod {pod.name} of the job can no longer be bound: {why}"
                for number in numbers:
                    self._waiting_binds.answer(number, text)
                self.apply_event(gang_events.PlanBroken(job=job, text=text))
                return
        self._start_task(self._waiting_binds.release(numbers))

    def _unreserve(self, uids: Sequence[str]) -> None:
        now_s = self._clock.now_s()
        for uid in uids:
            reservation = self._cache.reservations.get(uid)
            if reservation is not None and reservation.planned:
                step(self._cache, events.Unreserved(uid=uid), now_s)

    def _request_size(self, gang: Gang) -> None:
        if gang.size_source is not None and gang.job not in self._size_reads:
            self._size_reads.add(gang.job)
            self._start_task(self._learn_size(gang.job, gang.size_source))

    async def _learn_size(self, job: str, source: SizeSource) -> None:
        try:
            outcome = await self._api.size(source)
        finally:
            self._size_reads.discard(job)
        size, problem = (outcome, "") if isinstance(outcome, Size) else (None, outcome)
        size_read = events.SizeRead(job=job, size=size, problem=problem)
        step(self._cache, size_read, self._clock.now_s())
        self.carry_out_effects()

    def _start_task(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
