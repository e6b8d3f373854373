"""Events that change the cache, as values.

Watches, bind and the clock all use these classes. Any order of events can therefore be
written down and replayed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from extender.cache.requests import ONE_POD, UNBOUNDED, Resources
from extender.gang.membership import Member
from extender.gang.size import Size
from scheduler_core.products.table import Product
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Chips of one product that a node has."""

    product: Product
    #: number of chips in the Node's allocatable
    allocatable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUpdated:
    """A Node was added or changed. A deleted Node is an update with defaults only."""

    name: str
    #: None: the node has no NPUs that we serve
    product: Product | None = None
    #: annotation that lists the node's chips; "" if absent
    inventory: str = ""
    #: number of chips in the Node's allocatable
    allocatable: int = 0
    #: CPU, memory and pod slots of the node
    allocatable_resources: Resources = UNBOUNDED
    #: InternalIP of the node; the ConfigMap of leaf switches uses it
    address: str = ""
    #: SuperPoD id from an annotation; -1: none
    superpod: int = -1
    #: chips of the node's further resources, one entry for each
    other_offers: tuple[Offer, ...] = ()

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The node's chips of each resource."""
        if self.product is None:
            return ()
        return Offer(
            product=self.product, allocatable=self.allocatable
        ), *self.other_offers


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportUpdated:
    """The agent's ConfigMap of a node was changed.

    A text is "" if its key is absent.
    """

    node: str
    device_info: str = ""
    affinity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchesUpdated:
    """The ConfigMap of leaf switches was changed. A text is "" if its key is absent."""

    tor_info: str = ""
    tor_level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUpdated:
    """A pod that asks for NPUs was added or changed."""

    pod: NpuPod
    #: whether the kubelet rejected it at admission
    rejected: bool = False
    #: requests besides chips
    ask: Resources = ONE_POD
    #: None: the pod is a job by itself
    member: Member | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPodUpdated:
    """A living pod without NPUs was added or changed.

    It uses CPU, and may be of a job.
    """

    uid: str
    node: str
    ask: Resources
    #: its job; "" if it is in none of several pods
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRead:
    """The object that created a job was read from the API server."""

    job: str
    #: None: the object does not say it, or cannot be read
    size: Size | None
    #: why the size is None; "" otherwise
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeleted:
    """A pod was deleted. Its UID never returns."""

    uid: str


class Reservation(NamedTuple):
    """Chips of a node that are reserved for one pod until its bind is decided.

    The key is the pod's UID: another pod of the same name is another pod. It is a tuple
    because a plan makes one for each pod of a job, and a job may have thousands.
    """

    uid: str
    node: str
    #: mask of the chips
    chips: int
    predicate_time: int
    shape: Shape
    #: True: from a plan or preemption, before any bind was sent
    planned: bool = False
    #: annotations that bind writes besides the chips
    extra: Mapping[str, str] = _NONE
    #: why this node and these chips, for people
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominated:
    """Chips that preemption frees are reserved for a pod or a job."""

    #: UID of the pod, or the job
    owner: str
    #: resource of the chips
    resource: str
    #: {node: mask}
    chips: Mapping[str, int]
    #: chips and victims, for people
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NominationCleared:
    """Chips that preemption had reserved are available to all again."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreserved:
    """A pod's bind has certainly not happened. Its reservation ends."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfMaintainSet:
    """The setting `self-maintain-available-card` was changed."""

    self_maintain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed."""

    #: kinds of objects whose watch is down for too long; "" if none is
    lost: str = ""
    #: whether the first list of everything is complete
    is_all_read: bool = False


Change = (
    NodeUpdated
    | ReportUpdated
    | SwitchesUpdated
    | PodUpdated
    | OtherPodUpdated
    | SizeRead
    | PodDeleted
    | Reservation
    | Unreserved
    | SelfMaintainSet
    | Nominated
    | NominationCleared
    | Ticked
)
