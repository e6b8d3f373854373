"""For which claim is this Allocate, and which chips does it get.

The rule (seed 000, `Field Description` 3): of the claims on this node with
this count that were not served, the one with the smallest predicate-time. To
it come: a pod that was served half goes on first; ids that were given to the
init containers of a pod prove that pod; a claim whose chips cannot be given
is chosen again by the core's own rule, or exchanged for an equal one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from agent.claims import (
    choose_chips,
    occupancy,
    refusals,
    release,
    restarts,
    standalone,
    values,
)
from agent.claims.choose_chips import Pick
from agent.claims.events import (
    AllocateAsked,
    AwaitClaim,
    Counted,
    Effect,
    Granted,
    Identity,
    PreferenceAsked,
    Preferred,
    Refused,
)
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets


def candidates(ledger: Ledger, ids: Iterable[str], count: int) -> list[Slot]:
    """Return the slots that an Allocate of this size can be for, best first.

    The kubelet gives the ids of a pod's init containers to its next container
    before all others. So they prove that pod, and their absence another.

    Args:
        ledger: The state.
        ids: The ids that are known already: all, or what must be included.
        count: How many there will be.

    Cost:
        O(slots + holds).
    """
    found = []
    by_slot = values.holds_by_slot(ledger)
    for uid, slot in ledger.slots.items():
        holds = by_slot.get(uid, ())
        need = choose_chips.open_need_of(slot, holds)
        if need is None or slot.needs[need].count != count:
            continue
        proofs, begun = 0, False
        if holds:  # most slots have none, and there may be as many as chips
            returning = _reusable_ids(slot, holds)
            proofs = len(returning.intersection(ids))
            if proofs < min(count, len(returning)):
                continue
            begun = _is_begun(holds, need)
        pod = ledger.pods.get(uid)
        waits = pod is not None and not pod.terminal and uid not in ledger.bare
        if begun or waits:
            # admission comes before running: one that runs asks only by exception
            runs = waits and pod is not None and pod.phase == "Running"
            found.append((not proofs, not begun, runs, slot.predicate_time, uid))
    return [ledger.slots[each[-1]] for each in sorted(found)]


def _is_begun(holds: Sequence[Hold], need: int) -> bool:
    """Tell whether a pod may be on its way: the container before was served last."""
    last = next((hold for hold in reversed(holds) if hold.owner is None), None)
    return last is not None and not last.freed and last.need + 1 == need


def _reusable_ids(slot: Slot, holds: Sequence[Hold]) -> set[str]:
    """Return the ids of a pod's init containers that no later container took."""
    given: set[str] = set()
    taken: set[str] = set()
    for hold in holds:
        if not hold.freed:
            (given if values.is_init(slot, hold.need) else taken).update(
                hold.kubelet_ids
            )
    return given - taken


def prefer(ledger: Ledger, event: PreferenceAsked) -> tuple[Ledger, Preferred]:
    """Answer GetPreferredAllocation: the ids that stand for the claim's chips.

    Never more than the kubelet offered; none where no claim fits, because an
    error here would fail the pod.
    """
    offered = frozenset(event.available) - frozenset(event.must_include)
    ledger = _with_freed(ledger, offered)
    ledger = release.without_ended(ledger, offered)
    pick = _pick(ledger, event.must_include, event.size, offered=offered)
    missing = pick is None and not restarts.waiting(ledger, event.size)
    if missing and ledger.standalone:
        pick = _pick_for_nobody(ledger, event.size, offered=offered)
    if pick is None or isinstance(pick, str):
        return ledger, Preferred(event.must_include, claim_missing=missing)
    wanted = event.size - len(event.must_include)
    chosen = _lowest(pick.pool & ~pick.reused, wanted)
    standing = {
        mask: name for name, mask in occupancy.chips_behind(ledger).items() if mask
    }
    names = (standing.get(1 << chip, "") for chip in chip_sets.ids_of(chosen))
    ids = tuple(name for name in names if name in offered)
    return ledger, Preferred(event.must_include + ids, claim_missing=missing)


def allocate(ledger: Ledger, event: AllocateAsked) -> tuple[Ledger, tuple[Effect, ...]]:
    """Serve an Allocate: make a hold, wait for a claim, or refuse."""
    ids = tuple(
        sorted(
            event.kubelet_ids,
            key=lambda name: (occupancy.chip_of(ledger.product, name), name),
        )
    )
    strangers = [i for i in ids if occupancy.chip_of(ledger.product, i) < 0]
    if strangers or not ids or len(set(ids)) != len(ids):
        return ledger, (Refused(refusals.bad_ids(ledger, ids, strangers)),)
    ledger = release.without_ended(ledger, frozenset(ids))
    pick = _pick(ledger, ids, len(ids))
    if pick is None and event.last_call:
        pick = restarts.pick(ledger, ids)
        if pick is None and ledger.standalone and not refusals.broken(ledger, len(ids)):
            pick = _pick_for_nobody(ledger, len(ids), ids=ids)
    if isinstance(pick, str):
        return ledger, (Refused(pick),)
    if pick is None:
        if not event.last_call:
            return ledger, (AwaitClaim(len(ids)),)
        return ledger, (
            Refused(refusals.no_claim(ledger, len(ids), unseen_s=event.unseen_s)),
        )
    return _grant(ledger, ids, pick)


