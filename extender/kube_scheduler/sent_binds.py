"""Send binds to the API server, and find out what has become of them.

The API server may execute a bind even if the extender got no answer to it. Until the
outcome is known, the chips stay reserved. Meanwhile a bind of the pod may be sent again
only with the same node and chips.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from extender.cache import decode
from extender.cache.cache import Cache
from extender.cache.events import BindVoided, Effect, ReservationDue, ReservationEnded
from extender.cache.reservations import Owner, Reservation
from extender.dispatch import Apply
from extender.kube_scheduler.protocol import BindArgs
from extender.metrics import RESERVATIONS, Metrics
from extender.refusals import GONE, NOT_BOUND, UNKNOWN, ExtenderReason, Refusal
from extender.scheduling.reserve import Choice
from kube import objects
from kube.errors import (
    ApiError,
    ConflictError,
    KubeError,
    MalformedError,
    NotFoundError,
    UnreachableError,
)
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: kube-apiserver ends a request after 60 s (`--request-timeout`). 5 s are for the way:
#: a bind that is not done by then never is.
OPEN_S = 65.0
#: Reads of a pod with an unknown bind outcome, spread over `OPEN_S`.
_READS = 30

#: Called with the bound pod and its choice.
OnBound = Callable[[NpuPod, Choice], None]


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
    """Calls to the API server that read and bind pods."""

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
    #: reads its pod at regular intervals
    polling: asyncio.Task[None] | None = None

    @property
    def is_reported(self) -> bool:
        """Return whether its success has been counted and told."""
        return self.sent is None

    @property
    def is_watched(self) -> bool:
        """Return whether a task reads its pod."""
        return self.polling is not None and not self.polling.done()


class SentBinds:
    """Binds that were sent: open, or finished and not shown by the pod watch yet.

    It owns the reservations of their pods, and reads the pods of unclear binds.
    """

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        apply: Apply,
        api: PodApi,
        *,
        metrics: Metrics,
        on_bound: OnBound,
        under_way: Container[str],
        open_s: float,
    ) -> None:
        """Start without a bind. `Binder` describes the arguments that it passes on.

        Args:
            under_way: UIDs of pods with a bind call in progress; only read here.
        """
        self._cache = cache
        self._apply = apply
        self._api = api
        self._metrics = metrics
        self._on_bound = on_bound
        self._under_way = under_way
        self._open_s = open_s
        #: {uid: bind with an unknown outcome}
        self._open_binds: dict[str, _OpenBind] = {}
        #: {uid: finished bind} until the watch shows the pod
        self._unconfirmed: dict[str, BindArgs] = {}
        #: {uid: finished bind} of pods to be read, because no watch shows them
        self._unseen: dict[str, BindArgs] = {}
        #: reads `_unseen`; after a failed read it starts when a reservation is due
        #: again
        self._unseen_reading: asyncio.Task[None] | None = None
        #: all tasks that read pods; those of `_open_binds` until the outcome is clear
        self._read_tasks: set[asyncio.Task[None]] = set()

    def known_outcome(self, args: BindArgs, pod: NpuPod) -> BindOutcome | None:
        """Return the outcome of a bind if its pod is bound already, else None."""
        node, bound = pod.node, self._unconfirmed.get(args.uid)
        if bound is not None and self._cache.reservation(args.uid) is not None:
            node = bound.node  # the watch does not show it yet
        return _outcome_on(node, args) if node else None

    async def send(self, args: BindArgs, pod: NpuPod, choice: Choice) -> BindOutcome:
        """Send a bind whose chips are reserved, and return what has become of it.

        If the outcome is unknown, the pod is read at regular intervals.
        """
        open_bind = self._open_binds.get(args.uid) or _OpenBind(args, UNKNOWN)
        # A read may find this call executed before its answer comes: it reports then.
        open_bind.args, open_bind.sent = args, (pod, choice)
        try:
            await self._api.bind(args, choice.annotations)
        except NotFoundError:
            self._metrics.binds_failed.labels("gone").inc()
            return self._void(args.uid, GONE)
        except KubeError as error:
            self._metrics.binds_failed.labels(_failure_label(error)).inc()
            if open_bind.is_reported:  # a read has found an earlier call executed
                return Bound(args.node)
            if args.uid not in self._open_binds:
                text = f"the API server refused the bind: {error}"
                open_bind.failure = Refusal(reason=ExtenderReason.API, text=text)
                if not _is_outcome_unknown(error):
                    return self._void(args.uid, open_bind.failure)
                self._open_binds[args.uid] = open_bind
            return await self._resolve_unclear(open_bind, error)
        return self._record_node(open_bind, args.node)

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
        open_bind.polling = self._start_task(self._poll_outcome(open_bind))

    def _start_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._read_tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[None]) -> None:
        """Forget a task; log why it failed. A later review starts another one."""
        self._read_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("reads of sent binds have failed", exc_info=error)

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
            pod = await read_pod(self._api, args)
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

    def carry_out(self, effect: Effect) -> None:
        """Find out about reservations of binds that are due; ignore the rest."""
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
        read. It is read as well if its bind is not known.
        """
        uid = str(reservation.kept_for)
        if uid in self._under_way:
            return
        if uid in self._open_binds:
            if not self._open_binds[uid].is_watched:
                self._start_polling(self._open_binds[uid])
            return
        if uid in self._unconfirmed:
            self._unseen[uid] = self._unconfirmed[uid]
            if self._unseen_reading is None or self._unseen_reading.done():
                self._unseen_reading = self._start_task(self._read_unseen())
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
    def has_open(self) -> bool:
        """Return whether the API server may still execute one of the binds."""
        return bool(self._open_binds)

    async def stop(self) -> None:
        """Read no pod any more. Open binds stay open."""
        for task in self._read_tasks:
            task.cancel()
        await asyncio.gather(*self._read_tasks, return_exceptions=True)


async def read_pod(api: PodApi, args: BindArgs) -> NpuPod | None:
    """Return the pod with the UID in `args`, read from the API server.

    None if the pod asks for no NPU.

    Raises:
        NotFoundError: No pod has this name, or the pod has a different UID.
    """
    pod = await api.get(args.namespace, args.name)
    if pod.metadata.uid != args.uid:
        raise NotFoundError(404, "NotFound", "another pod has its name")
    return decode.npu_pod(pod)


def _outcome_on(node: str, args: BindArgs) -> BindOutcome:
    """Return the outcome of a bind whose pod is bound to `node`."""
    if node == args.node:
        return Bound(node)
    text = f"the pod is bound to {node} already"
    return Refusal(reason=ExtenderReason.BOUND_ELSEWHERE, text=text)


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
