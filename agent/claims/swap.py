"""Who was served from whose slot: the two exchange their chips.

Only slots change here and which slot a hold counts for; what was mounted stays
as it is, and the annotations follow.
"""

from dataclasses import replace

from agent.claims import occupancy, values
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire.pods import NpuPod


def exchange(
    ledger: Ledger, pod: NpuPod, hold: Hold, *, instead_of: Hold | None
) -> Ledger:
    """Let a pod have the slot that it was served from.

    The pod whose slot that was gets this pod's chips instead, if the two have
    equal shapes. If not, somebody went around the rules: each keeps its chips,
    and what is missing is chosen again when its Allocate comes. A pod that reads
    its annotation has mounted what that says, whatever Allocate answered.

    Args:
        ledger: The state.
        pod: Who was found to hold something.
        hold: What it holds, from another pod's slot.
        instead_of: The hold of the same container that this one replaces; its
            chips are the pod's no longer.
    """
    mine = ledger.slots.get(pod.uid)
    theirs = ledger.slots.get(hold.slot)
    if pod.shape.reads_annotation:
        own = mine.chips if mine is not None else occupancy.annotated(ledger, pod)
        got = chip_sets.ids_of(own) if own else hold.chips
        return values.with_hold(ledger, replace(hold, slot=pod.uid, chips=got))
    if mine is None:
        had = () if instead_of is None else (instead_of,)
        mine = values.slot_of_served(ledger, pod, *had)
        if not mine.chips:
            return _copy(ledger, pod, hold, theirs)
    known = values.holds_of_pod(ledger, pod.uid)
    if theirs is None and instead_of is None and not known:
        return _inherit(ledger, mine, hold)
    if theirs is None or instead_of is not None or not _is_whole(ledger, mine, theirs):
        given_up = _given_up(ledger, mine, hold, instead_of)
        return _trade(ledger, hold, mine, given_up)
    moves = {hold.slot: pod.uid, pod.uid: hold.slot}
    moved = {
        each.sequence: replace(each, slot=moves[each.slot])
        for each in ledger.holds.values()
        if each.slot in moves
    }
    slots = {
        mine.uid: replace(mine, chips=theirs.chips),
        theirs.uid: replace(theirs, chips=mine.chips),
    }
    return replace(
        ledger, slots={**ledger.slots, **slots}, holds={**ledger.holds, **moved}
    )


def _is_whole(ledger: Ledger, mine: Slot, theirs: Slot) -> bool:
    """Tell whether all of two slots can change hands at once."""
    known = (
        hold
        for slot in (mine, theirs)
        for hold in values.holds_of_slot(ledger, slot.uid)
        if hold.owner is not None
    )
    alike = mine.shape == theirs.shape and not values.is_fresh(theirs)
    return alike and next(known, None) is None


def _copy(ledger: Ledger, pod: NpuPod, hold: Hold, theirs: Slot | None) -> Ledger:
    """Serve a pod that has no claim of its own; theirs is chosen again later."""
    if theirs is None or theirs.shape != pod.shape or values.is_fresh(theirs):
        return values.with_hold(ledger, replace(hold, slot=pod.uid))
    moved = {
        each.sequence: replace(each, slot=pod.uid)
        for each in values.holds_of_slot(ledger, theirs.uid)
    }
    slots = {**ledger.slots, pod.uid: replace(theirs, uid=pod.uid)}
    return replace(ledger, slots=slots, holds={**ledger.holds, **moved})


def _inherit(ledger: Ledger, mine: Slot, found: Hold) -> Ledger:
    """Let a pod have all that was given out from the slot of a pod that has gone."""
    theirs = {hold.need: hold for hold in values.holds_of_slot(ledger, found.slot)}
    theirs = {**theirs, found.need: found}  # the newest of each container
    moved = {
        hold.sequence: replace(hold, slot=mine.uid)
        for hold in theirs.values()
        if hold is found or (hold.owner is None and _could_be_of(mine, hold))
    }
    for hold in values.holds_of_slot(ledger, mine.uid):
        moved[hold.sequence] = replace(hold, slot=found.slot)
    ledger = replace(ledger, holds={**ledger.holds, **moved})
    got = given_from(ledger, mine) or chip_sets.mask_of(found.chips)
    rest = mine.chips.bit_count() - got.bit_count()
    kept = chip_sets.mask_of(chip_sets.ids_of(mine.chips & ~got)[:rest])
    slots = {**ledger.slots, mine.uid: replace(mine, chips=got | kept)}
    return replace(ledger, slots=slots)


def given_from(ledger: Ledger, slot: Slot) -> int:
    """Return what was given out from a slot, as far as a slot of its size has it."""
    newest = {hold.need: hold for hold in values.holds_of_slot(ledger, slot.uid)}
    lasting = everything = 0
    for need, hold in newest.items():
        mask = chip_sets.mask_of(hold.chips)
        everything |= mask
        is_known = need < len(slot.needs)  # else it came from another shape's slot
        lasting |= 0 if is_known and values.is_init(slot, need) else mask
    size = slot.chips.bit_count()
    return next((m for m in (everything, lasting) if m.bit_count() <= size), 0)


def _could_be_of(slot: Slot, hold: Hold) -> bool:
    """Tell whether a hold has the size of the same container of another slot."""
    return (
        hold.need < len(slot.needs)
        and len(hold.kubelet_ids) == slot.needs[hold.need].count
    )


def _given_up(ledger: Ledger, mine: Slot, hold: Hold, instead_of: Hold | None) -> int:
    """Return the chips of a slot that one container of its pod does not need."""
    if instead_of is not None:
        return chip_sets.mask_of(instead_of.chips)
    own = others = 0
    for each in values.holds_of_slot(ledger, mine.uid):
        if each.owner is not None:
            own |= each.mask
        else:
            others |= each.mask
    spare = mine.chips & ~own
    first = (*chip_sets.ids_of(spare & ~others), *chip_sets.ids_of(spare & others))
    return chip_sets.mask_of(first[: len(hold.chips)])


def _trade(ledger: Ledger, hold: Hold, mine: Slot, given_up: int) -> Ledger:
    """Exchange the chips of one container only; with equals, or with nobody."""
    theirs = ledger.slots.get(hold.slot)
    got = chip_sets.mask_of(hold.chips)
    fits = given_up.bit_count() == got.bit_count() and not given_up & ~mine.chips
    if not fits or got & mine.chips & ~given_up:
        return values.with_hold(ledger, replace(hold, slot=mine.uid))
    are_equal = theirs is not None and theirs.shape == mine.shape
    for each in values.holds_of_slot(ledger, mine.uid):
        can_move = each.owner is None and (theirs is None or are_equal)
        if can_move and not each.mask & ~given_up:
            ledger = values.with_hold(ledger, replace(each, slot=hold.slot))
    slots = {
        **ledger.slots,
        mine.uid: replace(mine, chips=mine.chips & ~given_up | got),
    }
    if theirs is not None and are_equal and not got & ~theirs.chips:
        rest = theirs.chips & ~got
        if not given_up & rest:  # else it is chosen again when its Allocate comes
            slots[theirs.uid] = replace(theirs, chips=rest | given_up)
    return values.with_hold(replace(ledger, slots=slots), replace(hold, slot=mine.uid))
