"""The pure step of the Job controller, walked over what a Job and its pods can be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from sandbox.apiclient import Object
from sandbox.jobs.sync import Create, Release, Tell
from tests.sandbox.jobs.cluster import (
    LONG_S,
    START_S,
    Cluster,
    index_of,
    is_active,
    is_tracked,
    path_of,
)

_MODES: Mapping[str, Mapping[str, Any]] = {
    "Indexed": {},
    "NonIndexed": {"completionMode": "NonIndexed"},
    "without completions": {"completionMode": "NonIndexed", "completions": None},
}
_AT_DISRUPTION = {"onPodConditions": [{"type": "DisruptionTarget"}]}
_EXIT_42 = {"onExitCodes": {"operator": "In", "values": [42]}}


def _rules(*rules: Object) -> Object:
    return {"podFailurePolicy": {"rules": list(rules)}}


_POLICIES: Mapping[str, Object] = {
    "plain": {},
    "Failed": {"podReplacementPolicy": "Failed"},
    "Ignore": _rules({"action": "Ignore", **_AT_DISRUPTION}),
    "Count": _rules({"action": "Count", **_AT_DISRUPTION}),
    "FailJob": _rules({"action": "FailJob", **_AT_DISRUPTION}),
    "FailJob at 42": _rules({"action": "FailJob", **_EXIT_42}),
}


def _evict(cluster: Cluster, pod: Object) -> None:
    cluster.disrupt(pod)
    cluster.delete(pod)


def _evict_to_the_end(cluster: Cluster, pod: Object) -> None:
    _evict(cluster, pod)
    cluster.finish_deletion(pod)


#: {what happens to the first pod: how}
_FATES: Mapping[str, Callable[[Cluster, Object], None]] = {
    "runs": lambda _cluster, _pod: None,
    "succeeds": lambda cluster, pod: cluster.end(pod, 0),
    "fails with 1": lambda cluster, pod: cluster.end(pod, 1),
    "fails with 42": lambda cluster, pod: cluster.end(pod, 42),
    "is deleted": lambda cluster, pod: cluster.delete(pod),
    "is evicted": _evict,
    "is evicted and has ended": _evict_to_the_end,
    "is deleted by force": lambda cluster, pod: cluster.delete(
        pod, gracePeriodSeconds=0
    ),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What has become of a Job of two pods."""

    active: int
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    has_failed: bool = False
    #: whether there is a new pod in the first one's place
    replaced: bool = False


def expected(mode: str, policy: str, fate: str) -> Outcome:
    """The rules in their plainest form."""
    awaits_ends = policy != "plain"
    has_ended = fate in {"fails with 1", "fails with 42", "is evicted and has ended"}
    is_going = fate in {"is deleted", "is evicted", "is deleted by force"}
    is_disrupted = fate == "is evicted and has ended"
    if fate == "runs":
        return Outcome(active=2)
    if fate == "succeeds":
        # Of a Job without completions the first success is the last start.
        return Outcome(active=1, succeeded=1)
    ends_job = (policy == "FailJob" and is_disrupted) or (
        policy == "FailJob at 42" and fate == "fails with 42"
    )
    if ends_job:
        # The other one is being deleted, and counts as failed too.
        return Outcome(active=0, terminating=1, failed=2, has_failed=False)
    if is_going and awaits_ends:
        return Outcome(active=1, terminating=1)
    is_ignored = policy == "Ignore" and is_disrupted
    # A pod that was deleted by force is gone once its finalizer is.
    is_left = fate in {"is deleted", "is evicted"}
    return Outcome(
        active=2,
        terminating=int(is_left),
        failed=int(not is_ignored and (has_ended or is_going)),
        replaced=True,
    )


