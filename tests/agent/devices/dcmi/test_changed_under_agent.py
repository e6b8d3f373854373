"""A driver and cards that change under a running agent: as after a restart of it.

Simulated time. Each change, with and without another worker, is compared with an agent
that begins after the change, with what the first was told before it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from agent.devices.dcmi.reader import FIXED_EACH_S
from agent.devices.dcmi.values import Identity, SuperPodPlace
from agent.devices.reading import Reading
from agent.health.conditions import Condition
from tests.agent.devices.dcmi.booting import STEP_S, Node
from tests.agent.devices.played_library import (
    A3_SUPERPOD,
    ATLAS_800,
    ATLAS_A2,
    BOX16,
    DUO,
    server,
)

pytestmark = pytest.mark.long

#: Until each change is seen by whoever runs. Unit: seconds.
SEEN_S = 64.0
Change = Callable[[Node], None]


def rearrange(node: Node, new: Callable[[Identity], Identity]) -> None:
    """Put other chips in the place of all chips."""
    node.chips = tuple(new(chip) for chip in node.chips)
    node.library.chips = {(c.card, c.device): c for c in node.chips}


def replaces(**facts: object) -> Change:
    """Each chip tells other facts."""
    return lambda node: rearrange(
        node,
        lambda chip: replace(chip, **facts),  # type: ignore[arg-type]
    )


def reverses(*fields: str) -> Change:
    """Numbers run the other way round."""

    def change(node: Node) -> None:
        highest = {f: max(getattr(c, f) for c in node.chips) for f in fields}
        rearrange(
            node,
            lambda chip: replace(
                chip, **{f: highest[f] - getattr(chip, f) for f in fields}
            ),
        )

    return change


def pulls(*cards: int) -> Change:
    def change(node: Node) -> None:
        for card in cards:
            node.pull(card)

    return change


def plugs_again(*cards: int) -> Change:
    def change(node: Node) -> None:
        pulls(*cards)(node)
        node.pass_s(SEEN_S)
        for card in cards:
            node.plug(card)

    return change


def adds(*chips: Identity) -> Change:
    def change(node: Node) -> None:
        node.chips = (*node.chips, *chips)

    return change


def is_away(*functions: str, code: int) -> Change:
    """Calls fail for a while, then the driver is well again."""

    def change(node: Node) -> None:
        node.library.fail(code, *functions)
        node.pass_s(SEEN_S)
        node.library.errors.clear()

    return change


def has_codes(node: Node) -> None:
    node.library.codes_of = {3: (0x80E18402,), 1: (0x80E01801, 0x81078603)}


def then(*changes: Change) -> Change:
    def change(node: Node) -> None:
        for each in changes:
            each(node)
            node.pass_s(STEP_S)

    return change


EVERYTHING = (
    *("cards", "device_count", "is_chip", "logic_id", "physical_id"),
    *("codes", "check_ready", "pids", "address", "super_pod"),
)
OTHER_POD = SuperPodPlace(super_device_id=7, super_pod_id=9, server_index=1)
MORE_BOX = BOX16[8:]
DUO_MORE = server(4, 2, name="310P3", ai_core_count=8, product_type="Atlas 300I Duo")

CASES: Mapping[str, tuple[tuple[Identity, ...], Change]] = {
    "cards change their numbers": (ATLAS_800, reverses("card")),
    "logic ids change": (ATLAS_800, reverses("logic_id")),
    "cards and logic ids change": (ATLAS_800, reverses("card", "logic_id")),
    "physical ids change": (A3_SUPERPOD, reverses("physical_id")),
    "dies change their places": (A3_SUPERPOD, reverses("device")),
    "addresses change": (ATLAS_800, replaces(ip="10.9.9.9")),
    "SuperPoD changes": (A3_SUPERPOD, replaces(superpod=OTHER_POD)),
    "a card is pulled": (ATLAS_800, pulls(3)),
    "a card of two is pulled": (A3_SUPERPOD, pulls(3)),
    "the last card is pulled": (DUO, pulls(2)),
    "the first cards are pulled": (DUO, pulls(0, 1)),
    "all cards are pulled but one": (ATLAS_800, pulls(*range(7))),
    "a card is pulled and plugged": (ATLAS_800, plugs_again(3)),
    "the last card is pulled and plugged": (DUO, plugs_again(2)),
    "all cards but one are pulled and plugged": (BOX16, plugs_again(*range(15))),
    "a pulled card comes with a fault": (ATLAS_800, then(has_codes, plugs_again(3))),
    "a card is added": (DUO, adds(*DUO_MORE[6:])),
    "a server is whole at last": (BOX16[:8], adds(*MORE_BOX)),
    "another board": (BOX16, replaces(board_id=0xB0, name="Ascend910")),
    "another name": (ATLAS_800, replaces(name="910B3", board_id=0x30)),
    "another product type": (DUO, replaces(product_type="Atlas 300I Pro")),
    "more memory": (ATLAS_A2, replaces(memory_mb=98304)),
    "faults come": (ATLAS_800, has_codes),
    "the driver is away": (ATLAS_800, is_away(*EVERYTHING, code=-8012)),
    "the driver is upgraded": (A3_SUPERPOD, is_away(*EVERYTHING, code=-8017)),
    "ids cannot be read": (ATLAS_800, is_away("logic_id", code=-8009)),
    "the cards are gone for a while": (ATLAS_800, is_away("cards", code=-8008)),
    "away, and back with other numbers": (
        ATLAS_800,
        then(is_away(*EVERYTHING, code=-8012), reverses("card", "logic_id")),
    ),
}


def conditions(node: Node) -> dict[int, Condition]:
    return {chip: health.condition for chip, health in node.health.chips.items()}


def told(node: Node) -> Reading:
    """What a node is told now, without the dates of faults."""
    reading = node.read()
    assert isinstance(reading, Reading), reading
    faults = [replace(fault, since_ms=0) for fault in reading.faults]
    return replace(reading, faults=tuple(faults))


def extent(reading: Reading) -> list[tuple[str, int, int]]:
    return [
        (line.product.key, line.product.chip_count, line.product.absent)
        for line in reading.lines
    ]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("has_new_worker", [False, True])
def test_what_changes_under_an_agent_ends_as_after_its_restart(
    case: str, *, has_new_worker: bool
) -> None:
    chips, change = CASES[case]
    node = Node(chips=chips)
    node.pass_s(STEP_S)
    known = node.known
    change(node)
    if has_new_worker:
        node.start_worker()
    node.pass_s(SEEN_S if has_new_worker else FIXED_EACH_S + SEEN_S)

    later = Node(chips=node.chips, comes_s=node.comes_s, known=known, now_s=node.now_s)
    later.library.codes_of = node.library.codes_of
    later.pass_s(SEEN_S)
    running, restarted = told(node), told(later)
    assert extent(running) == extent(restarted)
    product = restarted.product  # rows are compared by identity
    assert replace(running, product=product) == restarted
    assert conditions(node) == conditions(later)

    node.start_agent()
    node.pass_s(SEEN_S)
    again = told(node)
    assert replace(again, product=product) == restarted
    assert (extent(again), conditions(node)) == (extent(restarted), conditions(later))
