"""Facts about faults that a reading of the driver does not contain.

`monitor` makes them, `report` and `status` show them.
"""

from dataclasses import dataclass, field

from agent.health.conditions import Transition
from scheduler_core.wire.faults import SwitchInfo, UpgradeReason

#: Changes of chips that are remembered.
MOST_CHANGES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Separated:
    """What is to stand under `MANUAL_KEY`."""

    text: str = ""
    #: The text that was read when this was decided; None before any. Over another
    #: text, which somebody has written since, nothing is written.
    read: str | None = field(default=None, compare=False)
    #: The names of the chips of one product line that are to stand in it.
    names: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is known of faults beyond the reading."""

    separated: Separated = field(default_factory=Separated)
    upgrades: tuple[UpgradeReason, ...] = ()
    switch: SwitchInfo = field(default_factory=SwitchInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A chip came into another condition."""

    #: Unix milliseconds.
    at_ms: int
    transition: Transition
