"""An overlay answers as an index would that has its nodes; the index stays as it is."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.index.queries import NodeIndex
from scheduler_core.placement import gang
from scheduler_core.placement.gang_query import Member
from scheduler_core.placement.overlay import Overlay
from scheduler_core.placement.pod import place
from scheduler_core.products import table
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from scheduler_core.products.table import Product
from tests.machines import atlas, node_state
from tests.scheduler_core.indexed import node_states

FLAT_8, BOX = table.by_key("flat-8"), table.by_key("atlas-a2-box16")
DUO_CHIP = table.by_key("atlas-300i-duo-chip")
OWN = (ATLAS, ATLAS, table.by_key("atlas-800-training-half"), BOX, DUO_CHIP)
WANTED = (*OWN, distributed(ATLAS), FLAT_8, ATLAS.resource, DUO_CHIP.resource, "none")
NAMES = [f"node-{index}" for index in range(8)]
GROUPS = (tuple(NAMES[:3]), (), ("node-3", "", "node-0", "node-5"))


states = node_states(OWN, st.sampled_from(NAMES))
clusters = st.lists(states, max_size=12)
#: states of one overlay, and of each further one that lies on the one before
overlays = st.lists(st.lists(states, max_size=4), min_size=1, max_size=3)
questions = st.tuples(
    st.sampled_from(WANTED), st.sampled_from([0, 1, 2, 8, 12]), st.booleans()
)
some_names = st.lists(st.sampled_from([*NAMES, "unknown"]), unique=True)


def laid(base: NodeIndex, layers: list[list[NodeState]]) -> NodeIndex:
    for layer in layers:
        base = Overlay(base, layer)
    return base


def answers(
    index: NodeIndex,
    question: tuple[Product | str, int, bool],
    names: list[str],
    avoid: frozenset[str],
) -> Iterator[object]:
    """All queries for one question, each with its answer."""
    wanted, count, in_network = question
    yield dict(index.nodes(wanted))
    yield sorted(index.nodes(wanted))
    yield len(index.nodes(wanted))
    yield [index.has_node(name) for name in names]
    for asked in (None, names):
        for avoided in ((), avoid):
            yield index.best(
                wanted, count, names=asked, avoid=avoided, in_network=in_network
            )
        yield list(index.ranked(wanted, count, names=asked, in_network=in_network))
        yield index.refusals(wanted, count, names=asked, in_network=in_network)
    for avoided in ((), avoid):
        yield index.survey(wanted, count, names, avoid=avoided, in_network=in_network)
    for name in names:
        try:
            yield index.rank(wanted, count, name, in_network=in_network)
        except KeyError:
            yield f"{name} cannot serve"
    census = index.census(GROUPS, wanted, count, in_network=in_network)
    yield census.slots, census.levels, census.columns, census.total, census.count


@pytest.mark.property
@given(clusters, overlays, questions, some_names, st.frozensets(st.sampled_from(NAMES)))
def test_an_overlay_answers_as_an_index_with_its_nodes(
    nodes: list[NodeState],
    layers: list[list[NodeState]],
    question: tuple[Product | str, int, bool],
    names: list[str],
    avoid: frozenset[str],
) -> None:
    base = Cluster(nodes)
    before = list(base), list(answers(base, question, names, avoid))
    changed = [state for layer in layers for state in layer]
    rebuilt = Cluster([*nodes, *changed])

    overlay = laid(base, layers)

    assert list(answers(overlay, question, names, avoid)) == list(
        answers(rebuilt, question, names, avoid)
    )
    assert (list(base), list(answers(base, question, names, avoid))) == before


@pytest.mark.property
@given(clusters, overlays, states, questions, some_names)
def test_a_later_change_of_the_index_shows_through(
    nodes: list[NodeState],
    layers: list[list[NodeState]],
    later: NodeState,
    question: tuple[Product | str, int, bool],
    names: list[str],
) -> None:
    base = Cluster(nodes)
    overlay = laid(base, layers)
    list(answers(overlay, question, names, frozenset()))
    changed = [state for layer in layers for state in layer]

    base.put(later)

    rebuilt = Cluster([*base, *changed])
    assert list(answers(overlay, question, names, frozenset())) == list(
        answers(rebuilt, question, names, frozenset())
    )


@pytest.mark.property
@given(
    clusters,
    overlays,
    st.sampled_from(WANTED),
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=5),
)
def test_a_gang_is_planned_on_an_overlay_as_on_an_index(
    nodes: list[NodeState],
    layers: list[list[NodeState]],
    wanted: Product | str,
    sizes: list[int],
) -> None:
    members = [Member(name=f"pod-{i}", chips=n) for i, n in enumerate(sizes)]
    overlay = laid(Cluster(nodes), layers)
    rebuilt = Cluster([*nodes, *(state for layer in layers for state in layer)])

    planned = gang.plan(wanted, members, overlay)

    assert planned == gang.plan(wanted, members, rebuilt)


def test_chips_are_free_on_the_overlay_only() -> None:
    cluster = Cluster([atlas("a", {0}), atlas("b", {1})])
    whole = atlas("a")

    overlay = Overlay(cluster, [whole])

    assert overlay.best(ATLAS.resource, 8) == Cluster([whole]).best(ATLAS.resource, 8)
    assert cluster.best(ATLAS.resource, 8) is None
    assert cluster.nodes(ATLAS)["a"] == atlas("a", {0})


def test_a_node_that_the_index_lacks_is_there_on_the_overlay() -> None:
    cluster = Cluster([atlas("a", ())])
    other = node_state("new", FLAT_8)

    overlay = Overlay(cluster, [other])

    assert place(ATLAS.resource, 8, overlay) == place(
        ATLAS.resource, 8, Cluster([other])
    )
    assert not cluster.has_node("new")
