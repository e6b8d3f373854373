"""Bind a pod: one API call that sets its node and writes its claim.

No await stands between the choice of chips and their reservation. So two concurrent
binds never share a chip. The API server may execute a bind even if the extender got no
answer to it. Until the outcome is known, the chips stay reserved. Meanwhile a bind of
the pod may be sent again only with the same node and chips.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from extender.cache import decode
from extender.cache.cache import Cache
from extender.cache.events import (
    BindVoided,
    Effect,
    ReservationDue,
    ReservationEnded,
)
from extender.cache.reservations import Owner, Reservation
from extender.clocks import Clock
from extender.dispatch import Apply
from extender.gang import events as gang_events
from extender.gang import permit
from extender.gang.events import Caller
from extender.kube_scheduler.protocol import BindArgs
from extender.metrics import RESERVATIONS, Metrics
from extender.refusals import (
    GONE,
    NOT_BOUND,
    STOPPING,
    UNDER_WAY,
    UNKNOWN,
    ExtenderReason,
    Refusal,
    kept_for_others,
)
from extender.scheduling import reserve
from extender.scheduling.reserve import Choice, Ownership
from kube import objects
from kube.errors import (
    ApiError,
    ConflictError,
    KubeError,
    MalformedError,
    NotFoundError,
    UnreachableError,
)
from scheduler_core.node.reasons import Reason
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: kube-apiserver ends a request after 60 s (`--request-timeout`). 5 s are for the way:
#: a bind that is not done by then never is.
OPEN_S = 65.0
#: Binds sent at the same time. The members of a large job arrive all at once. A call
#: that waits for a connection would use up its timeout there and delay the lease,
#: which is renewed over the same connections.
AT_ONCE = 20
#: Reads of a pod with an unknown bind outcome, spread over `OPEN_S`.
_READS = 30
#: Longest time of one call to the API server, with a margin.
STOP_S = 12.0

#: Returns whether the caller of a bind still waits for its answer.
IsThere = Callable[[], bool]
#: Called with the bound pod and its choice.
OnBound = Callable[[NpuPod, Choice], None]
#: Waits until a bind may be sent, and returns None; or returns why it may not.
Wait = Callable[[Caller], Awaitable[Refusal | None]]


@dataclass(frozen=True, slots=True)
class Bound:
    """The outcome that a pod is bound to the node of its bind."""

    node: str


#: What has become of a bind.
BindOutcome = Bound | Refusal


class _Reading(Enum):
    """A read of a pod that does not tell the outcome of its bind."""

    #: the pod has no node yet
    NO_NODE = auto()
    #: the pod could not be read
    FAILED = auto()


class PodApi(Protocol):
    """Calls of the binder to the API server."""

    async def get(self, namespace: str, name: str) -> objects.Pod:
        """Return the pod with this namespace and name from the API server."""

    async def bind(self, args: BindArgs, annotations: Mapping[str, str]) -> None:
        """Bind a pod to a node and write annotations on the pod, in one API call.

        Args:
            args: The pod, with its UID, and the node.
            annotations: Claim of the pod, its place in its job, and perhaps the
                addresses of its chips. Empty for a pod without NPUs.
        """


@dataclass(slots=True)
class _OpenBind:
    """A bind with an unknown outcome, which the API server may still execute."""

    args: BindArgs
    #: outcome if the bind turns out not to have happened
    failure: Refusal
    #: pod and choice of the bind; None if reported already, or not known
    sent: tuple[NpuPod, Choice] | None = None
    #: loop time after which its last call cannot take effect any more
    ends_s: float = 0.0
    is_watched: bool = False


class Binder:
    """Sender of kube-scheduler's binds to the API server.

    It also finds out the outcome of binds without a clear answer. It owns the
    reservations of the pods whose bind it has sent.
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
        self._on_bound = on_bound
        self._why_not_leading = why_not_leading
        self._open_s = open_s
        #: UIDs of pods with a bind call in progress
        self._under_way: set[str] = set()
        #: {uid: bind with an unknown outcome}
        self._open_binds: dict[str, _OpenBind] = {}
        #: {uid: finished bind} until the watch shows the pod
        self._unconfirmed: dict[str, BindArgs] = {}
        #: {uid: finished bind} of pods to be read, because no watch shows them
        self._unseen: dict[str, BindArgs] = {}
        self._binds: set[asyncio.Task[BindOutcome]] = set()
        self._read_tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        #: whether a call was cut off that may still be executed
        self._is_cut_off = False

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
        """Find out about reservations of this binder that are due; ignore the rest."""
        match effect:
            case ReservationDue(reservation=reservation):
                if reservation.owner is Owner.BIND:
                    self._review(reservation)
            case ReservationEnded(reservation=reservation):
                self._unconfirmed.pop(str(reservation.kept_for), None)
            case _:
                pass

    def _review(self, reservation: Reservation) -> None:
        """Find out what has become of a bind whose reservation should have ended.

        The pod watch never shows a pod that was deleted while it was down: the pod is
        read. It is read as well if no part of the binder knows its bind.
        """
        uid = str(reservation.kept_for)
        if uid in self._under_way or uid in self._open_binds:
            return
        if uid in self._unconfirmed:
            self._unseen[uid] = self._unconfirmed[uid]
            if len(self._unseen) == 1:
                self._start_task(self._read_unseen())
            return
        pod = self._cache.pods.get(uid)
        namespace, name = (pod.namespace, pod.name) if pod else ("", "")
        log.warning(
            "reservation without a bind is looked into",
            extra={"pod": f"{namespace}/{name}" if pod else uid},
        )
        self._metrics.repairs.labels(RESERVATIONS).inc()
        args = BindArgs(namespace=namespace, name=name, uid=uid, node=reservation.node)
        ends_s = asyncio.get_running_loop().time() + self._open_s
        self._open_binds[uid] = _OpenBind(args, NOT_BOUND, ends_s=ends_s)
        self._start_polling(self._open_binds[uid])

    async def _read_unseen(self) -> None:
        """Read each bound pod that the pod watch has not shown, one after the other."""
        while self._unseen:
            uid, args = self._unseen.popitem()
            if uid in self._unconfirmed:
                await self._read_outcome(_OpenBind(args, NOT_BOUND))

    @property
    def is_quiet(self) -> bool:
        """Return whether no bind of this extender can still take effect."""
        return not self._is_cut_off and not self._binds and not self._open_binds

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
        tasks = (*self._binds, *self._read_tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
            pod = self._cache.pods.get(args.uid) or await self._read_pod(args)
            if pod is None:  # the pod asks for no NPU
                refusal = self._why_not_now()
                if refusal is None:
                    await self._api.bind(args, {})
                return refusal or Bound(args.node)
            node, bound = pod.node, self._unconfirmed.get(args.uid)
            if bound is not None and self._cache.reservation(args.uid) is not None:
                node = bound.node  # the watch does not show it yet
            if node:
                return _outcome_on(node, args)
            return await self._reserve_and_bind(args, pod)
        except NotFoundError:
            return GONE
        except KubeError as error:
            return _api_refusal(f"the API server: {error}")
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
        return await self._send_bind(args, pod, choice)

    def _permit_refusal(self, uid: str) -> Refusal | None:
        """Return why a pod's job no longer permits the pod's bind; None if it does.

        A permitted bind waits while `at_once` binds are being sent. During that wait
        the job may have lost its plan.
        """
        gang = self._cache.gang_of(uid)
        if gang is None or self._cache.is_bind_open(uid) or gang.may_bind(uid):
            return None
        return Refusal(reason=ExtenderReason.JOB, text=permit.NO_PLAN)

    async def _read_pod(self, args: BindArgs) -> NpuPod | None:
        """Return the pod with the UID in `args`, read from the API server.

        None if the pod asks for no NPU.

        Raises:
            NotFoundError: No pod has this name, or the pod has a different UID.
        """
        pod = await self._api.get(args.namespace, args.name)
        if pod.metadata.uid != args.uid:
            raise NotFoundError(404, "NotFound", "another pod has its name")
        return decode.npu_pod(pod)

    async def _send_bind(
        self, args: BindArgs, pod: NpuPod, choice: Choice
    ) -> BindOutcome:
        try:
            await self._api.bind(args, choice.annotations)
        except NotFoundError:
            self._metrics.binds_failed.labels("gone").inc()
            return self._void(args.uid, GONE)
        except KubeError as error:
            self._metrics.binds_failed.labels(_failure_label(error)).inc()
            refusal = _api_refusal(f"the API server refused the bind: {error}")
            if not _is_outcome_unknown(error) and args.uid not in self._open_binds:
                return self._void(args.uid, refusal)
            open_bind = self._open_binds.setdefault(
                args.uid, _OpenBind(args, refusal, (pod, choice))
            )
            return await self._resolve_unclear(open_bind, error)
        done = self._open_binds.get(args.uid) or _OpenBind(args, UNKNOWN)
        done.args, done.sent = args, (pod, choice)
        return self._record_node(done, args.node)

    async def _resolve_unclear(
        self, open_bind: _OpenBind, error: KubeError
    ) -> BindOutcome:
        """Read a pod after its bind call failed, to learn whether the pod is bound.

        If the outcome stays unknown, a task reads the pod at regular intervals.

        Args:
            open_bind: The bind.
            error: Failure of the latest bind call.
        """
        loop, args = asyncio.get_running_loop(), open_bind.args
        # A refusal decides this call; only earlier calls may still be open.
        if not isinstance(error, ApiError) or error.status >= 500:
            open_bind.ends_s = loop.time() + self._open_s
        outcome = await self._read_outcome(open_bind)
        if outcome is _Reading.NO_NODE and loop.time() >= open_bind.ends_s:
            outcome = self._void(args.uid, open_bind.failure)
        if not isinstance(outcome, _Reading):
            return outcome
        if not open_bind.is_watched:
            self._start_polling(open_bind)
            log.warning(
                "bind without a clear outcome",
                extra={"pod": f"{args.namespace}/{args.name}", "error": str(error)},
            )
        return UNKNOWN

    def _start_polling(self, open_bind: _OpenBind) -> None:
        open_bind.is_watched = True
        self._start_task(self._poll_outcome(open_bind))

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._read_tasks.add(task)
        task.add_done_callback(self._read_tasks.discard)

    async def _poll_outcome(self, open_bind: _OpenBind) -> None:
        """Read a pod at regular intervals until the outcome of its bind is known.

        If a read after `open_bind.ends_s` shows no node, the pod counts as not bound. A
        read that fails says nothing.
        """
        uid = open_bind.args.uid
        loop = asyncio.get_running_loop()
        while self._open_binds.get(uid) is open_bind:
            await asyncio.sleep(self._open_s / _READS)
            is_over = loop.time() >= open_bind.ends_s
            outcome = await self._read_outcome(open_bind)
            # During the read the bind may have been sent again, or been decided.
            is_ours = (
                self._open_binds.get(uid) is open_bind and uid not in self._under_way
            )
            if outcome is _Reading.NO_NODE and is_ours and is_over:
                self._void(uid, open_bind.failure)

    async def _read_outcome(self, open_bind: _OpenBind) -> BindOutcome | _Reading:
        """Read a pod from the API server, and record whether its bind has happened."""
        args = open_bind.args
        if not args.name:
            return _Reading.NO_NODE  # no watch has shown the pod yet
        try:
            pod = await self._read_pod(args)
        except NotFoundError:
            return self._void(args.uid, GONE)
        except KubeError:
            return _Reading.FAILED  # read again later; the first failure is in the log
        if pod is None or not pod.node:
            return _Reading.NO_NODE
        return self._record_node(open_bind, pod.node)

    def _record_node(self, open_bind: _OpenBind, node: str) -> BindOutcome:
        """Record that the pod of a bind has a node, and return the outcome."""
        args = open_bind.args
        self._open_binds.pop(args.uid, None)
        outcome = _outcome_on(node, args)
        if isinstance(outcome, Refusal):
            return self._void(args.uid, outcome)
        # A read that is under way must not report the bind again.
        sent, open_bind.sent = open_bind.sent, None
        reservation = self._cache.reservation(args.uid)
        if reservation is not None and reservation.owner is Owner.BIND:
            self._unconfirmed[args.uid] = args  # else the watch was faster
        if sent is not None:
            self._metrics.bound.inc()
            self._on_bound(*sent)
        return outcome

    def _void(self, uid: str, refusal: Refusal) -> Refusal:
        """Free the chips of a deleted pod, or of a pod whose bind did not happen.

        If the pod exists and is in the plan of its job, the chips stay reserved for a
        later bind.

        Args:
            uid: UID of the pod.
            refusal: Why the pod is not bound; also the result.
        """
        self._open_binds.pop(uid, None)
        self._unconfirmed.pop(uid, None)
        self._apply(BindVoided(uid=uid, is_gone=refusal is GONE))
        return refusal


def _outcome_on(node: str, args: BindArgs) -> BindOutcome:
    """Return the outcome of a bind whose pod is bound to `node`."""
    if node == args.node:
        return Bound(node)
    text = f"the pod is bound to {node} already"
    return Refusal(reason=ExtenderReason.BOUND_ELSEWHERE, text=text)


def _api_refusal(text: str) -> Refusal:
    return Refusal(reason=ExtenderReason.API, text=text)


def _failure_label(error: KubeError) -> str:
    """Return the value of the metric label for a bind that failed with `error`."""
    if isinstance(error, ConflictError):
        return "conflict"
    return "unclear" if _is_outcome_unknown(error) else "refused"


def _is_outcome_unknown(error: KubeError) -> bool:
    """Return whether a pod may be bound although its bind call failed with `error`.

    True also for a conflict: an earlier call for the same pod may have bound it.
    """
    if isinstance(error, UnreachableError | MalformedError | ConflictError):
        return True
    return isinstance(error, ApiError) and error.status >= 500
