"""Bind a pod: one API call that sets its node and writes its claim.

No await stands between the choice of chips and their reservation. So two concurrent
binds never share a chip. `sent_binds` sends the bind, and finds out its outcome.
"""

import asyncio
from collections.abc import Awaitable, Callable

from extender.cache.cache import Cache
from extender.cache.events import Effect
from extender.cache.reservations import Owner
from extender.clocks import Clock
from extender.dispatch import Apply
from extender.gang import events as gang_events
from extender.gang import permit
from extender.gang.events import Caller
from extender.kube_scheduler.protocol import BindArgs
from extender.kube_scheduler.sent_binds import (
    OPEN_S,
    BindOutcome,
    Bound,
    OnBound,
    PodApi,
    SentBinds,
    read_pod,
)
from extender.metrics import Metrics
from extender.refusals import (
    GONE,
    STOPPING,
    UNDER_WAY,
    ExtenderReason,
    Refusal,
    kept_for_others,
)
from extender.scheduling import reserve
from extender.scheduling.reserve import Ownership
from kube.errors import KubeError, NotFoundError
from scheduler_core.node.reasons import Reason
from scheduler_core.wire.pods import NpuPod

#: Binds sent at the same time. The members of a large job arrive all at once. A call
#: that waits for a connection would use up its timeout there and delay the lease,
#: which is renewed over the same connections.
AT_ONCE = 20
#: Longest time of one call to the API server, with a margin.
STOP_S = 12.0

#: Returns whether the caller of a bind still waits for its answer.
IsThere = Callable[[], bool]
#: Waits until a bind may be sent, and returns None; or returns why it may not.
Wait = Callable[[Caller], Awaitable[Refusal | None]]


