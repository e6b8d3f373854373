"""Which physical SuperPoDs the logical ones of a job lie in."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.topology import superpods
from scheduler_core.topology.superpods import Block, Request
from tests.scheduler_core.superpod_corpus import plan
from tests.support.rows import rows


def pool(*sizes: int) -> dict[int, list[str]]:
    """Physical SuperPoDs 0, 1, … with so many free nodes: `1-03`."""
    return {
        index: [f"{index}-{number:02}" for number in range(size)]
        for index, size in enumerate(sizes)
    }


def shape(found: tuple[Block, ...] | str) -> list[Counter[int]] | str:
    """Of each logical SuperPoD: {physical one: nodes}."""
    if isinstance(found, str):
        return found
    return [Counter(superpod for superpod, _ in block.nodes) for block in found]


ONE_OF_TWO = (
    "1 of 2 logical SuperPoDs of 8 nodes fit: the freest SuperPoD then has 7 that can "
    "take a pod"
)
#: two logical SuperPoDs of eight nodes, two in reserve: the document's example
EXAMPLE = Request(blocks=2, block_nodes=8)


@pytest.mark.seed("003-12", "001-08")
def test_the_order_of_the_documents_example_is_found() -> None:
    keys = {free: superpods.whole_job_key(EXAMPLE, free) for free in range(49)}
    able = {free: key for free, key in keys.items() if key is not None}

    pairs = zip(range(18, 26), range(26, 34), strict=True)
    first = [free for pair in pairs for free in pair]
    assert sorted(able, key=able.__getitem__) == [*first, *range(34, 49)]


@pytest.mark.seed("003-12", "001-13")
def test_the_whole_job_lies_in_the_first_of_that_order() -> None:
    sizes = [48, 34, 33, 27, 19, 26, 18, 17]
    order = []
    left = pool(*sizes)
    while any(len(nodes) >= 18 for nodes in left.values()):
        found = plan(EXAMPLE, left)
        assert isinstance(found, tuple)
        superpod = found[0].nodes[0][0]
        assert shape(found) == [{superpod: 8}, {superpod: 8}]
        order.append(sizes[superpod])
        del left[superpod]

    assert order == [18, 26, 19, 27, 33, 34, 48]


@pytest.mark.seed("003-11", "003-13")
@rows(
    ("sizes", "blocks", "expected"),
    {
        "queue 1: one block each, the smallest remainder first": (
            (10, 17, 12),
            2,
            [{0: 8}, {2: 8}],
        ),
        "queue 1: most blocks first": (
            (10, 27, 10),
            4,
            [{1: 8}, {1: 8}, {1: 8}, {0: 8}],
        ),
        "then queue 2, which uses the reserve": ((9, 10), 2, [{1: 8}, {0: 8}]),
        "queue 2 descending, by what is free": ((8, 9), 2, [{1: 8}, {0: 8}]),
        "after a block a SuperPoD is classed anew": ((16,), 2, [{0: 8}, {0: 8}]),
        "queue 3 is not for the hard policy": (
            (7, 9),
            2,
            ONE_OF_TWO,
        ),
    },
)
def test_a_job_is_split_over_superpods_when_it_must(
    sizes: tuple[int, ...], blocks: int, expected: list[dict[int, int]] | str
) -> None:
    request = Request(blocks=blocks, block_nodes=8)

    assert shape(plan(request, pool(*sizes))) == expected


@pytest.mark.seed("003-14")
@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((7, 9), [{1: 8}, {0: 7, 1: 1}]),
        ((7, 7, 7), [{0: 7, 1: 1}, {2: 7, 1: 1}]),
        ((7, 8), "fewer than 16 nodes in all SuperPoDs can take a pod: 15 can"),
        ((18, 7), [{0: 8}, {0: 8}]),
    ],
)
def test_a_soft_job_may_spread_a_logical_superpod(
    sizes: tuple[int, ...], expected: list[dict[int, int]] | str
) -> None:
    request = Request(blocks=2, block_nodes=8, soft=True)

    assert shape(plan(request, pool(*sizes))) == expected


def test_nothing_need_be_kept_in_reserve() -> None:
    request = Request(blocks=2, block_nodes=8, reserve=0)

    assert shape(plan(request, pool(17, 16))) == [{1: 8}, {1: 8}]


@pytest.mark.seed("001-13")
def test_after_a_fault_the_healthy_keep_node_and_rank() -> None:
    before = Block(number=1, nodes=((4, "a"), (4, "b"), (4, "c")))

    assert superpods.refill(before, "abc", {}) is before
    assert superpods.refill(before, "ac", {4: ["x", "y"], 5: ["z"]}) == Block(
        number=1, nodes=((4, "a"), (4, "x"), (4, "c"))
    )
    assert superpods.refill(before, "c", {4: ["c", "x", "b"]}) == Block(
        number=1, nodes=((4, "x"), (4, "b"), (4, "c"))
    )
    assert superpods.refill(before, "a", {4: ["x"], 5: ["y", "z"]}) is None
    assert superpods.refill(before, "a", {5: ["y", "z"]}) is None
    spread = Block(number=0, nodes=((4, "a"), (5, "b")))
    assert superpods.refill(spread, "a", {4: ["x"], 5: ["y"]}) is None


def test_blocks_that_stay_keep_their_numbers() -> None:
    kept = Block(number=0, nodes=tuple((7, f"k{i}") for i in range(8)))

    found = plan(EXAMPLE, pool(10), fixed_blocks=[kept])

    assert shape(found) == [{7: 8}, {0: 8}]
    rest = tuple((0, f"0-0{number}") for number in range(8))
    assert found == (kept, Block(number=1, nodes=rest))


def test_what_is_missing_of_a_job_is_ordered_as_a_job_of_that_size() -> None:
    """One block is missing: 11 free nodes are next to the reserve, 18 are not."""
    kept = Block(number=1, nodes=tuple((7, f"k{i}") for i in range(8)))

    assert shape(plan(EXAMPLE, pool(18, 11), fixed_blocks=[kept])) == [
        {1: 8},
        {7: 8},
    ]


def test_blocks_of_one_superpod_have_nodes_of_their_own() -> None:
    found = plan(EXAMPLE, pool(18))

    nodes = [(0, f"0-{number:02}") for number in range(16)]
    assert found == (
        Block(number=0, nodes=tuple(nodes[:8])),
        Block(number=1, nodes=tuple(nodes[8:])),
    )


def test_the_reserve_of_one_is_kept_while_another_has_room_beyond_its_own() -> None:
    request = Request(blocks=3, block_nodes=2)

    assert shape(plan(request, pool(5, 4))) == [{1: 2}, {0: 2}, {0: 2}]


def test_a_spread_block_has_its_number() -> None:
    request = Request(blocks=1, block_nodes=3, soft=True)

    assert plan(request, pool(2, 1)) == (
        Block(number=0, nodes=((0, "0-00"), (0, "0-01"), (1, "1-00"))),
    )


def test_without_superpods_there_is_no_room() -> None:
    soft = Request(blocks=2, block_nodes=8, soft=True)

    assert plan(EXAMPLE, {}) == (
        "0 of 2 logical SuperPoDs of 8 nodes fit: the freest SuperPoD then has 0 that "
        "can take a pod"
    )
    assert plan(soft, {}) == (
        "fewer than 16 nodes in all SuperPoDs can take a pod: 0 can"
    )


@pytest.mark.property
@given(
    st.lists(st.integers(0, 30), max_size=6),
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(0, 3),
    st.booleans(),
)
def test_room_is_found_exactly_when_there_is_some(
    sizes: list[int], blocks: int, nodes: int, reserve: int, soft: bool
) -> None:
    request = Request(blocks=blocks, block_nodes=nodes, reserve=reserve, soft=soft)
    free = pool(*sizes)

    found = plan(request, free)

    possible = sum(size // nodes for size in sizes) >= blocks
    if soft:
        possible = sum(sizes) >= blocks * nodes
    assert isinstance(found, tuple) == possible
    if isinstance(found, tuple):
        used = [node for block in found for _, node in block.nodes]
        assert [block.number for block in found] == list(range(blocks))
        assert all(len(block.nodes) == nodes for block in found)
        assert len(set(used)) == len(used)
        assert all(node in free[sp] for block in found for sp, node in block.nodes)
        if not soft:
            assert all(len(parts) == 1 for parts in shape(found))
