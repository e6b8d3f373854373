"""Index of all nodes whose chips can be cut, which finds the best chip for a part.

What is left of a chip is one of a few rooms (at most 114 for a kind of chips). Nodes
are sorted by name for each room that a chip of theirs has. So a decision looks at the
rooms that there are, the tightest first, and takes the first name of the best one. The
index is mutable; one thread owns and updates it.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from scheduler_core.index.sorted_names import SortedNames
from scheduler_core.parts.choice import Fit, PartChoice, fit_of
from scheduler_core.parts.request import (
    Cut,
    PartRequestError,
    WholeChips,
    Wish,
    resolve,
)
from scheduler_core.parts.room import Room
from scheduler_core.parts.templates import CHIPS, ChipKind, Template

#: refusal of a node none of whose chips may be cut
NO_CHIP = "no chip can be cut"


class Lack(IntEnum):
    """What a chip lacks for a part; of several chips, the last of these counts."""

    TEMPLATE = 0
    CHIP = 1
    CORES = 2
    AI_CPUS = 3
    MEDIA = 4
    VGROUP = 5
    NOTHING = 6


class PartNode(NamedTuple):
    """One node whose chips can be cut."""

    name: str
    kind: ChipKind
    #: (chip's id, what is left of it) of each chip that may be cut, by id
    chips: tuple[tuple[int, Room], ...]


class _Found(NamedTuple):
    """How well a part fits best, by which template, and in which rooms."""

    fit: Fit
    template: Template
    rooms: tuple[Room, ...]


class _First(NamedTuple):
    """First node with the best fit of a part."""

    fit: Fit
    name: str
    found: _Found


class _Entry(NamedTuple):
    """A node of the index, with what follows from it."""

    node: PartNode
    #: rooms of its chips
    rooms: frozenset[Room]
    #: what it lacks for each template of its kind, in their order
    lacks: tuple[Lack, ...]


class PartIndex:
    """Mutable index of the nodes whose chips can be cut.

    Cost:
        `put` and `drop`: a step for each room of the node that has changed. `best`
        over all nodes: a step for each kind of chips.
    """

    def __init__(self, nodes: Iterable[PartNode] = ()) -> None:
        """Create an index of nodes; of two with one name the later counts."""
        self._entries: dict[str, _Entry] = {}
        self._kinds: dict[str, _OfKind] = {}
        for node in nodes:
            self.put(node)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._entries)

    def put(self, node: PartNode) -> None:
        """Add a node, or replace it."""
        name, kind = node.name, node.kind
        old = self._entries.get(name)
        if old is not None and old.node.kind is not kind:
            self.drop(name)
            old = None
        rooms = frozenset([room for _, room in node.chips])
        entry = _Entry(node, rooms, _lacks(kind, rooms))
        self._entries[name] = entry
        of_kind = self._kinds.get(kind.key)
        if of_kind is None:
            of_kind = self._kinds[kind.key] = _OfKind(kind)
        of_kind.move(old, entry)

    def drop(self, name: str) -> None:
        """Remove a node; do nothing if there is none."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._kinds[entry.node.kind.key].move(entry, None)

    def best(self, wish: Wish, names: Iterable[str] | None = None) -> PartChoice | None:
        """Return node and chip of a part; None if no chip takes it.

        Args:
            wish: AI cores and labels of the pod.
            names: Candidate nodes, each once; None is all.
        """
        cuts = cuts_of(wish).cuts
        if names is None:
            firsts = self._firsts(cuts)
        else:
            firsts = self._firsts_among(cuts, names)
        if not firsts:
            return None
        _, name, found = firsts[0] if len(firsts) == 1 else min(firsts, key=_order_key)
        for chip, room in self._entries[name].node.chips:
            if room in found.rooms:
                return PartChoice(name, chip, found.template)
        raise LookupError(f"{name!r} has no chip with the room that it is listed for")

    def _firsts(self, cuts: Mapping[str, Cut]) -> list[_First]:
        """Return the best node of each kind of chips."""
        firsts = []
        for key, of_kind in self._kinds.items():
            cut = cuts.get(key)
            first = of_kind.first(cut) if cut is not None else None
            if first is not None:
                firsts.append(first)
        return firsts

    def _firsts_among(
        self, cuts: Mapping[str, Cut], names: Iterable[str]
    ) -> list[_First]:
        """Return those of some nodes that can take a part."""
        firsts = []
        for node, rooms, _ in self._among(names):
            cut = cuts.get(node.kind.key)
            found = _best_rooms(node.kind, rooms, cut) if cut is not None else None
            if found is not None:
                firsts.append(_First(found.fit, node.name, found))
        return firsts

    def refusals(
        self, wish: Wish, names: Iterable[str] | None = None
    ) -> Mapping[str, int]:
        """Return {why nodes take no such part: number of them}.

        Nodes that take it are left out. Where there is a downgrade, it is told what
        even that lacks.
        """
        cuts, problems = cuts_of(wish)
        lacking_of = (
            {key: of_kind.lacks(cuts.get(key)) for key, of_kind in self._kinds.items()}
            if names is None
            else self._lacks_among(cuts, names)
        )
        tally: dict[str, int] = {}
        for key, lacking in lacking_of.items():
            cut = cuts.get(key)
            for lack, number in lacking.items():
                if number and lack is not Lack.NOTHING:
                    text = problems[key] if cut is None else describe(lack, _least(cut))
                    tally[text] = tally.get(text, 0) + number
        return tally

    def _lacks_among(
        self, cuts: Mapping[str, Cut], names: Iterable[str]
    ) -> Mapping[str, Mapping[Lack, int]]:
        """Return {key of a kind: {what nodes lack: number of them}}."""
        found: dict[str, Counter[Lack]] = {key: Counter() for key in self._kinds}
        for node, _, lacks in self._among(names):
            kind, cut = node.kind, cuts.get(node.kind.key)
            lack = Lack.TEMPLATE
            if cut is not None:
                lack = lacks[kind.templates.index(_least(cut))]
            found[kind.key][lack] += 1
        return found

    def _among(self, names: Iterable[str]) -> Iterable[_Entry]:
        return filter(None, map(self._entries.get, names))


