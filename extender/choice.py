"""Which chips a pod gets on the node that the scheduler has picked, at this moment.

Filter guessed on an older state; this is where it counts. Pure: what it decides
becomes true only when `binding` promises it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from extender import verdicts
from extender.cache import Cache
from extender.changes import Assumed
from extender.verdicts import Verdict
from scheduler_core import chips, placement
from scheduler_core.placement import Placement
from scheduler_core.products import Product
from scheduler_core.reasons import Reason
from scheduler_core.wire import annotations
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
    refused = verdicts.pod_refusal(cache, pod, now_s)
    if refused is not None:
        return refused
    if pod.uid in cache.assumed:
        return _again(cache, cache.assumed[pod.uid], node)
    survey = cache.cluster.survey(
        pod.shape.resource, pod.total, (node,), avoid=cache.conflicts(pod)
    )
    if node in survey.refused:
        return verdicts.of(survey.refused[node])
    placed = placement.place(
        pod.shape.resource, pod.total, cache.cluster, names=(node,)
    )
    if not isinstance(placed, Placement):
        raise TypeError(f"the index offers {node!r} and refuses it: {placed.text}")
    promise = Assumed(
        uid=pod.uid,
        node=node,
        chips=chips.mask_of(placed.chips),
        predicate_time=cache.records[node].next_time(now_ns),
        shape=pod.shape,
    )
    return _choice(promise, cache.records[node].product, placed.reason)


def _again(cache: Cache, promise: Assumed, node: str) -> Choice | Verdict:
    """Try the very same bind once more: its first try may or may not have happened."""
    state = cache.cluster.get(node)
    if node != promise.node or state is None or state.barred:
        return verdicts.OPEN_BIND
    if promise.chips & ~state.healthy:
        return Verdict(label=Reason.CHIP_UNHEALTHY, text="chip unhealthy")
    return _choice(promise, state.product, "the earlier bind, tried again")


def _choice(promise: Assumed, product: Product | None, reason: str) -> Choice:
    if product is None:
        raise TypeError(f"{promise.node!r} has chips but no product")
    names = annotations.render_chips(chips.ids_of(promise.chips), product)
    return Choice(
        promise=promise,
        annotations={
            product.resource: names,
            annotations.PREDICATE_TIME: str(promise.predicate_time),
        },
        reason=reason,
    )
