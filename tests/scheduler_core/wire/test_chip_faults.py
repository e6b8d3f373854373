"""Faults of chips in reports: of our agent, of MindCluster's, and in any."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products.table import Product, by_key
from scheduler_core.wire import chip_faults, deviceinfo
from scheduler_core.wire.chip_faults import ChipFault, Effect
from scheduler_core.wire.deviceinfo import DeviceInfo, Fault
from scheduler_core.wire.faults import is_possible

GOLDEN = Path(__file__).parents[2] / "agent" / "golden"
CARDS = by_key("atlas-310p")
OUT, NONE = Effect.OUT_OF_SERVICE, Effect.NONE
RECOVERING, NETWORK = Effect.RECOVERING, Effect.NETWORK
#: as MindCluster orders them, the worst first
LEVELS = (
    "ManuallySeparateNPU",
    "SeparateNPU",
    "PreSeparateNPU",
    "RestartNPU",
    "FreeRestartNPU",
    "RestartBusiness",
    "RestartRequest",
    "SubHealthFault",
    "NotHandleFault",
    "NormalNPU",
)
SINCE_MS = 1744167455784


def faults_in(text: str, product: Product = PRODUCT) -> tuple[ChipFault, ...]:
    return chip_faults.chip_faults(deviceinfo.parse_device_info(text, product))


def faults_of(**parts: tuple[int, ...] | tuple[Fault, ...]) -> tuple[ChipFault, ...]:
    return chip_faults.chip_faults(DeviceInfo(update_time=1, **parts))  # type: ignore[arg-type]  # parts by name


def golden(name: str) -> str:
    """The text `DeviceInfoCfg` that the agent writes."""
    text = (GOLDEN / f"configmap-{name}.txt").read_text(encoding="utf-8")
    found = re.search(r"^DeviceInfoCfg:\n----\n(.*)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


def test_a_report_of_our_agent_tells_fault_network_and_vanished_chip() -> None:
    assert faults_in(golden("troubled")) == (
        ChipFault(
            chip=0,
            network=True,
            effect=NETWORK,
            level="PreSeparateNPU",
            codes=("81078603",),
        ),
        ChipFault(chip=3, effect=OUT, level="SeparateNPU", codes=("80E01801",)),
        ChipFault(chip=5, effect=OUT, level="SeparateNPU"),
    )


@pytest.mark.parametrize("name", ["good", "a3"])
def test_a_good_report_of_our_agent_has_no_faults(name: str) -> None:
    product = PRODUCT if name == "good" else by_key("atlas-a3-16-superpod")

    assert faults_in(golden(name), product) == ()


def test_each_product_line_has_its_own_faults() -> None:
    text = golden("lines")

    assert faults_in(text) == (
        ChipFault(chip=3, effect=OUT, level="SeparateNPU", codes=("80E01801",)),
    )
    assert faults_in(text, CARDS) == (
        ChipFault(chip=9, effect=OUT, level="SeparateNPU", codes=("80E18402",)),
    )


def item(chip: str, level: str, codes: str = "", **more: object) -> dict[str, object]:
    """An entry of the list of faults, as MindCluster's device plugin writes it."""
    return {
        "fault_type": "CardUnhealthy",
        "npu_name": chip,
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": codes,
        "fault_time_and_level_map": {},
        **more,
    }


def told(**codes: str) -> dict[str, dict[str, object]]:
    """The map of each code's time and level."""
    return {
        code.removeprefix("c"): {"fault_time": SINCE_MS, "fault_level": level}
        for code, level in codes.items()
    }


def of_mindcluster(
    *items: dict[str, object], unhealthy: str = "", network_unhealthy: str = ""
) -> str:
    prefix = "huawei.com/Ascend910"
    listed = {
        prefix: "",
        f"{prefix}-Fault": json.dumps(items),
        f"{prefix}-NetworkUnhealthy": network_unhealthy,
        f"{prefix}-Recovering": "",
        f"{prefix}-Unhealthy": unhealthy,
    }
    return json.dumps({"DeviceInfo": {"DeviceList": listed, "UpdateTime": 7}})


def test_a_chip_has_the_worst_level_of_its_codes_and_the_time_of_that_one() -> None:
    levels = told(cA8028801="SeparateNPU", cA4028801="NotHandleFault")
    levels["A4028801"]["fault_time"] = 5
    text = of_mindcluster(
        item(
            "Ascend910-4",
            "SeparateNPU",
            "A4028801,A8028801",
            fault_time_and_level_map=levels,
        ),
        unhealthy="Ascend910-4",
    )

    assert faults_in(text) == (
        ChipFault(
            chip=4,
            effect=OUT,
            level="SeparateNPU",
            codes=("A4028801", "A8028801"),
            since_ms=SINCE_MS,
        ),
    )


