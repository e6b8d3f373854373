"""A pod says the same, whether all of it is kept or what is read of it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from extender.cache import decode
from extender.cache.trim import LAST_APPLIED, PodTrimmer
from kube.objects import Pod

BODIES = Path(__file__).parents[1] / "bodies"
RESOURCE = "huawei.com/Ascend910"
FROM_ANNOTATION = {
    "name": "ASCEND_VISIBLE_DEVICES",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{RESOURCE}']"}},
}


def pod(document: dict[str, Any]) -> Pod:
    return msgspec.convert(document, Pod)


def worker(name: str, **parts: Any) -> dict[str, Any]:
    """A pod of a job, as such a job's controller makes them."""
    env = [{"name": "RANK", "value": name[-1]}, *parts.pop("env", ())]
    resources = {"limits": {RESOURCE: "2", "cpu": "4"}, "requests": {"cpu": "4"}}
    text = {"ascend-affinity/job": "j", "ascend-affinity/job-size": "2"}
    owner = {"kind": "Job", "name": "j", "uid": "u", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": "2026-11-21T02:12:22Z",
            "labels": {"app": "train"},
            "annotations": text | parts.pop("annotations", {}),
            "ownerReferences": [owner],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
        },
        "spec": {
            "containers": [{"name": "main", "resources": resources, "env": env}],
            "priority": 5,
            **parts,
        },
        "status": {"phase": "Pending"},
    }


DOCUMENTS: dict[str, dict[str, Any]] = {
    "a worker": worker("a-0"),
    "chips from the annotation": worker("a-0", env=[FROM_ANNOTATION]),
    "chips set by the pod": worker(
        "a-0", env=[{"name": "ASCEND_VISIBLE_DEVICES", "value": "0"}]
    ),
    "init containers": worker(
        "a-0",
        initContainers=[
            {"name": "i", "resources": {"limits": {"cpu": "9", RESOURCE: "1"}}},
            {"name": "s", "restartPolicy": "Always", "env": [FROM_ANNOTATION]},
        ],
    ),
    "bound, with overhead": worker("a-0", nodeName="n1", overhead={"cpu": "1"}),
    "nothing": {},
    "recorded": json.loads((BODIES / "kube-scheduler-filter-names.json").read_bytes())[
        "Pod"
    ],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_kept_of_a_pod_means_the_same(name: str) -> None:
    whole = pod(DOCUMENTS[name])

    kept = PodTrimmer().pod(whole)

    assert decode.pod_change(kept) == decode.pod_change(whole)
    assert kept.metadata.uid == whole.metadata.uid
    assert kept.metadata.resource_version == whole.metadata.resource_version


def test_pods_of_one_template_share_what_they_have_in_common() -> None:
    keeper = PodTrimmer()
    one, other = (keeper.pod(pod(worker(name))) for name in ("a-0", "a-1"))

    assert one.spec.containers is other.spec.containers
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.metadata.finalizers is other.metadata.finalizers
    assert (one.metadata.name, other.metadata.name) == ("a-0", "a-1")


def test_what_kubectl_notes_and_variables_that_nobody_reads_are_not_kept() -> None:
    kept = PodTrimmer().pod(pod(worker("a-0", annotations={LAST_APPLIED: "{}"})))

    assert LAST_APPLIED not in (kept.metadata.annotations or {})
    assert [each.env for each in kept.spec.containers or ()] == [None]


def test_pods_that_have_nothing_in_common_are_kept_right_all_the_same() -> None:
    keeper = PodTrimmer(most=2)
    wholes = [pod(worker("a-0", nodeName=f"n{n}") | {"status": {}}) for n in range(3)]
    unlike = [
        msgspec.structs.replace(
            whole,
            metadata=msgspec.structs.replace(whole.metadata, labels={"n": str(number)}),
        )
        for number, whole in enumerate(wholes * 2)
    ]

    kept = [keeper.pod(each) for each in unlike]

    assert [each.metadata.labels for each in kept] == [
        {"n": str(number)} for number in range(6)
    ]
