from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from extender.gang.membership import ROWS
from extender.gang.parts import Division, Number
from extender.gang.size import Followers, Size, Stage, size_of, whole

NPU = "huawei.com/Ascend910"
NONE: Mapping[str, Any] = {}
OURS = (NPU, "huawei.com/npu")


def template(count: int) -> dict[str, Any]:
    """A pod template that asks for so many chips."""
    limits = {"cpu": "4"} | ({NPU: count} if count else {})
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}


def group(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


def indexed(completions: int, parallelism: int) -> dict[str, Any]:
    """A Job with indexes."""
    return group(
        completionMode="Indexed",
        completions=completions,
        parallelism=parallelism,
        template=template(8),
    )


def ray(*groups: dict[str, Any], head: int = 0, **spec: Any) -> dict[str, Any]:
    """A RayCluster whose head asks for so many chips, and each worker for eight."""
    workers = [
        {"groupName": f"G{number}", "template": template(8), "minReplicas": 0} | each
        for number, each in enumerate(groups)
    ]
    return group(
        headGroupSpec={"template": template(head)}, workerGroupSpecs=workers, **spec
    )


def least_of(text: str) -> dict[str, Any]:
    """The annotation of a template that says how many of its pods must run."""
    return {"metadata": {"annotations": {"huawei.com/schedule_minAvailable": text}}}


def followers(
    *numbers: Number, role: str = "", of: Mapping[str, Any] = NONE
) -> Followers:
    """Pods with eight chips that are made later."""
    return Followers(role=role, numbers=numbers, template=template(8) | dict(of))


#: Annotations of a JobSet whose jobs each get a topology domain of their own.
EXCLUSIVE = {
    "metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}
}
SCALED = {"enableInTreeAutoscaling": True}

CASES: dict[str, tuple[str, dict[str, Any], Size | None]] = {
    "a Ray head without NPUs does not count": (
        "RayCluster",
        ray({"replicas": 3, "minReplicas": 1}),
        whole(3),
    ),
    "a Ray head with NPUs counts": (
        "RayCluster",
        ray({"replicas": 3}, head=8),
        whole(4),
    ),
    "a RayCluster without workers": ("RayCluster", ray(head=8), whole(1)),
    "a RayCluster that asks for no NPUs": (
        "RayCluster",
        ray({"replicas": 3, "template": template(0)}),
        None,
    ),
    "each replica of a Ray group has so many hosts": (
        "RayCluster",
        ray({"replicas": 2, "numOfHosts": 4}, {"replicas": 1}),
        replace(whole(9), divisions=(Division("g0", "replica", 4, 1),)),
    ),
    "replicas of a Ray group are within their bounds": (
        "RayCluster",
        ray(
            {"replicas": 9, "maxReplicas": 3},
            {"replicas": 1, "minReplicas": 2},
            {"minReplicas": 1},
            {"maxReplicas": 5},
        ),
        whole(6),
    ),
    "a Ray group that is suspended has no pods": (
        "RayCluster",
        ray({"replicas": 3, "suspend": True}, {"replicas": 2}),
        whole(2),
    ),
    "a RayCluster that is suspended is as large as before": (
        "RayCluster",
        ray({"replicas": 3}, suspend=True),
        whole(3),
    ),
    "a RayCluster with the autoscaler needs the least of each group": (
        "RayCluster",
        ray(
            {"replicas": 3, "minReplicas": 1, "numOfHosts": 2},
            {"replicas": 2, "minReplicas": 2},
            {"replicas": 4},
            head=8,
            **SCALED,
        ),
        Size(
            count=13,
            least=5,
            roles=(("headgroup", 1), ("g0", 2), ("g1", 2)),
            divisions=(Division("g0", "replica", 2, 1),),
        ),
    ),
    "a RayCluster with the autoscaler that needs nobody": (
        "RayCluster",
        ray({"replicas": 3}, **SCALED),
        Size(count=3, least=1),
    ),
    "a RayCluster with the autoscaler that is at its least": (
        "RayCluster",
        ray({"replicas": 1, "minReplicas": 3}, **SCALED),
        whole(3),
    ),
    "a RayCluster without numbers": (
        "RayCluster",
        group(
            headGroupSpec={"template": template(8)},
            workerGroupSpecs=[{"replicas": "two", "numOfHosts": None}, "G"],
        ),
        whole(1),
    ),
    "a master is a pod like its workers": (
        "Training job",
        group(
            pytorchReplicaSpecs={
                "Master": {"replicas": 1, "template": template(8)},
                "Worker": {"replicas": 3, "template": template(8)},
            }
        ),
        whole(4),
    ),
    "an MPI launcher does not count": (
        "Training job",
        group(
            mpiReplicaSpecs={
                "Launcher": {"replicas": 1, "template": template(0)},
                "Worker": {"replicas": 2, "template": template(8)},
            }
        ),
        whole(2),
    ),
    "the jobs of a JobSet are one": (
        "JobSet",
        group(
            replicatedJobs=[
                {
                    "name": "driver",
                    "template": {"spec": {"template": template(0)}},
                },
                {
                    "name": "workers",
                    "replicas": 3,
                    "template": {"spec": {"parallelism": 2, "template": template(8)}},
                },
            ]
        ),
        whole(6),
    ),
    "a leader without NPUs does not count": (
        "LeaderWorkerSet",
        group(
            leaderWorkerTemplate={
                "size": 4,
                "leaderTemplate": template(0),
                "workerTemplate": template(8),
            }
        ),
        whole(3),
    ),
    "a leader of the workers' template counts": (
        "LeaderWorkerSet",
        group(leaderWorkerTemplate={"size": 4, "workerTemplate": template(8)}),
        whole(4),
    ),
    "tasks of a Volcano Job": (
        "Volcano Job",
        group(
            minAvailable=3,
            tasks=[
                {"name": "master", "replicas": 1, "template": template(0)},
                {"name": "worker", "replicas": 2, "template": template(4)},
            ],
        ),
        whole(2),
    ),
    "a Volcano Job that may run with half of its pods": (
        "Volcano Job",
        group(
            minAvailable=2,
            tasks=[{"name": "w", "replicas": 4, "template": template(8)}],
        ),
        Size(count=4, least=2),
    ),
    "each task of a Volcano Job has its least": (
        "Volcano Job",
        group(
            minAvailable=4,
            tasks=[
                {"name": "ps", "replicas": 1, "template": template(0)},
                {"name": "Head", "replicas": 1, "template": template(8)},
                {
                    "name": "worker",
                    "replicas": 4,
                    "minAvailable": 2,
                    "template": template(8),
                },
            ],
        ),
        Size(count=5, least=3, roles=(("head", 1), ("worker", 2))),
    ),
    "tasks of a Volcano Job that need more than the job are not looked at": (
        "Volcano Job",
        group(
            minAvailable=2,
            tasks=[
                {"name": "head", "replicas": 1, "template": template(8)},
                {
                    "name": "worker",
                    "replicas": 4,
                    "minAvailable": 2,
                    "template": template(8),
                },
            ],
        ),
        Size(count=5, least=2),
    ),
    "partitions of a Volcano Job": (
        "Volcano Job",
        group(
            tasks=[
                {
                    "name": "w",
                    "replicas": 8,
                    "partitionPolicy": {"minPartitions": 2, "partitionSize": 2},
                    "template": template(8),
                }
            ]
        ),
        Size(
            count=8,
            least=4,
            roles=(("w", 4),),
            divisions=(Division("w", "partition", 2, 2),),
        ),
    ),
    "an elastic training job": (
        "Training job",
        group(
            runPolicy={"schedulingPolicy": {"minAvailable": 2}},
            pytorchReplicaSpecs={
                "Master": {"replicas": 1, "template": template(8)},
                "Worker": {"replicas": 3, "template": template(8)},
            },
        ),
        Size(count=4, least=2),
    ),
    "an elastic training job whose launcher counts": (
        "Training job",
        group(
            runPolicy={"schedulingPolicy": {"minAvailable": 1}},
            mpiReplicaSpecs={
                "Launcher": {"replicas": 1, "template": template(0)},
                "Worker": {"replicas": 2, "template": template(8)},
            },
        ),
        Size(count=2, least=1),
    ),
    "a native group of v1alpha2": (
        "PodGroup of Kubernetes",
        group(
            podGroupTemplateRef={
                "workload": {"workloadName": "lm", "podGroupTemplateName": "workers"}
            },
            schedulingPolicy={"gang": {"minCount": 4}},
            disruptionMode="Pod",
        ),
        Size(count=None, least=4, counts_all=True),
    ),
    "a native group of v1alpha3 and v1beta1": (
        "PodGroup of Kubernetes",
        group(
            parentCompositePodGroupName="lm",
            workloadRef={"workloadName": "lm", "templateName": "workers"},
            schedulingPolicy={"gang": {"minCount": 4}},
            disruptionMode={"single": {}},
        ),
        Size(count=None, least=4, counts_all=True),
    ),
    "a native group that is no gang": (
        "PodGroup of Kubernetes",
        group(schedulingPolicy={"basic": {}}),
        Size(count=None, least=1, counts_all=True),
    ),
    "coscheduling's group": (
        "PodGroup",
        group(minMember=3, scheduleTimeoutSeconds=10),
        Size(count=None, least=3, counts_all=True),
    ),
    "Volcano's group": (
        "PodGroup of Volcano",
        group(minMember=5),
        Size(count=None, least=5, counts_all=True),
    ),
    "an indexed Job whose pods all run at once": ("Job", indexed(4, 4), whole(4)),
    "a Job that counts pods that succeeded": (
        "Job",
        indexed(4, 4) | {"status": {"succeeded": 3}},
        replace(whole(4), succeeded=3),
    ),
    "a Job with indexes that have failed for good": (
        "Job",
        indexed(8, 8) | {"status": {"succeeded": 1, "failedIndexes": "0,2-4"}},
        replace(whole(8), succeeded=5),
    ),
    **{
        f"a Job with indexes that nobody can read: {text:.3}": (
            "Job",
            indexed(2, 2) | {"status": {"failedIndexes": text}},
            whole(2),
        )
        for text in ("0-x", "9" * 5_000)
    },
    "a JobSet whose jobs complete with fewer pods than may run": (
        "JobSet",
        group(
            replicatedJobs=[
                {
                    "name": "w",
                    "replicas": 2,
                    "template": {
                        "spec": {
                            "completions": 3,
                            "parallelism": 4,
                            "template": template(8),
                        }
                    },
                }
            ]
        ),
        whole(6),
    ),
    "a JobSet of more pods than any cluster has": (
        "JobSet",
        group(
            replicatedJobs=[
                {
                    "name": "w",
                    "replicas": 40_000,
                    "template": {
                        "spec": {"parallelism": 50_000, "template": template(8)}
                    },
                }
            ]
        ),
        whole(2_000_000_000),
    ),
    "a StatefulSet whose pods come together": (
        "Minimum",
        group(
            replicas=4,
            podManagementPolicy="Parallel",
            template=template(8) | least_of("2"),
        ),
        Size(count=4, least=2),
    ),
    "a StatefulSet whose pods come one after the other": (
        "Minimum",
        group(replicas=3, ordinals={"start": 1}, template=template(8) | least_of("x")),
        replace(whole(3), followers=(followers((2, 0), (3, 0), of=least_of("x")),)),
    ),
    "nobody asks for NPUs": (
        "Volcano Job",
        group(tasks=[{"name": "a", "replicas": 9, "template": template(0)}]),
        None,
    ),
    "nonsense": ("JobSet", {"spec": {"replicatedJobs": [3, {"template": 7}]}}, None),
    "no object": ("Training job", {}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_object_says_how_many_pods_ask_for_npus(case: str) -> None:
    kind, found, size = CASES[case]

    assert size_of(kind, found, OURS) == size


def a_jobset(*jobs: tuple[str, int, str], **spec: Any) -> dict[str, Any]:
    """A JobSet of one pod a job: name, chips, and what must be ready before it."""
    listed = [
        {
            "name": name,
            "template": {"spec": {"template": template(count)}},
            "dependsOn": [{"name": after, "status": "Ready"}] if after else None,
        }
        for name, count, after in jobs
    ]
    return group(replicatedJobs=listed, **spec)


def test_what_begins_when_others_have_completed_is_a_stage() -> None:
    """C follows B, which begins when A has completed; D begins at once."""
    found = a_jobset(("a", 8, ""), ("B", 8, ""), ("c", 8, "B"), ("d", 8, ""))
    found["spec"]["replicatedJobs"][1]["dependsOn"] = [
        {"name": "a", "status": "Complete"}
    ]

    size = size_of("JobSet", found, OURS)

    later = followers((0, 0), role="c")
    stage = Stage(
        name="B", roles=frozenset("bc"), size=replace(whole(2), followers=(later,))
    )
    assert size == replace(whole(2), stages=(stage,))


def test_what_begins_after_one_without_npus_of_a_stage_is_of_that_stage() -> None:
    """A trains, then B without NPUs converts, then C serves."""
    found = a_jobset(("a", 8, ""), ("b", 0, ""), ("c", 8, ""))
    for number, before in ((1, "a"), (2, "b")):
        found["spec"]["replicatedJobs"][number]["dependsOn"] = [
            {"name": before, "status": "Complete"}
        ]

    size = size_of("JobSet", found, OURS)

    stage = Stage(name="b", roles=frozenset("bc"), size=whole(1))
    assert size == replace(whole(1), stages=(stage,))


def test_the_first_pods_of_a_jobset_with_exclusive_topology_come_first() -> None:
    found = a_jobset(("a", 8, "")) | EXCLUSIVE
    job = found["spec"]["replicatedJobs"][0]
    job["replicas"], job["template"]["spec"]["parallelism"] = 2, 3

    size = size_of("JobSet", found, OURS)

    later = followers((0, 1), (0, 2), (1, 1), (1, 2), role="a")
    assert size == replace(whole(6), followers=(later,))


def test_pods_with_exclusive_topology_by_labels_of_nodes_come_together() -> None:
    found = a_jobset(("a", 8, ""))
    job = found["spec"]["replicatedJobs"][0]["template"]
    job["spec"]["parallelism"] = 3
    job["metadata"] = {
        "annotations": {
            **EXCLUSIVE["metadata"]["annotations"],
            "alpha.jobset.sigs.k8s.io/node-selector": "true",
        }
    }

    assert size_of("JobSet", found, OURS) == whole(3)


def test_pods_of_a_group_count_if_its_object_was_edited_since() -> None:
    found = group(
        startupPolicy="LeaderReady",
        leaderWorkerTemplate={"size": 8, "workerTemplate": template(8)},
    )

    size = size_of("LeaderWorkerSet", found, OURS, 3)

    assert size == replace(whole(3), followers=(followers((1, 0), (2, 0)),))


IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}


def completing(found: dict[str, Any]) -> dict[str, Any]:
    """A JobSet whose last job begins when that before it has completed."""
    found["spec"]["replicatedJobs"][-1]["dependsOn"][0]["status"] = "Complete"
    return found


#: {case: (kind, object, roles of the followers)}
FOLLOWED: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "jobs in order": (
        "JobSet",
        a_jobset(("A", 8, ""), ("B", 8, ""), ("C", 8, ""), **IN_ORDER),
        ["b", "c"],
    ),
    "jobs in order after one without NPUs": (
        "JobSet",
        a_jobset(("driver", 0, ""), ("b", 8, ""), ("c", 8, ""), **IN_ORDER),
        ["c"],
    ),
    "jobs that depend on one": (
        "JobSet",
        a_jobset(("a", 8, ""), ("b", 8, "a"), ("c", 8, "")),
        ["b"],
    ),
    "jobs that depend on one without NPUs that depends on one": (
        "JobSet",
        a_jobset(("a", 8, ""), ("driver", 0, "a"), ("c", 8, "driver")),
        ["c"],
    ),
    "a job that depends on the end of one without NPUs that depends on one": (
        "JobSet",
        completing(a_jobset(("a", 8, ""), ("check", 0, "a"), ("c", 8, "check"))),
        ["c"],
    ),
    "a launcher that waits for its workers": (
        "Training job",
        group(
            launcherCreationPolicy="WaitForWorkersReady",
            mpiReplicaSpecs={
                "Launcher": {"template": template(8)},
                "Worker": {"replicas": 2, "template": template(8)},
            },
        ),
        ["launcher"],
    ),
    "a launcher that does not": (
        "Training job",
        group(
            mpiReplicaSpecs={
                "Launcher": {"template": template(8)},
                "Worker": {"replicas": 2, "template": template(8)},
            },
        ),
        [],
    ),
    "jobs that all begin at once": ("JobSet", a_jobset(("a", 8, ""), ("b", 8, "")), []),
    "tasks that depend on one": (
        "Volcano Job",
        group(
            tasks=[
                {"name": "mpi", "template": template(8)},
                {
                    "name": "late",
                    "template": template(8),
                    "dependsOn": {"name": ["mpi"]},
                },
            ]
        ),
        ["late"],
    ),
    "workers of a leader without NPUs": (
        "LeaderWorkerSet",
        group(
            startupPolicy="LeaderReady",
            leaderWorkerTemplate={
                "size": 3,
                "leaderTemplate": template(0),
                "workerTemplate": template(8),
            },
        ),
        [],
    ),
}


@pytest.mark.parametrize("case", FOLLOWED)
def test_the_object_says_whose_pods_are_made_later(case: str) -> None:
    kind, found, roles = FOLLOWED[case]

    size = size_of(kind, found, OURS)

    assert size is not None
    assert [each.role for each in size.followers] == roles


@pytest.mark.parametrize(
    ("size", "text", "is_elastic"),
    [
        (whole(4), "4", False),
        (Size(count=4, least=2), "4 (at least 2)", True),
        (Size(count=None, least=2), "at least 2", True),
    ],
)
def test_a_size_is_said_in_words(size: Size, text: str, *, is_elastic: bool) -> None:
    assert (size.text, size.is_elastic) == (text, is_elastic)


def test_every_row_with_an_object_can_be_read() -> None:
    """The pods of the others say their number themselves."""
    told = {kind for kind, _, _ in CASES.values()}

    assert {row.kind for row in ROWS} - told == {"Job of pods", "Pod group of Kueue"}
