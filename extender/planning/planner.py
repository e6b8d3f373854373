"""Jobs of several pods, from filter to bind: when they are planned, and what follows.

Filter asks here where a pod of such a job may go, bind whether it may be bound now. The
decisions are made by `planning` and `gate`; here they are carried out: promises are put
into the cache and taken back, and bind calls wait for the gate in futures. Between a
decision and its promise there is no await.
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
from extender.gang.membership import Told
from extender.gang.size import Size
from extender.gang.waiting_binds import Calls
from extender.metrics import Metrics
from extender.planning import plan
from extender.planning.candidates import Offers, Question, Version, without
from extender.planning.plan import World
from extender.planning.reservation import Keeper
from extender.scheduling import node_filter, reserve
from extender.scheduling.node_filter import Judgement, Label, Verdict
from scheduler_core.wire.pods import NpuPod

#: Above it a gate would not be through before the scheduler gives up: the pods that a
#: kube-scheduler sends to bind within a second, at the least.
PODS_PER_S = 100

_STOPPING = "the extender is stopping"


class JobsApi(Protocol):
    """What planning asks of the world; nothing of it is waited for."""

    async def size(self, told: Told) -> Size | str:
        """How many pods a job has, or why its object cannot be read."""

    async def remove(self, pod: NpuPod) -> None:
        """Evict a pod."""

    def tell(self, pod: NpuPod, reason: str, said: str) -> None:
        """Say on a pod what became of its job."""

    def wake(self) -> None:
        """Have the scheduler try pods again."""


class Planner:
    """Plans jobs and keeps their gates. Owner of the planned promises in the cache."""

    def __init__(
        self,
        cache: Cache,
        api: JobsApi,
        *,
        clock: Clock,
        world: Callable[[Gang], World] = lambda _gang: plan.PLAIN,
        metrics: Metrics | None = None,
    ) -> None:
        """Plan nothing yet.

        Args:
            cache: Planned on, and told of each promise.
            api: The world.
            clock: For all that depends on time.
            world: What is known of networks, asked for each plan.
            metrics: Counts; None where nobody reads them.
        """
        self._cache = cache
        self._api = api
        self._clock = clock
        self._world = world
        self._metrics = metrics or Metrics(CollectorRegistry())
        self._calls = Calls()
        #: jobs whose objects are being read
        self._reading: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._offers = Offers()
        #: jobs whose plan waits until it is known what has become of a bind
        self._put_off: set[str] = set()
        self._is_stopping = False
        self._keeper = Keeper(cache, world)

    @property
    def largest(self) -> int:
        """The most pods of a job that get through the gate in time."""
        return int(self._cache.limits.gate_s * PODS_PER_S)

    # -- filter --------------------------------------------------------------

    def judge(self, pod: NpuPod, names: Sequence[str]) -> Judgement | None:
        """Where a pod may go; None for a pod that is a job by itself."""
        gang = self._cache.gangs.of(pod.uid)
        if gang is None:
            return None
        now_s = self._clock.now_s()
        refused = node_filter.pod_refusal(self._cache, pod, now_s) or self.why_wait(
            gang
        )
        if refused is not None:
            return node_filter.nowhere(refused, names)
        if self.is_under_way(pod.uid):
            return node_filter.judge(self._cache, pod, names, now_s)
        self._find_place(gang, pod, names)
        promise = self._cache.assumed.get(pod.uid)
        if promise is None:
            return node_filter.unplanned(self._cache, pod, names, gang.said)
        return node_filter.only(promise.node, names)

    def _find_place(self, gang: Gang, pod: NpuPod, names: Sequence[str]) -> None:
        """Plan the job of a pod that has no place, or none that it is offered."""
        promise = self._cache.assumed.get(pod.uid)
        if promise is not None and promise.node not in names:
            self.note(gang_events.Missed(uid=pod.uid, of_one=len(names) == 1))
        if pod.uid not in gang.places:
            self.offer(gang, names)

    def offer(self, gang: Gang, names: Sequence[str]) -> None:
        """Plan a job on these nodes, if it is whole and due."""
        if self._is_due(gang):
            self._offers.put(gang.job, names)
            self._plan_in_order(gang)

    def no_room(self, gang: Gang, names: Sequence[str]) -> str:
        """Why a job does not fit on these nodes; "" if it does. Promises nothing."""
        kept = self._cache.kept_from(next(iter(gang.seats), ""))
        some = [name for name in names if name not in kept]
        found = plan.plan(self._cache, gang, some, 0, self._world(gang))
        return found if isinstance(found, str) else ""

    def why_wait(self, gang: Gang) -> Verdict | None:
        """Why no pod of the job can be placed now, whatever the nodes."""
        if gang.size is None:
            self._read(gang)
            text = gang.problem or node_filter.READING
        elif gang.missing:
            text = f"waits for {gang.missing} of the {gang.size.count} pods of its job"
        elif self._is_too_large(gang):
            text = (
                f"its job has {gang.unseated_count} pods, more than the {self.largest} "
                "that can be bound together"
            )
        elif self._clock.now_s() < gang.again_s:
            text = gang.said
        else:
            return None
        return Verdict(label=Label.JOB, text=text)

    def _plan_in_order(self, gang: Gang) -> None:
        """Plan the jobs that come before this one and have waited, then this one."""
        pods = self._cache.pods
        others = [
            self._cache.gangs.jobs[job]
            for job in self._offers.jobs
            if job in self._cache.gangs.jobs and job != gang.job
        ]
        place = gang.turn(pods) if others else ()
        ahead = [(turn, one) for one in others if (turn := one.turn(pods)) < place]
        for _, one in sorted(ahead, key=itemgetter(0)):
            tried = self._offers.was_tried(one.job, self._version)
            if not tried and self._is_due(one):
                self._plan(one)
        if gang.phase is not Phase.HELD:
            self._plan(gang)

    def _is_due(self, gang: Gang) -> bool:
        return (
            gang.phase is Phase.IDLE
            and gang.unseated_count > 0
            and gang.size is not None
            and not gang.missing
            and not self._is_too_large(gang)
            and self._clock.now_s() >= gang.again_s
        )

    def _is_too_large(self, gang: Gang) -> bool:
        return gang.is_gated and gang.unseated_count > self.largest

    def _plan(self, gang: Gang) -> None:
        """Plan a job and promise what the plan needs, without an await between."""
        if self._has_open(gang):
            self._put_off.add(gang.job)
            return
        uid = next(iter(gang.seats), "")
        kept = self._cache.kept_from(uid)
        names = without(self._offers.of(gang.job), kept)
        question = plan.question(self._cache, gang, names)
        found = self._found(gang, names, question)
        result = "no room" if isinstance(found, str) else "made"
        self._metrics.plans.labels(result).inc()
        if isinstance(found, str):
            if gang.named(gang.seats) in found:
                question = None  # of this very pod
            self._offers.try_in_vain(gang.job, question, found, self._version)
            self.note(gang_events.Unplanned(job=gang.job, said=found))
            self._keeper.consider(gang, names, self._clock.now_s())
            return
        now_s = self._clock.now_s()
        for promise in found:
            step(self._cache, promise, now_s)
        self._offers.end(gang.job)
        places = {promise.uid: promise.node for promise in found}
        self.note(gang_events.Planned(job=gang.job, places=places))

    def _found(
        self, gang: Gang, names: tuple[str, ...], question: Question | None
    ) -> tuple[events.Assumed, ...] | str:
        """A plan, or why there is none; what is known already is not asked again."""
        if question is not None:
            said = self._offers.why_not(question, self._version)
            if said is not None:
                return said
        world, now_ns = self._world(gang), self._clock.now_ns()
        wanted = without(names, gang.avoid)
        found = plan.plan(self._cache, gang, wanted, now_ns, world)
        if isinstance(found, str) and len(wanted) < len(names):
            found = plan.plan(self._cache, gang, names, now_ns, world)
        return found

    @property
    def _version(self) -> Version:
        """Grows with whatever a plan depends on."""
        return self._cache.version, self._cache.loads.version

    def _has_open(self, gang: Gang) -> bool:
        """Whether a pod of it may yet be bound elsewhere than a new plan would say."""
        return any(map(self.is_under_way, gang.seats.keys() - gang.seated))

    # -- bind ----------------------------------------------------------------

    async def wait(self, caller: gang_events.Caller) -> str | None:
        """Hold a bind until its job is ready: None to go on, or why it is refused."""
        if self._is_stopping:
            return _STOPPING
        gang = self._cache.gangs.of(caller.uid)
        if gang is None or self.is_under_way(caller.uid):
            return None
        if len(gang.came) + (caller.uid not in gang.came) >= len(gang.places):
            self._sweep(gang)
        number = self._calls.take(caller)
        self.note(gang_events.Came(uid=caller.uid, node=caller.node, call=number))
        try:
            with self._metrics.waiting_at_gate() as ended:
                return ended(await self._calls.of(number))
        finally:
            self._calls.forget(number)
            self.note(gang_events.Left(uid=caller.uid, call=number))

    def settled(self, uid: str, said: str) -> None:
        """Note how a bind that the gate let through has ended; "" is bound."""
        self.note(gang_events.Failed(uid=uid) if said else gang_events.Seated(uid=uid))

    def voided(self, uid: str, *, is_gone: bool = False) -> None:
        """Note that a bind has not happened: its chips are free, or kept by its job.

        Of a pod that is gone, of which no watch may know yet, no plan keeps any.
        """
        now_s = self._clock.now_s()
        if is_gone:
            step(self._cache, events.Dropped(uid=uid), now_s)
            self.note(gang_events.Lost(uid=uid))
            return
        gang = self._cache.gangs.of(uid)
        promise = self._cache.assumed.get(uid)
        if gang is not None and promise is not None and uid in gang.places:
            step(self._cache, promise._replace(planned=True), now_s)
        else:
            step(self._cache, events.Dropped(uid=uid), now_s)

    def is_under_way(self, uid: str) -> bool:
        """Whether a pod has chips that it is being bound with."""
        promise = self._cache.assumed.get(uid)
        return promise is not None and not promise.planned

    def _sweep(self, gang: Gang) -> None:
        """Drop the calls of a job whose callers have gone."""
        for uid, number in list(gang.came.items()):
            caller = self._calls.caller(number)
            if caller is None or not caller.is_there():
                self.note(gang_events.Left(uid=uid, call=number))
                self._calls.answer(number, "the caller has gone")

    # -- whatever else happens -------------------------------------------------

    def settle(self) -> None:
        """Do what changes of the cache have asked for; to be called after each."""
        if self._cache.gangs.changed:
            self._cache.gangs.changed.clear()
            self._api.wake()
        self._carry_out()

    def tick(self) -> None:
        """Drop the calls of callers who have gone; wake whom nothing holds up now."""
        known = self._cache.gangs.jobs
        for gang in known.values():
            if gang.came:
                self._sweep(gang)
        put_off = {j for j in self._put_off if j in known and self._has_open(known[j])}
        if self._keeper.review(self._clock.now_s()) or put_off < self._put_off:
            self._api.wake()
        self._put_off = put_off
        self._offers.forget(known)

    async def stop(self) -> None:
        """Let no bind through any more, and refuse those that wait."""
        self._is_stopping = True
        self._calls.answer_all(_STOPPING)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- effects ---------------------------------------------------------------

    def note(self, event: gang_events.Event) -> None:
        """Let something happen to a job, and do what follows."""
        self._cache.of_job(event, self._clock.now_s())
        self._carry_out()

    def _carry_out(self) -> None:
        while self._cache.effects:
            effects, self._cache.effects = self._cache.effects, []
            for effect in effects:
                self._carry_out_one(effect)

    def _carry_out_one(self, effect: gang_events.Effect) -> None:
        match effect:
            case gang_events.Open(job=job, calls=calls):
                self._open(job, list(calls.values()))
            case gang_events.Answer(call=call, said=said):
                self._calls.answer(call, said)
            case gang_events.GiveBack(uids=uids):
                self._metrics.plans.labels("given back").inc()
                self._give_back(uids)
            case gang_events.Tell() | gang_events.Remove():
                self._of_pods(effect)
            case gang_events.Wake():
                self._api.wake()
            case _:
                assert_never(effect)

    def _of_pods(self, effect: gang_events.Tell | gang_events.Remove) -> None:
        pods = self._cache.pods
        for pod in [pods[uid] for uid in effect.uids if uid in pods]:
            if isinstance(effect, gang_events.Tell):
                self._api.tell(pod, effect.reason, effect.said)
            else:
                self._later(self._api.remove(pod))

    def _open(self, job: str, numbers: Sequence[int]) -> None:
        """Let these calls through, if all that was promised still holds."""
        now_s = self._clock.now_s()
        for caller in filter(None, map(self._calls.caller, numbers)):
            pod, node = self._cache.pods[caller.uid], caller.node
            refused = reserve.why_not(self._cache, pod, node, now_s=now_s)
            if refused is not None and not pod.node:
                text = refused.text
                said = f"pod {pod.name} of the job can no longer be bound: {text}"
                for each in numbers:
                    self._calls.answer(each, said)
                self.note(gang_events.Broken(job=job, said=said))
                return
        self._later(self._calls.let_go_on(numbers))

    def _give_back(self, uids: Sequence[str]) -> None:
        now_s = self._clock.now_s()
        for uid in uids:
            promise = self._cache.assumed.get(uid)
            if promise is not None and promise.planned:
                step(self._cache, events.Dropped(uid=uid), now_s)

    def _read(self, gang: Gang) -> None:
        if gang.told is not None and gang.job not in self._reading:
            self._reading.add(gang.job)
            self._later(self._learn_size(gang.job, gang.told))

    async def _learn_size(self, job: str, told: Told) -> None:
        try:
            found = await self._api.size(told)
        finally:
            self._reading.discard(job)
        size, problem = (found, "") if isinstance(found, Size) else (None, found)
        read = events.SizeRead(job=job, size=size, problem=problem)
        step(self._cache, read, self._clock.now_s())
        self.settle()

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
