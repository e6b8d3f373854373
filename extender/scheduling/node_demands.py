"""Whether a node is one that a pod demands: selector, required affinity, taints.

kube-scheduler evaluates these for pods that wait, and offers nodes. For a pod that runs
it offers none, so they are evaluated here.

Source:
    kube-scheduler v1.36, plugins nodeaffinity, nodeunschedulable, tainttoleration.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from kube.objects import Taint, Toleration

#: Effects of taints that keep pods off.
_KEEPING_OFF = ("NoSchedule", "NoExecute")
_NAME = "metadata.name"


class _NodeAffinity(msgspec.Struct, frozen=True):
    required: dict[str, Any] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Demands(msgspec.Struct, frozen=True):
    """What `Demands.on_nodes` has."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    affinity: _Affinity | None = None


def admits(
    on_nodes: str, name: str, labels: Mapping[str, str], taints: Sequence[Taint]
) -> bool:
    """Return whether a pod may be on a node, whatever is free there.

    Args:
        on_nodes: Demands of the pod, as `Demands.on_nodes`.
        name: Name of the node.
        labels: Labels of the node.
        taints: Taints of the node, as `kube.objects.Node.taints`.
    """
    if not on_nodes and not taints:
        return True  # the common case
    demands = _read(on_nodes)
    tolerations = demands.tolerations or ()
    for taint in taints:
        if taint.effect in _KEEPING_OFF and not any(
            _tolerates(toleration, taint) for toleration in tolerations
        ):
            return False
    selector = demands.node_selector or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = demands.affinity and demands.affinity.node_affinity
    if not affinity or affinity.required is None:
        return True
    return any(
        _matches(term, name, labels)
        for term in affinity.required.get("nodeSelectorTerms") or ()
    )


# Pods of a job are mostly of one kind, and each node is compared with it.
@lru_cache(maxsize=256)
def _read(on_nodes: str) -> _Demands:
    return msgspec.json.decode(on_nodes, type=_Demands) if on_nodes else _Demands()


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return (toleration.key, toleration.value) == (taint.key, taint.value)


def _matches(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node fulfils all of a term; a term without parts matches none.

    `metadata.name` is the only field of nodes that a term can name.
    """
    of_labels = term.get("matchExpressions") or ()
    of_fields = term.get("matchFields") or ()
    return bool(of_labels or of_fields) and (
        all(_fulfils(part, labels.get(part.get("key", ""))) for part in of_labels)
        and all(
            _fulfils(part, name if part.get("key") == _NAME else None)
            for part in of_fields
        )
    )


def _fulfils(part: Mapping[str, Any], value: str | None) -> bool:
    """Return whether a label's value, None if it is missing, fulfils a requirement."""
    wanted, operator = part.get("values") or [], part.get("operator")
    if operator in ("Gt", "Lt"):
        bound, number = _number(wanted[0] if wanted else None), _number(value)
        if bound is None or number is None:
            return False
        return number > bound if operator == "Gt" else number < bound
    outcomes = {
        "In": value in wanted,
        "NotIn": value not in wanted,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return outcomes.get(str(operator), False)


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
