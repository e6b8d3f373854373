from typing import Any

import pytest

from extender.gang.membership import ROWS
from extender.gang.size import Size, size_of, whole

NPU = "huawei.com/Ascend910"
OURS = (NPU, "huawei.com/npu")


def template(count: int) -> dict[str, Any]:
    """A pod template that asks for so many chips."""
    limits = {"cpu": "4"} | ({NPU: count} if count else {})
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}


def group(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


CASES: dict[str, tuple[str, dict[str, Any], Size | None]] = {
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
        Size(count=8, least=4, roles=(("w", 4),)),
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
    "a native group": (
        "PodGroup of Kubernetes",
        group(schedulingPolicy={"gang": {"minCount": 4}}),
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
    "an indexed Job whose pods all run at once": (
        "Job",
        group(
            completionMode="Indexed",
            completions=4,
            parallelism=4,
            template=template(8),
        ),
        whole(4),
    ),
    "an indexed Job that works through a list": (
        "Job",
        group(
            completionMode="Indexed",
            completions=100,
            parallelism=4,
            template=template(8),
        ),
        whole(1),
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
    """A job of two pods by its own annotations has no object to read."""
    told = {kind for kind, _, _ in CASES.values()}

    assert {row.kind for row in ROWS} - told == {"Job of pods", "Minimum"}
