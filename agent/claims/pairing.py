"""For which claim is this Allocate, and which chips does it get.

The rule (seed 000, `Field Description` 3): of the claims on this node with
this count that were not served, the one with the smallest predicate-time. To
it come: a pod that was served half goes on first; ids that were given to the
init containers of a pod prove that pod; a claim whose chips cannot be given
is chosen again by the core's own rule, or exchanged for an equal one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agent.claims import occupancy, standalone, values
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
from scheduler_core import chips as chip_sets
from scheduler_core import shapes
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The slot that serves an Allocate, and the chips it may take from."""

    slot: Slot
    need: int  #: index into the slot's needs
    reused: int  #: mask: chips that come with ids of the pod's init containers
    pool: int  #: mask: the slot's chips that are left for this container
    rechosen: bool = False
    replaces: int | None = None  #: sequence of the lost hold that this renews


def open_need(ledger: Ledger, slot: Slot) -> int | None:
    """Return the index of the next container that a slot has to serve.

    Admission goes through a pod's containers in order, so it is always the
    first one without a hold. What the kubelet has taken back does not count.
    """
    served = {
        hold.need
        for hold in values.holds_of_slot(ledger, slot.uid)
        if not hold.freed or hold.owner is not None
    }
    if values.WHOLE_POD in served:
        return None
    return next((i for i in range(len(slot.needs)) if i not in served), None)


def candidates(ledger: Ledger, ids: Iterable[str], count: int) -> list[Slot]:
    """Return the slots that an Allocate of this size can be for, best first.

    The kubelet gives the ids of a pod's init containers to its next container
    before all others. So they prove that pod, and their absence another.

    Args:
        ledger: The state.
        ids: The ids that are known already: all, or what must be included.
        count: How many there will be.

    Cost:
        O(slots * holds).
    """
    found = []
    for slot in ledger.slots.values():
        need = open_need(ledger, slot)
        if need is None or slot.needs[need].count != count:
            continue
        returning = _reusable_ids(ledger, slot)
        proofs = len(returning.intersection(ids))
        if proofs < min(count, len(returning)):
            continue
        begun = _is_begun(ledger, slot, need)
        waits = values.is_alive(ledger, slot.uid) and slot.uid not in ledger.bare
        if begun or waits:
            # admission comes before running: one that runs asks only by exception
            runs = waits and ledger.pods[slot.uid].phase == "Running"
            order = (not proofs, not begun, runs, slot.predicate_time, slot.uid)
            found.append(order)
    return [ledger.slots[each[-1]] for each in sorted(found)]


def _is_begun(ledger: Ledger, slot: Slot, need: int) -> bool:
    """Tell whether a pod may be on its way: the container before was served last."""
    holds = values.holds_of_slot(ledger, slot.uid)
    last = next((hold for hold in reversed(holds) if hold.owner is None), None)
    return last is not None and not last.freed and last.need + 1 == need


def _reusable_ids(ledger: Ledger, slot: Slot) -> set[str]:
    """Return the ids of a pod's init containers that no later container took."""
    given: set[str] = set()
    taken: set[str] = set()
    for hold in values.holds_of_slot(ledger, slot.uid):
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
    ledger = occupancy.without_ended(ledger, offered)
    pick = _pick(ledger, event.must_include, event.size, offered=offered)
    missing = pick is None and not _lost(ledger, event.size)
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
        return ledger, (Refused(_bad_ids(ledger, ids, strangers)),)
    ledger = occupancy.without_ended(ledger, frozenset(ids))
    pick = _pick(ledger, ids, len(ids))
    if pick is None and event.last_call:
        pick = _pick_lost(ledger, ids)
        if pick is None and ledger.standalone and not _broken(ledger, len(ids)):
            pick = _pick_for_nobody(ledger, len(ids), ids=ids)
    if isinstance(pick, str):
        return ledger, (Refused(pick),)
    if pick is None:
        if not event.last_call:
            return ledger, (AwaitClaim(len(ids)),)
        return ledger, (Refused(_no_claim(ledger, len(ids))),)
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
        for kubelet_id, chip in zip(hold.kubelet_ids, hold.chips, strict=True)
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
        return _plan(ledger, oldest, ids=ids, offered=offered) or _why_none(oldest)
    return (
        _usable(ledger, oldest)
        or _instead(ledger, oldest, slots[1:])
        or _why_unusable(ledger, oldest)
    )


