"""A Job with pods that fail, end, are evicted and come back, in any order."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from sandbox.apiclient import Object
from tests.sandbox.jobs.cluster import (
    JOB,
    LONG_S,
    Cluster,
    index_of,
    is_active,
    is_tracked,
)

_IGNORES = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
}
_MERGE = "application/merge-patch+json"
_WHICH = st.integers(0, 5)


class Jobs(RuleBasedStateMachine):
    """One Job; the controller steps at any time, at rest everything adds up."""

    cluster: Cluster
    #: by the Job's status, so far
    failed = 0

    @initialize(
        indexed=st.booleans(),
        count=st.integers(1, 3),
        parallelism=st.integers(1, 3),
        policy=st.sampled_from(["plain", "Failed", "Ignore"]),
    )
    def begin(self, indexed: bool, count: int, parallelism: int, policy: str) -> None:
        spec: dict[str, Any] = {"parallelism": parallelism, "backoffLimit": 4}
        if not indexed:
            spec["completionMode"] = "NonIndexed"
        if policy == "Ignore":
            spec["podFailurePolicy"] = _IGNORES
        elif policy == "Failed":
            spec["podReplacementPolicy"] = "Failed"
        self.awaits_ends = policy != "plain"
        self.cluster = Cluster(count, **spec)

    def _pick(self, which: int, *, is_going: bool = False) -> Object | None:
        """Choose one of the pods that run, or that are being deleted."""
        pods = [
            pod
            for pod in self.cluster.pods
            if pod["status"]["phase"] == "Running"
            and ("deletionTimestamp" in pod["metadata"]) is is_going
        ]
        return pods[which % len(pods)] if pods else None

    @rule()
    def run(self) -> None:
        for pod in self.cluster.pods:
            if pod["status"]["phase"] == "Pending" and is_active(pod):
                self.cluster.run(pod)

    @rule(which=_WHICH, exit_code=st.sampled_from([0, 1]))
    def end(self, which: int, exit_code: int) -> None:
        if pod := self._pick(which):
            self.cluster.end(pod, exit_code)

    @rule(which=_WHICH, evicts=st.booleans(), forced=st.booleans())
    def delete(self, which: int, evicts: bool, forced: bool) -> None:
        if pod := self._pick(which):
            if evicts:
                self.cluster.disrupt(pod)
            self.cluster.delete(pod, **({"gracePeriodSeconds": 0} if forced else {}))

    @rule(which=_WHICH)
    def finish_deletion(self, which: int) -> None:
        if pod := self._pick(which, is_going=True):
            self.cluster.finish_deletion(pod)

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self.cluster.send("PATCH", JOB, {"spec": {"suspend": suspend}}, _MERGE)

    @rule()
    def step(self) -> None:
        self.cluster.step()

    @rule(seconds=st.sampled_from([1.0, 15.0, LONG_S]))
    def rest(self, seconds: float) -> None:
        self.cluster.wait(seconds)
        self._adds_up(is_late=seconds == LONG_S)

    def _adds_up(self, *, is_late: bool) -> None:
        cluster, status = self.cluster, self.cluster.status
        spec, pods = cluster.job["spec"], cluster.pods
        active = [pod for pod in pods if is_active(pod)]
        going = [
            pod
            for pod in pods
            if pod["status"]["phase"] not in {"Succeeded", "Failed"}
            and "deletionTimestamp" in pod["metadata"]
        ]
        has_ended = {"Complete", "Failed"} & cluster.conditions().keys()
        assert status.get("active", 0) == len(active)
        assert status["terminating"] == len(going)
        assert status["uncountedTerminatedPods"] == {}
        for pod in pods:
            if is_tracked(pod):
                assert is_active(pod) or (self.awaits_ends and pod in going)
        if has_ended or "FailureTarget" in cluster.conditions():
            assert active == []
            return
        if spec["suspend"]:
            assert active == []
        elif is_late:
            left = spec["completions"] - status.get("succeeded", 0)
            held = len(going) if self.awaits_ends else 0
            assert len(active) == max(min(left, spec["parallelism"]) - held, 0)

    @invariant()
    def indexes_are_had_once(self) -> None:
        held = [
            index_of(pod)
            for pod in self.cluster.pods
            if is_active(pod)
            or (
                self.awaits_ends
                and is_tracked(pod)
                and pod["status"]["phase"] == "Running"
            )
        ]
        indexes = [index for index in held if index >= 0]
        assert len(indexes) == len({*indexes})

    @invariant()
    def nothing_is_counted_back(self) -> None:
        failed = self.cluster.status.get("failed", 0)
        assert failed >= self.failed
        self.failed = failed


Jobs.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
test_jobs = Jobs.TestCase
