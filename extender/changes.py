"""What can happen to the cache, as values: seen, gone, promised, settled.

The watches, bind and the clock all speak to the cache in these words, so that any
order of events can be written down and replayed.
"""

from dataclasses import dataclass

from scheduler_core.products import Product
from scheduler_core.shapes import Shape
from scheduler_core.wire.pods import NpuPod


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSeen:
    """The agent's ConfigMap of a node reads so; texts as found, "" if absent."""

    node: str
    device_info: str = ""
    affinity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """The API server shows this pod so."""

    pod: NpuPod
    #: the kubelet refused to admit it
    rejected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGone:
    """The pod was deleted; its UID never comes back."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """A bind under way: these chips are promised until the pod shows, or the outcome.

    Keyed by the pod's UID: a pod of the same name is another pod.
    """

    uid: str
    node: str
    #: mask of the chips
    chips: int
    predicate_time: int
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """The bind of this pod has certainly not happened; its promise is void."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed."""


Change = NodeSeen | ReportSeen | PodSeen | PodGone | Assumed | Dropped | Ticked
