"""Exchange the chips of two slots, after a pod was served from another pod's slot.

Only the ledger changes. Every container keeps the chips that were mounted for it. The
pods' annotations are patched afterwards.
"""

from dataclasses import replace

from agent.claims import occupancy, values
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire.pods import NpuPod


def exchange(
    ledger: Ledger, pod: NpuPod, hold: Hold, *, replaced_hold: Hold | None
) -> Ledger:
    """Correct the ledger after Allocate gave a pod chips of another pod's slot.

    `hold` moves to the slot of `pod`, normally together with its chips. If the two
    slots have equal shapes, the other slot gets chips of the slot of `pod` in return.

    But if `pod` takes ASCEND_VISIBLE_DEVICES from its annotation, both slots keep their
    chips. `hold` then gets the annotated chips, because its container mounts these
    chips whatever Allocate answered.

    Args:
        pod: Owner of `hold`.
        hold: Has chips of another pod's slot.
        replaced_hold: The previous hold of the same container; None if there is none.
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
        return values.put_holds(ledger, replace(hold, slot=pod.uid, chips=chips))
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
    moved = (
        replace(other, slot=moves[other.slot])
        for other in ledger.holds.values()
        if other.slot in moves
    )
    return values.put_slots(
        values.put_holds(ledger, *moved),
        replace(own_slot, chips=other_slot.chips),
        replace(other_slot, chips=own_slot.chips),
    )


def _can_exchange_whole(ledger: Ledger, own_slot: Slot, other_slot: Slot) -> bool:
    """Whether two slots may exchange all their chips.

    They may if their shapes are equal and no hold from either slot has a known owner. A
    slot made for a single hold of an unknown pod (`values.is_fresh`) never may.
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
    """Give a pod without a slot a copy of the slot that the chips of `hold` come from.

    All holds of that slot then belong to the copy. If that slot is gone, has another
    shape than the pod, or was made for a single hold, nothing is copied.

    Args:
        hold: The pod's confirmed hold.
        other_slot: The slot that the chips of `hold` come from; None if it is gone.
    """
    if (
        other_slot is None
        or other_slot.shape != pod.shape
        or values.is_fresh(other_slot)
    ):
        return values.put_holds(ledger, replace(hold, slot=pod.uid))
    moved = (
        replace(other, slot=pod.uid)
        for other in values.holds_of_slot(ledger, other_slot.uid)
    )
    copy = replace(other_slot, uid=pod.uid)
    return values.put_slots(values.put_holds(ledger, *moved), copy)


def _inherit_holds(ledger: Ledger, own_slot: Slot, confirmed: Hold) -> Ledger:
    """Move holds of a vanished slot to the slot of the pod that was served from it.

    `confirmed` is moved, and the newest hold of each other container. A hold with a
    known owner stays, and so does a hold whose number of ids does not fit. The holds
    that `own_slot` had before are moved to the vanished slot.

    Args:
        own_slot: The slot of the pod. It gets the chips of the moved holds in place of
            chips of its own.
        confirmed: The pod's confirmed hold. The slot of its chips vanished when another
            pod was deleted.
    """
    newest_holds = {
        hold.need: hold for hold in values.holds_of_slot(ledger, confirmed.slot)
    }
    newest_holds = {**newest_holds, confirmed.need: confirmed}  # by need
    moved = (
        replace(hold, slot=own_slot.uid)
        for hold in newest_holds.values()
        if hold is confirmed or (hold.owner is None and _has_count_of(own_slot, hold))
    )
    given_back = (
        replace(hold, slot=confirmed.slot)
        for hold in values.holds_of_slot(ledger, own_slot.uid)
    )
    ledger = values.put_holds(ledger, *moved, *given_back)
    given_chips = chips_given_from(ledger, own_slot) or chip_sets.mask_of(
        confirmed.chips
    )
    rest_count = own_slot.chips.bit_count() - given_chips.bit_count()
    remaining = values.lowest(own_slot.chips & ~given_chips, rest_count)
    return values.put_slots(ledger, replace(own_slot, chips=given_chips | remaining))


def chips_given_from(ledger: Ledger, slot: Slot) -> int:
    """Return the mask of the chips in a slot's holds; 0 if more than the slot has.

    Only the newest hold of each container counts. Holds of init containers count only
    if the slot has enough chips for them too.
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
    """Whether a hold has as many ids as its container needs according to `slot`."""
    return (
        hold.need < len(slot.needs)
        and len(hold.kubelet_ids) == slot.needs[hold.need].count
    )


def _chips_given_up(
    ledger: Ledger, own_slot: Slot, hold: Hold, replaced_hold: Hold | None
) -> int:
    """Return the mask of chips that a pod's slot gives up for the chips of `hold`.

    They are the chips of `replaced_hold`. If this is None, they are chips of `own_slot`
    without a known owner, at most as many as `hold` has. Chips without any hold come
    first.

    Args:
        own_slot: The slot of the pod.
        hold: Hold of a container of the pod, with chips of another slot.
        replaced_hold: The previous hold of that container; None if there is none.
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
    """Move `hold` to a pod's slot, and exchange its chips for the chips `given_up`.

    The slot that `hold` came from gets `given_up` if the two slots have equal shapes.
    Otherwise these chips become unclaimed. If the chips cannot be exchanged one for
    one, no chips are exchanged, and only `hold` moves.

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
        return values.put_holds(ledger, replace(hold, slot=own_slot.uid))
    are_equal = other_slot is not None and other_slot.shape == own_slot.shape
    for other in values.holds_of_slot(ledger, own_slot.uid):
        can_move = other.owner is None and (other_slot is None or are_equal)
        if can_move and not other.mask & ~given_up:
            ledger = values.put_holds(ledger, replace(other, slot=hold.slot))
    slots = [replace(own_slot, chips=own_slot.chips & ~given_up | given_chips)]
    if other_slot is not None and are_equal and not given_chips & ~other_slot.chips:
        remaining = other_slot.chips & ~given_chips
        # else the chips of the other slot are chosen again at its Allocate
        if not given_up & remaining:
            slots.append(replace(other_slot, chips=remaining | given_up))
    ledger = values.put_slots(ledger, *slots)
    return values.put_holds(ledger, replace(hold, slot=own_slot.uid))
