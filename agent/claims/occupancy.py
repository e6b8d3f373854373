"""Which chips are spoken for, and which device id stands for which chip.

The kubelet counts opaque ids; a chip can end up behind another chip's id when
the kubelet did not follow our preference. The ids that are given out map to
the chips that were mounted for them. All other ids stand for the chips that
are left, each for its own where it can, the rest in ascending order: so the
kubelet always has as many usable ids as there are usable chips, and the id of
a free chip carries that chip's health.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

from agent.claims import values
from agent.claims.values import Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod


def device_id(product: Product, chip: int) -> str:
    """Return the kubelet's name of the id that a chip has as its own."""
    return f"{product.chip_prefix}{chip}"


def chip_of(product: Product, kubelet_id: str) -> int:
    """Return the chip whose own id this is; -1 for an id that is not ours."""
    return _chips_by_id(product.chip_prefix, product.all_chips).get(kubelet_id, -1)


@cache
def _chips_by_id(prefix: str, chips: int) -> Mapping[str, int]:
    """Return {own id: chip}, in the order of chips; asked for at each Allocate."""
    found = {f"{prefix}{chip}": chip for chip in chip_sets.ids_of(chips)}
    return MappingProxyType(found)


def annotated(ledger: Ledger, pod: NpuPod) -> int:
    """Return the chips that a pod's annotations name, as a mask.

    The union of the scheduler's annotation and AscendReal: during a
    correction a chip stands in one of the two at every moment.
    """
    mask = 0
    for key in (ledger.product.resource, annotations.ASCEND_REAL):
        text = pod.annotations.get(key)
        if not text:
            continue
        try:
            mask |= chip_sets.mask_of(annotations.parse_chips(text, ledger.product))
        except annotations.WireError:
            continue  # named in Ledger.problems; it claims nothing
    return mask


def claimed(ledger: Ledger, *, but: Iterable[str] = ()) -> int:
    """Return the chips of all slots and annotations but those of some slots.

    Args:
        ledger: The state.
        but: Uids of pods whose slots are left out.
    """
    left_out = set(but)
    mask = 0
    for slot in ledger.slots.values():
        if slot.uid not in left_out:
            mask |= _kept(ledger, slot)
    for pod in ledger.pods.values():
        if not pod.terminal and pod.uid not in ledger.slots:
            mask |= annotated(ledger, pod)
    return mask


def claimed_before(ledger: Ledger, slot: Slot) -> int:
    """Return the chips of a claim that belong to another living pod's, seen before.

    Schedulers give no chip to two pods: the second claim is a mistake, or theft.
    """
    mask = 0
    for uid, earlier in ledger.slots.items():
        if uid == slot.uid:
            break
        if values.is_alive(ledger, uid):
            mask |= _kept(ledger, earlier)
    return mask & slot.chips


def _kept(ledger: Ledger, slot: Slot) -> int:
    """Return the chips that a slot keeps from others.

    Where a container was made anew, its pod's annotations name what it has, and no
    more what its init containers had: the scheduler may give that away.
    """
    pod = ledger.pods.get(slot.uid)
    holds = values.holds_of_pod(ledger, slot.uid)
    is_anew = any(hold.anew for hold in holds)
    if pod is None or not is_anew or not values.is_settled(ledger, pod):
        return slot.chips
    return chip_sets.mask_of({chip for hold in holds for chip in hold.chips})


def unusable(ledger: Ledger) -> int:
    """Return the chips that no Allocate may give out now."""
    return values.held(ledger) | ledger.unhealthy | values.releasing(ledger)


def unclaimed(ledger: Ledger, *, but: Iterable[str] = ()) -> int:
    """Return the chips that are usable and that nobody has a claim on."""
    everything = ledger.product.all_chips
    return everything & ~unusable(ledger) & ~claimed(ledger, but=but)


def chips_behind(ledger: Ledger) -> dict[str, int]:
    """Map every device id to the mask of chips that it stands for.

    An id that is given out stands for what was mounted for it (the kubelet
    can give one id twice: then for both), and where that is not certain, for
    all that may have been. An id for which no chip is left stands for none
    (mask 0).

    Cost:
        O(chips of the node + holds).
    """
    behind: dict[str, int] = {}
    for hold in ledger.holds.values():
        for kubelet_id, chip in zip(hold.kubelet_ids, hold.chips, strict=False):
            behind[kubelet_id] = behind.get(kubelet_id, 0) | 1 << chip
        # An id in use that looked broken would cost the node a free one: the
        # scheduler counts what is healthy, less what is asked for.
        for kubelet_id in hold.kubelet_ids[len(hold.chips) :]:
            may_be = chip_sets.mask_of(hold.reserved)
            behind[kubelet_id] = behind.get(kubelet_id, 0) | may_be
    taken = values.held(ledger)
    every = ledger.product.all_chips
    strangers = []
    for own, chip in _chips_by_id(ledger.product.chip_prefix, every).items():
        if own in behind:
            continue
        if taken >> chip & 1:
            strangers.append(own)
        else:
            behind[own] = 1 << chip
            taken |= 1 << chip
    left = chip_sets.ids_of(every & ~taken)
    for position, own in enumerate(strangers):
        behind[own] = 1 << left[position] if position < len(left) else 0
    return behind


def devices(ledger: Ledger) -> tuple[tuple[str, bool], ...]:
    """Return what the kubelet is told: every id of the node, and its health.

    The list has the same ids at all times. An id is as healthy as the worst
    chip behind it; an id without a chip, or whose chip a leftover process
    still holds, is unhealthy.
    """
    behind = chips_behind(ledger)
    bad = ledger.unhealthy | values.releasing(ledger)
    every = chip_sets.ids_of(ledger.product.all_chips)
    own = (device_id(ledger.product, chip) for chip in every)
    return tuple((name, bool(behind[name]) and not behind[name] & bad) for name in own)
