"""Facts about faults that a reading of the driver does not contain.

`agent.monitor` creates them, `agent.report` and `agent.status` show them.
"""

from dataclasses import dataclass, field

from agent.health.conditions import Transition
from scheduler_core.wire.faults import SwitchInfo, UpgradeReason

#: Highest number of remembered changes of chips.
MOST_CHANGES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparatedNames:
    """Names of separated chips, as text for `ManuallySeparateNPU` in the ConfigMap."""

    text: str = ""
    #: The text under the key when `text` was computed; None before any. If the key
    #: has another text by now, a person wrote it, and `text` is not written.
    read: str | None = field(default=None, compare=False)
    #: Names of the separated chips of one product line.
    names: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Facts for the node report that the reading lacks.

    They are separated chips, upgraded levels of faults, and faults of switches.
    """

    separated: SeparatedNames = field(default_factory=SeparatedNames)
    upgrades: tuple[UpgradeReason, ...] = ()
    switch: SwitchInfo = field(default_factory=SwitchInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Transition of one chip's condition, with its time."""

    #: Unit: Unix milliseconds.
    at_ms: int
    transition: Transition
