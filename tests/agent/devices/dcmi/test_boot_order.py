"""The product row of a node that boots: its cards come late, in any order (F1, F5).

Simulated time. What varies: the server, the order of its cards, how the driver shows
that some are missing, what is known of the node, and a restart of the agent.
"""

from collections.abc import Mapping
from dataclasses import replace
from random import Random  # noqa: TID251  # its seeds are fixed
from typing import Any

import pytest

from agent.devices.board_size import fit_row
from agent.devices.dcmi.values import Identity, SuperPodPlace
from agent.devices.reading import Reading
from scheduler_core.products.table import Product
from tests.agent.devices.dcmi.booting import STEP_S, WAIT_S, Node, known_of
from tests.agent.devices.played_library import (
    A3_SUPERPOD,
    ATLAS_800,
    BOX16,
    DUO,
    SERVERS,
)

pytestmark = pytest.mark.long

#: Time in which all cards have come, and until the last is read. Unit: seconds.
ALL_COME_S = 60.0
READ_S = 64.0

servers = pytest.mark.parametrize("key", SERVERS)
orders = pytest.mark.parametrize("seed", range(10))
#: How it is seen that cards are missing; each order of cards has one of them.
SIGNS: Mapping[str, dict[str, Any]] = {
    "files": {"shows_files": True},
    "negative ids": {"counts_unnamed": True},
    "both": {"shows_files": True, "counts_unnamed": True},
}
signs = pytest.mark.parametrize("sign", SIGNS)


def sign_of(seed: int) -> dict[str, Any]:
    return [*SIGNS.values()][seed % len(SIGNS)]


def restart(node: Node, seed: int) -> None:
    """With every second order, let an agent end before all cards have come."""
    if seed % 2:
        node.pass_s(ALL_COME_S / 2)
        node.start_agent()


def coming(chips: tuple[Identity, ...], seed: int) -> dict[int, float]:
    """When each card comes: the last at the end, some may be there from the start."""
    order = Random(seed)  # noqa: S311  # no secret
    cards = sorted({chip.card for chip in chips})
    order.shuffle(cards)
    times = sorted(round(order.uniform(-10.0, ALL_COME_S)) for _ in cards)
    return dict(zip(cards, (*times[:-1], ALL_COME_S), strict=True))


def row_of(key: str) -> Product:
    return fit_row(key, len(SERVERS[key]) - 1)


def ids_of(key: str) -> tuple[int, ...]:
    return tuple(range(len(SERVERS[key])))


def serves_all(node: Node, key: str) -> bool:
    """Whether a node is served by its own row, and no chip is missing."""
    reading = node.read()
    assert isinstance(reading, Reading), reading
    return (reading.product, reading.changed_row, reading.unread, node.served) == (
        *(row_of(key), "", ()),
        ids_of(key),
    )


@servers
@orders
def test_a_node_of_which_nothing_is_known_is_served_when_all_its_cards_have_come(
    key: str, seed: int
) -> None:
    chips = SERVERS[key]
    node = Node(chips=chips, comes_s=coming(chips, seed), **sign_of(seed))
    restart(node, seed)
    node.pass_s(ALL_COME_S + READ_S)

    assert serves_all(node, key)
    *before, last = node.course
    assert {seen.row for seen in before} == {""}
    assert {
        text.partition(",")[0] for text in (seen.text for seen in before) if text
    } <= {"waiting for all chips", "the driver shows no chip", ""}
    assert (last.row, last.served) == (key, ids_of(key))


@servers
@orders
def test_a_node_without_memory_is_served_at_once_by_the_chips_that_it_has_had(
    key: str, seed: int
) -> None:
    chips, comes_s = SERVERS[key], coming(SERVERS[key], seed)
    line = row_of(key).chip_prefix.rstrip("-")
    has_had = {line: row_of(key).all_chips}
    node = Node(chips=chips, comes_s=comes_s, inventory=has_had, **sign_of(seed))
    restart(node, seed)
    node.pass_s(ALL_COME_S + READ_S)

    assert serves_all(node, key)
    shown = [seen for seen in node.course if seen.row]
    assert {(seen.row, seen.text) for seen in shown} == {(key, "")}
    if SERVERS[key] is DUO:  # a chip that is missing may be of another card
        assert shown[0].at_s >= ALL_COME_S
    elif min(comes_s.values()) <= 0:  # the driver has shown a chip from the start
        assert shown[0].at_s == STEP_S
    else:
        assert shown[0].at_s <= min(comes_s.values()) + READ_S


