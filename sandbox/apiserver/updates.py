"""What an update may not touch: it is carried over from the old version.

The status through the main resource, everything but the status through `status`,
and of the metadata what is the server's.

Source: Kubernetes v1.36.3, `BeforeUpdate` in apiserver's `registry/rest/update.go`,
and the kinds' `strategy.go`.
"""

from collections.abc import Mapping
from typing import Any

from sandbox.apiserver import defaults
from sandbox.apiserver.objects import Object
from sandbox.apiserver.paths import Target

#: What admission has set in a pod's spec, and a manifest does not say.
_ADMITTED = ("priority", "preemptionPolicy", "serviceAccountName", "serviceAccount")


def carry_over(target: Target, new: Object, old: Mapping[str, Any]) -> None:
    """Restore in `new` what this request may not change.

    Args:
        target: Its subresource says which half is written.
        new: The object as the client wants it, defaulted; changed in place.
        old: The stored object.
    """
    if target.resource.has_status:
        kept = "spec" if target.subresource == "status" else "status"
        _restore(new, old, kept)
    _carry_metadata(new["metadata"], old["metadata"])
    if target.resource.kind == "Pod":
        _carry_pod(target, new, old)
    elif target.resource.kind in {"Job", "PodDisruptionBudget"}:
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
    elif target.resource.kind == "Node":
        # The status came with the client's object: it has to be canonical too.
        defaults.apply(target.resource, new)


def is_finished(document: Object) -> bool:
    """Say whether the last finalizer of a deleted object is gone."""
    metadata = document["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and metadata.get("deletionGracePeriodSeconds") == 0
    )


def _restore(new: Object, old: Mapping[str, Any], field: str) -> None:
    new.pop(field, None)
    if field in old:
        new[field] = old[field]


def _carry_metadata(new: Object, old: Mapping[str, Any]) -> None:
    for field in (
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ):
        _restore(new, old, field)
    new.setdefault("uid", old["uid"])
    if "generateName" in old:
        new.setdefault("generateName", old["generateName"])


def _carry_pod(target: Target, new: Object, old: Mapping[str, Any]) -> None:
    if target.subresource == "status":
        _restore(new["metadata"], old["metadata"], "ownerReferences")
        new.setdefault("status", {}).setdefault("qosClass", old["status"]["qosClass"])
        return
    defaults.tolerate(new["spec"])
    for field in _ADMITTED:
        if field in old["spec"]:
            new["spec"].setdefault(field, old["spec"][field])
    if new.get("spec") != old["spec"]:
        new["metadata"]["generation"] = old["metadata"]["generation"] + 1
