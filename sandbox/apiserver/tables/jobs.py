"""The rows of Jobs.

Source: Kubernetes v1.36.3, `pkg/printers/internalversion/printers.go`.
"""

from typing import Any

from sandbox.apiserver.objects import Object, is_true
from sandbox.apiserver.tables import ages
from sandbox.apiserver.tables.columns import AGE, CONTAINERS, IMAGES, NAME, Column
from service import clock

COLUMNS = (
    NAME,
    Column(name="Status", text="Status of the job."),
    Column(name="Completions", of=("api.batch.v1.JobStatus", "succeeded")),
    Column(name="Duration", text="Time required to complete the job."),
    AGE,
    CONTAINERS,
    IMAGES,
    Column(name="Selector", is_wide=True, of=("api.batch.v1.JobSpec", "selector")),
)
#: Conditions that say how a Job is; the first that is true counts.
_ENDED = ("Complete", "Failed")
_GOING = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def cells(document: Object, now_s: float) -> list[Any]:
    """Return the cells of a Job's row."""
    spec, status = document["spec"], document.get("status") or {}
    containers = spec["template"]["spec"].get("containers") or ()
    selected = spec["selector"]["matchLabels"].items()
    return [
        _state(document["metadata"], status),
        _completions(spec, status),
        _duration(status, now_s),
        ",".join(container["name"] for container in containers),
        ",".join(container.get("image", "") for container in containers),
        ",".join(f"{key}={value}" for key, value in selected),
    ]


def _state(metadata: Object, status: Object) -> str:
    is_going = "deletionTimestamp" in metadata
    names = _ENDED if is_going else (*_ENDED, *_GOING)
    otherwise = "Terminating" if is_going else "Running"
    return next((name for name in names if is_true(status, name)), otherwise)


def _completions(spec: Object, status: Object) -> str:
    done, parallelism = status.get("succeeded", 0), spec["parallelism"]
    if "completions" in spec:
        return f"{done}/{spec['completions']}"
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _duration(status: Object, now_s: float) -> str:
    if "startTime" not in status:
        return ""
    end = clock.parse_time(status.get("completionTime", ""))
    start = clock.parse_time(status["startTime"]) or 0.0
    return ages.human((now_s if end is None else end) - start)
