"""Content of `mindx-dl-deviceinfo-<node>`: masks of the chips of a resource, faults."""

from dataclasses import dataclass

from scheduler_core.node import chips
from scheduler_core.products.table import Product
from scheduler_core.wire import chip_faults, deviceinfo
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

    Args:
        device_info: Text of the key `DeviceInfoCfg`.
        affinity: Text of the key `AscendAffinity`; "" if another device plugin wrote
            the ConfigMap. If it is "", no chip counts as held, releasing or lost.

    Raises:
        WireError: A text is malformed; the message says where.
    """
    info = deviceinfo.parse_device_info(device_info, product)
    ours = deviceinfo.parse_affinity(affinity, product) if affinity else None
    return Report(
        unfit=chips.mask_of((*info.unhealthy, *info.recovering)),
        available=chips.mask_of(info.available),
        held=chips.mask_of(ours.held) if ours else 0,
        releasing=chips.mask_of(ours.releasing) if ours else 0,
        lost=chips.mask_of(ours.lost) if ours else 0,
        network_unfit=chips.mask_of(info.network_unhealthy),
        faults=chip_faults.chip_faults(info),
        has_holds=ours is not None,
        update_time=info.update_time,
        superpod=info.super_pod_id,
        server_index=info.server_index,
    )


def faults_of(device_info: str, product: Product) -> tuple[ChipFault, ...]:
    """Parse the faults in a text `DeviceInfoCfg` whose list of faults may be malformed.

    Raises:
        WireError: A list of chips is malformed; the message says where.
    """
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
