from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node import chips
from scheduler_core.node.reasons import Reason
from scheduler_core.placement.pod import Placement, Rejection, place
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.machines import atlas, mask, node_state
from tests.scheduler_core.jobs import place_of


def put(cluster: Cluster, answer: Placement | Rejection) -> tuple[int, ...]:
    """Take the placed chips out of the index, and say which they were."""
    placement = place_of(answer)
    state = cluster.nodes(PRODUCT)[placement.node]
    free = state.free & ~mask(placement.chips)
    cluster.put(replace(state, free=free))
    return placement.chips


@pytest.mark.seed("004-07", "003-01")
def test_a_placement_names_node_chips_and_the_reason() -> None:
    node_a = atlas("node-a", {3})
    node_b = atlas("node-b", {0, 1, 4, 5, 6})

    answer = place(PRODUCT, 1, Cluster([node_b, node_a]))

    assert answer == Placement(
        node="node-a",
        chips=(3,),
        reason=(
            "the last 1 free of one HCCS ring (0 more free on the node), "
            "on a node with all 8 chips healthy"
        ),
    )


def test_the_reason_says_how_many_chips_of_the_node_are_healthy() -> None:
    hurt = atlas("n", {0, 1, 2}, healthy={0, 1, 2, 3, 4})

    assert place_of(place(PRODUCT.resource, 2, Cluster([hurt]))).reason == (
        "2 of the 3 free chips of one HCCS ring (0 more free on the node), "
        "on a node with 5 of 8 chips healthy"
    )


@pytest.mark.seed("004-12")
def test_tasks_placed_one_after_another_on_one_node_never_share_a_chip() -> None:
    cluster = Cluster([atlas("node-1")])

    given_out = [put(cluster, place(PRODUCT, count, cluster)) for count in (1, 1, 2, 4)]

    assert given_out == [(0,), (1,), (2, 3), (4, 5, 6, 7)]
    assert place(PRODUCT, 1, cluster) == Rejection(reasons=(("no free chip", 1),))


@pytest.mark.seed("004-10")
def test_chips_are_chosen_on_the_state_of_the_moment() -> None:
    """An earlier answer reserves nothing: whoever acts on it puts the new state."""
    cluster = Cluster([atlas("node-1")])

    guess = place(PRODUCT, 2, cluster)
    again = place(PRODUCT, 2, cluster)
    put(cluster, again)
    later = place(PRODUCT, 2, cluster)

    assert guess == again
    assert place_of(later).chips == (2, 3)


@pytest.mark.seed("004-09")
def test_a_rejection_counts_its_reasons_over_the_nodes() -> None:
    cluster = Cluster(
        [
            atlas("apart-1", {0, 4}),
            atlas("apart-2", {3, 7}),
            atlas("hurt", {0}, healthy={0, 4}),
            atlas("full", ()),
            atlas("silent", barred=Reason.AGENT_SILENT),
        ]
    )

    answer = place(PRODUCT, 2, cluster)

    assert answer == Rejection(
        reasons=(
            ("no HCCS ring has 2 free chips", 2),
            ("agent silent", 1),
            ("chip unhealthy", 1),
            ("without 2 free chips", 1),
        )
    )
    assert answer.nodes == len(cluster)
    assert answer.text == (
        "2 no HCCS ring has 2 free chips, 1 agent silent, 1 chip unhealthy, "
        "1 without 2 free chips"
    )


def test_an_illegal_count_is_refused_with_the_legal_ones() -> None:
    cluster = Cluster([atlas("node-1"), atlas("node-2")])

    answers = {count: place(PRODUCT, count, cluster) for count in (-1, 0, 3, 9)}

    assert answers == {
        count: Rejection(
            reasons=((f"cannot give a pod {count} chips, only 1, 2, 4 or 8", 2),)
        )
        for count in (-1, 0, 3, 9)
    }


def test_without_nodes_there_is_nothing_to_count() -> None:
    answer = place(PRODUCT, 1, Cluster())

    assert answer == Rejection(reasons=())
    assert isinstance(answer, Rejection)
    assert (answer.nodes, answer.text) == (0, "no node to look at")


def test_only_the_named_nodes_are_looked_at() -> None:
    cluster = Cluster([atlas("a", {0}), atlas("b", {0, 1}), atlas("c", ())])

    assert place(PRODUCT, 1, cluster, names=iter(["c", "b"])) == place(
        PRODUCT, 1, Cluster([atlas("b", {0, 1})])
    )
    assert place(PRODUCT, 1, cluster, names=iter(["c", "unknown"])) == Rejection(
        reasons=(("no free chip", 1), ("no such NPU", 1))
    )


def test_a_node_to_be_avoided_that_could_serve_counts_as_a_conflict() -> None:
    cluster = Cluster([atlas("a"), atlas("b", ())])

    expected = Rejection(
        reasons=(("another pod waits there for as many chips", 1), ("no free chip", 1))
    )
    assert place(PRODUCT, 1, cluster, avoid={"a"}) == expected
    assert place(PRODUCT, 1, cluster, names=["a", "b"], avoid={"a"}) == expected


def test_another_resource_finds_no_such_npu() -> None:
    answer = place("huawei.com/Ascend310", 1, Cluster([atlas("a")]))

    assert answer == Rejection(reasons=(("no such NPU", 1),))


states = st.builds(
    lambda name, healthy, free, barred: node_state(
        f"node-{name}", PRODUCT, free, healthy=healthy, barred=barred
    ),
    st.integers(0, 9),
    st.integers(0, 255),
    st.integers(0, 255),
    st.sampled_from([None, None, Reason.NO_ALLOCATABLE]),
)


@pytest.mark.property
@given(
    st.lists(states, max_size=12),
    st.integers(1, 9),
    st.frozensets(st.sampled_from([f"node-{index}" for index in range(10)])),
)
def test_an_answer_is_legal_or_its_reasons_add_up(
    some: list[NodeState], count: int, avoid: frozenset[str]
) -> None:
    cluster = Cluster(some)

    answer = place(PRODUCT, count, cluster, avoid=avoid)

    if isinstance(answer, Rejection):
        assert answer.nodes == len(cluster)
    else:
        node = cluster.nodes(PRODUCT)[answer.node]
        assert answer.node not in avoid
        assert mask(answer.chips) & ~node.free == 0
        assert len(answer.chips) == count
        assert chips.is_legal(PRODUCT, mask(answer.chips))


@pytest.mark.property
@given(st.lists(states, min_size=1, max_size=6), st.integers(1, 8), st.integers(0, 7))
def test_what_can_be_placed_still_can_when_a_chip_becomes_free(
    some: list[NodeState], count: int, chip: int
) -> None:
    cluster = Cluster(some)
    if isinstance(place(PRODUCT, count, cluster), Rejection):
        return
    for state in tuple(cluster):
        cluster.put(replace(state, free=state.free | 1 << chip & state.healthy))

    assert isinstance(place(PRODUCT, count, cluster), Placement)
