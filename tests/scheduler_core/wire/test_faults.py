"""Separated chips, reasons and switches, as the ConfigMap has them."""

import pytest

from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import faults
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.faults import UpgradeReason


def test_the_list_of_separated_chips_is_read_as_people_write_it() -> None:
    text = " Ascend910-3, Ascend910-0,,Ascend910-3"

    assert faults.parse_separated(text, PRODUCT) == (0, 3)
    assert faults.parse_separated("", PRODUCT) == ()


def test_a_name_that_is_no_chip_is_said_with_its_place() -> None:
    with pytest.raises(WireError) as caught:
        faults.parse_separated("Ascend910-0,Ascend910-O", PRODUCT)

    assert str(caught.value) == (
        "ManuallySeparateNPU[1]: expected a chip from Ascend910-0 to Ascend910-7, "
        "found 'Ascend910-O'"
    )


REASONS = (
    UpgradeReason(
        chip=0, code="81078603", level="PreSeparateNPU", type="FaultDuration", time_ms=7
    ),
    UpgradeReason(
        chip=3, code="", level="ManuallySeparateNPU", type="FaultAutofill", time_ms=9
    ),
)


def test_reasons_byte_for_byte_and_back() -> None:
    text = faults.render_upgrades_of_lines([(REASONS, PRODUCT)])

    assert text == (
        '{"Ascend910-0":[{"upgrade_time":7,"fault_code":"81078603",'
        '"fault_level":"PreSeparateNPU","upgrade_type":"FaultDuration"}],'
        '"Ascend910-3":[{"upgrade_time":9,"fault_code":"",'
        '"fault_level":"ManuallySeparateNPU","upgrade_type":"FaultAutofill"}]}'
    )
    assert faults.parse_upgrades(text, PRODUCT) == REASONS
    assert faults.render_upgrades_of_lines([((), PRODUCT)]) == "{}"


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"x":[]', '{"Ascend910-9":[{}]}', '{"Ascend910-0":{}}'],
)
def test_reasons_of_another_kind_are_refused(text: str) -> None:
    with pytest.raises(WireError):
        faults.parse_upgrades(text, PRODUCT)


def test_levels_are_ordered_as_by_mindcluster_and_an_unknown_one_is_worst() -> None:
    ordered = [
        "Unknown",
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
    ]

    assert sorted(sorted(ordered), key=faults.rank_level) == ordered


def test_a_node_without_switch_faults_byte_for_byte() -> None:
    assert faults.render_switch(1_700_000_000) == (
        '{"FaultCode":[],"FaultLevel":"","UpdateTime":1700000000,'
        '"NodeStatus":"Healthy","FaultTimeAndLevelMap":{}}'
    )
