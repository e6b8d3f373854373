"""Follow faults of chips that pods have, and tell the pods what is or would be done.

The cache says when a node reports other faults. From then until they are over, the pods
of that node are looked at each second, and so are the jobs of those with faults. While
nothing is broken, nothing is done. With a `Mover` pods go, too; without one they are
told only.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from extender.cache.cache import Cache
from extender.cache.events import Effect, FaultsChanged
from extender.clocks import Clock
from extender.gang.gang import Gang
from extender.gang.membership import SizeSource
from extender.planning import plan_input
from extender.planning.plan_input import TopologySnapshot
from extender.rescheduling import machine
from extender.rescheduling.assessment import Assessment, Word
from extender.rescheduling.judge import Question, find_gang, judge
from extender.rescheduling.mover import Mover
from extender.rescheduling.moves import Limits, Move, MoveEvent, MoveFacts, Step, Tell
from extender.rescheduling.returns import Returns
from extender.rescheduling.state import (
    Changed,
    Event,
    FaultJob,
    Judge,
    Judged,
    Place,
    Seen,
    Sighting,
    State,
    Ticked,
)
from scheduler_core.node import chips
from scheduler_core.wire import chip_faults
from scheduler_core.wire.pods import NpuPod

#: Seconds after which the PodGroup of a job with fault pods is read again.
_GROUP_S = 60.0
#: First word of the kinds of PodGroups.
_POD_GROUP = "PodGroup"
_RECOVERING = "the records of moves are being read"
_READING_GROUP = "what its PodGroup says about faults is being read"


class FaultsApi(Protocol):
    """Calls to the API server for jobs with fault pods."""

    async def group_wishes(self, source: SizeSource) -> Mapping[str, str] | str:
        """Return what a PodGroup says about faults, or why it cannot be read."""

    def tell_fault(self, pod: NpuPod, reason: str, text: str) -> None:
        """Emit a Kubernetes event on a pod with a chip that broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """What the PodGroup of a job said when it was read last."""

    wishes: Mapping[str, str]
    problem: str
    at_s: float


