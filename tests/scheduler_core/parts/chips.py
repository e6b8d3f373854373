"""Every state of a chip that is cut, made from the table in the plainest way.

A state is the parts that lie there; a part of 1 AI core on a 310P is told with its
vGroup. States are what cuts and ends of parts make of an empty chip.
"""

from collections import Counter
from functools import cache

from scheduler_core.parts.room import Part
from scheduler_core.parts.templates import ChipKind, Template

State = tuple[Part, ...]

_MOST_SHARING = 2
_SHARED_CORES = 2


def lies(chip: ChipKind, parts: State) -> bool:
    """Whether these parts can lie on one chip, by sums and vGroups."""
    for column, total in enumerate(chip.totals):
        if column == chip.totals._fields.index("memory"):
            continue
        if sum(part.template.amounts[column] for part in parts) > total:
            return False
    if not chip.vgroups:
        return True
    shared = Counter(part.group for part in parts if part.template.amounts.cores == 1)
    alone = [part for part in parts if part.template.amounts.cores > 1]
    cores = sum(part.template.amounts.cores for part in alone)
    return (
        all(count <= _MOST_SHARING for count in shared.values())
        and len(shared) + len(alone) <= chip.vgroups
        and cores + _SHARED_CORES * len(shared) <= chip.totals.cores
    )


def after(chip: ChipKind, parts: State, template: Template) -> State | None:
    """The state with one part more, or None; a hole comes before a new vGroup."""
    shares = chip.vgroups and template.amounts.cores == 1
    groups = range(chip.vgroups) if shares else (None,)
    counts = Counter(part.group for part in parts)
    for group in sorted(groups, key=lambda group: -counts[group]):
        more = _ordered((*parts, Part(template, group)))
        if lies(chip, more):
            return more
    return None


@cache
def states(chip: ChipKind) -> tuple[State, ...]:
    """Every state, each once but for the numbers of vGroups."""
    found: dict[State, None] = {(): None}
    waiting: list[State] = [()]
    while waiting:
        parts = waiting.pop()
        following = [after(chip, parts, template) for template in chip.asked]
        following += [parts[:i] + parts[i + 1 :] for i in range(len(parts))]
        for state in following:
            if state is not None and (known := _ordered(state)) not in found:
                found[known] = None
                waiting.append(known)
    return tuple(found)


def _ordered(parts: State) -> State:
    """The same parts with vGroups numbered by how many share them."""
    counts = Counter(part.group for part in parts if part.group is not None)
    number = {group: i for i, (group, _) in enumerate(counts.most_common())}
    renamed = (
        Part(p.template, None if p.group is None else number[p.group]) for p in parts
    )
    return tuple(sorted(renamed, key=lambda p: (p.template.name, p.group or 0)))
