"""The extender's parts around a cache, put together as the program does it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.reservations import Owner
from extender.clocks import Clock
from extender.dispatch import Dispatcher, Router, ignore
from extender.gang import events as gang_events
from extender.gang.gang import Gang
from extender.gang.job_plan import Phase
from extender.gang.membership import SizeSource
from extender.gang.size import Size
from extender.kube_scheduler.binder import Binder
from extender.kube_scheduler.protocol import BindArgs
from extender.kube_scheduler.sent_binds import Bound, PodApi
from extender.kube_scheduler.verbs import KubeSchedulerVerbs
from extender.metrics import Metrics
from extender.planning import plan_input
from extender.planning.job_calls import JobCalls
from extender.planning.permits import BindPermits
from extender.planning.plan_input import TopologySnapshot
from extender.planning.planner import Planner
from extender.planning.topology import NetworkTopology, Rules
from extender.preemption.attempt import Outcome, Victim
from extender.preemption.preemptor import EvictionApi, Preemptor
from extender.queries import explain
from extender.queries.job_state import Sources
from extender.rescheduling.moves import Bound as SuccessorBound
from extender.rescheduling.moves import PlaceLost, PlacesEnded
from extender.rescheduling.returns import Returns
from extender.scheduling import node_filter
from extender.scheduling.decisions import LastDecisions
from extender.scheduling.reserve import Choice
from scheduler_core.node import chips
from scheduler_core.wire.pods import NpuPod
from tests.support import fake_api
from tests.support.caches import choose, cluster, known_pod, only_gang
from tests.support.clock import Time
from tests.support.until import until
from tests.support.watched import pod_update, two

NAMES = ("n1", "n2")
#: Reasons of events that are no warnings.
GOOD_NEWS = {"AscendGangSmaller"}
UNKNOWN = "the API server gave no clear answer to the bind; it is looked into"


@dataclass(slots=True)
class ApiCalls:
    """What planner and preemptor ask of the API server, written down."""

    #: {path of a job's object: its size}
    sizes: dict[str, Size] = field(default_factory=dict)
    #: {name of a pod: what the Eviction API answers}; all others may go
    says: dict[str, Outcome] = field(default_factory=dict)
    #: (pod, reason, sentence) of each event
    told: list[tuple[str, str, str]] = field(default_factory=list)
    #: names of pods: evicted of an incomplete job; rehearsed, evicted by preemption
    removed: list[str] = field(default_factory=list)
    rehearsed: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    wakes: int = 0
    #: how often a size was read
    sizes_read: int = 0
    #: until when the answers about sizes are under way; None: they come at once
    until: asyncio.Event | None = None

    async def size(self, told: SizeSource) -> Size | str:
        self.sizes_read += 1
        answer = self.sizes.get(told.path, f"its {told.kind} cannot be read")
        if self.until is not None:
            await self.until.wait()
        return answer

    async def remove(self, pod: NpuPod) -> None:
        self.removed.append(pod.name)

    async def evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        (self.rehearsed if rehearse else self.evicted).append(victim.name)
        return self.says.get(victim.name, Outcome.YES)

    def tell(
        self, pod: NpuPod, reason: str, text: str, *, is_warning: bool = True
    ) -> None:
        assert is_warning is not (reason in GOOD_NEWS), reason
        self.told.append((pod.name, reason, text))

    def wake(self) -> None:
        self.wakes += 1


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """The value of one of the extender's metrics; None: there is none."""
    return registry.get_sample_value(f"ascend_extender_{name}", labels)


def clock_of(time: Time) -> Clock:
    return Clock(now_s=time, now_ns=time.now_ns)


