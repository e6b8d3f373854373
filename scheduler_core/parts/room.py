"""What is left on a chip that is cut, and which templates may join its parts.

A 310P gives each part a vGroup: at most four on a chip, of 2 AI cores or more, but two
parts of 1 AI core share one. When parts have gone, half of a vGroup may be left over: a
hole, into which a part of 1 AI core fits and nothing else. So the free AI cores of a
310P do not say what fits, and a part of 1 AI core is told with its vGroup.

Memory is counted and never judged: a chip has a little less than the nominal amounts of
its templates add up to, and takes them all the same. The driver has the last word.

Source:
    Huawei, "Virtual instance combinations" of the 310P; printed `npu-smi info -t
    info-vnpu` of a 910B3 with two `vir05_1c_16g`: 34 of 64 GB used.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from scheduler_core.parts.templates import Amounts, ChipKind, Template

#: AI cores of a vGroup that parts of 1 AI core share, and how many share it
_SHARED_CORES = 2


class Part(NamedTuple):
    """A part that lies on a chip."""

    template: Template
    #: its vGroup; None where the chip has none, or none that another part could share
    group: int | None = None


class Room(NamedTuple):
    """What parts leave free on one chip; a negative number is more than there was."""

    left: Amounts
    #: vGroups that no part has; 0 where the chip has none
    groups: int
    #: AI cores for these vGroups; where the chip has none, all that are left
    group_cores: int
    #: vGroups with one part of 1 AI core
    holes: int


@lru_cache(maxsize=64)
def empty_room(chip: ChipKind) -> Room:
    """Return the room of a chip without parts, the only one that can be given whole."""
    return Room(chip.totals, chip.vgroups, chip.totals.cores, 0)


def room_of(chip: ChipKind, parts: Iterable[Part]) -> Room:
    """Return what these parts leave on a chip.

    A part of 1 AI core that names no vGroup is taken to be where the driver puts the
    next one: in a hole, and where there is none in a vGroup of its own.
    """
    room = empty_room(chip)
    in_group: Counter[int] = Counter()
    later: list[Template] = []
    for template, group in parts:
        if not _shares(chip, template):
            room = _take(chip, room, template, holes=0)
        elif group is None:
            later.append(template)
        else:
            is_second = in_group[group] % _SHARED_CORES == 1
            room = _take(chip, room, template, holes=-1 if is_second else 1)
            in_group[group] += 1
    for template in later:
        room = _add(chip, room, template)
    return room


@lru_cache(maxsize=8192)
def join(chip: ChipKind, room: Room, template: Template) -> Room | None:
    """Return the room after one part more; None if it does not fit."""
    after = _add(chip, room, template)
    judged = (*after.left._replace(memory=0), after.groups, after.group_cores)
    return None if min(judged) < 0 else after


def _add(chip: ChipKind, room: Room, template: Template) -> Room:
    """Return the room after one part more, which the driver puts into a hole first."""
    if not _shares(chip, template):
        return _take(chip, room, template, holes=0)
    return _take(chip, room, template, holes=-1 if room.holes else 1)


def _take(chip: ChipKind, room: Room, template: Template, *, holes: int) -> Room:
    """Return the room after one part; it fills a hole (-1), opens one (1) or none."""
    cores = _SHARED_CORES if holes > 0 else 0 if holes else template.amounts.cores
    return Room(
        left=Amounts(
            *(
                have - need
                for have, need in zip(room.left, template.amounts, strict=True)
            )
        ),
        groups=room.groups - (holes >= 0) if chip.vgroups else 0,
        group_cores=room.group_cores - cores,
        holes=room.holes + holes,
    )


def _shares(chip: ChipKind, template: Template) -> bool:
    return chip.vgroups > 0 and template.amounts.cores == 1
