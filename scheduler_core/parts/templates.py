"""Table of the templates by which a chip is cut into parts, a row for each chip.

A template is a fixed cut. Its name says what it takes: `vir10_3c_16g_nm` has 10 AI
cores, 3 AI CPUs and 16 GB, and no media unit (`nm` or `ndvpp`; `m` or `dvpp` are all).
Where a name leaves AI CPUs out, there are as many as AI cores.

Sources:
    Template table of the Ascend host driver (vascend module, 2025); CCE, "NPU
    virtualization"; MindCluster ascend-for-volcano, its templates.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from scheduler_core.errors import SchedulerCoreError


class Amounts(NamedTuple):
    """What a chip has, or a part takes of it; numbers of units unless said."""

    cores: int
    #: in GB, as the name says; a chip's real memory is a little less
    memory: int
    ai_cpus: int
    vpc: int
    jpegd: int
    jpege: int
    venc: int
    vdec: int


class Dvpp(StrEnum):
    """Media units of a template; the values are those of the pod's label."""

    SHARE = "null"
    ALL = "yes"
    NONE = "no"


#: {end of a template's name: its media units, end of its kind}
_ENDINGS = {
    "": (Dvpp.SHARE, ""),
    "_m": (Dvpp.ALL, ".dvpp"),
    "_dvpp": (Dvpp.ALL, ".dvpp"),
    "_nm": (Dvpp.NONE, ".ndvpp"),
    "_ndvpp": (Dvpp.NONE, ".ndvpp"),
}
_NAME = re.compile(
    r"vir(?P<cores>[0-9]{2})(_(?P<cpus>[0-9])c)?(_(?P<memory>[0-9]+)g)?"
    r"(?P<ending>_n?dvpp|_n?m)?"
)


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """One cut of a chip; compared by identity."""

    name: str
    amounts: Amounts
    #: whether a pod can ask for it; the others are only known by name
    may_be_asked: bool = True

    @property
    def dvpp(self) -> Dvpp:
        """Media units that it has."""
        return _ENDINGS[self._named("ending")][0]

    @property
    def kind(self) -> str:
        """Kind of the virtual device in names and resources, as `2c.1cpu`."""
        cpus, memory = self._named("cpus"), self._named("memory")
        return (
            f"{self.amounts.cores}c"
            f"{f'.{cpus}cpu' if cpus else ''}{f'.{memory}g' if memory else ''}"
            f"{_ENDINGS[self._named('ending')][1]}"
        )

    def _named(self, group: str) -> str:
        match = _NAME.fullmatch(self.name)
        return (match[group] or "") if match else ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChipKind:
    """One row: a chip that can be cut; compared by identity."""

    #: name in messages and files; unique
    key: str
    totals: Amounts
    templates: tuple[Template, ...]
    #: number of vGroups; 0 for a chip without them
    vgroups: int = 0

    @property
    def asked(self) -> tuple[Template, ...]:
        """Templates that a pod can ask for."""
        return tuple(t for t in self.templates if t.may_be_asked)

    def template(self, name: str) -> Template:
        """Return the template with a name.

        Raises:
            UnknownTemplateError: This chip has no such template.
        """
        for template in self.templates:
            if template.name == name:
                return template
        raise UnknownTemplateError(self, name)


class UnknownTemplateError(SchedulerCoreError, ValueError):
    """Name of a template that a chip does not have.

    Attributes:
        chip: The chip's row.
        name: The name that was given.
    """

    def __init__(self, chip: ChipKind, name: str) -> None:
        names = ", ".join(template.name for template in chip.templates)
        super().__init__(
            f"template of {chip.key}: expected one of {names}, found {name[:64]!r}"
        )
        self.chip = chip
        self.name = name


