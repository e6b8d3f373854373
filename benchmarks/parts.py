"""What a decision about a part of a chip costs, and how tightly parts are packed.

Servers of eight 310P in random states. The packer that ours is compared with may lay
all parts anew whenever one comes, which no cluster can do.
"""

import random  # noqa: TID251  # seeded: the same clusters in every run
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache, partial
from heapq import heappop, heappush

from benchmarks.pool import SIZES, frozen, names_of, timed
from benchmarks.table import Row, percentile
from scheduler_core.parts.index import PartIndex, PartNode, cuts_of
from scheduler_core.parts.request import Wish
from scheduler_core.parts.room import Part, Room, empty_room, join, room_of
from scheduler_core.parts.templates import ChipKind, Template, by_key

_CHIPS = 8
_SAMPLES = 5_000
#: of the comparison with the packer: chips, parts that come, and mean of those there
_FEW_CHIPS, _ARRIVALS = 8, 4_000
#: AI cores that are wanted at once over those that there are
_LOADS = (0.8, 1.0, 1.3)
_WISHES = (Wish(1), Wish(2), Wish(2, "high"), Wish(4), Wish(4, "high"))
_MEDIA = (Wish(4, dvpp="yes"), Wish(4, dvpp="no"))


def rows() -> list[Row]:
    """Measure, and say how it compares with the goals. Takes about two minutes."""
    kind = by_key("310P")
    assert kind is not None
    return [*_costs(kind), *(_regret(kind, load) for load in _LOADS)]


def _costs(kind: ChipKind) -> list[Row]:
    timings = {nodes: _measured(kind, nodes) for nodes in SIZES}
    found = []
    for number, (what, p50, p99) in enumerate(
        (("decision", 5, 20), ("refusal", 5, 20), ("index update", 15, None))
    ):
        medians = [percentile(samples[number], 0.5) for samples in timings.values()]
        tails = [percentile(samples[number], 0.99) for samples in timings.values()]
        ratio = max(medians) / min(medians)
        goal = f"p50 ≤ {p50} µs" + (f", p99 ≤ {p99} µs, within 1.3" if p99 else "")
        found.append(
            Row(
                figure=f"parts: {what}, worst of {', '.join(f'{n:,}' for n in SIZES)}",
                goal=goal,
                value=(
                    f"p50 {max(medians):.1f} µs, p99 {max(tails):.1f} µs, "
                    f"sizes within {ratio:.2f}"
                ),
                passed=max(medians) <= p50
                and (p99 is None or (max(tails) <= p99 and ratio <= 1.3)),
            )
        )
    return found


def _measured(kind: ChipKind, number: int) -> tuple[list[float], ...]:
    """Microseconds of decisions, refusals and updates among so many nodes."""
    chance = random.Random(number)  # noqa: S311  # no secret is made
    names = names_of(number)
    nodes = {name: _random_node(name, kind, chance) for name in names}
    index = PartIndex(nodes.values())
    decisions: list[float] = []
    refusals: list[float] = []
    updates: list[float] = []
    with frozen():
        for sample in range(-1_000, _SAMPLES):
            wish = chance.choice((*_WISHES, *_MEDIA))
            _, decision = timed(partial(index.best, wish))
            _, refusal = timed(partial(index.refusals, wish))
            node = _changed(nodes[chance.choice(names)], chance)
            nodes[node.name] = node
            _, update = timed(partial(index.put, node))
            if sample >= 0:
                decisions.append(decision)
                refusals.append(refusal)
                updates.append(update)
    return decisions, refusals, updates


def _random_node(name: str, kind: ChipKind, chance: random.Random) -> PartNode:
    return PartNode(
        name, kind, tuple((at, _random_room(kind, chance)) for at in range(_CHIPS))
    )


def _changed(node: PartNode, chance: random.Random) -> PartNode:
    """The node with parts more or less on one of its chips."""
    chips = list(node.chips)
    at = chance.randrange(len(chips))
    chips[at] = (at, _random_room(node.kind, chance))
    return node._replace(chips=tuple(chips))


def _random_room(kind: ChipKind, chance: random.Random) -> Room:
    room = empty_room(kind)
    for _ in range(chance.randrange(6)):
        room = join(kind, room, chance.choice(kind.asked)) or room
    return room


# -- against an optimal packer --------------------------------------------------------


def _regret(kind: ChipKind, load: float) -> Row:
    """The share of all AI cores that ours has in use, beside that of the packer."""
    ours = _used(kind, load, _Ours(kind))
    packer = _used(kind, load, _Packer(kind))
    return Row(
        figure=f"parts: AI cores in use beside an optimal packer, load {load}",
        goal="at most 3 % of all fewer",
        value=(
            f"{100 * (packer - ours):.1f} % fewer: {100 * ours:.1f} of "
            f"{100 * packer:.1f} % ({_ARRIVALS:,} parts, {_FEW_CHIPS} chips)"
        ),
        passed=packer - ours <= 0.03,
    )


