"""Choose the chips for the container that a slot serves next.

If a scheduler has claimed chips for the pod, `pick_from_claim` takes the container's
chips from the claim. `choose_again` chooses other chips if some of the claim's chips
are unusable. `pick_standalone` serves a pod whose chips no scheduler has chosen.
"""

from dataclasses import dataclass, replace

from agent.claims import occupancy, standalone, values
from agent.claims.values import Ledger, Slot
from scheduler_core.node import chips as chip_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the kubelet asks for one container: by Allocate, or by a preference."""

    count: int  #: chips that the container needs; may exceed the number of `ids`
    #: all ids of an Allocate, sorted by number; of a preference, those that the kubelet
    #: must include
    ids: tuple[str, ...]
    #: free ids that a preference may add to `ids`; empty for Allocate
    offered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The slot and container that an Allocate serves, and the chips it may give."""

    slot: Slot
    need: int  #: index into the slot's needs
    reused: int  #: mask: chips that come with ids of the pod's init containers
    pool: int  #: mask: chips of the slot from which this container gets its own
    rechosen: bool = False
    recreated: bool = False  #: for a running container that asks by itself
    replaces: int | None = None  #: sequence of the lost hold that is renewed


def next_need(ledger: Ledger, slot: Slot) -> int | None:
    """Return the index into `slot.needs` of the container that a slot serves next.

    The result is None if all containers are served. The kubelet admits a pod's
    containers in order, so the result is the first container without a hold. There are
    two exceptions:

    - A container counts as without a hold if its hold has no known owner and the
      kubelet has since offered the hold's ids to another container.
    - Init containers are passed over once an app container or sidecar owns a hold, or
      was recreated while the pod ran.
    """
    holds = values.holds_of_slot(ledger, slot.uid)
    if not holds:
        return 0 if slot.needs else None
    served_needs = {h.need for h in holds if not h.reoffered or h.owner is not None}
    has_lasting = any(
        (h.owner or h.recreated) and not values.is_init(slot, h.need) for h in holds
    )
    waiting = (
        index
        for index in range(len(slot.needs))
        if index not in served_needs
        and not (has_lasting and values.is_init(slot, index))
    )
    return next(waiting, None)


def chips_given_out(ledger: Ledger, slot: Slot) -> tuple[int, int]:
    """Return the chips that containers of a slot hold, as (lasting mask, init mask).

    The lasting mask has the chips of app containers and sidecars. The init mask has the
    chips of init containers. A hold without a known owner does not count if it is
    `reoffered`: the kubelet may have given its ids to another container.
    """
    lasting = reusable = 0
    for hold in values.holds_of_slot(ledger, slot.uid):
        if hold.reoffered and hold.owner is None:
            continue
        if values.is_init(slot, hold.need):
            reusable |= hold.mask
        else:
            lasting |= hold.mask
    return lasting, reusable


def pick_from_claim(ledger: Ledger, slot: Slot) -> Pick | None:
    """Return a `Pick` with the next container of a slot and the chips of its claim.

    The result is None in each of these cases:

    - All containers of the slot are served.
    - The claim has too few chips left for the container.
    - A chip that is left is unhealthy, held by another pod, releasing, or claimed by an
      older slot.
    """
    need = next_need(ledger, slot)
    if need is None:
        return None
    lasting, reusable = chips_given_out(ledger, slot)
    pool = slot.chips & ~lasting
    if pool.bit_count() < slot.needs[need].count:
        return None
    if pool & occupancy.unusable_chips(ledger) & ~reusable or pool & ledger.unhealthy:
        return None
    if pool & occupancy.chips_claimed_before(ledger, slot):
        return None
    return Pick(slot=slot, need=need, reused=pool & reusable, pool=pool)


def pick_standalone(ledger: Ledger, slot: Slot, call: Call) -> Pick | None:
    """Return a `Pick` with chips for a pod whose chips no scheduler has chosen.

    The chips are for the container that the slot serves next. The result is None if all
    containers are served or too few chips are free. It is also None if the container
    could get an unhealthy chip of an init container. It is None, too, if a container
    takes ASCEND_VISIBLE_DEVICES from the pod's annotation, because no scheduler writes
    this annotation.

    The container's new chips come from those of the offered ids only, if there are any.
    If not, chips of the call's ids are preferred.
    """
    need = next_need(ledger, slot)
    if need is None or slot.shape.reads_annotation:
        return None
    lasting, reusable = chips_given_out(ledger, slot)
    count = slot.needs[need].count
    wish = standalone.split_wish(slot, count, lasting, reusable)
    chips_by_id = occupancy.map_ids_to_chips(ledger)
    names = call.offered or call.ids
    near = chip_sets.union(chips_by_id.get(name, 0) for name in names) & ~reusable
    domains = (near,) if call.offered else (near, ledger.product.all_chips)
    plan = standalone.plan(ledger, slot, wish, domains)
    reused = reusable & ~lasting
    if (plan.for_container | reused).bit_count() < count or reused & ledger.unhealthy:
        return None
    return Pick(
        slot=replace(slot, chips=wish.chips_held | plan.for_pod),
        need=need,
        reused=reused,
        pool=plan.for_container | reused,
    )


def choose_again(ledger: Ledger, slot: Slot) -> Pick | None:
    """Return a `Pick` with new chips in place of the chips of a slot that are not held.

    Held chips stay in the slot, except unhealthy chips of init containers: the pod's
    next container would get these chips. The new chips are healthy, not held, not
    releasing and not claimed by another pod. The result is None if all containers are
    served, or if no such chips can complete the slot.
    """
    need = next_need(ledger, slot)
    if need is None:
        return None
    lasting, init_chips = chips_given_out(ledger, slot)
    reusable = init_chips & ~ledger.unhealthy
    free = occupancy.unclaimed_chips(ledger, but=slot.uid)
    kept_chips, reused = lasting | reusable, reusable & ~lasting
    rest_count = slot.shape.total - kept_chips.bit_count()
    if rest_count <= 0 or rest_count + reused.bit_count() < slot.needs[need].count:
        return None
    fresh = chip_sets.complete(ledger.product, free, kept_chips, rest_count)
    if not fresh:
        return None
    return Pick(
        slot=replace(slot, chips=kept_chips | fresh),
        need=need,
        reused=reused,
        pool=fresh | reused,
        rechosen=True,
    )
