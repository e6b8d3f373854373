"""Compute which chips are taken, and which chips each device id stands for.

The kubelet counts ids and knows no chips. It need not give out the ids that the agent
prefers, so the chip mounted for an id can have another number than the id. An id in use
stands for the chip that was mounted for it. An unused id stands for the chip with the
id's number, if no container has that chip. Otherwise the unused id stands for the
lowest chip for which no other id stands.

So the kubelet normally has as many usable ids as there are usable chips. An unused id
is as healthy as the chip for which it stands.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from agent.claims import values
from agent.claims.values import Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod


def device_id(product: Product, chip: int) -> str:
    """Return the device id with a chip's number, for example Ascend910-3 for chip 3.

    The id can stand for another chip: see `map_ids_to_chips`.
    """
    return annotations.chip_name(chip, product)


def chip_of(product: Product, kubelet_id: str) -> int:
    """Return the chip with a device id's number; -1 if the product has no such chip.

    The id can stand for another chip: see `map_ids_to_chips`.
    """
    return _chips_by_id(product).get(kubelet_id, -1)


def sort_ids(product: Product, ids: Iterable[str]) -> tuple[str, ...]:
    """Return device ids in the order of their numbers; unknown ids come first."""
    return tuple(sorted(ids, key=lambda name: (chip_of(product, name), name)))


@lru_cache(maxsize=64)
def _chips_by_id(product: Product) -> Mapping[str, int]:
    """Return {device id: chip} for all chips of a row, ascending by chip."""
    ids = chip_sets.ids_of(product.all_chips)
    return MappingProxyType({device_id(product, chip): chip for chip in ids})


def annotated_chips(ledger: Ledger, pod: NpuPod) -> int:
    """Return the mask of chips that a pod's annotations name.

    Two annotations count. One has the resource's name as its key, like
    huawei.com/Ascend910. A scheduler writes it, and the agent may correct it. The
    other, AscendReal, is written by the agent. While the agent patches the two, each
    chip of the pod is in at least one of them. An unreadable annotation names no chips.
    """
    keys = (ledger.product.resource, annotations.ASCEND_REAL)
    named = (chips_in_annotation(ledger, pod, key) for key in keys)
    return chip_sets.union(map(chip_sets.mask_of, named))


def chips_in_annotation(ledger: Ledger, pod: NpuPod, key: str) -> tuple[int, ...]:
    """Return the chips that one annotation of a pod names; () if it is unreadable."""
    text = pod.annotations.get(key)
    try:
        return annotations.parse_chips(text, ledger.product) if text else ()
    except annotations.WireError:
        return ()  # `Ledger.problems` has the reason; it claims nothing


def claimed_chips(ledger: Ledger, *, but: str = "") -> int:
    """Return the mask of chips kept for slots or named in living pods' annotations.

    `_chips_kept_by` says which chips are kept for a slot. The annotations of a pod
    count only if the pod has no slot.

    Args:
        but: Uid of a slot that does not count; "" for none.
    """
    slot_masks = (
        _chips_kept_by(ledger, s) for s in ledger.slots.values() if s.uid != but
    )
    annotated = (
        annotated_chips(ledger, pod)
        for pod in ledger.pods.values()
        if not pod.terminal and pod.uid not in ledger.slots
    )
    return chip_sets.union((*slot_masks, *annotated))


def chips_claimed_before(ledger: Ledger, slot: Slot) -> int:
    """Return the mask of a slot's chips that are kept for the pod of an earlier slot.

    Slots are in the order in which the ledger got them. Only earlier slots of living
    pods count. Schedulers give no chip to two pods, so the later claim counts as a
    mistake or as forged.
    """
    mask = 0
    for uid, earlier in ledger.slots.items():
        if uid == slot.uid:
            break
        if values.is_alive(ledger, uid):
            mask |= _chips_kept_by(ledger, earlier)
    return mask & slot.chips


def _chips_kept_by(ledger: Ledger, slot: Slot) -> int:
    """Return the mask of chips that no pod but the pod of this slot may get.

    They are the chips of the slot. If a container was recreated while the pod ran, they
    are the chips of the pod's holds, once the pod is confirmed. The pod's annotations
    then do not name the chips of its init containers, so a scheduler may give these
    chips to other pods.
    """
    pod = ledger.pods.get(slot.uid)
    holds = values.holds_of_pod(ledger, slot.uid)
    is_recreated = any(hold.recreated for hold in holds)
    if pod is None or not is_recreated or not values.is_confirmed(ledger, pod):
        return slot.chips
    return values.mounted_chips(holds)


def unusable_chips(ledger: Ledger) -> int:
    """Return the mask of chips that are held, unhealthy, releasing or unchecked.

    No Allocate may give them out now.
    """
    return (
        values.held_chips(ledger)
        | ledger.unhealthy
        | values.releasing_chips(ledger)
        | values.unchecked_chips(ledger)
    )


def unclaimed_chips(ledger: Ledger, *, but: str = "") -> int:
    """Return the mask of usable chips that no slot and no annotation claims.

    Usable chips are healthy, not held, not releasing and not unchecked.

    Args:
        but: Uid of a slot that does not count; "" for none.
    """
    everything = ledger.product.all_chips
    return everything & ~unusable_chips(ledger) & ~claimed_chips(ledger, but=but)


def map_ids_to_chips(ledger: Ledger) -> dict[str, int]:
    """Return {device id: mask of the chips that it stands for} for every device id.

    If no chip is known for an id in use, the id stands for all chips that its hold
    reserves (`Hold.reserved`). If the kubelet gives one id to two containers, the id
    stands for the chips of both. An unused id has mask 0 if other ids stand for all
    chips.

    Cost:
        O(chips of the node + holds).
    """
    chips_by_id: dict[str, int] = {}
    for hold in ledger.holds.values():
        for kubelet_id, chip in zip(hold.kubelet_ids, hold.chips, strict=False):
            chips_by_id[kubelet_id] = chips_by_id.get(kubelet_id, 0) | 1 << chip
        # an id in use that looks broken would cost the node a free chip: the
        # scheduler counts healthy ids, less requested ones
        for kubelet_id in hold.kubelet_ids[len(hold.chips) :]:
            may_be = chip_sets.mask_of(hold.reserved)
            chips_by_id[kubelet_id] = chips_by_id.get(kubelet_id, 0) | may_be
    assigned = values.held_chips(ledger)
    all_chips = ledger.product.all_chips
    displaced_ids = []
    for own_id, chip in _chips_by_id(ledger.product).items():
        if own_id in chips_by_id:
            continue
        if assigned >> chip & 1:
            displaced_ids.append(own_id)
        else:
            chips_by_id[own_id] = 1 << chip
            assigned |= 1 << chip
    remaining = chip_sets.ids_of(all_chips & ~assigned)
    for position, own_id in enumerate(displaced_ids):
        chips_by_id[own_id] = (
            1 << remaining[position] if position < len(remaining) else 0
        )
    return chips_by_id


def list_devices(ledger: Ledger) -> tuple[tuple[str, bool], ...]:
    """Return (device id, is healthy) for every device id of the product line.

    The plugin sends this list to the kubelet. The list has the same ids at all times.
    An id is healthy if it stands for at least one chip, and all its chips are healthy
    and not releasing.
    """
    chips_by_id = map_ids_to_chips(ledger)
    bad = ledger.unhealthy | values.releasing_chips(ledger)
    chips = chip_sets.ids_of(ledger.product.all_chips)
    ids = (device_id(ledger.product, chip) for chip in chips)
    return tuple(
        (name, bool(chips_by_id[name]) and not chips_by_id[name] & bad) for name in ids
    )