def test_a_chip_that_a_person_separated_has_that_level_beside_milder_codes() -> None:
    text = of_mindcluster(
        item(
            "Ascend910-4",
            "ManuallySeparateNPU",
            "A4028801",
            fault_time_and_level_map=told(cA4028801="NotHandleFault"),
        ),
        unhealthy="Ascend910-4",
    )

    assert faults_in(text) == (
        ChipFault(chip=4, effect=OUT, level="ManuallySeparateNPU", codes=("A4028801",)),
    )


def test_a_network_fault_whose_map_has_the_codes_of_the_chip() -> None:
    """MindCluster fills the map of a network fault with the chip's own codes."""
    text = of_mindcluster(
        item(
            "Ascend910-0",
            "PreSeparateNPU",
            "81078603",
            fault_type="CardNetworkUnhealthy",
            fault_time_and_level_map=told(cA4028801="NotHandleFault"),
        ),
        network_unhealthy="Ascend910-0",
    )

    assert faults_in(text) == (
        ChipFault(
            chip=0,
            network=True,
            effect=NETWORK,
            level="PreSeparateNPU",
            codes=("81078603",),
        ),
    )


def test_the_other_chip_of_a_broken_card_is_out_at_an_unknown_level() -> None:
    """MindCluster takes both chips of a 300I Duo card out, one without a fault."""
    text = of_mindcluster(item("Ascend910-1", "NormalNPU"), unhealthy="Ascend910-1")

    assert faults_in(text) == (ChipFault(chip=1, effect=OUT, level=None),)


def test_a_report_without_a_list_of_faults_has_chips_at_unknown_levels() -> None:
    listed = {
        "huawei.com/Ascend910-Unhealthy": "Ascend910-2",
        "huawei.com/Ascend910-NetworkUnhealthy": "Ascend910-5",
    }
    text = json.dumps({"DeviceInfo": {"DeviceList": listed, "UpdateTime": 7}})

    assert faults_in(text) == (
        ChipFault(chip=2, effect=OUT, level=None),
        ChipFault(chip=5, network=True, effect=NETWORK, level=None),
    )


def test_levels_and_codes_of_a_later_release_are_shown_as_they_are() -> None:
    text = of_mindcluster(
        item("Ascend910-2", "SeparateUntilMonday", "020001002"),
        item("Ascend910-3", "WatchNPU", "FFFF"),
        unhealthy="Ascend910-2",
    )

    assert faults_in(text) == (
        ChipFault(
            chip=2, effect=OUT, level="SeparateUntilMonday", codes=("020001002",)
        ),
        ChipFault(chip=3, effect=NONE, level="WatchNPU", codes=("FFFF",)),
    )


@pytest.mark.parametrize(
    ("level", "code", "time_ms"),
    [
        ("two\nlines", "80E01801\n  advice: none", -1),
        ("", "", 0),
        ("L" * 41, "0" * 17, 253_402_300_800_000),
    ],
)
def test_what_is_no_level_code_or_date_is_not_shown(
    level: str, code: str, time_ms: int
) -> None:
    fault = Fault(chip=2, code=code, level=level, time_ms=time_ms)

    assert faults_of(unhealthy=(2,), faults=(fault,)) == (
        ChipFault(chip=2, effect=OUT, level=None),
    )


def test_the_time_of_an_unknown_level_is_that_of_the_first_fault() -> None:
    mild = (
        Fault(chip=2, code="A1", level="NotHandleFault", time_ms=8),
        Fault(chip=2, code="A2", level="SubHealthFault", time_ms=9),
    )

    assert faults_of(unhealthy=(2,), faults=mild) == (
        ChipFault(chip=2, effect=OUT, level=None, codes=("A1", "A2"), since_ms=8),
    )


def test_a_chip_that_recovers_may_have_any_fault_or_none() -> None:
    mild = Fault(chip=2, code="A1", level="NotHandleFault")

    assert faults_of(recovering=(2, 3), faults=(mild,)) == (
        ChipFault(chip=2, effect=RECOVERING, level="NotHandleFault", codes=("A1",)),
        ChipFault(chip=3, effect=RECOVERING, level=None),
    )


