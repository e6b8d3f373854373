from typing import Any

import pytest

from extender.gang.membership import ROWS
from extender.gang.size import Size, size_of

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
        Size(count=4),
    ),
    "an MPI launcher does not count": (
        "Training job",
        group(
            mpiReplicaSpecs={
                "Launcher": {"replicas": 1, "template": template(0)},
                "Worker": {"replicas": 2, "template": template(8)},
            }
        ),
        Size(count=2),
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
        Size(count=6),
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
        Size(count=3),
    ),
    "a leader of the workers' template counts": (
        "LeaderWorkerSet",
        group(leaderWorkerTemplate={"size": 4, "workerTemplate": template(8)}),
        Size(count=4),
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
        Size(count=2),
    ),
    "a native group": (
        "PodGroup of Kubernetes",
        group(schedulingPolicy={"gang": {"minCount": 4}}),
        Size(count=4, counts_all=True),
    ),
    "a native group that is no gang": (
        "PodGroup of Kubernetes",
        group(schedulingPolicy={"basic": {}}),
        Size(count=1, counts_all=True),
    ),
    "coscheduling's group": (
        "PodGroup",
        group(minMember=3, scheduleTimeoutSeconds=10),
        Size(count=3, counts_all=True),
    ),
    "Volcano's group": (
        "PodGroup of Volcano",
        group(minMember=5),
        Size(count=5, counts_all=True),
    ),
    "an indexed Job whose pods all run at once": (
        "Job",
        group(
            completionMode="Indexed",
            completions=4,
            parallelism=4,
            template=template(8),
        ),
        Size(count=4),
    ),
    "an indexed Job that works through a list": (
        "Job",
        group(
            completionMode="Indexed",
            completions=100,
            parallelism=4,
            template=template(8),
        ),
        Size(count=1),
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


def test_every_row_with_an_object_can_be_read() -> None:
    """A job of two pods by its own annotations has no object to read."""
    told = {kind for kind, _, _ in CASES.values()}

    assert {row.kind for row in ROWS} - told == {"Job of pods", "Minimum"}