class _Ours:
    """One node, of which parts are given as they come."""

    def __init__(self, kind: ChipKind) -> None:
        self._kind = kind
        self._parts: dict[int, list[tuple[int, Part]]] = {
            chip: [] for chip in range(_FEW_CHIPS)
        }
        self._index = PartIndex()
        self._put()

    def add(self, number: int, wish: Wish) -> Template | None:
        """Place a part; return what it got, or None."""
        found = self._index.best(wish)
        if found is None:
            return None
        part = Part(found.template, self._group(found.chip, found.template))
        self._parts[found.chip].append((number, part))
        self._put()
        return found.template

    def end(self, number: int) -> None:
        """End a part."""
        for parts in self._parts.values():
            parts[:] = [part for part in parts if part[0] != number]
        self._put()

    def _group(self, chip: int, template: Template) -> int | None:
        """The vGroup where the driver puts a part of 1 AI core: a half one first."""
        if template.amounts.cores > 1:
            return None
        used = Counter(part.group for _, part in self._parts[chip])
        return min(range(self._kind.vgroups), key=lambda g: (used[g] != 1, used[g], g))

    def _put(self) -> None:
        rooms = tuple(
            (chip, room_of(self._kind, (part for _, part in parts)))
            for chip, parts in self._parts.items()
        )
        self._index.put(PartNode("node", self._kind, rooms))


class _Packer:
    """The same chips, whose parts are laid anew whenever one comes."""

    def __init__(self, kind: ChipKind) -> None:
        self._kind = kind
        self._parts: dict[int, Template] = {}

    def add(self, number: int, wish: Wish) -> Template | None:
        """Place a part if all can be laid anew with it; return what it got."""
        cut = cuts_of(wish).cuts[self._kind.key]
        for template in filter(None, (cut.template, cut.downgrade)):
            load = _counts(self._kind, (*self._parts.values(), template))
            if _can_lie(self._kind, load, _FEW_CHIPS):
                self._parts[number] = template
                return template
        return None

    def end(self, number: int) -> None:
        """End a part."""
        self._parts.pop(number, None)


def _used(kind: ChipKind, load: float, chips: _Ours | _Packer) -> float:
    """Share of the AI cores that parts have, over time; the same parts come to each."""
    chance = random.Random(7)  # noqa: S311  # no secret is made
    mean_cores = sum(wish.cores for wish in _WISHES) / len(_WISHES)
    pause = mean_cores / (load * _FEW_CHIPS * kind.totals.cores)
    ends: list[tuple[float, int]] = []
    now_s = placed = 0.0
    for number in range(_ARRIVALS):
        now_s += chance.expovariate(1 / pause)
        wish, lasts_s = chance.choice(_WISHES), chance.expovariate(1)
        while ends and ends[0][0] <= now_s:
            chips.end(heappop(ends)[1])
        if chips.add(number, wish) is not None:
            placed += wish.cores * lasts_s
            heappush(ends, (now_s + lasts_s, number))
    return placed / (now_s * _FEW_CHIPS * kind.totals.cores)


#: number of parts of each template, in the order of the chip's row
_Load = tuple[int, ...]


def _counts(kind: ChipKind, parts: Iterable[Template]) -> _Load:
    tally = Counter(parts)
    return tuple(tally[template] for template in kind.templates)


@lru_cache(maxsize=1 << 20)
def _can_lie(kind: ChipKind, load: _Load, chips: int) -> bool:
    """Whether parts can lie on so many chips: each takes one of its fullest sets."""
    if not any(load):
        return True
    if not chips:
        return False
    taken = {tuple(map(min, load, legal)) for legal in _legal_loads(kind)}
    return any(
        _can_lie(kind, tuple(map(int.__sub__, load, some)), chips - 1)
        for some in sorted(taken, reverse=True)
        if any(some) and not any(_is_within(some, other) for other in taken)
    )


def _is_within(some: _Load, other: _Load) -> bool:
    return some != other and all(map(int.__le__, some, other))


@cache
def _legal_loads(kind: ChipKind) -> frozenset[_Load]:
    """Every number of parts of each template that can lie on one chip."""
    found: set[_Load] = set()
    waiting: list[tuple[_Load, Room]] = [((0,) * len(kind.templates), empty_room(kind))]
    while waiting:
        load, room = waiting.pop()
        if load in found:
            continue
        found.add(load)
        for at, template in enumerate(kind.templates):
            after = join(kind, room, template)
            if after is not None:
                more = (*load[:at], load[at] + 1, *load[at + 1 :])
                waiting.append((more, after))
    return frozenset(found)
