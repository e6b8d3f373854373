"""What a node's ConfigMap says of its chips of one product, as masks."""

from dataclasses import dataclass

from scheduler_core.node import chips
from scheduler_core.products.table import Product
from scheduler_core.wire import deviceinfo
from scheduler_core.wire.addresses import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The agent's ConfigMap of a node, as masks of chips."""

    unfit: int
    available: int
    held: int
    releasing: int
    lost: int
    #: healthy themselves, but not their network
    network_unfit: int = 0
    #: whether this make of agent says what is held at all
    has_holds: bool
    #: seconds since the epoch, the agent's clock
    update_time: int
    #: id of the SuperPoD that the node is of; negative: of none
    superpod: int = -1
    #: which server of it; negative: unknown
    server_index: int = UNKNOWN
    #: nobody has written it: it follows from the Node of a server without an agent
    is_bare: bool = False


def report_of(device_info: str, affinity: str, product: Product) -> Report:
    """Read the ConfigMap of a node.

    Args:
        device_info: text of `DeviceInfoCfg`.
        affinity: text of `AscendAffinity`; "" from another make of agent, which
            publishes no holds: then nothing of it is subtracted.
        product: the node's, or of one of its lines; what is said of others is not read.

    Raises:
        WireError: what is wrong, and where.
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
        has_holds=ours is not None,
        update_time=info.update_time,
        superpod=info.super_pod_id,
        server_index=info.server_index,
    )


def of_bare_node(product: Product, superpod: int) -> Report:
    """What an agent would say of a server that has none, with nothing held.

    Args:
        product: the node's, or of one of its lines.
        superpod: as the Node says it; negative: of none.
    """
    return Report(
        unfit=0,
        available=product.all_chips,
        held=0,
        releasing=0,
        lost=0,
        has_holds=False,
        update_time=0,
        superpod=superpod,
        is_bare=True,
    )
