from dataclasses import replace

import pytest

from scheduler_core.node.reasons import Reason, Refusal, refusal
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products.table import Product, by_key

TEXTS = {
    Reason.NO_SUCH_NPU: "no such NPU",
    Reason.NO_ALLOCATABLE: "kubelet offers no NPU",
    Reason.AGENT_SILENT: "agent silent",
    Reason.BAD_NODE_REPORT: "unreadable NPU report",
    Reason.IDS_LOST: "kubelet lost device ids of a running pod",
    Reason.ILLEGAL_COUNT: "cannot give a pod 4 chips, only 1, 2, 4 or 8",
    Reason.CHIP_UNHEALTHY: "chip unhealthy",
    Reason.NETWORK_UNHEALTHY: "chip network unhealthy",
    Reason.TOO_FEW_FREE: "without 4 free chips",
    Reason.GROUP_TOO_SMALL: "no HCCS ring has 4 free chips",
    Reason.CONFLICT: "another pod waits there for as many chips",
}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_short_text_without_names(reason: Reason) -> None:
    assert refusal(reason, PRODUCT, 4) == Refusal(reason=reason, text=TEXTS[reason])


BOX = by_key("atlas-a2-box16")


@pytest.mark.parametrize(
    ("row", "count", "text"),
    [
        (BOX, 8, "no HCCS ring has 8 free chips"),
        (BOX, 10, "without 5 free chips at matching positions"),
        (distributed(BOX), 10, "without 5 free chips in each HCCS ring"),
        (by_key("atlas-a3-16"), 2, "no HiAM module has 2 free chips"),
        (by_key("atlas-a3-16"), 6, "without 3 whole HiAM modules free"),
        (by_key("mesh-16"), 8, "without 2 whole meshes free"),
        (
            by_key("atlas-300i-duo-distributed"),
            3,
            "without 1 whole card and 1 of another free",
        ),
    ],
)
def test_what_lies_apart_is_said_in_the_words_of_the_product(
    row: Product, count: int, text: str
) -> None:
    assert refusal(Reason.GROUP_TOO_SMALL, row, count).text == text


def test_one_chip_is_said_in_plain_words() -> None:
    assert refusal(Reason.TOO_FEW_FREE, PRODUCT, 1).text == "no free chip"


@pytest.mark.parametrize(
    ("row", "count", "legal"),
    [
        (by_key("atlas-310p"), 65, "1 to 64"),
        (BOX, 9, "1 to 8, 10, 12, 14 or 16"),
        (by_key("atlas-300i-card"), 5, "1, 2, 3 or 4"),
        (replace(PRODUCT, ways={8: PRODUCT.ways[8]}), 3, "8"),
    ],
)
def test_legal_counts_are_said_as_ranges_where_they_are_many(
    row: Product, count: int, legal: str
) -> None:
    text = refusal(Reason.ILLEGAL_COUNT, row, count).text

    assert text == f"cannot give a pod {count} chips, only {legal}"