@pytest.mark.parametrize(
    ("has_had", "shows_files"),
    [
        pytest.param({}, False, id="the Node has had none"),
        pytest.param({"Ascend910": 0b0011_1111}, False, id="fewer than are read"),
        pytest.param({"Ascend910": 0b0111_1111}, True, id="fewer than are there"),
        pytest.param({"Ascend310P": 0b1111_1111}, False, id="of another line"),
        pytest.param(
            {"Ascend910": 0b1111_1111, "Ascend310P": 0b1 << 8}, False, id="two lines"
        ),
        pytest.param({"Ascend910": 0b1 << 100 | 0xFF}, False, id="more than a row has"),
    ],
)
def test_chips_that_the_node_has_had_and_that_do_not_fit_are_not_believed(
    has_had: dict[str, int], *, shows_files: bool
) -> None:
    node = Node(
        chips=ATLAS_800,
        comes_s={7: ALL_COME_S},
        counts_unnamed=True,
        shows_files=shows_files,
        inventory=has_had,
    )
    node.pass_s(ALL_COME_S + READ_S)

    assert serves_all(node, "atlas-800-training")
    (shown,) = [seen for seen in node.course if seen.row]
    assert shown.at_s >= ALL_COME_S


def test_a_chip_that_tells_nothing_is_served_as_one_that_the_node_has_had() -> None:
    silent = replace(ATLAS_800[7], name=None, board_id=None, product_type=None)
    node = Node(chips=(*ATLAS_800[:7], silent), inventory={"Ascend910": 0xFF})
    node.pass_s(STEP_S)

    assert serves_all(node, "atlas-800-training")


@servers
@orders
@pytest.mark.parametrize("has_sign", [False, True])
def test_a_node_whose_row_is_known_is_served_at_once_without_what_is_missing(
    key: str, seed: int, *, has_sign: bool
) -> None:
    chips, comes_s = SERVERS[key], coming(SERVERS[key], seed)
    sign = sign_of(seed) if has_sign else {}
    node = Node(chips=chips, comes_s=comes_s, known=known_of(chips), **sign)
    restart(node, seed)
    node.pass_s(ALL_COME_S + READ_S)

    assert serves_all(node, key)
    shown = [seen for seen in node.course if seen.row]
    assert {(seen.row, seen.text) for seen in shown} == {(key, "")}
    for seen in shown:
        come = {c.physical_id for c in chips if comes_s[c.card] <= seen.at_s}
        assert set(seen.served) <= come
        assert sorted({*seen.served, *seen.unhealthy}) == list(ids_of(key))
    first_s = max(STEP_S, min(comes_s.values()))
    assert shown[0].at_s <= first_s + READ_S


@servers
@orders
def test_a_node_that_gives_no_sign_begins_anew_when_more_chips_come(
    key: str, seed: int
) -> None:
    chips = SERVERS[key]
    node = Node(chips=chips, comes_s=coming(chips, seed))
    node.pass_s(ALL_COME_S + READ_S)

    assert serves_all(node, key)
    for seen in node.course:
        assert bool(seen.text) == (seen.row == "" or "none of the" in seen.text)


