"""Making room for pods and jobs of higher priority: what is decided is carried out.

kube-scheduler evicts by count and finds nobody where the count suffices and the ring
does not. Filter tells us here which pods it has refused; once a second it is decided
whom to evict for them (`victims`), the API server is asked (`rooms`), and the chips
are kept in the cache until filter comes again for whom they were freed.
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
from extender.planning.plan import World
from extender.preemption import attempt, victims
from extender.preemption.attempt import Outcome, Room, Victim
from extender.scheduling import node_filter, reserve
from extender.scheduling.node_filter import Verdict
from extender.scheduling.reserve import Choice
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: Rooms that are decided on at a tick; each may cost some hundred milliseconds.
_AT_ONCE = 2


class EvictionApi(Protocol):
    """What making room asks of the world."""

    async def evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        """Evict a pod, or ask only whether it could be."""

    def tell(self, pod: NpuPod, reason: str, said: str) -> None:
        """Say on a pod what is done for it, or why it goes."""

    def wake(self) -> None:
        """Have the scheduler try pods again."""


class Evictor:
    """Makes room. Protects: the cache keeps the chips of the rooms on their way."""

    def __init__(
        self,
        cache: Cache,
        api: EvictionApi,
        *,
        clock: Clock,
        world: Callable[[Gang], World] = lambda _gang: plan.PLAIN,
        why_wait: Callable[[Gang], Verdict | None] = lambda _gang: None,
        limits: attempt.Limits = attempt.Limits(),  # noqa: B008  # a frozen value
    ) -> None:
        """Make no room yet.

        Args:
            cache: Decided on, and told which chips are kept.
            api: The world.
            clock: For all that depends on time.
            world: What is known of networks, asked for each job.
            why_wait: Why no pod of a job could be placed now, whatever the nodes.
            limits: How long things may take.
        """
        self._cache = cache
        self._api = api
        self._clock = clock
        self._world = world
        self._why_wait = why_wait
        self._limits = limits
        self._book = attempt.Book()
        #: {owner refused since the last tick: nodes where only pods are in its way}
        self._wishes: dict[str, tuple[str, ...]] = {}
        #: {uid: until when a pod by itself may come for its chips}
        self._handed: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what filter and preempt say --------------------------------------------

    def refused(self, pod: NpuPod, names: Iterable[str]) -> None:
        """Note that a pod found no node, though only pods are in its way on these."""
        owner = self.owner(pod.uid)
        known = self._wishes.get(owner, ())
        self._wishes[owner] = tuple(dict.fromkeys([*known, *names]))

    def hand_over(self, pod: NpuPod, names: Sequence[str]) -> None:
        """Give the chips that were freed for a pod or its job to it, as it comes.

        A job is planned on them by the filter that asks; a pod is promised them, since
        another's bind may come before its own.
        """
        owner = self.owner(pod.uid)
        making = self._book.making.get(owner)
        if making is None or making.phase is not attempt.Phase.READY:
            return
        chips = making.room.chips
        if not chips.keys() <= set(names) or self._is_held_up(owner):
            return  # it could not take them: they stay kept
        self._do(attempt.Over(owner=owner))
        if self._gang(owner) is not None:
            return
        (node,) = chips
        now_s = self._clock.now_s()
        made = reserve.choose(
            self._cache, pod, node, now_s=now_s, now_ns=self._clock.now_ns()
        )
        if isinstance(made, Choice):
            reason = f"{made.reason}, freed for it"
            promise = made.promise._replace(planned=True, reason=reason)
            step(self._cache, promise, now_s)
            self._handed[pod.uid] = now_s + self._limits.ready_s

    # -- whatever else happens ---------------------------------------------------

    def tick(self) -> None:
        """Look how far rooms are, and decide for whom to make others."""
        now_s = self._clock.now_s()
        for owner in list(self._book.making):
            if not self._waits(owner):
                self._do(attempt.Over(owner=owner))
            elif self._is_cleared(owner):
                self._do(attempt.Cleared(owner=owner))
        self._do(attempt.Ticked())
        self._take_back(now_s)
        self._decide()

    @property
    def promised(self) -> Collection[str]:
        """UIDs of the pods whose promises we answer for."""
        return self._handed.keys()

    async def stop(self) -> None:
        """Evict nobody any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _decide(self) -> None:
        wishes = self._wishes
        due = [each for each in sorted(wishes, key=self._order) if self._is_due(each)]
        for owner in due[:_AT_ONCE]:
            room = self._room(owner, wishes[owner])
            if room is not None:
                self._do(attempt.Begun(room=room))
        self._wishes = {owner: wishes[owner] for owner in due[_AT_ONCE:]}

    def _is_due(self, owner: str) -> bool:
        """Whether to make room for it; whoever is held up takes nobody's turn."""
        known = owner in self._book.making or owner in self._book.resting
        return not known and self._waits(owner) and not self._is_held_up(owner)

    def _order(self, owner: str) -> tuple[int, str, str]:
        """Priority, then age, then UID, as jobs are planned."""
        gang = self._gang(owner)
        if gang is not None:
            return gang.turn(self._cache.pods)
        pod = self._cache.pods.get(owner)
        priority = self._cache.priorities.get(owner, 0)
        return -priority, pod.created if pod else "", owner

    def _room(self, owner: str, names: Sequence[str]) -> Room | None:
        spared = self._book.spared
        gang = self._gang(owner)
        if gang is None:
            pod = self._cache.pods[owner]
            return victims.for_pod(self._cache, pod, names, spared)
        return victims.for_job(self._cache, gang, names, spared, self._world(gang))

    def _gang(self, owner: str) -> Gang | None:
        """The job of several pods that an owner is; None: a pod by itself."""
        gang = self._cache.gangs.jobs.get(owner)
        return gang if gang is not None and gang.is_several else None

    def _waits(self, owner: str) -> bool:
        """Whether somebody still has no place."""
        gang = self._gang(owner)
        if gang is not None:
            is_whole = gang.size is not None and not gang.missing
            return gang.phase is Phase.IDLE and is_whole and gang.unseated_count > 0
        pod = self._cache.pods.get(owner)
        if pod is None or pod.node or pod.terminal or pod.deleting:
            return False
        return owner not in self._cache.assumed and self.owner(owner) == owner

    def _is_held_up(self, owner: str) -> bool:
        """Whether free chips would be of no use to whom they are for, as of now."""
        gang = self._gang(owner)
        if gang is not None and self._why_wait(gang) is not None:
            return True
        now_s, known = self._clock.now_s(), self._cache.pods
        pods = [known[uid] for uid in self._members(owner) if uid in known]
        return any(node_filter.pod_refusal(self._cache, pod, now_s) for pod in pods)

    def _is_cleared(self, owner: str) -> bool:
        room = self._book.making[owner].room
        records = (self._cache.line(node, room.resource) for node in room.chips)
        return all(each is not None and each.is_cleared(owner) for each in records)

    def _take_back(self, now_s: float) -> None:
        """Take chips back from pods that did not come to be bound."""
        for uid, until_s in list(self._handed.items()):
            promise, gang = self._cache.assumed.get(uid), self._cache.gangs.of(uid)
            is_planned = gang is not None and uid in gang.places  # it has joined a job
            if promise is None or not promise.planned or is_planned:
                del self._handed[uid]
            elif now_s >= until_s or gang is not None:
                del self._handed[uid]
                step(self._cache, events.Dropped(uid=uid), now_s)
                self._book.resting[uid] = now_s + self._limits.rest_s

    def owner(self, uid: str) -> str:
        """For whom room is made when a pod needs it: the pod, or its job."""
        gang = self._cache.gangs.of(uid)
        return uid if gang is None else gang.job

    # -- effects -------------------------------------------------------------------

    def _do(self, event: attempt.Event) -> None:
        now_s = self._clock.now_s()
        for effect in attempt.step(self._book, event, now_s, self._limits):
            self._carry_out(effect, now_s)

    def _carry_out(self, effect: attempt.Effect, now_s: float) -> None:
        match effect:
            case attempt.Keep(room=room):
                kept = events.RoomKept(
                    owner=room.owner,
                    resource=room.resource,
                    chips=room.chips,
                    said=room.said,
                )
                step(self._cache, kept, now_s)
            case attempt.GiveUp(owner=owner):
                step(self._cache, events.RoomGivenUp(owner=owner), now_s)
            case attempt.Evict():
                self._later(effect)
            case attempt.Wake():
                self._api.wake()
            case attempt.Announce() | attempt.TellVictim() | attempt.TellInVain():
                self._tell(effect)
            case _:
                assert_never(effect)

    def _tell(
        self, effect: attempt.Announce | attempt.TellVictim | attempt.TellInVain
    ) -> None:
        room = effect.room
        match effect:
            case attempt.TellVictim(victim=victim):
                said = (
                    f"evicted for {room.title}, which needs its chips and has a "
                    f"higher priority ({room.priority})"
                )
                self._say([victim.uid], "AscendPreempted", said)
            case attempt.Announce():
                said = f"pods of lower priority are evicted to free chips: {room.named}"
                self._say(self._members(room.owner), "AscendMakingRoom", said)
            case attempt.TellInVain():
                said = "chips were to be freed, and in time they were not"
                self._say(self._members(room.owner), "AscendNoRoomMade", said)
            case _:
                assert_never(effect)

    def _say(self, uids: Iterable[str], reason: str, said: str) -> None:
        for uid in uids:
            pod = self._cache.pods.get(uid)
            if pod is not None:
                self._api.tell(pod, reason, said)

    def _members(self, owner: str) -> list[str]:
        gang = self._gang(owner)
        return [owner] if gang is None else gang.unseated

    def _later(self, effect: attempt.Evict) -> None:
        async def run() -> None:
            outcome = await self._api.evict(effect.victim, rehearse=effect.rehearse)
            uid, owner = effect.victim.uid, effect.owner
            if self._waits(owner):
                self._do(attempt.Answered(owner=owner, uid=uid, outcome=outcome))
            else:  # all may go now, and for nobody
                self._do(attempt.Over(owner=owner))

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
