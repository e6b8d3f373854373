"""Texts with which Allocate calls fail, as `kubectl describe pod` shows them."""

import math

from agent.claims import choose_chips, occupancy, values
from agent.claims.values import Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations

#: A watch that broke off for less is no reason for a refusal: each reconnects at times.
_LONG_S = 1.0


def render_bad_ids(ledger: Ledger, ids: tuple[str, ...], foreign_ids: list[str]) -> str:
    """Return the text that refuses an Allocate with no, repeated or foreign ids.

    Args:
        ids: All ids of the call.
        foreign_ids: Those of `ids` that do not exist on this node.
    """
    chips = chip_sets.ids_of(ledger.product.all_chips)
    requested = ", ".join(foreign_ids or ids) or "none"
    return (
        f"the kubelet asked for devices that this node does not have: expected "
        f"distinct ids from {occupancy.device_id(ledger.product, chips[0])} to "
        f"{occupancy.device_id(ledger.product, chips[-1])}, found {requested}"
    )


def render_no_claim(ledger: Ledger, count: int, *, unseen_s: float = 0.0) -> str:
    """Return the text that refuses an Allocate that no claim fits.

    Args:
        count: Number of chips that the kubelet asks for.
        unseen_s: Time since the pod watch was interrupted, in seconds; 0 if it is open.
    """
    resource = ledger.product.resource
    problems = list_unreadable_claims(ledger, count)
    if problems and ledger.standalone:
        return problems[0]
    if problems:
        return f"the claim of {problems[0]}; let the scheduler write {resource} again"
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


def list_unreadable_claims(ledger: Ledger, count: int) -> list[str]:
    """Return sorted "namespace/name: problem" of living pods with an unreadable claim.

    One of these pods may be the one for which the kubelet calls Allocate. Standalone
    leaves out pods with NPU containers if none of these needs `count` chips.

    Args:
        count: Number of chips that the Allocate asks for.
    """
    return sorted(
        f"{pod.namespace}/{pod.name}: {ledger.problems[uid]}"
        for uid, pod in ledger.pods.items()
        if uid in ledger.problems
        and not pod.terminal
        and not (
            ledger.standalone
            and pod.needs
            and count not in {need.count for need in pod.needs}
        )
    )


def render_too_few(slot: Slot) -> str:
    """Return the text that refuses an Allocate in standalone mode.

    The text gives one of two reasons: too few chips are free, or the pod takes
    ASCEND_VISIBLE_DEVICES from an annotation that only a scheduler writes.

    Args:
        slot: Slot of the pod that would have been served.
    """
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


def render_unchecked(ledger: Ledger) -> str:
    """Return the text that refuses an Allocate for which only a look is missing."""
    chips = chip_sets.ids_of(values.unchecked_chips(ledger))
    return (
        f"the driver has not shown in time whether processes are left on "
        f"{annotations.render_chips(chips, ledger.product)}, whose pods have just "
        "ended. A new pod in its place will be tried again"
    )


def render_unusable(ledger: Ledger, slot: Slot) -> str:
    """Return the text that refuses an Allocate because claimed chips are unusable.

    The text names these chips and says why they are unusable.

    Args:
        slot: The slot with the claimed chips.
    """
    lasting, reusable = choose_chips.chips_given_out(ledger, slot)
    pool = slot.chips & ~lasting
    # a pod that has gone may have a hold still: because of its processes
    releasing = values.releasing_chips(ledger)
    foreign = chip_sets.mask_of(ledger.foreign) & releasing
    other_holds = values.held_chips(ledger) & ~reusable & ~releasing
    claimed_before = occupancy.chips_claimed_before(ledger, slot)
    groups = (
        ("unhealthy", pool & ledger.unhealthy),
        ("held by another pod", pool & other_holds & ~ledger.unhealthy),
        ("used through another device plugin", pool & foreign),
        ("still used by a process", pool & releasing & ~foreign),
        (
            "claimed by another pod before",
            pool & claimed_before & ~(other_holds | ledger.unhealthy),
        ),
        ("given to its other containers", slot.chips & lasting),
    )
    reasons = "; ".join(
        f"{annotations.render_chips(chip_sets.ids_of(mask), ledger.product)} {reason}"
        for reason, mask in groups
        if mask
    )
    return (
        f"the chips chosen for this pod cannot be given to it: {reasons}; and no "
        f"other {slot.shape.total} chips that fit together are free on this node. "
        "A new pod in its place will be scheduled elsewhere"
    )
