"""What a job says about faults of its chips: whether its pods may move, and how many.

Labels and annotations of the pods say it, or those of their PodGroup, to which
MindCluster's operators copy the labels of the job. The PodGroup counts where it says
something. Values are never joined: pods that contradict each other do not move.

Source:
    MindCluster's ascend-for-volcano, `internal/rescheduling` (at 22bb3d98).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from extender.gang import membership
from extender.gang.membership import Member, Membership
from kube.objects import Pod
from scheduler_core.rescheduling.ladder import Rung
from scheduler_core.wire.quote import quote_value

#: Label that switches it on.
FAULT_SCHEDULING = "fault-scheduling"
#: Label of jobs whose fault pods go alone at first.
POD_RESCHEDULING = "pod-rescheduling"
#: Label of jobs whose processes recover by themselves: only fault pods go.
PROCESS_RECOVERY = "process-recover-enable"
#: Annotation of jobs of which never more than the fault pods go.
POLICY_PATH = "huawei.com/recover_policy_path"
#: Labels and annotations that have no effect yet.
RETRY_TIMES = "fault-retry-times"
RECOVER_STRATEGY = "recover-strategy"
SUB_HEALTHY_STRATEGY = "subHealthyStrategy"
#: Annotation with which a platform says that it recovers the job itself.
PLATFORM_STRATEGY = "ProcessRecoverStrategy"

#: Name of the scheduler whose pods are only reported.
_VOLCANO = "volcano"
#: {key: values that have an effect, or are the default}
_VALUES: Mapping[str, tuple[str, ...]] = {
    FAULT_SCHEDULING: ("grace", "force", "off"),
    POD_RESCHEDULING: ("on", "off"),
    PROCESS_RECOVERY: ("on", "pause", "off"),
    POLICY_PATH: ("pod",),
}
#: Values of `FAULT_SCHEDULING` for jobs that others move.
_EXTERNAL = ("external-force", "external-grace")
#: {key without effect yet: its value that asks for nothing}
_UNSERVED: Mapping[str, str] = {
    RETRY_TIMES: "0",
    RECOVER_STRATEGY: "",
    SUB_HEALTHY_STRATEGY: "ignore",
}
_KEYS = (*_VALUES, *_UNSERVED, PLATFORM_STRATEGY)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWishes:
    """What one pod says about faults of its chips."""

    #: {key: value} of labels and annotations
    texts: Mapping[str, str]
    #: whether Volcano schedules the pod
    is_of_volcano: bool = False
    #: the pod as the only member of a job, if it is a job by itself
    alone: Member | None = None


class Switch(StrEnum):
    """Whether pods of a job move after faults, and how they end."""

    OFF = "off"
    #: by eviction, with the pods' own grace
    GRACE = "grace"
    #: at once
    FORCE = "force"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPolicy:
    """What a job says about faults of its chips."""

    switch: Switch = Switch.OFF
    #: whether its fault pods go alone at first
    is_by_pod: bool = False
    #: whether never more than its fault pods go
    is_pods_only: bool = False
    #: why its pods never move, though it says something; "" otherwise
    problem: str = ""
    #: what of it has no effect, in sentences
    remarks: tuple[str, ...] = field(default_factory=tuple)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """Which pods may go, the fewest first.

        A job that says nothing of it goes as a whole, as under MindCluster: its healthy
        pods would wait for the lost one, most of all for that with rank 0.
        """
        if self.is_pods_only:
            return (Rung.PODS,)
        return (Rung.PODS, Rung.JOB) if self.is_by_pod else (Rung.JOB,)


def read_wishes(pod: Pod, member: Member | None) -> FaultWishes | None:
    """Return what a pod says about faults of its chips; None if it says nothing.

    Args:
        member: The pod in its job; None if it is a job by itself.
    """
    meta = pod.metadata
    texts = select(meta.labels or {}, meta.annotations or {})
    if not texts:
        return None  # most pods of a cluster
    alone = None
    if member is None:
        job = Membership(job=f"Pod/{meta.namespace}/{meta.name}", size=1)
        alone = membership.member_of(pod, job)
    return FaultWishes(
        texts=texts,
        is_of_volcano=pod.spec.scheduler_name == _VOLCANO,
        alone=alone,
    )


def select(
    labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Mapping[str, str]:
    """Return {key: value} of what these say about faults; labels before annotations."""
    return {
        key: labels.get(key) or annotations[key]
        for key in _KEYS
        if labels.get(key) or annotations.get(key)
    }


def policy_of(
    pods: Iterable[Mapping[str, str]], group: Mapping[str, str] | None = None
) -> FaultPolicy:
    """Return what a job says about faults of its chips.

    Args:
        pods: What each of its pods says; empty for those that say nothing.
        group: What its PodGroup says; None if it has none.
    """
    values: dict[str, set[str]] = {}
    for wishes in pods:
        for key, text in wishes.items():
            values.setdefault(key, set()).add(text)
    counted = {key: text for key, (text, *more) in values.items() if not more}
    texts = counted | dict(group or {})
    if FAULT_SCHEDULING not in texts and FAULT_SCHEDULING not in values:
        return FaultPolicy()
    if texts.get(FAULT_SCHEDULING) == "off":
        return FaultPolicy()
    contradictions = [
        _describe_contradiction(key, stated)
        for key, stated in values.items()
        if key not in texts and key not in _UNSERVED
    ]
    problem = min(contradictions, default="") or _find_problem(texts)
    return FaultPolicy(
        switch=Switch.OFF if problem else Switch(texts[FAULT_SCHEDULING]),
        is_by_pod=texts.get(POD_RESCHEDULING) == "on",
        is_pods_only=texts.get(PROCESS_RECOVERY) == "on" or POLICY_PATH in texts,
        problem=problem,
        remarks=(
            *(
                _describe_other(key, texts[key], stated)
                for key, stated in values.items()
                if key in texts and stated != {texts[key]}
            ),
            *(
                f"{key}={quote_value(texts[key])} is not served yet"
                for key, idle in _UNSERVED.items()
                if texts.get(key, idle) != idle
            ),
        ),
    )


def _find_problem(texts: Mapping[str, str]) -> str:
    """Return why a job with these labels and annotations never moves; "" if it may."""
    if texts.get(FAULT_SCHEDULING) in _EXTERNAL:
        found = texts[FAULT_SCHEDULING]
        return f"{FAULT_SCHEDULING}={found} is not served yet: others move the job"
    if PLATFORM_STRATEGY in texts:
        return f"{PLATFORM_STRATEGY} is not served yet: a platform moves the job"
    for key, allowed in _VALUES.items():
        text = texts.get(key, allowed[0])
        if text not in allowed:
            expected, found = " or ".join(allowed), quote_value(text)
            return f"{key}: expected {expected}, found {found}"
    return ""


def _describe_contradiction(key: str, stated: Iterable[str]) -> str:
    found = " and ".join(map(quote_value, sorted(stated)))
    return f"{key}: expected one value for all pods of the job, found {found}"


def _describe_other(key: str, counted: str, stated: Iterable[str]) -> str:
    found = " and ".join(map(quote_value, sorted(stated)))
    return f"{key}={quote_value(counted)} of the PodGroup counts, not {found} of pods"
