from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.index.cluster import BestNode, Cluster, NodeState, Survey
from scheduler_core.node import chips
from scheduler_core.node import order as node_order
from scheduler_core.node.order import Rank
from scheduler_core.node.reasons import Reason, refusal
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products.table import Product
from tests.machines import atlas, atlas_with, variant
from tests.scheduler_core.indexed import Model, best_by_hand, follow, node_states

RESOURCE = PRODUCT.resource
OTHER = variant(key="atlas-other", resource="huawei.com/Ascend310")
SISTER = variant(key="atlas-sister")

masks = st.integers(min_value=0, max_value=0xFF)
names = st.sampled_from([f"node-{index}" for index in range(8)])
counts = st.sampled_from([0, 1, 2, 3, 4, 8, 9])
states = node_states([PRODUCT, PRODUCT, OTHER], names)


def line_of(state: NodeState) -> tuple[str, str]:
    return state.name, state.product.resource


def by_hand(model: Iterable[NodeState], count: int) -> BestNode | None:
    return best_by_hand(model, RESOURCE, count)


def rank(state: NodeState | None, count: int) -> int | None:
    """How good a node is, or None when it cannot serve."""
    best = by_hand([state] if state else [], count)
    return best and best.rank


def reason(state: NodeState | None, count: int) -> str:
    if state is None or state.product.resource != RESOURCE:
        return "no such NPU"
    why = state.barred or chips.find_reason(PRODUCT, state.free, state.healthy, count)
    return refusal(why or Reason.CONFLICT, PRODUCT, count).text


@pytest.mark.property
@given(
    st.lists(st.one_of(states, names), max_size=30),
    counts,
    st.lists(names, unique=True),
    st.frozensets(names),
)
def test_the_index_answers_as_if_it_had_looked_at_every_node(
    changes: list[NodeState | str], count: int, asked: list[str], avoid: frozenset[str]
) -> None:
    cluster, every = Cluster(), Model()
    for change in changes:
        follow(cluster, every, change)
    model = {name: state for (name, of), state in every.items() if of == RESOURCE}
    outside = [state for name, state in model.items() if name not in avoid]
    known = [model[name] for name in asked if name in model and name not in avoid]

    assert list(cluster) == [every[each] for each in sorted(every)]
    assert cluster.names == sorted({name for name, _ in every})
    assert len(cluster) == len(cluster.names)
    assert cluster.nodes(RESOURCE) == model
    assert cluster.best(RESOURCE, count) == by_hand(model.values(), count)
    assert cluster.best(RESOURCE, count, avoid=avoid) == by_hand(outside, count)
    assert cluster.best(RESOURCE, count, names=asked, avoid=avoid) == by_hand(
        known, count
    )

    survey = cluster.survey(RESOURCE, count, asked, avoid=avoid)
    assert cluster.best_class(RESOURCE, count, asked, avoid=avoid) == survey.best
    best = by_hand(known, count)
    serving = [name for name in asked if rank(model.get(name), count) is not None]
    assert survey.best == tuple(
        name
        for name in serving
        if name not in avoid and best and rank(model[name], count) == best.rank
    )
    assert survey.worse == tuple(
        name for name in serving if name not in avoid and name not in survey.best
    )
    assert {name: said.text for name, said in survey.refused.items()} == {
        name: reason(model.get(name), count)
        for name in asked
        if name not in {*survey.best, *survey.worse}
    }


@pytest.mark.property
@given(st.lists(states, min_size=1, unique_by=line_of), counts)
def test_the_order_in_which_nodes_came_does_not_matter(
    some: list[NodeState], count: int
) -> None:
    forward, backward = Cluster(some), Cluster(reversed(some))

    assert forward.best(RESOURCE, count) == backward.best(RESOURCE, count)
    assert forward.refusals(RESOURCE, count) == backward.refusals(RESOURCE, count)


