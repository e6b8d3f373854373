"""Jobs of four pods that may run with two, by each controller, and room for three."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from extender.gang.membership import ROWS
from extender.gang.size import Size, size_of, whole
from kube.workloads import VERSION
from sandbox.apiclient import Object
from tests.extender.gangworld import GangWorld, sim_node, sim_pod
from tests.support.caches import only_gang
from tests.support.objects import container
from tests.support.watched import RESOURCE

NAMES = ("p0", "p1", "p2", "p3")
ROOM = ("n1", "n2", "n3")
KUBEFLOW = "training.kubeflow.org"
COMPLETION = "batch.kubernetes.io/job-completion-index"
MINIMUM = "huawei.com/schedule_minAvailable"
PARALLEL = "kueue.x-k8s.io/job-min-parallelism"


def template(npus: int = 8, notes: Mapping[str, str] | None = None) -> Object:
    made: Object = {"spec": {"containers": [container(npus=npus)]}}
    return made | ({"metadata": {"annotations": notes}} if notes else {})


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a controller says how many of the four pods of a job must run."""

    #: as in `membership.ROWS`
    kind: str
    #: of the object; "" if the pods say all
    path: str = ""
    spec: Object = field(default_factory=dict)
    meta: Object = field(default_factory=dict)
    #: labels of the pods; `{}` stands for the pod's number
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    #: apiVersion and kind of the owner
    owner: tuple[str, str] = ("", "")
    #: more of the spec of its pods
    pod: Mapping[str, Any] = field(default_factory=dict)
    least: int = 2
    #: how many of them run where there is room for three
    fitting: int = 3

    def pods(self) -> Iterator[Object]:
        version, kind = self.owner
        owners = [{"apiVersion": version, "kind": kind, "name": "j", "uid": "u"}]
        for number, name in enumerate(NAMES):
            made = sim_pod(name, npus=8, **self.pod)
            made["metadata"] |= {
                "labels": {"role": "worker"}
                | {key: text.format(number) for key, text in self.labels.items()},
                "annotations": {
                    key: text.format(number) for key, text in self.annotations.items()
                },
                "ownerReferences": [
                    each | {"controller": True} for each in owners if kind
                ],
            }
            yield made

    def size(self) -> Size | None:
        return size_of(
            self.kind, {"spec": self.spec, "metadata": self.meta}, [RESOURCE]
        )


def training(kind: str, roles: str, **parts: Any) -> Source:
    """Return a training job of four workers; its own roles may come besides."""
    spec = {"Worker": {"replicas": 4, "template": template()}, **parts.pop("more", {})}
    meta = parts.pop("meta", {})
    version = "mindxdl.gitee.com/v1" if kind == "AscendJob" else "kubeflow.org/v1"
    return Source(
        kind="Training job",
        path=f"/apis/{version}/namespaces/default/{kind.lower()}s/j",
        spec={roles: spec, **parts},
        meta=meta,
        labels={
            f"{KUBEFLOW}/job-name": "j",
            f"{KUBEFLOW}/replica-type": "worker",
            f"{KUBEFLOW}/replica-index": "{}",
        },
        owner=(version, kind),
    )


def volcano(task: Object, meta: Object | None = None, **spec: Any) -> Source:
    tasks = [{"name": "w", "replicas": 4, "template": template(), **task}]
    return Source(
        kind="Volcano Job",
        path="/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j",
        spec={"tasks": tasks, **spec},
        meta=meta or {},
        labels={
            "volcano.sh/job-name": "j",
            "volcano.sh/task-spec": "w",
            "volcano.sh/task-index": "{}",
        },
        owner=("batch.volcano.sh/v1alpha1", "Job"),
    )


def job(**notes: str) -> Source:
    spec = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}
    return Source(
        kind="Job",
        path="/apis/batch/v1/namespaces/default/jobs/j",
        spec={**spec, "template": template()},
        meta={"annotations": notes},
        labels={COMPLETION: "{}", "batch.kubernetes.io/job-name": "j"},
        owner=("batch/v1", "Job"),
    )


