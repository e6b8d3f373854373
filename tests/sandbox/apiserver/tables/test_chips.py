from typing import Any

import pytest

from sandbox.apiserver.tables import chips

_CLAIM, _REAL = "huawei.com/Ascend910", "huawei.com/AscendReal"


def _pod(annotations: dict[str, str], **status: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", "annotations": annotations}, "status": status}


@pytest.mark.parametrize(
    ("annotations", "phase", "shown"),
    [
        ({}, "Pending", "<none>"),
        ({"example.com/other": "x-1"}, "Pending", "<none>"),
        ({_CLAIM: "Ascend910-4,Ascend910-5"}, "Pending", "4,5 (claimed)"),
        ({"huawei.com/npu": "Ascend910-4"}, "Pending", "4 (claimed)"),
        ({_REAL: "Ascend910-1,Ascend910-10,Ascend910-2"}, "Running", "1,2,10"),
        ({_CLAIM: "Ascend910-4", _REAL: "Ascend910-5"}, "Running", "5"),
        ({_REAL: "Ascend910-0,Ascend910-1"}, "Succeeded", "0,1 (ended)"),
        ({_CLAIM: "Ascend910-0"}, "Failed", "0 (ended)"),
    ],
)
def test_the_chips_are_those_held_or_else_those_claimed(
    annotations: dict[str, str], phase: str, shown: str
) -> None:
    assert chips.cells(_pod(annotations, phase=phase), {})[0] == shown


_WAITS = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}


@pytest.mark.parametrize(
    ("status", "told", "shown"),
    [
        ({}, {}, "<none>"),
        ({}, {"u": "chip 1 of node-1"}, "chip 1 of node-1"),
        ({}, {"other": "chip 1 of node-1"}, "<none>"),
        ({"conditions": [_WAITS]}, {}, "0/3 nodes"),
        (
            {"conditions": [{**_WAITS, "status": "True"}]},
            {"u": "chip 1 of node-1"},
            "chip 1 of node-1",
        ),
        (
            {"message": "Pod was rejected: no chip"},
            {"u": "chip 1 of node-1"},
            "Pod was rejected: no chip",
        ),
    ],
)
def test_the_reason_is_the_last_thing_that_was_said(
    status: dict[str, Any], told: dict[str, str], shown: str
) -> None:
    assert chips.cells(_pod({}, **status), told)[1] == shown


def test_of_a_pods_events_the_last_word_counts() -> None:
    def event(uid: str, reason: str, message: str) -> dict[str, Any]:
        involved = {"uid": uid}
        return {"involvedObject": involved, "reason": reason, "message": message}

    events = [
        event("a", "AscendScheduled", "first"),
        event("a", "AscendScheduled", "second"),
        event("a", "Scheduled", "other"),
        event("b", "AscendScheduled", "b's"),
    ]

    assert chips.reasons(events) == {"a": "second", "b": "b's"}
