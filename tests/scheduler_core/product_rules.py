"""The rule of each product, said once more in the plainest way.

Nothing here is shared with the program. Each rule says which sets of chips a pod may
get and which of two is better; the best is found by trying all of them.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import combinations
from typing import Any

#: free chips of a node, chips wanted -> the best set; empty when there is none
Rule = Callable[[frozenset[int], int], frozenset[int]]
Chosen = tuple[int, ...]


def _best(sets: Iterator[Chosen], key: Callable[[Chosen], Any]) -> frozenset[int]:
    keyed = sorted((key(chosen), chosen) for chosen in sets)
    return frozenset(keyed[0][1]) if keyed else frozenset()


def _groups(chips: Collection[int], size: int) -> dict[int, list[int]]:
    parts: dict[int, list[int]] = {}
    for chip in sorted(chips):
        parts.setdefault(chip // size, []).append(chip)
    return parts


def flat(free: frozenset[int], count: int) -> frozenset[int]:
    """The lowest ids."""
    return frozenset(sorted(free)[:count]) if count <= len(free) else frozenset()


def one_group(size: int, left_in_group: dict[int, list[int]]) -> Rule:
    """Inside one group, by the number of its free chips."""

    def rule(free: frozenset[int], count: int) -> frozenset[int]:
        preferred = left_in_group.get(count, [])
        served = [
            (preferred.index(len(chips)), group, chips[:count])
            for group, chips in _groups(free, size).items()
            if len(chips) in preferred
        ]
        return frozenset(min(served)[2]) if served else frozenset()

    return rule


def training(free: frozenset[int], count: int) -> frozenset[int]:
    """Atlas 800: inside one ring, or all of both."""
    if count == 8:
        return free if len(free) == 8 else frozenset()
    return one_group(4, RINGS_OF_FOUR)(free, count)


def modules(free: frozenset[int], count: int) -> frozenset[int]:
    """A3: one chip beside one in use; an even number as whole modules."""
    left = {chip: len(part) for part in _groups(free, 2).values() for chip in part}
    if count == 1:
        return _best(combinations(sorted(free), 1), lambda one: (left[one[0]], one))
    whole = sorted(chip for chip in free if left[chip] == 2)
    even = count % 2 == 0 and count <= len(whole)
    return frozenset(whole[:count]) if even else frozenset()


def box(free: frozenset[int], count: int, *, one_pod: bool) -> frozenset[int]:
    """Box16: up to eight in the tightest ring, an even number above over both."""
    rings = [[c for c in sorted(free) if c // 8 == ring] for ring in (0, 1)]
    if count <= 8:
        fit = [(len(ring), ring[:count]) for ring in rings if len(ring) >= count]
        return frozenset(min(fit)[1]) if fit else frozenset()
    left, right = rings
    if one_pod:
        left = [chip for chip in left if chip + 8 in free]
        right = [chip + 8 for chip in left]
    each = count // 2
    if count % 2 or min(len(left), len(right)) < each:
        return frozenset()
    return frozenset((*left[:each], *right[:each]))


def emptiest(size: int) -> Rule:
    """Chips of the groups with the fewest free ones first."""

    def rule(free: frozenset[int], count: int) -> frozenset[int]:
        parts = _groups(free, size)
        order = sorted(free, key=lambda chip: (len(parts[chip // size]), chip))
        return frozenset(order[:count]) if count <= len(free) else frozenset()

    return rule


def duo(free: frozenset[int], count: int) -> frozenset[int]:
    """300I Duo: two lie on one card where they can; else half-used cards first."""
    whole = [part for part in _groups(free, 2).values() if len(part) == 2]
    if count == 2 and whole:
        return frozenset(whole[0])
    return emptiest(2)(free, count)


def duo_distributed(free: frozenset[int], count: int) -> frozenset[int]:
    """300I Duo: whole cards; the odd chip on a card with one left where there is."""
    parts = _groups(free, 2)
    left = {chip: len(part) for part in parts.values() for chip in part}

    def is_legal(chosen: Chosen) -> bool:
        return sum(len(part) == 1 for part in _groups(chosen, 2).values()) == count % 2

    def key(chosen: Chosen) -> tuple[object, ...]:
        own = _groups(chosen, 2)
        single = [part[0] for part in own.values() if len(part) == 1]
        cards = [chip for part in own.values() if len(part) == 2 for chip in part]
        return [left[chip] for chip in single], cards, single

    return _best(filter(is_legal, combinations(sorted(free), count)), key)


def meshes(free: frozenset[int], count: int) -> frozenset[int]:
    """4P mesh: whole meshes, then the tightest for the rest, else few of them.

    A mesh of four serves one to four chips, so one with 1, 2 or 3 left is a fragment
    of as many counts as it lacks chips.
    """
    parts = _groups(free, 4)
    whole = [chips for chips in parts.values() if len(chips) == 4][: count // 4]
    taken = [chip for chips in whole for chip in chips]
    rest, others = count - len(taken), sorted(free - set(taken))
    fit = [
        (len(chips), chips)
        for chips in _groups(others, 4).values()
        if len(chips) >= rest
    ]
    if len(whole) == count // 4 and rest == 0:
        return frozenset(taken)
    if len(whole) == count // 4 and fit:
        return frozenset((*taken, *min(fit)[1][:rest]))
    if count < 4 or count % 4 == 0 or rest > len(others):
        return frozenset()

    def key(chosen: Chosen) -> tuple[object, ...]:
        left = _groups(set(others) - set(chosen), 4).values()
        loss = sum(4 - len(part) for part in left)
        return len(_groups(chosen, 4)), loss, chosen

    return _best(combinations(others, rest), key) | frozenset(taken)


#: "the optimal choice is the remaining one chip in the same HCCS ring, and the less
#: optimal choices are three chips, two chips, and then four chips" and so on
RINGS_OF_FOUR = {1: [1, 3, 2, 4], 2: [2, 4, 3], 4: [4]}
CARDS_OF_FOUR = {1: [1, 3, 2, 4], 2: [2, 3, 4], 3: [3, 4], 4: [4]}

#: {key of a row: (its rule, the legal counts)}
RULES: dict[str, tuple[Rule, set[int]]] = {
    "atlas-800-training": (training, {1, 2, 4, 8}),
    "atlas-800-training-half": (one_group(4, RINGS_OF_FOUR), {1, 2, 4}),
    "a300t": (flat, set(range(1, 9))),
    "atlas-a2-8": (flat, set(range(1, 9))),
    "atlas-850-8": (flat, set(range(1, 9))),
    "atlas-850-8-superpod": (flat, set(range(1, 9))),
    "atlas-a2-box16": (
        lambda free, count: box(free, count, one_pod=True),
        {*range(1, 9), 10, 12, 14, 16},
    ),
    "atlas-a3-8": (modules, {1, 2, 4, 6, 8}),
    "atlas-a3-8-superpod": (modules, {1, 2, 4, 6, 8}),
    "atlas-a3-16": (modules, {1, *range(2, 17, 2)}),
    "atlas-a3-16-superpod": (modules, {1, *range(2, 17, 2)}),
    "mesh-8": (meshes, set(range(1, 9))),
    "mesh-16": (meshes, set(range(1, 17))),
    "flat-2": (flat, {1, 2}),
    "flat-8": (flat, set(range(1, 9))),
    "flat-16": (flat, set(range(1, 17))),
    "atlas-300i-a2": (flat, set(range(1, 9))),
    "atlas-300i-card": (one_group(4, CARDS_OF_FOUR), {1, 2, 3, 4}),
    "atlas-300i-chip": (emptiest(4), set(range(1, 65))),
    "atlas-300i-duo-card": (one_group(2, {1: [1, 2], 2: [2]}), {1, 2}),
    "atlas-300i-duo-chip": (duo, set(range(1, 17))),
    "atlas-300i-duo-distributed": (duo_distributed, set(range(1, 17))),
    "atlas-310p": (flat, set(range(1, 65))),
}
