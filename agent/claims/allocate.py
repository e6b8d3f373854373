"""Answer Allocate and GetPreferredAllocation: find the claim to serve, choose chips.

If several claims fit the requested number of chips, the first in this order is chosen:

1. A claim of a pod whose init containers had some of the ids in the call.
2. A claim of a pod that is being admitted: an earlier container already has chips.
3. A claim of a pod that does not run yet.
4. A claim of a running pod.

Of several claims of the same kind, the one with the smallest predicate-time is chosen.
The scheduler writes this annotation when it chooses the chips.

If chips of the chosen claim are unusable, the agent chooses other chips for its pod. If
too few other chips are free, the claim of another pod of the same shape may be served.

Source: seed 000, `Field Description` 3 (the smallest predicate-time).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.claims import (
    choose_chips,
    evidence,
    occupancy,
    refusals,
    release,
    restarts,
    standalone,
    values,
)
from agent.claims.choose_chips import Call, Pick
from agent.claims.events import (
    AllocateAsked,
    AwaitClaim,
    AwaitLook,
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


def candidates(ledger: Ledger, call: Call) -> list[Slot]:
    """Return the slots whose next container may be calling, the best match first.

    The order is that in the docstring of this module. The kubelet gives a pod's next
    container the ids of the pod's init containers before any others. If the call lacks
    ids that the kubelet would give first to a slot's container, the slot is left out.

    Cost:
        O(slots + holds).
    """
    ranked = []
    for uid, slot in ledger.slots.items():
        need = choose_chips.next_need(ledger, slot)
        if need is None or slot.needs[need].count != call.count:
            continue
        proofs, is_begun = 0, False
        holds = values.holds_of_slot(ledger, uid)
        if holds:  # most slots have none, and there may be as many as chips
            returning = _reusable_ids(slot, holds)
            proofs = len(returning.intersection(call.ids))
            if proofs < min(call.count, len(returning)):
                continue
            is_begun = _is_begun(holds, need)
        pod = ledger.pods.get(uid)
        is_waiting = pod is not None and not pod.terminal and uid not in ledger.bare
        if is_begun or is_waiting:
            # admission comes before running: one that runs asks only by exception
            is_running = is_waiting and pod is not None and pod.phase == "Running"
            ranked.append(
                (not proofs, not is_begun, is_running, slot.predicate_time, uid)
            )
    return [ledger.slots[entry[-1]] for entry in sorted(ranked)]


def _is_begun(holds: Sequence[Hold], need: int) -> bool:
    """Return whether the kubelet may be in the middle of admitting a slot's pod.

    Args:
        holds: The holds of the slot, oldest first.
        need: Index of the container that the slot serves next.
    """
    last = next((hold for hold in reversed(holds) if hold.owner is None), None)
    return last is not None and not last.reoffered and last.need + 1 == need


def _reusable_ids(slot: Slot, holds: Sequence[Hold]) -> set[str]:
    """Return the ids of a slot's init containers that its next container can get."""
    init_ids: set[str] = set()
    lasting_ids: set[str] = set()
    for hold in holds:
        if not hold.reoffered:
            (init_ids if values.is_init(slot, hold.need) else lasting_ids).update(
                hold.kubelet_ids
            )
    return init_ids - lasting_ids


def prefer(ledger: Ledger, event: PreferenceAsked) -> tuple[Ledger, Preferred]:
    """Answer GetPreferredAllocation with ids for the chips of the claim to serve.

    The answer begins with the ids that the kubelet must include. If no chips can be
    chosen, the answer has only these ids. An error would fail the pod.
    """
    offered = frozenset(event.available) - frozenset(event.must_include)
    call = Call(ids=event.must_include, count=event.size, offered=offered)
    ledger = _mark_reoffered(ledger, offered)
    ledger = release.release_reissued_ids(ledger, offered)
    pick = _pick(ledger, call)
    is_claim_missing = pick is None and not restarts.find_picks(ledger, event.size)

    def find_pick(of: Ledger) -> Pick | str | None:
        if is_claim_missing and of.standalone:
            return _pick_for_unknown_pod(of, call)
        return _pick(of, call)

    if is_claim_missing:
        pick = find_pick(ledger)
    source = ledger
    hopeful = evidence.assume_no_processes(ledger, offered)
    is_look_missing = _is_better(hopeful, find_pick, ledger, pick)
    if is_look_missing:
        pick, source = find_pick(hopeful), hopeful
    return ledger, Preferred(
        call.ids + _preferred_ids(source, call, pick),
        claim_missing=is_claim_missing,
        look_missing=is_look_missing,
    )