class Cuts(NamedTuple):
    """What a wish means on each kind of chips."""

    #: {key of a kind: the part}
    cuts: Mapping[str, Cut]
    #: {key of any other kind: why it gives no part}
    problems: Mapping[str, str]


@lru_cache(maxsize=256)
def cuts_of(wish: Wish) -> Cuts:
    """Return what a wish means on each kind of chips."""
    cuts, problems = {}, {}
    for kind in CHIPS:
        try:
            found = resolve(kind, wish)
        except PartRequestError as error:
            problems[kind.key] = str(error)
        else:
            if isinstance(found, WholeChips):
                problems[kind.key] = f"{wish.cores} AI cores are whole chips"
            else:
                cuts[kind.key] = found
    return Cuts(cuts, problems)


@lru_cache(maxsize=1024)
def describe(lack: Lack, template: Template) -> str:
    """Return why the chips of a node take no part, as a sentence without a node."""
    cores, cpus = template.amounts.cores, template.amounts.ai_cpus
    left = f"{cores} AI core{'s' if cores > 1 else ''} left"
    match lack:
        case Lack.CHIP:
            return NO_CHIP
        case Lack.CORES:
            return f"no chip has {left}"
        case Lack.VGROUP:
            return f"no chip with {left} has them in one vGroup"
        case Lack.AI_CPUS:
            word = f"{cpus} AI CPUs" if cpus > 1 else "an AI CPU"
            return f"no chip with {left} has {word}"
        case _:
            return f"no chip with {left} has the media units"


_order_key = itemgetter(0, 1)


