"""Controllers of pods as the API server has them, and what evictions do to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from extender.rescheduling.ends import End, Reach, Replacement
from extender.rescheduling.policies import end_of
from kube.objects import Meta

NONE: Mapping[str, Any] = {}
OVER = {"type": "Complete", "status": "True"}

ALONE = End()
WHOLE = End(reach=Reach.JOB)


@dataclass(frozen=True, slots=True)
class Case:
    """Pods that are evicted together."""

    controllers: Sequence[Any]
    #: labels and annotations of the pod
    marks: Mapping[str, str]
    count: int

    @property
    def pod(self) -> Meta:
        return Meta(labels=dict(self.marks), annotations=dict(self.marks))

    @property
    def end(self) -> End:
        return end_of(self.controllers, self.pod, self.count)


def case(*controllers: object, pod: Mapping[str, str] = NONE, count: int = 1) -> Case:
    return Case(controllers, pod, count)


def resource(version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, **fields}


def job(status: Mapping[str, Any] = NONE, **spec: Any) -> dict[str, Any]:
    """A Job of four pods."""
    spec = {"completions": 4, "parallelism": 4, **spec}
    return resource("batch/v1", "Job", spec=spec, status=status)


def group(*labels: str) -> End:
    return End(reach=Reach.GROUP, group=labels)


def ends(reason: str, reach: Reach = Reach.JOB) -> End:
    return End(reach=reach, replacement=Replacement.NO, reason=reason)


def unknown(place: str, value: str) -> End:
    """The end of a job by a value that the extender does not know."""
    expected = "expected a value that the extender knows"
    return ends(f"{place}: {expected}, found {value!r}")
