"""Nodes with chips of several product lines, and pods that ask for one of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from extender.cache import events
from extender.cache.cache import Cache
from scheduler_core.products.table import ATLAS_800_TRAINING, Product, by_key
from scheduler_core.wire import annotations, deviceinfo, inventory
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from scheduler_core.wire.pods import NpuPod, PodMeta, RawContainer, npu_pod
from tests.extender.clusters import NOW_S, apply
from tests.joined import joined

CARDS = by_key("atlas-310p")
CARD = CARDS.resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a node says of its chips of one product."""

    product: Product
    there: tuple[int, ...]
    held: tuple[int, ...] = ()
    releasing: tuple[int, ...] = ()
    unhealthy: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()

    @property
    def offer(self) -> events.Offer:
        return events.Offer(product=self.product, allocatable=len(self.there))


#: Eight chips for training, and two cards for inference whose ids come after them.
TRAINING = Line(product=ATLAS_800_TRAINING, there=tuple(range(8)))
INFERENCE = Line(product=CARDS, there=(8, 9))
BOTH = (TRAINING, INFERENCE)


def node_of(name: str, *lines: Line) -> events.NodeUpdated:
    first, *others = lines
    listed = [inventory.render(line.there, line.product) for line in lines]
    return events.NodeUpdated(
        name=name,
        product=first.product,
        allocatable=first.offer.allocatable,
        inventory=joined(listed),
        other_offers=tuple(line.offer for line in others),
    )


def texts_of(*lines: Line, update_time: float = NOW_S) -> dict[str, str]:
    """The data of a node's ConfigMap."""
    each = [
        deviceinfo.render(
            DeviceInfo(
                available=line.there,
                unhealthy=line.unhealthy,
                update_time=int(update_time),
            ),
            Affinity(
                held=line.held, releasing=line.releasing, lost=line.lost, sequence=1
            ),
            line.product,
        )
        for line in lines
    ]
    keys = (deviceinfo.DEVICE_INFO_KEY, deviceinfo.AFFINITY_KEY)
    return {key: joined([texts[key] for texts in each]) for key in keys}


def report_of(
    name: str, *lines: Line, update_time: float = NOW_S
) -> events.ReportUpdated:
    texts = texts_of(*lines, update_time=update_time)
    return events.ReportUpdated(
        node=name,
        device_info=texts[deviceinfo.DEVICE_INFO_KEY],
        affinity=texts[deviceinfo.AFFINITY_KEY],
    )


def lined(*extra: events.Change, names: Iterable[str] = ("n1",)) -> Cache:
    """A cluster of nodes that have chips of both lines."""
    cache = Cache()
    for name in names:
        apply(cache, node_of(name, *BOTH), report_of(name, *BOTH))
    apply(cache, *extra)
    return cache


def asking(
    name: str,
    of: Line,
    count: int = 1,
    *,
    node: str = "",
    ids: Iterable[int] = (),
    time: int = annotations.SERVED,
) -> NpuPod:
    """A pod that asks for chips of a line; with `ids` it has them."""
    resource, ids = of.product.resource, tuple(ids)
    claimed = {
        resource: annotations.render_chips(ids, of.product),
        annotations.PREDICATE_TIME: str(time),
    }
    found = npu_pod(
        PodMeta(
            uid=f"uid-{name}",
            namespace="default",
            name=name,
            node=node,
            phase="Running" if node else "Pending",
            annotations=claimed if ids else {},
        ),
        [RawContainer(name="c", limits={resource: str(len(ids) or count)})],
        resource,
    )
    assert found is not None
    return found


def living(
    name: str, of: Line, ids: Iterable[int], where: str = "n1"
) -> events.PodUpdated:
    """A pod that runs and has these chips."""
    return events.PodUpdated(pod=asking(name, of, node=where, ids=ids))