class Binder:
    """The bind calls of kube-scheduler that are in progress.

    Each call waits until it is permitted, then for one of a few slots. Then it reserves
    chips, and sends its bind.
    """

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        apply: Apply,
        api: PodApi,
        *,
        wait: Wait,
        clock: Clock,
        metrics: Metrics,
        on_bound: OnBound,
        why_not_leading: Callable[[], str | None] = lambda: None,
        open_s: float = OPEN_S,
        at_once: int = AT_ONCE,
    ) -> None:
        """Create a binder that has sent no bind yet.

        Args:
            cache: Chips are chosen from it.
            apply: Applies an event to the cache.
            api: Reads pods and sends binds.
            wait: Holds a job's bind calls until those of all members have arrived.
            clock: Source of the times in claims and reservations.
            metrics: Counts binds, refusals and failures.
            on_bound: Called once with each pod that is bound, and its chips. Not called
                for pods without NPUs.
            why_not_leading: Returns why this extender may not bind now, or None. Called
                right before each bind.
            open_s: Seconds after an unanswered bind call in which the API server may
                still execute it.
            at_once: Number of binds sent at the same time. Further binds wait.
        """
        self._slots = asyncio.Semaphore(at_once)
        self._cache = cache
        self._apply = apply
        self._api = api
        self._wait = wait
        self._clock = clock
        self._metrics = metrics
        self._why_not_leading = why_not_leading
        #: UIDs of pods with a bind call in progress
        self._under_way: set[str] = set()
        #: tasks of bind calls; each ends with its call
        self._binds: set[asyncio.Task[BindOutcome]] = set()
        self._is_stopping = False
        #: whether a call was cut off that may still be executed
        self._is_cut_off = False
        self._sent_binds = SentBinds(
            cache,
            apply,
            api,
            metrics=metrics,
            on_bound=on_bound,
            under_way=self._under_way,
            open_s=open_s,
        )

    async def bind(
        self, args: BindArgs, is_there: IsThere = lambda: True
    ) -> BindOutcome:
        """Bind a pod to a node, and return what has become of it.

        The pod first waits until its job permits the bind. A call whose caller is found
        disconnected during this wait counts as never made. If the caller disconnects
        later, the bind goes on: a cancelled API call would have an unknown outcome.

        Args:
            args: The pod and the node.
            is_there: Returns whether the caller is still connected.
        """
        outcome = await self._bind_permitted(args, is_there)
        if isinstance(outcome, Refusal):
            self._metrics.bind_refused.labels(outcome.reason).inc()
        return outcome

    async def _bind_permitted(self, args: BindArgs, is_there: IsThere) -> BindOutcome:
        if self._is_stopping:
            return STOPPING
        if args.uid not in self._under_way:
            refusal = await self._wait(
                Caller(uid=args.uid, node=args.node, is_there=is_there)
            )
            if refusal is not None:
                return refusal
        if args.uid in self._under_way:
            return UNDER_WAY
        self._under_way.add(args.uid)
        task = asyncio.get_running_loop().create_task(self._bind(args))
        self._binds.add(task)
        task.add_done_callback(self._binds.discard)
        return await asyncio.shield(task)

    def carry_out(self, effect: Effect) -> None:
        """Find out about reservations of binds that are due; ignore the rest."""
        self._sent_binds.carry_out(effect)

    @property
    def is_quiet(self) -> bool:
        """Return whether no bind of this extender can still take effect."""
        return not (self._is_cut_off or self._binds or self._sent_binds.has_open)

    async def stop(self) -> None:
        """Refuse new binds, and wait up to `STOP_S` for the binds that were sent.

        Binds without an answer by then are cancelled, but the API server may still
        execute them. So `is_quiet` stays False, and the election Lease is not released
        but expires. Otherwise the next leader might give the chips of such a bind to
        another pod.
        """
        self._is_stopping = True
        if self._binds:
            _, pending = await asyncio.wait(self._binds, timeout=STOP_S)
            self._is_cut_off = bool(pending)
        for task in self._binds:
            task.cancel()
        reads = self._sent_binds.stop()
        await asyncio.gather(*self._binds, reads, return_exceptions=True)

    async def _bind(self, args: BindArgs) -> BindOutcome:
        async with self._slots:
            outcome = await self._attempt(args)
        self._apply(
            gang_events.Bound(uid=args.uid)
            if isinstance(outcome, Bound)
            else gang_events.BindFailed(uid=args.uid)
        )
        return outcome

    async def _attempt(self, args: BindArgs) -> BindOutcome:
        try:
            pod = self._cache.pods.get(args.uid) or await read_pod(self._api, args)
            if pod is None:  # the pod asks for no NPU
                refusal = self._why_not_now()
                if refusal is None:
                    await self._api.bind(args, {})
                return refusal or Bound(args.node)
            outcome = self._sent_binds.known_outcome(args, pod)
            return outcome or await self._reserve_and_bind(args, pod)
        except NotFoundError:
            return GONE
        except KubeError as error:
            return Refusal(reason=ExtenderReason.API, text=f"the API server: {error}")
        finally:
            self._under_way.discard(args.uid)

    def _why_not_now(self) -> Refusal | None:
        """Return why this extender may not send a bind now; None if it may."""
        if self._is_stopping:
            return STOPPING
        text = self._why_not_leading()
        if text is None:
            return None
        return Refusal(reason=ExtenderReason.NOT_LEADING, text=text)

    async def _reserve_and_bind(self, args: BindArgs, pod: NpuPod) -> BindOutcome:
        """Choose and reserve chips for a pod, then send its bind.

        No await stands between choice and reservation, so no other pod can take the
        chips in between.
        """
        refusal = self._why_not_now() or self._permit_refusal(args.uid)
        if refusal is not None:
            return refusal
        now_s = self._clock.now_s()
        choice = reserve.choose_chips(
            self._cache,
            pod,
            args.node,
            ownership=Ownership(owner=Owner.BIND, until_s=now_s + OPEN_S),
            now_s=now_s,
            now_ns=self._clock.now_ns(),
        )
        if isinstance(choice, Refusal):
            if choice.reason is Reason.CONFLICT:
                self._metrics.conflicts.labels("bind").inc()
            return choice
        if self._apply(choice.reservation) is not None:
            return kept_for_others(args.node)
        return await self._sent_binds.send(args, pod, choice)

    def _permit_refusal(self, uid: str) -> Refusal | None:
        """Return why a pod's job no longer permits the pod's bind; None if it does.

        A permitted bind waits while `at_once` binds are being sent. During that wait
        the job may have lost its plan.
        """
        gang = self._cache.gang_of(uid)
        if gang is None or self._cache.is_bind_open(uid) or gang.may_bind(uid):
            return None
        return Refusal(reason=ExtenderReason.JOB, text=permit.NO_PLAN)