def shrinkable(text: object, **labels: str) -> Object:
    return {"annotations": {"minReplicas": text}, "labels": labels}


def grouped(kind: str, group: str, spec: Object, **pods: Any) -> Source:
    path = f"/apis/{group}/namespaces/default/podgroups/j"
    return Source(kind=kind, path=path, spec=spec, **{"labels": {}, **pods})


GANG = {"schedulingPolicy": {"minAvailable": 2}}
ELASTIC = {"minReplicas": 2, "maxReplicas": 4, "rdzvBackend": "c10d"}

SOURCES: dict[str, Source] = {
    "elasticPolicy of a PyTorchJob": training(
        "PyTorchJob", "pytorchReplicaSpecs", elasticPolicy=ELASTIC
    ),
    "elasticPolicy of a PaddleJob": training(
        "PaddleJob", "paddleReplicaSpecs", elasticPolicy=ELASTIC
    ),
    "schedulingPolicy of a PyTorchJob": training(
        "PyTorchJob", "pytorchReplicaSpecs", runPolicy=GANG
    ),
    "schedulingPolicy of an AscendJob": training(
        "AscendJob", "replicaSpecs", runPolicy=GANG
    ),
    "minReplicas of an AscendJob": training(
        "AscendJob", "replicaSpecs", meta=shrinkable("2")
    ),
    "schedulingPolicy of an MPIJob, its launcher included": training(
        "MPIJob",
        "mpiReplicaSpecs",
        runPolicy={"schedulingPolicy": {"minAvailable": 3}},
        more={"Launcher": {"replicas": 1, "template": template(0)}},
    ),
    "minAvailable of a Volcano Job": volcano({}, minAvailable=2),
    "minAvailable of a task": volcano({"minAvailable": 2}),
    "partitions of a task": replace(
        volcano({"partitionPolicy": {"minPartitions": 1, "partitionSize": 2}}),
        fitting=2,
    ),
    "minReplicas of a Volcano Job": volcano(
        {}, shrinkable("2", **{"elastic-scheduling": "on"}), minAvailable=1
    ),
    "minReplicas of a RayCluster's group": Source(
        kind="RayCluster",
        path="/apis/ray.io/v1/namespaces/default/rayclusters/j",
        spec={
            "enableInTreeAutoscaling": True,
            "headGroupSpec": {"template": template(0)},
            "workerGroupSpecs": [
                {
                    "groupName": "g",
                    "replicas": 4,
                    "minReplicas": 2,
                    "template": template(),
                }
            ],
        },
        labels={
            "ray.io/cluster": "j",
            "ray.io/node-type": "worker",
            "ray.io/group": "g",
            "ray.io/worker-group-replica-index": "{}",
        },
        owner=("ray.io/v1", "RayCluster"),
    ),
    "a Job that Kueue may admit in part": job(**{PARALLEL: "2"}),
    "a StatefulSet with an annotation": Source(
        kind="Minimum",
        path="/apis/apps/v1/namespaces/default/statefulsets/j",
        spec={
            "replicas": 4,
            "podManagementPolicy": "Parallel",
            "template": template(notes={MINIMUM: "2"}),
        },
        labels={"apps.kubernetes.io/pod-index": "{}"},
        annotations={MINIMUM: "2"},
        owner=("apps/v1", "StatefulSet"),
    ),
    "a ReplicaSet with an annotation": Source(
        kind="Minimum",
        labels={},
        annotations={MINIMUM: "2"},
        owner=("apps/v1", "ReplicaSet"),
    ),
    "minMember of coscheduling": grouped(
        "PodGroup",
        "scheduling.x-k8s.io/v1alpha1",
        {"minMember": 2},
        labels={"scheduling.x-k8s.io/pod-group": "j"},
    ),
    "minMember of Volcano": grouped(
        "PodGroup of Volcano",
        "scheduling.volcano.sh/v1beta1",
        {"minMember": 2},
        annotations={"scheduling.k8s.io/group-name": "j"},
    ),
    "minCount of Kubernetes": grouped(
        "PodGroup of Kubernetes",
        f"scheduling.k8s.io/{VERSION}",
        {"schedulingPolicy": {"gang": {"minCount": 2}}},
        pod={"schedulingGroup": {"podGroupName": "j"}},
    ),
    "a group that Kueue admits pod by pod": Source(
        kind="Pod group of Kueue",
        labels={},
        annotations={
            "kueue.x-k8s.io/pod-group-name": "j",
            "kueue.x-k8s.io/pod-group-total-count": "4",
            "kueue.x-k8s.io/pod-group-fast-admission": "true",
        },
        least=1,
    ),
}


