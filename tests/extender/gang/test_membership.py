"""Pods as each kind of controller makes them: labels and owners of real manifests."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from extender.gang.generations import Generation
from extender.gang.membership import (
    JOB_SIZE,
    ROWS,
    Membership,
    Row,
    SizeSource,
    member,
    membership,
)
from kube.objects import OwnerReference, Pod
from tests.support.real_pods import LABELS

NONE: dict[str, str] = {}


def pod(
    labels: dict[str, str] = NONE,
    annotations: dict[str, str] = NONE,
    owner: tuple[str, str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod as the API server shows it; owner: apiVersion, kind, name."""
    owners: list[dict[str, Any]] = []
    if owner is not None:
        version, kind, name = owner
        one = {"apiVersion": version, "kind": kind, "name": name, "uid": f"of-{name}"}
        owners = [one | {"controller": True}]
    meta = {
        "name": "p",
        "namespace": "ml",
        "uid": "u",
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": owners,
    }
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def of(kind: str) -> dict[str, str]:
    """Labels that one controller gives."""
    return LABELS[kind]


LAST = 7  # behind all leading roles
#: Annotations of a pod group of Kueue.
OF_FOUR = {
    "kueue.x-k8s.io/pod-group-total-count": "4",
    "kueue.x-k8s.io/role-hash": "4a1b",
}

CASES: dict[str, tuple[Pod, Membership]] = {
    "Job of pods": (
        pod(
            annotations={
                "ascend-affinity/job": "mine",
                "ascend-affinity/job-size": "4",
                "hccl/rankIndex": "3",
            }
        ),
        Membership(job="Job of pods/ml/mine", size=4, rank=3, order=(LAST, "", 0, 0)),
    ),
    "Minimum": (
        pod(
            {"apps.kubernetes.io/pod-index": "3"},
            {"huawei.com/schedule_minAvailable": "2"},
            owner=("apps/v1", "StatefulSet", "infer"),
        ),
        Membership(
            job="Minimum/ml/StatefulSet.infer",
            size=2,
            is_least=True,
            size_source=SizeSource(
                path="/apis/apps/v1/namespaces/ml/statefulsets/infer", kind="Minimum"
            ),
            order=(LAST, "", 3, 0),
            index="3",
            generation=Generation("of-infer", "StatefulSet.apps/infer"),
        ),
    ),
    "Training job": (
        pod(of("pytorch"), owner=("kubeflow.org/v1", "PyTorchJob", "bert")),
        Membership(
            job="Training job/ml/bert",
            size_source=SizeSource(
                path="/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/bert",
                kind="Training job",
            ),
            order=(LAST, "worker", 3, 0),
            index="3",
            generation=Generation("of-bert", "PyTorchJob.kubeflow.org/bert"),
        ),
    ),
    "JobSet": (
        pod(of("jobset"), owner=("batch/v1", "Job", "ranks-workers-1")),
        Membership(
            job="JobSet/ml/ranks",
            size_source=SizeSource(
                path="/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/ranks",
                kind="JobSet",
            ),
            order=(LAST, "workers", 1, 2),
            index="1/2",
            generation=Generation("2f81/0"),
        ),
    ),
    "LeaderWorkerSet": (
        pod(
            of("lws"),
            {"leaderworkerset.sigs.k8s.io/size": "4"},
            owner=("apps/v1", "StatefulSet", "serve-1"),
        ),
        Membership(
            job="LeaderWorkerSet/ml/serve/1",
            size=4,
            counts_all=True,
            size_source=SizeSource(
                path="/apis/leaderworkerset.x-k8s.io/v1/namespaces/ml/"
                "leaderworkersets/serve",
                kind="LeaderWorkerSet",
                stated=4,
            ),
            order=(LAST, "", 2, 0),
            index="2",
            generation=Generation("of-serve-1", follows=True),
        ),
    ),
    "Volcano Job": (
        pod(
            of("volcano"),
            {"scheduling.k8s.io/group-name": "lm-4be1"},
            owner=("batch.volcano.sh/v1alpha1", "Job", "lm"),
        ),
        Membership(
            job="Volcano Job/ml/lm",
            size_source=SizeSource(
                path="/apis/batch.volcano.sh/v1alpha1/namespaces/ml/jobs/lm",
                kind="Volcano Job",
            ),
            order=(LAST, "worker", 1, 0),
            index="1",
            generation=Generation("of-lm", "Job.batch.volcano.sh/lm"),
        ),
    ),
    "RayCluster": (
        pod(of("ray"), owner=("ray.io/v1", "RayCluster", "llm")),
        Membership(
            job="RayCluster/ml/llm",
            size_source=SizeSource(
                path="/apis/ray.io/v1/namespaces/ml/rayclusters/llm",
                kind="RayCluster",
            ),
            order=(LAST, "big", 2, 1),
            index="2/1",
            generation=Generation("of-llm", "RayCluster.ray.io/llm"),
        ),
    ),
    "PodGroup of Kubernetes": (
        pod(of("job"), schedulingGroup={"podGroupName": "train-workers"}),
        Membership(
            job="PodGroup of Kubernetes/ml/train-workers",
            counts_all=True,
            size_source=SizeSource(
                path="/apis/scheduling.k8s.io/{version}/namespaces/ml/"
                "podgroups/train-workers",
                kind="PodGroup of Kubernetes",
                versions=("v1beta1", "v1alpha3", "v1alpha2"),
            ),
            order=(LAST, "", 4, 0),
            index="4",
        ),
    ),
    "PodGroup": (
        pod({"scheduling.x-k8s.io/pod-group": "nginx"}),
        Membership(
            job="PodGroup/ml/nginx",
            counts_all=True,
            size_source=SizeSource(
                path="/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ml/podgroups/nginx",
                kind="PodGroup",
            ),
            order=(LAST, "", 0, 0),
        ),
    ),
    "PodGroup of Volcano": (
        pod(annotations={"scheduling.k8s.io/group-name": "pg"}),
        Membership(
            job="PodGroup of Volcano/ml/pg",
            counts_all=True,
            size_source=SizeSource(
                path="/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups/pg",
                kind="PodGroup of Volcano",
            ),
            order=(LAST, "", 0, 0),
        ),
    ),
    "Pod group of Kueue": (
        pod(
            of("kueue"), OF_FOUR, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]
        ),
        Membership(
            job="Pod group of Kueue/ml/sweep",
            size=4,
            counts_all=True,
            order=(LAST, "", 0, 0),
        ),
    ),
    "Job": (
        pod(of("job"), owner=("batch/v1", "Job", "train")),
        Membership(
            job="Job/ml/train",
            size_source=SizeSource(
                path="/apis/batch/v1/namespaces/ml/jobs/train", kind="Job"
            ),
            order=(LAST, "", 4, 0),
            index="4",
            generation=Generation("of-train", "Job.batch/train"),
        ),
    ),
}