def _preferred_ids(
    ledger: Ledger, call: Call, pick: Pick | str | None
) -> tuple[str, ...]:
    """Return the offered ids that stand for chips of `pick`; () if it is no `Pick`."""
    if pick is None or isinstance(pick, str):
        return ()
    missing_count = call.count - len(call.ids)
    chips = values.lowest(pick.pool & ~pick.reused, missing_count)
    id_by_mask = {
        mask: name for name, mask in occupancy.map_ids_to_chips(ledger).items() if mask
    }
    names = (id_by_mask.get(1 << chip, "") for chip in chip_sets.ids_of(chips))
    return tuple(name for name in names if name in call.offered)


def allocate(ledger: Ledger, event: AllocateAsked) -> tuple[Ledger, tuple[Effect, ...]]:
    """Answer an Allocate call: grant a hold, wait for a claim, or refuse the call.

    The answer is in the returned effects (`Granted`, `AwaitClaim`, `AwaitLook`,
    `Refused`). After `AwaitClaim` and `AwaitLook`, the plugin waits for a claim or a
    look and calls this function again. When it will not wait any longer, it sets
    `event.last_call`.

    If no claim fits in the last call, the agent tries to serve a running container
    whose ids the kubelet lost or never had. Next, in standalone mode, it tries to serve
    a pod that is not in the ledger yet. Otherwise the call is refused.
    """
    ids = occupancy.sort_ids(ledger.product, event.kubelet_ids)
    foreign_ids = [i for i in ids if occupancy.chip_of(ledger.product, i) < 0]
    if foreign_ids or not ids or len(set(ids)) != len(ids):
        return ledger, (Refused(refusals.render_bad_ids(ledger, ids, foreign_ids)),)
    ledger = release.release_reissued_ids(ledger, frozenset(ids))
    call = Call(ids=ids, count=len(ids))
    answer = _answer_call(ledger, event, call)
    if isinstance(answer, Pick):
        return _grant(ledger, call, answer)
    return ledger, (answer,)


def _answer_call(
    ledger: Ledger, event: AllocateAsked, call: Call
) -> Pick | AwaitClaim | AwaitLook | Refused:
    """Return what an Allocate gets: a `Pick` to grant, a wait, or the refusal."""

    def find_pick(of: Ledger) -> Pick | str | None:
        return _pick_for_call(of, event, call)

    pick = find_pick(ledger)
    hopeful = evidence.assume_no_processes(ledger, frozenset(call.ids))
    if _is_better(hopeful, find_pick, ledger, pick):
        if not event.last_call:
            return AwaitLook()
        if isinstance(pick, str):
            pick = refusals.render_unchecked(ledger)
    if pick is None and not event.last_call:
        return AwaitClaim()
    if pick is None:
        pick = refusals.render_no_claim(ledger, call.count, unseen_s=event.unseen_s)
    return Refused(pick) if isinstance(pick, str) else pick


def _pick_for_call(
    ledger: Ledger, event: AllocateAsked, call: Call
) -> Pick | str | None:
    """Choose the slot and the chips for an Allocate, as `allocate` says.

    The result is None if no claim fits. If chips cannot be chosen, it is a text: the
    reason of the refusal.
    """
    pick = _pick(ledger, call)
    if pick is None and event.last_call:
        # else a pod may ask that the watch has not shown; for a container that runs
        # the kubelet asks again
        if not event.unseen_s:
            pick = restarts.pick_running_container(ledger, call.ids)
        if (
            pick is None
            and ledger.standalone
            and not refusals.list_unreadable_claims(ledger, call.count)
        ):
            pick = _pick_for_unknown_pod(ledger, call)
    return pick


def _is_better(
    hopeful: Ledger,
    find_pick: Callable[[Ledger], Pick | str | None],
    ledger: Ledger,
    pick: Pick | str | None,
) -> bool:
    """Whether a look that shows no process would serve a call better than `pick`.

    A refusal is worst. Chips chosen anew, or chips that the product's rules do not
    allow together, are better. The chips of the claim, or allowed ones, are best.

    Args:
        hopeful: From `evidence.assume_no_processes`; `ledger` if no look is missing.
        pick: What `find_pick` has found in `ledger`.
    """
    if hopeful is ledger or pick is None:
        return False
    return _rank(hopeful, find_pick(hopeful)) > _rank(ledger, pick)


def _rank(ledger: Ledger, pick: Pick | str | None) -> int:
    if not isinstance(pick, Pick):
        return 0
    is_apart = pick.slot.unplanned and not chip_sets.is_legal(
        ledger.product, pick.slot.chips
    )
    return 1 if pick.rechosen or is_apart else 2