def test_of_a_chip_out_of_service_no_list_says_how_its_network_is() -> None:
    faults = (
        Fault(chip=2, code="81078603", level="NotHandleFault", network=True),
        Fault(chip=2, code="80E01801", level="SeparateNPU"),
    )

    assert faults_of(unhealthy=(2,), faults=faults) == (
        ChipFault(chip=2, effect=OUT, level="SeparateNPU", codes=("80E01801",)),
        ChipFault(
            chip=2,
            network=True,
            effect=OUT,
            level="NotHandleFault",
            codes=("81078603",),
        ),
    )


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_the_lists_of_chips_count_where_a_level_contradicts_them(
    level: str,
    listed: bool,
    network: bool,
) -> None:
    fault = Fault(chip=2, code="A1", level=level, network=network)
    in_list = (2,) if listed else ()
    lists = {"network_unhealthy" if network else "unhealthy": in_list}
    if network:
        stays = LEVELS.index(level) in {3, 4, 5, 6, 8, 9}
        fits = stays != listed
    elif listed:
        fits = LEVELS.index(level) < 7
    else:
        fits = LEVELS.index(level) in {2, 4, 7, 8, 9}
    has_fault = listed or level != "NormalNPU"
    effect = (NETWORK if network else OUT) if listed else NONE

    expected = ChipFault(
        chip=2,
        network=network,
        effect=effect,
        level=level if fits else None,
        codes=("A1",),
    )

    assert faults_of(faults=(fault,), **lists) == ((expected,) if has_fault else ())
    assert is_possible(level, network=network, unhealthy=listed) is fits


chips = st.frozensets(st.integers(0, 7)).map(lambda some: tuple(sorted(some)))
reports = st.builds(
    DeviceInfo,
    unhealthy=chips,
    network_unhealthy=chips,
    recovering=chips,
    faults=st.lists(
        st.builds(
            Fault,
            chip=st.integers(0, 7),
            code=st.sampled_from(["", "80E01801", "A4028801"]),
            level=st.sampled_from([*LEVELS, "Unknown"]),
            time_ms=st.integers(-1, 3),
            network=st.booleans(),
        ),
        max_size=6,
    ).map(tuple),
    update_time=st.just(1),
)


@pytest.mark.property
@given(reports, chips)
def test_a_pod_has_the_faults_of_its_chips_and_no_others(
    info: DeviceInfo, own: tuple[int, ...]
) -> None:
    every = chip_faults.chip_faults(info)
    mask = chip_sets.mask_of(own)

    mine = chip_faults.of_chips(every, mask)
    others = chip_faults.of_chips(every, PRODUCT.all_chips & ~mask)

    assert {fault.chip for fault in mine} <= set(own)
    assert sorted(map(repr, (*mine, *others))) == sorted(map(repr, every))
    bad = {*info.unhealthy, *info.recovering, *info.network_unhealthy}
    assert bad & set(own) <= {fault.chip for fault in mine}


@pytest.mark.property
@given(reports)
def test_the_first_fault_is_the_worst(info: DeviceInfo) -> None:
    every = chip_faults.of_chips(chip_faults.chip_faults(info), PRODUCT.all_chips)
    ranks: dict[str | None, int] = {None: -1, "Unknown": -1}
    ranks |= {level: rank for rank, level in enumerate(LEVELS)}
    order = [
        (list(Effect).index(fault.effect), fault.network, ranks[fault.level])
        for fault in every
    ]

    assert order == sorted(order)


@pytest.mark.property
@given(reports)
def test_each_chip_has_one_fault_of_its_own_at_most_and_its_worst_level(
    info: DeviceInfo,
) -> None:
    every = chip_faults.chip_faults(info)
    order = ["Unknown", *LEVELS]

    parts = [(fault.chip, fault.network) for fault in every]
    assert parts == sorted(set(parts))
    for fault in every:
        levels = [
            each.level
            for each in info.faults
            if (each.chip, each.network) == (fault.chip, fault.network)
        ]
        worst = min(levels, key=order.index, default=None)
        assert fault.level in {worst, None}
        assert (fault.effect in {OUT, RECOVERING}) == (
            fault.chip in {*info.unhealthy, *info.recovering}
        )


#: {level: how long a fault of a pod's chip lasts before the pod moves; None: it stays}
SETTLE_S = {
    "ManuallySeparateNPU": 0,
    "SeparateNPU": 0,
    "PreSeparateNPU": None,
    "RestartNPU": 0,
    "FreeRestartNPU": 0,
    "RestartBusiness": 10,
    "RestartRequest": 10,
    "SubHealthFault": None,
    "NotHandleFault": None,
    "NormalNPU": None,
}


@pytest.mark.parametrize("level", [*LEVELS, "Level2030", None])
@pytest.mark.parametrize("effect", Effect)
@pytest.mark.parametrize("network", [False, True])
def test_a_fault_moves_a_pod_by_its_level_and_what_it_does(
    level: str | None, effect: Effect, *, network: bool
) -> None:
    """Of an unknown level a chip out of service moves its pod at once."""
    fault = ChipFault(chip=0, network=network, effect=effect, level=level)
    is_out = effect in {OUT, NETWORK}
    expected = SETTLE_S.get(level or "", 0 if is_out else None)
    if network or effect is RECOVERING:
        expected = None

    assert SETTLE_S.keys() == set(LEVELS)
    assert chip_faults.settle_s(fault) == expected
