"""Choose the chips that a pod gets on the node that the scheduler picked.

The chips are chosen from the current cache: it may have changed since the filter call.
Pure: the caller puts the reservation of the chips into the cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.cache.node_state import ResourceState
from extender.cache.reservations import Claim, Owner, Reservation
from extender.refusals import CLOSED, OPEN_BIND, RESERVED_NODE, Refusal
from extender.scheduling import claim, node_filter
from scheduler_core.node import chips
from scheduler_core.node.reasons import Reason
from scheduler_core.placement import pod as pod_placement
from scheduler_core.placement.pod import Placement
from scheduler_core.products import lookup
from scheduler_core.wire.pods import NpuPod

#: reason of a choice on a node that does not say which parts of chips it has
COUNTED = "the kubelet chooses which, as the node names none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The reservation for a pod, and the annotations that bind writes on the pod."""

    reservation: Reservation
    annotations: Mapping[str, str]
    #: why this node and these chips
    reason: str

    @property
    def sentence(self) -> str:
        """Return a sentence: which chips of which node the pod gets, and why."""
        resource = self.reservation.resource
        if resource in lookup.STATIC_PARTS:
            part = self.annotations.get(resource, "a part")
            return f"{part} of {self.reservation.node}: {self.reason}"
        ids = chips.ids_of(self.reservation.chips)
        named = "chip" if len(ids) == 1 else "chips"
        listed = ",".join(map(str, ids))
        return f"{named} {listed} of {self.reservation.node}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The part of the extender that reserves chips, and the end of what it reserves."""

    owner: Owner
    #: seconds since the epoch
    until_s: float


def choose_chips(
    cache: Cache,
    pod: NpuPod,
    node: str,
    *,
    ownership: Ownership,
    now_s: float,
    now_ns: int,
) -> Choice | Refusal:
    """Choose chips of `node` for `pod`, or return why the pod can have none there.

    A pod with a reservation gets the reserved chips, and only on the reserved node.

    Args:
        pod: A pod that asks for NPUs and is not bound.
        ownership: Owner and end of the reservation in the result.
        now_s: Seconds since the epoch.
        now_ns: The same time in nanoseconds, for the annotation `predicate-time` of a
            new claim. The annotation gets a later time if another claim on the node
            has this time or a later one.
    """
    refused = node_filter.pod_refusal(cache, pod, now_s)
    if refused is not None:
        return refused
    reservation = cache.reservation(pod.uid)
    if reservation is not None and reservation.claim is not None:
        refused = _reservation_refusal(cache, reservation, node)
        return refused or _choose_reserved(
            cache, pod, reservation, reservation.claim, ownership, now_ns
        )
    if node in cache.closed_nodes(pod.uid):
        return RESERVED_NODE
    return _choose_free(cache, pod, node, ownership, now_ns)


def why_not_reserved(
    cache: Cache, pod: NpuPod, node: str, *, now_s: float
) -> Refusal | None:
    """Return why `pod` can get no chips on `node`; None if it can.

    A pod with a reservation can get only its reserved chips. For such a pod, this
    function is much faster than `choose_chips`, because it computes no annotations.
    The speed matters for jobs of thousands of pods.
    """
    refused = node_filter.pod_refusal(cache, pod, now_s)
    reservation = cache.reservation(pod.uid)
    if refused is not None:
        return refused
    if reservation is not None:
        return _reservation_refusal(cache, reservation, node)
    ownership = Ownership(owner=Owner.BIND, until_s=now_s)
    choice = choose_chips(cache, pod, node, ownership=ownership, now_s=now_s, now_ns=0)
    return choice if isinstance(choice, Refusal) else None


def _choose_free(
    cache: Cache, pod: NpuPod, node: str, ownership: Ownership, now_ns: int
) -> Choice | Refusal:
    """Choose free chips of `node` for a pod without a reservation, or return a refusal.

    Args:
        now_ns: Earliest value of the annotation `predicate-time`, in nanoseconds.
    """
    resource = pod.shape.resource
    survey = cache.index.survey(
        resource, pod.total, (node,), avoid=cache.conflicts(pod)
    )
    if node in survey.refused:
        refusal = survey.refused[node]
        return node_filter.refusal_of(cache, resource, node, refusal)
    placed = pod_placement.place(resource, pod.total, cache.index, names=(node,))
    if not isinstance(placed, Placement):
        raise TypeError(f"the index offers {node!r} and refuses it: {placed.text}")
    resource_state = _resource_state(cache, node, resource)
    reservation = Reservation(
        kept_for=pod.uid,
        owner=ownership.owner,
        node=node,
        resource=resource,
        chips=chips.mask_of(placed.chips),
        until_s=ownership.until_s,
        claim=Claim(
            predicate_time=resource_state.next_time(now_ns),
            shape=pod.shape,
            annotations=claim.alone(resource_state, pod),
        ),
    )
    reason = COUNTED if resource_state.is_counted else placed.reason
    return _choice(cache, pod, reservation, reason)


def _resource_state(cache: Cache, node: str, resource: str) -> ResourceState:
    resource_state = cache.resource_state(node, resource)
    if resource_state is None:
        raise TypeError(f"chips of {node!r} were chosen, but it has no {resource}")
    return resource_state


def _reservation_refusal(
    cache: Cache, reservation: Reservation, node: str
) -> Refusal | None:
    """Return why `node` cannot give a pod its reserved chips now; None if it can."""
    if node != reservation.node:
        return node_filter.elsewhere_refusal(reservation)
    state = cache.index.nodes(reservation.resource).get(reservation.node)
    if state is None or state.barred:
        return OPEN_BIND if reservation.is_sent else CLOSED
    if reservation.chips & ~state.healthy:
        return Refusal(reason=Reason.CHIP_UNHEALTHY, text="chip unhealthy")
    return None


def _choose_reserved(  # a reservation, and what becomes of it
    cache: Cache,
    pod: NpuPod,
    reservation: Reservation,
    reserved_claim: Claim,
    ownership: Ownership,
    now_ns: int,
) -> Choice:
    """Return the `Choice` for a pod whose chips are already reserved.

    A reservation that a plan or preemption made gets a new `predicate-time` (an
    annotation). Any other reservation is from an earlier bind, or allocation by
    Volcano, whose outcome is unknown. Because the pod may already have the annotations,
    the same time and chips are sent again.
    """
    now = reservation._replace(owner=ownership.owner, until_s=ownership.until_s)
    if reservation.is_sent:
        return _choice(cache, pod, now, "the earlier bind, tried again")
    resource_state = _resource_state(cache, reservation.node, reservation.resource)
    time = resource_state.next_time(now_ns)
    now = now._replace(claim=reserved_claim._replace(predicate_time=time))
    return _choice(cache, pod, now, reservation.text)


def _choice(cache: Cache, pod: NpuPod, reservation: Reservation, reason: str) -> Choice:
    resource_state = _resource_state(cache, reservation.node, reservation.resource)
    return Choice(
        reservation=reservation,
        annotations=claim.on_pod(resource_state, pod, reservation),
        reason=reason,
    )
