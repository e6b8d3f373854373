import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.index.buckets import NEVER, Bucket, RowBuckets
from scheduler_core.node.state import NodeState
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.machines import node_state

masks = st.integers(0, 255)


def node(healthy: int, free: int) -> NodeState:
    return node_state("n", PRODUCT, free, healthy=healthy)


@pytest.mark.property
@given(st.lists(st.tuples(st.integers(0, 5), masks, masks), max_size=30))
def test_exactly_the_ranks_that_have_nodes_are_marked(
    moves: list[tuple[int, int, int]],
) -> None:
    """A mark that stays behind would cost every later decision a look."""
    buckets = RowBuckets(PRODUCT)
    lies: dict[str, Bucket] = {}
    for index, healthy, free in moves:
        name = f"node-{index}"
        if name in lies:
            buckets.move(lies.pop(name), None, name)
        else:
            lies[name] = buckets.bucket(node(healthy, free))
            buckets.move(None, lies[name], name)

    for count, marks in enumerate(buckets._occupied):
        ranks = {bucket.ranks[count] for bucket in lies.values()} - {NEVER}
        assert marks == sum(1 << rank for rank in ranks)


def test_nodes_with_the_same_answers_share_a_bucket() -> None:
    buckets = RowBuckets(PRODUCT)

    left, right = buckets.bucket(node(0xFF, 0x07)), buckets.bucket(node(0xFF, 0xE0))
    hurt = buckets.bucket(node(0x7F, 0x07))

    assert left is right
    assert left is not hurt


def test_a_rank_stays_marked_while_another_bucket_of_it_has_nodes() -> None:
    """Six healthy chips as 4 + 2 and as 3 + 3 refuse differently, but rank alike."""
    buckets = RowBuckets(PRODUCT)
    uneven, even = buckets.bucket(node(0x3F, 0x01)), buckets.bucket(node(0x77, 0x01))
    assert uneven is not even
    buckets.move(None, uneven, "a")
    buckets.move(None, even, "b")

    buckets.move(uneven, None, "a")

    assert buckets.best(1, ()) == (even.ranks[1], "b")


def test_avoided_nodes_are_passed_over_rank_by_rank() -> None:
    buckets = RowBuckets(PRODUCT)
    for name, free in (("a", 0x01), ("b", 0x11), ("c", 0x13)):
        buckets.move(None, buckets.bucket(node(0xFF, free)), name)

    assert [buckets.best(1, avoid) for avoid in ((), ("a",), ("a", "b"), "abc")] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
        None,
    ]
