import json
from typing import Any

import pytest

from scheduler_core.placement.job_rules import Profile
from scheduler_core.snapshot import batch
from tests.support.rows import rows


def asked(count: int = 2, pods: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "resource": "huawei.com/Ascend910",
        "node_selector": {},
        "labels": {},
        "annotations": {},
        "node_labels": {},
        "count": count,
        "pods": pods,
        "node": {
            "chips": 8,
            "free": [0, 1, 4],
            "unhealthy": [],
            "network_unhealthy": [],
        },
    } | more


def answer(case: dict[str, Any], profile: Profile = Profile.SEED) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(batch.answer(json.dumps(case), profile))
    return found


def test_a_case_is_answered_with_row_chips_and_score() -> None:
    assert answer(asked()) == {
        "row": "atlas-800-training",
        "job_valid": True,
        "fits": True,
        "chips": [0, 1],
        "score": [0, 0, 1],
        "reason": "",
    }


@rows(
    ("case", "row", "job_valid", "chips", "reason"),
    {
        "the node does not serve": (
            asked(count=4),
            "atlas-800-training",
            True,
            [],
            "without 4 free chips",
        ),
        "the job breaks its rule": (
            asked(pods=2),
            "atlas-800-training",
            False,
            [0, 1],
            "up to 8 chips must be one pod, found 2 pods",
        ),
        "another row": (
            asked(annotations={"huawei.com/schedule_policy": "chip1-node8"}, count=3),
            "flat-8",
            True,
            [0, 1, 4],
            "",
        ),
        "no row": (
            asked(resource="nvidia.com/gpu"),
            None,
            False,
            [],
            "no kind of server that we know serves such a job",
        ),
        "a node that is too large for the row": (
            asked(
                node_selector={"accelerator-type": "half"},
                node={"chips": 8, "free": [0]},
                count=1,
            ),
            "atlas-800-training-half",
            True,
            [],
            "more chips than any Atlas 800 training server with 4 chips has",
        ),
        "a block that is no number": (
            asked(
                annotations={"sp-block": "x"},
                node={"chips": 16, "free": list(range(16))},
                count=16,
            ),
            "atlas-a3-16-superpod",
            False,
            list(range(16)),
            "annotation sp-block: expected a whole number, found 'x'",
        ),
    },
)
def test_what_stands_against_a_case_is_said(
    case: dict[str, Any],
    row: str | None,
    job_valid: bool,
    chips: list[int],
    reason: str,
) -> None:
    found = answer(case)

    assert {key: found[key] for key in ("row", "job_valid", "fits", "chips")} == {
        "row": row,
        "job_valid": job_valid,
        "fits": bool(chips),
        "chips": chips,
    }
    assert found["reason"] == reason


def test_the_relaxed_profile_lets_small_pods_of_one_job_pass() -> None:
    assert answer(asked(pods=2), Profile.PER_POD)["job_valid"]


def test_a_faulty_network_counts_for_jobs_of_several_pods() -> None:
    node = {"chips": 8, "free": list(range(8)), "network_unhealthy": [3]}

    assert answer(asked(count=8, node=node))["fits"]
    several = answer(asked(count=8, pods=2, node=node))
    assert (several["fits"], several["reason"]) == (
        False,
        "chip network unhealthy",
    )


def test_what_is_not_free_because_it_is_unhealthy_is_not_given() -> None:
    node = {"chips": 8, "free": [0, 1, 2, 3], "unhealthy": [0]}

    found = answer(asked(count=2, node=node))

    assert (found["chips"], found["score"]) == ([1, 2], [1, 2, 0])


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "document: expected JSON"),
        ("[]", "document: expected an object, found []"),
        ("{}", "resource: expected a name, found nothing"),
        (
            json.dumps(asked(node={"chips": 2, "free": [2]})),
            "node.free[0]: expected a chip from 0 to 1, found 2",
        ),
        (json.dumps(asked(pods=0)), "pods: expected a whole number of at least 1"),
        (json.dumps(asked(colour=1)), "colour: no such key"),
        (
            json.dumps(asked(node={"chips": 5000})),
            "node.chips: expected a whole number from 0 to 1024, found 5000",
        ),
    ],
)
def test_a_line_that_cannot_be_read_is_answered_with_what_is_wrong(
    line: str, error: str
) -> None:
    found = json.loads(batch.answer(line))

    assert found.keys() == {"error"}
    assert found["error"].startswith(error)
