"""Exchange the chips of two slots, after a pod was served from another pod's slot.

Only slots change here, and the slot to which a hold belongs. The mounted chips stay as
they are, and the annotations follow.
"""

from dataclasses import replace

from agent.claims import occupancy, values
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire.pods import NpuPod


def exchange(
    ledger: Ledger, pod: NpuPod, hold: Hold, *, replaced_hold: Hold | None
) -> Ledger:
    """Give a pod the slot from which it was served, in exchange for its own.

    The pod of that slot gets this pod's chips instead, if the two have equal shapes. If
    not, a pod went around the rules: each pod keeps its chips, and missing chips are
    chosen again at the next Allocate. A pod that reads its annotation has mounted the
    annotated chips, whatever Allocate answered.

    Args:
        ledger: The state.
        pod: The owner of `hold`.
        hold: Given out from another pod's slot.
        replaced_hold: The previous hold of the same container; its chips are no longer
            the pod's.
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
    """Tell whether two slots are equal and have no hold with a known owner."""
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
    """Serve a pod without a claim by copying the slot, if it has the pod's shape."""
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
    """Give a pod all that was given out from the slot of a deleted pod."""
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
    """Return the mask of chips given out from a slot, at most as many as it has.

    If there are more, only the chips of lasting containers count.
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
    """Tell whether a hold has the count of the same container of another slot."""
    return (
        hold.need < len(slot.needs)
        and len(hold.kubelet_ids) == slot.needs[hold.need].count
    )


def _chips_given_up(
    ledger: Ledger, own_slot: Slot, hold: Hold, replaced_hold: Hold | None
) -> int:
    """Return the mask of chips that a slot gives up for one container's new chips."""
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
    """Exchange the chips of one container only: with an equal slot, or with none."""
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
