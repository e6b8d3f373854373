"""Binding a pod to a node, and evicting it: the two POSTs on a pod.

Source: Kubernetes v1.36.3, `pkg/registry/core/pod/storage/storage.go`.
"""

from sandbox.apiserver import budgets, deletion, statuses
from sandbox.apiserver.objects import Object, metadata_of
from sandbox.apiserver.paths import Target
from sandbox.apiserver.resources import PODS
from sandbox.apiserver.store import Preconditions, Store, check


def bind(store: Store, target: Target, binding: Object) -> Object:
    """Bind the pod to `binding.target`, with the Binding's annotations and labels.

    Decision and binding are one change: nobody sees the pod bound without them.

    Returns:
        The Status of success.
    """
    metadata = metadata_of(binding)
    node = (binding.get("target") or {}).get("name", "")
    if metadata.get("name", "") != target.name:
        raise statuses.bad_request("name in URL does not match name in Binding object")
    if not node:
        raise statuses.plain_failure("target.name: Required value")
    entry = store.read(target)
    check(PODS, entry, Preconditions.of(metadata))
    pod = entry.fresh()
    if refusal := _refusal(pod):
        raise statuses.conflict(PODS, target.name, refusal, "binding")
    pod["spec"]["nodeName"] = node
    pod["status"].pop("nominatedNodeName", None)
    for field in ("annotations", "labels"):
        if added := metadata.get(field):
            pod["metadata"][field] = {**pod["metadata"].get(field, {}), **added}
    _set_condition(pod, _SCHEDULED | {"lastTransitionTime": store.timestamp()})
    store.commit(PODS, pod, entry)
    return statuses.created()


def evict(store: Store, target: Target, eviction: Object) -> Object:
    """Delete the pod as the Eviction says, if its disruption budget allows it."""
    if metadata_of(eviction).get("name", "") != target.name:
        raise statuses.bad_request("name in URL does not match name in Eviction object")
    options = deletion.options_of(eviction.get("deleteOptions") or {}, {})
    entry = store.read(target)
    deletion.check(target, entry, options.preconditions)
    budgets.check(store, entry.document)
    pod = entry.fresh()
    _set_condition(pod, _EVICTED | {"lastTransitionTime": store.timestamp()})
    store.commit(PODS, pod, entry)
    # What was meant is the pod as it was, and that has been seen to.
    deletion.delete(store, target, deletion.Options(grace_s=options.grace_s))
    return statuses.created()


def _refusal(pod: Object) -> str:
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


_SCHEDULED = {"type": "PodScheduled", "status": "True"}
_EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def _set_condition(pod: Object, condition: Object) -> None:
    """Set a condition; one that has this status already stays as it is."""
    conditions = pod["status"].setdefault("conditions", [])
    present = [item for item in conditions if item.get("type") == condition["type"]]
    if not present:
        conditions.append(condition)
    elif present[0].get("status") != condition["status"]:
        present[0].clear()
        present[0].update(condition)
