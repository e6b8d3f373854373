"""Which chips a pod gets on the node that the scheduler has picked, at this moment.

Filter guessed on an older state; this is where it counts. Pure: what it decides
becomes true only when `binding` promises it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.cache.events import Assumed
from extender.scheduling import claim, node_filter
from extender.scheduling.node_filter import Verdict
from scheduler_core.node import chips
from scheduler_core.node.reasons import Reason
from scheduler_core.placement import pod as pod_placement
from scheduler_core.placement.pod import Placement
from scheduler_core.wire.pods import NpuPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Chips for a pod on a node, and what bind writes to say so."""

    promise: Assumed
    annotations: Mapping[str, str]
    #: why this node and these chips
    reason: str

    @property
    def sentence(self) -> str:
        """What a person wants to know: which chips of which node, and why those."""
        ids = chips.ids_of(self.promise.chips)
        named = "chip" if len(ids) == 1 else "chips"
        listed = ",".join(map(str, ids))
        return f"{named} {listed} of {self.promise.node}: {self.reason}"


def choose(
    cache: Cache, pod: NpuPod, node: str, *, now_s: float, now_ns: int
) -> Choice | Verdict:
    """Choose the chips of `pod` on `node`, or say why it cannot be.

    Args:
        cache: what is known now; not changed.
        pod: asks for NPUs and is not bound.
        node: where the scheduler wants it.
        now_s: seconds since the epoch.
        now_ns: the same in nanoseconds; the predicate-time is this, or more where
            the node has seen a later one.

    Returns:
        The choice, or the verdict that stands against it.
    """
    refused = node_filter.pod_refusal(cache, pod, now_s)
    if refused is not None:
        return refused
    promise = cache.assumed.get(pod.uid)
    if promise is not None:
        refused = _broken(cache, promise, node)
        return refused or _promised(cache, pod, promise, now_ns)
    if node in cache.kept_from(pod.uid):
        return node_filter.KEPT
    return _chosen(cache, pod, node, now_ns)


def why_not(cache: Cache, pod: NpuPod, node: str, *, now_s: float) -> Verdict | None:
    """Why a pod does not get what it was promised; None: `choose` gives it that.

    Of thousands of pods that is known much sooner than what is to be written on them.

    Args:
        cache: what is known now; not changed.
        pod: asks for NPUs and is not bound.
        node: where the scheduler wants it.
        now_s: seconds since the epoch.
    """
    refused = node_filter.pod_refusal(cache, pod, now_s)
    promise = cache.assumed.get(pod.uid)
    if refused is not None:
        return refused
    if promise is not None:
        return _broken(cache, promise, node)
    made = choose(cache, pod, node, now_s=now_s, now_ns=0)
    return made if isinstance(made, Verdict) else None


def _chosen(cache: Cache, pod: NpuPod, node: str, now_ns: int) -> Choice | Verdict:
    """Chips for a pod for which none are kept."""
    survey = cache.cluster.survey(
        pod.shape.resource, pod.total, (node,), avoid=cache.conflicts(pod)
    )
    if node in survey.refused:
        return node_filter.of(survey.refused[node])
    placed = pod_placement.place(
        pod.shape.resource, pod.total, cache.cluster, names=(node,)
    )
    if not isinstance(placed, Placement):
        raise TypeError(f"the index offers {node!r} and refuses it: {placed.text}")
    record = cache.record(node, pod.shape.resource)
    promise = Assumed(
        uid=pod.uid,
        node=node,
        chips=chips.mask_of(placed.chips),
        predicate_time=record.next_time(now_ns),
        shape=pod.shape,
        extra=claim.alone(record, pod),
    )
    return _choice(cache, pod, promise, placed.reason)


def _broken(cache: Cache, promise: Assumed, node: str) -> Verdict | None:
    """Why the chips that are kept for a pod cannot be given on that node now."""
    if node != promise.node:
        return node_filter.why_elsewhere(cache, promise)
    state = cache.cluster.line(promise.shape.resource).get(promise.node)
    if state is None or state.barred:
        return node_filter.CLOSED if promise.planned else node_filter.OPEN_BIND
    if promise.chips & ~state.healthy:
        return Verdict(label=Reason.CHIP_UNHEALTHY, text="chip unhealthy")
    return None


def _promised(cache: Cache, pod: NpuPod, promise: Assumed, now_ns: int) -> Choice:
    """The chips that are kept for a pod.

    Kept by the plan of its job, or by an earlier bind: its first try may or may not
    have happened, so that only the very same can be tried again.
    """
    if not promise.planned:
        return _choice(cache, pod, promise, "the earlier bind, tried again")
    record = cache.record(promise.node, promise.shape.resource)
    time = record.next_time(now_ns)
    now = promise._replace(predicate_time=time, planned=False)
    return _choice(cache, pod, now, promise.reason)


def _choice(cache: Cache, pod: NpuPod, promise: Assumed, reason: str) -> Choice:
    record = cache.record(promise.node, promise.shape.resource)
    return Choice(
        promise=promise,
        annotations=claim.on_pod(record, pod, promise),
        reason=reason,
    )
