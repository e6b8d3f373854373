"""Choice of the chip from which a part is cut.

The template that the pod asks for comes before its downgrade, over all nodes. Then the
tightest chip: fewest AI cores left after it, then fewest AI CPUs. So a chip that is
already cut comes before a whole one. Of chips that are equal, a part of 1 AI core takes
one with a hole, which nothing else can use. Then the name of the node, and the chip's
id.

Source:
    Node Scoring, "Common Node Selection Principle": fewer fragments.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from scheduler_core.parts.request import Cut
from scheduler_core.parts.room import Room, join
from scheduler_core.parts.templates import ChipKind, Template


class Fit(NamedTuple):
    """How well a chip takes a part; the smaller, the better."""

    is_downgraded: bool
    cores_left: int
    ai_cpus_left: int
    opens_vgroup: bool


class ChipFit(NamedTuple):
    """Best chip of one node, with how well it takes the part."""

    fit: Fit
    chip: int
    template: Template


class PartChoice(NamedTuple):
    """Node and chip of a part."""

    node: str
    chip: int
    template: Template


def best_chip(
    kind: ChipKind, rooms: Iterable[tuple[int, Room]], cut: Cut
) -> ChipFit | None:
    """Return the chip of one node from which a part is cut; None if there is none.

    Args:
        kind: Row of the node's chips.
        rooms: (chip's id, what is left of it) of chips that may be cut; any order.
        cut: What the pod gets.
    """
    templates = [cut.template, *([cut.downgrade] if cut.downgrade else ())]
    fits = (
        ChipFit(fit._replace(is_downgraded=bool(index)), chip, template)
        for chip, room in rooms
        for index, template in enumerate(templates)
        if (fit := fit_of(kind, room, template)) is not None
    )
    return min(fits, key=lambda found: found[:2], default=None)


def choose(
    nodes: Mapping[str, tuple[ChipKind, Sequence[tuple[int, Room]]]],
    cuts: Mapping[str, Cut],
) -> PartChoice | None:
    """Return node and chip of a part; None if no chip takes it.

    Args:
        nodes: {node: row of its chips, rooms of those that may be cut}.
        cuts: {key of a row: what the pod gets there}; rows without one give nothing.
    """
    fits = (
        (found.fit, name, found)
        for name, (kind, rooms) in nodes.items()
        if (cut := cuts.get(kind.key)) and (found := best_chip(kind, rooms, cut))
    )
    best = min(fits, key=lambda entry: entry[:2], default=None)
    return best and PartChoice(best[1], best[2].chip, best[2].template)


@lru_cache(maxsize=8192)
def fit_of(kind: ChipKind, room: Room, template: Template) -> Fit | None:
    """Return how well a chip takes a part, as no downgrade; None if it does not."""
    after = join(kind, room, template)
    if after is None:
        return None
    left = after.left
    return Fit(
        is_downgraded=False,
        cores_left=left.cores,
        ai_cpus_left=left.ai_cpus,
        opens_vgroup=after.groups < room.groups,
    )
