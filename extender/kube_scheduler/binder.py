"""Carrying out a choice: one API call that binds the pod and writes its claim.

The promise is made before the first await, so two binds at once never share a chip.
It is void only when it is certain that the bind has not happened and never will: a
call whose outcome is unknown may still be executed by the API server after we have
stopped waiting for it. Until then the chips stay promised, and only the very same
bind may be tried again.
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
from extender.scheduling.node_filter import Verdict
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

#: kube-apiserver ends a request after 60 s (`--request-timeout`); what it has not done
#: by then, a little later for the way, it never does.
OPEN_S = 65.0
#: Binds that are sent at the same time. The members of a large job come all at once; a
#: call that waits for a connection would lose its time in that queue, and the lease,
#: which is renewed over the same connections, its turn.
AT_ONCE = 20
#: So often a pod whose bind has no known outcome is looked at in that time.
_LOOKS = 30
#: A bind that was done shows in the watch at once; after this long it is looked for.
UNSEEN_S = 60.0

#: What one call to the API server may take, and a little more.
STOP_S = 12.0

_GONE = "the pod is gone"
_NOT_BOUND = "the pod is not bound"
_STOPPING = "the extender is stopping"
_UNDER_WAY = "a bind of this pod is under way"
_UNKNOWN = "the API server gave no clear answer to the bind; it is looked into"


#: Whether the caller of a bind still waits for its answer.
IsThere = Callable[[], bool]
#: Gets the pod and the choice that is now true.
Told = Callable[[NpuPod, Choice], None]


class PodApi(Protocol):
    """What binding asks of the API server."""

    async def get(self, namespace: str, name: str) -> objects.Pod:
        """Return the pod of that name as it is now."""

    async def bind(self, args: BindArgs, annotations: Mapping[str, str]) -> None:
        """Bind the pod with that UID and write the annotations on it, in one call."""


class Gate(Protocol):
    """What binding asks of the jobs of several pods."""

    async def wait(self, caller: Caller) -> str | None:
        """Hold a bind until its job is ready: None to go on, or why it is refused."""

    def settled(self, uid: str, said: str) -> None:
        """Note how a bind that went on has ended; "" is bound."""

    def voided(self, uid: str, *, is_gone: bool) -> None:
        """Note that a bind has not happened: its chips are free, or kept by its job."""


@dataclass(slots=True)
class _Open:
    """A bind whose outcome is unknown."""

    args: BindArgs
    #: what to say if it turns out not to have happened
    failure: str
    #: loop time at which its last try has ended for sure
    over_s: float = 0.0
    is_watched: bool = False


class Binder:
    """Binds pods. Owner of the promises in the cache."""

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        api: PodApi,
        *,
        gate: Gate,
        clock: Clock,
        metrics: Metrics,
        told: Told,
        may: Callable[[], str | None] = lambda: None,
        open_s: float = OPEN_S,
        at_once: int = AT_ONCE,
    ) -> None:
        """Bind nothing yet.

        Args:
            cache: decided on, and told of each promise.
            api: carries the decision out.
            gate: holds the pods of a job until all have come.
            clock: for predicate-times.
            metrics: counts.
            told: gets each pod that was bound, and why there.
            may: says why nothing may be bound now, if so; asked at the last moment.
            open_s: how long a call that got no answer may still take effect.
            at_once: how many binds are sent at the same time; the others wait.
        """
        self._turns = asyncio.Semaphore(at_once)
        self._cache = cache
        self._api = api
        self._gate = gate
        self._clock = clock
        self._metrics = metrics
        self._told = told
        self._may = may
        self._open_s = open_s
        #: UIDs of the pods whose bind call is being carried out
        self._under_way: set[str] = set()
        #: {uid: a bind without an outcome}
        self._open: dict[str, _Open] = {}
        #: {uid: (a bind that was done, loop time)}, until the watch shows the pod
        self._unseen: dict[str, tuple[BindArgs, float]] = {}
        self._binds: set[asyncio.Task[str]] = set()
        self._looks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        #: whether a call was cut off that may still be executed
        self._is_cut = False

    async def bind(self, args: BindArgs, is_there: IsThere = lambda: True) -> str:
        """Bind a pod to a node; return "" or the sentence that says why not.

        A caller that goes away does not end the call: half done is the one thing
        that it must not be. But while a pod waits for the others of its job, nothing
        has been done: then a caller that has gone has not come.

        Args:
            args: the pod, and its node.
            is_there: whether somebody waits for the answer.
        """
        if self._is_stopping:
            return _STOPPING
        if args.uid not in self._under_way:
            waited = await self._gate.wait(
                Caller(uid=args.uid, node=args.node, is_there=is_there)
            )
            if waited is not None:
                return waited
        if args.uid in self._under_way:
            return _UNDER_WAY
        self._under_way.add(args.uid)
        task = asyncio.get_running_loop().create_task(self._bind(args))
        self._binds.add(task)
        task.add_done_callback(self._binds.discard)
        return await asyncio.shield(task)

    async def audit(self, *, after_s: float = UNSEEN_S) -> None:
        """Look at binds that were done and that no watch has shown since.

        A pod that was bound and deleted while a watch was down is never shown; its
        promise ends here.

        Args:
            after_s: how long the watch has had to show the pod.
        """
        now_s = asyncio.get_running_loop().time()
        for uid, (args, since_s) in list(self._unseen.items()):
            if uid not in self._cache.assumed:
                del self._unseen[uid]
            elif now_s - since_s >= after_s:
                self._unseen[uid] = (args, now_s)
                await self._look(_Open(args, _NOT_BOUND))

    @property
    def promised(self) -> Collection[str]:
        """UIDs of the pods whose promises we answer for."""
        return self._under_way | self._open.keys() | self._unseen.keys()

    def take_up(self, uid: str) -> None:
        """Look into a promise that nobody answers for: its bind may have been sent."""
        promise, pod = self._cache.assumed[uid], self._cache.pods.get(uid)
        if promise.planned:
            self._void(uid, _NOT_BOUND)
            return
        where, name = (pod.namespace, pod.name) if pod else ("", "")
        args = BindArgs(namespace=where, name=name, uid=uid, node=promise.node)
        over_s = asyncio.get_running_loop().time() + self._open_s
        self._open[uid] = _Open(args, _NOT_BOUND, over_s=over_s)
        self._follow(self._open[uid])

    @property
    def is_quiet(self) -> bool:
        """Whether no bind can still take effect of which we do not know."""
        return not self._is_cut and not self._binds and not self._open

    async def stop(self) -> None:
        """Begin no bind any more, and let those under way come to their end.

        A call that is cut off may still be executed, when our successor has already
        read the pods and given its chips to another.
        """
        self._is_stopping = True
        if self._binds:
            _, late = await asyncio.wait(self._binds, timeout=STOP_S)
            self._is_cut = bool(late)
        tasks = (*self._binds, *self._looks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _bind(self, args: BindArgs) -> str:
        async with self._turns:
            said = await self._attempt(args)
        self._gate.settled(args.uid, said)
        return said

    async def _attempt(self, args: BindArgs) -> str:
        try:
            pod = self._cache.pods.get(args.uid) or await self._read(args)
            if pod is None:
                await self._api.bind(args, {})  # asks for none of our resources
                return ""
            # bound already, and the watch is late to show it
            if args.uid in self._unseen and args.uid in self._cache.assumed:
                pod = replace(pod, node=self._unseen[args.uid][0].node)
            if pod.node:
                return _bound(pod, args)
            return await self._decide(args, pod)
        except NotFoundError:
            return _GONE
        except KubeError as error:
            return f"the API server: {error}"
        finally:
            self._under_way.discard(args.uid)

    async def _decide(self, args: BindArgs, pod: NpuPod) -> str:
        """Choose and promise, without an await between; then carry out."""
        said = _STOPPING if self._is_stopping else self._may()
        said = said or self._why_closed(args.uid)
        if said is not None:
            return said
        now_s = self._clock.now_s()
        made = reserve.choose(
            self._cache, pod, args.node, now_s=now_s, now_ns=self._clock.now_ns()
        )
        if isinstance(made, Verdict):
            self._metrics.bind_refused.labels(made.label).inc()
            if made.label is Reason.CONFLICT:
                self._metrics.conflicts.labels("bind").inc()
            return made.text
        step(self._cache, made.promise, now_s)
        return await self._carry_out(args, pod, made)

    def _why_closed(self, uid: str) -> str | None:
        """Why the gate would not let a pod through any more, if so.

        Its bind has waited for its turn; meanwhile its job may have been given up.
        """
        gang, promise = self._cache.gangs.of(uid), self._cache.assumed.get(uid)
        is_tried_again = promise is not None and not promise.planned
        if gang is None or is_tried_again or gang.lets_through(uid):
            return None
        return permit.NO_PLAN

    async def _read(self, args: BindArgs) -> NpuPod | None:
        """Read the pod of that UID; None if it asks for no NPU.

        Raises:
            NotFoundError: there is none; another pod of its name is another pod.
        """
        pod = await self._api.get(args.namespace, args.name)
        if pod.metadata.uid != args.uid:
            raise NotFoundError(404, "NotFound", "another pod has its name")
        return decode.npu_pod(pod)

    async def _carry_out(self, args: BindArgs, pod: NpuPod, made: Choice) -> str:
        try:
            await self._api.bind(args, made.annotations)
        except NotFoundError:
            self._metrics.binds_failed.labels("gone").inc()
            return self._void(args.uid, _GONE)
        except KubeError as error:
            self._metrics.binds_failed.labels(_why(error)).inc()
            if _is_open(error) or args.uid in self._open:
                return await self._unclear(args, error)
            return self._void(args.uid, f"the API server refused the bind: {error}")
        self._open.pop(args.uid, None)
        self._unseen[args.uid] = (args, asyncio.get_running_loop().time())
        self._metrics.bound.inc()
        self._told(pod, made)
        return ""

    async def _unclear(self, args: BindArgs, error: KubeError) -> str:
        """Read what has become of the pod; go on looking if that does not tell."""
        loop = asyncio.get_running_loop()
        found = self._open.setdefault(
            args.uid, _Open(args, f"the API server refused the bind: {error}")
        )
        # A refusal is clear about this try; only earlier ones may be under way.
        if not isinstance(error, ApiError) or error.status >= 500:
            found.over_s = loop.time() + self._open_s
        said = await self._look(found)
        if said is None and loop.time() >= found.over_s:
            said = self._void(args.uid, found.failure)
        if said is not None:
            return said
        if not found.is_watched:
            self._follow(found)
            log.warning(
                "bind without a clear outcome",
                extra={"pod": f"{args.namespace}/{args.name}", "error": str(error)},
            )
        return _UNKNOWN

    def _follow(self, found: _Open) -> None:
        found.is_watched = True
        task = asyncio.get_running_loop().create_task(self._watch(found))
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _watch(self, found: _Open) -> None:
        """Look at the pod until it is clear what has become of the bind."""
        uid = found.args.uid
        loop = asyncio.get_running_loop()
        while self._open.get(uid) is found:
            await asyncio.sleep(self._open_s / _LOOKS)
            said = await self._look(found)
            # While we looked it may have been tried again, or have got its outcome.
            is_ours = self._open.get(uid) is found and uid not in self._under_way
            if said is None and is_ours and loop.time() >= found.over_s:
                self._void(uid, found.failure)

    async def _look(self, found: _Open) -> str | None:
        """What a bind has come to: "" done, a sentence if not, None if unclear."""
        args = found.args
        if not args.name:
            return None  # no watch has shown the pod yet
        try:
            pod = await self._read(args)
        except NotFoundError:
            return self._void(args.uid, _GONE)
        except KubeError:
            return None  # looked at again; the first failure is in the log
        if pod is None or not pod.node:
            return None
        return self._turned_out(args, pod)

    def _turned_out(self, args: BindArgs, pod: NpuPod) -> str:
        """The pod is bound: by us, and then the watch is going to show it, or not."""
        self._open.pop(args.uid, None)
        if pod.node != args.node:
            return self._void(args.uid, f"the pod is bound to {pod.node} already")
        self._unseen[args.uid] = (args, asyncio.get_running_loop().time())
        return ""

    def _void(self, uid: str, sentence: str) -> str:
        """Give the promised chips back: this bind never happens."""
        self._open.pop(uid, None)
        self._unseen.pop(uid, None)
        self._gate.voided(uid, is_gone=sentence == _GONE)
        return sentence


def _bound(pod: NpuPod, args: BindArgs) -> str:
    return "" if pod.node == args.node else f"the pod is bound to {pod.node} already"


def _why(error: KubeError) -> str:
    """What went wrong, in a word for counting."""
    if isinstance(error, ConflictError):
        return "conflict"
    return "unclear" if _is_open(error) else "refused"


def _is_open(error: KubeError) -> bool:
    """Whether the pod may be bound all the same: by this call, or an earlier one."""
    if isinstance(error, UnreachableError | MalformedError | ConflictError):
        return True
    return isinstance(error, ApiError) and error.status >= 500
