"""Nodes that serve by another row than their own, and jobs of several pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node import chips
from scheduler_core.node.reasons import Reason, refusal
from scheduler_core.placement.pod import Placement, Rejection, place
from scheduler_core.products import table
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product
from tests.machines import node_state
from tests.scheduler_core.indexed import Model, best_by_hand, follow, node_states
from tests.scheduler_core.jobs import place_of

ATLAS, FLAT_8 = table.ATLAS_800_TRAINING, table.by_key("flat-8")
HALF, MODULE = table.by_key("atlas-800-training-half"), table.by_key("atlas-a2-8")
BOX, A3 = table.by_key("atlas-a2-box16"), table.by_key("atlas-a3-16")
P310 = table.by_key("atlas-310p")
DUO_CHIP = table.by_key("atlas-300i-duo-chip")
DISTRIBUTED = table.by_key("atlas-300i-duo-distributed")
OWN = (ATLAS, HALF, MODULE, BOX, A3, P310, DUO_CHIP)
WANTED = (*OWN, FLAT_8, DISTRIBUTED)


names = st.sampled_from([f"node-{index}" for index in range(6)])
states = node_states(OWN, names)


@pytest.mark.property
@given(
    st.lists(st.one_of(states, names), max_size=12),
    st.sampled_from([*WANTED, ATLAS.resource, P310.resource]),
    st.integers(1, 16),
    st.booleans(),
    st.integers(0, 12),
)
def test_whatever_is_asked_the_index_answers_as_if_it_had_looked_at_every_node(
    changes: list[NodeState | str],
    wanted: Product | str,
    count: int,
    in_network: bool,
    asked_at: int,
) -> None:
    """Also when the question came first, before or between the changes."""
    cluster, model = Cluster(), Model()
    for index, change in enumerate(changes):
        if index == asked_at:
            place(wanted, count, cluster, in_network=in_network)
        follow(cluster, model, change)
    best = best_by_hand(model.values(), wanted, count, in_network=in_network)

    answer = place(wanted, count, cluster, in_network=in_network)
    named = place(wanted, count, cluster, names=cluster.names, in_network=in_network)

    assert named == answer
    if isinstance(answer, Rejection):
        assert best is None
        assert answer.nodes == len(cluster)
    else:
        assert best is not None
        free = best.node.free & best.node.usable(best.row)
        chosen = chips.ids_of(chips.choose(best.row, free, count))
        assert (answer.node, answer.chips) == (best.node.name, chosen)


@pytest.mark.property
@given(
    st.lists(st.one_of(states, names), max_size=12),
    st.sampled_from([*WANTED, ATLAS.resource, P310.resource]),
    st.booleans(),
)
def test_an_index_that_was_kept_up_to_date_answers_as_one_made_anew(
    changes: list[NodeState | str], wanted: Product | str, in_network: bool
) -> None:
    cluster, model = Cluster(), Model()
    for change in changes:
        cluster.best(wanted, 1, in_network=in_network)
        follow(cluster, model, change)
    anew = Cluster(model[name] for name in sorted(model))

    for count in range(66):
        ranked = list(cluster.ranked(wanted, count, in_network=in_network))
        assert ranked == list(anew.ranked(wanted, count, in_network=in_network))
        said = cluster.refusals(wanted, count, in_network=in_network)
        assert said == anew.refusals(wanted, count, in_network=in_network)
        asked = [*cluster.names, "unknown"]
        survey = cluster.survey(wanted, count, asked, in_network=in_network)
        assert survey == anew.survey(wanted, count, asked, in_network=in_network)


def test_a_row_is_served_by_all_nodes_that_can_a_resource_by_own_rows() -> None:
    cluster = Cluster(
        [node_state("atlas", ATLAS, 0b0000_0111), node_state("a2", MODULE, 0b1111)]
    )

    by_row = place_of(place(FLAT_8, 3, cluster))
    by_own = place_of(place(ATLAS.resource, 3, cluster))

    assert (by_row.node, by_row.chips) == ("atlas", (0, 1, 2))
    assert (by_own.node, by_own.chips) == ("a2", (0, 1, 2))


def test_a_node_with_more_chips_than_the_row_knows_does_not_serve_it() -> None:
    cluster = Cluster([node_state("box", BOX, 0xFFFF), node_state("half", HALF, 0b1)])

    assert place(HALF, 2, cluster) == Rejection(
        reasons=(("no such NPU", 1), ("without 2 free chips", 1))
    )


def test_a_row_that_demands_a_label_is_served_by_nodes_that_carry_it() -> None:
    cluster = Cluster(
        [node_state("plain", P310, 0b1111), node_state("duo", DUO_CHIP, 0b11)]
    )

    assert place_of(place(DISTRIBUTED, 2, cluster)).node == "duo"
    assert isinstance(place(DISTRIBUTED, 4, cluster), Rejection)


def test_chips_with_a_faulty_network_are_not_for_jobs_of_several_pods() -> None:
    cluster = Cluster([node_state("a", ATLAS, 0x0F, network_unhealthy=0x01)])

    assert isinstance(place(ATLAS, 4, cluster), Placement)
    assert place(ATLAS, 8, cluster, in_network=True) == Rejection(
        reasons=(("chip network unhealthy", 1),)
    )
    assert place(ATLAS, 4, cluster, in_network=True) == Rejection(
        reasons=(("without 4 free chips", 1),)
    )
    survey = cluster.survey(ATLAS, 8, ("a",), in_network=True)
    assert survey.refused == {
        "a": refusal(Reason.NETWORK_UNHEALTHY, distributed(ATLAS), 8)
    }


def test_a_faulty_network_does_not_matter_where_the_row_says_so() -> None:
    cluster = Cluster([node_state("a", P310, 0x0F, network_unhealthy=0x01)])

    answer = place(P310, 4, cluster, in_network=True)

    assert place_of(answer).chips == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("row", "free", "count", "choice"),
    [
        (ATLAS, 0x17, 1, "the last 1 free of one HCCS ring (3 more free on the node)"),
        (ATLAS, 0xFF, 8, "2 whole HCCS rings"),
        (A3, 0x3F, 4, "2 whole HiAM modules"),
        (A3, 0x7, 1, "the last 1 free of one HiAM module (2 more free on the node)"),
        (BOX, 0x3F3F, 10, "5 chips of each HCCS ring, at matching positions"),
        (MODULE, 0x1F, 3, "3 of the 5 free chips"),
        (MODULE, 0x7, 3, "the last 3 free"),
        (DISTRIBUTED, 0x1D, 3, "1 whole card and the last 1 free of one more"),
    ],
)
def test_the_reason_is_said_in_the_words_of_the_product(
    row: Product, free: int, count: int, choice: str
) -> None:
    reason = place_of(place(row, count, Cluster([node_state("n", row, free)]))).reason

    assert reason == f"{choice}, on a node with all {row.chip_count} chips healthy"


def test_pods_of_a_distributed_job_on_a_box_are_said_to_be_split_by_number() -> None:
    free = 0b1111_1000_0001_1111
    answer = place(BOX, 10, Cluster([node_state("n", BOX, free)]), in_network=True)

    assert place_of(answer).reason == (
        "5 chips of each HCCS ring, on a node with all 16 chips healthy"
    )
