"""Facts about faulty chips that the agent publishes.

`agent.monitor` creates them, `agent.report` and `agent.status` show them.
"""

from dataclasses import dataclass, field

from agent.health.conditions import Transition
from scheduler_core.wire.faults import UpgradeReason

#: Highest number of remembered changes of chips.
MOST_CHANGES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparatedNames:
    """Text that names the separated chips, for the key `ManuallySeparateNPU`.

    The key belongs to the ConfigMap `mindx-dl-deviceinfo-<node>`. A separated chip is
    one that a person or a rule has taken out of service.
    """

    text: str = ""
    #: The text under the key when `text` was computed; None before any. If the key
    #: has another text by now, a person wrote it, and `text` is not written.
    read: str | None = field(default=None, compare=False)
    #: Names of the separated chips of one product line.
    names: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Separated chips and raised fault levels, for the node report."""

    separated: SeparatedNames = field(default_factory=SeparatedNames)
    upgrades: tuple[UpgradeReason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of one chip's condition, with the time at which it happened."""

    #: Unit: Unix milliseconds.
    at_ms: int
    transition: Transition
