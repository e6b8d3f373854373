"""Answer the four verbs of kube-scheduler over HTTP: filter, prioritize, preempt, bind.

If a verb fails, `http.endpoint` turns the error into an answer of that verb.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from aiohttp import web

from extender.cache import decode
from extender.cache.cache import Cache
from extender.clocks import Clock
from extender.gang import membership
from extender.http.endpoint import VerbHandlers
from extender.kube_scheduler import protocol
from extender.kube_scheduler.binder import Binder
from extender.kube_scheduler.sent_binds import Bound
from extender.metrics import Metrics
from extender.planning.planner import Planner
from extender.preemption import victims
from extender.preemption.preemptor import Preemptor
from extender.refusals import UNSEEN, Refusal
from extender.rescheduling.returns import Returns
from extender.scheduling import node_filter
from extender.scheduling.decisions import LastDecisions
from extender.scheduling.node_filter import FilterResult
from kube import objects
from scheduler_core.node.reasons import Reason
from scheduler_core.wire.pods import NpuPod

#: Answer of preempt without victims.
_NO_VICTIMS = protocol.preempt_answer({})
#: preemptionPolicy of a pod that evicts no other pod.
_NEVER = "Never"


class KubeSchedulerVerbs:
    """HTTP handlers of kube-scheduler's verbs: filter, prioritize, preempt and bind."""

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        binder: Binder,
        *,
        planner: Planner,
        notes: LastDecisions,
        metrics: Metrics,
        clock: Clock,
        why_not_ready: Callable[[], str | None],
        on_refused: Callable[[], None],
        preemptor: Preemptor | None = None,
        returns: Returns | None = None,
    ) -> None:
        """Connect the handlers to the objects that make the decisions.

        Args:
            cache: Read here; changed only through planner, binder and preemptor.
            binder: Binds pods.
            planner: Plans jobs of several pods.
            notes: Remembers for each pod why filter last refused all nodes.
            metrics: Counts decisions and refusals.
            clock: Source of all times.
            why_not_ready: Returns why no verb may be answered now, or None. Called
                before each verb. For example, the cache does not know all pods yet.
            on_refused: Called when filter refuses a pod on all nodes.
            preemptor: Evicts pods to make room for refused pods. If None, only
                kube-scheduler does so.
            returns: Has the places of pods that move after faults. None: none move.
        """
        self._preemptor = preemptor
        self._returns = returns
        self._on_refused = on_refused
        self._handlers = VerbHandlers(metrics, why_not_ready)
        self._cache = cache
        self._binder = binder
        self._planner = planner
        self._decisions = notes
        self._metrics = metrics
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes `/filter`, `/prioritize`, `/preempt` and `/bind`."""
        verb = self._handlers.wrap
        return [
            web.post("/filter", verb("filter", self._filter, protocol.error_answer)),
            web.post(
                "/prioritize", verb("prioritize", self._prioritize, lambda _: b"[]")
            ),
            web.post("/preempt", verb("preempt", self._preempt, lambda _: _NO_VICTIMS)),
            web.post("/bind", verb("bind", self._bind, protocol.error_answer)),
        ]

    async def _filter(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.nodes_args(body)
        pod = self._npu_pod(args.pod)
        names = args.candidates.names
        if pod is None:  # asks for no NPU: fits everywhere
            filter_result = FilterResult(fitting=names)
        else:
            filter_result = self._filter_nodes(args.pod, pod, names)
            if self._preemptor is not None and not self._is_held(pod):
                filter_result = self._apply_preemption(
                    self._preemptor, args.pod, pod, filter_result
                )
            self._count(filter_result)
            if not filter_result.fitting:
                self._decisions.record_refusal(
                    pod.uid, filter_result, self._clock.wall_s()
                )
                self._on_refused()
        return protocol.filter_answer(
            args.candidates,
            filter_result.fitting,
            failed=filter_result.texts(is_resolvable=True),
            unresolvable=filter_result.texts(is_resolvable=False),
        )

    def _is_held(self, pod: NpuPod) -> bool:
        """Return whether a pod has a kept place, so that nobody is evicted for it."""
        return self._returns is not None and self._returns.has_place(pod)

    def _npu_pod(self, pod_object: objects.Pod) -> NpuPod | None:
        """Return the pod of a request; None if it asks for no NPU.

        The pod is that of the cache, if its watch has delivered it.
        """
        known = self._cache.pods.get(pod_object.metadata.uid)
        return known or decode.npu_pod(pod_object)

    def _apply_preemption(
        self,
        preemptor: Preemptor,
        pod_object: objects.Pod,
        pod: NpuPod,
        filter_result: FilterResult,
    ) -> FilterResult:
        """Tell the preemptor that no node accepts a pod; return the new filter result.

        Nodes where chips are being freed for the pod or its job get the refusal
        `node_filter.LEAVING`. The preemptor is not told of a pod with preemptionPolicy
        `Never`. If a node accepts the pod, `filter_result` is returned unchanged.
        """
        if filter_result.fitting:
            return filter_result
        if pod_object.spec.preemption_policy != _NEVER:
            preemptor.refused(
                pod, [name for _, names in filter_result.refused for name in names]
            )
        return node_filter.apply_nomination(
            self._cache, preemptor.beneficiary(pod.uid), filter_result
        )

    def _filter_nodes(
        self, pod_object: objects.Pod, pod: NpuPod, names: Sequence[str]
    ) -> FilterResult:
        """Return the nodes that a pod may go to, and why it may not go to the others.

        A pod of a job of several pods may go only to the node that is planned for it.
        All nodes refuse such a pod until the pod watch has delivered it.

        Reserves in three cases: chips that preemption has freed for the pod are taken
        up, so are those that are kept for it after a fault, and the job of the pod is
        planned. Everything else is a pure judgement.
        """
        if pod.uid not in self._cache.pods and self._is_one_of_several(pod_object):
            return FilterResult(fitting=(), refused=((UNSEEN, names),))
        if self._returns is not None:
            held = self._take_place(self._returns, pod, names)
            if held is not None:
                return node_filter.refuse_all(held, names)
        if self._preemptor is not None:
            self._preemptor.reserve_freed_chips(pod, names)
        job_result = self._planner.filter_nodes(pod, names)
        if job_result is not None:
            return job_result
        return node_filter.filter_nodes(self._cache, pod, names, self._clock.now_s())

    def _take_place(
        self, returns: Returns, pod: NpuPod, names: Sequence[str]
    ) -> Refusal | None:
        """Let a pod take its kept place; return why it must wait, None if not."""
        find_obstacle = partial(self._planner.find_obstacle, has_places=True)
        return returns.give(pod, names, find_obstacle)

    async def _prioritize(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.nodes_args(body)
        pod = self._npu_pod(args.pod)
        names = args.candidates.names
        if pod is None:
            return protocol.scores_answer((name, 0) for name in names)
        scores = node_filter.score_nodes(self._cache, pod, names, protocol.MAX_SCORE)
        return protocol.scores_answer(scores.items())

    async def _preempt(self, body: bytes, _request: web.Request) -> bytes:
        """Return nodes where kube-scheduler's proposed evictions free fitting chips.

        kube-scheduler proposes pods to evict on each node. For a pod with NPUs, no node
        is returned in these cases:

        - No eviction helps the pod, for example because its owner is in back-off.
        - The extender has a preemptor, which evicts instead of kube-scheduler. The
          preemptor learns here which nodes lack chips, CPU, memory or pod places for
          the pod.
        - The pod is of a job of several pods. Victims for one pod do not make a whole
          job fit.
        """
        args = protocol.preempt_args(body)
        pod = self._npu_pod(args.pod)
        if pod is None:
            return protocol.preempt_answer(args.victims)
        now_s = self._clock.now_s()
        refusal = node_filter.pod_refusal(self._cache, pod, now_s)
        if refusal is None and self._preemptor is not None:
            self._record_short_nodes(self._preemptor, pod, args.victims)
            return _NO_VICTIMS
        if refusal is not None or self._is_one_of_several(args.pod):
            return _NO_VICTIMS
        return protocol.preempt_answer(
            {
                node: node_victims
                for node, node_victims in args.victims.items()
                if victims.do_help(self._cache, pod, node, node_victims.uids)
            }
        )

    def _record_short_nodes(
        self, preemptor: Preemptor, pod: NpuPod, names: Iterable[str]
    ) -> None:
        gang = self._cache.gang_of(pod.uid)
        if gang is not None and gang.size is None:
            self._planner.filter_nodes(pod, ())  # starts the read of its size
        short_names = [
            name for name in names if victims.is_short(self._cache, pod, name)
        ]
        if short_names:
            preemptor.refused(pod, short_names)

    def _is_one_of_several(self, pod_object: objects.Pod) -> bool:
        uid = pod_object.metadata.uid
        if uid in self._cache.pods:
            return self._cache.gang_of(uid) is not None
        return membership.planned_membership(pod_object) is not None

    async def _bind(self, body: bytes, request: web.Request) -> bytes:
        outcome = await self._binder.bind(
            protocol.bind_args(body), is_there=lambda: _is_there(request)
        )
        return protocol.error_answer("" if isinstance(outcome, Bound) else outcome.text)

    def _count(self, filter_result: FilterResult) -> None:
        result = "fits" if filter_result.fitting else "unschedulable"
        self._metrics.decisions.labels(result).inc()
        for refusal, names in filter_result.refused:
            self._metrics.nodes_refused.labels(refusal.reason).inc(len(names))
            if refusal.reason is Reason.CONFLICT:
                self._metrics.conflicts.labels("filter").inc(len(names))


def _is_there(request: web.Request) -> bool:
    """Return whether the caller of an HTTP request is still connected."""
    transport = request.transport
    return transport is not None and not transport.is_closing()
