"""Free chips for pods and jobs of higher priority by eviction.

kube-scheduler itself only counts chips. If enough chips are free but form no ring, it
evicts no pod. So filter reports refused pods to the preemptor. Once a second the
preemptor chooses pods to evict (`victims`) and evicts them (`attempt`). The chips are
freed for one pod or job, the beneficiary of the attempt. They are nominated: reserved
for the beneficiary until the attempt ends.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol, assert_never

from extender.cache.cache import Cache
from extender.cache.events import Effect, Ended, Released, ReservationEnded
from extender.cache.reservations import Owner, Reservation
from extender.clocks import Clock
from extender.dispatch import Apply
from extender.gang.gang import Gang
from extender.gang.job_plan import Phase
from extender.planning import offered_nodes, plan_input
from extender.planning.candidates import queue_key
from extender.planning.plan_input import TopologySnapshot
from extender.preemption import attempt as attempts
from extender.preemption import victims
from extender.preemption.attempt import AttemptStarted, Outcome, Victim
from extender.refusals import Refusal
from extender.scheduling import node_filter, reserve
from extender.scheduling.reserve import Choice, Ownership
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: Attempts chosen in one tick; each choice may cost some hundred milliseconds.
_AT_ONCE = 2
#: Seconds for which a node that refused a member counts as offered to its kind. The
#: scheduler asks about each waiting pod more often.
_LATELY_S = 60.0


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

    It owns the reservations of chips that are being freed for a pod or a job, and of
    those that a pod has taken up. The parameter `beneficiary` of its methods names that
    pod or job. Its value is the key of a job, or the UID of a pod that is a job by
    itself.
    """

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        apply: Apply,
        api: EvictionApi,
        *,
        clock: Clock,
        topology: Callable[[Gang], TopologySnapshot] = lambda _gang: plan_input.PLAIN,
        why_wait: Callable[[Gang], Refusal | None] = lambda _gang: None,
        limits: attempts.Limits = attempts.Limits(),  # noqa: B008  # a frozen value
    ) -> None:
        """Create a preemptor without any attempts to free chips.

        Args:
            cache: Victims are chosen from it.
            apply: Applies an event to the cache. Chips are reserved by it.
            api: Sends evictions and events to the API server.
            clock: Source of all times.
            topology: Returns leaf switches, SuperPoDs and job rules for a job.
            why_wait: Returns why a job must not be planned now; None if it may be.
            limits: Time limits and pauses of attempts.
        """
        self._cache = cache
        self._apply = apply
        self._api = api
        self._clock = clock
        self._topology = topology
        self._why_wait = why_wait
        self._limits = limits
        self._attempts = attempts.Attempts()
        #: {beneficiary, refused since the last tick: nodes that evictions may free}
        self._refused_nodes: dict[str, tuple[str, ...]] = {}
        #: {job: {kind of its members: {node: when it refused one, in s}}}
        self._kinds: dict[str, dict[str, dict[str, float]]] = {}
        #: evictions without an answer
        self._tasks: set[asyncio.Task[None]] = set()

    # -- calls of filter and preempt --------------------------------------------

    def refused(self, pod: NpuPod, names: Iterable[str]) -> None:
        """Record nodes that are unsuitable for a pod now; `tick` may evict pods there.

        Args:
            pod: Asks for NPUs and has no node.
            names: The nodes. They are added to the nodes recorded before for the pod or
                its job.
        """
        beneficiary = self.beneficiary(pod.uid)
        names_before = self._refused_nodes.get(beneficiary, ())
        names = list(names)
        self._refused_nodes[beneficiary] = tuple(dict.fromkeys([*names_before, *names]))
        gang = self._gang(beneficiary)
        if gang is not None and pod.uid in gang.members:
            nodes = self._kinds.setdefault(beneficiary, {})
            nodes.setdefault(gang.kind_of(pod.uid), {}).update(
                dict.fromkeys(names, self._clock.now_s())
            )

    def reserve_freed_chips(self, pod: NpuPod, names: Sequence[str]) -> None:
        """Let a pod or its job take the chips that evictions have freed for it.

        Nothing changes unless all these chips are free and the pod can use them. If so,
        the attempt that freed them ends. For a one-pod job, chips are reserved at once.
        A job of several pods is planned later in the same filter call.

        Args:
            pod: Pod of the present filter call.
            names: Nodes that the scheduler offers to the pod.
        """
        beneficiary = self.beneficiary(pod.uid)
        running = self._attempts.running.get(beneficiary)
        if running is None or running.phase is not attempts.Phase.READY:
            return
        nodes = {freed.node for freed in self._nominated(beneficiary)}
        if not nodes <= set(names) or self._is_blocked(beneficiary):
            return  # the beneficiary could not use the chips: they stay nominated
        self._apply_event(attempts.AttemptEnded(beneficiary=beneficiary))
        if self._gang(beneficiary) is not None:
            return
        (node,) = nodes
        now_s = self._clock.now_s()
        until_s = now_s + self._limits.ready_s
        choice = reserve.choose_chips(
            self._cache,
            pod,
            node,
            ownership=Ownership(owner=Owner.PREEMPTION, until_s=until_s),
            now_s=now_s,
            now_ns=self._clock.now_ns(),
        )
        if isinstance(choice, Choice):
            text = f"{choice.reason}, freed for it"
            self._apply(choice.reservation._replace(text=text, freed_until_s=until_s))

    # -- ticks, choices, stop ----------------------------------------------------

    def tick(self) -> None:
        """Advance running attempts, and start attempts for refused pods and jobs.

        At most `_AT_ONCE` attempts start in one tick.
        """
        for beneficiary in list(self._attempts.running):
            if not self._goes_on(beneficiary):
                self._apply_event(attempts.AttemptEnded(beneficiary=beneficiary))
            elif self._are_chips_free(beneficiary):
                self._apply_event(attempts.ChipsFree(beneficiary=beneficiary))
        self._apply_event(attempts.Ticked())
        self._decide()

    def carry_out(self, effect: Effect) -> None:
        """End attempts whose reservations have ended; ignore other effects.

        If a pod's bind did not come in time for the chips that were freed for it, no
        new attempt may start for the pod for `Limits.rest_s` seconds.
        """
        if not isinstance(effect, ReservationEnded):
            return
        ended, why = effect.reservation, effect.why
        if ended.owner is not Owner.PREEMPTION:
            return
        beneficiary = str(ended.kept_for)
        if ended.claim is None:
            self._apply_event(attempts.AttemptEnded(beneficiary=beneficiary))
        elif why is Ended.EXPIRED:
            self._apply_event(attempts.Untaken(beneficiary=beneficiary))

    async def stop(self) -> None:
        """Cancel eviction calls that the API server has not answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _decide(self) -> None:
        refused_nodes = self._refused_nodes
        due = [
            beneficiary
            for beneficiary in sorted(refused_nodes, key=self._order)
            if self._is_due(beneficiary)
        ]
        for beneficiary in due[:_AT_ONCE]:
            started = self._choose_victims(beneficiary, refused_nodes[beneficiary])
            if started is not None:
                self._apply_event(started)
        self._refused_nodes = {
            beneficiary: refused_nodes[beneficiary] for beneficiary in due[_AT_ONCE:]
        }
        self._kinds = {
            job: nodes for job, nodes in self._kinds.items() if self._lacks_node(job)
        }

    def _is_due(self, beneficiary: str) -> bool:
        """Return whether an attempt may start for the pod or job `beneficiary`."""
        is_running = (
            beneficiary in self._attempts.running
            or beneficiary in self._attempts.backing_off
        )
        return (
            not is_running
            and self._lacks_node(beneficiary)
            and not self._is_blocked(beneficiary)
        )

    def _order(self, beneficiary: str) -> tuple[int, str, str]:
        """Return the sort key of `beneficiary` by priority, creation time and UID.

        For a job it is `queue_key`, by which the planner orders waiting jobs too.
        """
        gang = self._gang(beneficiary)
        if gang is not None:
            return queue_key(gang, self._cache.pods)
        pod = self._cache.pods.get(beneficiary)
        priority = self._cache.priority(beneficiary)
        return -priority, pod.created if pod else "", beneficiary

    def _choose_victims(
        self, beneficiary: str, names: Sequence[str]
    ) -> AttemptStarted | None:
        protected = self._attempts.protected
        gang = self._gang(beneficiary)
        if gang is None:
            pod = self._cache.pods[beneficiary]
            return victims.for_pod(self._cache, pod, names, protected)
        lists = self._lists(gang)
        if len(offered_nodes.waiting_kinds(gang)) == 1:
            lists = {}
        elif offered_nodes.find_unoffered(gang, lists):
            return None  # nobody is evicted before each kind was asked about
        else:
            names = tuple(dict.fromkeys([*names, *chain.from_iterable(lists.values())]))
        return victims.for_job(
            self._cache, gang, names, protected, self._topology(gang), lists
        )

    def _lists(self, gang: Gang) -> Mapping[str, frozenset[str]]:
        """Return {kind of its members: nodes that have refused one lately}."""
        since_s = self._clock.now_s() - _LATELY_S
        lists = {
            kind: frozenset(name for name, at_s in nodes.items() if at_s >= since_s)
            for kind, nodes in self._kinds.get(gang.job, {}).items()
        }
        some = {kind: nodes for kind, nodes in lists.items() if nodes}
        return offered_nodes.complete_lists(gang, some)

    def _gang(self, beneficiary: str) -> Gang | None:
        """Return the job with the key `beneficiary`, if its pods are planned together.

        None if `beneficiary` is the UID of a pod that is a job by itself.
        """
        gang = self._cache.gangs.get(beneficiary)
        return gang if gang is not None and gang.is_several else None

    def _lacks_node(self, beneficiary: str) -> bool:
        """Return whether the pod or job `beneficiary` still needs a node.

        A job needs one if the pods that it needs exist, not all of these are bound, and
        it has no plan.
        A pod needs one if it is alive, not terminating, not bound, has no reservation,
        and is a job by itself.
        """
        gang = self._gang(beneficiary)
        if gang is not None:
            is_whole = gang.size is not None and not gang.missing
            return (
                gang.plan.phase is Phase.GATHERING
                and is_whole
                and gang.unbound_count > 0
                and gang.lacks_members
            )
        pod = self._cache.pods.get(beneficiary)
        if pod is None or pod.node or pod.terminal or pod.deleting:
            return False
        return (
            self._cache.reservation(beneficiary) is None
            and self.beneficiary(beneficiary) == beneficiary
        )

    def _goes_on(self, beneficiary: str) -> bool:
        """Return whether the chips of an attempt are still needed, or may be needed.

        They may be while a bind with other chips is open: it can fail, and pods were
        evicted for these. An attempt that has evicted nobody yet is not worth it.
        """
        if self._lacks_node(beneficiary):
            return True
        running = self._attempts.running.get(beneficiary)
        has_evicted = running is not None and running.phase is not attempts.Phase.ASKING
        return has_evicted and self._cache.is_bind_open(beneficiary)

    def _is_blocked(self, beneficiary: str) -> bool:
        """Return whether a beneficiary would not be placed if enough chips were free.

        For example, the job pauses after the loss of its plan, or one of its pods is
        terminating.
        """
        gang = self._gang(beneficiary)
        if gang is not None and self._why_wait(gang) is not None:
            return True
        now_s, pods = self._clock.now_s(), self._cache.pods
        members = [pods[uid] for uid in self._members(beneficiary) if uid in pods]
        return any(node_filter.pod_refusal(self._cache, pod, now_s) for pod in members)

    def _are_chips_free(self, beneficiary: str) -> bool:
        nominated = self._nominated(beneficiary)
        return bool(nominated) and all(map(self._cache.is_cleared, nominated))

    def _nominated(self, beneficiary: str) -> list[Reservation]:
        """Return the chips that are being freed for a pod or a job."""
        return [
            reservation
            for reservation in self._cache.kept_for(beneficiary)
            if reservation.owner is Owner.PREEMPTION
        ]

    def beneficiary(self, uid: str) -> str:
        """Return the key of a pod's job, or the UID of a pod that is a job by itself.

        Args:
            uid: UID of the pod.
        """
        gang = self._cache.gang_of(uid)
        return uid if gang is None else gang.job

    # -- effects -------------------------------------------------------------------

    def _apply_event(self, event: attempts.Event) -> None:
        now_s = self._clock.now_s()
        for effect in attempts.step(self._attempts, event, now_s, self._limits):
            if not isinstance(effect, attempts.Nominate):
                self._carry_out(effect)
            elif not self._nominate(effect.started, now_s + self._limits.longest_s):
                beneficiary = effect.started.attempt.beneficiary
                self._apply_event(attempts.Blocked(beneficiary=beneficiary))
                return  # nobody is evicted for chips that the beneficiary cannot have

    def _carry_out(
        self,
        effect: attempts.ClearNomination
        | attempts.Evict
        | attempts.EmitEvent
        | attempts.WakeScheduler,
    ) -> None:
        match effect:
            case attempts.ClearNomination(beneficiary=beneficiary):
                self._apply(Released(kept_for=beneficiary, owner=Owner.PREEMPTION))
            case attempts.Evict():
                self._start_eviction(effect)
            case attempts.WakeScheduler():
                self._api.wake()
            case attempts.EmitEvent(victim=victim):
                uids = (
                    self._members(effect.attempt.beneficiary)
                    if victim is None
                    else [victim.uid]
                )
                for pod in filter(None, map(self._cache.pods.get, uids)):
                    self._api.tell(pod, effect.reason, effect.text)
            case _:
                assert_never(effect)

    def _nominate(self, started: AttemptStarted, until_s: float) -> bool:
        """Keep an attempt's chips for its beneficiary; False if others have some."""
        beneficiary = started.attempt.beneficiary
        for node, mask in started.chips.items():
            nominated = Reservation(
                kept_for=beneficiary,
                owner=Owner.PREEMPTION,
                node=node,
                resource=started.resource,
                chips=mask,
                until_s=until_s,
                text=started.text,
            )
            if self._apply(nominated) is not None:
                return False
        return True

    def _members(self, beneficiary: str) -> list[str]:
        gang = self._gang(beneficiary)
        return [beneficiary] if gang is None else gang.unbound

    def _start_eviction(self, effect: attempts.Evict) -> None:
        async def evict_and_apply() -> None:
            outcome = await self._api.evict(effect.victim, rehearse=effect.rehearse)
            uid, beneficiary = effect.victim.uid, effect.beneficiary
            if self._goes_on(beneficiary):
                self._apply_event(
                    attempts.Answered(
                        beneficiary=beneficiary,
                        number=effect.number,
                        uid=uid,
                        outcome=outcome,
                    )
                )
            else:  # the beneficiary needs no chips any more
                self._apply_event(attempts.AttemptEnded(beneficiary=beneficiary))

        task = asyncio.get_running_loop().create_task(evict_and_apply())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
