"""Reports that somebody has edited: refused, with the place that is wrong."""

import json

import pytest

from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import deviceinfo
from scheduler_core.wire.annotations import WireError

RESOURCE = PRODUCT.resource


def listing(**fields: object) -> str:
    return json.dumps({"DeviceInfo": {"DeviceList": {RESOURCE: ""}, **fields}})


def faulty(*items: object) -> str:
    listed = {f"{RESOURCE}-Fault": json.dumps(items)}
    return json.dumps({"DeviceInfo": {"DeviceList": listed, "UpdateTime": 1}})


LIST = "DeviceInfoCfg.DeviceInfo.DeviceList"
FAULT = f"{LIST}['huawei.com/Ascend910-Fault']"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "DeviceInfoCfg: expected JSON (Expecting value"),
        ("[]", "DeviceInfoCfg: expected an object, found []"),
        ("{}", "DeviceInfoCfg.DeviceInfo: expected an object, found None"),
        (
            '{"DeviceInfo":{"UpdateTime":1}}',
            f"{LIST}: expected an object, found None",
        ),
        (
            listing(),
            "DeviceInfoCfg.DeviceInfo.UpdateTime: expected a whole number, found None",
        ),
        (
            listing(UpdateTime=True),
            "DeviceInfoCfg.DeviceInfo.UpdateTime: expected a whole number, found True",
        ),
        (
            listing(UpdateTime=1, DeviceList={RESOURCE: 3}),
            f"{LIST}['huawei.com/Ascend910']: expected a text, found 3",
        ),
        (
            listing(UpdateTime=1, DeviceList={RESOURCE: "Ascend910-0,"}),
            f"{LIST}['huawei.com/Ascend910'][1]: expected a chip from Ascend910-0 to",
        ),
        (
            listing(UpdateTime=1, DeviceList={f"{RESOURCE}-Fault": "{}"}),
            f"{FAULT}: expected a list, found {{}}",
        ),
        (faulty(7), f"{FAULT}[0]: expected an object, found 7"),
        (faulty({}), f"{FAULT}[0].npu_name: expected a chip from"),
        (
            faulty({"npu_name": "Ascend910-0"}),
            f"{FAULT}[0].fault_level: expected a text, found None",
        ),
    ],
)
def test_a_report_that_was_edited_badly_is_refused_with_the_place(
    text: str, message: str
) -> None:
    with pytest.raises(WireError) as caught:
        deviceinfo.parse_device_info(text, PRODUCT)

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "AscendAffinity: expected JSON (Expecting value"),
        ("{}", "AscendAffinity.version: expected 1, found None"),
        ('{"version":2}', "AscendAffinity.version: expected 1, found 2"),
        (
            '{"version":1}',
            "AscendAffinity.sequence: expected a whole number, found None",
        ),
        (
            '{"version":1,"sequence":1,"held":"Ascend910-0"}',
            "AscendAffinity.held: expected a list, found 'Ascend910-0'",
        ),
        (
            '{"version":1,"sequence":1,"lost":["Ascend910-9"]}',
            "AscendAffinity.lost[0]: expected a chip from Ascend910-0 to Ascend910-7",
        ),
        (
            '{"version":1,"sequence":1,"products":"atlas-a2-8"}',
            "AscendAffinity.products: expected a list, found 'atlas-a2-8'",
        ),
        (
            '{"version":1,"sequence":1,"products":[8]}',
            "AscendAffinity.products[0]: expected a text, found 8",
        ),
    ],
)
def test_holds_that_are_not_quite_right_are_refused(text: str, message: str) -> None:
    with pytest.raises(WireError) as caught:
        deviceinfo.parse_affinity(text, PRODUCT)

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "faults", ["", "{", "{}", "[7]", "[{}]", '[{"npu_name":"Ascend910-2c-100-1"}]']
)
def test_malformed_faults_leave_the_lists_of_chips_readable(faults: str) -> None:
    """The last names a virtual device, as MindCluster's device plugin does."""
    listed = {f"{RESOURCE}-Unhealthy": "Ascend910-3", f"{RESOURCE}-Fault": faults}
    text = json.dumps({"DeviceInfo": {"DeviceList": listed, "UpdateTime": 1}})

    assert deviceinfo.parse_without_faults(text, PRODUCT) == deviceinfo.DeviceInfo(
        unhealthy=(3,), update_time=1
    )


def test_malformed_lists_of_chips_are_refused_without_the_faults_too() -> None:
    text = listing(UpdateTime=1, DeviceList={f"{RESOURCE}-Unhealthy": "Ascend910-x"})

    with pytest.raises(WireError, match="Ascend910-x"):
        deviceinfo.parse_without_faults(text, PRODUCT)
