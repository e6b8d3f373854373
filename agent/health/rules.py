"""Rules that raise the level of a fault code that returns or stays.

`FREQUENCY` and `DURATION` are the built-in rules.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from agent.devices.reading import Level
from agent.health import codes
from agent.health.levels import BUILT_IN, Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequency:
    """Rule that gives a fault code another level when it returns too often.

    Too often means at least `times` times within `window_s`.
    """

    #: Unit: seconds.
    window_s: float
    times: int
    level: Level
    #: Time without the code after which the level ends; 0: never by itself.
    #: Unit: seconds.
    release_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """Rule that raises the level of a fault code that stays longer than `timeout_s`."""

    #: Unit: seconds.
    timeout_s: float
    #: The level ends once the code has been gone for longer. Unit: seconds.
    recover_s: float
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultConfig:
    """Levels of fault codes, and the rules that raise levels."""

    table: Table
    #: {canonical code: rule}
    frequency: Mapping[str, Frequency]
    duration: Mapping[str, Duration]


def index_by_code(rules: Iterable[tuple[Iterable[str], T]]) -> Mapping[str, T]:
    """Return {fault code: rule} from pairs of (fault codes, rule).

    A key is in upper case and has no leading zeros. If two rules have the same code,
    the first rule counts.
    """
    rule_by_code: dict[str, T] = {}
    for codes_of_rule, rule in rules:
        for code in codes_of_rule:
            rule_by_code.setdefault(codes.canonical(code), rule)
    return MappingProxyType(rule_by_code)


_TWICE_A_DAY = (
    "80A18008 80A38008 80A58008 80B58000 80B78000 80B98000 80B98008 80BB8000 80BB8008 "
    "80BD8000 80BD8008 80C78008 80C98000 80C98008 80CB8008 80CD8008 80CF8008 80D98008 "
    "80DE1801 80DF8008 80E01801 80E18008 80E38008 80E39200 80E3A202 80E3A203 80E78000 "
    "80E78008 80F18000 80F18008 80F38008 80F78008 81318008 81338008 813B8008 81478008 "
    "81578008 815F8008 81938008 81958008 81978008"
)
_DAY_S = 86400.0
_a_day = partial(Frequency, window_s=_DAY_S, level=Level.MANUALLY_SEPARATE)

#: Source: MindCluster's device plugin, `build/faultCustomization.json` (at 22bb3d98).
FREQUENCY = index_by_code(
    [
        (_TWICE_A_DAY.split(), _a_day(times=2)),
        (("80E18005",), _a_day(times=3)),
        (("81078603",), _a_day(times=5, release_s=2 * _DAY_S)),
    ]
)
DURATION = index_by_code(
    [
        (
            ("81078603",),
            Duration(timeout_s=20.0, recover_s=60.0, level=Level.PRE_SEPARATE),
        )
    ]
)

DEFAULT = FaultConfig(table=BUILT_IN, frequency=FREQUENCY, duration=DURATION)
