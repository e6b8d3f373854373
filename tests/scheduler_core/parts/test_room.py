"""Each state of each chip with each template, against sums made in the plainest way."""

from collections.abc import Hashable

import pytest

from scheduler_core.parts.room import Part, Room, empty_room, join, room_of
from scheduler_core.parts.templates import CHIPS, ChipKind
from tests.scheduler_core.parts.chips import State, after, lies, states

each_chip = pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.key)

#: {chip: sets of parts, states with vGroups, sets that take nothing more, classes of
#: chips that take the same for ever after: without holes, with, by free AI cores too}
FIGURES = {
    "310P": (96, 114, 37, 16, 22, 26),
    "310P-48": (96, 114, 37, 16, 22, 26),
    "910B4": (16, 16, 7, 7, 7, 7),
}
_OTHERS = (9, 9, 3, 5, 5, 5)


@each_chip
def test_a_template_joins_where_the_sums_and_the_vgroups_allow_it(
    chip: ChipKind,
) -> None:
    wrong = [
        (state, template.name)
        for state in states(chip)
        for template in chip.templates
        if (join(chip, room_of(chip, state), template) is not None)
        != (after(chip, state, template) is not None)
    ]

    assert wrong == []


@each_chip
def test_a_part_more_leaves_what_the_larger_set_leaves(chip: ChipKind) -> None:
    wrong = [
        (state, template.name)
        for state in states(chip)
        for template in chip.asked
        if (more := after(chip, state, template))
        and join(chip, room_of(chip, state), template) != room_of(chip, more)
    ]

    assert wrong == []


@each_chip
def test_only_a_chip_without_parts_can_be_given_whole(chip: ChipKind) -> None:
    whole = [s for s in states(chip) if room_of(chip, s) == empty_room(chip)]

    assert whole == [()]


@each_chip
def test_there_are_as_many_states_and_classes_as_the_tables_of_the_driver_give(
    chip: ChipKind,
) -> None:
    found = states(chip)
    rooms = {state: room_of(chip, state) for state in found}
    tight = {_names(s) for s in found if not _has_hole(s) and not _takes(chip, s)}
    figures = (
        len({_names(state) for state in found}),
        len(found),
        len(tight),
        len({_later(chip, rooms[s]) for s in found if rooms[s].holes <= 1}),
        len({_later(chip, room) for room in rooms.values()}),
        len({(_later(chip, room), room.left.cores) for room in rooms.values()}),
    )

    assert figures == FIGURES.get(chip.key, _OTHERS)


def test_parts_that_never_fitted_leave_room_for_nothing() -> None:
    chip = CHIPS[0]
    state = tuple(Part(chip.template("vir04")) for _ in range(3))
    room = room_of(chip, state)

    assert not lies(chip, state)
    assert [t.name for t in chip.templates if join(chip, room, t)] == []


def test_a_third_part_in_one_vgroup_is_counted_where_it_can_only_be() -> None:
    """A report may name it; it takes AI cores all the same."""
    chip = CHIPS[0]
    room = room_of(chip, [Part(chip.template("vir01"), 0)] * 3)

    assert (room.left.cores, room.groups, room.holes) == (5, 2, 1)


def test_parts_of_one_core_that_name_no_vgroup_share_one() -> None:
    chip = CHIPS[0]
    small = chip.template("vir01")
    named = [Part(small, 0), Part(small, 0), Part(small, 1)]

    assert room_of(chip, [Part(small)] * 3) == room_of(chip, named)
    # the vGroups that are named count first, in any order of the parts
    assert room_of(chip, [Part(small), Part(small, 3)]) == room_of(chip, named[:2])


def _names(state: State) -> tuple[str, ...]:
    return tuple(part.template.name for part in state)


def _has_hole(state: State) -> bool:
    """Whether more than one vGroup has half of its parts: parts have gone from it."""
    groups = [part.group for part in state if part.group is not None]
    return sum(groups.count(group) == 1 for group in set(groups)) > 1


def _takes(chip: ChipKind, state: State) -> bool:
    return any(after(chip, state, template) for template in chip.asked)


def _later(chip: ChipKind, room: Room) -> Hashable:
    """All that may be cut from here on, one after the other."""
    return frozenset(
        (template.name, _later(chip, more))
        for template in chip.asked
        if (more := join(chip, room, template))
    )
