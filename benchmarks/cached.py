"""A node of eight chips and its agent's report, as an extender's cache learns them."""

from extender.cache import events
from extender.cache.cache import Cache
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import deviceinfo, inventory
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo


def learn(cache: Cache, name: str, told: DeviceInfo, affinity: Affinity) -> None:
    """Put a node into the cache.

    Args:
        cache: of the extender that is measured.
        name: of the node.
        told: what its agent says of its chips; at that time it is learnt.
        affinity: which of them it says are held.
    """
    now_s = float(told.update_time)
    texts = deviceinfo.render(told, affinity, PRODUCT)
    node = events.NodeUpdated(
        name=name,
        offers=(
            events.Offer(resource=PRODUCT.resource, product=PRODUCT, allocatable=8),
        ),
        inventory=inventory.render(range(8), PRODUCT),
    )
    report = events.ReportUpdated(
        node=name,
        device_info=texts[deviceinfo.DEVICE_INFO_KEY],
        affinity=texts[deviceinfo.AFFINITY_KEY],
    )
    cache.step(node, now_s)
    cache.step(report, now_s)
