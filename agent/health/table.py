"""Which level a fault code has, by the cluster's lists and else by its severity."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.devices.reading import UNSAID, ChipFault, Level, worst
from agent.health import codes

#: Severities that leave a chip in service: a warning, and a minor fault.
_MILD = (0, 1)
#: Of a network fault that no list names.
_NETWORK_UNSAID = Level.PRE_SEPARATE
#: A network is not restarted: these levels count for nothing there.
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
    """Levels of fault codes. Keys are as `codes.canonical` has them."""

    chip: Mapping[str, Level]
    #: Of codes that stand in a list for networks; these count before `chip`.
    network: Mapping[str, Level] = field(default_factory=dict)
    #: {key: how a list spells it} where that is another text.
    spelling: Mapping[str, str] = field(default_factory=dict)

    def is_network(self, fault: ChipFault) -> bool:
        """Tell whether a fault is of the network: by itself, its code, or a list."""
        key = codes.canonical(fault.code)
        return fault.network or key in codes.NETWORK or key in self.network

    def level(self, fault: ChipFault) -> Level:
        """Return the level of a fault; one that says its own keeps it.

        Each code is looked at by itself: one that is known never hides another that
        is not.

        Source:
            `pkg/common/fault_code.go`: severity decides for codes in no list.
        """
        if fault.level is not None:
            return fault.level
        key = codes.canonical(fault.code)
        if self.is_network(fault):
            found = self.network.get(key) or self.chip.get(key, _NETWORK_UNSAID)
            return Level.NOT_HANDLED if found in _RESTARTS else found
        if key in self.chip:
            return self.chip[key]
        return Level.NOT_HANDLED if fault.severity in _MILD else UNSAID

    def spelled(self, code: str) -> str:
        """Return a code as the lists spell it, with their leading zeros."""
        return self.spelling.get(codes.canonical(code), code)


def table(
    chip: Mapping[Level, Iterable[str]],
    network: Mapping[Level, Iterable[str]] = MappingProxyType({}),
) -> Table:
    """Return the table of some lists; a code in two lists has the worse level."""
    spelled = [
        code.upper()
        for each in (chip, network)
        for found in each.values()
        for code in found
    ]
    return Table(
        chip=_by_code(chip),
        network=_by_code(network),
        spelling=MappingProxyType(
            {
                codes.canonical(code): code
                for code in spelled
                if codes.canonical(code) != code
            }
        ),
    )


def _by_code(lists: Mapping[Level, Iterable[str]]) -> Mapping[str, Level]:
    found: dict[str, Level] = {}
    for level, listed in lists.items():
        for code in listed:
            key = codes.canonical(code)
            found[key] = worst((level, found.get(key, Level.NORMAL)))
    return MappingProxyType(found)


#: What holds when the cluster says nothing.
BUILT_IN = table(codes.listed())