@pytest.mark.property
@given(st.lists(states, min_size=1), masks, counts)
def test_taking_chips_and_giving_them_back_changes_nothing(
    some: list[NodeState], free: int, count: int
) -> None:
    cluster, untouched = Cluster(some), Cluster(some)
    before = cluster.nodes(some[0].product)[some[0].name]

    cluster.put(replace(before, free=before.free & free, barred=None))
    cluster.put(before)

    assert cluster.best(RESOURCE, count) == untouched.best(RESOURCE, count)
    assert cluster.refusals(RESOURCE, count) == untouched.refusals(RESOURCE, count)


def _answers(cluster: Cluster, groups: tuple[tuple[str, ...], ...]) -> object:
    """Everything that plans and filters ask of an index."""
    wanted: list[str | Product] = [RESOURCE, PRODUCT, SISTER]
    questions = [
        (row, count, in_network)
        for row in wanted
        for count in (1, 2, 4, 8)
        for in_network in (False, True)
    ]
    ranked = [list(cluster.ranked(q[0], q[1], in_network=q[2])) for q in questions]
    censuses = [
        cluster.census(groups, q[0], q[1], in_network=q[2]).slots for q in questions
    ]
    refused = [
        cluster.refusals(q[0], q[1], names=cluster.names, in_network=q[2])
        for q in questions
    ]
    return list(cluster), ranked, censuses, refused


@pytest.mark.property
@given(
    st.lists(node_states([PRODUCT, PRODUCT, SISTER, OTHER], names), max_size=12),
    st.lists(
        node_states([PRODUCT, PRODUCT, SISTER, OTHER], names),
        max_size=8,
        unique_by=line_of,
    ),
    st.integers(0, 1),
)
def test_nodes_put_at_once_are_the_nodes_put_one_by_one(
    before: list[NodeState], changes: list[NodeState], asked_times: int
) -> None:
    groups = (("node-0", "node-1", "node-2"), ("node-3", "node-4"), ("node-7",))
    one_by_one, at_once = Cluster(before), Cluster(before)
    for _ in range(asked_times):  # sections and censuses are made by questions
        assert _answers(one_by_one, groups) == _answers(at_once, groups)

    for change in changes:
        one_by_one.put(change)
    at_once.put_all(changes)

    assert _answers(at_once, groups) == _answers(one_by_one, groups)
    assert _answers(at_once, groups) == _answers(Cluster(at_once), groups)


@pytest.mark.property
@given(st.lists(states, unique_by=lambda state: state.name), counts)
def test_relabelled_nodes_give_the_relabelled_answer(
    some: list[NodeState], count: int
) -> None:
    relabelled = [replace(state, name=f"rack-1-{state.name}") for state in some]

    plain = Cluster(some).best(RESOURCE, count)
    other = Cluster(relabelled).best(RESOURCE, count)

    assert (plain is None) == (other is None)
    if plain is not None and other is not None:
        assert (other.node.name, other.rank) == (
            f"rack-1-{plain.node.name}",
            plain.rank,
        )


@pytest.mark.seed("004-14", "004-02")
def test_first_the_group_then_the_node_in_the_group_then_the_name() -> None:
    wanted = [
        atlas_with("z-one-left", 1, 0),
        atlas_with("y-one-left-and-four", 4, 1),
        atlas_with("a-three-left", 3, 0),
        atlas_with("b-three-left", 0, 3),
        atlas_with("a-two-left", 2, 4),
        atlas_with("a-four-left", 4, 4),
        atlas_with("a-capacity-7", 1, 0, capacity=7),
        atlas_with("a-capacity-6", 1, 0, capacity=6),
    ]
    cluster = Cluster(reversed(wanted))

    order = []
    while found := cluster.best(RESOURCE, 1):
        order.append(found.node)
        cluster.drop(found.node.name, RESOURCE)

    assert order == wanted


