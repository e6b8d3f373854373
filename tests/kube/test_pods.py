import json
from typing import Any

import msgspec
import pytest

from kube import kubelet_pods, pods
from kube.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    MalformedError,
    NotFoundError,
    UnreachableError,
)
from kube.objects import Meta, Pod
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind, ContainerNeed
from tests.kube.server import Answer, Request, Script, pod, refusal

ONE = Meta(namespace="ns", name="a", uid="u1")
NPU = "huawei.com/Ascend910"
OTHER = "huawei.com/Ascend310P"


def decoded(raw: dict[str, Any]) -> Pod:
    return msgspec.json.decode(json.dumps(raw).encode(), type=Pod)


def npu_pod(raw: dict[str, Any]) -> NpuPod:
    """Return a pod that asks for chips, as pairing sees it."""
    seen = pods.npu_pod(decoded(raw), NPU)
    assert seen is not None
    return seen


def asking(name: str, count: object, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {NPU: count, "cpu": "1"}}} | more


def full_pod() -> dict[str, Any]:
    owners = [
        {"kind": "ConfigMap", "name": "bystander", "uid": "x"},
        {"kind": "Job", "name": "train", "uid": "y", "controller": True},
    ]
    raw = pod(
        "train-0",
        7,
        annotations={"predicate-time": "5", NPU: "Ascend910-0", "other": "unread"},
        ownerReferences=owners,
        creationTimestamp="2026-11-21T03:00:00Z",
    )
    raw["spec"] = {
        "nodeName": "node-1",
        "initContainers": [
            asking("fetch", "1"),
            asking("proxy", 1, restartPolicy="Always"),
            {"name": "plain"},
        ],
        "containers": [
            {"name": "log", "resources": {}},
            asking(
                "main",
                "2",
                env=[
                    {"name": "A", "value": "b"},
                    {
                        "name": "ASCEND_VISIBLE_DEVICES",
                        "valueFrom": {
                            "fieldRef": {"fieldPath": f"metadata.annotations['{NPU}']"}
                        },
                    },
                    {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s"}}},
                ],
            ),
        ],
    }
    raw["status"] = {
        "phase": "Running",
        "hostIP": "10.1.1.1",
        "startTime": "2026-11-21T03:00:01Z",
    }
    return raw


def test_a_pod_is_seen_as_pairing_sees_it() -> None:
    seen = npu_pod(full_pod())

    assert (seen.uid, seen.namespace, seen.name) == ("uid-train-0", "ns", "train-0")
    assert (seen.node, seen.phase, seen.deleting) == ("node-1", "Running", False)
    assert seen.admitted
    assert seen.owner == "Job/ns/train"
    assert seen.created == "2026-11-21T03:00:00Z"
    assert seen.annotations == {"predicate-time": "5", NPU: "Ascend910-0"}
    assert seen.needs == (
        ContainerNeed(name="fetch", kind=ContainerKind.INIT, count=1),
        ContainerNeed(name="proxy", kind=ContainerKind.SIDECAR, count=1),
        ContainerNeed(name="main", kind=ContainerKind.APP, count=2),
    )
    assert seen.shape.reads_annotation


def test_a_pod_is_admitted_when_its_kubelet_has_said_so() -> None:
    raw = full_pod()
    raw["status"] = {"phase": "Pending"}

    assert not npu_pod(raw).admitted


def test_containers_served_by_dra_are_not_ours() -> None:
    raw = full_pod()
    raw["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "c",
        "requestMappings": [
            {"containerName": "fetch", "resourceName": NPU, "requestName": "r"},
            {"containerName": "main", "resourceName": "other/gpu", "requestName": "r"},
        ],
    }

    assert [need.name for need in npu_pod(raw).needs] == ["proxy", "main"]


def test_chips_of_another_line_that_dra_serves_are_no_second_kind() -> None:
    raw = pod("a", 1)
    raw["spec"] = {
        "containers": [
            {"name": "train", "resources": {"limits": {NPU: "2"}}},
            {"name": "infer", "resources": {"limits": {OTHER: "1"}}},
        ]
    }
    assert npu_pod(raw).problem.startswith("a pod gets NPUs of one kind")

    served = {"containerName": "infer", "resourceName": OTHER, "requestName": "r"}
    claim = {"resourceClaimName": "c", "requestMappings": [served]}
    raw["status"] = {"extendedResourceClaimStatus": claim}
    assert not npu_pod(raw).problem


@pytest.mark.parametrize(
    "raw",
    [
        {},
        pod("a", 1),
        {"metadata": {"annotations": None, "creationTimestamp": None}},
        {"spec": {"containers": None}, "status": {}},
        {"spec": {"containers": [{"name": "c", "resources": {"limits": None}}]}},
    ],
)
def test_a_pod_without_npus_is_none_of_ours(raw: dict[str, Any]) -> None:
    assert pods.npu_pod(decoded(raw), NPU) is None


def test_a_pod_being_deleted_says_so() -> None:
    raw = full_pod()
    raw["metadata"]["deletionTimestamp"] = "2026-11-21T03:05:00Z"
    raw["metadata"]["ownerReferences"] = None

    seen = npu_pod(raw)

    assert (seen.deleting, seen.owner) == (True, "")


async def test_a_pod_is_read(script: Script) -> None:
    script.will(Answer(body=pod("a", 3)))

    found = await pods.get(script.client, "ns", "a")

    assert (found.metadata.name, found.metadata.resource_version) == ("a", "3")
    assert script.requests[0].path == "/api/v1/namespaces/ns/pods/a"


async def test_annotations_are_patched_on_one_uid_only(script: Script) -> None:
    script.will(Answer(body=pod("a", 4)))

    patched = await pods.patch_annotations(script.client, ONE, {"x": "1", "y": None})

    assert patched.metadata.resource_version == "4"
    assert script.requests == [
        Request(
            method="PATCH",
            path="/api/v1/namespaces/ns/pods/a",
            query={},
            body={"metadata": {"uid": "u1", "annotations": {"x": "1", "y": None}}},
        )
    ]
    assert script.headers[0]["Content-Type"] == "application/merge-patch+json"


OTHER_UID = 'Pod "a" is invalid: metadata.uid: Invalid value: "u1": field is immutable'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(404, "NotFound"), NotFoundError),
        (refusal(409, "Conflict", "Precondition failed: UID"), ConflictError),
        (refusal(422, "Invalid", OTHER_UID), ConflictError),
        (refusal(422, "Invalid", "metadata.annotations: Too long"), InvalidError),
        (refusal(403, "Forbidden"), ForbiddenError),
        (Answer(raw=b"surprise"), MalformedError),
        (Answer(raw=b'{"metadata":{"name":"\xff"}}'), MalformedError),
    ],
)
async def test_another_uid_is_a_conflict_whatever_the_server_calls_it(
    script: Script, answer: Answer, error: type[Exception]
) -> None:
    script.will(answer)

    with pytest.raises(error):
        await pods.patch_annotations(script.client, ONE, {"x": "1"})


