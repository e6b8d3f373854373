"""Deleting: at once, gracefully, or when the finalizers are done.

A pod on a node stays, marked, until its kubelet deletes it with a grace of zero.
A namespace takes everything in it along; here the server plays the namespace
controller, since there is none.

Source: apiserver v0.36.3, `pkg/registry/rest/delete.go`; Kubernetes v1.36.3,
`CheckGracefulDelete` of pods.
"""

import dataclasses

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Entry, Object
from sandbox.apiserver.paths import Target
from sandbox.apiserver.resources import NAMESPACES, PODS, RESOURCES, Resource
from sandbox.apiserver.store import ANYTHING, Preconditions, Store, differences

_KEPT_NAMESPACES = frozenset({"default", "kube-public", "kube-system"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to delete.

    Attributes:
        grace_s: How long a pod may take; None: what its spec says.
    """

    grace_s: int | None = None
    preconditions: Preconditions = ANYTHING


def options_of(body: Object, query_grace: str | None) -> Options:
    """Return the options that a DeleteOptions body or the query give."""
    grace = body.get("gracePeriodSeconds")
    if grace is None and query_grace:
        grace = query_grace
    try:
        seconds = None if grace is None else int(grace)
    except (TypeError, ValueError) as error:
        raise statuses.bad_request(
            f"gracePeriodSeconds: expected seconds, found {grace!r}"
        ) from error
    if seconds is not None and seconds < 0:
        seconds = 1
    conditions = Preconditions.of(body.get("preconditions") or {})
    return Options(grace_s=seconds, preconditions=conditions)


def delete(store: Store, target: Target, options: Options) -> tuple[Entry, bool]:
    """Delete one object; return its state and whether it is gone already."""
    entry = store.read(target)
    check(target, entry, options.preconditions)
    if target.resource is NAMESPACES:
        return _terminate(store, entry)
    if target.resource is PODS:
        grace_s = _grace_of(entry.document, options)
        if grace_s > 0:
            return _mark(store, target.resource, entry, grace_s), False
    if entry.document["metadata"].get("finalizers"):
        return _mark(store, target.resource, entry, 0), False
    last = store.remove(target.resource, entry)
    _sweep(store, target.namespace)
    return last, True


def check(target: Target, entry: Entry, wanted: Preconditions) -> None:
    """Raise a conflict as the store does, in the words that deletions have for it."""
    for field, value, found in differences(entry, wanted):
        guess = "deleted and then recreated" if field == "UID" else "modified"
        raise statuses.conflict(
            target.resource,
            target.name,
            f"the {field} in the precondition ({value}) does not match the {field} "
            f"in record ({found}). The object might have been {guess}",
        )


def _grace_of(pod: Object, options: Options) -> int:
    """Return how long this pod may still take: 0 means gone at once."""
    spec, status = pod["spec"], pod["status"]
    if not spec.get("nodeName") or status.get("phase") in {"Failed", "Succeeded"}:
        return 0
    if options.grace_s is not None:
        return options.grace_s
    grace_s = pod["metadata"].get(
        "deletionGracePeriodSeconds", spec["terminationGracePeriodSeconds"]
    )
    return max(int(grace_s), 0)


def _mark(store: Store, resource: Resource, entry: Entry, grace_s: int) -> Entry:
    """Note that the object is to go; a grace once given is only shortened."""
    metadata = entry.document["metadata"]
    present = metadata.get("deletionGracePeriodSeconds")
    if present is not None and present <= grace_s:
        return entry
    document = entry.fresh()
    changed = document["metadata"]
    if present is None and "generation" in changed:
        changed["generation"] += 1
    changed["deletionTimestamp"] = store.timestamp(grace_s)
    changed["deletionGracePeriodSeconds"] = grace_s
    return store.commit(resource, document, entry)


def _terminate(store: Store, entry: Entry) -> tuple[Entry, bool]:
    name = entry.document["metadata"]["name"]
    if name in _KEPT_NAMESPACES:
        raise statuses.forbidden(NAMESPACES, name, "this namespace may not be deleted")
    if "deletionTimestamp" in entry.document["metadata"]:
        return entry, False
    document = entry.fresh()
    document["metadata"]["deletionTimestamp"] = store.timestamp()
    document["status"]["phase"] = "Terminating"
    marked = store.commit(NAMESPACES, document, entry)
    for resource in RESOURCES:
        for namespace, member in sorted(store.entries(resource)):
            if namespace == name:
                inside = Target(resource=resource, namespace=name, name=member)
                delete(store, inside, Options())
    _sweep(store, name)
    return marked, False


def _sweep(store: Store, namespace: str) -> None:
    """Remove a namespace that is being terminated and has become empty."""
    entry = store.entries(NAMESPACES).get(("", namespace))
    if entry is None or "deletionTimestamp" not in entry.document["metadata"]:
        return
    if any(key[0] == namespace for row in RESOURCES for key in store.entries(row)):
        return
    store.remove(NAMESPACES, entry)
