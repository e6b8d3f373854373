import json

import pytest

from scheduler_core.snapshot import job as job_document
from scheduler_core.snapshot.job import Job
from scheduler_core.topology.leaves import Schema
from tests.scheduler_core.snapshot.documents import problems_of


def test_a_job_asks_for_chips_of_a_resource() -> None:
    text = '{"version": 1, "resource": "huawei.com/Ascend910", "chips": 4}'

    assert job_document.parse(text) == Job(resource="huawei.com/Ascend910", chips=4)


def test_a_job_says_what_its_pods_and_its_owner_say() -> None:
    text = json.dumps(
        {
            "version": 1,
            "resource": "huawei.com/Ascend910",
            "chips": 16,
            "pods": 4,
            "labels": {
                "tor-affinity": "normal-schema",
                "super-pod-affinity": "soft",
            },
            "annotations": {"sp-block": "32"},
            "node_selector": {"accelerator-type": "module-a3-16-super-pod"},
            "priority": -5,
        }
    )

    job = job_document.parse(text)

    assert (job.pods, job.priority) == (4, -5)
    assert (job.schema, job.sp_block, job.soft_superpods) == (Schema.NORMAL, 32, True)
    assert job.annotations == {"sp-block": "32"}
    assert job.labels == {
        "tor-affinity": "normal-schema",
        "super-pod-affinity": "soft",
    }
    assert job.node_selector == {"accelerator-type": "module-a3-16-super-pod"}


def test_a_job_that_says_nothing_more_asks_nothing_of_the_network() -> None:
    text = '{"version": 1, "resource": "huawei.com/Ascend910-4c", "chips": 1}'

    job = job_document.parse(text)

    assert (job.schema, job.sp_block, job.soft_superpods) == (None, None, False)
    assert (job.annotations, job.labels, job.node_selector) == ({}, {}, {})


RESOURCES = (
    "one of huawei.com/Ascend310, huawei.com/Ascend310P, huawei.com/Ascend910, "
    "huawei.com/npu"
)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            {"version": 1, "resource": "huawei.com/Ascend911", "chips": 0},
            (
                f"resource: expected {RESOURCES}, found 'huawei.com/Ascend911'",
                "chips: expected a whole number of at least 1, found 0",
            ),
        ),
        (
            {"version": 1, "chips": 1.5},
            (
                f"resource: expected {RESOURCES}, found nothing",
                "chips: expected a whole number of at least 1, found 1.5",
            ),
        ),
        (
            {
                "version": 1,
                "resource": "huawei.com/npu",
                "chips": 1,
                "pods": 0,
                "labels": {"tor-affinity": "large", "super-pod-affinity": "x"},
                "annotations": {"sp-block": "all", "a": 1},
                "priorty": 1,
            },
            (
                "priorty: no such key, did you mean 'priority'?",
                "pods: expected a whole number of at least 1, found 0",
                (
                    "labels.tor-affinity: expected one of large-model-schema, "
                    "normal-schema, null, found 'large'"
                ),
                "labels.super-pod-affinity: expected one of soft, hard, found 'x'",
                "annotations.sp-block: expected a whole number, found 'all'",
                "annotations.a: expected a text, found 1",
            ),
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused(
    document: object, expected: tuple[str, ...]
) -> None:
    assert problems_of(job_document.parse, document) == expected
