"""Choose chips in standalone mode, by the rules of `scheduler_core`.

In this mode no scheduler chooses chips, so the slot of a pod has none at first. When
the kubelet calls Allocate for a container, the agent chooses free chips for the whole
pod. If the product's rules allow none, the agent chooses for this container only.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.claims import occupancy, values
from agent.claims.values import Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind, ContainerNeed, Shape

#: Highest number of pods of one second that are still served in their order.
_PER_SECOND = 1_000_000
#: Digits of a creation time, to the second.
_DIGITS = len("20261121173000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Chips that a pod has been given, and how many more its containers need."""

    chips_held: int  #: mask of chips given to the pod before
    count_now: int  #: number of chips that this container still needs
    count_later: int  #: number of chips that the containers after it need


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Chips chosen for a pod's next container, and for the containers after it."""

    for_container: int  #: mask of chips for this container
    for_pod: int  #: mask of chips for this container and those after it


def make_slot(ledger: Ledger, pod: NpuPod) -> Slot:
    """Return a slot without chips for a pod in standalone mode; Allocate chooses them.

    The slot's predicate-time follows the creation time of the pod, because the kubelet
    admits pods in about the order of their creation. Pods created within the same
    second are ordered by arrival in the ledger.
    """
    second = int("".join(filter(str.isdecimal, pod.created))[:_DIGITS] or 0)
    earlier_count = sum(
        slot.predicate_time // _PER_SECOND == second
        for slot in ledger.slots.values()
        if slot.unplanned
    )
    return Slot(
        uid=pod.uid,
        shape=pod.shape,
        needs=pod.needs,
        chips=0,
        predicate_time=second * _PER_SECOND + earlier_count,
        unplanned=True,
    )


def make_ownerless_slot(ledger: Ledger, count: int) -> Slot:
    """Return a slot without chips for one container whose pod is not in the ledger yet.

    Args:
        count: Number of chips that the container needs.
    """
    need = ContainerNeed(name="", kind=ContainerKind.APP, count=count)
    shape = Shape(resource=ledger.product.resource, needs=((ContainerKind.APP, count),))
    return Slot(
        uid=values.make_fresh_uid(ledger.sequence + 1),
        shape=shape,
        needs=(need,),
        chips=0,
        predicate_time=0,
        unplanned=True,
    )


def split_wish(slot: Slot, count: int, lasting: int, reusable: int) -> Wish:
    """Return the chips that a pod has, and how many more its containers need.

    Args:
        slot: The slot that serves the pod.
        count: Number of chips that the next container asks for.
        lasting: Mask of the chips that the pod's app containers and sidecars have.
        reusable: Mask of the chips that the pod's init containers had. Those that are
            not in `lasting` go to the next container first, up to `count`. The kubelet
            reuses the ids of init containers before it gives out others.
    """
    chips_held = lasting | reusable
    count_now = max(0, count - (reusable & ~lasting).bit_count())
    unserved_count = slot.shape.total - chips_held.bit_count()
    return Wish(
        chips_held=chips_held,
        count_now=count_now,
        count_later=max(0, unserved_count - count_now),
    )


def plan(ledger: Ledger, slot: Slot, wish: Wish, domains: tuple[int, ...]) -> Plan:
    """Choose chips for a pod's next container, and reserve chips for later containers.

    Args:
        slot: The slot that serves the container. Chips that were chosen earlier for its
            pod are kept if possible.
        wish: Chips of the pod, and how many more it needs.
        domains: Masks of chips to choose from, the preferred mask first.

    Returns:
        Chips that the product's rules allow for the whole pod. If there are none, chips
        that the rules allow for the container alone. If there are none either, any
        chips. Both masks of the plan are 0 if too few chips are free.
    """
    free = occupancy.unclaimed_chips(ledger, but=slot.uid)
    places = [domain & free for domain in domains]
    plans = _plans(ledger, wish, slot.chips & ~wish.chips_held, free, places)
    return next(plans, Plan(for_container=0, for_pod=0))


def _plans(
    ledger: Ledger, wish: Wish, planned: int, free: int, places: list[int]
) -> Iterator[Plan]:
    """Yield the possible choices of chips for a pod's next container, the best first.

    First come the `planned` chips. Then come chips that the product's rules allow. Last
    come any chips, if possible of one ring or card.

    Args:
        planned: Mask of the slot's chips that no container has yet.
        free: Mask of all unclaimed chips.
        places: Masks of unclaimed chips to choose from, the preferred mask first.
    """
    if not wish.count_now:
        yield Plan(for_container=0, for_pod=planned)
    if planned.bit_count() == wish.count_now + wish.count_later and not planned & ~free:
        for place in places:
            yield from _plan_from(place & planned, wish.count_now, planned)
    yield from _legal_plans(ledger, wish, free, places)
    for place in places:
        rest = _choose_near(ledger.product, place, wish.count_now)
        yield from _plan_from(rest, wish.count_now, rest)


def _legal_plans(
    ledger: Ledger, wish: Wish, free: int, places: list[int]
) -> Iterator[Plan]:
    """Yield the choices of chips that the product's rules allow, the best first.

    1. Chips allowed for the whole pod, all from one mask in `places`.
    2. Chips for the next container from one mask in `places`, and more chips from
       `free`, together allowed for the whole pod.
    3. Chips allowed for the next container alone.

    Args:
        free: Mask of all unclaimed chips.
        places: Masks of unclaimed chips to choose from, the preferred mask first.
    """
    product, chips_held = ledger.product, wish.chips_held
    for place in places:
        for_pod = chip_sets.complete(
            product, place, chips_held, wish.count_now + wish.count_later
        )
        if for_pod:
            yield Plan(
                for_container=values.lowest(for_pod, wish.count_now), for_pod=for_pod
            )
    fitting = [chip_sets.choose(product, place, wish.count_now) for place in places]
    for chips in filter(None, fitting):
        later_chips = chip_sets.complete(
            product, free, chips_held | chips, wish.count_later
        )
        if later_chips:
            yield Plan(for_container=chips, for_pod=chips | later_chips)
    for chips in filter(None, fitting):
        yield Plan(for_container=chips, for_pod=chips)


def _choose_near(product: Product, domain: int, count: int) -> int:
    """Return the mask of `count` chips from `domain`, if possible of one ring or card.

    Of the rings or cards with enough chips in `domain`, the one with the fewest such
    chips is used. The mask has fewer than `count` chips only if `domain` has fewer.

    Args:
        domain: Mask of the chips to choose from.
    """
    groups = [domain & group for group in product.groups]
    roomy = [group for group in groups if group.bit_count() >= count]
    return values.lowest(min(roomy, key=int.bit_count, default=domain), count)


def _plan_from(mask: int, count: int, for_pod: int) -> Iterator[Plan]:
    if mask.bit_count() >= count:
        yield Plan(for_container=values.lowest(mask, count), for_pod=for_pod)


def has_scattered_chips(ledger: Ledger, pod: NpuPod) -> bool:
    """Whether a pod's held chips are needlessly on several rings or cards.

    True if they are on more rings or cards than necessary, and the product's rules do
    not allow this set of chips for one pod. The rules of some products allow any set.
    """
    product = ledger.product
    chips = values.mounted_chips(values.holds_of_pod(ledger, pod.uid))
    fewest = -(-chips.bit_count() // product.group_size)
    group_count = sum(bool(chips & group) for group in product.groups)
    return group_count > fewest and not chip_sets.is_legal(product, chips)