class _OfKind:
    """Nodes of one kind of chips, by the rooms of their chips.

    Invariant: `_order[template]` has exactly the rooms with names that the template
    can join, by how well they take it, and `_best[template]` the first of these.
    """

    __slots__ = ("_best", "_lacks", "_names", "_nodes", "_order", "kind")

    def __init__(self, kind: ChipKind) -> None:
        self.kind = kind
        #: {room: nodes with such a chip}
        self._names: dict[Room, SortedNames] = {}
        #: {template: (fit, room) of each room with nodes that it can join, sorted}
        self._order: dict[Template, list[tuple[Fit, Room]]] = {
            template: [] for template in kind.templates
        }
        #: {template: its best fit, and the rooms with it}; without those that fit none
        self._best: dict[Template, _Found] = {}
        #: {template: {what nodes lack for it: number of nodes}}
        self._lacks: dict[Template, Counter[Lack]] = {
            template: Counter() for template in kind.templates
        }
        self._nodes = 0

    def move(self, old: _Entry | None, new: _Entry | None) -> None:
        """Let a node have other chips; None while it is not there."""
        self._nodes += (new is not None) - (old is not None)
        before = old.rooms if old is not None else frozenset[Room]()
        after = new.rooms if new is not None else frozenset[Room]()
        name = new.node.name if new is not None else old.node.name if old else ""
        for room in before - after:
            names = self._names[room]
            names.remove(name)
            if not names:
                self._vacate(room)
        for room in after - before:
            (self._names.get(room) or self._occupy(room)).add(name)
        had, has = old and old.lacks, new and new.lacks
        if had == has:
            return
        for at, tally in enumerate(self._lacks.values()):
            if had is not None:
                tally[had[at]] -= 1
            if has is not None:
                tally[has[at]] += 1

    def first(self, cut: Cut) -> _First | None:
        """Return the first node with the best fit of a part."""
        found = self._best.get(cut.template)
        if found is None and cut.downgrade is not None:
            found = self._best.get(cut.downgrade)
            if found is not None:
                found = found._replace(fit=found.fit._replace(is_downgraded=True))
        if found is None:
            return None
        names = [self._names[room].first() or "" for room in found.rooms]
        return _First(found.fit, min(names), found)

    def lacks(self, cut: Cut | None) -> Mapping[Lack, int]:
        """Return {what nodes lack for a part: number of nodes}."""
        if cut is None:
            return {Lack.TEMPLATE: self._nodes}
        return self._lacks[_least(cut)]

    def _occupy(self, room: Room) -> SortedNames:
        names = self._names[room] = SortedNames()
        for template, order in self._order.items():
            fit = fit_of(self.kind, room, template)
            if fit is not None:
                insort(order, (fit, room))
                self._find_best(template)
        return names

    def _vacate(self, room: Room) -> None:
        del self._names[room]
        for template, order in self._order.items():
            fit = fit_of(self.kind, room, template)
            if fit is not None:
                order.remove((fit, room))
                self._find_best(template)

    def _find_best(self, template: Template) -> None:
        order = self._order[template]
        if not order:
            del self._best[template]
            return
        best = order[0][0]
        alike = takewhile(lambda entry: entry[0] == best, order)
        rooms = tuple([room for _, room in alike])
        self._best[template] = _Found(best, template, rooms)


def _least(cut: Cut) -> Template:
    """Return the template of a part that demands least."""
    return cut.downgrade or cut.template


@lru_cache(maxsize=1 << 14)
def _best_rooms(kind: ChipKind, rooms: frozenset[Room], cut: Cut) -> _Found | None:
    """Return how well a part fits best on one node, and in which rooms."""
    for template in filter(None, (cut.template, cut.downgrade)):
        fits = {room: fit_of(kind, room, template) for room in rooms}
        fit = min(filter(None, fits.values()), default=None)
        if fit is not None:
            best = tuple([room for room in rooms if fits[room] == fit])
            if template is not cut.template:
                fit = fit._replace(is_downgraded=True)
            return _Found(fit, template, best)
    return None


def _lacks(kind: ChipKind, rooms: Iterable[Room]) -> tuple[Lack, ...]:
    """Return what a node lacks for each template of its chips, in their order.

    It is what that chip lacks which has the most of what a part needs.
    """
    of_rooms = [_lacks_of(kind, room) for room in rooms]
    return tuple(map(max, zip(*of_rooms, strict=True))) or (Lack.CHIP,) * len(
        kind.templates
    )


@lru_cache(maxsize=8192)
def _lacks_of(kind: ChipKind, room: Room) -> tuple[Lack, ...]:
    return tuple(_lack(kind, room, template) for template in kind.templates)


def _lack(kind: ChipKind, room: Room, template: Template) -> Lack:
    left, needs = room.left, template.amounts
    if left.cores < needs.cores:
        return Lack.CORES
    if left.ai_cpus < needs.ai_cpus:
        return Lack.AI_CPUS
    if any(have < need for have, need in zip(left[3:], needs[3:], strict=True)):
        return Lack.MEDIA
    is_taken = fit_of(kind, room, template) is not None
    return Lack.NOTHING if is_taken else Lack.VGROUP
