"""The index of parts against a look at every chip, whatever comes, goes and changes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.parts.choice import PartChoice
from scheduler_core.parts.index import PartIndex, PartNode, cuts_of
from scheduler_core.parts.request import Cut, Wish
from scheduler_core.parts.room import join
from scheduler_core.parts.templates import CHIPS, ChipKind
from tests.scheduler_core.parts.chips import State, states
from tests.scheduler_core.parts.test_choice import WISHES, Nodes, expected, node_of
from tests.support.rows import rows

OF_310P = CHIPS[0]


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, tuple[ChipKind, list[State]] | None]:
    """Name of a node and its chips from now on; None if it goes."""
    name = draw(st.sampled_from("abcd"))
    if draw(st.integers(0, 4)) == 0:
        return name, None
    kind = draw(st.sampled_from((CHIPS[0], CHIPS[1], CHIPS[6], CHIPS[4])))
    return name, (kind, draw(st.lists(st.sampled_from(states(kind)), max_size=3)))


@given(changes=st.lists(changes(), max_size=12), data=st.data())
def test_the_index_answers_as_a_look_at_every_chip(
    changes: list[tuple[str, tuple[ChipKind, list[State]] | None]],
    data: st.DataObject,
) -> None:
    index, nodes = PartIndex(), Nodes()
    for name, chips in changes:
        if chips is None:
            index.drop(name)
            nodes.pop(name, None)
        else:
            index.put(node_of(name, *chips))
            nodes[name] = chips
    names = data.draw(st.none() | st.sets(st.sampled_from("abcdx")))
    seen = {n: of for n, of in nodes.items() if names is None or n in names}

    assert len(index) == len(nodes)
    for wish in WISHES:
        looked = expected(seen, cuts_of(wish).cuts)
        refusals = index.refusals(wish, names)

        assert index.best(wish, names) == looked
        assert sum(refusals.values()) == sum(
            not takes(node_of(name, *of), wish) for name, of in seen.items()
        )
        assert all(number > 0 for number in refusals.values())


def takes(node: PartNode, wish: Wish) -> bool:
    cut = cuts_of(wish).cuts.get(node.kind.key)
    templates = [t for t in ((cut.template, cut.downgrade) if cut else ()) if t]
    return any(join(node.kind, room, t) for _, room in node.chips for t in templates)


def parts_of(*names: str) -> State:
    return next(
        state
        for state in states(OF_310P)
        if Counter(part.template.name for part in state) == Counter(names)
    )


@rows(
    ("chips", "wish", "sentence"),
    {
        "no chip at all": ([], Wish(1), "no chip can be cut"),
        "AI cores": (
            [parts_of("vir04", "vir02", "vir01"), parts_of("vir04_3c", "vir04_3c")],
            Wish(2),
            "no chip has 2 AI cores left",
        ),
        "AI CPUs, by the chip that has most of it": (
            [parts_of("vir04_3c", "vir04_3c"), parts_of("vir04", "vir02", "vir01")],
            Wish(1),
            "no chip with 1 AI core left has an AI CPU",
        ),
        "media units": (
            [parts_of("vir04_4c_dvpp")],
            Wish(4),
            "no chip with 4 AI cores left has the media units",
        ),
        "a count of other chips": (
            [()],
            Wish(5),
            "5 AI cores cannot be cut from 310P: ask for 1, 2, 4 or multiples of 8",
        ),
        "whole chips": ([()], Wish(16), "16 AI cores are whole chips"),
    },
)
def test_a_refusal_says_what_the_best_chip_of_a_node_lacks(
    chips: list[State], wish: Wish, sentence: str
) -> None:
    index = PartIndex([node_of("a", OF_310P, chips), node_of("b", OF_310P, chips)])

    assert index.refusals(wish) == {sentence: 2}
    assert index.refusals(wish, ["b", "x"]) == {sentence: 1}


def test_free_ai_cores_in_halves_of_vgroups_are_told_apart() -> None:
    small, two = OF_310P.template("vir01"), OF_310P.template("vir02_1c")
    holes = next(
        state
        for state in states(OF_310P)
        if Counter(p.template for p in state) == Counter([small, small, two, two])
        and len({p.group for p in state if p.group is not None}) > 1
    )
    index = PartIndex([node_of("a", OF_310P, [holes])])

    assert index.best(Wish(1)) == PartChoice("a", 0, small)
    assert index.best(Wish(2)) is None
    assert index.refusals(Wish(2)) == {
        "no chip with 2 AI cores left has them in one vGroup": 1
    }


def test_the_asked_template_comes_before_its_downgrade_over_all_nodes() -> None:
    tight = parts_of("vir04", "vir02")  # 2 AI cores, 1 AI CPU: only `vir02_1c`
    index = PartIndex([node_of("a", OF_310P, [tight]), node_of("b", OF_310P, [()])])
    wish = Wish(2, "high")
    cut = cuts_of(wish).cuts[OF_310P.key]

    assert isinstance(cut, Cut)
    assert cut.downgrade is not None
    assert index.best(wish) == PartChoice("b", 0, cut.template)
    assert index.best(wish, ["a"]) == PartChoice("a", 0, cut.downgrade)
    assert index.refusals(wish) == {}
