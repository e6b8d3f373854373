"""Parse the cluster's fault configuration, the ConfigMap `mindx-dl-fault-config`.

    faultCode.json            {"NotHandleFaultCodes": ["80E21007", …], …}
    faultCustomization.json   {"FaultFrequency": […], "FaultDuration": […], …}
    PollInterval              MindCluster's interval between reads; not used

For each absent `.json` key, built-in levels or rules apply. Other keys of the ConfigMap
are ignored. Inside the JSON texts an unknown key is a problem: a mistyped key there
would make a fault look harmless. All problems are reported at once, and the rest of the
configuration is used:

    unknown key                     ignored
    wrong code, or list of codes    left out
    rule with a wrong value         left out, because half a rule is another rule
    text or list of rules that      what its key last said stays in force
      is none
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from agent.devices.reading import Level
from agent.health import rules
from agent.health.levels import Table, make_table
from agent.health.rules import DEFAULT, Duration, FaultConfig, Frequency
from scheduler_core.documents.parsers import (
    json_text,
    listing,
    matching,
    optional,
    record,
    whole,
    word,
)
from scheduler_core.documents.reader import (
    Fields,
    Parser,
    Part,
    WrongError,
    read_partly,
)

T = TypeVar("T")
#: (fault codes, rule)
_Rule: TypeAlias = tuple[tuple[str, ...], T]

NAME = "mindx-dl-fault-config"
CODES_KEY = "faultCode.json"
CUSTOM_KEY = "faultCustomization.json"
POLL_KEY = "PollInterval"

#: Longest text of a key, far more than all known codes need. Unit: characters.
_MOST = 1 << 20
_LEVELS = {level.value: level for level in Level if level is not Level.NORMAL}
_LISTS = tuple(
    level for level in _LEVELS.values() if level is not Level.MANUALLY_SEPARATE
)
#: Keys of older releases of MindCluster, without meaning now.
_FORMER = re.compile(r"(LargeModel\w+|RecoverRestartBusiness)Codes")
#: Times of hot reset. Unit: seconds.
_GRACE = record(
    dict[str, int],
    WaitProcessReadCMTime=optional(whole(5, 90)),
    WaitDeviceResetTime=optional(whole(60, 180)),
    WaitFaultSelfHealingTime=optional(whole(1, 30)),
    WaitFlushingCMTime=optional(whole(5, 90)),
)
_KEYS = (CODES_KEY, CUSTOM_KEY, POLL_KEY)

_CODE = re.compile(r"[0-9A-Fa-f]{8,9}")
_CHIP_CODES = listing(matching(_CODE.fullmatch, 'a fault code like "80E01801"'))
_LEVEL = word(_LEVELS)
_POLL = matching(re.compile(r"\s*\d{1,6}\s*").fullmatch, "a whole number of seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """Fault configuration as far as it was understood, and what was not."""

    config: FaultConfig
    #: Place, expectation and finding of each part that is not used.
    problems: tuple[str, ...] = ()


def parse(data: Mapping[str, str], before: FaultConfig = DEFAULT) -> Parsed:
    """Return the fault levels and rules from the data of `mindx-dl-fault-config`.

    Args:
        data: Data of the ConfigMap. Built-in levels or rules apply for an absent key.
            A key that this module does not know is ignored.
        before: Configuration that is in force, for texts that cannot be parsed.
    """
    known = {key: data[key] for key in _KEYS if key in data}
    config, problems = read_partly(
        known, lambda part: _read_config(part, before), is_null_absent=True
    )
    return Parsed(config=config, problems=problems)


def _read_config(part: Part, before: FaultConfig) -> FaultConfig:
    fields = part.fields(*_KEYS)
    frequency, duration = _read_or(
        fields,
        CUSTOM_KEY,
        json_text(lambda custom: _read_custom(custom, before), _MOST),
        absent=(DEFAULT.frequency, DEFAULT.duration),
        wrong=(before.frequency, before.duration),
    )
    fields.get(POLL_KEY, _POLL, "")
    return FaultConfig(
        table=_read_or(
            fields,
            CODES_KEY,
            json_text(_read_codes, _MOST),
            absent=DEFAULT.table,
            wrong=before.table,
        ),
        frequency=frequency,
        duration=duration,
    )


def _read_or(fields: Fields, key: str, parser: Parser[T], *, absent: T, wrong: T) -> T:
    """Return the value of a key, or one of two others if it is absent or wrong."""
    if fields.values.get(key) is None:
        return absent
    return fields.need(key, parser, wrong)


def _read_codes(part: Part) -> Table:
    chip = {f"{level.value}Codes": level for level in _LISTS}
    network = {f"{level.value}NetworkCodes": level for level in _LISTS}
    former = (str(key) for key in part.all_fields().values if _FORMER.fullmatch(key))
    fields = part.fields(*chip, *network, *former)
    return make_table(
        {level: fields.get(key, _CHIP_CODES, ()) for key, level in chip.items()},
        {level: fields.get(key, _CHIP_CODES, ()) for key, level in network.items()},
    )


def _read_custom(
    part: Part, before: FaultConfig
) -> tuple[Mapping[str, Frequency], Mapping[str, Duration]]:
    """Read the rules.

    The value of GraceTolerance is not used. It is for hot reset, which the agent does
    not have.
    """
    fields = part.fields("GraceTolerance", "FaultFrequency", "FaultDuration")
    fields.get("GraceTolerance", _GRACE, None)
    return (
        _read_or(
            fields,
            "FaultFrequency",
            _by_code(_read_frequency),
            absent={},
            wrong=before.frequency,
        ),
        _read_or(
            fields,
            "FaultDuration",
            _by_code(_read_duration),
            absent={},
            wrong=before.duration,
        ),
    )


def _by_code(rule: Parser[_Rule[T]]) -> Parser[Mapping[str, T]]:
    """Return the parser of a list of rules, which leaves out wrong ones."""
    read_rules = listing(rule)
    return lambda part: rules.index_by_code(read_rules(part))


def _read_frequency(part: Part) -> _Rule[Frequency]:
    fields = part.fields(
        *("EventId", "TimeWindow", "Times", "FaultHandling", "ReleaseTimeWindow")
    )
    level = fields.need("FaultHandling", _LEVEL, None)
    window_s = fields.need("TimeWindow", whole(60, 864000), None)
    times = fields.need("Times", whole(1, 100), None)
    codes = fields.need("EventId", _CHIP_CODES, None)
    release_s = _read_release(fields.at("ReleaseTimeWindow"), level)
    if level is None or window_s is None or times is None or codes is None:
        raise WrongError
    return codes, Frequency(
        window_s=window_s, times=times, level=level, release_s=release_s
    )


def _read_release(part: Part, level: Level | None) -> int:
    """Read the release window of a level; 0 for a level that only people take back."""
    if part.value not in (None, 0):
        return whole(60, 2**32 - 1)(part)
    if level not in (Level.MANUALLY_SEPARATE, None):
        raise part.wrong("60 or more, for a level that no person takes back", 0)
    return 0


def _read_timed_level(part: Part) -> Level:
    level = _LEVEL(part)
    if level is Level.MANUALLY_SEPARATE:
        raise part.wrong("a level that time takes back")
    return level


def _read_duration(part: Part) -> _Rule[Duration]:
    fields = part.fields("EventId", "FaultTimeout", "RecoverTimeout", "FaultHandling")
    level = fields.need("FaultHandling", _read_timed_level, None)
    timeout_s = fields.need("FaultTimeout", whole(0, 600), None)
    recover_s = fields.need("RecoverTimeout", whole(0, 86400), None)
    codes = fields.need("EventId", _CHIP_CODES, None)
    if level is None or timeout_s is None or recover_s is None or codes is None:
        raise WrongError
    return codes, Duration(timeout_s=timeout_s, recover_s=recover_s, level=level)
