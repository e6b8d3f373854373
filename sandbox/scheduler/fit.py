"""Does a pod fit a node by what the scheduler itself knows, and if not, why?

The in-tree filters that matter for extended resources, in their order, and the
text in which reasons of all nodes are told to the user.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.apiclient import Object
from sandbox.pods import Pod
from scheduler_core.wire import quantities

_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why one node does not take a pod."""

    reasons: tuple[str, ...]
    #: whether evicting other pods cannot help
    is_unresolvable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the pods of a node ask for."""

    pods: int
    requests: Mapping[str, int]


def misfit(pod: Pod, node: Object, load: Load) -> Misfit | None:
    """Return why the node does not take the pod; None if it does.

    As in the real one, the first filter that says no is the only one that
    speaks.
    """
    spec = node.get("spec") or {}
    untolerated = _untolerated(pod, spec.get("taints") or ())
    if spec.get("unschedulable") and not untolerated:
        untolerated = not _tolerates(pod, _UNSCHEDULABLE)
        if untolerated:
            return _never("node(s) were unschedulable")
    if untolerated:
        return _never("node(s) had untolerated taint(s)")
    labels = node["metadata"].get("labels") or {}
    wanted = pod.source["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return _never("node(s) didn't match Pod's node affinity/selector")
    return _insufficient(pod, (node.get("status") or {}).get("allocatable") or {}, load)


def text(total: int, misfits: Mapping[str, Misfit]) -> str:
    """Tell why no node takes a pod, as `framework.FitError` does.

    Args:
        total: How many nodes there are.
        misfits: Why each of them does not: {node: misfit}.
    """
    reasons = (reason for misfit in misfits.values() for reason in misfit.reasons)
    told = _counted(total, Counter(reasons))
    preemption = Counter(
        _NOT_HELPFUL if misfit.is_unresolvable else _NO_VICTIMS
        for misfit in misfits.values()
    )
    preemption[_NOT_HELPFUL] += total - len(misfits)
    return f"{told} preemption: {_counted(total, preemption)}"


def _counted(total: int, reasons: Counter[str]) -> str:
    # Sorted as texts, so that 12 comes before 2: that is what the real one does.
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items() if count)
    told = f"0/{total} nodes are available:"
    return f"{told} {', '.join(parts)}." if parts else told


def _insufficient(
    pod: Pod, allocatable: Mapping[str, str], load: Load
) -> Misfit | None:
    reasons = []
    unresolvable = False
    if load.pods + 1 > quantities.count(allocatable.get("pods", 0)):
        reasons.append("Too many pods")
    for resource, count in pod.requests.items():
        total = quantities.count(allocatable.get(resource, 0))
        if count > total - load.requests.get(resource, 0):
            reasons.append(f"Insufficient {resource}")
            unresolvable = unresolvable or count > total
    if not reasons:
        return None
    return Misfit(reasons=tuple(reasons), is_unresolvable=unresolvable)


_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _untolerated(pod: Pod, taints: tuple[Object, ...] | list[Object]) -> bool:
    return any(
        taint["effect"] in {"NoSchedule", "NoExecute"} and not _tolerates(pod, taint)
        for taint in taints
        # NodeUnschedulable speaks for this one.
        if taint["key"] != _UNSCHEDULABLE["key"]
    )


def _tolerates(pod: Pod, taint: Object) -> bool:
    return any(
        _matches(toleration, taint)
        for toleration in pod.source["spec"].get("tolerations") or ()
    )


def _matches(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect", "") not in {"", taint["effect"]}:
        return False
    key = toleration.get("key", "")
    if toleration.get("operator", "Equal") == "Exists":
        return key in {"", taint["key"]}
    return (key, toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def _never(reason: str) -> Misfit:
    return Misfit(reasons=(reason,), is_unresolvable=True)
