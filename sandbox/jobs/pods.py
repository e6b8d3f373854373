"""Read a Job's pods, and make new ones from its template.

Source: Kubernetes v1.36.3, `pkg/controller/controller_utils.go`, and
`pkg/controller/job/indexed_job_utils.go`.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.apiclient import Object
from service import clock

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
#: Index of a pod that has none.
NO_INDEX = -1

_ENDED = frozenset({"Succeeded", "Failed"})
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
#: `names.MaxGeneratedNameLength`
_LONGEST_PREFIX = 58


# Compared by identity: there is one of each in a step.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobPod:
    """A pod of a Job."""

    source: Object
    uid: str
    #: -1: none
    index: int
    phase: str
    is_deleting: bool
    #: has the Job's finalizer: its end is not in the Job's status yet
    is_tracked: bool
    is_ready: bool
    #: Unix seconds; only of a pod that has ended or is being deleted
    ended_s: float

    @property
    def is_active(self) -> bool:
        """Whether it counts as one of the pods that the Job has now."""
        return self.phase not in _ENDED and not self.is_deleting

    @property
    def is_terminating(self) -> bool:
        """Whether it is being deleted and may still have processes."""
        return self.phase not in _ENDED and self.is_deleting

    @property
    def worth(self) -> tuple[object, ...]:
        """Key of an order: of two pods too many the lesser one is deleted."""
        meta, spec = self.source["metadata"], self.source["spec"]
        is_placed, runs = bool(spec.get("nodeName")), self.phase == "Running"
        age = -_seconds(meta.get("creationTimestamp"))
        return is_placed, runs, self.is_ready, age, meta["name"]


def job_pod(source: Object) -> JobPod:
    """Read an API object."""
    meta, status = source["metadata"], source.get("status") or {}
    index = (meta.get("annotations") or {}).get(INDEX, "")
    return JobPod(
        source=source,
        uid=meta["uid"],
        index=int(index) if index.isdecimal() else NO_INDEX,
        phase=status.get("phase", ""),
        is_deleting="deletionTimestamp" in meta,
        is_tracked=TRACKING in (meta.get("finalizers") or ()),
        is_ready=any(_conditions(status, "Ready", "True")),
        ended_s=next(_ends(meta, status)),
    )


def made_from(job: Object, index: int) -> Object:
    """Return a new pod of a Job.

    Args:
        job: The Job.
        index: -1 for a Job that is not Indexed.
    """
    meta, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
    labels = dict(template.get("metadata", {}).get("labels") or {})
    annotations = dict(template.get("metadata", {}).get("annotations") or {})
    name, spec = meta["name"], template["spec"]
    prefix = f"{name}-"
    if index != NO_INDEX:
        tail = f"-{index}-"
        prefix = name[: _LONGEST_PREFIX - len(tail)] + tail
        labels[INDEX] = annotations[INDEX] = str(index)
        spec["hostname"] = f"{name}-{index}"
        for part in ("initContainers", "containers"):
            for container in spec.get(part) or ():
                _tell_index(container)
    finalizers = template.get("metadata", {}).get("finalizers") or []
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: Object = {
        "generateName": prefix,
        "namespace": meta["namespace"],
        "labels": labels,
        "annotations": annotations,
        "finalizers": [*dict.fromkeys([*finalizers, TRACKING])],
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _tell_index(container: Object) -> None:
    """Let a container read its pod's index from an environment variable."""
    variables = container.setdefault("env", [])
    if all(variable["name"] != _INDEX_VARIABLE for variable in variables):
        field = {"fieldPath": f"metadata.labels['{INDEX}']"}
        source = {"fieldRef": field}
        variables.append({"name": _INDEX_VARIABLE, "valueFrom": source})


def _ends(meta: Object, status: Object) -> Iterator[float]:
    """Yield when a pod may have ended, the most reliable time first."""
    times = [
        container.get("state", {}).get("terminated", {}).get("finishedAt")
        for container in status.get("containerStatuses") or ()
    ]
    if times and all(times):
        yield max(map(_seconds, times))
    for condition in _conditions(status, "Ready", "False"):
        if since := condition.get("lastTransitionTime"):
            yield _seconds(since)
    if deleted := meta.get("deletionTimestamp"):
        yield _seconds(deleted) - meta.get("deletionGracePeriodSeconds", 0)
    yield _seconds(meta.get("creationTimestamp"))


def _conditions(status: Object, kind: str, state: str) -> Iterator[Object]:
    for condition in status.get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == (kind, state):
            yield condition


def _seconds(timestamp: str | None) -> float:
    return clock.parse_time(timestamp or "") or 0.0
