"""Which chips, when there is no scheduler of ours: by the core's rules, late.

A pod of a node without a scheduler has a slot like any other, but no chips in it:
they are chosen when the kubelet asks, on the state of that moment, for the pod as a
whole where that can be, else for the one container. From then on the slot is like
one that a scheduler has filled.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.claims import occupancy, values
from agent.claims.values import Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire import shapes
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind, ContainerNeed, Shape

#: So many pods can be created in one second and still be served in their order.
_PER_SECOND = 1_000_000
#: Of a time, to the second.
_DIGITS = len("20261121173000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One container of a pod that gets chips now."""

    given: int  #: mask: what the pod has already
    now: int  #: how many more this container needs
    later: int  #: how many the pod's other containers need after that


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Chips that were chosen here."""

    now: int  #: mask: for this container
    whole: int  #: mask: for this container and those after it


def slot_of(ledger: Ledger, pod: NpuPod) -> Slot:
    """Open what a pod is to be served from; its chips are chosen later.

    The kubelet admits pods in about the order in which they were created.
    """
    second = int("".join(filter(str.isdecimal, pod.created))[:_DIGITS] or 0)
    before = sum(
        slot.predicate_time // _PER_SECOND == second
        for slot in ledger.slots.values()
        if slot.unplanned
    )
    return Slot(
        uid=pod.uid,
        shape=pod.shape,
        needs=pod.needs,
        chips=0,
        predicate_time=second * _PER_SECOND + before,
        unplanned=True,
    )


def slot_of_nobody(ledger: Ledger, count: int) -> Slot:
    """Open a slot for a container whose pod nobody has shown us yet."""
    need = ContainerNeed(name="", kind=ContainerKind.APP, count=count)
    shape = Shape(resource=ledger.product.resource, needs=((ContainerKind.APP, count),))
    return Slot(
        uid=values.fresh_uid(ledger.sequence + 1),
        shape=shape,
        needs=(need,),
        chips=0,
        predicate_time=0,
        unplanned=True,
    )


def wish(slot: Slot, count: int, lasting: int, reusable: int) -> Wish:
    """Say what a container of a slot needs now.

    Args:
        slot: What it is served from.
        count: How many chips it asks for.
        lasting: What the pod's containers have for good.
        reusable: What its init containers had, which the kubelet gives it first.
    """
    given = lasting | reusable
    now = max(0, count - (reusable & ~lasting).bit_count())
    rest = shapes.total(slot.shape.needs) - given.bit_count()
    return Wish(given=given, now=now, later=max(0, rest - now))


def plan(ledger: Ledger, slot: Slot, wished: Wish, domains: tuple[int, ...]) -> Plan:
    """Choose chips for one container, thinking of those that come after it.

    Args:
        ledger: The state.
        slot: What it is served from; chips that were planned in it stay, if they can.
        wished: What is needed.
        domains: Where to look, in this order: masks.

    Returns:
        The best that can be had: legal for the whole pod, else for this container,
        else any. Both masks are 0 when there are too few chips.
    """
    free = occupancy.unclaimed(ledger, but=[slot.uid])
    places = [domain & free for domain in domains]
    each = _plans(ledger, wished, slot.chips & ~wished.given, free, places)
    return next(each, Plan(now=0, whole=0))


def _plans(
    ledger: Ledger, wished: Wish, planned: int, free: int, places: list[int]
) -> Iterator[Plan]:
    """Yield what can be had, the best first."""
    if not wished.now:
        yield Plan(now=0, whole=planned)
    if planned.bit_count() == wished.now + wished.later and not planned & ~free:
        for place in places:
            yield from _from(place & planned, wished.now, planned)
    yield from _legal(ledger, wished, free, places)
    for place in places:
        rest = _near_each_other(ledger.product, place, wished.now)
        yield from _from(rest, wished.now, rest)


def _legal(
    ledger: Ledger, wished: Wish, free: int, places: list[int]
) -> Iterator[Plan]:
    """Yield what is legal: for the pod as a whole, then for the container alone."""
    product, given = ledger.product, wished.given
    for place in places:
        whole = chip_sets.complete(product, place, given, wished.now + wished.later)
        if whole:
            yield Plan(now=_lowest(whole, wished.now), whole=whole)
    fitting = [chip_sets.choose(product, place, wished.now) for place in places]
    for now in filter(None, fitting):
        more = chip_sets.complete(product, free, given | now, wished.later)
        if more:
            yield Plan(now=now, whole=now | more)
    for now in filter(None, fitting):
        yield Plan(now=now, whole=now)


def _near_each_other(product: Product, place: int, count: int) -> int:
    """Return chips of one group where one has so many, the tightest; else any."""
    groups = [place & group for group in product.groups]
    roomy = [group for group in groups if group.bit_count() >= count]
    return _lowest(min(roomy, key=int.bit_count, default=place), count)


def _from(mask: int, count: int, whole: int) -> Iterator[Plan]:
    if mask.bit_count() >= count:
        yield Plan(now=_lowest(mask, count), whole=whole)


def _lowest(mask: int, count: int) -> int:
    return chip_sets.mask_of(chip_sets.ids_of(mask)[:count])


def are_apart(ledger: Ledger, pod: NpuPod) -> bool:
    """Tell whether what a pod holds lies in more groups than it would have to.

    Not where the product's rules want it so, as for chips that are given out one by
    one over all cards.
    """
    product = ledger.product
    held = chip_sets.mask_of(
        chip for hold in values.holds_of_pod(ledger, pod.uid) for chip in hold.chips
    )
    fewest = -(-held.bit_count() // product.group_size)
    used = sum(bool(held & group) for group in product.groups)
    return used > fewest and not chip_sets.is_legal(product, held)
