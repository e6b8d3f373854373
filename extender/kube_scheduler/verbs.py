"""What the extender answers kube-scheduler over HTTP: four verbs.

Whatever fails is answered by `answering`; here the verbs say it in `Error`.
"""

from collections.abc import Callable, Iterable, Sequence

from aiohttp import web

from extender.cache import decode
from extender.cache.cache import Cache
from extender.clocks import Clock
from extender.gang import membership
from extender.http.endpoint import Answering
from extender.kube_scheduler import protocol
from extender.kube_scheduler.binder import Binder
from extender.kube_scheduler.protocol import NodesArgs
from extender.metrics import Metrics
from extender.planning.planner import Planner
from extender.preemption import victims
from extender.preemption.preemptor import Evictor
from extender.scheduling import node_filter
from extender.scheduling.decisions import Notes
from extender.scheduling.node_filter import Judgement
from kube import objects
from scheduler_core.node.reasons import Reason
from scheduler_core.wire.pods import NpuPod

#: What preempt answers when nobody is to be evicted.
_NO_VICTIMS = protocol.preempt_answer({})
#: preemptionPolicy of a pod for which nobody is evicted.
_NEVER = "Never"


class Server:
    """The extender's verbs over one cache."""

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        binder: Binder,
        *,
        planner: Planner,
        notes: Notes,
        metrics: Metrics,
        clock: Clock,
        why_not_ready: Callable[[], str | None],
        on_refused: Callable[[], None],
        evictor: Evictor | None = None,
    ) -> None:
        """Answer from `cache`; bind through `binder`.

        Args:
            cache: what is known.
            binder: carries binds out.
            planner: knows the jobs of several pods.
            notes: remembers what filter said.
            metrics: counts.
            clock: for what depends on time.
            why_not_ready: asked before each verb: on a cluster that is known in part,
                chips look free that are not.
            on_refused: told when a pod finds no node.
            evictor: makes room for such pods; None: nobody does.
        """
        self._evictor = evictor
        self._on_refused = on_refused
        self._answering = Answering(metrics, why_not_ready)
        self._cache = cache
        self._binder = binder
        self._planner = planner
        self._notes = notes
        self._metrics = metrics
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """What to serve, besides health and metrics."""
        verb = self._answering.verb
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
        pod = decode.npu_pod(args.pod)
        names = args.candidates.names
        if pod is None:  # asks for none of our resources: not ours to judge
            judged = Judgement(fitting=names)
        else:
            judged = self._judge(args.pod, pod, names)
            if self._evictor is not None:
                judged = self._with_room(self._evictor, args.pod, pod, judged)
            self._notes.judged(pod.uid, judged, self._clock.wall_s())
            self._count(judged)
            if not judged.fitting:
                self._on_refused()
        return _filter_answer(args, judged)

    def _with_room(
        self, evictor: Evictor, sent: objects.Pod, pod: NpuPod, judged: Judgement
    ) -> Judgement:
        """Have room made for a pod that found no node, and say so."""
        if judged.fitting:
            return judged
        if sent.spec.preemption_policy != _NEVER:
            evictor.refused(
                pod, [name for _, names in judged.refused for name in names]
            )
        return node_filter.with_room(self._cache, evictor.owner(pod.uid), judged)

    def _judge(self, sent: objects.Pod, pod: NpuPod, names: Sequence[str]) -> Judgement:
        """Where a pod may go, as its job says or by itself."""
        if pod.uid not in self._cache.pods and self._is_one_of_several(sent):
            return Judgement(fitting=(), refused=((node_filter.UNSEEN, names),))
        if self._evictor is not None:
            self._evictor.hand_over(pod, names)
        of_job = self._planner.judge(pod, names)
        if of_job is not None:
            return of_job
        return node_filter.judge(self._cache, pod, names, self._clock.now_s())

    async def _prioritize(self, body: bytes, _request: web.Request) -> bytes:
        args = protocol.nodes_args(body)
        pod = decode.npu_pod(args.pod)
        names = args.candidates.names
        if pod is None:
            return protocol.scores_answer((name, 0) for name in names)
        found = node_filter.scores(self._cache, pod, names, protocol.MAX_SCORE)
        return protocol.scores_answer(found.items())

    async def _preempt(self, body: bytes, _request: web.Request) -> bytes:
        """Leave of the scheduler's victims those whose going gives the pod a place.

        For one pod of a job of several nobody goes: the others have no place then.
        Where we make room ourselves, the scheduler evicts nobody; what it has found is
        that but for other pods these nodes would do.
        """
        args = protocol.preempt_args(body)
        pod = decode.npu_pod(args.pod)
        if pod is None:
            return protocol.preempt_answer(args.victims)
        now_s = self._clock.now_s()
        refused = node_filter.pod_refusal(self._cache, pod, now_s)
        if refused is None and self._evictor is not None:
            self._make_room(self._evictor, pod, args.victims)
            return _NO_VICTIMS
        if refused is not None or self._is_one_of_several(args.pod):
            return _NO_VICTIMS
        return protocol.preempt_answer(
            {
                node: found
                for node, found in args.victims.items()
                if victims.do_help(self._cache, pod, node, found.uids)
            }
        )

    def _make_room(self, evictor: Evictor, pod: NpuPod, names: Iterable[str]) -> None:
        gang = self._cache.gangs.of(pod.uid)
        if gang is not None and gang.size is None:
            self._planner.judge(pod, ())  # filter has not asked for its size
        short = [name for name in names if victims.is_short(self._cache, pod, name)]
        if short:
            evictor.refused(pod, short)

    def _is_one_of_several(self, sent: objects.Pod) -> bool:
        uid = sent.metadata.uid
        if uid in self._cache.pods:
            return self._cache.gangs.of(uid) is not None
        return membership.to_be_planned(sent) is not None

    async def _bind(self, body: bytes, request: web.Request) -> bytes:
        said = await self._binder.bind(
            protocol.bind_args(body), is_there=lambda: _is_there(request)
        )
        return protocol.error_answer(said)

    def _count(self, judged: Judgement) -> None:
        result = "fits" if judged.fitting else "nowhere"
        self._metrics.decisions.labels(result).inc()
        for verdict, names in judged.refused:
            self._metrics.refused_nodes.labels(verdict.label).inc(len(names))
            if verdict.label is Reason.CONFLICT:
                self._metrics.conflicts.labels("filter").inc(len(names))


def _is_there(request: web.Request) -> bool:
    """Whether the caller's connection is still open."""
    transport = request.transport
    return transport is not None and not transport.is_closing()


def _filter_answer(args: NodesArgs, judged: Judgement) -> bytes:
    return protocol.filter_answer(
        args.candidates,
        judged.fitting,
        failed=judged.texts(is_resolvable=True),
        unresolvable=judged.texts(is_resolvable=False),
    )