async def test_decision_and_binding_are_one_call(script: Script) -> None:
    script.will(Answer(status=201, body={"kind": "Status", "status": "Success"}))

    await pods.bind(
        script.client,
        ONE,
        node="node-1",
        annotations={NPU: "Ascend910-0", "predicate-time": "5"},
    )

    assert script.requests == [
        Request(
            method="POST",
            path="/api/v1/namespaces/ns/pods/a/binding",
            query={"timeout": "10s"},
            body={
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "name": "a",
                    "namespace": "ns",
                    "uid": "u1",
                    "annotations": {NPU: "Ascend910-0", "predicate-time": "5"},
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
            },
        )
    ]


@pytest.mark.parametrize(
    ("rehearse", "query"), [(False, {}), (True, {"dryRun": "All"})]
)
async def test_an_eviction_means_one_uid(
    script: Script, rehearse: bool, query: dict[str, str]
) -> None:
    script.will(Answer(status=201, body={"kind": "Status", "status": "Success"}))

    await pods.evict(script.client, ONE, dry_run=rehearse)

    assert script.requests == [
        Request(
            method="POST",
            path="/api/v1/namespaces/ns/pods/a/eviction",
            query=query,
            body={
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "a", "namespace": "ns"},
                "deleteOptions": {"preconditions": {"uid": "u1"}},
            },
        )
    ]


@pytest.mark.parametrize(
    ("version", "more"), [("", {}), ("7", {"resourceVersion": "7"})]
)
async def test_a_deletion_means_one_uid_and_perhaps_one_version(
    script: Script, version: str, more: dict[str, str]
) -> None:
    script.will(Answer(body=pod("a", 8)))

    await pods.delete(script.client, ONE, grace_s=0, resource_version=version)

    assert script.requests == [
        Request(
            method="DELETE",
            path="/api/v1/namespaces/ns/pods/a",
            query={},
            body={
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": "u1", **more},
            },
        )
    ]


async def test_a_disruption_is_told_beside_all_other_conditions(
    script: Script,
) -> None:
    script.will(Answer(body=pod("a", 8)), refusal(422, "Invalid", OTHER_UID))

    async def patch() -> None:
        await pods.patch_disruption_target(
            script.client, ONE, reason="Fault", message="m", at="2026-11-28T08:00:00Z"
        )

    await patch()
    with pytest.raises(ConflictError) as caught:
        await patch()

    assert pods.has_gone(caught.value)
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "Fault",
        "message": "m",
        "lastTransitionTime": "2026-11-28T08:00:00Z",
    }
    assert script.requests[0] == Request(
        method="PATCH",
        path="/api/v1/namespaces/ns/pods/a/status",
        query={},
        body={"metadata": {"uid": "u1"}, "status": {"conditions": [condition]}},
    )
    assert script.headers[0]["Content-Type"] == (
        "application/strategic-merge-patch+json"
    )


async def test_the_kubelet_says_what_runs(script: Script) -> None:
    script.will(Answer(body={"kind": "PodList", "items": [pod("a", 1), pod("b", 2)]}))

    found = await kubelet_pods.pods(script.url + "/", "secret")

    assert [each.metadata.name for each in found] == ["a", "b"]
    assert script.requests[0].path == "/pods"
    assert script.headers[0]["Authorization"] == "Bearer secret"


async def test_a_kubelet_without_pods_has_none(script: Script) -> None:
    script.will(Answer(body={"kind": "PodList", "items": None}))

    assert await kubelet_pods.pods(script.url) == []


async def test_a_slow_or_strange_kubelet_fails_soon(script: Script) -> None:
    script.will(Answer(raw=b'{"items": 7}'), Answer(after_s=30.0))

    with pytest.raises(MalformedError):
        await kubelet_pods.pods(script.url)
    with pytest.raises(UnreachableError):
        await kubelet_pods.pods(script.url, timeout_s=0.02)
