"""What can happen to the cache, as values: seen, gone, promised, settled.

The watches, bind and the clock all speak to the cache in these words, so that any
order of events can be written down and replayed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from extender.cache.requests import A_PLACE, ENDLESS, Ask
from extender.gang.membership import Seat
from extender.gang.size import Size
from scheduler_core.products.table import Product
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Chips of one product that a node has."""

    product: Product
    #: chips that the kubelet offers
    allocatable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """The API server shows this node so; of one that was deleted, nothing is left."""

    name: str
    #: None: a node without NPUs of ours
    product: Product | None = None
    #: the annotation that lists the node's chips; "" if there is none
    inventory: str = ""
    #: chips that the kubelet offers
    allocatable: int = 0
    #: what else it offers
    room: Ask = ENDLESS
    #: its InternalIP, by which the leaf switches know it
    address: str = ""
    #: its SuperPoD as an annotation says it; -1: of none
    superpod: int = -1
    #: chips of other resources than its product's, each of another one
    beside: tuple[Offer, ...] = ()

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Its chips of each resource."""
        if self.product is None:
            return ()
        return Offer(product=self.product, allocatable=self.allocatable), *self.beside


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSeen:
    """The agent's ConfigMap of a node reads so; texts as found, "" if absent."""

    node: str
    device_info: str = ""
    affinity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchesSeen:
    """The ConfigMap of the leaf switches reads so; texts as found, "" if absent."""

    tor_info: str = ""
    tor_level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """The API server shows this pod so."""

    pod: NpuPod
    #: the kubelet refused to admit it
    rejected: bool = False
    #: what it asks for besides chips
    ask: Ask = A_PLACE
    #: None: it is a job by itself
    seat: Seat | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSeen:
    """A living pod that asks for no NPUs: it takes room, and may be of a job."""

    uid: str
    node: str
    ask: Ask
    #: its job, "" for none of several pods
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRead:
    """The object that made a job has been read."""

    job: str
    #: None: it does not say, or cannot be read
    size: Size | None
    #: why not
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGone:
    """The pod was deleted; its UID never comes back."""

    uid: str


class Assumed(NamedTuple):
    """A bind under way: these chips are promised until the pod shows, or the outcome.

    Keyed by the pod's UID: a pod of the same name is another pod. A tuple, because
    one is made for each pod of a job, of which there may be thousands.
    """

    uid: str
    node: str
    #: mask of the chips
    chips: int
    predicate_time: int
    shape: Shape
    #: whether no bind is under way yet: the place of a pod in the plan of its job
    planned: bool = False
    #: what the plan has bind write besides the chips
    extra: Mapping[str, str] = _NONE
    #: why the plan has it there
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomKept:
    """These chips are free, or will be, and are kept for a pod or a job."""

    #: UID of the pod, or the job
    owner: str
    #: whose chips they are
    resource: str
    #: {node: mask}
    chips: Mapping[str, int]
    #: the same for people, and who leaves for it
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomGivenUp:
    """What was kept for a pod or a job is anybody's."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """The bind of this pod has certainly not happened; its promise is void."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSet:
    """An operator has said who maintains the lists of free chips."""

    self_maintain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed."""

    #: what has been out of sight for too long, as a sentence names it; "" for nothing
    lost: str = ""
    #: whether all that there was has been read: what is new since came just then
    is_all_read: bool = False


Change = (
    NodeSeen
    | ReportSeen
    | SwitchesSeen
    | PodSeen
    | OtherSeen
    | SizeRead
    | PodGone
    | Assumed
    | Dropped
    | ModeSet
    | RoomKept
    | RoomGivenUp
    | Ticked
)
