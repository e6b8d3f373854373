"""Each count with each label on each chip, by the table of documented requests."""

from itertools import product

import pytest

from scheduler_core.parts import templates
from scheduler_core.parts.request import (
    Cut,
    PartRequestError,
    WholeChips,
    Wish,
    resolve,
    wish_of,
)
from tests.support.rows import rows

Documented = dict[tuple[int, str, str], tuple[str, str | None]]

#: {chip: {(AI cores, media units, level; "*" is any): template, its downgrade}}
DOCUMENTED: dict[str, Documented] = {
    "310P": {
        (1, "null", "*"): ("vir01", None),
        (2, "null", "low"): ("vir02_1c", None),
        (2, "null", "high"): ("vir02", "vir02_1c"),
        (4, "yes", "*"): ("vir04_4c_dvpp", None),
        (4, "no", "*"): ("vir04_3c_ndvpp", None),
        (4, "null", "low"): ("vir04_3c", None),
        (4, "null", "high"): ("vir04", "vir04_3c"),
    },
    "910B4": {
        (5, "null", "low"): ("vir05_1c_8g", None),
        (10, "yes", "*"): ("vir10_4c_16g_m", None),
        (10, "no", "*"): ("vir10_3c_16g_nm", None),
        (10, "null", "*"): ("vir10_3c_16g", None),
    },
    **{
        key: {
            (5, "null", "low"): ("vir05_1c_16g", None),
            (10, "null", "low"): ("vir10_3c_32g", None),
        }
        for key in ("910B3", "910B4-1", "A3-20")
    },
    **{
        key: {
            (6, "null", "low"): ("vir06_1c_16g", None),
            (12, "null", "low"): ("vir12_3c_32g", None),
        }
        for key in ("910B1", "910B2", "910B2C", "A3-24")
    },
}
DOCUMENTED["310P-48"] = DOCUMENTED["310P"]


@pytest.mark.parametrize("chip", templates.CHIPS, ids=lambda chip: chip.key)
def test_a_request_means_what_the_documents_say_or_is_refused(
    chip: templates.ChipKind,
) -> None:
    table = DOCUMENTED[chip.key]
    counts = range(3 * chip.totals.cores + 1)
    for cores, dvpp, level in product(counts, ("null", "yes", "no"), ("low", "high")):
        wanted: object = None
        if cores and cores % chip.totals.cores == 0:
            wanted = WholeChips(cores // chip.totals.cores)
        elif names := (
            table.get((cores, dvpp, level)) or table.get((cores, dvpp, "*"))
        ):
            name, downgrade = names
            wanted = Cut(
                chip.template(name), chip.template(downgrade) if downgrade else None
            )
        try:
            found: object = resolve(chip, Wish(cores, level, dvpp))
        except PartRequestError:
            found = None

        assert found == wanted, (cores, dvpp, level)


@rows(
    ("key", "wish", "sentence"),
    {
        "nothing": (
            "310P",
            Wish(0),
            "0 AI cores cannot be cut from 310P: ask for 1, 2, 4 or multiples of 8",
        ),
        "a count of another chip": (
            "910B3",
            Wish(6),
            "6 AI cores cannot be cut from 910B3: ask for 5, 10 or multiples of 20",
        ),
        "a template that the driver has not": (
            "910B1",
            Wish(3),
            "3 AI cores cannot be cut from 910B1: ask for 6, 12 or multiples of 25",
        ),
        "media units that are all alike": (
            "310P",
            Wish(2, dvpp="yes"),
            (
                "no 2 AI cores of 310P differ by vnpu-level=low, vnpu-dvpp=yes: "
                "remove these labels"
            ),
        ),
        "a level that changes nothing": (
            "A3-20",
            Wish(5, level="high"),
            (
                "no 5 AI cores of A3-20 differ by vnpu-level=high, vnpu-dvpp=null: "
                "remove these labels"
            ),
        ),
        "unknown media units": (
            "310P",
            Wish(4, dvpp="haha"),
            "err dvpp value:haha: label vnpu-dvpp is one of null, yes, no",
        ),
    },
)
def test_a_refusal_says_what_to_ask_instead(
    key: str, wish: Wish, sentence: str
) -> None:
    chip = templates.by_key(key)
    assert chip is not None
    with pytest.raises(PartRequestError) as caught:
        resolve(chip, wish)

    assert str(caught.value) == sentence


def test_labels_of_a_pod_are_read_as_the_reference_reads_them() -> None:
    assert wish_of(4, {}) == Wish(4, "low", "null")
    assert wish_of(4, {"vnpu-level": "High"}) == Wish(4, "low", "null")
    given = {"vnpu-level": "high", "vnpu-dvpp": "Yes"}
    assert wish_of(4, given) == Wish(4, "high", "Yes")
