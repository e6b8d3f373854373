"""What `kubectl describe pod` says when an Allocate is refused."""

import math

from agent.claims import choose_chips, occupancy, values
from agent.claims.values import Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations, shapes
from scheduler_core.wire.pods import NpuPod

#: Any watch is begun anew now and then: that is no reason for anything.
_LONG_S = 1.0


def bad_ids(ledger: Ledger, ids: tuple[str, ...], strangers: list[str]) -> str:
    """Say which ids the kubelet cannot have from us."""
    every = chip_sets.ids_of(ledger.product.all_chips)
    found = ", ".join(strangers or ids) or "none"
    return (
        f"the kubelet asked for devices that this node does not have: expected "
        f"distinct ids from {occupancy.device_id(ledger.product, every[0])} to "
        f"{occupancy.device_id(ledger.product, every[-1])}, found {found}"
    )


def no_claim(ledger: Ledger, count: int, *, unseen_s: float = 0.0) -> str:
    """Say what a person can do when an Allocate belongs to no claim.

    Args:
        ledger: Where there is none.
        count: How many chips are asked for.
        unseen_s: For how long the API server has not been followed; seconds.
    """
    resource = ledger.product.resource
    named = broken(ledger, count)
    if named and ledger.standalone:
        return named[0]
    if named:
        return f"the claim of {named[0]}; let the scheduler write {resource} again"
    if unseen_s >= _LONG_S:
        return (
            "the agent of this node has not been able to follow the API server for "
            f"{math.ceil(unseen_s)} s and knows no pod with a claim for {count} "
            f"{resource}, so the pod was probably bound meanwhile; a new pod in its "
            "place is served once the API server can be followed again"
        )
    return (
        f"no pod on this node has a claim for {count} {resource}: annotations "
        f"{resource} and predicate-time are missing, so the pod did not come "
        "through the Ascend scheduler; do not set spec.nodeName, and name a "
        "scheduler that calls the Ascend extender in spec.schedulerName (on a node "
        "without such a scheduler the agent needs --mode standalone)"
    )


def broken(ledger: Ledger, count: int) -> list[str]:
    """Name the living pods that cannot be served and may be the ones who ask."""
    return sorted(
        f"{pod.namespace}/{pod.name}: {ledger.problems[uid]}"
        for uid, pod in ledger.pods.items()
        if uid in ledger.problems
        and not pod.terminal
        and not (ledger.standalone and _asks_otherwise(pod, count))
    )


def _asks_otherwise(pod: NpuPod, count: int) -> bool:
    """Tell whether an Allocate of this size cannot be a pod's."""
    return bool(pod.needs) and count not in {need.count for need in pod.needs}


def too_few(slot: Slot) -> str:
    """Say why a pod that no scheduler has chosen for cannot be served."""
    if slot.shape.reads_annotation:
        return (
            "the pod takes ASCEND_VISIBLE_DEVICES from its annotation "
            f"{slot.shape.resource}, which only a scheduler writes in time: leave the "
            "variable out, the device plugin sets it"
        )
    return (
        "too few chips are free: chips that the kubelet counts as free are still "
        "used by a process, or unhealthy. A new pod in its place will be tried again"
    )


def unusable(ledger: Ledger, slot: Slot) -> str:
    """Say which chips of a claim cannot be given, and why."""
    lasting, reusable = choose_chips.taken(ledger, slot)
    pool = slot.chips & ~lasting
    others = values.held(ledger) & ~reusable
    before = occupancy.claimed_before(ledger, slot)
    groups = (
        ("unhealthy", pool & ledger.unhealthy),
        ("held by another pod", pool & others & ~ledger.unhealthy),
        ("still used by a process", pool & values.releasing(ledger) & ~others),
        ("claimed by another pod before", pool & before & ~(others | ledger.unhealthy)),
        ("given to its other containers", slot.chips & lasting),
    )
    words = "; ".join(
        f"{annotations.render_chips(chip_sets.ids_of(mask), ledger.product)} {why}"
        for why, mask in groups
        if mask
    )
    total = shapes.total(slot.shape.needs)
    return (
        f"the chips chosen for this pod cannot be given to it: {words}; and no "
        f"other {total} chips that fit together are free on this node. "
        "A new pod in its place will be scheduled elsewhere"
    )
