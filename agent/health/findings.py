"""Facts about faults that do not come from the driver, such as raised levels.

`agent.monitor` creates them, `agent.report` and `agent.status` show them.
"""

from dataclasses import dataclass, field

from agent.health.conditions import Transition
from scheduler_core.wire.faults import SwitchInfo, UpgradeReason

#: Highest number of remembered changes of chips.
MOST_CHANGES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparatedNames:
    """Names of chips out of service, as text for the key `ManuallySeparateNPU`.

    The key is in the node's ConfigMap. A chip that is out of service because it is
    named there is called separated.
    """

    text: str = ""
    #: The text under the key when `text` was computed; None before any. If the key
    #: has another text by now, a person wrote it, and `text` is not written.
    read: str | None = field(default=None, compare=False)
    #: Names of the separated chips of one product line.
    names: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Facts for the node report that do not come from a reading of the driver.

    They are separated chips, raised levels of faults, and faults of switches.
    """

    separated: SeparatedNames = field(default_factory=SeparatedNames)
    upgrades: tuple[UpgradeReason, ...] = ()
    switch: SwitchInfo = field(default_factory=SwitchInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of one chip's condition, with the time at which it happened."""

    #: Unit: Unix milliseconds.
    at_ms: int
    transition: Transition
