"""Parse the cluster's fault configuration, the ConfigMap `mindx-dl-fault-config`.

    faultCode.json            {"NotHandleFaultCodes": ["80E21007", …], …}
    faultCustomization.json   {"FaultFrequency": […], "FaultDuration": […], …}
    SwitchFaultCode.json      for switches, see `agent.health.switches`
    PollInterval              MindCluster's interval between reads; not used here

For each absent `.json` key, built-in levels or rules apply. Other keys of the ConfigMap
are ignored. Inside the JSON texts an unknown key is an error: a mistyped key there
would make a fault look harmless. Up to 100 errors are reported at once.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from agent.devices.driver import Flaw
from agent.devices.reading import Level
from agent.health import rules, switches
from agent.health.levels import BUILT_IN, Table, make_table
from agent.health.rules import Duration, FaultConfig, Frequency
from service.quote import quote_value

T = TypeVar("T")

NAME = "mindx-dl-fault-config"
CODES_KEY = "faultCode.json"
CUSTOM_KEY = "faultCustomization.json"
SWITCH_KEY = "SwitchFaultCode.json"
POLL_KEY = "PollInterval"

#: Longest text of a key, far more than all known codes need. Unit: characters.
_MOST = 1 << 20
#: Highest number of flaws in one message.
_MOST_FLAWS = 100
_CODE = re.compile(r"[0-9A-Fa-f]{8,9}")
_SWITCH_CODE = re.compile(r"\[0x[0-9A-Fa-f]{8},(\d+|na),(cpu|npu|L2|na),(\d+|na)\]")
_LEVELS = {level.value: level for level in Level if level is not Level.NORMAL}
_LISTS = tuple(
    level for level in _LEVELS.values() if level is not Level.MANUALLY_SEPARATE
)
#: Keys of older releases of MindCluster, without meaning now.
_FORMER = re.compile(r"(LargeModel\w+|RecoverRestartBusiness)Codes")
#: {key of GraceTolerance: (least, most)}. Unit: seconds.
_GRACE: Mapping[str, tuple[int, int]] = {
    "WaitProcessReadCMTime": (5, 90),
    "WaitDeviceResetTime": (60, 180),
    "WaitFaultSelfHealingTime": (1, 30),
    "WaitFlushingCMTime": (5, 90),
}


class FaultConfigError(ValueError):
    """The ConfigMap `mindx-dl-fault-config` has errors, so it cannot be used.

    `flaws` has the first 100 of them, each with its key or path in the ConfigMap.
    """

    def __init__(self, flaws: Iterable[Flaw]) -> None:
        unique = tuple(dict.fromkeys(flaws))
        self.flaws = unique[:_MOST_FLAWS]
        texts = [str(flaw) for flaw in self.flaws]
        if len(unique) > _MOST_FLAWS:
            texts.append(f"and {len(unique) - _MOST_FLAWS} more")
        super().__init__("; ".join(texts))


def parse(data: Mapping[str, str]) -> FaultConfig:
    """Return the fault levels and rules from the data of `mindx-dl-fault-config`.

    Args:
        data: Data of the ConfigMap. Built-in levels or rules apply for an absent key.
            A key that this module does not know is ignored.

    Raises:
        FaultConfigError: The data has at least one error. The exception has the first
            100.
    """
    reader = _Reader()
    config = FaultConfig(
        table=reader.section(data, CODES_KEY, reader.codes, BUILT_IN),
        frequency=reader.section(data, CUSTOM_KEY, reader.frequency, rules.FREQUENCY),
        duration=reader.section(data, CUSTOM_KEY, reader.duration, rules.DURATION),
        switch=reader.section(data, SWITCH_KEY, reader.switch, switches.BUILT_IN),
    )
    if POLL_KEY in data and not re.fullmatch(r"\s*\d{1,6}\s*", data[POLL_KEY]):
        reader.flaw(POLL_KEY, "a whole number of seconds", data[POLL_KEY])
    if reader.flaws:
        raise FaultConfigError(reader.flaws)
    return config


class _Reader:
    """Parser of the fault ConfigMap's JSON texts, which collects errors in `flaws`."""

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []

    def flaw(self, at: str, expected: str, value: object) -> None:
        found = "nothing" if value is None else quote_value(value)
        self.flaws.append(Flaw(at=at, expected=expected, found=found))

    def section(
        self,
        data: Mapping[str, str],
        key: str,
        read: Callable[[str, Mapping[str, object]], T],
        otherwise: T,
    ) -> T:
        """Parse the JSON text in `data[key]`, and convert it by `read`.

        Errors in the text are added to `flaws`.

        Args:
            data: Data of the ConfigMap `mindx-dl-fault-config`.
            key: Key of the JSON text.
            read: Takes `key` and the JSON object; returns the result of this method.
            otherwise: Result if the key is absent, or its text is too long or is no
                JSON object.
        """
        if key not in data:
            return otherwise
        document = self._load(key, data[key])
        return otherwise if document is None else read(key, document)

    def _load(self, key: str, text: str) -> Mapping[str, object] | None:
        if len(text) > _MOST:
            self.flaw(key, f"at most {_MOST} characters", len(text))
            return None
        try:
            document = json.loads(text, object_pairs_hook=partial(self._object, key))
        except (ValueError, RecursionError) as error:
            flaw = Flaw(at=key, expected="JSON", found=str(error))
            self.flaws.append(flaw)
            return None
        if not isinstance(document, dict):
            self.flaw(key, "a JSON object", document)
            return None
        return document

    def _object(self, at: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
        key_counts = Counter(key for key, _ in pairs)
        for key in sorted(key for key, count in key_counts.items() if count > 1):
            self.flaw(at, "each key once", key)
        return dict(pairs)

    # faultCode.json

    def codes(self, key: str, document: Mapping[str, object]) -> Table:
        chip = {f"{level.value}Codes": level for level in _LISTS}
        network = {f"{level.value}NetworkCodes": level for level in _LISTS}
        former = {name for name in document if _FORMER.fullmatch(name)}
        self._check_keys(key, document, {*chip, *network, *former})
        return make_table(
            {
                level: self._code_list(f"{key}.{name}", document.get(name))
                for name, level in chip.items()
            },
            {
                level: self._code_list(f"{key}.{name}", document.get(name))
                for name, level in network.items()
            },
        )

    def _code_list(
        self, at: str, value: object, pattern: re.Pattern[str] = _CODE
    ) -> tuple[str, ...]:
        example = '"80E01801"' if pattern is _CODE else '"[0x00f1fef5,155913,cpu,na]"'
        items = self._list(at, value)
        for index, item in enumerate(items):
            if not isinstance(item, str) or not pattern.fullmatch(item):
                self.flaw(f"{at}[{index}]", f"a fault code like {example}", item)
        return tuple(item for item in items if isinstance(item, str))

    # SwitchFaultCode.json

    def switch(
        self, key: str, document: Mapping[str, object]
    ) -> Mapping[str, switches.SwitchLevel]:
        lists = {f"{level.value}Codes": level for level in switches.SwitchLevel}
        self._check_keys(key, document, lists.keys())
        return switches.make_table(
            {
                level: self._code_list(
                    f"{key}.{name}", document.get(name), _SWITCH_CODE
                )
                for name, level in lists.items()
            }
        )

    # faultCustomization.json

    def frequency(
        self, key: str, document: Mapping[str, object]
    ) -> Mapping[str, Frequency]:
        self._check_keys(
            key, document, {"GraceTolerance", "FaultFrequency", "FaultDuration"}
        )
        self._check_grace(f"{key}.GraceTolerance", document.get("GraceTolerance", {}))
        at = f"{key}.FaultFrequency"
        frequency_rules = [
            self._frequency_rule(f"{at}[{index}]", item)
            for index, item in enumerate(self._list(at, document.get("FaultFrequency")))
        ]
        return rules.index_by_code(rule for rule in frequency_rules if rule)

    def duration(
        self, key: str, document: Mapping[str, object]
    ) -> Mapping[str, Duration]:
        at = f"{key}.FaultDuration"
        duration_rules = [
            self._duration_rule(f"{at}[{index}]", item)
            for index, item in enumerate(self._list(at, document.get("FaultDuration")))
        ]
        return rules.index_by_code(rule for rule in duration_rules if rule)

    def _check_grace(self, at: str, value: object) -> None:
        """Check the value of the setting GraceTolerance, and add its errors to `flaws`.

        The value is not used. It is for hot reset, which the agent does not have.
        """
        if not isinstance(value, dict):
            self.flaw(at, "an object", value)
            return
        self._check_keys(at, value, _GRACE)
        for name, (least, most) in _GRACE.items():
            if name in value:
                self._number(f"{at}.{name}", value[name], least, most)

    def _frequency_rule(
        self, at: str, value: object
    ) -> tuple[tuple[str, ...], Frequency] | None:
        if not isinstance(value, dict):
            self.flaw(at, "an object", value)
            return None
        names = ("EventId", "TimeWindow", "Times", "FaultHandling", "ReleaseTimeWindow")
        self._check_keys(at, value, names)
        level = self._level(f"{at}.FaultHandling", value.get("FaultHandling"))
        release = value.get("ReleaseTimeWindow", 0)
        if release != 0:
            self._number(f"{at}.ReleaseTimeWindow", release, 60, 2**32 - 1)
        elif level is not Level.MANUALLY_SEPARATE:
            expected = "60 or more, for a level that no person takes back"
            self.flaw(f"{at}.ReleaseTimeWindow", expected, release)
        rule = Frequency(
            window_s=self._number(
                f"{at}.TimeWindow", value.get("TimeWindow"), 60, 864000
            ),
            times=self._number(f"{at}.Times", value.get("Times"), 1, 100),
            level=level,
            release_s=release if isinstance(release, int) else 0,
        )
        return self._code_list(f"{at}.EventId", value.get("EventId")), rule

    def _duration_rule(
        self, at: str, value: object
    ) -> tuple[tuple[str, ...], Duration] | None:
        if not isinstance(value, dict):
            self.flaw(at, "an object", value)
            return None
        names = ("EventId", "FaultTimeout", "RecoverTimeout", "FaultHandling")
        self._check_keys(at, value, names)
        level = self._level(f"{at}.FaultHandling", value.get("FaultHandling"))
        if level is Level.MANUALLY_SEPARATE:
            self.flaw(
                f"{at}.FaultHandling", "a level that time takes back", level.value
            )
        rule = Duration(
            timeout_s=self._number(
                f"{at}.FaultTimeout", value.get("FaultTimeout"), 0, 600
            ),
            recover_s=self._number(
                f"{at}.RecoverTimeout", value.get("RecoverTimeout"), 0, 86400
            ),
            level=level,
        )
        return self._code_list(f"{at}.EventId", value.get("EventId")), rule

    # parts

    def _check_keys(
        self, at: str, document: Mapping[str, object], names: Iterable[str]
    ) -> None:
        allowed = sorted(names)
        for name in document:
            if name not in allowed:
                self.flaw(at, f"only the keys {', '.join(allowed)}", name)

    def _list(self, at: str, value: object) -> list[object]:
        if value is None or isinstance(value, list):
            return value or []
        self.flaw(at, "a list", value)
        return []

    def _level(self, at: str, value: object) -> Level:
        if isinstance(value, str) and value in _LEVELS:
            return _LEVELS[value]
        self.flaw(at, f"one of {', '.join(_LEVELS)}", value)
        return Level.SEPARATE

    def _number(self, at: str, value: object, least: int, most: int) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if isinstance(value, int) and is_whole and least <= value <= most:
            return value
        self.flaw(at, f"a whole number from {least} to {most}", value)
        return least