class World:
    """Planner, binder, verbs and, if asked for, a preemptor, in simulated time."""

    def __init__(  # noqa: PLR0913  # what tests may differ in
        self,
        cache: Cache,
        pods: PodApi | None = None,
        *,
        evictions: EvictionApi | None = None,
        preempts: bool = False,
        time: Time | None = None,
        topology: Callable[[Gang], TopologySnapshot] = lambda _gang: plan_input.PLAIN,
        metrics: Metrics | None = None,
        waits: str | None = None,
        moves: bool = False,
        open_files: int = 1 << 20,
        **binding: Any,
    ) -> None:
        """Put the parts together.

        Args:
            cache: What they share.
            pods: Where binds go; a world without one binds nothing.
            evictions: Where preemption evicts; by itself in `calls`.
            preempts: Whether there is a preemptor.
            time: Seconds since the epoch.
            topology: What jobs are planned with.
            metrics: Where the parts count.
            waits: Why no verb may be answered.
            moves: Whether places are kept for successors of pods.
            open_files: How many the extender may have open.
            binding: Further arguments of the binder.
        """
        self.cache = cache
        self.time = time or Time()
        self.clock = clock_of(self.time)
        self.calls = ApiCalls()
        self.metrics = metrics or Metrics(CollectorRegistry())
        self.notes = LastDecisions()
        self.networks = NetworkTopology(cache, Rules())
        self.pod_api = pods or _NoPods()
        #: each pod that was bound, and its chips
        self.bound: list[tuple[NpuPod, Choice]] = []
        #: whether callers of bind wait for their answers
        self.there = True
        self.dispatcher = Dispatcher(cache, self.clock)
        self.apply = self.dispatcher.apply
        self.job_calls = JobCalls(cache, self.apply, self.calls)
        self.permits = BindPermits(
            cache, self.apply, clock=self.clock, metrics=self.metrics
        )
        #: what became of kept places, and how often something did
        self.reported: list[SuccessorBound | PlaceLost] = []
        self.reports = 0
        self._returns = (
            Returns(
                cache,
                self.apply,
                clock=self.clock,
                topology=topology,
                wake=self.calls.wake,
                report=self._end_places,
            )
            if moves
            else None
        )
        self.planner = Planner(
            cache,
            self.apply,
            clock=self.clock,
            request_size=self.job_calls.request_size,
            topology=topology,
            why_held=None if self._returns is None else self._returns.why_held,
            metrics=self.metrics,
            open_files=open_files,
        )
        self.binder = Binder(
            cache,
            self.apply,
            self.pod_api,
            wait=self.permits.wait,
            clock=self.clock,
            metrics=self.metrics,
            on_bound=lambda pod, made: self.bound.append((pod, made)),
            **binding,
        )
        self.sent_binds = self.binder._sent_binds
        self._preemptor = (
            Preemptor(
                cache,
                self.apply,
                evictions or self.calls,
                clock=self.clock,
                why_wait=self.planner.why_wait,
            )
            if preempts
            else None
        )
        preemptor = self._preemptor
        self.owners = {
            Owner.PLAN: self.planner.carry_out,
            Owner.BIND: ignore if pods is None else self.binder.carry_out,
            Owner.VOLCANO: ignore,
            Owner.PREEMPTION: ignore if preemptor is None else preemptor.carry_out,
            Owner.RESCHEDULING: ignore,
        }
        self.dispatcher.connect(
            Router(
                permits=self.permits.carry_out,
                job_calls=self.job_calls.carry_out,
                waker=self._carry_out,
                owners=self.owners,
                rescheduler=ignore
                if self._returns is None
                else self._returns.carry_out,
            ).carry_out
        )
        self.verbs = KubeSchedulerVerbs(
            cache,
            self.binder,
            planner=self.planner,
            notes=self.notes,
            metrics=self.metrics,
            clock=self.clock,
            why_not_ready=lambda: waits,
            on_refused=lambda: None,
            preemptor=self._preemptor,
            returns=self._returns,
        )

    @property
    def returns(self) -> Returns:
        assert self._returns is not None
        return self._returns

    def _end_places(self, event: PlacesEnded) -> None:
        """Release places that have come to their end, as the machine of moves does."""
        self.reported += event.ends
        self.reports += 1
        self.returns.release(event.job, frozenset(end.uid for end in event.ends))

    @property
    def preemptor(self) -> Preemptor:
        assert self._preemptor is not None
        return self._preemptor

    def _carry_out(self, effect: events.Effect) -> None:
        if isinstance(effect, gang_events.WakeScheduler):
            self.calls.wake()

    async def stop(self) -> None:
        if self._preemptor is not None:
            await self._preemptor.stop()
        await self.job_calls.stop()
        await self.permits.stop()
        await self.binder.stop()

    # -- what is seen, and time ----------------------------------------------------

    def learn(self, *found: events.Change) -> None:
        for each in found:
            assert self.apply(each) is None, each

    def pass_s(self, seconds: float = 1.0) -> None:
        """Let time pass, and do what the program does each second."""
        self.time.pass_s(seconds)
        self.learn(events.Ticked())
        self.permits.tick()
        self.job_calls.tick(self.time.now_s)
        if self.planner.tick():
            self.calls.wake()
        if self._preemptor is not None:
            self._preemptor.tick()
        if self._returns is not None:
            self._returns.tick()

    async def tick(self, seconds: float = 1.0) -> None:
        """Let time pass, and requests that were begun come to their end."""
        self.pass_s(seconds)
        await self.settled()

    async def seek_room(self, *names: str) -> None:
        """Filter pods that fit nowhere, and let evictions for them be sent."""
        for name in names:
            self.filter(name)
        await self.tick()

    async def settled(self) -> None:
        while tasks := self.job_calls._tasks | self._eviction_tasks():
            await asyncio.gather(*tasks)

    def _eviction_tasks(self) -> set[asyncio.Task[None]]:
        return set(self._preemptor._tasks) if self._preemptor is not None else set()

    # -- what a scheduler asks -----------------------------------------------------

    def _filter(self, name: str, names: Sequence[str]) -> node_filter.FilterResult:
        wanting = known_pod(self.cache, name)
        if self._returns is not None:
            held = self.verbs._take_place(self._returns, wanting, names)
            if held is not None:
                return node_filter.refuse_all(held, names)
        if self._preemptor is not None:
            self._preemptor.reserve_freed_chips(wanting, names)
        result = self.planner.filter_nodes(wanting, names)
        job = self.cache.gang_of(wanting.uid)
        assert (result is None) == (job is None or not job.is_several)
        if result is None:
            now_s = self.time.now_s
            result = node_filter.filter_nodes(self.cache, wanting, names, now_s)
        if self._preemptor is not None and not result.fitting:
            self._preemptor.refused(wanting, names)
        return result

    def filter(self, name: str, names: Sequence[str] = NAMES) -> list[str]:
        """The nodes that filter leaves to a pod."""
        return list(self._filter(name, names).fitting)

    def why(self, name: str, names: Sequence[str] = NAMES) -> tuple[str, ...]:
        """What filter says where it leaves no node."""
        result = self._filter(name, names)
        assert result.fitting == ()
        return tuple(text for text, _ in result.counts)

    def reserve(self, name: str, node: str) -> tuple[int, ...] | str:
        """The chips that bind would give, reserved; or why none."""
        now_s, now_ns = self.time.now_s, self.time.now_ns()
        wanting = known_pod(self.cache, name)
        made = choose(self.cache, wanting, node, now_s=now_s, now_ns=now_ns)
        if not isinstance(made, Choice):
            return made.text
        self.learn(made.reservation)
        return chips.ids_of(made.reservation.chips)

    def bind(
        self, name: str = "a", where: str = "n1", uid: str = ""
    ) -> asyncio.Task[str]:
        """A bind call; the task gives what it is answered, "" if the pod is bound."""
        uid = uid or f"uid-{name}"
        args = BindArgs(namespace="default", name=name, uid=uid, node=where)

        async def call() -> str:
            outcome = await self.binder.bind(args, is_there=lambda: self.there)
            return "" if isinstance(outcome, Bound) else outcome.text

        return asyncio.create_task(call())

    async def come(self, name: str, where: str) -> asyncio.Task[str]:
        """A bind call of the first of a job, once it waits for the others."""
        call = self.bind(name, where)
        await self.until_came(1)
        return call

    async def bind_both(self) -> list[str]:
        """Bind a to n1 and b to n2, a first; return what the calls are answered."""
        first = await self.come("a", "n1")
        return [*await asyncio.gather(first, self.bind("b", "n2"))]

    async def until_came(self, count: int) -> None:
        await until(lambda: len(self.permits) == count, within_s=20)

    @property
    def sources(self) -> Sources:
        """What explanations read."""
        return Sources(
            cache=self.cache,
            notes=self.notes,
            planner=self.planner,
            networks=self.networks,
            clock=self.clock,
        )

    def explain(self, name: str) -> dict[str, Any]:
        pod = known_pod(self.cache, name)
        return explain.explain(self.sources, pod, move={}, by_node=True)

    def is_(self, phase: Phase) -> bool:
        """Whether the only job is that far."""
        return only_gang(self.cache).plan.phase is phase


