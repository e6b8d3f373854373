"""PodDisruptionBudgets: how many pods may go, and whether this one may.

The server plays the disruption controller, since there is none: after each request
every budget's status says what holds now. Of pods whose number a controller would
know, those that exist are counted.

Source: Kubernetes v1.36.3, `pkg/registry/core/pod/storage/eviction.go` and
`pkg/controller/disruption/disruption.go`.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Object, is_true, metadata_of
from sandbox.apiserver.resources import BUDGETS, PODS
from sandbox.apiserver.store import Store

#: A pod of one of these takes part in nothing that an eviction could disrupt.
_HARMLESS = frozenset({"Succeeded", "Failed", "Pending"})


def refresh(store: Store) -> None:
    """Bring the status of every budget up to date."""
    for entry in list(store.entries(BUDGETS).values()):
        budget = entry.document
        found = _status(budget, list(_selected(store, budget)), store.timestamp())
        if found != budget.get("status"):
            document = entry.fresh()
            document["status"] = found
            store.commit(BUDGETS, document, entry)


def check(store: Store, pod: Object) -> None:
    """Raise what an eviction of this pod is refused with, if it is."""
    phase = (pod.get("status") or {}).get("phase")
    if phase in _HARMLESS or "deletionTimestamp" in pod["metadata"]:
        return
    namespace = pod["metadata"]["namespace"]
    budgets = [
        entry.document
        for key, entry in store.entries(BUDGETS).items()
        if key[0] == namespace and _selects(entry.document, pod)
    ]
    if len(budgets) > 1:
        raise statuses.plain_failure(
            "This pod has more than one PodDisruptionBudget, which the eviction "
            "subresource does not support."
        )
    for budget in budgets:
        _check(budget, pod)


def _check(budget: Object, pod: Object) -> None:
    status = budget.get("status") or {}
    name = budget["metadata"]["name"]
    healthy = status.get("currentHealthy", 0)
    desired = status.get("desiredHealthy", 0)
    if not _is_ready(pod):
        policy = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy")
        if policy == "AlwaysAllow" or healthy >= desired > 0:
            return
    if status.get("disruptionsAllowed", 0) == 0:
        told = "does not allow evicting pods currently"
        if healthy <= desired:
            told = f"needs {desired} healthy pods and has {healthy} currently"
        raise statuses.over_budget(f"The disruption budget {name} {told}")


def _status(budget: Object, pods: list[Object], now: str) -> Object:
    spec = budget.get("spec") or {}
    expected = len(pods)
    healthy = sum(_is_ready(pod) for pod in pods)
    desired = _desired(spec, expected)
    allowed = max(healthy - desired, 0) if expected else 0
    before = (budget.get("status") or {}).get("conditions") or [{}]
    generation = budget["metadata"]["generation"]
    condition = {
        "type": "DisruptionAllowed",
        "status": str(allowed > 0),
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": now,
    }
    if before[0].get("status") == condition["status"]:
        condition["lastTransitionTime"] = before[0]["lastTransitionTime"]
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "observedGeneration": generation,
        "conditions": [condition],
    }


def _desired(spec: Object, expected: int) -> int:
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None:
        return _count(least, expected)
    # The default of a budget that names neither.
    return max(expected - _count(1 if most is None else most, expected), 0)


def _count(amount: Any, expected: int) -> int:
    """Of a number or a percentage, which is rounded up: how many pods."""
    if isinstance(amount, str):
        return math.ceil(expected * int(amount.removesuffix("%")) / 100)
    return int(amount)


def _selected(store: Store, budget: Object) -> Iterator[Object]:
    namespace = budget["metadata"]["namespace"]
    for key, entry in store.entries(PODS).items():
        pod = entry.document
        if (
            key[0] == namespace
            and pod["status"].get("phase") not in {"Succeeded", "Failed"}
            and "deletionTimestamp" not in pod["metadata"]
            and _selects(budget, pod)
        ):
            yield pod


def _selects(budget: Object, pod: Object) -> bool:
    """Whether a budget counts a pod: one without a selector counts none."""
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None:
        return False
    labels = metadata_of(pod).get("labels") or {}
    wanted: Object = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items() and all(
        _meets(rule, labels) for rule in selector.get("matchExpressions") or ()
    )


def _meets(rule: Object, labels: Mapping[str, str]) -> bool:
    found = labels.get(rule["key"])
    match rule["operator"]:
        case "In":
            return found in rule["values"]
        case "NotIn":
            return found not in rule["values"]
        case "Exists":
            return found is not None
        case _:
            return found is None


def _is_ready(pod: Object) -> bool:
    return is_true(pod.get("status") or {}, "Ready")
