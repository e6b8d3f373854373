"""What a pod that asks for AI cores gets: whole chips, or a part by a template.

The count and two labels of the pod name the template of the chip that is there. One
that the chip has not is an error, as is a label that changes nothing: it would promise
what the pod does not get.

Source:
    MindCluster, "Dynamic vNPU scheduling for inference", tables 3 and 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.parts.templates import ChipKind, Dvpp, Template

#: resource of AI cores, of which a pod gets a part or whole chips
NPU_CORE = "huawei.com/npu-core"
#: label of a pod: `high` for more AI CPUs; all other values are `low`
LEVEL = "vnpu-level"
#: label of a pod: media units, as the values of `Dvpp`
DVPP = "vnpu-dvpp"

_LOW, _HIGH = "low", "high"


class PartRequestError(SchedulerCoreError, ValueError):
    """Request that a chip has no template for; says what may be asked instead."""


class Wish(NamedTuple):
    """AI cores and labels of a pod, as they stand on it."""

    cores: int
    level: str = _LOW
    dvpp: str = Dvpp.SHARE.value


@dataclass(frozen=True, slots=True)
class WholeChips:
    """Whole chips of one kind."""

    count: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of one chip."""

    template: Template
    #: what the pod gets where no chip takes `template`; None for nothing
    downgrade: Template | None = None


def wish_of(cores: int, labels: Mapping[str, str]) -> Wish:
    """Return what a pod wishes by its AI cores and its labels."""
    level = _HIGH if labels.get(LEVEL) == _HIGH else _LOW
    return Wish(cores, level, labels.get(DVPP, Dvpp.SHARE.value))


def templates_for(chip: ChipKind, wish: Wish) -> tuple[Template, ...]:
    """Return the templates that a wish means on a chip, the one for it first.

    The second is what the pod gets where no chip takes the first. Templates that
    cannot be asked for are named as well.
    """
    alike = sorted(
        (
            template
            for template in chip.templates
            if template.amounts.cores == wish.cores and template.dvpp == wish.dvpp
        ),
        key=lambda template: template.amounts.ai_cpus,
        reverse=wish.level == _HIGH,
    )
    return tuple(alike if wish.level == _HIGH else alike[:1])


@lru_cache(maxsize=1024)
def resolve(chip: ChipKind, wish: Wish) -> WholeChips | Cut:
    """Return what a pod gets of chips of one kind.

    Raises:
        PartRequestError: No template has this count with these labels; the message
            says what may be asked of this chip.
    """
    if wish.dvpp not in tuple(Dvpp):
        raise PartRequestError(
            f"err dvpp value:{wish.dvpp[:64]}: label {DVPP} is one of {', '.join(Dvpp)}"
        )
    count, rest = divmod(wish.cores, chip.totals.cores)
    if count and not rest:
        return WholeChips(count)
    counts = legal_counts(chip)
    if wish.cores not in counts:
        raise PartRequestError(
            f"{wish.cores} AI cores cannot be cut from {chip.key}: ask for "
            f"{', '.join(map(str, counts))} or multiples of {chip.totals.cores}"
        )
    found = [t for t in templates_for(chip, wish) if t.may_be_asked]
    if not found or (wish.level == _HIGH and not _has_levels(chip, wish.cores)):
        raise PartRequestError(
            f"no {wish.cores} AI cores of {chip.key} differ by "
            f"{LEVEL}={wish.level}, {DVPP}={wish.dvpp}: remove these labels"
        )
    return Cut(*found[:2])


def legal_counts(chip: ChipKind) -> tuple[int, ...]:
    """Return the numbers of AI cores of which a part can be asked, ascending."""
    return tuple(sorted({template.amounts.cores for template in chip.asked}))


def _has_levels(chip: ChipKind, cores: int) -> bool:
    """Return whether the level may be set: it is ignored where labels can matter.

    On a chip with templates that differ in AI CPUs alone it may be set for each count,
    on the others for a count with several templates.
    """
    counts = [template.amounts.cores for template in chip.asked]
    alike = {(template.amounts.cores, template.dvpp) for template in chip.asked}
    return counts.count(cores) > 1 or len(alike) < len(counts)
