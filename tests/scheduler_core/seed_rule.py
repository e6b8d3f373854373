"""The seeds' rule for Ascend 910, said once more in the plainest way.

Nothing here is shared with the program: the tables are copied from the document by
hand, and everything is found by trying all of it.
"""

from itertools import combinations

RINGS = (frozenset({0, 1, 2, 3}), frozenset({4, 5, 6, 7}))

#: chips wanted: free chips of the ring that serves, and of the other ring, the best
#: first. From the table "Scenario Classification", groups A to D.
GROUPS = {
    1: (
        *((1, other) for other in (0, 1, 2, 3, 4)),  # A
        *((3, other) for other in (0, 2, 3, 4)),  # B
        *((2, other) for other in (0, 2, 4)),  # C
        *((4, other) for other in (0, 4)),  # D
    ),
    2: (
        *((2, other) for other in (0, 1, 2, 3, 4)),  # A
        *((4, other) for other in (0, 1, 3, 4)),  # B
        *((3, other) for other in (0, 1)),  # C
        (3, 3),  # in no group of the table: last in C
    ),
    4: tuple((4, other) for other in (0, 1, 2, 3, 4)),  # A
    8: ((4, 4),),
}

#: "the optimal choice is the remaining one chip in the same HCCS ring, and the less
#: optimal choices are three chips, two chips, and then four chips" and so on
LEFT_IN_RING = {1: [1, 3, 2, 4], 2: [2, 4, 3], 4: [4]}


def chips(free: frozenset[int], count: int) -> frozenset[int]:
    """The best of all sets of chips that a pod may get; empty when there is none."""
    legal = [
        frozenset(chosen)
        for chosen in combinations(sorted(free), count)
        if count == 8 or (count in LEFT_IN_RING and _ring_of(chosen) is not None)
    ]
    return min(legal, key=lambda chosen: _preference(free, chosen), default=frozenset())


def position(free: frozenset[int], count: int) -> int | None:
    """Where a node with these free chips stands in the table; None: nowhere."""
    left, right = len(free & RINGS[0]), len(free & RINGS[1])
    for place, pair in enumerate(GROUPS.get(count, ())):
        if pair in {(left, right), (right, left)}:
            return place
    return None


def _ring_of(chosen: tuple[int, ...]) -> int | None:
    for index, ring in enumerate(RINGS):
        if ring.issuperset(chosen):
            return index
    return None


def _preference(
    free: frozenset[int], chosen: frozenset[int]
) -> tuple[int, int, list[int]]:
    if len(chosen) == 8:
        return 0, 0, sorted(chosen)
    ring = _ring_of(tuple(chosen))
    assert ring is not None
    left = len(free & RINGS[ring])
    return LEFT_IN_RING[len(chosen)].index(left), ring, sorted(chosen)