def test_every_row_of_the_table_has_a_case() -> None:
    assert [row.kind for row in ROWS] == list(CASES)
    assert all(row.source for row in ROWS)


@pytest.mark.parametrize("kind", CASES)
def test_a_pod_is_found_in_its_job(kind: str) -> None:
    found, expected = CASES[kind]

    assert membership(found) == expected


@pytest.mark.parametrize(
    "alone",
    [
        pod(),
        pod({"app": "web"}, owner=("apps/v1", "ReplicaSet", "web-6c9")),
        pod(
            {"batch.kubernetes.io/job-name": "sweep", "job-name": "sweep"},
            owner=("batch/v1", "Job", "sweep"),
        ),
        pod(
            {"apps.kubernetes.io/pod-index": "1"}, owner=("apps/v1", "StatefulSet", "s")
        ),
        pod(of("job"), {"ascend-affinity/job": "x", "ascend-affinity/job-size": "1"}),
        pod(annotations={"huawei.com/schedule_minAvailable": "4"}),
        pod(of("ray") | {"ray.io/node-type": "redis-cleanup"}),
        pod(of("kueue")),
        pod(of("kueue"), {"kueue.x-k8s.io/pod-group-total-count": "1"}),
        pod(
            {"apps.kubernetes.io/pod-index": "1"} | of("kueue"),
            OF_FOUR
            | {
                "kueue.x-k8s.io/pod-group-fast-admission": "true",
                "kueue.x-k8s.io/pod-group-serving": "true",
            },
            owner=("apps/v1", "StatefulSet", "s"),
        ),
    ],
    ids=[
        *("bare", "ReplicaSet", "plain Job", "StatefulSet", "told so", "ownerless"),
        *("helper of Ray", "group without a number", "group of one"),
        "StatefulSet in Kueue",
    ],
)
def test_pods_that_nobody_joins_are_jobs_by_themselves(alone: Pod) -> None:
    assert membership(alone) is None


