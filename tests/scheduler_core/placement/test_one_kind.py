"""Which kinds of server a job may have, in which order, and why it has none."""

import pytest

from scheduler_core.node.decision import JobPlacement, Rejection
from scheduler_core.placement import one_kind
from scheduler_core.placement.one_kind import Kind
from scheduler_core.products import table

A2, A3 = table.by_key("atlas-a2-8"), table.by_key("atlas-a3-16")
A3_8 = table.by_key("atlas-a3-8")
RESOURCE = "huawei.com/Ascend910"


@pytest.mark.parametrize(
    ("wanted", "present", "kinds"),
    [
        (RESOURCE, ["flat-2", "atlas-a3-16", "a300t"], "a300t atlas-a3-16 flat-2"),
        (RESOURCE, ["atlas-310p", "npu-flat-8"], ""),
        # its own row first, also where no node has it
        ("atlas-a3-8", ["atlas-a3-16", "atlas-a3-8"], "atlas-a3-8 atlas-a3-16"),
        ("atlas-a2-box16", [], "atlas-a2-box16"),
        # groups that the nodes have not
        ("atlas-a3-16", ["atlas-a2-8", "atlas-a2-box16"], "atlas-a3-16"),
        ("atlas-a2-box16", ["atlas-800-training-half"], "atlas-a2-box16"),
        # a row that speaks of no groups
        ("atlas-a2-8", ["atlas-a3-8", "a300t"], "atlas-a2-8 a300t atlas-a3-8"),
        # servers that no label describes, until one is known to be what is meant
        ("atlas-a3-8", ["atlas-800-training"], "atlas-a3-8 atlas-800-training"),
        ("atlas-a3-8", ["atlas-800-training", "atlas-a3-8"], "atlas-a3-8"),
        ("npu-atlas-a3-8", ["npu-flat-8"], "npu-atlas-a3-8 npu-flat-8"),
        ("npu-atlas-a3-16", ["npu-flat-16"], "npu-atlas-a3-16 npu-flat-16"),
        # rows that no label means
        ("mesh-8", ["atlas-a2-8"], "mesh-8 atlas-a2-8"),
        ("atlas-300i-duo-card", ["atlas-310p"], "atlas-300i-duo-card atlas-310p"),
        ("atlas-300i-card", ["atlas-300i-chip"], "atlas-300i-card atlas-300i-chip"),
    ],
)
def test_kinds_are_tried_from_the_jobs_own_by_key(
    wanted: str, present: list[str], kinds: str
) -> None:
    row = wanted if wanted == RESOURCE else table.by_key(wanted)

    found = one_kind.kinds_of(row, map(table.by_key, present))

    assert [kind.hardware.key for kind in found] == kinds.split()
    assert all(
        kind.row is (kind.hardware if row == RESOURCE else row) for kind in found
    )


def test_a_job_that_runs_keeps_its_kind() -> None:
    assert one_kind.kinds_of(RESOURCE, [A2, A3], [A3]) == [Kind(A3, A3)]
    assert one_kind.kinds_of(RESOURCE, [A2], [A3]) == [Kind(A3, A3)]
    assert one_kind.kinds_of(A3, [A2, A3], [A2]) == []


def test_no_row_serves_a_job_that_means_none() -> None:
    assert one_kind.kinds_of(None, [A2]) == []


KINDS = [Kind(A2, A2), Kind(A3, A3), Kind(A3_8, A3_8)]
FULL = Rejection(job="1 of 2 pods fit", reasons=(("taken", 1), ("full", 3)))
BROKEN = Rejection(job="an odd number", reasons=())
BUSY = Rejection(reasons=(("full", 1),))


def test_a_job_goes_to_the_first_kind_that_takes_it() -> None:
    placed = JobPlacement(pods=())
    answers = {A2: FULL, A3: placed}

    assert (
        one_kind.place_on_one(KINDS, {A2, A3}, lambda kind: answers[kind.row]) is placed
    )


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([FULL], FULL),
        (
            [FULL, BROKEN, BUSY],
            Rejection(
                job="a job gets servers of one kind; "
                "Atlas A2 server with 8 chips: 1 of 2 pods fit; "
                "Atlas A3 server with 16 chips: an odd number; "
                "Atlas A3 server with 8 chips: 1 full",
                reasons=(("full", 4), ("taken", 1)),
            ),
        ),
        (
            [],
            Rejection(
                job="no kind of server that is offered serves such a job", reasons=()
            ),
        ),
    ],
)
def test_a_job_without_a_place_is_told_of_each_kind(
    answers: list[Rejection], expected: Rejection
) -> None:
    found = dict(zip(KINDS, answers, strict=False))

    assert one_kind.place_on_one(list(found), {A2}, found.__getitem__) == expected


def test_a_job_whose_kind_is_not_offered_is_told_of_both() -> None:
    placed: list[Kind] = []
    box = table.by_key("atlas-a2-box16")
    kinds = one_kind.kinds_of(A3, [box, A2])

    found = one_kind.place_on_one(kinds, {box, A2}, placed.append)

    text = "it needs atlas-a3-16, and what is offered is atlas-a2-8, atlas-a2-box16"
    assert found == Rejection(job=text, reasons=())
    assert placed == []
