"""Pods that tests make are like those that `tests/support/real_pods.py` tells of."""

import pytest

from tests.extender.worker_sets import marks_of
from tests.support import real_pods
from tests.support.real_pods import LABELS, Marks


@pytest.mark.parametrize(
    ("name", "number", "real"),
    [("vllm-0", 0, real_pods.LEADER), ("vllm-0-2", 2, real_pods.WORKER)],
)
def test_simulated_pods_of_a_leader_worker_set(
    name: str, number: int, real: Marks
) -> None:
    found = marks_of(name, number, size=3)

    assert found["labels"].keys() == real.labels
    assert found["annotations"].keys() == real.annotations


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("job", real_pods.JOB),
        ("jobset", real_pods.JOB_SET),
        ("lws", real_pods.WORKER),
    ],
)
def test_labels_by_which_kinds_are_told(name: str, real: Marks) -> None:
    assert LABELS[name].keys() == real.labels