def test_workers_of_an_mpi_job_are_found_though_their_launcher_is_a_jobs() -> None:
    worker = pod(of("mpi"), owner=("kubeflow.org/v2beta1", "MPIJob", "resnet"))
    launcher = pod(
        of("mpi") | {"training.kubeflow.org/job-role": "launcher"},
        owner=("batch/v1", "Job", "resnet-launcher"),
    )

    found, of_launcher = membership(worker), membership(launcher)

    assert found is not None
    assert of_launcher == replace(
        found,
        order=(3, "launcher", 1, 0),
        index="0",
        generation=Generation("of-resnet-launcher", "Job.batch/resnet-launcher"),
    )
    assert found.size_source is not None
    assert (
        found.size_source.path
        == "/apis/kubeflow.org/v2beta1/namespaces/ml/mpijobs/resnet"
    )


def test_only_pods_say_the_least_number_of_a_replica_set() -> None:
    found = membership(
        pod(
            annotations={"huawei.com/schedule_minAvailable": "2"},
            owner=("apps/v1", "ReplicaSet", "infer-6c9"),
        )
    )

    assert found == Membership(
        job="Minimum/ml/ReplicaSet.infer-6c9",
        size=2,
        is_least=True,
        order=(LAST, "", 0, 0),
        generation=Generation("of-infer-6c9", "ReplicaSet.apps/infer-6c9"),
    )


@pytest.mark.parametrize("key", ["pod-template-hash", "rollouts-pod-template-hash"])
def test_d9_revisions_of_a_deployment_or_rollout_are_one_job(key: str) -> None:
    found = membership(
        pod(
            {key: "6c9"},
            {"huawei.com/schedule_minAvailable": "2"},
            owner=("apps/v1", "ReplicaSet", "infer-6c9"),
        )
    )

    assert found is not None
    assert found.job == "Minimum/ml/ReplicaSet.infer"
    assert found.generation == Generation("of-infer-6c9", "ReplicaSet.apps/infer-6c9")


