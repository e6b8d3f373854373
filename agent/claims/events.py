"""What can happen to the ledger, and what it asks to be done.

Events are facts that somebody else has already parsed; effects are carried out
by the plugin, the reconciler and the metrics. Journal, device list, ConfigMap
and annotations are no effects: each is a function of the state
(`ledger.entries`, `occupancy.devices`, `annotations`), compared after each step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.claims.values import Hold
from scheduler_core.wire.pods import NpuPod


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The API server shows a pod of this node."""

    pod: NpuPod
    by_kubelet: bool = False  #: it was the kubelet's own list instead


@dataclass(frozen=True, slots=True)
class PodGone:
    """The API server has no pod of this uid any more."""

    uid: str


@dataclass(frozen=True, slots=True)
class ChipsRead:
    """The driver was read: which chips are unusable, which have processes."""

    unhealthy: int  #: mask
    busy: int  #: mask


@dataclass(frozen=True, slots=True)
class LeftRead:
    """The kernel was asked which processes pods have left that have gone."""

    uids: frozenset[str]  #: of these pods
    #: {uid: pids} of those that have left some, or may have
    found: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class PreferenceAsked:
    """The kubelet asks which of its free ids we would like to see."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class AllocateAsked:
    """The kubelet gives these ids to some container."""

    kubelet_ids: tuple[str, ...]
    #: nothing more will be learnt by waiting: decide now
    last_call: bool
    #: for how long the API server has not been followed; seconds, 0 if it is
    unseen_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ResourcesRead:
    """pod-resources was asked about one pod."""

    uid: str
    #: {container: its device ids}; None: the kubelet does not know the pod
    containers: Mapping[str, frozenset[str]] | None
    as_of: int  #: `Ledger.sequence` when the reading began
    until: int  #: `Ledger.sequence` when it ended
    quiet: bool  #: no Allocate was under way from its beginning to its end


#: {(namespace, pod, container): its device ids}
InUse = Mapping[tuple[str, str, str], frozenset[str]]


@dataclass(frozen=True, slots=True)
class PassEnded:
    """Every pod of `confirm.wants_reading` was read in this pass."""

    quiet: bool  #: no Allocate was under way during the pass
    #: all that pod-resources lists; None: it was not asked for all
    in_use: InUse | None = None


Event = (
    PodSeen
    | PodGone
    | ChipsRead
    | LeftRead
    | PreferenceAsked
    | AllocateAsked
    | ResourcesRead
    | PassEnded
)


class Identity(StrEnum):
    """How the pod of an Allocate was known; a metric label."""

    STEERED = "steered"  #: the kubelet took the ids that we preferred
    OLDEST = "oldest"  #: other ids; the oldest claim with that count was served
    CORRECTED = "corrected"  #: another pod of equal shape was served: swapped
    RECHOSEN = "rechosen"  #: the claim's chips could not be given; others were


@dataclass(frozen=True, slots=True)
class Granted:
    """Answer Allocate with the chips of this hold, once it is in the journal."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Preferred:
    """Answer GetPreferredAllocation with these ids (may be fewer, or none)."""

    kubelet_ids: tuple[str, ...]
    #: no claim of this size is known yet: worth waiting for one
    claim_missing: bool


@dataclass(frozen=True, slots=True)
class AwaitClaim:
    """No claim fits yet; it may be on its way."""

    count: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Fail Allocate; the text ends in `kubectl describe pod`."""

    text: str


@dataclass(frozen=True, slots=True)
class Counted:
    """Count how a pod's identity was known."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Noted:
    """Tell the people who look after the node (log, event on the pod)."""

    uid: str  #: the pod that it is about; "" = none in particular
    reason: str  #: CamelCase, the event's reason
    text: str


Effect = Granted | Preferred | AwaitClaim | Refused | Counted | Noted