class _NoPods:
    """No API server: a test that binds needs one."""

    async def get(self, _namespace: str, name: str) -> Any:
        raise AssertionError(f"{name} is read, and there is no API server")

    async def bind(self, args: BindArgs, _annotations: object) -> None:
        raise AssertionError(f"{args} is bound, and there is no API server")


class ServedWorld(World):
    """A world beside an API server that binds pods."""

    def __init__(
        self, cache: Cache, api: fake_api.Api, pods: PodApi, **options: Any
    ) -> None:
        super().__init__(cache, pods, **options)
        self.api = api

    def add(
        self,
        *seen: events.PodUpdated | str,
        count: int = 1,
        fates: Iterable[fake_api.Fate] = (),
    ) -> None:
        """Pods that API server and watch know.

        Args:
            seen: The pods; those by name ask for `count` chips.
            fates: What becomes of the next binds.
        """
        self.api.fates.extend(fates)
        for each in seen:
            found = pod_update(each, count=count) if isinstance(each, str) else each
            self.api.add(found.pod.name, found.pod.uid, found.pod.total)
            self.learn(found)

    def show(self, name: str) -> None:
        """Let the watch show a pod as the API server has it."""
        meta = self.api.pods["default", name]["metadata"]
        texts = meta.get("annotations", {})
        node = self.api.node_of(name)
        self.learn(pod_update(name, uid=meta["uid"], node=node, annotations=texts))


@asynccontextmanager
async def world(cache: Cache, **options: Any) -> AsyncIterator[ServedWorld]:
    """A world beside an API server; the options are those of `World`."""
    async with fake_api.serving() as (api, pods):
        found = ServedWorld(cache, api, pods, **options)
        try:
            yield found
        finally:
            await found.stop()


@asynccontextmanager
async def planned_pair(
    names: Sequence[str] = NAMES, **options: Any
) -> AsyncIterator[ServedWorld]:
    """A world in which the job of `two` is planned: a on n1, b on n2."""
    async with world(cluster(nodes=names), **options) as found:
        found.add(*two())
        found.filter("a", names)
        yield found


@asynccontextmanager
async def evicting(*seen: events.Change) -> AsyncIterator[World]:
    """Two nodes on which this is seen, and preemption."""
    found = World(cluster(*seen, nodes=NAMES), preempts=True)
    try:
        yield found
    finally:
        await found.stop()
