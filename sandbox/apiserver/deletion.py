"""Deleting: at once, gracefully, or when the finalizers are done.

A pod on a node stays, marked, until its kubelet deletes it with a grace of zero.
A Job's pods go after it (Background), before it (Foreground), or stay without an owner
(Orphan); until they do, it has a finalizer. Only Jobs own anything here. A namespace
takes everything in it along. The server plays both controllers, of garbage and of
namespaces, since there are none: after each request it finishes what was begun.

Source: apiserver v0.36.3, `pkg/registry/rest/delete.go`; Kubernetes v1.36.3,
`CheckGracefulDelete` of pods, `pkg/controller/garbagecollector`.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Entry, Key, Object
from sandbox.apiserver.paths import Target
from sandbox.apiserver.resources import JOBS, NAMESPACES, PODS, RESOURCES, Resource
from sandbox.apiserver.store import ANYTHING, Preconditions, Store, differences

#: Finalizers of an owner: its pods are to stay, or to go before it.
_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"
#: {what a deletion says of the dependents: the finalizer that stands for it}
_FINALIZERS = {"Orphan": _ORPHAN, "Foreground": _FOREGROUND, "Background": ""}
_KEPT_NAMESPACES = frozenset({"default", "kube-public", "kube-system"})
#: Jobs before a request, to be compared with those after it.
Owners = Mapping[Key, Entry]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to delete.

    Attributes:
        grace_s: How long a pod may take; None: what its spec says.
        propagation: Of an owner: `Orphan`, `Foreground`, `Background`; "": not said.
    """

    grace_s: int | None = None
    propagation: str = ""
    preconditions: Preconditions = ANYTHING


def options_of(body: Object, query: Mapping[str, str]) -> Options:
    """Return the options that a DeleteOptions body or the query give."""
    grace = body.get("gracePeriodSeconds")
    if grace is None:
        grace = query.get("gracePeriodSeconds") or None
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy", "")
    if propagation and propagation not in _FINALIZERS:
        field, kind = "propagationPolicy", "DeleteOptions.meta.k8s.io"
        known = ("Foreground", "Background", "Orphan", "nil")
        problem = statuses.Problem.unsupported(field, propagation, known)
        raise statuses.invalid(kind, "", [problem])
    try:
        seconds = None if grace is None else int(grace)
    except (TypeError, ValueError) as error:
        raise statuses.bad_request(
            f"gracePeriodSeconds: expected seconds, found {grace!r}"
        ) from error
    if seconds is not None and seconds < 0:
        seconds = 1
    conditions = Preconditions.of(body.get("preconditions") or {})
    return Options(grace_s=seconds, propagation=propagation, preconditions=conditions)


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
    finalizers = entry.document["metadata"].get("finalizers") or []
    if target.resource is JOBS:
        finalizers = _of_owner(finalizers, options.propagation)
    if finalizers:
        return _mark(store, target.resource, entry, 0, finalizers), False
    return store.remove(target.resource, entry), True


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


def _of_owner(finalizers: Sequence[str], propagation: str) -> list[str]:
    """Return an owner's finalizers when it is deleted; Jobs orphan if nobody says."""
    others = [name for name in finalizers if name not in {_ORPHAN, _FOREGROUND}]
    said = [name for name in finalizers if name not in others]
    wanted = _FINALIZERS[propagation] if propagation else (*said, _ORPHAN)[0]
    return [*others, wanted] if wanted else others


def _mark(
    store: Store,
    resource: Resource,
    entry: Entry,
    grace_s: int,
    finalizers: Sequence[str] = (),
) -> Entry:
    """Note that the object is to go; a grace once given is only shortened."""
    metadata = entry.document["metadata"]
    present = metadata.get("deletionGracePeriodSeconds")
    kept = metadata.get("finalizers") or []
    if present is not None and present <= grace_s and set(finalizers) <= {*kept}:
        return entry
    document = entry.fresh()
    changed = document["metadata"]
    if finalizers:
        changed["finalizers"] = list(finalizers)
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
                delete(store, inside, Options(propagation="Background"))
    return marked, False


def owners(store: Store) -> Owners:
    """Return the objects that own others, as they are now."""
    return dict(store.entries(JOBS))


def collect(store: Store, before: Owners) -> None:
    """Finish what a request has begun.

    Args:
        store: After the request.
        before: The owners before it.
    """
    present = {_uid(entry) for entry in store.entries(JOBS).values()}
    for entry in before.values():
        if _uid(entry) not in present:
            _delete_dependents(store, _uid(entry))
    for entry in list(store.entries(JOBS).values()):
        if "deletionTimestamp" in entry.document["metadata"]:
            _go_on(store, entry)
    for entry in list(store.entries(NAMESPACES).values()):
        if "deletionTimestamp" in entry.document["metadata"]:
            _sweep(store, entry)


def _go_on(store: Store, job: Entry) -> None:
    """Take the next steps of a deletion that waits for a Job's pods."""
    finalizers = job.document["metadata"].get("finalizers") or ()
    if _ORPHAN in finalizers:
        for pod in _dependents(store, _uid(job)):
            _disown(store, pod, _uid(job))
        _finish(store, job, _ORPHAN)
    elif _FOREGROUND in finalizers:
        _delete_dependents(store, _uid(job))
        if not _dependents(store, _uid(job)):
            _finish(store, job, _FOREGROUND)


def _delete_dependents(store: Store, uid: str) -> None:
    """Delete the pods of an owner; one with another owner only loses this one."""
    for pod in _dependents(store, uid):
        metadata = pod.document["metadata"]
        if len(metadata["ownerReferences"]) > 1:
            _disown(store, pod, uid)
        elif "deletionTimestamp" not in metadata:
            target = Target(
                resource=PODS, namespace=metadata["namespace"], name=metadata["name"]
            )
            delete(store, target, Options())


def _dependents(store: Store, uid: str) -> list[Entry]:
    return [
        entry
        for entry in store.entries(PODS).values()
        if any(
            reference.get("uid") == uid
            for reference in entry.document["metadata"].get("ownerReferences") or ()
        )
    ]


def _disown(store: Store, pod: Entry, uid: str) -> None:
    document = pod.fresh()
    references = document["metadata"].pop("ownerReferences")
    if left := [each for each in references if each.get("uid") != uid]:
        document["metadata"]["ownerReferences"] = left
    store.commit(PODS, document, pod)


def _finish(store: Store, job: Entry, finalizer: str) -> None:
    """Take a finalizer from a Job; with the last one the Job goes."""
    document = job.fresh()
    document["metadata"]["finalizers"].remove(finalizer)
    is_last = not document["metadata"]["finalizers"]
    if is_last:
        del document["metadata"]["finalizers"]
    changed = store.commit(JOBS, document, job)
    if is_last:
        store.remove(JOBS, changed)


def _sweep(store: Store, namespace: Entry) -> None:
    """Remove a namespace that is being terminated and has become empty."""
    name = namespace.document["metadata"]["name"]
    if not any(key[0] == name for row in RESOURCES for key in store.entries(row)):
        store.remove(NAMESPACES, namespace)


def _uid(entry: Entry) -> str:
    metadata: Object = entry.document["metadata"]
    return str(metadata["uid"])