def test_the_generation_of_a_group_is_its_leader_and_what_follows_it() -> None:
    labels = of("lws") | {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
    size = {"leaderworkerset.sigs.k8s.io/size": "4"}

    leader = membership(pod(labels, size, owner=("apps/v1", "StatefulSet", "serve")))

    assert leader is not None
    assert leader.generation == Generation("u")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_every_row_tells_a_pod_from_that_of_a_controller_made_again(row: Row) -> None:
    found, _ = CASES[row.kind]
    labels = dict(found.metadata.labels or {})
    if row.kind == "JobSet":
        labels["jobset.sigs.k8s.io/jobset-uid"] = "new"
    pods = [
        replaced(found, name="p", labels=texts, uid=uid)
        for texts, uid in ((found.metadata.labels, "old"), (labels, "new"))
    ]

    names = [place.generation.name for one in pods if (place := membership(one))]

    assert len(set(names)) == 2


def replaced(found: Pod, uid: str, **meta: Any) -> Pod:
    """The pod, as a controller with this UID makes it."""
    owner = OwnerReference(kind="Job", name="x", uid=uid, controller=True)
    changed = structs.replace(found.metadata, owner_references=[owner], **meta)
    return structs.replace(found, metadata=changed)


def test_those_who_lead_come_before_those_who_follow() -> None:
    master = of("pytorch") | {
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/replica-index": "0",
    }
    owner = ("kubeflow.org/v1", "PyTorchJob", "bert")

    found = [membership(pod(labels, owner=owner)) for labels in (of("pytorch"), master)]

    assert [one.order for one in found if one] == [
        (LAST, "worker", 3, 0),
        (0, "master", 0, 0),
    ]


@pytest.mark.parametrize(
    ("size", "found"), [({}, "none"), ({"ascend-affinity/job-size": "two"}, "'two'")]
)
def test_a_job_whose_pods_state_no_number_says_what_it_expects(
    size: dict[str, str], found: str
) -> None:
    member = membership(pod(annotations={"ascend-affinity/job": "mine"} | size))

    assert member is not None
    assert member.size is None
    assert member.problem == (
        "annotation ascend-affinity/job-size: expected a whole number of pods, "
        f"found {found}"
    )


@pytest.mark.parametrize("size", ["2", "4", "three"])
@pytest.mark.parametrize("others", [{}, LABELS["pytorch"]])
def test_d12_a_size_without_a_name_is_no_job(size: str, others: dict[str, str]) -> None:
    """Also beside the marks of a controller: what a person writes goes first."""
    found = membership(pod(others, {JOB_SIZE: size}))

    assert found is not None
    assert (found.size, found.size_source, found.problem) == (
        None,
        None,
        "annotation ascend-affinity/job: expected the name of the job, found none",
    )


def test_d12_a_size_of_one_needs_no_name() -> None:
    assert membership(pod(annotations={JOB_SIZE: "1"})) is None


def test_a_rank_that_is_no_number_is_none() -> None:
    found = membership(pod(of("job"), {"hccl/rankIndex": "first"}))

    assert found is not None
    assert found.rank is None


@pytest.mark.parametrize(
    ("gates", "is_gated"), [([{"name": "kueue"}], True), ([], False)]
)
def test_a_pod_with_scheduling_gates_is_gated(
    gates: list[dict[str, str]], is_gated: bool
) -> None:
    found = member(pod(of("job"), schedulingGates=gates))

    assert found is not None
    assert found.is_gated is is_gated


def test_the_head_of_a_ray_cluster_comes_first() -> None:
    head = of("ray") | {"ray.io/node-type": "head", "ray.io/group": "headgroup"}
    owner = ("ray.io/v1", "RayCluster", "llm")

    found = [membership(pod(labels, owner=owner)) for labels in (of("ray"), head)]

    assert sorted(one.role for one in found if one) == ["big", "headgroup"]
    assert min(one.order for one in found if one)[1] == "headgroup"


def test_a_group_of_kueue_that_is_admitted_early_may_begin_with_one() -> None:
    fast = {"kueue.x-k8s.io/pod-group-fast-admission": "true"}

    found = membership(pod(of("kueue"), OF_FOUR | fast))

    assert found == replace(CASES["Pod group of Kueue"][1], can_begin_with_one=True)


def test_kueue_reads_the_annotation_with_the_name_of_a_group_first() -> None:
    named = {"kueue.x-k8s.io/pod-group-name": "other"}

    by_both = membership(pod(of("kueue"), OF_FOUR | named))
    by_annotation = membership(pod(annotations=OF_FOUR | named))

    assert by_both == by_annotation
    assert by_both is not None
    assert by_both.job == "Pod group of Kueue/ml/other"


#: {what manages pods as well: (kind that decides, labels, annotations, spec)}
BOTH: dict[str, tuple[str, dict[str, str], dict[str, str], dict[str, Any]]] = {
    "a person": (
        "Job of pods",
        of("ray"),
        {"ascend-affinity/job": "x", "ascend-affinity/job-size": "2"},
        {},
    ),
    "KubeRay with Volcano": (
        "RayCluster",
        of("ray"),
        {"scheduling.k8s.io/group-name": "ray-llm-pg", "volcano.sh/task-spec": "Big"},
        {},
    ),
    "KubeRay with coscheduling": (
        "RayCluster",
        of("ray") | {"scheduling.x-k8s.io/pod-group": "llm"},
        {},
        {},
    ),
    "KubeRay with workload-aware scheduling": (
        "RayCluster",
        of("ray"),
        {},
        {"schedulingGroup": {"podGroupName": "llm-cluster"}},
    ),
    "KubeRay in Kueue": ("RayCluster", of("ray") | of("kueue"), OF_FOUR, {}),
    "JobSet in Kueue": ("JobSet", of("jobset") | of("kueue"), OF_FOUR, {}),
    "LeaderWorkerSet in Kueue": (
        "LeaderWorkerSet",
        of("lws") | of("kueue"),
        OF_FOUR | {"leaderworkerset.sigs.k8s.io/size": "4"},
        {},
    ),
    "training job in Kueue": ("Training job", of("mpi") | of("kueue"), OF_FOUR, {}),
    "coscheduling in Kueue": (
        "PodGroup",
        of("kueue") | {"scheduling.x-k8s.io/pod-group": "nginx"},
        OF_FOUR,
        {},
    ),
    "Job in a pod group": ("Pod group of Kueue", of("job") | of("kueue"), OF_FOUR, {}),
}


@pytest.mark.parametrize("case", BOTH)
def test_a_pod_of_two_kinds_is_counted_once(case: str) -> None:
    kind, labels, annotations, spec = BOTH[case]

    found = membership(pod(labels, annotations, **spec))

    assert found is not None
    assert found.job.partition("/")[0] == kind


@pytest.mark.parametrize("mark", [*LABELS.values(), {}])
@pytest.mark.parametrize(
    "key",
    [
        "scheduling.k8s.io/group-size",
        "huawei.com/schedule_minAvailable",
        "kueue.x-k8s.io/pod-group-total-count",
        "hccl/rankIndex",
        "sp-block",
        JOB_SIZE,
    ],
)
def test_no_annotation_is_too_long_to_be_read(mark: dict[str, str], key: str) -> None:
    found = membership(pod(mark, {key: "9" * 5000}))

    assert found is None or found.size is None or found.size < 10**9
