"""The ConfigMap `mindx-dl-fault-config`: what it may say, and every way to be wrong."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.devices.reading import ChipFault, Level
from agent.health import fault_config, rules
from agent.health.rules import DEFAULT, Duration, FaultConfig, Frequency


def custom(**more: Any) -> dict[str, str]:
    return {"faultCustomization.json": json.dumps(more)}


def flaws(data: dict[str, str]) -> list[str]:
    return list(fault_config.parse(data).problems)


def read(data: dict[str, str]) -> FaultConfig:
    """The configuration of data without problems."""
    parsed = fault_config.parse(data)
    assert parsed.problems == ()
    return parsed.config


def test_nothing_said_is_the_built_in_configuration() -> None:
    assert read({}) == DEFAULT


def test_keys_of_others_are_left_alone() -> None:
    assert read({"notes": "mine", "PollInterval": "300"}) == DEFAULT


def test_what_was_found_is_repeated_in_a_few_words() -> None:
    deep = [{f"{key}": [{"EventId": ["80C98000"] * 5}] * 5 for key in range(5)}] * 9

    (flaw,) = flaws({"faultCustomization.json": json.dumps(deep)})

    assert "expected an object, found [{" in flaw
    assert len(flaw) < 200


def test_lists_replace_the_built_in_ones() -> None:
    lists = {
        "SubHealthFaultCodes": ["80e3a201"],
        "SeparateNPUNetworkCodes": ["81078603"],
        "LargeModelSeparateNPUCodes": ["80E01801"],  # of a former release
    }

    found = read({"faultCode.json": json.dumps(lists)}).table

    assert dict(found.chip) == {"80E3A201": Level.SUB_HEALTH}
    assert dict(found.network) == {"81078603": Level.SEPARATE}
    assert found.level(ChipFault(chip=0, code="81078603")) is Level.SEPARATE


def test_rules_replace_the_built_in_ones() -> None:
    found = read(
        custom(
            GraceTolerance={"WaitDeviceResetTime": 150},
            FaultFrequency=[
                {
                    "EventId": ["80E01801", "080C98008"],
                    "TimeWindow": 3600,
                    "Times": 2,
                    "FaultHandling": "ManuallySeparateNPU",
                },
                {
                    "EventId": ["80E01801"],  # the first rule of a code counts
                    "TimeWindow": 60,
                    "Times": 9,
                    "FaultHandling": "SeparateNPU",
                    "ReleaseTimeWindow": 120,
                },
            ],
            FaultDuration=[
                {
                    "EventId": ["81078603"],
                    "FaultTimeout": 5,
                    "RecoverTimeout": 6,
                    "FaultHandling": "SeparateNPU",
                }
            ],
        )
    )

    twice = Frequency(window_s=3600, times=2, level=Level.MANUALLY_SEPARATE)
    assert dict(found.frequency) == {"80E01801": twice, "80C98008": twice}
    assert dict(found.duration) == {
        "81078603": Duration(timeout_s=5, recover_s=6, level=Level.SEPARATE)
    }
    assert found.table is DEFAULT.table


def test_the_built_in_rules_are_those_of_their_source() -> None:
    twice = Frequency(window_s=86400, times=2, level=Level.MANUALLY_SEPARATE)

    assert len(rules.FREQUENCY) == 43
    assert rules.FREQUENCY["80E01801"] == twice
    assert rules.FREQUENCY["80E18005"].times == 3
    assert rules.FREQUENCY["81078603"] == Frequency(
        window_s=86400, times=5, level=Level.MANUALLY_SEPARATE, release_s=172800
    )


FREQUENT = {
    "EventId": ["80E01801"],
    "TimeWindow": 3600,
    "Times": 2,
    "FaultHandling": "SeparateNPU",
    "ReleaseTimeWindow": 60,
}
LASTING = {
    "EventId": ["80E01801"],
    "FaultTimeout": 5,
    "RecoverTimeout": 6,
    "FaultHandling": "SeparateNPU",
}


@pytest.mark.parametrize(
    ("data", "at", "expected", "found"),
    [
        ({"faultCode.json": "[]"}, "faultCode.json", "an object", "[]"),
        (
            {"faultCode.json": '{"SeparateNPUCodes": "80E01801"}'},
            "faultCode.json.SeparateNPUCodes",
            "a list",
            "'80E01801'",
        ),
        (
            {"faultCode.json": '{"SeparateNPUCodes": ["80E01801", "x"]}'},
            "faultCode.json.SeparateNPUCodes[1]",
            'a fault code like "80E01801"',
            "'x'",
        ),
        (
            {"PollInterval": "soon"},
            "PollInterval",
            "a whole number of seconds",
            "'soon'",
        ),
        (
            custom(GraceTolerance={"WaitDeviceResetTime": 0}),
            "faultCustomization.json.GraceTolerance.WaitDeviceResetTime",
            "a whole number from 60 to 180",
            "0",
        ),
        (
            custom(FaultFrequency=[FREQUENT | {"Times": 101}]),
            "faultCustomization.json.FaultFrequency[0].Times",
            "a whole number from 1 to 100",
            "101",
        ),
        (
            custom(FaultFrequency=[FREQUENT | {"TimeWindow": True}]),
            "faultCustomization.json.FaultFrequency[0].TimeWindow",
            "a whole number from 60 to 864000",
            "True",
        ),
        (
            custom(FaultFrequency=[FREQUENT | {"ReleaseTimeWindow": 0}]),
            "faultCustomization.json.FaultFrequency[0].ReleaseTimeWindow",
            "60 or more, for a level that no person takes back",
            "0",
        ),
        (
            custom(FaultFrequency=[7]),
            "faultCustomization.json.FaultFrequency[0]",
            "an object",
            "7",
        ),
        (
            custom(FaultDuration=[LASTING | {"FaultHandling": "ManuallySeparateNPU"}]),
            "faultCustomization.json.FaultDuration[0].FaultHandling",
            "a level that time takes back",
            "'ManuallySeparateNPU'",
        ),
        (
            custom(FaultDuration=[LASTING | {"FaultTimeout": -1}]),
            "faultCustomization.json.FaultDuration[0].FaultTimeout",
            "a whole number from 0 to 600",
            "-1",
        ),
        (
            custom(FaultDuration=["x"]),
            "faultCustomization.json.FaultDuration[0]",
            "an object",
            "'x'",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    data: dict[str, str], at: str, expected: str, found: str
) -> None:
    assert flaws(data) == [f"{at}: expected {expected}, found {found}"]


def test_a_mistyped_key_is_no_harmless_fault() -> None:
    assert flaws({"faultCode.json": '{"SeperateNPUCodes": []}'})[0] == (
        "faultCode.json.SeperateNPUCodes: no such key, did you mean 'SeparateNPUCodes'?"
    )


def test_a_list_that_stands_twice_is_wrong() -> None:
    text = '{"SeparateNPUCodes": [], "SeparateNPUCodes": ["80E01801"]}'

    assert flaws({"faultCode.json": text}) == [
        "faultCode.json: expected each key of an object once, found 'SeparateNPUCodes'"
    ]


def test_text_that_is_no_json_is_said_with_its_line() -> None:
    assert flaws({"faultCode.json": "{\n,"})[0].startswith(
        "faultCode.json: expected JSON (Expecting property name"
    )


def test_more_than_any_list_needs_is_not_read() -> None:
    assert flaws({"faultCode.json": " " * (1 << 20) + "{}"}) == [
        "faultCode.json: expected at most 1048576 characters, found 1048578"
    ]


def test_all_that_is_wrong_is_said_at_once() -> None:
    data = custom(FaultFrequency=[7], FaultDuration=[8]) | {"PollInterval": ""}

    assert [flaw.split(":")[0] for flaw in flaws(data)] == [
        "faultCustomization.json.FaultFrequency[0]",
        "faultCustomization.json.FaultDuration[0]",
        "PollInterval",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["FaultFrequency", "EventId", "SeparateNPUCodes", "GraceTolerance"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


def test_a_wrong_code_is_left_out_of_its_list() -> None:
    codes = {"SeparateNPUCodes": ["80E01801", "x"], "SubHealthFaultCodes": 7}

    parsed = fault_config.parse({"faultCode.json": json.dumps(codes)})

    assert dict(parsed.config.table.chip) == {"80E01801": Level.SEPARATE}
    assert [problem.split(":")[0] for problem in parsed.problems] == [
        "faultCode.json.SubHealthFaultCodes",
        "faultCode.json.SeparateNPUCodes[1]",
    ]


GOOD = FREQUENT | {"EventId": ["80C98008"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"TimeWindow": 1},
        {"Times": "2"},
        {"FaultHandling": "RepairNPU"},
        {"FaultHandling": None},
        {"ReleaseTimeWindow": -1},
        {"ReleaseTimeWindow": 0},
        {"EventId": None},
    ],
)
def test_a_rule_with_a_wrong_value_is_left_out_whole(wrong: dict[str, Any]) -> None:
    parsed = fault_config.parse(custom(FaultFrequency=[FREQUENT | wrong, GOOD]))

    assert set(parsed.config.frequency) == {"80C98008"}
    assert len(parsed.problems) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"FaultTimeout": 601}, {"RecoverTimeout": None}, {"FaultHandling": "x"}],
)
def test_so_is_a_rule_of_duration(wrong: dict[str, Any]) -> None:
    good = LASTING | {"EventId": ["80C98008"]}

    parsed = fault_config.parse(custom(FaultDuration=[LASTING | wrong, good]))

    assert set(parsed.config.duration) == {"80C98008"}
    assert len(parsed.problems) == 1


def test_a_rule_with_an_unknown_key_is_used_without_it() -> None:
    parsed = fault_config.parse(custom(FaultFrequency=[FREQUENT | {"Jitter": 1}]))

    assert parsed.config.frequency == {
        "80E01801": Frequency(
            window_s=3600, times=2, level=Level.SEPARATE, release_s=60
        )
    }
    assert parsed.problems[0].startswith(
        "faultCustomization.json.FaultFrequency[0].Jitter: no such key"
    )


BEFORE = read(
    {
        "faultCode.json": '{"SubHealthFaultCodes": ["80E3A201"]}',
    }
    | custom(FaultFrequency=[FREQUENT], FaultDuration=[LASTING])
)


@pytest.mark.parametrize("wrong", ["{", "[]", "null", '"x"', " " * (1 << 20) + "{}"])
def test_what_is_no_object_leaves_what_its_key_last_said(wrong: str) -> None:
    keys = ("faultCode.json", "faultCustomization.json")

    parsed = fault_config.parse(dict.fromkeys(keys, wrong), BEFORE)

    assert (parsed.config, len(parsed.problems)) == (BEFORE, 2)
    # the others count as they stand: here they are absent
    assert fault_config.parse({keys[0]: wrong}, BEFORE).config == replace(
        DEFAULT, table=BEFORE.table
    )


def test_rules_that_are_no_list_leave_those_before() -> None:
    parsed = fault_config.parse(custom(FaultFrequency={}, FaultDuration=[]), BEFORE)

    assert parsed.config == replace(DEFAULT, frequency=BEFORE.frequency, duration={})
    assert len(parsed.problems) == 1


@pytest.mark.property
@given(
    key=st.sampled_from(["faultCode.json", "faultCustomization.json"]),
    value=JSON,
)
def test_anything_is_used_or_named(key: str, value: object) -> None:
    parsed = fault_config.parse({key: json.dumps(value)}, BEFORE)

    if not isinstance(value, dict):
        assert parsed.problems
