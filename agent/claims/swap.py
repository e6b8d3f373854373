"""Exchange the chips of two slots, after a pod was served from another pod's slot.

The chips of slots change here, and the slot that each hold names. The mounted chips
stay as they are; the pod annotations are patched afterwards.
"""

from dataclasses import replace

from agent.claims import occupancy, values
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire.pods import NpuPod


def exchange(
    ledger: Ledger, pod: NpuPod, hold: Hold, *, replaced_hold: Hold | None
) -> Ledger:
    """Exchange chips between a pod's slot and the slot that the pod was served from.

    If the slots have equal shapes, the slot that `hold` came from gets the chips of the
    pod's slot. If the shapes differ, a pod has bypassed docs/pairing-rules.md. Each pod
    then keeps the chips that it holds. Missing chips of a slot are chosen again at the
    next Allocate for it.

    A container may mount the chips of its pod's annotation by itself, whatever Allocate
    answered. The hold then gets the annotated chips.

    Args:
        pod: Owner of `hold`.
        hold: Has chips of another pod's slot.
        replaced_hold: The previous hold of the same container, whose chips the pod no
            longer has.
    """
    own_slot = ledger.slots.get(pod.uid)
    other_slot = ledger.slots.get(hold.slot)
    if pod.shape.reads_annotation:
        annotated = (
            own_slot.chips
            if own_slot is not None
            else occupancy.annotated_chips(ledger, pod)
        )
        chips = chip_sets.ids_of(annotated) if annotated else hold.chips
        return values.put_hold(ledger, replace(hold, slot=pod.uid, chips=chips))
    if own_slot is None:
        old_holds = () if replaced_hold is None else (replaced_hold,)
        own_slot = values.make_served_slot(ledger, pod, *old_holds)
        if not own_slot.chips:
            return _copy_slot(ledger, pod, hold, other_slot)
    holds = values.holds_of_pod(ledger, pod.uid)
    if other_slot is None and replaced_hold is None and not holds:
        return _inherit_holds(ledger, own_slot, hold)
    if (
        other_slot is None
        or replaced_hold is not None
        or not _can_exchange_whole(ledger, own_slot, other_slot)
    ):
        given_up = _chips_given_up(ledger, own_slot, hold, replaced_hold)
        return _exchange_one_container(ledger, hold, own_slot, given_up)
    moves = {hold.slot: pod.uid, pod.uid: hold.slot}
    moved = {
        other.sequence: replace(other, slot=moves[other.slot])
        for other in ledger.holds.values()
        if other.slot in moves
    }
    slots = {
        own_slot.uid: replace(own_slot, chips=other_slot.chips),
        other_slot.uid: replace(other_slot, chips=own_slot.chips),
    }
    return replace(
        ledger, slots={**ledger.slots, **slots}, holds={**ledger.holds, **moved}
    )


def _can_exchange_whole(ledger: Ledger, own_slot: Slot, other_slot: Slot) -> bool:
    """Whether two slots have equal shapes and no hold with a known owner.

    A slot made for a hold of an unknown pod does not qualify as `other_slot`.
    """
    confirmed = (
        hold
        for slot in (own_slot, other_slot)
        for hold in values.holds_of_slot(ledger, slot.uid)
        if hold.owner is not None
    )
    is_equal = own_slot.shape == other_slot.shape and not values.is_fresh(other_slot)
    return is_equal and next(confirmed, None) is None


def _copy_slot(
    ledger: Ledger, pod: NpuPod, hold: Hold, other_slot: Slot | None
) -> Ledger:
    """Give a pod without a slot a copy of the slot that served it.

    All holds of the copied slot move to the pod's slot. Nothing is copied if the slot
    is gone, has another shape than the pod, or was made for one hold. Then only `hold`
    moves.

    Args:
        hold: The pod's confirmed hold.
        other_slot: The slot that `hold` has chips of; None if it is gone.
    """
    if (
        other_slot is None
        or other_slot.shape != pod.shape
        or values.is_fresh(other_slot)
    ):
        return values.put_hold(ledger, replace(hold, slot=pod.uid))
    moved = {
        other.sequence: replace(other, slot=pod.uid)
        for other in values.holds_of_slot(ledger, other_slot.uid)
    }
    slots = {**ledger.slots, pod.uid: replace(other_slot, uid=pod.uid)}
    return replace(ledger, slots=slots, holds={**ledger.holds, **moved})