@pytest.mark.parametrize(
    ("mode", "policy", "fate"), list(product(_MODES, _POLICIES, _FATES))
)
def test_a_pod_is_counted_and_replaced(mode: str, policy: str, fate: str) -> None:
    cluster = running(**_MODES[mode], **_POLICIES[policy])
    first, second = cluster.pods
    _FATES[fate](cluster, first)

    cluster.wait()

    status = cluster.status
    names = {pod["metadata"]["name"] for pod in cluster.pods}
    new = names - {first["metadata"]["name"], second["metadata"]["name"]}
    found = Outcome(
        active=status.get("active", 0),
        terminating=status["terminating"],
        succeeded=status.get("succeeded", 0),
        failed=status.get("failed", 0),
        has_failed="Failed" in cluster.conditions(),
        replaced=bool(new),
    )
    assert found == expected(mode, policy, fate)
    assert status["uncountedTerminatedPods"] == {}
    waits = [pod for pod in cluster.pods if is_tracked(pod) and not is_active(pod)]
    # Only a pod whose end is awaited still has the finalizer.
    assert len(waits) == (found.terminating if found.active == 1 else 0)


def running(count: int = 2, **spec: Any) -> Cluster:
    """A Job whose pods run."""
    cluster = Cluster(count, **spec)
    cluster.settle()
    for pod in cluster.pods:
        cluster.run(pod)
    cluster.settle()
    return cluster


def test_pods_have_names_labels_owner_and_index() -> None:
    cluster = Cluster(2)
    cluster.settle()

    uid = cluster.job["metadata"]["uid"]
    pod = cluster.of_index(1)[0]
    metadata, spec = pod["metadata"], pod["spec"]
    assert metadata["name"].startswith("train-1-")
    assert len(metadata["name"]) == len("train-1-") + 5
    assert metadata["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-completion-index": "1",
        "batch.kubernetes.io/job-name": "train",
        "controller-uid": uid,
        "job-name": "train",
    }
    assert metadata["annotations"] == {"batch.kubernetes.io/job-completion-index": "1"}
    assert metadata["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    field = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    assert spec["hostname"] == "train-1"
    assert spec["containers"][0]["env"] == [
        {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}},
        }
    ]


def test_a_pod_of_a_plain_job_has_no_index() -> None:
    cluster = Cluster(1, completionMode="NonIndexed")
    cluster.settle()

    (pod,) = cluster.pods
    assert "annotations" not in pod["metadata"]
    assert len(pod["metadata"]["name"]) == len("train-") + 5
    assert {"hostname", "env"}.isdisjoint({*pod["spec"], *pod["spec"]["containers"][0]})


def test_a_job_completes_and_lets_its_pods_go() -> None:
    cluster = running(3)
    for pod in cluster.pods:
        cluster.end(pod, 0)

    cluster.settle()

    status = cluster.status
    assert cluster.conditions() == {"SuccessCriteriaMet": "True", "Complete": "True"}
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2")
    assert status["completionTime"] >= status["startTime"]
    assert not any(map(is_tracked, cluster.pods))
    assert {"active", "failed"}.isdisjoint(status)


def test_a_job_without_completions_waits_for_the_others_once_one_has_succeeded() -> (
    None
):
    cluster = running(2, completionMode="NonIndexed", completions=None)
    first, second = cluster.pods

    cluster.end(first, 0)
    cluster.settle()
    before = cluster.conditions()
    cluster.end(second, 1)
    cluster.wait()

    assert before == {}
    assert len(cluster.pods) == 2
    assert cluster.conditions()["Complete"] == "True"
    assert (cluster.status["succeeded"], cluster.status["failed"]) == (1, 1)


def test_no_more_pods_run_at_once_than_may() -> None:
    cluster = running(5, parallelism=2)
    indexes = [index_of(pod) for pod in cluster.pods]
    cluster.end(cluster.of_index(1)[0], 0)

    cluster.settle()

    assert indexes == [0, 1]
    active = [index_of(pod) for pod in cluster.pods if is_active(pod)]
    assert active == [0, 2]
    assert cluster.status["completedIndexes"] == "1"


