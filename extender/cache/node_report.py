"""What a node says of the chips of a resource: masks, by its ConfigMap and its Node."""

from dataclasses import dataclass
from functools import lru_cache

from extender.cache import unreadable
from extender.cache.unreadable import Unreadable
from scheduler_core.node import chips
from scheduler_core.products.table import Product
from scheduler_core.wire import chip_faults, deviceinfo, inventory
from scheduler_core.wire.addresses import UNKNOWN
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.chip_faults import ChipFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Chips of one resource of a node, from `mindx-dl-deviceinfo-<node>`, as masks."""

    unfit: int = 0
    available: int
    held: int = 0
    releasing: int = 0
    lost: int = 0
    #: healthy chips with a faulty network
    network_unfit: int = 0
    #: by chip; of chips in service too
    faults: tuple[ChipFault, ...] = ()
    #: whether this make of agent publishes holds
    has_holds: bool = False
    #: seconds since the epoch, by the agent's clock
    update_time: int
    #: SuperPoD id; negative: none
    superpod: int = -1
    #: index of the server in its SuperPoD; negative: unknown
    server_index: int = UNKNOWN
    #: whether it was derived from the Node of a server without an agent
    is_bare: bool = False


def report_of(device_info: str, affinity: str, product: Product) -> Report:
    """Parse texts of `mindx-dl-deviceinfo-<node>` into masks of chips of one resource.

    A part of a chip is as healthy as the chip.

    Args:
        device_info: Text of the key `DeviceInfoCfg`.
        affinity: Text of the key `AscendAffinity`; "" if another device plugin wrote
            the ConfigMap. If it is "", no chip counts as held, releasing or lost.

    Raises:
        WireError: A text is malformed; the message says where.
    """
    is_of_parts = product.chip_row is not None
    parse = (
        deviceinfo.parse_without_faults if is_of_parts else deviceinfo.parse_device_info
    )
    info = parse(device_info, product.chip_row or product)
    ours = deviceinfo.parse_affinity(affinity, product) if affinity else None
    unfit = (*info.unhealthy, *info.recovering)
    return Report(
        unfit=chips.union(product.groups[chip] for chip in unfit)
        if is_of_parts
        else chips.mask_of(unfit),
        # no list of available chips names parts
        available=product.all_chips if is_of_parts else chips.mask_of(info.available),
        held=chips.mask_of(ours.held) if ours else 0,
        releasing=chips.mask_of(ours.releasing) if ours else 0,
        lost=chips.mask_of(ours.lost) if ours else 0,
        network_unfit=0 if is_of_parts else chips.mask_of(info.network_unhealthy),
        faults=() if is_of_parts else chip_faults.chip_faults(info),
        has_holds=ours is not None,
        update_time=info.update_time,
        superpod=info.super_pod_id,
        server_index=info.server_index,
    )


def faults_of(device_info: str, product: Product) -> tuple[ChipFault, ...]:
    """Parse the faults in a text `DeviceInfoCfg` whose list of faults may be malformed.

    Parts of chips have none: those of their chips bar them, and move no pod.

    Raises:
        WireError: A list of chips is malformed; the message says where.
    """
    if product.chip_row is not None:
        return ()
    try:
        info = deviceinfo.parse_device_info(device_info, product)
    except WireError:
        info = deviceinfo.parse_without_faults(device_info, product)
    return chip_faults.chip_faults(info)


def of_bare_node(product: Product, superpod: int) -> Report:
    """Return a report for a server without an agent: all chips healthy, none held.

    Args:
        superpod: SuperPoD id from the Node; negative if the Node has none.
    """
    return Report(
        available=product.all_chips,
        update_time=0,
        superpod=superpod,
        is_bare=True,
    )


# Needed at each change of a node, but the text changes only when its agent starts.
@lru_cache(maxsize=16_384)
def inventory_of(text: str, product: Product) -> int | Unreadable:
    """Return the mask of the chips in `text`, the Node's annotation `baseDeviceInfos`.

    0 if the text is "".
    """
    if not text:
        return 0
    try:
        return chips.mask_of(inventory.parse(text, product))
    except WireError as error:
        return unreadable.of_text(error, product)