def _inherit_holds(ledger: Ledger, own_slot: Slot, confirmed: Hold) -> Ledger:
    """Move holds of a deleted pod's slot to the slot of a pod that was served from it.

    The moved holds are `confirmed` and the newest ownerless holds that fit the pod's
    containers. Holds of `own_slot` move to the deleted pod's slot instead. `own_slot`
    gets the chips of its new holds. It keeps as many of its old chips as its former
    number of chips allows.

    Args:
        own_slot: The slot of the pod.
        confirmed: The pod's confirmed hold; its slot belonged to the deleted pod.
    """
    newest_holds = {
        hold.need: hold for hold in values.holds_of_slot(ledger, confirmed.slot)
    }
    newest_holds = {**newest_holds, confirmed.need: confirmed}  # by need
    moved = {
        hold.sequence: replace(hold, slot=own_slot.uid)
        for hold in newest_holds.values()
        if hold is confirmed or (hold.owner is None and _has_count_of(own_slot, hold))
    }
    for hold in values.holds_of_slot(ledger, own_slot.uid):
        moved[hold.sequence] = replace(hold, slot=confirmed.slot)
    ledger = replace(ledger, holds={**ledger.holds, **moved})
    given_chips = chips_given_from(ledger, own_slot) or chip_sets.mask_of(
        confirmed.chips
    )
    rest_count = own_slot.chips.bit_count() - given_chips.bit_count()
    remaining = chip_sets.mask_of(
        chip_sets.ids_of(own_slot.chips & ~given_chips)[:rest_count]
    )
    slots = {
        **ledger.slots,
        own_slot.uid: replace(own_slot, chips=given_chips | remaining),
    }
    return replace(ledger, slots=slots)


def chips_given_from(ledger: Ledger, slot: Slot) -> int:
    """Return the mask of the chips of a slot's holds, the newest for each container.

    If these are more chips than the slot has, only those of app containers and sidecars
    count. If they are too many as well, the mask is 0.
    """
    newest = {hold.need: hold for hold in values.holds_of_slot(ledger, slot.uid)}
    lasting = everything = 0
    for need, hold in newest.items():
        mask = chip_sets.mask_of(hold.chips)
        everything |= mask
        # else the hold came from a slot of another shape
        is_known = need < len(slot.needs)
        lasting |= 0 if is_known and values.is_init(slot, need) else mask
    size = slot.chips.bit_count()
    return next((m for m in (everything, lasting) if m.bit_count() <= size), 0)


def _has_count_of(slot: Slot, hold: Hold) -> bool:
    """Whether a hold has as many ids as the container at index `hold.need` needs.

    Args:
        slot: Has the container; the hold may have chips of another slot.
    """
    return (
        hold.need < len(slot.needs)
        and len(hold.kubelet_ids) == slot.needs[hold.need].count
    )


def _chips_given_up(
    ledger: Ledger, own_slot: Slot, hold: Hold, replaced_hold: Hold | None
) -> int:
    """Return the mask of chips that a pod's slot gives up for the chips of `hold`.

    If there is a `replaced_hold`, they are its chips. If not, they are chips of
    `own_slot` that no hold with a known owner has. There are at most as many as `hold`
    has. Chips that no hold has are taken first.

    Args:
        own_slot: The slot of the pod.
        hold: The hold of the container, from another slot.
        replaced_hold: The previous hold of the same container.
    """
    if replaced_hold is not None:
        return chip_sets.mask_of(replaced_hold.chips)
    confirmed_chips = open_chips = 0
    for other_hold in values.holds_of_slot(ledger, own_slot.uid):
        if other_hold.owner is not None:
            confirmed_chips |= other_hold.mask
        else:
            open_chips |= other_hold.mask
    spare = own_slot.chips & ~confirmed_chips
    first = (
        *chip_sets.ids_of(spare & ~open_chips),
        *chip_sets.ids_of(spare & open_chips),
    )
    return chip_sets.mask_of(first[: len(hold.chips)])


def _exchange_one_container(
    ledger: Ledger, hold: Hold, own_slot: Slot, given_up: int
) -> Ledger:
    """Move one hold to a pod's slot, which gives up as many chips for it.

    The slot that `hold` came from gets the chips `given_up` if it has an equal shape.
    If not, or if it is gone, these chips become unclaimed. If `given_up` has more or
    fewer chips than the hold, only the hold moves.

    Args:
        hold: The pod's confirmed hold, with chips of another slot.
        own_slot: The slot of the pod.
        given_up: Mask of the chips that `own_slot` gives up.
    """
    other_slot = ledger.slots.get(hold.slot)
    given_chips = chip_sets.mask_of(hold.chips)
    fits = (
        given_up.bit_count() == given_chips.bit_count()
        and not given_up & ~own_slot.chips
    )
    if not fits or given_chips & own_slot.chips & ~given_up:
        return values.put_hold(ledger, replace(hold, slot=own_slot.uid))
    are_equal = other_slot is not None and other_slot.shape == own_slot.shape
    for other in values.holds_of_slot(ledger, own_slot.uid):
        can_move = other.owner is None and (other_slot is None or are_equal)
        if can_move and not other.mask & ~given_up:
            ledger = values.put_hold(ledger, replace(other, slot=hold.slot))
    slots = {
        **ledger.slots,
        own_slot.uid: replace(own_slot, chips=own_slot.chips & ~given_up | given_chips),
    }
    if other_slot is not None and are_equal and not given_chips & ~other_slot.chips:
        remaining = other_slot.chips & ~given_chips
        # else the chips of the other slot are chosen again at its Allocate
        if not given_up & remaining:
            slots[other_slot.uid] = replace(other_slot, chips=remaining | given_up)
    return values.put_hold(
        replace(ledger, slots=slots), replace(hold, slot=own_slot.uid)
    )
