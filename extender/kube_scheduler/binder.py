"""Bind a pod: one API call that sets its node and writes its claim.

No await stands between the choice of chips and their reservation. So two concurrent
binds never share a chip. The API server may execute a bind even if the extender got no
answer to it. Until the outcome is known, the chips stay reserved. Meanwhile a bind of
the pod may be sent again only with the same node and chips.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from extender.cache import decode
from extender.cache.cache import Cache, step
from extender.clocks import Clock
from extender.gang import permit
from extender.gang.events import Caller
from extender.kube_scheduler.protocol import BindArgs
from extender.metrics import Metrics
from extender.scheduling import reserve
from extender.scheduling.node_filter import Refusal
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
#: A bound pod shows in the watch at once; if not, it is read after this time.
UNSEEN_S = 60.0

#: Longest time of one call to the API server, with a margin.
STOP_S = 12.0

_GONE = "the pod is gone"
_NOT_BOUND = "the pod is not bound"
_STOPPING = "the extender is stopping"
_UNDER_WAY = "a bind of this pod is under way"
_UNKNOWN = "the API server gave no clear answer to the bind; it is looked into"


#: Returns whether the caller of a bind still waits for its answer.
IsThere = Callable[[], bool]
#: Called with the bound pod and its choice.
OnBound = Callable[[NpuPod, Choice], None]


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


class Permit(Protocol):
    """Calls of the binder to the planner, which holds back the binds of jobs."""

    async def wait(self, caller: Caller) -> str | None:
        """Hold a bind call for a pod until the pod's job permits or refuses the bind.

        A job permits binds once a member is bound, or once bind calls for all members
        have arrived. Returns None if the bind may be sent, else why it is refused.

        Args:
            caller: Pod and node of the call, and whether the client is still connected.
        """

    def record_bind_outcome(self, uid: str, text: str) -> None:
        """Record whether a bind that `wait` permitted has bound its pod.

        Args:
            uid: UID of the pod.
            text: "" if the pod is bound; else why it is not, or that this is unknown.
        """

    def unreserve(self, uid: str, *, is_gone: bool) -> None:
        """Free the chips of a pod whose bind did not happen, if no plan needs them.

        If the pod exists and is in the plan of its job, the chips stay reserved for a
        later bind.

        Args:
            uid: UID of the pod.
            is_gone: Whether the pod is deleted.
        """


@dataclass(slots=True)
class _OpenBind:
    """A bind with an unknown outcome, which the API server may still execute."""

    args: BindArgs
    #: answer if the bind turns out not to have happened
    failure: str
    #: loop time after which its last call cannot take effect any more
    ends_s: float = 0.0
    is_watched: bool = False


class Binder:
    """Sender of kube-scheduler's binds to the API server.

    It also finds out the outcome of binds without a clear answer. After it has sent a
    pod's bind, only the binder or the pod watch ends the pod's reservation.
    """

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        api: PodApi,
        *,
        permits: Permit,
        clock: Clock,
        metrics: Metrics,
        on_bound: OnBound,
        why_not_leading: Callable[[], str | None] = lambda: None,
        open_s: float = OPEN_S,
        at_once: int = AT_ONCE,
    ) -> None:
        """Create a binder that has sent no bind yet.

        Args:
            cache: Chips are chosen from it; reservations are written into it.
            api: Reads pods and sends binds.
            permits: Holds a job's bind calls until those of all members have arrived.
            clock: Source of the times in claims and reservations.
            metrics: Counts binds, refusals and failures.
            on_bound: Called with the pod and its chips after each bind call that the
                API server answered with success. Not called for pods without NPUs.
            why_not_leading: Returns why this extender may not bind now, or None. Called
                right before each bind of a pod with NPUs.
            open_s: Seconds after an unanswered bind call in which the API server may
                still execute it.
            at_once: Number of binds sent at the same time. Further binds wait.
        """
        self._slots = asyncio.Semaphore(at_once)
        self._cache = cache
        self._api = api
        self._permits = permits
        self._clock = clock
        self._metrics = metrics
        self._on_bound = on_bound
        self._why_not_leading = why_not_leading
        self._open_s = open_s
        #: UIDs of pods with a bind call in progress
        self._under_way: set[str] = set()
        #: {uid: bind with an unknown outcome}
        self._open_binds: dict[str, _OpenBind] = {}
        #: {uid: (finished bind, its loop time)} until the watch shows the pod
        self._unconfirmed: dict[str, tuple[BindArgs, float]] = {}
        self._binds: set[asyncio.Task[str]] = set()
        self._read_tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        #: whether a call was cut off that may still be executed
        self._is_cut_off = False

    async def bind(self, args: BindArgs, is_there: IsThere = lambda: True) -> str:
        """Bind a pod to a node. Return "" if it is bound, else a sentence.

        The sentence says why the pod is not bound, or that the outcome is unknown. The
        pod first waits until its job permits the bind. A call whose caller is found
        disconnected during this wait counts as never made. If the caller disconnects
        later, the bind goes on: a cancelled API call would have an unknown outcome.

        Args:
            args: The pod and the node.
            is_there: Returns whether the caller is still connected.
        """
        if self._is_stopping:
            return _STOPPING
        if args.uid not in self._under_way:
            refusal = await self._permits.wait(
                Caller(uid=args.uid, node=args.node, is_there=is_there)
            )
            if refusal is not None:
                return refusal
        if args.uid in self._under_way:
            return _UNDER_WAY
        self._under_way.add(args.uid)
        task = asyncio.get_running_loop().create_task(self._bind(args))
        self._binds.add(task)
        task.add_done_callback(self._binds.discard)
        return await asyncio.shield(task)

    async def audit(self, *, after_s: float = UNSEEN_S) -> None:
        """Read from the API server each bound pod that the pod watch has not shown yet.

        The watch never shows a pod that was deleted while the watch was down. If the
        API server no longer has the pod, the pod's reservation ends.

        Args:
            after_s: A pod is read this many seconds after its bind or its latest read.
        """
        now_s = asyncio.get_running_loop().time()
        for uid, (args, since_s) in list(self._unconfirmed.items()):
            if uid not in self._cache.reservations:
                del self._unconfirmed[uid]
            elif now_s - since_s >= after_s:
                self._unconfirmed[uid] = (args, now_s)
                await self._read_outcome(_OpenBind(args, _NOT_BOUND))

    @property
    def reserved_uids(self) -> Collection[str]:
        """Return the UIDs of pods whose bind has begun and is not known to be over.

        A bind begins when the pod's job permits it. It is over when the pod watch has
        shown the pod bound, or when the bind has failed for certain.
        """
        return self._under_way | self._open_binds.keys() | self._unconfirmed.keys()

    def take_up(self, uid: str) -> None:
        """Take over a pod's reservation that no other part of the extender will end.

        A reservation from a plan or preemption is ended at once, since no bind with
        these chips is open. For any other reservation, the pod is read until the
        outcome of its bind is known.

        Args:
            uid: UID of the pod. The cache has a reservation for it.
        """
        reservation, pod = self._cache.reservations[uid], self._cache.pods.get(uid)
        if reservation.planned:
            self._void(uid, _NOT_BOUND)
            return
        namespace, name = (pod.namespace, pod.name) if pod else ("", "")
        args = BindArgs(namespace=namespace, name=name, uid=uid, node=reservation.node)
        ends_s = asyncio.get_running_loop().time() + self._open_s
        self._open_binds[uid] = _OpenBind(args, _NOT_BOUND, ends_s=ends_s)
        self._start_polling(self._open_binds[uid])

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

    async def _bind(self, args: BindArgs) -> str:
        async with self._slots:
            text = await self._attempt(args)
        self._permits.record_bind_outcome(args.uid, text)
        return text

    async def _attempt(self, args: BindArgs) -> str:
        try:
            pod = self._cache.pods.get(args.uid) or await self._read_pod(args)
            if pod is None:
                await self._api.bind(args, {})  # the pod asks for no NPU
                return ""
            # the pod is bound, and the watch does not show it yet
            if args.uid in self._unconfirmed and args.uid in self._cache.reservations:
                pod = replace(pod, node=self._unconfirmed[args.uid][0].node)
            if pod.node:
                return _bound_text(pod, args)
            return await self._reserve_and_bind(args, pod)
        except NotFoundError:
            return _GONE
        except KubeError as error:
            return f"the API server: {error}"
        finally:
            self._under_way.discard(args.uid)

    async def _reserve_and_bind(self, args: BindArgs, pod: NpuPod) -> str:
        """Choose and reserve chips for a pod, then send its bind.

        Returns "" if the pod is bound; else why it is not, or that this is unknown. No
        await stands between choice and reservation, so no other pod can take the chips
        in between.
        """
        text = _STOPPING if self._is_stopping else self._why_not_leading()
        text = text or self._permit_refusal(args.uid)
        if text is not None:
            return text
        now_s = self._clock.now_s()
        choice = reserve.choose_chips(
            self._cache, pod, args.node, now_s=now_s, now_ns=self._clock.now_ns()
        )
        if isinstance(choice, Refusal):
            self._metrics.bind_refused.labels(choice.reason).inc()
            if choice.reason is Reason.CONFLICT:
                self._metrics.conflicts.labels("bind").inc()
            return choice.text
        step(self._cache, choice.reservation, now_s)
        return await self._send_bind(args, pod, choice)

    def _permit_refusal(self, uid: str) -> str | None:
        """Return why a pod's job no longer permits the pod's bind; None if it does.

        A permitted bind waits while `at_once` binds are being sent. During that wait
        the job may have lost its plan.
        """
        gang, reservation = (
            self._cache.gangs.gang_of(uid),
            self._cache.reservations.get(uid),
        )
        is_tried_again = reservation is not None and not reservation.planned
        if gang is None or is_tried_again or gang.may_bind(uid):
            return None
        return permit.NO_PLAN

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

    async def _send_bind(self, args: BindArgs, pod: NpuPod, choice: Choice) -> str:
        try:
            await self._api.bind(args, choice.annotations)
        except NotFoundError:
            self._metrics.binds_failed.labels("gone").inc()
            return self._void(args.uid, _GONE)
        except KubeError as error:
            self._metrics.binds_failed.labels(_failure_label(error)).inc()
            if _is_outcome_unknown(error) or args.uid in self._open_binds:
                return await self._resolve_unclear(args, error)
            return self._void(args.uid, f"the API server refused the bind: {error}")
        self._open_binds.pop(args.uid, None)
        self._unconfirmed[args.uid] = (args, asyncio.get_running_loop().time())
        self._metrics.bound.inc()
        self._on_bound(pod, choice)
        return ""

    async def _resolve_unclear(self, args: BindArgs, error: KubeError) -> str:
        """Read a pod after its bind call failed, to learn whether the pod is bound.

        Returns "" if the pod is bound, else a sentence: why it is not bound, or that
        the outcome is unknown. If unknown, a task reads the pod at regular intervals.

        Args:
            args: The pod and the node of the bind.
            error: Failure of the latest bind call.
        """
        loop = asyncio.get_running_loop()
        open_bind = self._open_binds.setdefault(
            args.uid, _OpenBind(args, f"the API server refused the bind: {error}")
        )
        # A refusal decides this call; only earlier calls may still be open.
        if not isinstance(error, ApiError) or error.status >= 500:
            open_bind.ends_s = loop.time() + self._open_s
        text = await self._read_outcome(open_bind)
        if text is None and loop.time() >= open_bind.ends_s:
            text = self._void(args.uid, open_bind.failure)
        if text is not None:
            return text
        if not open_bind.is_watched:
            self._start_polling(open_bind)
            log.warning(
                "bind without a clear outcome",
                extra={"pod": f"{args.namespace}/{args.name}", "error": str(error)},
            )
        return _UNKNOWN

    def _start_polling(self, open_bind: _OpenBind) -> None:
        open_bind.is_watched = True
        task = asyncio.get_running_loop().create_task(self._poll_outcome(open_bind))
        self._read_tasks.add(task)
        task.add_done_callback(self._read_tasks.discard)

    async def _poll_outcome(self, open_bind: _OpenBind) -> None:
        """Read a pod at regular intervals until the outcome of its bind is known.

        If the first read after `open_bind.ends_s` shows no node or fails, the pod
        counts as not bound.
        """
        uid = open_bind.args.uid
        loop = asyncio.get_running_loop()
        while self._open_binds.get(uid) is open_bind:
            await asyncio.sleep(self._open_s / _READS)
            text = await self._read_outcome(open_bind)
            # During the read the bind may have been sent again, or been decided.
            is_ours = (
                self._open_binds.get(uid) is open_bind and uid not in self._under_way
            )
            if text is None and is_ours and loop.time() >= open_bind.ends_s:
                self._void(uid, open_bind.failure)

    async def _read_outcome(self, open_bind: _OpenBind) -> str | None:
        """Read a pod from the API server, and record whether its bind has happened.

        Returns "" if the pod is bound to the node of the bind. If the pod is deleted or
        on another node, returns a sentence that says so. Returns None if the pod has no
        node yet or cannot be read.
        """
        args = open_bind.args
        if not args.name:
            return None  # no watch has shown the pod yet
        try:
            pod = await self._read_pod(args)
        except NotFoundError:
            return self._void(args.uid, _GONE)
        except KubeError:
            return None  # read again later; the first failure is in the log
        if pod is None or not pod.node:
            return None
        return self._record_bound(args, pod)

    def _record_bound(self, args: BindArgs, pod: NpuPod) -> str:
        """Record that a pod has a node, as read from the API server.

        Returns "" if that node is the one in `args`. Otherwise the bind has failed, and
        the result says which node the pod is bound to.
        """
        self._open_binds.pop(args.uid, None)
        if pod.node != args.node:
            return self._void(args.uid, f"the pod is bound to {pod.node} already")
        self._unconfirmed[args.uid] = (args, asyncio.get_running_loop().time())
        return ""

    def _void(self, uid: str, sentence: str) -> str:
        """Free the chips of a deleted pod, or of a pod whose bind did not happen.

        If the pod exists and is in the plan of its job, the chips stay reserved for a
        later bind.

        Args:
            uid: UID of the pod.
            sentence: Why the pod is not bound; also the result.
        """
        self._open_binds.pop(uid, None)
        self._unconfirmed.pop(uid, None)
        self._permits.unreserve(uid, is_gone=sentence == _GONE)
        return sentence


def _bound_text(pod: NpuPod, args: BindArgs) -> str:
    return "" if pod.node == args.node else f"the pod is bound to {pod.node} already"


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