@contextmanager
def running(source: Source) -> Iterator[GangWorld]:
    """Let the four pods of a job wait for three nodes for half a minute."""
    world = GangWorld(map(sim_node, ROOM))
    try:
        size = source.size() if source.path else None
        if size is not None:
            world.world.calls.sizes[source.path] = size
        world.add(*source.pods())
        world.run(30)
        yield world
    finally:
        world.close()


@pytest.mark.parametrize("name", SOURCES)
def test_d8_a_job_that_may_run_with_two_runs_with_the_three_that_fit(name: str) -> None:
    """Of partitions of two pods, one fits."""
    source = SOURCES[name]
    with running(source) as w:
        assert len(w.bound) == source.fitting

        text = (
            f"the job runs with {source.fitting} of 4 pods, and needs at least "
            f"{source.least}: the others join as room comes"
        )
        unbound = min({*NAMES} - {*w.bound})
        assert w.world.calls.told == [(unbound, "AscendGangSmaller", text)]


#: Sources without a number that can be meant, or with none that is less.
WHOLE: dict[str, Source] = {
    "no elasticPolicy": training("PyTorchJob", "pytorchReplicaSpecs"),
    "an elasticPolicy without numbers": training(
        "PyTorchJob", "pytorchReplicaSpecs", elasticPolicy={}
    ),
    **{
        f"minReplicas {value!r} of an elasticPolicy": training(
            "PyTorchJob", "pytorchReplicaSpecs", elasticPolicy={"minReplicas": value}
        )
        for value in ("2", 0, -1, 2.5, 4, 9, None)
    },
    "maxReplicas alone": training(
        "PyTorchJob", "pytorchReplicaSpecs", elasticPolicy={"maxReplicas": 4}
    ),
    **{
        f"minReplicas {value!r} of a Volcano Job": volcano({}, shrinkable(value))
        for value in ("two", "0", "-1", "2.5", "4", "9", "", "²", "9" * 5000, None)
    },
    "minReplicas of a job that is not elastic": volcano(
        {}, shrinkable("2", **{"elastic-scheduling": "off"})
    ),
    **{
        f"{value!r} pods that Kueue must admit": job(**{PARALLEL: value})
        for value in ("two", "0", "-1", "4", "9", "")
    },
    "a JobSet, which has no least number": Source(
        kind="JobSet",
        path="/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/j",
        spec={
            "replicatedJobs": [
                {
                    "name": "w",
                    "template": {"spec": {"parallelism": 4, "template": template()}},
                }
            ]
        },
        labels={
            "jobset.sigs.k8s.io/jobset-name": "j",
            "jobset.sigs.k8s.io/replicatedjob-name": "w",
            "jobset.sigs.k8s.io/job-index": "0",
            COMPLETION: "{}",
        },
        owner=("batch/v1", "Job"),
    ),
    "a LeaderWorkerSet, which has none either": Source(
        kind="LeaderWorkerSet",
        path="/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets/j",
        spec={"leaderWorkerTemplate": {"size": 4, "workerTemplate": template()}},
        labels={
            "leaderworkerset.sigs.k8s.io/name": "j",
            "leaderworkerset.sigs.k8s.io/group-index": "0",
            "leaderworkerset.sigs.k8s.io/worker-index": "{}",
        },
        annotations={"leaderworkerset.sigs.k8s.io/size": "4"},
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_d8_a_number_that_cannot_be_meant_leaves_a_job_whole(name: str) -> None:
    source = WHOLE[name]

    assert source.size() == whole(4)
    with running(source) as w:
        assert only_gang(w.cache).size == whole(4)
        assert w.bound == {}


def test_d8_each_kind_of_job_is_looked_at_here() -> None:
    """Jobs of pods say themselves how many they are, and need all."""
    kinds = {source.kind for source in (*SOURCES.values(), *WHOLE.values())}

    assert {row.kind for row in ROWS} - kinds == {"Job of pods"}


def roled(
    least: int, *, master: int = 8, gang: int = 0, masters: int = 1
) -> Size | None:
    """Return the size of a PyTorchJob that has a master as well."""
    policy = {"runPolicy": {"schedulingPolicy": {"minAvailable": gang}}} if gang else {}
    roles = {
        "Master": {"replicas": masters, "template": template(master)},
        "Worker": {"replicas": 4, "template": template()},
    }
    spec = {"pytorchReplicaSpecs": roles, "elasticPolicy": {"minReplicas": least}}
    return size_of("Training job", {"spec": {**spec, **policy}}, [RESOURCE])


BOTH = (("master", 1), ("worker", 2))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (roled(2), Size(count=5, least=3, roles=BOTH)),
        (roled(2, master=0), Size(count=4, least=2, roles=(("worker", 2),))),
        (
            roled(1, masters=2),
            Size(count=6, least=3, roles=(("master", 2), ("worker", 1))),
        ),
        (roled(4), whole(5)),
        (roled(9), whole(5)),
        # a number for schedulers goes before, and counts the master as well
        (roled(2, gang=4), Size(count=5, least=4, roles=BOTH)),
        (roled(2, gang=2), Size(count=5, least=2)),
        (roled(4, gang=3), Size(count=5, least=3)),
        (roled(2, gang=5), whole(5)),
    ],
)
def test_d8_an_elastic_policy_counts_workers_and_the_master_is_needed_as_well(
    size: Size | None, expected: Size
) -> None:
    assert size == expected