def _of_310p(memory: int) -> tuple[Template, ...]:
    """Return the templates of a 310P, with so many GB for each AI core."""
    return (
        Template("vir01", Amounts(1, memory, 1, 1, 2, 1, 0, 1)),
        Template("vir02", Amounts(2, 2 * memory, 2, 3, 4, 2, 1, 3)),
        Template("vir02_1c", Amounts(2, 2 * memory, 1, 3, 4, 2, 0, 3)),
        Template("vir04", Amounts(4, 4 * memory, 4, 6, 8, 4, 2, 6)),
        Template("vir04_3c", Amounts(4, 4 * memory, 3, 6, 8, 4, 1, 6)),
        Template("vir04_3c_ndvpp", Amounts(4, 4 * memory, 3, 0, 0, 0, 0, 0)),
        Template("vir04_4c_dvpp", Amounts(4, 4 * memory, 4, 12, 16, 8, 3, 12)),
    )


#: of MindCluster's scheduler; the driver has no such template, so its media units are
#: not known
_VIR03 = Template("vir03_1c_8g", Amounts(3, 8, 1, 0, 0, 0, 0, 0), may_be_asked=False)
_OF_24_CORES = (
    Template("vir06_1c_16g", Amounts(6, 16, 1, 2, 7, 1, 0, 0)),
    Template("vir12_3c_32g", Amounts(12, 32, 3, 5, 14, 2, 0, 1)),
)
_OF_20_CORES = (
    Template("vir05_1c_16g", Amounts(5, 16, 1, 2, 6, 1, 0, 0)),
    Template("vir10_3c_32g", Amounts(10, 32, 3, 4, 12, 2, 0, 1)),
)
_OF_20_CORES_32_GB = (
    Template("vir05_1c_8g", Amounts(5, 8, 1, 2, 6, 1, 0, 0)),
    Template("vir10_3c_16g", Amounts(10, 16, 3, 4, 12, 2, 0, 1)),
    Template("vir10_3c_16g_nm", Amounts(10, 16, 3, 0, 0, 0, 0, 0)),
    Template("vir10_4c_16g_m", Amounts(10, 16, 4, 9, 24, 4, 0, 2)),
)
# Of 24 cores, some chips have 6 AI CPUs and others 7; no set of parts tells them apart.
_24_CORES = Amounts(24, 64, 6, 10, 28, 4, 0, 2)
_20_CORES = Amounts(20, 64, 7, 9, 24, 4, 0, 2)

#: every chip that can be cut; a chip's own totals come from its driver, these are for
#: planning before it was read
CHIPS: tuple[ChipKind, ...] = (
    ChipKind(
        key="310P",
        totals=Amounts(8, 24, 7, 12, 16, 8, 3, 12),
        templates=_of_310p(3),
        vgroups=4,
    ),
    ChipKind(
        key="310P-48",
        totals=Amounts(8, 48, 7, 12, 16, 8, 3, 12),
        templates=_of_310p(6),
        vgroups=4,
    ),
    ChipKind(
        key="910B1",
        totals=_24_CORES._replace(cores=25),
        templates=(_VIR03, *_OF_24_CORES),
    ),
    ChipKind(key="910B2", totals=_24_CORES, templates=(_VIR03, *_OF_24_CORES)),
    ChipKind(key="910B2C", totals=_24_CORES, templates=(_VIR03, *_OF_24_CORES)),
    ChipKind(key="910B3", totals=_20_CORES, templates=_OF_20_CORES),
    ChipKind(
        key="910B4",
        totals=_20_CORES._replace(memory=32),
        templates=_OF_20_CORES_32_GB,
    ),
    ChipKind(key="910B4-1", totals=_20_CORES, templates=_OF_20_CORES),
    ChipKind(key="A3-20", totals=_20_CORES, templates=_OF_20_CORES),
    ChipKind(key="A3-24", totals=_24_CORES, templates=_OF_24_CORES),
)


def is_template_name(text: str) -> bool:
    """Return whether a text is formed as the name of a template, of any chip."""
    return _NAME.fullmatch(text) is not None


def by_key(key: str) -> ChipKind | None:
    """Return the row with a key; None for a chip that cannot be cut."""
    return next((chip for chip in CHIPS if chip.key == key), None)