def _plan(
    ledger: Ledger, slot: Slot, *, ids: Iterable[str], offered: frozenset[str]
) -> Pick | None:
    """Choose chips for a container of a pod that no scheduler has chosen for.

    The kubelet's ids are followed where their chips are as good as any: then id and
    chip agree.
    """
    need = open_need(ledger, slot)
    if need is None or slot.shape.reads_annotation:
        return None
    lasting, reusable = _taken(ledger, slot)
    count = slot.needs[need].count
    wished = standalone.wish(slot, count, lasting, reusable)
    behind = occupancy.chips_behind(ledger)
    near = _union(behind.get(name, 0) for name in offered or ids) & ~reusable
    everything = ledger.product.all_chips
    domains = (near,) if offered else (near, everything)
    chosen = standalone.plan(ledger, slot, wished, domains)
    reused = reusable & ~lasting
    if (chosen.now | reused).bit_count() < count or reused & ledger.unhealthy:
        return None
    return Pick(
        slot=replace(slot, chips=wished.given | chosen.whole),
        need=need,
        reused=reused,
        pool=chosen.now | reused,
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
    return _plan(ledger, slot, ids=ids, offered=offered) or _why_none(slot)


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _instead(ledger: Ledger, oldest: Slot, others: list[Slot]) -> Pick | None:
    """Serve a claim whose chips cannot be given: choose again, or exchange it.

    Not for a container that reads the annotation itself: it mounts what that
    says, whatever we answer.
    """
    if oldest.shape.reads_annotation:
        return None
    again = _choose_again(ledger, oldest)
    if again is not None:
        return again
    equal = (_usable(ledger, slot) for slot in others if slot.shape == oldest.shape)
    return next((pick for pick in equal if pick is not None), None)


def _init_holds(ledger: Ledger, slot: Slot) -> Iterator[Hold]:
    for hold in values.holds_of_slot(ledger, slot.uid):
        if values.is_init(slot, hold.need) and not hold.freed:
            yield hold


def _taken(ledger: Ledger, slot: Slot) -> tuple[int, int]:
    """Return what a slot has given out for good, and to init containers."""
    lasting = reusable = 0
    for hold in values.holds_of_slot(ledger, slot.uid):
        if hold.freed and hold.owner is None:
            continue
        if values.is_init(slot, hold.need):
            reusable |= hold.mask
        else:
            lasting |= hold.mask
    return lasting, reusable


def _usable(ledger: Ledger, slot: Slot) -> Pick | None:
    """Return the slot's next need with its chips, if all of them can be given."""
    need = open_need(ledger, slot)
    if need is None:
        return None
    lasting, reusable = _taken(ledger, slot)
    pool = slot.chips & ~lasting
    if pool.bit_count() < slot.needs[need].count:
        return None
    if pool & occupancy.unusable(ledger) & ~reusable or pool & ledger.unhealthy:
        return None
    return Pick(slot=slot, need=need, reused=pool & reusable, pool=pool)


def _choose_again(ledger: Ledger, slot: Slot) -> Pick | None:
    """Choose other chips for a slot, among those that nobody has a claim on."""
    need = open_need(ledger, slot)
    if need is None:
        return None
    lasting, reusable = _taken(ledger, slot)
    free = occupancy.unclaimed(ledger, but=[slot.uid])
    given = lasting | reusable
    rest = shapes.total(slot.shape.needs) - given.bit_count()
    if rest <= 0 or rest + (reusable & ~lasting).bit_count() < slot.needs[need].count:
        return None
    if given:
        fresh = chip_sets.complete(ledger.product, free, given, rest)
    else:
        fresh = chip_sets.choose(ledger.product, free, rest)
    if not fresh:
        return None
    return Pick(
        slot=replace(slot, chips=given | fresh),
        need=need,
        reused=reusable & ~lasting,
        pool=fresh | (reusable & ~lasting),
        rechosen=True,
    )


def _lost(ledger: Ledger, count: int) -> list[Pick]:
    """Return the running containers that may be asking for their chips again.

    Those that the kubelet has lost the ids of, and those that were started
    before any plugin had registered.
    """
    found = []
    for hold in ledger.holds.values():
        slot = _slot_of_lost(ledger, hold) if hold.lost else None
        if slot is not None and len(hold.chips) == count:
            own = chip_sets.mask_of(hold.chips)
            found.append(
                Pick(
                    slot=slot,
                    need=hold.need,
                    reused=0,
                    pool=own,
                    replaces=hold.sequence,
                )
            )
    for uid in sorted(ledger.bare & ledger.slots.keys()):
        slot = ledger.slots[uid]
        pick = _usable(ledger, slot)
        if pick is not None and slot.needs[pick.need].count == count:
            found.append(pick)
    return found


def _slot_of_lost(ledger: Ledger, hold: Hold) -> Slot | None:
    """Return the slot of a running pod, made anew if it was served long ago."""
    slot = ledger.slots.get(hold.slot)
    pod = ledger.pods.get(hold.owner.uid) if hold.owner is not None else None
    if slot is not None or pod is None:
        return slot
    return values.slot_of_served(ledger, pod)


def _pick_lost(ledger: Ledger, ids: tuple[str, ...]) -> Pick | str | None:
    """Serve a running container whose devices the kubelet has lost.

    If it can only be one, and nothing runs on its chips, it gets its own. If it
    can be several, none of theirs may be given (the others still run on them):
    it gets chips that nobody claims. It is nobody's who may have no claim.
    """
    lost = _lost(ledger, len(ids))
    if not lost or _claimless(ledger, len(ids)):
        return None
    reads = any(pick.slot.shape.reads_annotation for pick in lost)
    if len(lost) == 1 and not lost[0].pool & ledger.busy:
        return lost[0]
    fresh = chip_sets.choose(ledger.product, occupancy.unclaimed(ledger), len(ids))
    if not fresh or reads:
        return (
            f"{len(lost)} running containers have lost their "
            f"{ledger.product.resource} devices in the kubelet and it cannot be "
            "told which of them asks; delete their pods to have them started anew"
        )
    uid = values.fresh_uid(ledger.sequence + 1)
    slot = replace(lost[0].slot, uid=uid, chips=fresh)
    return Pick(slot=slot, need=lost[0].need, reused=0, pool=fresh, rechosen=True)


def _claimless(ledger: Ledger, count: int) -> bool:
    """Tell whether a pod without a claim may be the one who asks."""
    return any(
        not pod.terminal
        and pod.uid not in ledger.slots
        and not values.holds_of_pod(ledger, pod.uid)
        and count in {need.count for need in pod.needs}
        for pod in ledger.pods.values()
    )


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


def _bad_ids(ledger: Ledger, ids: tuple[str, ...], strangers: list[str]) -> str:
    last = ledger.product.chip_count - 1
    found = ", ".join(strangers or ids) or "none"
    return (
        f"the kubelet asked for devices that this node does not have: expected "
        f"distinct ids from {occupancy.device_id(ledger.product, 0)} to "
        f"{occupancy.device_id(ledger.product, last)}, found {found}"
    )


def _no_claim(ledger: Ledger, count: int) -> str:
    """Say what a person can do when an Allocate belongs to no claim."""
    resource = ledger.product.resource
    broken = _broken(ledger, count)
    if broken and ledger.standalone:
        return broken[0]
    if broken:
        return f"the claim of {broken[0]}; let the scheduler write {resource} again"
    return (
        f"no pod on this node has a claim for {count} {resource}: annotations "
        f"{resource} and predicate-time are missing, so the pod did not come "
        "through the Ascend scheduler; do not set spec.nodeName, and name a "
        "scheduler that calls the Ascend extender in spec.schedulerName (on a node "
        "without such a scheduler the agent needs --mode standalone)"
    )


def _broken(ledger: Ledger, count: int) -> list[str]:
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


def _why_none(slot: Slot) -> str:
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


def _why_unusable(ledger: Ledger, slot: Slot) -> str:
    """Say which chips of a claim cannot be given, and why."""
    lasting, reusable = _taken(ledger, slot)
    pool = slot.chips & ~lasting
    others = values.held(ledger) & ~reusable
    groups = (
        ("unhealthy", pool & ledger.unhealthy),
        ("held by another pod", pool & others & ~ledger.unhealthy),
        ("still used by a process", pool & values.releasing(ledger) & ~others),
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
