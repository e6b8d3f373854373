"""Find the level of a chip's fault: by its code if that is listed, else by a default.

The lists of codes are built in, or in the fault ConfigMap `mindx-dl-fault-config`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.devices.reading import UNKNOWN_LEVEL, ChipFault, Level, worst
from agent.health import codes

#: Severities that leave a chip in service: a warning, and a minor fault.
_MILD = (0, 1)
#: Level of a network fault that no list names.
_NETWORK_DEFAULT = Level.PRE_SEPARATE
#: A network is not restarted: there these levels count as NotHandleFault.
_RESTARTS = frozenset(
    {
        Level.RESTART_REQUEST,
        Level.RESTART_BUSINESS,
        Level.FREE_RESTART,
        Level.RESTART,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Levels of fault codes of chips, from the fault ConfigMap or from built-in lists.

    The fault ConfigMap is `mindx-dl-fault-config`. The keys of `chip`, `network` and
    `spelling` are fault codes in upper case without leading zeros.
    """

    chip: Mapping[str, Level]
    #: Levels of codes in a network list; these count before `chip`.
    network: Mapping[str, Level] = field(default_factory=dict)
    #: {key: spelling in a list}, where that differs.
    spelling: Mapping[str, str] = field(default_factory=dict)

    def is_network(self, fault: ChipFault) -> bool:
        """Whether a fault concerns the chip's parameter-plane network, not the chip.

        It does if the driver says so (`fault.network`). It also does if its code is in
        `codes.NETWORK` or in this table's `network`.
        """
        key = codes.canonical(fault.code)
        return fault.network or key in codes.NETWORK or key in self.network

    def level(self, fault: ChipFault) -> Level:
        """Return the level of one fault.

        A level that the driver gave the fault is returned as it is. Otherwise, the
        level of the fault's code in this table is returned. Exception: for a network
        fault, NotHandleFault is returned instead of a restart level (like RestartNPU).
        A network cannot be restarted. If the table lacks the code, the default is:

            network fault                      PreSeparateNPU
            fault of the chip, severity 0, 1   NotHandleFault
            any other fault of the chip        SeparateNPU

        Source:
            `pkg/common/fault_code.go`: severity decides for codes in no list.
        """
        if fault.level is not None:
            return fault.level
        key = codes.canonical(fault.code)
        if self.is_network(fault):
            level = self.network.get(key) or self.chip.get(key, _NETWORK_DEFAULT)
            return Level.NOT_HANDLED if level in _RESTARTS else level
        if key in self.chip:
            return self.chip[key]
        return Level.NOT_HANDLED if fault.severity in _MILD else UNKNOWN_LEVEL

    def spelled(self, code: str) -> str:
        """Return a fault code with the leading zeros that the lists of this table have.

        A code that has no leading zeros there, or that is in none of the lists, is
        returned unchanged.
        """
        return self.spelling.get(codes.canonical(code), code)


def make_table(
    chip: Mapping[Level, Iterable[str]],
    network: Mapping[Level, Iterable[str]] = MappingProxyType({}),
) -> Table:
    """Return a table of fault levels from lists of the codes that have each level.

    If `chip` has a code at two levels, the worse level counts. The same holds for
    `network`.

    Args:
        chip: {level: its codes}.
        network: {level: its codes that concern the parameter-plane network}.
    """
    spellings = [
        code.upper()
        for lists in (chip, network)
        for codes_of_level in lists.values()
        for code in codes_of_level
    ]
    return Table(
        chip=_by_code(chip),
        network=_by_code(network),
        spelling=MappingProxyType(
            {
                codes.canonical(code): code
                for code in spellings
                if codes.canonical(code) != code
            }
        ),
    )


def _by_code(lists: Mapping[Level, Iterable[str]]) -> Mapping[str, Level]:
    level_by_code: dict[str, Level] = {}
    for level, codes_of_level in lists.items():
        for code in codes_of_level:
            key = codes.canonical(code)
            level_by_code[key] = worst((level, level_by_code.get(key, Level.NORMAL)))
    return MappingProxyType(level_by_code)


#: Table of a cluster without its own lists.
BUILT_IN = make_table(codes.codes_by_level())