def test_pauses_double_after_each_failure_up_to_ten_minutes() -> None:
    cluster = Cluster(1, backoffLimit=20)
    cluster.settle()
    pauses = []
    for _ in range(9):
        (pod,) = filter(is_active, cluster.pods)
        cluster.run(pod)
        cluster.end(pod, 1)
        cluster.settle()
        assert cluster.again_s is not None
        pauses.append(cluster.again_s - cluster.now_s)
        cluster.wait(pauses[-1] - 0.5)
        assert not any(map(is_active, cluster.pods))
        cluster.wait(0.5)

    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_a_success_ends_the_pauses() -> None:
    cluster = running(2, parallelism=1)
    (pod,) = cluster.pods
    cluster.end(pod, 1)
    cluster.wait()
    (pod,) = filter(is_active, cluster.pods)
    cluster.run(pod)
    cluster.now_s += 1
    cluster.end(pod, 0)

    cluster.settle()

    (new,) = filter(is_active, cluster.pods)
    assert (index_of(new), cluster.backoff.count, cluster.again_s) == (1, 0, None)


def test_a_job_fails_beyond_its_limit_and_ends_what_runs() -> None:
    cluster = running(2, backoffLimit=1)
    for _ in range(2):
        pod = next(pod for pod in cluster.of_index(0) if is_active(pod))
        if pod["status"]["phase"] == "Pending":
            cluster.run(pod)
        cluster.end(pod, 1)
        cluster.wait()
    other = cluster.of_index(1)[0]
    before = cluster.conditions()
    cluster.finish_deletion(other)
    cluster.settle()

    assert before == {"FailureTarget": "True"}
    assert cluster.conditions() == {"FailureTarget": "True", "Failed": "True"}
    last = cluster.status["conditions"][-1]
    assert (last["reason"], last["message"]) == (
        "BackoffLimitExceeded",
        "Job has reached the specified backoff limit",
    )
    assert cluster.status["failed"] == 3
    assert not any(map(is_tracked, cluster.pods))


def test_restarts_in_place_count_against_the_limit() -> None:
    template = running(1).job["spec"]["template"]["spec"] | {
        "restartPolicy": "OnFailure"
    }
    cluster = running(1, backoffLimit=2, template={"spec": template})
    (pod,) = cluster.pods
    main = {"name": "train", "image": "i", "imageID": "", "ready": True}
    cluster.say(pod, containerStatuses=[{**main, "restartCount": 1}])
    cluster.settle()
    before = cluster.conditions()
    cluster.say(pod, containerStatuses=[{**main, "restartCount": 2}])
    cluster.settle()

    assert (before, cluster.conditions()) == ({}, {"FailureTarget": "True"})


def test_a_policy_that_fails_the_job_says_why() -> None:
    cluster = running(1, **_POLICIES["FailJob at 42"])
    (pod,) = cluster.pods
    cluster.end(pod, 42)
    cluster.settle()

    name = pod["metadata"]["name"]
    last = cluster.status["conditions"][-1]
    assert (last["type"], last["reason"], last["message"]) == (
        "Failed",
        "PodFailurePolicy",
        (
            f"Container train for pod default/{name} failed with exit code 42 matching "
            "FailJob rule at index 0"
        ),
    )


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_suspended_job_has_no_pods_and_counts_no_failures(mode: str) -> None:
    cluster = running(2, **_MODES[mode])
    started = cluster.status["startTime"]
    cluster.send("PATCH", f"{path()}", {"spec": {"suspend": True}}, MERGE)
    cluster.settle()
    suspended = cluster.status
    for pod in cluster.pods:
        cluster.finish_deletion(pod)
    cluster.wait()
    gone = cluster.pods
    cluster.send("PATCH", f"{path()}", {"spec": {"suspend": False}}, MERGE)
    cluster.settle()

    assert suspended["conditions"][0]["reason"] == "JobSuspended"
    assert (suspended["terminating"], "startTime" in suspended) == (2, False)
    assert gone == []
    assert cluster.conditions() == {"Suspended": "False"}
    assert (cluster.status["active"], "failed" in cluster.status) == (2, False)
    assert cluster.status["startTime"] > started


