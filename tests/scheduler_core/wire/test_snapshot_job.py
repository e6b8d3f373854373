import pytest

from scheduler_core.wire import snapshot_job
from scheduler_core.wire.reader import SnapshotError
from scheduler_core.wire.snapshot_job import Job


def test_a_job_asks_for_chips_of_a_resource() -> None:
    text = '{"version": 1, "resource": "huawei.com/Ascend910", "chips": 4}'

    assert snapshot_job.parse(text) == Job(resource="huawei.com/Ascend910", chips=4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"version": 1, "resource": "huawei.com/Ascend911", "chips": 0}',
            (
                "chips: expected 1 or more, found 0",
                (
                    "resource: expected one of huawei.com/Ascend310, "
                    "huawei.com/Ascend310P, huawei.com/Ascend910, huawei.com/npu, "
                    "found 'huawei.com/Ascend911'"
                ),
            ),
        ),
        (
            '{"version": 1, "chips": 1.5}',
            (
                "resource: expected, not found",
                "chips: expected a whole number, found 1.5",
            ),
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused(text: str, expected: tuple[str, ...]) -> None:
    with pytest.raises(SnapshotError) as caught:
        snapshot_job.parse(text)

    assert caught.value.problems == expected
