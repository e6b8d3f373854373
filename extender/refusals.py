"""Why a pod is not placed or not bound: a closed set of reasons with sentences."""

from dataclasses import dataclass
from enum import StrEnum

from scheduler_core.node.reasons import Reason
from scheduler_core.wire.quote import quote_value


class ExtenderReason(StrEnum):
    """Reasons of the extender to refuse a node, besides those of `scheduler_core`.

    Both kinds of reason are values of the metric label `reason`.
    """

    POD = "pod"
    BACK_OFF = "back-off"
    OPEN_BIND = "open-bind"
    NOT_BEST = "not-best"
    JOB = "job"
    WATCH_DOWN = "watch-down"
    #: the chips are kept for others
    RESERVED = "reserved"
    #: chips of this or another node are being freed for the pod
    NOMINATED = "nominated"
    #: each node refuses a pod, for several reasons
    UNSCHEDULABLE = "unschedulable"
    #: the bind's outcome is not known yet, or another call for the pod is under way
    UNCLEAR = "unclear"
    #: the pod is deleted, or bound to another node
    GONE = "gone"
    BOUND_ELSEWHERE = "bound-elsewhere"
    #: the API server refused a request
    API = "api"
    #: this extender does not lead, or is stopping
    NOT_LEADING = "not-leading"
    STOPPING = "stopping"


#: Reasons for which the scheduler may search for pods to evict: the node has too few
#: free chips, or could serve the pod but another node fits better. For others the
#: search is useless. For example, kube-scheduler only counts chips, so it does not find
#: pods that block a ring.
RESOLVABLE = frozenset({Reason.TOO_FEW_FREE, ExtenderReason.NOT_BEST})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a pod cannot go to a node: a reason for programs and a text for people."""

    reason: Reason | ExtenderReason
    text: str

    @property
    def is_resolvable(self) -> bool:
        """Whether the scheduler may search for pods to evict because of it."""
        return self.reason in RESOLVABLE


def refuse_for_job(text: str) -> Refusal:
    """Return a refusal of a pod because of its job."""
    return Refusal(reason=ExtenderReason.JOB, text=text)


NOT_BEST = Refusal(reason=ExtenderReason.NOT_BEST, text="another node fits better")
OPEN_BIND = Refusal(
    reason=ExtenderReason.OPEN_BIND,
    text="an earlier bind of this pod has no known outcome yet",
)
#: Refusal of nodes other than the planned one.
ELSEWHERE = refuse_for_job("the job's plan has the pod on another node")
CLOSED = refuse_for_job("its node takes no pods now")
RESERVED_NODE = refuse_for_job("kept for a large job that has waited long")
UNSEEN = refuse_for_job("the pod is of a job and has not been seen yet")
#: Refusal of nodes whose chips preemption still frees for the pod or its job.
LEAVING = Refusal(
    reason=ExtenderReason.NOMINATED, text="pods are leaving to make room for it"
)
#: Refusal of nodes other than the one where preemption freed chips for the pod.
FREED = Refusal(
    reason=ExtenderReason.NOMINATED, text="chips of another node were freed for the pod"
)


def kept_for_others(node: str) -> Refusal:
    """Return the refusal of chips that were reserved for others in the meantime."""
    text = f"chips of {node} are kept for others"
    return Refusal(reason=ExtenderReason.RESERVED, text=text)


#: Text of a refusal while the size of the pod's job is being read.
READING = (
    "not decided yet: the extender still reads how many pods the job has; it is tried "
    "again by itself"
)


def describe_bad_size(key: str, text: str) -> str:
    """Return what the pods of a job say in place of their number, as a sentence.

    Args:
        key: Annotation that should have the number.
        text: Its value; "" if it is missing.
    """
    found = quote_value(text) if text else "none"
    return f"annotation {key}: expected a whole number of pods, found {found}"


def describe_missing_job(key: str) -> str:
    """Return what a pod lacks that says how many pods its job has, but not which job.

    Args:
        key: Annotation that should have the name.
    """
    return f"annotation {key}: expected the name of the job, found none"


def describe_lack(lacking: int, pods: int, unit: str) -> str:
    """Return for how many pods of its unit, such as a replica, a pod waits."""
    return f"waits for {lacking} of the {pods} pods of its {unit}"


def describe_parts(count: int, least: int, unit: str) -> str:
    """Return how many of the pods that a job needs are there with all of their unit."""
    return f"{count} of {least} pods are of a whole {unit}"


def describe_predecessor(name: str, index: str, node: str) -> str:
    """Return which pod must end before the next pod of its index may be bound.

    Args:
        name: Name of the pod that ends.
        index: Its index in the job, as its controller numbers the pods.
        node: Name of its node.
    """
    return (
        f"waits for pod {name} of the same rank (index {index}), which still ends on "
        f"{node}; if {node} is lost, delete that pod by force"
    )


def describe_clock(node: str, ahead_s: float) -> str:
    """Return how far the clock of a node is ahead of ours; below 0 it is behind."""
    minutes, order = round(abs(ahead_s) / 60), "ahead of" if ahead_s > 0 else "behind"
    return f"the clock of {node} is {minutes} min {order} the extender's"


ENDING = Refusal(reason=ExtenderReason.POD, text="the pod is ending")
#: Refusals of a bind, apart from those of its chips.
STOPPING = Refusal(reason=ExtenderReason.STOPPING, text="the extender is stopping")
GONE = Refusal(reason=ExtenderReason.GONE, text="the pod is gone")
NOT_BOUND = Refusal(reason=ExtenderReason.UNCLEAR, text="the pod is not bound")
UNDER_WAY = Refusal(
    reason=ExtenderReason.UNCLEAR, text="a bind of this pod is under way"
)
UNKNOWN = Refusal(
    reason=ExtenderReason.UNCLEAR,
    text="the API server gave no clear answer to the bind; it is looked into",
)
