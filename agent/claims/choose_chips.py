"""Which chips the next container of a slot gets, whoever asks for them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agent.claims import occupancy, standalone, values
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The slot that serves an Allocate, and the chips it may take from."""

    slot: Slot
    need: int  #: index into the slot's needs
    reused: int  #: mask: chips that come with ids of the pod's init containers
    pool: int  #: mask: the slot's chips that are left for this container
    rechosen: bool = False
    anew: bool = False  #: for a container that runs already, and asks by itself
    replaces: int | None = None  #: sequence of the lost hold that this renews


def open_need(ledger: Ledger, slot: Slot) -> int | None:
    """Return the index of the next container that a slot has to serve."""
    return open_need_of(slot, values.holds_of_slot(ledger, slot.uid))


def open_need_of(slot: Slot, holds: Sequence[Hold]) -> int | None:
    """Return the same, where the holds of the slot are at hand.

    Admission goes through a pod's containers in order, so it is always the
    first one without a hold. What the kubelet has taken back does not count,
    but no init container asks any more once its pod has what lasts.
    """
    if not holds:
        return 0 if slot.needs else None
    served = {h.need for h in holds if not h.freed or h.owner is not None}
    lasts = any((h.owner or h.anew) and not values.is_init(slot, h.need) for h in holds)
    return next(
        (
            index
            for index in range(len(slot.needs))
            if index not in served and not (lasts and values.is_init(slot, index))
        ),
        None,
    )


def taken(ledger: Ledger, slot: Slot) -> tuple[int, int]:
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


def usable(ledger: Ledger, slot: Slot) -> Pick | None:
    """Return the slot's next need with its chips, if all of them can be given."""
    need = open_need(ledger, slot)
    if need is None:
        return None
    lasting, reusable = taken(ledger, slot)
    pool = slot.chips & ~lasting
    if pool.bit_count() < slot.needs[need].count:
        return None
    if pool & occupancy.unusable(ledger) & ~reusable or pool & ledger.unhealthy:
        return None
    if pool & occupancy.claimed_before(ledger, slot):
        return None
    return Pick(slot=slot, need=need, reused=pool & reusable, pool=pool)


def plan(
    ledger: Ledger, slot: Slot, *, ids: Iterable[str], offered: frozenset[str]
) -> Pick | None:
    """Choose chips for a container of a pod that no scheduler has chosen for.

    The kubelet's ids are followed where their chips are as good as any: then id and
    chip agree.
    """
    need = open_need(ledger, slot)
    if need is None or slot.shape.reads_annotation:
        return None
    lasting, reusable = taken(ledger, slot)
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


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def choose_again(ledger: Ledger, slot: Slot) -> Pick | None:
    """Choose other chips for a slot, among those that nobody has a claim on.

    What init containers had stays, unless it broke since: their ids come back.
    """
    need = open_need(ledger, slot)
    if need is None:
        return None
    lasting, had = taken(ledger, slot)
    reusable = had & ~ledger.unhealthy
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
