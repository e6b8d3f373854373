import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.buckets import NEVER, Bucket, Shelf
from scheduler_core.products import ATLAS_800_TRAINING as PRODUCT

masks = st.integers(0, 255)


@pytest.mark.property
@given(st.lists(st.tuples(st.integers(0, 5), masks, masks), max_size=30))
def test_exactly_the_ranks_that_have_nodes_are_marked(
    moves: list[tuple[int, int, int]],
) -> None:
    """A mark that stays behind would cost every later decision a look."""
    shelf = Shelf(PRODUCT)
    lies: dict[str, Bucket] = {}
    for index, healthy, free in moves:
        name = f"node-{index}"
        if name in lies:
            shelf.remove(lies.pop(name), name)
        else:
            lies[name] = shelf.bucket(None, healthy, free & healthy)
            shelf.add(lies[name], name)

    for count, marks in enumerate(shelf._occupied):
        ranks = {bucket.ranks[count] for bucket in shelf.buckets()} - {NEVER}
        assert marks == sum(1 << rank for rank in ranks)


def test_nodes_with_the_same_answers_share_a_bucket() -> None:
    shelf = Shelf(PRODUCT)

    left, right = shelf.bucket(None, 0xFF, 0x07), shelf.bucket(None, 0xFF, 0xE0)
    hurt = shelf.bucket(None, 0x7F, 0x07)

    assert left is right
    assert left is not hurt
