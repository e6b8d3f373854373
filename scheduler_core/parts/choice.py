"""Order of the chips from which a part may be cut; `index` finds the first of them.

The template that the pod asks for comes before its downgrade, over all nodes. Then the
tightest chip: fewest AI cores left after it, then fewest AI CPUs. So a chip that is
already cut comes before a whole one. Of chips that are equal, a part of 1 AI core takes
one with a hole, which nothing else can use. Then the name of the node, and the chip's
id.

Source:
    Node Scoring, "Common Node Selection Principle": fewer fragments.
"""

from functools import lru_cache
from typing import NamedTuple

from scheduler_core.parts.room import Room, join
from scheduler_core.parts.templates import ChipKind, Template


class Fit(NamedTuple):
    """How well a chip takes a part; the smaller, the better."""

    is_downgraded: bool
    cores_left: int
    ai_cpus_left: int
    opens_vgroup: bool


class PartChoice(NamedTuple):
    """Node and chip of a part."""

    node: str
    chip: int
    template: Template


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
