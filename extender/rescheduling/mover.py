"""Carry out what the moves of jobs after faults order, and see how far their pods are.

`machine` decides; here chips are reserved, pods ended, controllers read and records
written. No request is awaited by a caller: each is answered by an event.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol, assert_never

from extender.cache.cache import Cache
from extender.clocks import Clock
from extender.dispatch import Apply
from extender.gang.gang import Gang
from extender.gang.membership import Member
from extender.planning.plan_input import TopologySnapshot
from extender.preemption.attempt import Outcome, Victim
from extender.refusals import STOPPING
from extender.rescheduling import record
from extender.rescheduling.ends import End, Reach
from extender.rescheduling.moves import (
    Answered,
    DeleteRecord,
    EndPod,
    EndsRead,
    Held,
    JobGone,
    KeepPlaces,
    Move,
    MoveEffect,
    MoveEvent,
    MoveRecord,
    PlacesKept,
    PodEnded,
    PodLeaving,
    ReadEnds,
    Recovered,
    ReleasePlaces,
    Step,
    Tell,
    TellJob,
    WriteRecord,
    Written,
)
from extender.rescheduling.returns import Returns
from kube.errors import ApiError, KubeError, TooManyRequestsError
from kube.objects import Meta
from scheduler_core.documents.reader import DocumentError
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: Annotation of a pod with which people keep its job from being evicted.
HOLD = "ascend-affinity/hold"
#: Seconds until records are read again that could not be read at the start, and deleted
#: again that could not be deleted.
_AGAIN_S = 5.0
#: Refusals after which pods are placed without them: the right to read them may lack. A
#: server that is away or overloaded refuses nothing; no pod can be bound then either.
_REFUSALS = 3
#: The first status by which a server says that the error is its own.
_SERVER_ERRORS = 500
#: Longest time of one call to the API server, with a margin.
_STOP_S = 12.0
#: Seconds until it is read again whether a job has ended whose pods do not come back.
_LOOK_S = 60.0


class MovesApi(Protocol):
    """Calls to the API server for moves."""

    async def end_pod(self, pod: Victim, *, is_forced: bool) -> tuple[Outcome, str]:
        """End a pod; return the outcome, and why the API server refused."""

    async def read_ends(
        self, leaving: Mapping[str, tuple[str, Meta]]
    ) -> Mapping[str, End] | str:
        """Return {UID: what ending it with all these does}, or why it is not known."""

    async def ask_budgets(self, leaving: Mapping[str, tuple[str, Meta]]) -> str:
        """Return which budget refuses to let one of these pods go; "" if none does."""

    async def has_ended(self, controllers: Collection[str]) -> bool:
        """Return whether all objects (`End.controller`) have ended; as far as known."""

    async def find_records(self) -> list[tuple[str, Mapping[str, str]]]:
        """Return (name, data) of all records."""

    async def write_record(self, job: str, data: Mapping[str, str]) -> bool:
        """Write the record of a job; return whether it is written."""

    async def delete_record(self, job: str) -> bool:
        """Delete the record of a job; return whether there is none."""


class Mover:
    """Hands of the machine: requests that are open, and places that are kept."""

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        apply: Apply,
        api: MovesApi,
        *,
        clock: Clock,
        topology: Callable[[Gang], TopologySnapshot],
        wake: Callable[[], None],
        tell: Callable[[NpuPod, str, str], None],
        report: Callable[[MoveEvent], None],
        why_not_leading: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Start without moves.

        Args:
            apply: Applies an event to the cache. Chips are reserved by it.
            api: Ends pods, reads controllers, keeps records.
            clock: Source of all times.
            topology: Returns leaf switches, SuperPoDs and job rules for a job.
            wake: Makes schedulers try all refused pods again.
            tell: Emits an event on a pod: reason and text.
            report: Learns what has become of effects and pods.
            why_not_leading: Returns why this extender may change nothing now, or None.
                Called right before each request that changes something.
        """
        self._cache = cache
        self._api = api
        self._clock = clock
        self._tell = tell
        self._report = report
        self._why_not_leading = why_not_leading
        self.returns = Returns(
            cache, apply, clock=clock, topology=topology, wake=wake, report=report
        )
        #: whether the records of earlier leaders are read
        self._has_read = False
        #: how often the API server has refused them
        self._refusals = 0
        #: earliest time of the next attempt to read them
        self._read_again_s = 0.0
        #: whether the settings hold all evictions
        self.holds_all = False
        #: what was reported of holds last
        self._held = Held()
        #: {job that moves: objects with which it ends, as `End.controller`}
        self._controllers: dict[str, tuple[str, ...]] = {}
        #: {job of which pods are gone: when it was read whether it has ended, and the
        #: generations of its pods then}
        self._looks: dict[str, tuple[float, frozenset[str]]] = {}
        #: {job: the last write of its record}
        self._writes: dict[str, asyncio.Task[None]] = {}
        #: {job whose record could not be deleted: when that is tried again}
        self._undeleted: dict[str, float] = {}
        #: open requests; each ends by itself
        self._tasks: set[asyncio.Task[None]] = set()
        #: whether nothing is sent any more
        self._is_stopping = False
        #: whether a request was cut off that may still be executed
        self._is_cut_off = False

    @property
    def is_quiet(self) -> bool:
        """Whether no request of this extender can still take effect."""
        return not (self._is_cut_off or self._tasks)

    def _why_not_now(self) -> str:
        """Return why nothing may be changed now; "" if it may."""
        return STOPPING.text if self._is_stopping else self._why_not_leading() or ""

    async def stop(self) -> None:
        """Change nothing more, and wait up to `_STOP_S` for what was sent.

        What has no answer by then is cancelled, and may still be executed: `is_quiet`
        stays False. Another leader that finds all pods running would take the move for
        one that has not begun.
        """
        self._is_stopping = True
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=_STOP_S)
            self._is_cut_off = bool(pending)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- start -----------------------------------------------------------------------

    @property
    def is_recovered(self) -> bool:
        """Whether moves of earlier leaders are known, as far as they can be."""
        return self._has_read or self._refusals >= _REFUSALS

    def recover(self) -> None:
        """Begin to read the records of earlier leaders, unless they are read."""
        now_s = self._clock.now_s()
        if not self._has_read and now_s >= self._read_again_s:
            self._read_again_s = now_s + _AGAIN_S
            _ = self._start(self._recover())

    async def _recover(self) -> None:
        try:
            found = await self._api.find_records()
        except KubeError as error:
            log.warning("records of moves not read", extra={"error": str(error)})
            is_refusal = isinstance(error, ApiError) and error.status < _SERVER_ERRORS
            if is_refusal and not isinstance(error, TooManyRequestsError):
                self._refusals += 1
            return
        if self._has_read:
            return  # an earlier request was late
        records = [read for name, data in found if (read := _parse(name, data))]
        self.see_holds(read.job for read in records)
        for known in records:
            self._controllers[known.job] = known.controllers
            pods = [self._cache.pods.get(place.uid) for place in known.places]
            living = [pod for pod in pods if pod is not None and not pod.terminal]
            ending = frozenset(pod.uid for pod in living if pod.deleting)
            running = frozenset(pod.uid for pod in living) - ending
            self._report(Recovered(record=known, running=running, ending=ending))
        self._has_read = True

    # -- what is seen ------------------------------------------------------------------

    def observe(self, jobs: Iterable[str], moves: Mapping[str, Move]) -> None:
        """Report which pods of moves are gone, what is held, and how places are.

        Args:
            jobs: Keys of jobs with faults.
            moves: {key of a job: its move}.
        """
        self._report_holds(frozenset(filter(self._is_held, {*jobs, *moves})))
        for job, move in list(moves.items()):
            for uid, departure in move.departures.items():
                pod = self._cache.pods.get(uid)
                is_gone = pod is None or pod.terminal
                if is_gone and departure.step is not Step.GONE:
                    self._report(PodEnded(job=job, uid=uid))
                elif pod is not None and pod.deleting and not departure.has_begun:
                    self._report(PodLeaving(job=job, uid=uid))
        now_s = self._clock.now_s()
        for job in [job for job, at_s in self._undeleted.items() if at_s <= now_s]:
            del self._undeleted[job]
            self._write_next(job, partial(self._delete, job))
        self._controllers = {j: c for j, c in self._controllers.items() if j in moves}
        self._looks = {job: look for job, look in self._looks.items() if job in moves}
        for job, controllers in list(self._controllers.items()):
            if controllers and any(map(moves[job].is_gone, moves[job].departures)):
                self._look_after(job)
        self.returns.tick()

    def _look_after(self, job: str) -> None:
        """Begin to read whether a job has ended of which pods are gone.

        Each minute, and when its last pod has gone or pods of a controller of another
        UID have come.
        """
        now_s = self._clock.now_s()
        members = self._members(job).values()
        present = frozenset(m.membership.generation.name for m in members)
        at_s, before = self._looks.get(job, (0.0, None))
        if present != before or now_s >= at_s + _LOOK_S:
            self._looks[job] = now_s, present
            _ = self._start(self._report_end(job))

    async def _report_end(self, job: str) -> None:
        if await self._api.has_ended(self._controllers.get(job, ())):
            log.info("job has ended while it moves", extra={"job": job})
            self._report(JobGone(job=job))

    def see_holds(self, jobs: Iterable[str]) -> None:
        """Report which of these jobs people hold, before any of them is judged."""
        these = frozenset(jobs)
        held = frozenset(filter(self._is_held, these))
        self._report_holds(self._held.jobs - these | held)

    def _report_holds(self, jobs: frozenset[str]) -> None:
        held = Held(jobs=jobs, is_all=self.holds_all)
        if held != self._held:
            self._held = held
            self._report(held)

    def _is_held(self, job: str) -> bool:
        return any(
            member.traits.annotations.get(HOLD, "false") != "false"
            for member in self._members(job).values()
        )

    def _members(self, job: str) -> Mapping[str, Member]:
        """Return {UID: member} of a job, or of a pod that is a job by itself."""
        gang = self._cache.gangs.get(job)
        if gang is not None:
            return gang.members
        wishes = self._cache.wishes(job)
        alone = wishes.alone if wishes is not None else None
        return {} if alone is None else {job: alone}

    # -- effects -----------------------------------------------------------------------

    def carry_out(self, effect: MoveEffect, owner: str = "") -> None:
        """Carry an effect out, or begin to; an event answers it.

        Args:
            owner: As `Record.owner`, of the move.
        """
        match effect:
            case ReadEnds():
                _ = self._start(self._read_ends(effect))
            case KeepPlaces(job=job, places=places, is_partial=is_partial):
                why = self.returns.keep(job, places, owner=owner, is_partial=is_partial)
                self._report(PlacesKept(job=job, is_kept=not why, why=why))
            case ReleasePlaces(job=job, uids=uids):
                self.returns.release(job, uids)
            case WriteRecord(job=job):
                self._undeleted.pop(job, None)
                self._write_next(job, partial(self._write, effect))
            case DeleteRecord(job=job):
                self._write_next(job, partial(self._delete, job))
            case EndPod():
                _ = self._start(self._end(effect))
            case Tell() | TellJob():
                self._tell_pods(effect)
            case _:
                assert_never(effect)

    def _start(self, request: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(request)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read_ends(self, effect: ReadEnds) -> None:
        members = self._members(effect.job)
        leaving = {
            uid: (
                pod.owner,
                Meta(
                    namespace=pod.namespace,
                    name=pod.name,
                    uid=uid,
                    labels=dict(members[uid].traits.labels),
                    annotations=dict(members[uid].traits.annotations),
                ),
            )
            for uid in sorted(effect.uids)
            if (pod := self._cache.pods.get(uid)) is not None and uid in members
        }
        if leaving.keys() != effect.uids:
            found: Mapping[str, End] | str = "a pod of the job has gone meanwhile"
        else:
            found = await self._api.read_ends(leaving)
        refused = ""
        if effect.asks_budgets and not isinstance(found, str):
            refused = await self._api.ask_budgets(leaving)
            found = refused or found
        if isinstance(found, str):
            answer = EndsRead(
                job=effect.job,
                uids=effect.uids,
                problem=found,
                is_refused=bool(refused),
            )
        else:
            known = self._controllers.get(effect.job, ())
            controllers = {*known, *(end.controller for end in found.values())} - {""}
            self._controllers[effect.job] = tuple(sorted(controllers))
            answer = EndsRead(
                job=effect.job,
                uids=effect.uids,
                ends=found,
                groups=self._groups(effect.job, found),
            )
        self._report(answer)

    def _groups(
        self, job: str, ends: Mapping[str, End]
    ) -> Mapping[str, frozenset[str]]:
        """Return {UID: UIDs of the bound pods of its job that end with it}."""
        gang, members = self._cache.gangs.get(job), self._members(job)
        nodes = gang.nodes if gang is not None else members
        groups: dict[str, frozenset[str]] = {}
        for uid, end in ends.items():
            if end.reach is Reach.GROUP and uid in members:
                labels = members[uid].traits.labels
                alike = {
                    other
                    for other in nodes
                    if all(
                        members[other].traits.labels.get(key) == labels.get(key)
                        for key in end.group
                    )
                }
                groups[uid] = frozenset(alike | {uid})
        return groups

    async def _end(self, effect: EndPod) -> None:
        pod = Victim(uid=effect.uid, namespace=effect.namespace, name=effect.name)
        outcome, text = Outcome.FAILED, self._why_not_now()
        if not text:
            outcome, text = await self._api.end_pod(pod, is_forced=effect.is_forced)
        self._report(
            Answered(job=effect.job, uid=effect.uid, outcome=outcome, text=text)
        )

    async def _write(self, effect: WriteRecord) -> None:
        controllers = self._controllers.get(effect.job, ())
        data = record.render(replace(effect.record, controllers=controllers))
        is_written = not self._why_not_now() and await self._api.write_record(
            effect.job, data
        )
        self._report(
            Written(job=effect.job, number=effect.number, is_written=is_written)
        )

    async def _delete(self, job: str) -> None:
        is_deleted = not self._why_not_now() and await self._api.delete_record(job)
        if not is_deleted and self._writes.get(job) is asyncio.current_task():
            self._undeleted[job] = self._clock.now_s() + _AGAIN_S

    def _write_next(self, job: str, write: Callable[[], Awaitable[None]]) -> None:
        """Write a record, or delete it, after all earlier writes of it."""
        before = self._writes.get(job)

        async def follow() -> None:
            if before is not None:
                await asyncio.wait([before])
            await write()

        task = self._writes[job] = self._start(follow())

        def forget(done: asyncio.Task[None]) -> None:
            if self._writes.get(job) is done:
                del self._writes[job]

        task.add_done_callback(forget)

    def _listeners(self, job: str) -> list[str]:
        """Return the pods that are told of a job: those that wait, else one that runs.

        A pod that is a job by itself, and its successors, are told themselves.
        """
        gang = self._cache.gangs.get(job)
        if gang is None:
            return [job, *self.returns.successors_of(job)]
        running = sorted(gang.nodes, key=gang.rank_key)[:1]
        return gang.unbound or running

    def _tell_pods(self, effect: Tell | TellJob) -> None:
        if self._why_not_now():
            return  # another leader tells
        uids = [effect.uid] if isinstance(effect, Tell) else self._listeners(effect.job)
        pods = [*filter(None, map(self._cache.pods.get, uids))]
        for pod in pods:
            self._tell(pod, effect.reason, effect.text)
        if not pods and isinstance(effect, TellJob):
            extra = {"job": effect.job, "why": effect.text}
            log.info("job that moves has no pods", extra=extra)


def _parse(name: str, data: Mapping[str, str]) -> MoveRecord | None:
    """Return the record of a move; None, and a line in the log, if it is unreadable."""
    try:
        return record.parse(data)
    except DocumentError as error:
        extra = {"record": name, "error": str(error)}
        log.warning("record of a move not understood", extra=extra)
        return None
