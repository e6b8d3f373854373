"""Parse the cluster's fault configuration, the ConfigMap `mindx-dl-fault-config`.

    faultCode.json            {"NotHandleFaultCodes": ["80E21007", …], …}
    faultCustomization.json   {"FaultFrequency": […], "FaultDuration": […], …}
    SwitchFaultCode.json      for switches, see `agent.health.switches`
    PollInterval              MindCluster's interval between reads; not used here

For each absent `.json` key, built-in levels or rules apply. Other keys of the ConfigMap
are ignored. Inside the JSON texts an unknown key is an error: a mistyped key there
would make a fault look harmless. All errors are reported at once.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from agent.devices.reading import Level
from agent.health import rules, switches
from agent.health.levels import BUILT_IN, Table, make_table
from agent.health.rules import Duration, FaultConfig, Frequency
from scheduler_core.documents.parsers import (
    json_text,
    listing,
    matching,
    optional,
    record,
    whole,
    word,
)
from scheduler_core.documents.reader import Part, read

T = TypeVar("T")
#: (fault codes, rule)
_Rule: TypeAlias = tuple[tuple[str, ...], T]

NAME = "mindx-dl-fault-config"
CODES_KEY = "faultCode.json"
CUSTOM_KEY = "faultCustomization.json"
SWITCH_KEY = "SwitchFaultCode.json"
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
_KEYS = (CODES_KEY, CUSTOM_KEY, SWITCH_KEY, POLL_KEY)

_CODE = re.compile(r"[0-9A-Fa-f]{8,9}")
_SWITCH_CODE = re.compile(r"\[0x[0-9A-Fa-f]{8},(\d+|na),(cpu|npu|L2|na),(\d+|na)\]")
_CHIP_CODES = listing(matching(_CODE.fullmatch, 'a fault code like "80E01801"'))
_SWITCH_CODES = listing(
    matching(_SWITCH_CODE.fullmatch, 'a fault code like "[0x00f1fef5,155913,cpu,na]"')
)
_LEVEL = word(_LEVELS)
_POLL = matching(re.compile(r"\s*\d{1,6}\s*").fullmatch, "a whole number of seconds")


def parse(data: Mapping[str, str]) -> FaultConfig:
    """Return the fault levels and rules from the data of `mindx-dl-fault-config`.

    Args:
        data: Data of the ConfigMap. Built-in levels or rules apply for an absent key.
            A key that this module does not know is ignored.

    Raises:
        DocumentError: The data has at least one error.
    """
    known = {key: data[key] for key in _KEYS if key in data}
    return read(known, _read_config, is_null_absent=True)


def _read_config(part: Part) -> FaultConfig:
    fields = part.fields(*_KEYS)
    frequency, duration = fields.get(
        CUSTOM_KEY,
        json_text(_read_custom, _MOST),
        (rules.FREQUENCY, rules.DURATION),
    )
    fields.get(POLL_KEY, _POLL, "")
    return FaultConfig(
        table=fields.get(CODES_KEY, json_text(_read_codes, _MOST), BUILT_IN),
        frequency=frequency,
        duration=duration,
        switch=fields.get(
            SWITCH_KEY, json_text(_read_switches, _MOST), switches.BUILT_IN
        ),
    )


def _read_codes(part: Part) -> Table:
    chip = {f"{level.value}Codes": level for level in _LISTS}
    network = {f"{level.value}NetworkCodes": level for level in _LISTS}
    former = (str(key) for key in part.all_fields().values if _FORMER.fullmatch(key))
    fields = part.fields(*chip, *network, *former)
    return make_table(
        {level: fields.get(key, _CHIP_CODES, ()) for key, level in chip.items()},
        {level: fields.get(key, _CHIP_CODES, ()) for key, level in network.items()},
    )


def _read_switches(part: Part) -> Mapping[str, switches.SwitchLevel]:
    lists = {f"{level.value}Codes": level for level in switches.SwitchLevel}
    fields = part.fields(*lists)
    return switches.make_table(
        {level: fields.get(key, _SWITCH_CODES, ()) for key, level in lists.items()}
    )


def _read_custom(
    part: Part,
) -> tuple[Mapping[str, Frequency], Mapping[str, Duration]]:
    """Read the rules.

    The value of GraceTolerance is not used. It is for hot reset, which the agent does
    not have.
    """
    fields = part.fields("GraceTolerance", "FaultFrequency", "FaultDuration")
    fields.get("GraceTolerance", _GRACE, None)
    frequency = fields.get("FaultFrequency", listing(_read_frequency), ())
    duration = fields.get("FaultDuration", listing(_read_duration), ())
    return rules.index_by_code(frequency), rules.index_by_code(duration)


def _read_frequency(part: Part) -> _Rule[Frequency]:
    fields = part.fields(
        *("EventId", "TimeWindow", "Times", "FaultHandling", "ReleaseTimeWindow")
    )
    level = fields.need("FaultHandling", _LEVEL, Level.SEPARATE)
    release = fields.at("ReleaseTimeWindow")
    release_s = 0
    if release.value not in (None, 0):
        release_s = fields.get("ReleaseTimeWindow", whole(60, 2**32 - 1), 0)
    elif level is not Level.MANUALLY_SEPARATE:
        release.wrong("60 or more, for a level that no person takes back", 0)
    rule = Frequency(
        window_s=fields.need("TimeWindow", whole(60, 864000), 60),
        times=fields.need("Times", whole(1, 100), 1),
        level=level,
        release_s=release_s,
    )
    return fields.get("EventId", _CHIP_CODES, ()), rule


def _read_timed_level(part: Part) -> Level:
    level = _LEVEL(part)
    if level is Level.MANUALLY_SEPARATE:
        raise part.wrong("a level that time takes back")
    return level


def _read_duration(part: Part) -> _Rule[Duration]:
    fields = part.fields("EventId", "FaultTimeout", "RecoverTimeout", "FaultHandling")
    rule = Duration(
        timeout_s=fields.need("FaultTimeout", whole(0, 600), 0),
        recover_s=fields.need("RecoverTimeout", whole(0, 86400), 0),
        level=fields.need("FaultHandling", _read_timed_level, Level.SEPARATE),
    )
    return fields.get("EventId", _CHIP_CODES, ()), rule
