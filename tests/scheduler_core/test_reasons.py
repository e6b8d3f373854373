from dataclasses import replace

import pytest

from scheduler_core.products import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.reasons import Reason, Refusal, refusal

TEXTS = {
    Reason.NO_SUCH_NPU: "no such NPU",
    Reason.NO_ALLOCATABLE: "kubelet offers no NPU",
    Reason.AGENT_SILENT: "agent silent",
    Reason.BAD_NODE_REPORT: "unreadable NPU report",
    Reason.IDS_LOST: "kubelet lost device ids of a running pod",
    Reason.ILLEGAL_COUNT: "cannot give a pod 4 chips, only 1, 2, 4 or 8",
    Reason.CHIP_UNHEALTHY: "chip unhealthy",
    Reason.TOO_FEW_FREE: "fewer than 4 free chips",
    Reason.GROUP_TOO_SMALL: "no HCCS ring has 4 free chips",
    Reason.CONFLICT: "another pod waits there for as many chips",
}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_short_text_without_names(reason: Reason) -> None:
    assert refusal(reason, PRODUCT, 4) == Refusal(reason=reason, text=TEXTS[reason])


def test_one_chip_is_said_in_plain_words() -> None:
    assert refusal(Reason.TOO_FEW_FREE, PRODUCT, 1).text == "no free chip"


def test_a_product_that_takes_one_count_only_says_that_one() -> None:
    whole = replace(PRODUCT, counts=(8,))

    assert refusal(Reason.ILLEGAL_COUNT, whole, 3).text == (
        "cannot give a pod 3 chips, only 8"
    )