@servers
@signs
def test_a_node_whose_cards_never_come_begins_after_the_wait_with_what_is_there(
    key: str, sign: str
) -> None:
    chips = SERVERS[key]
    cards = sorted({chip.card for chip in chips})
    missing = dict.fromkeys(cards[len(cards) // 2 :], float("inf"))
    node = Node(chips=chips, comes_s=missing, **SIGNS[sign])
    node.pass_s(WAIT_S - STEP_S)
    assert {seen.row for seen in node.course} == {""}

    node.pass_s(2 * STEP_S)
    reading = node.read()
    there = [chip for chip in chips if chip.card not in missing]
    alone = Node(chips=tuple(there), wait_s=0.0)
    assert isinstance(reading, Reading)
    assert reading == alone.pass_s(STEP_S)
    assert node.served == tuple(chip.physical_id for chip in there)


@servers
@signs
def test_what_was_begun_with_after_the_wait_is_given_up_when_the_rest_comes(
    key: str, sign: str
) -> None:
    chips = SERVERS[key]
    cards = sorted({chip.card for chip in chips})
    late = dict.fromkeys(cards[len(cards) // 2 :], WAIT_S + 30.0)
    node = Node(chips=chips, comes_s=late, **SIGNS[sign])
    node.pass_s(WAIT_S + 30.0 + READ_S)

    assert serves_all(node, key)


def test_cards_that_come_after_the_wait_are_waited_for_while_the_others_serve() -> None:
    comes_s = {4: 700.0, 5: 710.0, 6: 720.0, 7: float("inf")}
    node = Node(chips=ATLAS_800, comes_s=comes_s, shows_files=True)
    node.pass_s(700.0 + READ_S)
    told = node.course[-1]
    assert (told.row, told.served, told.text) == (
        "atlas-800-training-half",
        (0, 1, 2, 3),
        "chip 4 is none of the Atlas 800 training server with 4 chips that is served",
    )

    node.pass_s(WAIT_S)
    node.start_agent()
    node.pass_s(2 * STEP_S)
    assert [(seen.row, seen.served) for seen in node.course if seen.row] == [
        ("atlas-800-training-half", (0, 1, 2, 3)),
        ("atlas-800-training-half", (0, 1, 2, 3)),
        ("atlas-800-training", tuple(range(7))),
    ]


@servers
@orders
def test_with_a_product_that_is_told_missing_chips_are_not_waited_for(
    key: str, seed: int
) -> None:
    chips = SERVERS[key]
    comes_s = coming(chips, seed)
    first = min(comes_s, key=lambda card: comes_s[card])
    node = Node(
        chips=chips, comes_s={**comes_s, first: 0.0}, product=key, **sign_of(seed)
    )
    node.pass_s(ALL_COME_S + READ_S)

    assert serves_all(node, key)
    assert {seen.row for seen in node.course} == {key}
    (begin, *_) = node.course
    assert begin.at_s == STEP_S


FACTS = {
    "SuperPoD of all dies": (
        A3_SUPERPOD,
        "atlas-a3-16-superpod",
        ("super_pod", range(16)),
    ),
    "SuperPoD of die 0": (A3_SUPERPOD, "atlas-a3-16-superpod", ("super_pod", [0])),
    "board of die 0": (A3_SUPERPOD, "atlas-a3-16-superpod", ("board_id", [0])),
    "board of all dies": (
        A3_SUPERPOD,
        "atlas-a3-16-superpod",
        ("board_id", range(16)),
    ),
    "product type of chip 0": (DUO, "atlas-300i-duo-chip", ("product_type", [0])),
    "product type of all chips": (
        DUO,
        "atlas-300i-duo-chip",
        ("product_type", range(6)),
    ),
    "model of chip 0": (ATLAS_800, "atlas-800-training", ("chip_info", [0])),
    "model of all chips": (BOX16, "atlas-a2-box16", ("chip_info", range(16))),
    "board of chip 0": (BOX16, "atlas-a2-box16", ("board_id", [0])),
}
#: Timed out, not ready, left out.
CODES = [-8006, -8012, -99996]


@pytest.mark.parametrize("what", FACTS)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_fact_that_is_not_told_at_start_decides_no_row(
    what: str, code: int, *, is_known: bool
) -> None:
    chips, key, (function, failing) = FACTS[what]
    node = Node(chips=chips)
    node.known = known_of(chips) if is_known else node.known
    node.start_agent()
    for chip in failing:
        node.library.fail(code, function, chip=chip)
    node.pass_s(READ_S)
    rows = {seen.row for seen in node.course}
    node.library.errors.clear()
    node.pass_s(READ_S)

    assert serves_all(node, key)
    assert rows == {key} if is_known else rows <= {"", key}
    assert {seen.row for seen in node.course} <= {"", key}


@pytest.mark.parametrize("what", FACTS)
@pytest.mark.parametrize("code", CODES)
def test_a_fact_that_fails_later_changes_no_row(what: str, code: int) -> None:
    chips, key, (function, failing) = FACTS[what]
    node = Node(chips=chips)
    before = node.pass_s(2.0)
    for chip in failing:
        node.library.fail(code, function, chip=chip)
    assert node.pass_s(READ_S) == before
    # the next worker is told it by nobody
    node.start_worker()
    assert node.pass_s(READ_S) == before
    assert serves_all(node, key)


WRONG = {
    "SuperPoD": (
        A3_SUPERPOD,
        "atlas-a3-16-superpod",
        {"superpod": SuperPodPlace(super_device_id=0, super_pod_id=-2, server_index=0)},
        "atlas-a3-16",
    ),
    "board": (
        A3_SUPERPOD,
        "atlas-a3-16-superpod",
        {"board_id": 0x30, "name": "910B3"},
        "atlas-a2-box16",
    ),
    "product type": (
        DUO,
        "atlas-300i-duo-chip",
        {"product_type": "Atlas 300I Pro"},
        "atlas-310p",
    ),
    "300T": (
        ATLAS_800,
        "atlas-800-training",
        {"product_type": "Atlas 300T A2"},
        "a300t",
    ),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("is_remembered", [False, True])
def test_a_fact_that_was_wrong_has_the_agent_begin_anew_with_the_right_row(
    what: str, *, is_remembered: bool
) -> None:
    chips, key, facts, other = WRONG[what]
    wrong = [replace(chip, **facts) for chip in chips]  # type: ignore[arg-type]
    node = Node(chips=tuple(wrong))
    node.pass_s(5.0)
    assert node.course[-1].row == other
    node.library.put(*chips)
    node.start_worker()
    if is_remembered:
        node.start_agent()
    node.pass_s(READ_S)

    assert serves_all(node, key)
    told = {seen.text for seen in node.course if seen.text}
    assert is_remembered or len(told) == 1, told


@pytest.mark.parametrize("product", ["atlas-300i-duo-card", "atlas-310p"])
@pytest.mark.parametrize("shows_files", [False, True])
def test_a_product_that_is_told_stays_whatever_the_chips_say_and_which_go(
    product: str, *, shows_files: bool
) -> None:
    node = Node(chips=DUO, product=product, shows_files=shows_files)
    node.pass_s(READ_S)
    node.pull(2)
    node.pass_s(READ_S)

    assert [(seen.row, seen.served, seen.text) for seen in node.course] == [
        (product, (0, 1, 2, 3, 4, 5), ""),
        (product, (0, 1, 2, 3), ""),
    ]
    node.plug(2)
    node.pass_s(READ_S)
    assert node.served == (0, 1, 2, 3, 4, 5)