def _grant(
    ledger: Ledger, ids: tuple[str, ...], pick: Pick
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Make the hold."""
    chips, steered = _lay_out(ledger, ids, pick)
    ledger = _with_freed(ledger, frozenset(ids), but=pick.slot.uid)
    hold = Hold(
        sequence=ledger.sequence + 1,
        kubelet_ids=ids,
        chips=chips,
        slot=pick.slot.uid,
        need=pick.need,
        anew=pick.anew,
    )
    holds = {seq: old for seq, old in ledger.holds.items() if seq != pick.replaces}
    ledger = replace(
        ledger,
        sequence=hold.sequence,
        holds={**holds, hold.sequence: hold},
        slots={**ledger.slots, pick.slot.uid: pick.slot},
    )
    if pick.rechosen:
        identity = Identity.RECHOSEN
    else:
        identity = Identity.STEERED if steered else Identity.OLDEST
    return ledger, (Granted(hold), Counted(identity))


def _lay_out(
    ledger: Ledger, ids: tuple[str, ...], pick: Pick
) -> tuple[tuple[int, ...], bool]:
    """Give each id a chip: its own where the pool has it, else the lowest left.

    Returns:
        The chips, parallel to `ids`; whether each id got the chip that it
        stood for.
    """
    behind = occupancy.chips_behind(ledger)
    inits = {
        kubelet_id: 1 << chip
        for hold in _init_holds(ledger, pick.slot)
        for kubelet_id, chip in zip(hold.kubelet_ids, hold.chips, strict=False)
    }
    left = pick.pool
    laid: dict[str, int] = {}
    for kubelet_id in ids:
        mask = inits.get(kubelet_id, behind[kubelet_id])
        if mask and mask & left == mask and mask.bit_count() == 1:
            laid[kubelet_id] = mask.bit_length() - 1
            left &= ~mask
    steered = len(laid) == len(ids)
    # chips that init containers had come last: their ids would have come too
    spare = [
        *chip_sets.ids_of(left & ~pick.reused),
        *chip_sets.ids_of(left & pick.reused),
    ]
    for kubelet_id in ids:
        if kubelet_id not in laid:
            laid[kubelet_id] = spare.pop(0)
    return tuple(laid[kubelet_id] for kubelet_id in ids), steered


def _pick(
    ledger: Ledger,
    ids: Iterable[str],
    count: int,
    *,
    offered: frozenset[str] = frozenset(),
) -> Pick | str | None:
    """Find slot and chips; a text says why a fitting claim cannot be served.

    None: there is no claim of this size.

    Args:
        ledger: The state.
        ids: The ids that are known already: all, or what must be included.
        count: How many there will be.
        offered: The ids of which the kubelet will take the others; none once it has.
    """
    slots = candidates(ledger, ids, count)
    if not slots:
        return None
    oldest = slots[0]
    if oldest.unplanned:
        return choose_chips.plan(
            ledger, oldest, ids=ids, offered=offered
        ) or refusals.too_few(oldest)
    return (
        choose_chips.usable(ledger, oldest)
        or _instead(ledger, oldest, slots[1:])
        or refusals.unusable(ledger, oldest)
    )


def _pick_for_nobody(
    ledger: Ledger,
    count: int,
    *,
    ids: Iterable[str] = (),
    offered: frozenset[str] = frozenset(),
) -> Pick | str:
    """Serve a container whose pod nobody has shown us."""
    slot = standalone.slot_of_nobody(ledger, count)
    return choose_chips.plan(
        ledger, slot, ids=ids, offered=offered
    ) or refusals.too_few(slot)


def _instead(ledger: Ledger, oldest: Slot, others: list[Slot]) -> Pick | None:
    """Serve a claim whose chips cannot be given: choose again, or exchange it.

    Not for a container that reads the annotation itself: it mounts what that
    says, whatever we answer.
    """
    if oldest.shape.reads_annotation:
        return None
    again = choose_chips.choose_again(ledger, oldest)
    if again is not None or occupancy.claimed_before(ledger, oldest):
        return again  # it has no chips of its own to give for another's
    equal = (
        choose_chips.usable(ledger, slot)
        for slot in others
        if slot.shape == oldest.shape
    )
    return next((pick for pick in equal if pick is not None), None)


def _init_holds(ledger: Ledger, slot: Slot) -> Iterator[Hold]:
    for hold in values.holds_of_slot(ledger, slot.uid):
        if values.is_init(slot, hold.need) and not hold.freed:
            yield hold


def _with_freed(ledger: Ledger, ids: frozenset[str], *, but: str = "") -> Ledger:
    """Mark the holds whose ids the kubelet is giving to somebody again."""
    freed = {
        hold.sequence: replace(hold, freed=True)
        for hold in ledger.holds.values()
        if not hold.freed and hold.slot != but and not ids.isdisjoint(hold.kubelet_ids)
    }
    return replace(ledger, holds={**ledger.holds, **freed}) if freed else ledger


def _lowest(mask: int, count: int) -> int:
    return chip_sets.mask_of(chip_sets.ids_of(mask)[:count])