def test_d8_the_least_is_the_largest_number_if_that_alone_is_said() -> None:
    """Kueue and people make jobs smaller so; the operator takes it for both."""
    source = training(
        "PyTorchJob", "pytorchReplicaSpecs", elasticPolicy={"maxReplicas": 2}
    )

    assert source.size() == Size(count=4, least=2, roles=(("worker", 2),))


def test_d8_mindclusters_number_goes_before_that_of_volcano() -> None:
    """Its page wants `minAvailable` to be 1, whatever the job needs."""
    found = volcano({}, shrinkable("3"), minAvailable=1).size()

    assert found == Size(count=4, least=3)


@pytest.mark.parametrize(
    ("completions", "parallelism", "least", "expected"),
    [
        (4, 3, "2", Size(count=4, least=2)),
        (3, 3, "2", Size(count=3, least=2)),
        (100, 8, "2", Size(count=100, least=2)),
        (4, 1, "2", whole(1)),
        (4, 3, "1", whole(1)),
        (4, 3, "", whole(1)),
        (100, 4, "", whole(1)),
    ],
)
def test_an_indexed_job_that_kueue_admits_in_part_is_one_job_as_before(
    completions: int, parallelism: int, least: str, expected: Size
) -> None:
    source = job(**{PARALLEL: least})
    counts = {"completions": completions, "parallelism": parallelism}

    assert replace(source, spec={**source.spec, **counts}).size() == expected
