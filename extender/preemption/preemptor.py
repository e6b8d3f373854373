"""Free chips for pods and jobs of higher priority by eviction.

kube-scheduler itself only counts chips. If enough chips are free but form no ring, it
evicts no pod. So filter reports refused pods to the preemptor. Once a second the
preemptor chooses pods to evict (`victims`) and evicts them (`attempt`). The chips are
freed for one pod or job, the owner of the attempt. They are nominated: reserved for the
owner until the attempt ends.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, assert_never

from extender.cache import events
from extender.cache.cache import Cache, step
from extender.clocks import Clock
from extender.gang.gangs import Gang, Phase
from extender.planning import plan
from extender.planning.plan import TopologySnapshot
from extender.preemption import attempt as attempts
from extender.preemption import victims
from extender.preemption.attempt import Attempt, Outcome, Victim
from extender.scheduling import node_filter, reserve
from extender.scheduling.node_filter import Refusal
from extender.scheduling.reserve import Choice
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: Attempts chosen in one tick; each choice may cost some hundred milliseconds.
_AT_ONCE = 2


class EvictionApi(Protocol):
    """Calls of the preemptor to the API server, for evictions and events."""

    async def evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        """Ask the API server to evict a pod, and return the outcome.

        Args:
            victim: The pod.
            rehearse: If true, send only a dry run, which evicts nothing.
        """

    def tell(self, pod: NpuPod, reason: str, text: str) -> None:
        """Emit a Kubernetes event on a victim, or on a pod for which chips are freed.

        Args:
            pod: The pod that the event is shown on.
            reason: Reason of the event.
            text: Message of the event.
        """

    def wake(self) -> None:
        """Make schedulers try all refused pods again."""


class Preemptor:
    """Chooser of pods to evict for refused pods and jobs of higher priority.

    Only the preemptor nominates chips in the cache. To nominate chips is to reserve
    them for a pod or job while they are being freed. The parameter `owner` of its
    methods names that pod or job. Its value is the key of a job, or the UID of a pod
    that is a job by itself.
    """

    def __init__(
        self,
        cache: Cache,
        api: EvictionApi,
        *,
        clock: Clock,
        topology: Callable[[Gang], TopologySnapshot] = lambda _gang: plan.PLAIN,
        why_wait: Callable[[Gang], Refusal | None] = lambda _gang: None,
        limits: attempts.Limits = attempts.Limits(),  # noqa: B008  # a frozen value
    ) -> None:
        """Create a preemptor without any attempts to free chips.

        Args:
            cache: Victims are chosen from it. Chips are reserved in it.
            api: Sends evictions and events to the API server.
            clock: Source of all times.
            topology: Returns leaf switches, SuperPoDs and job rules for a job.
            why_wait: Returns why a job must not be planned now; None if it may be.
            limits: Time limits and pauses of attempts.
        """
        self._cache = cache
        self._api = api
        self._clock = clock
        self._topology = topology
        self._why_wait = why_wait
        self._limits = limits
        self._attempts = attempts.Attempts()
        #: {owner refused since the last tick: nodes that may fit it after evictions}
        self._refused_nodes: dict[str, tuple[str, ...]] = {}
        #: {uid of a one-pod job: time until which its freed chips stay reserved}
        self._reserved_until_s: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- calls of filter and preempt --------------------------------------------

    def refused(self, pod: NpuPod, names: Iterable[str]) -> None:
        """Record nodes that are unsuitable for a pod now; `tick` may evict pods there.

        Args:
            pod: Asks for NPUs and has no node.
            names: The nodes. They are added to the nodes recorded before for the pod or
                its job.
        """
        owner = self.owner(pod.uid)
        names_before = self._refused_nodes.get(owner, ())
        self._refused_nodes[owner] = tuple(dict.fromkeys([*names_before, *names]))

    def reserve_freed_chips(self, pod: NpuPod, names: Sequence[str]) -> None:
        """Let a pod or its job take the chips that evictions have freed for it.

        Nothing changes unless all these chips are free and the pod can use them. If so,
        the attempt that freed them ends. For a one-pod job, chips are reserved at once.
        A job of several pods is planned later in the same filter call.

        Args:
            pod: Pod of the present filter call.
            names: Nodes that the scheduler offers to the pod.
        """
        owner = self.owner(pod.uid)
        running = self._attempts.running.get(owner)
        if running is None or running.phase is not attempts.Phase.READY:
            return
        chips = running.attempt.chips
        if not chips.keys() <= set(names) or self._is_blocked(owner):
            return  # the owner could not use the chips: they stay nominated
        self._apply_event(attempts.AttemptEnded(owner=owner))
        if self._gang(owner) is not None:
            return
        (node,) = chips
        now_s = self._clock.now_s()
        choice = reserve.choose_chips(
            self._cache, pod, node, now_s=now_s, now_ns=self._clock.now_ns()
        )
        if isinstance(choice, Choice):
            reason = f"{choice.reason}, freed for it"
            reservation = choice.reservation._replace(planned=True, reason=reason)
            step(self._cache, reservation, now_s)
            self._reserved_until_s[pod.uid] = now_s + self._limits.ready_s

    # -- ticks, choices, stop ----------------------------------------------------

    def tick(self) -> None:
        """Advance running attempts, and start attempts for refused pods and jobs.

        At most `_AT_ONCE` attempts start in one tick. A one-pod job whose bind call did
        not arrive in time loses the chips that were freed for it.
        """
        now_s = self._clock.now_s()
        for owner in list(self._attempts.running):
            if not self._lacks_node(owner):
                self._apply_event(attempts.AttemptEnded(owner=owner))
            elif self._are_chips_free(owner):
                self._apply_event(attempts.ChipsFree(owner=owner))
        self._apply_event(attempts.Ticked())
        self._expire_reservations(now_s)
        self._decide()

    @property
    def reserved_uids(self) -> Collection[str]:
        """Return the UIDs of one-pod jobs whose freed chips are reserved for them.

        If a pod's bind does not begin in time, `tick` removes the pod's reservation. A
        pod whose bind has begun is in the result until the next `tick`.
        """
        return self._reserved_until_s.keys()

    async def stop(self) -> None:
        """Cancel eviction calls that the API server has not answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _decide(self) -> None:
        refused_nodes = self._refused_nodes
        due_owners = [
            owner
            for owner in sorted(refused_nodes, key=self._order)
            if self._is_due(owner)
        ]
        for owner in due_owners[:_AT_ONCE]:
            attempt = self._choose_victims(owner, refused_nodes[owner])
            if attempt is not None:
                self._apply_event(attempts.AttemptStarted(attempt=attempt))
        self._refused_nodes = {
            owner: refused_nodes[owner] for owner in due_owners[_AT_ONCE:]
        }

    def _is_due(self, owner: str) -> bool:
        """Return whether an attempt may start for the pod or job `owner`."""
        is_running = (
            owner in self._attempts.running or owner in self._attempts.backing_off
        )
        return (
            not is_running and self._lacks_node(owner) and not self._is_blocked(owner)
        )

    def _order(self, owner: str) -> tuple[int, str, str]:
        """Return the sort key of `owner` by priority, creation time and UID.

        For a job it is `Gang.queue_key`, by which the planner orders waiting jobs too.
        """
        gang = self._gang(owner)
        if gang is not None:
            return gang.queue_key(self._cache.pods)
        pod = self._cache.pods.get(owner)
        priority = self._cache.priorities.get(owner, 0)
        return -priority, pod.created if pod else "", owner

    def _choose_victims(self, owner: str, names: Sequence[str]) -> Attempt | None:
        protected = self._attempts.protected
        gang = self._gang(owner)
        if gang is None:
            pod = self._cache.pods[owner]
            return victims.for_pod(self._cache, pod, names, protected)
        return victims.for_job(
            self._cache, gang, names, protected, self._topology(gang)
        )

    def _gang(self, owner: str) -> Gang | None:
        """Return the job with the key `owner`, if its pods are planned together.

        None if `owner` is the UID of a pod that is a job by itself.
        """
        gang = self._cache.gangs.jobs.get(owner)
        return gang if gang is not None and gang.is_several else None

    def _lacks_node(self, owner: str) -> bool:
        """Return whether the pod or job `owner` still needs a node.

        A job needs one if all its pods exist, not all are bound, and it has no plan.
        A pod needs one if it is alive, not terminating, not bound, has no reservation,
        and is a job by itself.
        """
        gang = self._gang(owner)
        if gang is not None:
            is_whole = gang.size is not None and not gang.missing
            return gang.phase is Phase.GATHERING and is_whole and gang.unbound_count > 0
        pod = self._cache.pods.get(owner)
        if pod is None or pod.node or pod.terminal or pod.deleting:
            return False
        return owner not in self._cache.reservations and self.owner(owner) == owner

    def _is_blocked(self, owner: str) -> bool:
        """Return whether `owner` would not be placed even if enough chips were free.

        For example, the job pauses after the loss of its plan, or one of its pods is
        terminating.
        """
        gang = self._gang(owner)
        if gang is not None and self._why_wait(gang) is not None:
            return True
        now_s, pods = self._clock.now_s(), self._cache.pods
        members = [pods[uid] for uid in self._members(owner) if uid in pods]
        return any(node_filter.pod_refusal(self._cache, pod, now_s) for pod in members)

    def _are_chips_free(self, owner: str) -> bool:
        attempt = self._attempts.running[owner].attempt
        resource_states = (
            self._cache.resource_state(node, attempt.resource) for node in attempt.chips
        )
        return all(
            state is not None and state.is_cleared(owner) for state in resource_states
        )

    def _expire_reservations(self, now_s: float) -> None:
        """Unreserve freed chips of one-pod jobs whose bind call did not arrive in time.

        For such a pod, no new attempt may start for `Limits.rest_s` seconds. A pod that
        has joined a job of several pods loses its freed chips at once.
        """
        for uid, until_s in list(self._reserved_until_s.items()):
            reservation, gang = (
                self._cache.reservations.get(uid),
                self._cache.gangs.gang_of(uid),
            )
            is_planned = (
                gang is not None and uid in gang.places
            )  # the pod has joined a job
            if reservation is None or not reservation.planned or is_planned:
                del self._reserved_until_s[uid]
            elif now_s >= until_s or gang is not None:
                del self._reserved_until_s[uid]
                step(self._cache, events.Unreserved(uid=uid), now_s)
                self._attempts.backing_off[uid] = now_s + self._limits.rest_s

    def owner(self, uid: str) -> str:
        """Return the key of a pod's job, or the UID of a pod that is a job by itself.

        Args:
            uid: UID of the pod.
        """
        gang = self._cache.gangs.gang_of(uid)
        return uid if gang is None else gang.job

    # -- effects -------------------------------------------------------------------

    def _apply_event(self, event: attempts.Event) -> None:
        now_s = self._clock.now_s()
        for effect in attempts.step(self._attempts, event, now_s, self._limits):
            self._carry_out(effect, now_s)

    def _carry_out(self, effect: attempts.Effect, now_s: float) -> None:
        match effect:
            case attempts.Nominate(attempt=attempt):
                nominated = events.Nominated(
                    owner=attempt.owner,
                    resource=attempt.resource,
                    chips=attempt.chips,
                    text=attempt.text,
                )
                step(self._cache, nominated, now_s)
            case attempts.ClearNomination(owner=owner):
                step(self._cache, events.NominationCleared(owner=owner), now_s)
            case attempts.Evict():
                self._start_eviction(effect)
            case attempts.WakeScheduler():
                self._api.wake()
            case (
                attempts.Announce()
                | attempts.NotifyVictim()
                | attempts.NotifyTimedOut()
            ):
                self._notify(effect)
            case _:
                assert_never(effect)

    def _notify(
        self,
        effect: attempts.Announce | attempts.NotifyVictim | attempts.NotifyTimedOut,
    ) -> None:
        attempt = effect.attempt
        match effect:
            case attempts.NotifyVictim(victim=victim):
                text = (
                    f"evicted for {attempt.title}, which needs its chips and has a "
                    f"higher priority ({attempt.priority})"
                )
                self._notify_pods([victim.uid], "AscendPreempted", text)
            case attempts.Announce():
                victim_names = attempt.victim_names
                text = (
                    f"pods of lower priority are evicted to free chips: {victim_names}"
                )
                self._notify_pods(
                    self._members(attempt.owner), "AscendMakingRoom", text
                )
            case attempts.NotifyTimedOut():
                minutes = self._limits.leave_s / 60
                text = (
                    f"timed out after {minutes:g} min waiting for victims to release "
                    "their chips"
                )
                self._notify_pods(
                    self._members(attempt.owner), "AscendNoRoomMade", text
                )
            case _:
                assert_never(effect)

    def _notify_pods(self, uids: Iterable[str], reason: str, text: str) -> None:
        for uid in uids:
            pod = self._cache.pods.get(uid)
            if pod is not None:
                self._api.tell(pod, reason, text)

    def _members(self, owner: str) -> list[str]:
        gang = self._gang(owner)
        return [owner] if gang is None else gang.unbound

    def _start_eviction(self, effect: attempts.Evict) -> None:
        async def evict_and_apply() -> None:
            outcome = await self._api.evict(effect.victim, rehearse=effect.rehearse)
            uid, owner = effect.victim.uid, effect.owner
            if self._lacks_node(owner):
                self._apply_event(
                    attempts.Answered(owner=owner, uid=uid, outcome=outcome)
                )
            else:  # the owner needs no chips any more
                self._apply_event(attempts.AttemptEnded(owner=owner))

        task = asyncio.get_running_loop().create_task(evict_and_apply())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
