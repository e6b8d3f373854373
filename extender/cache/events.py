"""Events that change the cache, as immutable values.

They come from watches, the verbs of schedulers, plans of jobs, preemption and the
clock. As values, they can be recorded and replayed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from extender.cache.requests import ONE_POD, UNBOUNDED, Resources
from extender.cache.reservations import (
    Beneficiary,
    NodeReservation,
    Owner,
    Reservation,
)
from extender.gang import events as gang_events
from extender.gang.fault_policy import FaultWishes
from extender.gang.generations import UNKNOWN, Generation
from extender.gang.membership import Member, Membership
from extender.gang.size import Size
from kube.objects import Taint
from scheduler_core.products.table import Product
from scheduler_core.wire.pods import NpuPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A resource of a node, and the number of its chips in the Node's allocatable."""

    resource: str
    #: row that the Node alone means; None if it means none
    product: Product | None
    #: number of chips in the Node's allocatable
    allocatable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUpdated:
    """The event that a Kubernetes Node was added, changed or deleted.

    For a deleted Node all fields except `name` have their defaults.
    """

    name: str
    #: chips of each resource of the node; empty: it has no NPUs that we serve
    offers: tuple[Offer, ...] = ()
    #: annotation that lists the node's chips; "" if absent
    inventory: str = ""
    #: CPU, memory and pod places of the node
    allocatable_resources: Resources = UNBOUNDED
    #: InternalIPs of the node; the ConfigMap of leaf switches uses one of them
    internal_ips: tuple[str, ...] = ()
    #: SuperPoD id from an annotation; -1: none
    superpod: int = -1
    labels: Mapping[str, str] = field(default_factory=dict)
    #: with `kube.objects.UNSCHEDULABLE` if it takes no pods now
    taints: tuple[Taint, ...] = ()
    #: stands for labels and taints, another number if they differ; 0: there are none
    marks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportUpdated:
    """The event that a ConfigMap `mindx-dl-deviceinfo-<node>` was written or deleted.

    `device_info` and `affinity` are its texts `DeviceInfoCfg` and `AscendAffinity`.
    Each is "" if the ConfigMap lacks that text or was deleted.
    """

    node: str
    device_info: str = ""
    affinity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchesUpdated:
    """The event that ConfigMap `basic-tor-node-cm` was added, changed or deleted.

    The ConfigMap lists the leaf switches. `tor_info` and `tor_level` are two of its
    texts. Each is "" if the ConfigMap lacks that text or was deleted.
    """

    tor_info: str = ""
    tor_level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUpdated:
    """The event that a pod with NPUs was added or changed."""

    pod: NpuPod
    #: whether the kubelet rejected it at admission
    rejected: bool = False
    #: requests besides chips
    ask: Resources = ONE_POD
    #: None: the pod is a job by itself
    member: Member | None = None
    #: job that counts it and does not plan it: that of a pod with a part of a chip
    other_membership: Membership | None = None
    priority: int = 0
    #: row that its metadata names; None: the node decides
    row: Product | None = None
    #: what it says about faults of its chips; None: nothing
    wishes: FaultWishes | None = None
    #: whether a controller has yet to count how it ends, and keeps it until then
    is_uncounted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPodUpdated:
    """The event that a living pod without NPUs was added or changed.

    The pod uses CPU and memory of its node, and may be a member of a job.
    """

    uid: str
    node: str
    ask: Resources
    #: its job; "" if it is in none of several pods
    job: str = ""
    #: which of the pods of that job it is of, and its creationTimestamp
    generation: Generation = UNKNOWN
    created: str = ""
    #: whether it is being deleted
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRead:
    """The event that reading a job's size from the API server has succeeded or failed.

    The size is in an object such as a JobSet or a PodGroup.
    """

    job: str
    #: None: the object does not say it, or cannot be read
    size: Size | None
    #: why the size is None; "" otherwise
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeleted:
    """The event that a pod was deleted, or a pod without NPUs failed or succeeded."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReserved:
    """The event that a job has a plan, whose chips are to be reserved: all, or none."""

    job: str
    #: one for each of its unbound pods
    reservations: tuple[Reservation, ...]
    #: {kind of its members: nodes that the scheduler had offered to it}
    lists: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The event that the owner of a reservation ends it.

    Create it for a pod only if no bind with this reservation can still succeed.
    """

    kept_for: Beneficiary
    owner: Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class BindVoided:
    """The event that a bind or an allocation of a pod has certainly not happened.

    If the pod is in the plan of its job, the plan keeps the chips for a later bind.
    Otherwise the chips become free.
    """

    uid: str
    #: whether the pod is deleted, which the pod watch may not show yet
    is_gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationsSwapped:
    """The event that two pods of a job exchange their nodes and chips.

    The pod `other_uid` is planned. If `uid` is not, `other_uid` has no plan any more.
    """

    uid: str
    other_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfMaintainSet:
    """The event that settings were changed; it has `self-maintain-available-card`.

    If False, a free chip must be in the agent's list of available chips. If True, this
    list is not used.
    """

    self_maintain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """The event that time has passed, so that back-offs and time limits may end."""

    #: kinds of objects whose watch is down for too long; "" if none is
    lost: str = ""


_NodeShown = NodeUpdated | ReportUpdated | SwitchesUpdated
#: Events about a pod that watches deliver.
PodShown = PodUpdated | OtherPodUpdated | PodDeleted
#: Events that watches deliver.
Shown = _NodeShown | PodShown
#: Events about nodes, leaf switches and settings.
NodeFact = _NodeShown | SelfMaintainSet
#: Events about pods and the sizes of their jobs.
PodFact = PodShown | SizeRead
#: Events about reservations, apart from those that reserve chips.
Decision = NodeReservation | Released | BindVoided | ReservationsSwapped

#: Events that reserve chips; a conflict answers them if others have some of these.
Wanted = Reservation | JobReserved

Change = NodeFact | PodFact | Decision | Wanted | Ticked | gang_events.Event


class Ended(Enum):
    """Why a reservation ended without a request of its owner."""

    #: the pod watch shows the pod bound: its annotations keep the chips now
    CONFIRMED = auto()
    #: the pod has failed, succeeded or been deleted; or its job has no pods left
    GONE = auto()
    #: its time was over, or its beneficiary cannot use the chips any more
    EXPIRED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationEnded:
    """The effect that the owner of a reservation learns that it has ended."""

    reservation: Reservation
    why: Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationDue:
    """The effect that the owner of a reservation finds out whether to end it.

    The reservation is renewed until then, because its pod may be bound yet.
    """

    reservation: Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesImproved:
    """The effect that schedulers try refused pods again: these nodes offer more."""

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportJudged:
    """The effect that people learn whether the NPU report of a node can be read."""

    node: str
    resource: str
    #: what cannot be read, and where it is wrong; "" if it can be read again
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJudged:
    """The effect that people learn whether a node's clock agrees with ours."""

    node: str
    #: seconds by which it is ahead; below 0: behind; 0: it agrees again
    ahead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsChanged:
    """The effect that pods of a node may move: faults of its chips came, or went."""

    node: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceCleared:
    """The effect that nothing occupies chips that are kept for successors of pods.

    It comes each time that the node changes, while it is so.
    """

    #: key of the job, or UID of a pod that was a job by itself
    kept_for: Beneficiary


Effect = (
    gang_events.Effect
    | ReservationEnded
    | ReservationDue
    | NodesImproved
    | ReportJudged
    | ClockJudged
    | FaultsChanged
    | PlaceCleared
)