class Rescheduler:
    """Watches pods with faults, and has their jobs judged and moved."""

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        api: FaultsApi,
        *,
        clock: Clock,
        read_size: Callable[[Gang], None],
        why_not_ready: Callable[[], str | None],
        topology: Callable[[Gang], TopologySnapshot] = lambda _gang: plan_input.PLAIN,
        limits: Limits = Limits(),  # noqa: B008  # a frozen value
        make_mover: Callable[[Callable[[MoveEvent], None]], Mover] | None = None,
    ) -> None:
        """Create a rescheduler that has seen no faults.

        Args:
            cache: Read only.
            api: Reads PodGroups, and emits events.
            clock: Source of all times.
            read_size: Begins to read how many pods a job has.
            why_not_ready: Returns why the cache is not complete; None if it is. Until
                then faults are remembered, and nothing is judged.
            topology: Returns leaf switches, SuperPoDs and job rules for a job.
            limits: Pauses, and whether pods are evicted.
            make_mover: Returns what carries moves out and reports to the function that
                is passed. None: no pod is evicted.
        """
        self._cache = cache
        self._limits = limits
        self._mover = None if make_mover is None else make_mover(self._apply)
        self._api = api
        self._clock = clock
        self._read_size = read_size
        self._why_not_ready = why_not_ready
        self._topology = topology
        #: jobs with fault pods, and the assessments on them
        self._state = State()
        #: places that report faults by which pods move, to be looked at each second
        self._places: dict[Place, None] = {}
        #: {job: facts by which its assessment may change, when it was judged last}
        self._facts: dict[str, object] = {}
        #: {job: what its PodGroup said}
        self._groups: dict[str, _Group] = {}
        #: jobs whose PodGroup is being read
        self._reads: set[str] = set()
        #: open requests; each ends by itself
        self._tasks: set[asyncio.Task[None]] = set()

    def carry_out(self, effect: Effect) -> None:
        """Look at the pods of a node that reports other faults; keep places of moves.

        Other effects are ignored.
        """
        if isinstance(effect, FaultsChanged):
            self._places[effect.node, effect.resource] = None
            if self._why_not_ready() is None and self._is_recovered:
                self._look(effect.node, effect.resource)
        elif self._mover is not None:
            self._mover.returns.carry_out(effect)

    def tick(self) -> None:
        """Look at pods and jobs with faults again; called each second."""
        if self._mover is not None:
            self._mover.recover()  # an earlier leader may have begun moves
        if not self._is_recovered:
            return
        for place in list(self._places):
            self._look(*place)
        jobs = self._state.jobs
        self._groups = {job: read for job, read in self._groups.items() if job in jobs}
        self._facts = {job: facts for job, facts in self._facts.items() if job in jobs}
        for job in jobs:
            if self._facts.get(job) != self._facts_of(job):
                self._apply(Changed(job=job))
        if self._mover is not None:
            self._mover.observe(self._state.jobs, self._state.moves)
        state = self._state
        if state.jobs or state.moves or state.wanting:
            self._apply(Ticked(npu_nodes=len(self._cache.index)))

    @property
    def _is_recovered(self) -> bool:
        """Whether moves of earlier leaders are known."""
        return self._mover is None or self._mover.is_recovered

    def why_not_placing(self) -> str | None:
        """Return why no pod may be placed now; None if pods may be.

        Before the records are read, a successor would get another place than was kept.
        """
        recovering = None if self._is_recovered else _RECOVERING
        return self._why_not_ready() or recovering

    @property
    def returns(self) -> Returns | None:
        """Places of moves; None if no pod is evicted."""
        return None if self._mover is None else self._mover.returns

    @property
    def is_braked(self) -> bool:
        """Whether faults on very many nodes stop all evictions."""
        return self._limits.is_evicting and self._state.is_braked(self._limits)

    def hold_all(self, *, is_held: bool) -> None:
        """Hold all evictions from the next tick on, or none but those of held jobs."""
        if self._mover is not None:
            self._mover.holds_all = is_held

    @property
    def is_quiet(self) -> bool:
        """Whether no request that changes something can still take effect."""
        return self._mover is None or self._mover.is_quiet

    async def stop(self) -> None:
        """Cancel open requests; wait for those that change something."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._mover is not None:
            await self._mover.stop()

    def describe(self, uid: str) -> Mapping[str, Any]:
        """Return assessment and move of a pod's job as JSON; {} without either."""
        key = self._cache.job_of(uid) or uid
        if self._mover is not None:
            key = self._mover.returns.job_of_successor(uid) or key
        answer = self._describe_assessment(key)
        move = self._state.moves.get(key)
        if move is None or not move.is_open:
            return answer
        texts = (answer.get("text", ""), _describe_move(move))
        return {
            **answer,
            "move": move.stage.value,
            "since": self._clock.format(move.stage_s),
            "text": ". ".join(filter(None, texts)),
        }

    def _describe_assessment(self, key: str) -> Mapping[str, Any]:
        job = self._state.jobs.get(key, FaultJob())
        assessment = job.assessment
        if (
            assessment is None
            or not assessment.text
            or not job.due(self._clock.now_s())
        ):
            return {}
        return {
            "assessment": assessment.word.value,
            "text": assessment.text,
            "leaving": list(assessment.leaving),
            "places": dict(assessment.places),
        }

    # -- what is seen ----------------------------------------------------------------

    def _look(self, node: str, resource: str) -> None:
        """See the pods of a place that have faults; forget a place without any."""
        resource_state = self._cache.resource_state(node, resource)
        faults = () if resource_state is None else resource_state.faults()
        if all(chip_faults.settle_s(fault) is None for fault in faults):
            self._places.pop((node, resource), None)
        pods = dict(self._sightings(node, resource))
        if self._mover is not None:
            self._mover.see_holds(sighting.job for sighting in pods.values())
        self._apply(Seen(place=(node, resource), pods=pods))

    def _sightings(self, node: str, resource: str) -> Iterator[tuple[str, Sighting]]:
        """Yield the pods of a place with faults that move them.

        None while the agent is silent: what is broken there is not known. None that the
        agent has not confirmed: it may give them other chips.
        """
        resource_state = self._cache.resource_state(node, resource)
        if resource_state is None or resource_state.is_silent:
            return
        for uid, tenant in resource_state.tenants.items():
            if tenant.is_unconfirmed or not tenant.chips or tenant.pod.deleting:
                continue
            moving = [
                (fault, settle_s)
                for fault in resource_state.faults_of(tenant)
                if (settle_s := chip_faults.settle_s(fault)) is not None
            ]
            if moving:
                yield (
                    uid,
                    Sighting(
                        job=self._cache.job_of(uid) or uid,
                        fault=moving[0][0],
                        chips=chips.mask_of(fault.chip for fault, _ in moving),
                        settle_s=min(settle_s for _, settle_s in moving),
                    ),
                )

    def _facts_of(self, job: str) -> object:
        """Return what differs if an assessment of a job may differ."""
        gang = find_gang(self._cache, job)
        of_job = (gang.size, gang.problem, len(gang.members)) if gang else ()
        return self._cache.version, of_job

    # -- effects ---------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        now_s = self._clock.now_s()
        self._state, effects = machine.step(self._state, event, now_s, self._limits)
        for effect in effects:
            match effect:
                case Judge(job=job, faulty=faulty, facts=facts):
                    assessment = self._judge(job, faulty, facts)
                    self._apply(Judged(job=job, faulty=faulty, assessment=assessment))
                case Tell(uid=uid, reason=reason, text=text):
                    pod = self._cache.pods.get(uid)
                    if pod is not None:
                        self._api.tell_fault(pod, reason, text)
                case _ if self._mover is not None:
                    move = self._state.moves.get(effect.job)
                    owner = "" if move is None else move.owner
                    self._mover.carry_out(effect, owner)
                case _:  # without evictions no move begins
                    raise TypeError(effect)

    def _judge(
        self, job: str, faulty: Mapping[str, int], facts: MoveFacts | None
    ) -> Assessment:
        """Judge a job, or begin to read what is not known of it."""
        self._facts[job] = self._facts_of(job)
        gang, group = self._cache.gangs.get(job), self._groups.get(job)
        if gang is not None and gang.size is None:
            self._read_size(gang)
        source = None if gang is None else gang.size_source
        if source is not None and source.kind.startswith(_POD_GROUP):
            if group is None or group.at_s + _GROUP_S <= self._clock.now_s():
                self._read_group(job, source)
            if group is None:
                return Assessment(word=Word.UNKNOWN, why=_READING_GROUP)
        question = Question(
            job=job,
            faulty=faulty,
            group=None if group is None else group.wishes,
            problem="" if group is None else group.problem,
            facts=facts,
        )
        return judge(self._cache, question, self._topology)

    def _read_group(self, job: str, source: SizeSource) -> None:
        async def read() -> None:
            try:
                found = await self._api.group_wishes(source)
            finally:
                self._reads.discard(job)
            wishes, problem = ({}, found) if isinstance(found, str) else (found, "")
            group = _Group(wishes=wishes, problem=problem, at_s=self._clock.now_s())
            before, self._groups[job] = self._groups.get(job), group
            if before is None or replace(before, at_s=group.at_s) != group:
                self._apply(Changed(job=job, is_awaited=True))
                self._apply(Ticked())

        if job not in self._reads:
            self._reads.add(job)
            task = asyncio.ensure_future(read())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def _describe_move(move: Move) -> str:
    """Return how far a move is, as a sentence."""
    departures = move.departures.values()
    if not departures:
        return f"the move of its job is {move.stage.value}"
    gone = sum(departure.step is Step.GONE for departure in departures)
    return (
        f"the move of its job is {move.stage.value}: {gone} of {len(departures)} pods "
        "that go have ended"
    )
