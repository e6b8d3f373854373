"""What a failed pod means for its Job: its policy's rules, and the pause after it.

Source: Kubernetes v1.36.3, `pod_failure_policy.go` and `backoff_utils.go` of
`pkg/controller/job`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandbox.apiclient import Object
from sandbox.jobs.pods import JobPod

#: DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff
FIRST_PAUSE_S = 10.0
_LONGEST_PAUSE_S = 600.0
#: More doublings than it takes to the longest pause.
_MOST_DOUBLINGS = 16


@dataclass(frozen=True, slots=True)
class Backoff:
    """The failures of a Job since its last success: how many, and when the last one."""

    count: int = 0
    #: Unix seconds
    last_s: float = 0.0

    def after(self, succeeded: Sequence[JobPod], failed: Sequence[JobPod]) -> "Backoff":
        """Return the failures after these pods have ended."""
        since_s = max((pod.ended_s for pod in succeeded), default=-math.inf)
        later = [pod.ended_s for pod in failed if pod.ended_s > since_s]
        before = NO_FAILURES if succeeded else self
        last_s = max(later, default=before.last_s)
        return Backoff(before.count + len(later), last_s)

    def until_s(self, first_pause_s: float) -> float:
        """Return from when on pods may be made again, in Unix seconds."""
        if not self.count:
            return 0.0
        doublings = min(self.count - 1, _MOST_DOUBLINGS)
        pause_s = first_pause_s * float(2**doublings)
        return self.last_s + min(pause_s, _LONGEST_PAUSE_S)


#: A Job that has no failures, or none since its last success.
NO_FAILURES = Backoff()


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The rule of a Job's policy that a failed pod fits."""

    #: Ignore, Count or FailJob
    action: str
    #: for the Job's condition
    message: str


def match(job: Object, pod: JobPod) -> Match | None:
    """Return the first rule that fits a failed pod; None if there is none."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for place, rule in enumerate(policy.get("rules") or ()):
        action = rule["action"]
        for cause in _causes(rule, pod.source):
            message = f"{cause} matching {action} rule at index {place}"
            return Match(action=action, message=message)
    return None


def _causes(rule: Object, source: Object) -> Iterator[str]:
    """Yield why a rule fits a pod."""
    status, meta = source.get("status") or {}, source["metadata"]
    title = f"{meta['namespace']}/{meta['name']}"
    if codes := rule.get("onExitCodes"):
        for name, code in _exit_codes(status, codes.get("containerName")):
            if (code in codes["values"]) is (codes["operator"] == "In"):
                yield f"Container {name} for pod {title} failed with exit code {code}"
        return
    wanted = [(p.get("type"), p["status"]) for p in rule.get("onPodConditions") or ()]
    for condition in status.get("conditions") or ():
        if (condition["type"], condition.get("status")) in wanted:
            yield f"Pod {title} has condition {condition['type']}"


def _exit_codes(status: Object, only: str | None) -> Iterator[tuple[str, int]]:
    """Yield (name, exit code) of containers that have failed."""
    for part in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(part) or ():
            name = container["name"]
            code = container.get("state", {}).get("terminated", {}).get("exitCode", 0)
            if code != 0 and only in (None, name):
                yield name, code