def test_a_survey_puts_every_name_into_one_part() -> None:
    cluster = Cluster(
        [
            atlas("b-best", {0, 1}),
            atlas("a-best", {4, 5}),
            atlas("worse", {0, 1, 2, 3}),
            atlas("apart", {0, 4}),
            atlas("silent", barred=Reason.AGENT_SILENT),
            atlas("other", product=OTHER),
            atlas("busy", {2, 3}),
        ]
    )
    asked = ["worse", "b-best", "apart", "a-best", "silent", "other", "unknown", "busy"]

    survey = cluster.survey(RESOURCE, 2, iter(asked), avoid={"busy"})

    assert survey == Survey(
        best=("b-best", "a-best"),
        worse=("worse",),
        refused={
            "apart": refusal(Reason.GROUP_TOO_SMALL, PRODUCT, 2),
            "silent": refusal(Reason.AGENT_SILENT, PRODUCT, 2),
            "other": refusal(Reason.NO_SUCH_NPU, PRODUCT, 2),
            "unknown": refusal(Reason.NO_SUCH_NPU, PRODUCT, 2),
            "busy": refusal(Reason.CONFLICT, PRODUCT, 2),
        },
    )


def test_products_of_one_resource_are_tried_in_the_order_of_their_keys() -> None:
    sister = atlas("a", {0}, product=SISTER)
    cluster = Cluster([sister, atlas("b", {0, 4})])

    first = cluster.best(RESOURCE, 1)
    second = cluster.best(RESOURCE, 1, avoid={"b"})

    assert (first and first.node.name, second and second.node) == ("b", sister)


def test_a_node_that_becomes_another_product_leaves_its_old_place() -> None:
    cluster = Cluster([atlas("a"), atlas("a", product=SISTER)])

    assert cluster.best(RESOURCE, 1) == BestNode(
        node=atlas("a", product=SISTER),
        row=SISTER,
        rank=node_order.encode_rank(SISTER, Rank(0, 3, 4)),
    )
    assert len(cluster) == 1


def test_a_node_of_two_resources_is_found_for_each_with_its_own_chips() -> None:
    both = [atlas("a", {0, 1}), atlas("a", {4}, product=OTHER)]
    cluster = Cluster([*both, atlas("b", {0, 4})])

    assert [cluster.best(of.resource, 1, names=["a"]) for of in (PRODUCT, OTHER)] == [
        BestNode(
            node=node, row=node.product, rank=cluster.rank(node.product, 1, "a")[1]
        )
        for node in both
    ]
    assert cluster.refusals(RESOURCE, 4) == (("without 4 free chips", 2),)
    assert cluster.refusals(OTHER.resource, 2) == (
        ("no such NPU", 1),
        ("without 2 free chips", 1),
    )

    cluster.drop("a", OTHER.resource)

    assert (list(cluster), cluster.names) == ([both[0], atlas("b", {0, 4})], ["a", "b"])
    assert cluster.refusals(OTHER.resource, 1) == (("no such NPU", 2),)


def test_forgetting_an_unknown_node_does_nothing() -> None:
    cluster = Cluster([atlas("a")])

    cluster.drop("b", RESOURCE)
    cluster.drop("a", OTHER)

    assert (list(cluster), cluster.nodes(RESOURCE).get("b")) == ([atlas("a")], None)


@pytest.mark.parametrize(
    ("inventory", "healthy", "free"),
    [(0xFF, 0x0F, 0x10), (0x0F, 0x10, 0x00), (0x100, 0x00, 0x00)],
    ids=["free but not healthy", "healthy but absent", "more than the product has"],
)
def test_a_node_that_cannot_be_is_refused(
    inventory: int, healthy: int, free: int
) -> None:
    with pytest.raises(ValueError, match="node 'n': expected free within healthy"):
        NodeState(
            name="n",
            product=PRODUCT,
            inventory=inventory,
            healthy=healthy,
            free=free,
        )
