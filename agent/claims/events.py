"""Events that change the ledger, and the effects that follow from a change.

Events are facts that the caller has already parsed. The plugin carries out the effects
that answer the kubelet. The announcer carries out the others, and counts refusals. No
effect asks for a new device list, ConfigMap or pod annotation. The agent computes these
from the ledger after each event (`occupancy.list_devices`, `annotations`) and writes
those that have changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.claims.values import Hold
from scheduler_core.wire.pods import NpuPod


@dataclass(frozen=True, slots=True)
class PodUpdated:
    """Event: the API server, or the kubelet's `/pods`, shows a pod of this node."""

    pod: NpuPod
    by_kubelet: bool = False  #: from the kubelet's list, not the API server


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """Event: the API server no longer has the pod with this uid."""

    uid: str


@dataclass(frozen=True, slots=True)
class ChipsRead:
    """Event: the driver reported which chips are unhealthy and which have processes."""

    #: mask: chips that are out of service, or cut into virtual devices
    unhealthy: int
    busy: int  #: mask: chips that have processes and are not cut
    #: loop time at which this look at the chips began; seconds
    began_s: float
    #: mask: chips that this look could not read, and one within `conditions.UNREAD_S`
    #: could. Their values are of that one
    unread: int = 0


@dataclass(frozen=True, slots=True)
class ChipsUnreadable:
    """Event: no chip could be read for `conditions.UNREAD_S`."""


@dataclass(frozen=True, slots=True)
class StrayProcessesRead:
    """Event: the kernel showed which processes deleted pods have left behind."""

    uids: frozenset[str]  #: of the pods whose processes were read
    #: {uid: pids} of the pods with processes left; empty pids: not certain
    pids: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ForeignRead:
    """Event: pod-resources showed which pods have chips through another plugin."""

    chips: Mapping[int, str]  #: as `Ledger.foreign`


@dataclass(frozen=True, slots=True)
class PreferenceAsked:
    """Event: the kubelet asks by GetPreferredAllocation which free ids to take."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class AllocateAsked:
    """Event: the kubelet called Allocate with these ids for an unnamed container."""

    kubelet_ids: tuple[str, ...]
    #: the wait for a claim is over: grant or refuse now
    last_call: bool
    #: time since the watch of the API server broke off; seconds, 0 while it works
    unseen_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Registering:
    """Event: the plugin is about to register with a kubelet that may know no ids."""

    kubelet: object  #: identity of the kubelet process; None: not known


@dataclass(frozen=True, slots=True)
class ResourcesRead:
    """Event: pod-resources answered about one pod."""

    uid: str
    #: {container: its device ids}; None: the kubelet does not know the pod
    containers: Mapping[str, frozenset[str]] | None
    as_of: int  #: `Ledger.sequence` when the reading began
    until: int  #: `Ledger.sequence` when it ended
    quiet: bool  #: no Allocate was under way from its beginning to its end
    #: identity of the kubelet process that answered; another one may have forgotten
    #: all ids. None: not known
    kubelet: object = None


#: {(namespace, pod, container): its device ids}
InUse = Mapping[tuple[str, str, str], frozenset[str]]


@dataclass(frozen=True, slots=True)
class PassEnded:
    """Event: the reconciler has asked pod-resources about all pods of one pass.

    A pass is one round of questions. `confirm.pods_to_read` lists its pods.
    """

    quiet: bool  #: no Allocate was under way during the pass
    #: all containers that pod-resources lists; None: List was not called
    in_use: InUse | None = None


Event = (
    PodUpdated
    | PodDeleted
    | ChipsRead
    | ChipsUnreadable
    | StrayProcessesRead
    | ForeignRead
    | PreferenceAsked
    | Registering
    | AllocateAsked
    | ResourcesRead
    | PassEnded
)


class Identity(StrEnum):
    """How the pod of an Allocate was identified.

    Each value is a value of the label `identity` of the metric
    `ascend_agent_allocate_identity_total`.
    """

    STEERED = "steered"  #: the kubelet took the ids that we preferred
    OLDEST = "oldest"  #: other ids; the oldest claim with that count was served
    CORRECTED = "corrected"  #: another pod of equal shape was served: slots swapped
    RECHOSEN = "rechosen"  #: chips of the claim were not available; others were given


@dataclass(frozen=True, slots=True)
class Granted:
    """Effect: store this hold in the journal, then answer Allocate with its chips."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Preferred:
    """Effect: answer GetPreferredAllocation with these ids.

    They are fewer than the kubelet asked for if no claim can be served, or if the
    kubelet has not offered the ids of the claim's chips.
    """

    kubelet_ids: tuple[str, ...]
    #: no claim of this size is known yet: the caller should wait for one
    claim_missing: bool
    #: the ids are right if a look shows no process on chips whose pods have just ended:
    #: the caller should ask the driver for a look and wait for it
    look_missing: bool = False


@dataclass(frozen=True, slots=True)
class AwaitClaim:
    """Effect: wait for a claim, since none fits yet."""


@dataclass(frozen=True, slots=True)
class AwaitLook:
    """Effect: ask the driver for a look, and wait for it.

    Only this look is missing: chips of pods that have just ended would serve the
    Allocate if no process is on them.
    """


@dataclass(frozen=True, slots=True)
class Refused:
    """Effect: fail Allocate with this text; `kubectl describe pod` shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class Counted:
    """Effect: count in a metric how the pod of an Allocate was identified."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Noted:
    """Effect: write a log line and emit a Kubernetes event on the pod with this uid."""

    uid: str  #: of the pod concerned; "" for none in particular
    reason: str  #: CamelCase, the event's reason
    text: str


Effect = Granted | Preferred | AwaitClaim | AwaitLook | Refused | Counted | Noted