MERGE = "application/merge-patch+json"


def path() -> str:
    return "/apis/batch/v1/namespaces/default/jobs/train"


def test_of_two_pods_of_an_index_the_one_that_is_further_stays() -> None:
    cluster = running(2)
    twin = {key: cluster.of_index(0)[0][key] for key in ("metadata", "spec")}
    twin["metadata"] = {
        key: twin["metadata"][key]
        for key in ("labels", "annotations", "finalizers", "ownerReferences")
    } | {"generateName": "train-0-"}
    twin["spec"].pop("nodeName")
    first = cluster.of_index(0)[0]["metadata"]["name"]
    cluster.send("POST", "/api/v1/namespaces/default/pods", twin)

    cluster.settle()

    left = [pod["metadata"]["name"] for pod in cluster.of_index(0)]
    assert left == [first]
    assert "failed" not in cluster.status


def test_a_job_of_indexes_shrinks_from_the_end() -> None:
    cluster = running(3)
    cluster.send("PATCH", path(), {"spec": {"completions": 2, "parallelism": 2}}, MERGE)

    cluster.settle()

    active = [index_of(pod) for pod in cluster.pods if is_active(pod)]
    assert active == [0, 1]


def test_a_deleted_job_makes_no_pods_and_keeps_none() -> None:
    cluster = running(2)
    cluster.send("DELETE", path(), {"propagationPolicy": "Foreground"})
    cluster.settle()
    left = [is_tracked(pod) for pod in cluster.pods]
    for pod in cluster.pods:
        cluster.finish_deletion(pod)
    cluster.settle()

    assert left == [False, False]
    assert not cluster.has_job()


def test_a_job_ends_at_its_deadline() -> None:
    cluster = running(1, activeDeadlineSeconds=60)
    due_s = cluster.again_s
    cluster.wait(59)
    before = cluster.conditions()
    cluster.wait(1)

    assert due_s == START_S + 60
    assert (before, cluster.conditions()) == ({}, {"FailureTarget": "True"})
    assert cluster.status["conditions"][0]["reason"] == "DeadlineExceeded"
    # What is left is told by the pods that end.
    assert cluster.again_s is None


def test_a_job_goes_when_its_time_after_the_end_is_over() -> None:
    cluster = running(1, ttlSecondsAfterFinished=5)
    cluster.end(cluster.pods[0], 0)
    cluster.settle()
    cluster.wait(4.5)
    assert cluster.has_job()
    assert cluster.again_s == START_S + 5

    cluster.wait(0.5)

    assert not cluster.has_job()
    assert cluster.pods == []


def test_a_pod_is_counted_though_it_vanishes_between_two_steps() -> None:
    cluster = running(1)
    (pod,) = cluster.pods
    cluster.end(pod, 1)

    decision = cluster.step()
    kinds = [type(write) for write in decision.writes]
    noted = dict(cluster.status["uncountedTerminatedPods"])
    cluster.send("DELETE", path_of(pod))
    cluster.settle()

    assert kinds == [Tell, Release]
    # Told and released in one step; counted in the next, by its absence.
    assert noted == {"failed": [pod["metadata"]["uid"]]}
    assert cluster.status["failed"] == 1
    assert cluster.status["uncountedTerminatedPods"] == {}


def test_a_pod_that_could_not_be_released_is_counted_once() -> None:
    cluster = running(1)
    (pod,) = cluster.pods
    cluster.end(pod, 1)
    cluster.releases = False
    cluster.step()
    cluster.step()
    failures = cluster.backoff.count
    cluster.releases = True
    cluster.settle()

    assert failures == 1
    assert cluster.status["failed"] == 1


def test_what_is_decided_depends_on_the_arguments_alone() -> None:
    cluster = running(2)
    cluster.end(cluster.of_index(1)[0], 1)
    cluster.now_s += LONG_S
    job, pods = cluster.job, cluster.pods
    before = repr((job, pods))

    decision = cluster.step()

    assert Create(1) in decision.writes
    assert repr((job, pods)) == before