def _grant(ledger: Ledger, call: Call, pick: Pick) -> tuple[Ledger, tuple[Effect, ...]]:
    """Add a hold with the ids of a call and chips of `pick.pool`; grant it."""
    chips, is_steered = _assign_chips(ledger, call.ids, pick)
    ledger = _mark_reoffered(ledger, frozenset(call.ids), but=pick.slot.uid)
    hold = Hold(
        sequence=ledger.sequence + 1,
        kubelet_ids=call.ids,
        chips=chips,
        slot=pick.slot.uid,
        need=pick.need,
        recreated=pick.recreated,
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
        identity = Identity.STEERED if is_steered else Identity.OLDEST
    return ledger, (Granted(hold), Counted(identity))


def _assign_chips(
    ledger: Ledger, ids: tuple[str, ...], pick: Pick
) -> tuple[tuple[int, ...], bool]:
    """Assign a chip of `pick.pool` to each device id of an Allocate.

    An id gets the chip that it stands for, if that chip is in the pool.

    Returns:
        The chips, parallel to `ids`; and whether every id got the chip that it stands
        for.
    """
    chips_by_id = occupancy.map_ids_to_chips(ledger)
    inits = {
        kubelet_id: 1 << chip
        for hold in values.holds_of_slot(ledger, pick.slot.uid)
        if values.is_init(pick.slot, hold.need) and not hold.reoffered
        for kubelet_id, chip in zip(hold.kubelet_ids, hold.chips, strict=False)
    }
    pool = pick.pool
    chip_by_id: dict[str, int] = {}
    for kubelet_id in ids:
        mask = inits.get(kubelet_id, chips_by_id[kubelet_id])
        if mask and mask & pool == mask and mask.bit_count() == 1:
            chip_by_id[kubelet_id] = mask.bit_length() - 1
            pool &= ~mask
    is_steered = len(chip_by_id) == len(ids)
    # chips of init containers come last: with them, their ids would have come
    spare = [
        *chip_sets.ids_of(pool & ~pick.reused),
        *chip_sets.ids_of(pool & pick.reused),
    ]
    for kubelet_id in ids:
        if kubelet_id not in chip_by_id:
            chip_by_id[kubelet_id] = spare.pop(0)
    return tuple(chip_by_id[kubelet_id] for kubelet_id in ids), is_steered


def _pick(ledger: Ledger, call: Call) -> Pick | str | None:
    """Choose the slot and the chips for the container of a call.

    The result is None if no slot waits for an Allocate of so many chips. If such slots
    exist but no chips can be chosen, it is a text: the reason of the refusal.
    """
    slots = candidates(ledger, call)
    if not slots:
        return None
    oldest = slots[0]
    if oldest.unplanned:
        pick = choose_chips.pick_standalone(ledger, oldest, call)
        return pick or refusals.render_too_few(oldest)
    return (
        choose_chips.pick_from_claim(ledger, oldest)
        or _pick_instead(ledger, oldest, slots[1:])
        or refusals.render_unusable(ledger, oldest)
    )


def _pick_for_unknown_pod(ledger: Ledger, call: Call) -> Pick | str:
    """Choose chips for a container whose pod is not in the ledger yet.

    The result is a text, the reason of the refusal, if too few chips are free. Used in
    standalone mode only, in which no scheduler writes claims.
    """
    slot = standalone.make_ownerless_slot(ledger, call.count)
    pick = choose_chips.pick_standalone(ledger, slot, call)
    return pick or refusals.render_too_few(slot)


def _pick_instead(ledger: Ledger, oldest: Slot, others: list[Slot]) -> Pick | None:
    """Choose other chips for a claim with unusable chips, or else another pod's claim.

    The other pod must have the same shape. Its claim is tried only if too few other
    chips are free. It is not tried if an earlier slot has chips of `oldest`, because
    then `oldest` has no chips of its own to give in exchange.

    The result is None if no chips are found. It is also None if a container takes
    ASCEND_VISIBLE_DEVICES from its pod's annotation. Such a container mounts the
    annotated chips whatever Allocate answers.

    Args:
        oldest: Slot of the claim with unusable chips.
        others: Slots of the other claims that fit the Allocate, best first.
    """
    if oldest.shape.reads_annotation:
        return None
    again = choose_chips.choose_again(ledger, oldest)
    if again is not None or occupancy.chips_claimed_before(ledger, oldest):
        return again  # it has no chips of its own to exchange
    equal = (
        choose_chips.pick_from_claim(ledger, slot)
        for slot in others
        if slot.shape == oldest.shape
    )
    return next((pick for pick in equal if pick is not None), None)


def _mark_reoffered(ledger: Ledger, ids: frozenset[str], *, but: str = "") -> Ledger:
    """Set `reoffered` on holds with ids that the kubelet offers to another container.

    Args:
        but: UID of a slot whose holds are not changed; "" for none.
    """
    reoffered = [
        replace(hold, reoffered=True)
        for hold in ledger.holds.values()
        if not hold.reoffered
        and hold.slot != but
        and not ids.isdisjoint(hold.kubelet_ids)
    ]
    return values.put_holds(ledger, *reoffered) if reoffered else ledger
