"""Hold the bind call for a pod until its job permits or refuses it.

`gang.permit` decides when the binds of a job may be sent. Here the calls wait, and the
decision is carried out.
"""

import asyncio
import time
from collections.abc import Sequence

from extender.cache.cache import Cache
from extender.cache.events import Effect
from extender.clocks import Clock
from extender.dispatch import Apply
from extender.gang import events as gang_events
from extender.gang.gang import Gang
from extender.gang.waiting_binds import WaitingBinds
from extender.metrics import Metrics
from extender.refusals import STOPPING, ExtenderReason, Refusal, refuse_for_job
from extender.scheduling import reserve

_CALLER_GONE = Refusal(reason=ExtenderReason.UNCLEAR, text="the caller has gone")


class BindPermits:
    """Bind calls that wait for the other pods of their job."""

    def __init__(
        self, cache: Cache, apply: Apply, *, clock: Clock, metrics: Metrics
    ) -> None:
        self._cache = cache
        self._apply = apply
        self._clock = clock
        self._metrics = metrics
        self._waiting_binds = WaitingBinds()
        #: tasks that let bind calls go on; each ends by itself
        self._releases: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._waiting_binds)

    async def wait(self, caller: gang_events.Caller) -> Refusal | None:
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
            return STOPPING
        gang = self._cache.gang_of(caller.uid)
        if gang is None or self._cache.is_bind_open(caller.uid):
            return None
        if len(gang.plan.waiting_calls) + (
            caller.uid not in gang.plan.waiting_calls
        ) >= len(gang.plan.places):
            self._drop_abandoned_calls(gang)
        number = self._waiting_binds.add(caller)
        self._apply(
            gang_events.BindArrived(uid=caller.uid, node=caller.node, call=number)
        )
        start_s, result = time.perf_counter(), "abandoned"
        try:
            refusal = await self._waiting_binds.wait(number)
            result = "permitted" if refusal is None else "refused"
        finally:
            waited_s = time.perf_counter() - start_s
            self._metrics.permit_wait_s.labels(result).observe(waited_s)
            self._waiting_binds.forget(number)
            self._apply(gang_events.BindAbandoned(uid=caller.uid, call=number))
        return refusal

    def carry_out(self, effect: Effect) -> None:
        """Release or refuse waiting bind calls; ignore other effects."""
        match effect:
            case gang_events.ReleaseBinds(job=job, calls=calls):
                self._release(job, list(calls.values()))
            case gang_events.RefuseBind(call=call, text=text):
                self._waiting_binds.answer(call, refuse_for_job(text))
            case _:
                pass

    def tick(self) -> None:
        """Refuse bind calls of disconnected callers."""
        for gang in list(self._cache.gangs.values()):
            if gang.plan.waiting_calls:
                self._drop_abandoned_calls(gang)

    async def stop(self) -> None:
        """Refuse waiting and later bind calls."""
        self._is_stopping = True
        self._waiting_binds.refuse_all(STOPPING)
        for task in self._releases:
            task.cancel()
        await asyncio.gather(*self._releases, return_exceptions=True)

    def _drop_abandoned_calls(self, gang: Gang) -> None:
        """Refuse a job's waiting bind calls that come from disconnected callers."""
        for uid, number in list(gang.plan.waiting_calls.items()):
            caller = self._waiting_binds.caller(number)
            if caller is None or not caller.is_there():
                self._apply(gang_events.BindAbandoned(uid=uid, call=number))
                self._waiting_binds.answer(number, _CALLER_GONE)

    def _release(self, job: str, numbers: Sequence[int]) -> None:
        """Let the waiting bind calls of a job go on, or refuse them all.

        They are refused if one of their pods can no longer get its reserved chips. The
        job then loses its plan.
        """
        text = self._why_not_bound(numbers)
        if text is not None:
            for number in numbers:
                self._waiting_binds.answer(number, refuse_for_job(text))
            self._apply(gang_events.PlanBroken(job=job, text=text))
            return
        task = asyncio.ensure_future(self._waiting_binds.release(numbers))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    def _why_not_bound(self, numbers: Sequence[int]) -> str | None:
        """Return why one of these calls' pods cannot be bound; None if all can."""
        now_s = self._clock.now_s()
        for caller in filter(None, map(self._waiting_binds.caller, numbers)):
            pod = self._cache.pods.get(caller.uid)
            if pod is None or pod.node:
                continue
            refused = reserve.why_not_reserved(
                self._cache, pod, caller.node, now_s=now_s
            )
            if refused is not None:
                why = refused.text
                return f"pod {pod.name} of the job can no longer be bound: {why}"
        return None
