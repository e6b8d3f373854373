"""The choice against a list of everything that could be chosen, on small clusters."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.parts.choice import PartChoice
from scheduler_core.parts.index import PartIndex, PartNode, cuts_of
from scheduler_core.parts.request import Cut, Wish
from scheduler_core.parts.room import Part, room_of
from scheduler_core.parts.templates import CHIPS, ChipKind
from tests.scheduler_core.parts.chips import State, after, states

Nodes = dict[str, tuple[ChipKind, list[State]]]

WISHES = [
    Wish(cores, level, dvpp)
    for cores in (1, 2, 4, 5, 6, 8, 10, 12)
    for level in ("low", "high")
    for dvpp in ("null", "yes", "no")
]


def node_of(name: str, chip: ChipKind, chips: Sequence[State]) -> PartNode:
    rooms = tuple((at, room_of(chip, state)) for at, state in enumerate(chips))
    return PartNode(name, chip, rooms)


@st.composite
def clusters(draw: st.DrawFn) -> Nodes:
    kinds = st.sampled_from(CHIPS)
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4))
    nodes: Nodes = {}
    for name in names:
        chip = draw(kinds)
        of_chip = st.sampled_from(states(chip))
        nodes[name] = (chip, draw(st.lists(of_chip, min_size=1, max_size=4)))
    return nodes


def free_after(chip: ChipKind, state: State) -> tuple[int, int]:
    """AI cores and AI CPUs that no part has."""
    taken = [part.template.amounts for part in state]
    return (
        chip.totals.cores - sum(amounts.cores for amounts in taken),
        chip.totals.ai_cpus - sum(amounts.ai_cpus for amounts in taken),
    )


def vgroups(state: State) -> int:
    shared = {part.group for part in state if part.group is not None}
    return len(shared) + sum(part.group is None for part in state)


def expected(nodes: Nodes, cuts: Mapping[str, Cut]) -> PartChoice | None:
    """The first of all that fits, by the order that the documents give."""
    found = []
    for name, (chip, chips) in nodes.items():
        cut = cuts.get(chip.key)
        if cut is None:
            continue
        for template in (cut.template, cut.downgrade):
            for number, state in enumerate(chips):
                if template is None or not (more := after(chip, state, template)):
                    continue
                opened = chip.vgroups and vgroups(more) > vgroups(state)
                order = (
                    template is not cut.template,
                    *free_after(chip, more),
                    bool(opened),
                    name,
                    number,
                )
                found.append((order, PartChoice(name, number, template)))
    return min(found, key=lambda entry: entry[0])[1] if found else None


@given(nodes=clusters(), wish=st.sampled_from(WISHES))
def test_the_tightest_chip_of_all_nodes_is_cut(nodes: Nodes, wish: Wish) -> None:
    index = PartIndex(node_of(name, *of_node) for name, of_node in nodes.items())

    assert index.best(wish) == expected(nodes, cuts_of(wish).cuts)


def test_a_part_of_one_core_fills_a_hole_before_an_equal_chip_is_opened() -> None:
    """Two chips with as many AI cores and AI CPUs, one with a hole, on a later node."""
    chip = CHIPS[0]
    small, two, other = (chip.template(n) for n in ("vir01", "vir02_1c", "vir02"))
    holes = ((small, 0), (small, 1), (two, None))
    plain = ((other, None), (two, None))
    nodes = [
        node_of(name, chip, [tuple(Part(*part) for part in parts)])
        for name, parts in (("a", plain), ("b", holes))
    ]
    lefts = [room.left[:3] for node in nodes for _, room in node.chips]

    assert lefts[0] == lefts[1]
    assert PartIndex(nodes).best(Wish(1)) == PartChoice("b", 0, small)
