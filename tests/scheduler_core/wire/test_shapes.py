from itertools import product
from typing import Any

import pytest

from scheduler_core.wire.shapes import ContainerKind, Shape, conflict, refusal, total
from tests.support.rows import rows

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP
RESOURCE = "huawei.com/Ascend910"


Needs = tuple[tuple[ContainerKind, int], ...]


def shape(*counts: int, reads: bool = False, needs: Needs = (), **more: Any) -> Shape:
    """Return a shape of app containers with these counts, or of the containers said."""
    usual: dict[str, Any] = {"resource": RESOURCE, "reads_annotation": reads}
    needs = needs or tuple((APP, count) for count in counts)
    return Shape(needs=needs, **usual | more)


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ((), 0),
        (((APP, 2),), 2),
        (((APP, 2), (APP, 2)), 4),
        (((INIT, 4), (APP, 1)), 4),
        (((INIT, 1), (APP, 4)), 4),
        (((INIT, 2), (INIT, 8), (APP, 4)), 8),
        (((SIDECAR, 1), (INIT, 1), (APP, 1)), 2),
        (((SIDECAR, 1), (INIT, 3), (APP, 1)), 4),
        (((INIT, 3), (SIDECAR, 1), (APP, 1)), 3),
        (((INIT, 2),), 2),
    ],
)
def test_a_pod_occupies_its_lasting_containers_or_its_largest_start(
    needs: Needs, expected: int
) -> None:
    assert total(needs) == expected


@rows(
    ("one", "other", "expected"),
    {
        "equal pods are interchangeable": (shape(1), shape(1), False),
        "told apart by the count": (shape(1), shape(2), False),
        "one count in both": (shape(1), shape(1, 2), True),
        "another order": (shape(1, 2), shape(2, 1), True),
        "equal with two containers": (shape(1, 2), shape(1, 2), False),
        "readers, even equal": (shape(1, reads=True), shape(1, reads=True), True),
        "a reader and another": (shape(1, reads=True), shape(1), True),
        "readers, told apart": (shape(1, reads=True), shape(2, reads=True), False),
        "other wishes": (shape(2), shape(2, choice=(("sp-block", "16"),)), True),
        "another role": (shape(2), shape(2, role="rank-1"), True),
        "another kind of container": (
            shape(2),
            shape(needs=((INIT, 2), (APP, 2))),
            True,
        ),
        "another resource": (
            shape(2, reads=True),
            shape(2, resource="huawei.com/Ascend310"),
            False,
        ),
    },
)
def test_pods_conflict_when_they_differ_and_share_a_count(
    one: Shape, other: Shape, *, expected: bool
) -> None:
    assert (conflict(one, other), conflict(other, one)) == (expected, expected)


def test_conflict_is_symmetric_for_all_small_shapes() -> None:
    shapes = [
        shape(needs=needs, reads=reads)
        for size in (1, 2)
        for needs in product(product((INIT, SIDECAR, APP), (1, 2)), repeat=size)
        for reads in (False, True)
    ]

    for one, other in product(shapes, repeat=2):
        assert conflict(one, other) == conflict(other, one)
        if one == other:
            assert conflict(one, other) == one.reads_annotation


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (shape(1), None),
        (shape(needs=((SIDECAR, 1),)), None),
        (shape(needs=((INIT, 1), (APP, 1))), None),
        (
            shape(needs=((INIT, 1), (INIT, 2))),
            "NPUs in init containers only: which pod has them can never be confirmed",
        ),
        (shape(2, reads=True), None),
        (shape(needs=((INIT, 2), (APP, 2)), reads=True), None),
        (
            shape(1, 1, reads=True),
            (
                "a container that reads its chips from the annotation gets all 2 of "
                "the pod, but another number is asked for"
            ),
        ),
    ],
)
def test_a_shape_that_nobody_can_serve_is_refused_with_the_reason(
    refused: Shape, expected: str | None
) -> None:
    assert refusal(refused) == expected
