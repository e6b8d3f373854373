import pytest

from scheduler_core.wire import configuration
from scheduler_core.wire.addresses import Address, Addresses


def test_the_text_is_what_training_programs_read_today() -> None:
    text = configuration.render("train-0", "4f0c-uid", "10.0.0.5", (10, 2), Addresses())

    assert text == (
        '{"pod_name":"train-0","server_id":"4f0c-uid","host_ip":"10.0.0.5",'
        '"super_pod_id":-2,"devices":['
        '{"device_id":"2","device_ip":"-1","super_device_id":"-2"},'
        '{"device_id":"10","device_ip":"-1","super_device_id":"-2"}],'
        '"rack_id":0,"server_index":"-2","server_ip":"10.0.0.5"}'
    )


def test_addresses_are_told_as_far_as_they_are_known() -> None:
    where = Addresses(
        super_pod_id=3,
        server_index=7,
        chips={1: Address(ip="192.168.20.102", super_device_id=8)},
    )

    text = configuration.render("train-0", "4f0c-uid", "10.0.0.5", (0, 1), where)

    assert text == (
        '{"pod_name":"train-0","server_id":"4f0c-uid","host_ip":"10.0.0.5",'
        '"super_pod_id":3,"devices":['
        '{"device_id":"0","device_ip":"-1","super_device_id":"-2"},'
        '{"device_id":"1","device_ip":"192.168.20.102","super_device_id":"8"}],'
        '"rack_id":0,"server_index":"7","server_ip":"10.0.0.5"}'
    )


def test_d28_the_addresses_that_were_told_are_read_again() -> None:
    given = {
        0: Address(),
        1: Address(ip="192.168.20.102", super_device_id=8),
        2: Address(ip="2001:db8::2"),
    }
    text = configuration.render("train-0", "uid", "", given, Addresses(chips=given))

    assert configuration.parse_devices(text) == given


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        "{}",
        '{"devices":[1]}',
        '{"devices":[{"device_id":"0","device_ip":{},"super_device_id":"1"}]}',
        '{"devices":[{"device_id":"0","device_ip":"x","super_device_id":"1"}]}',
        '{"devices":[{"device_id":"0","device_ip":"-1","super_device_id":"x"}]}',
    ],
)
def test_d28_of_a_text_of_another_kind_no_address_is_read(text: str) -> None:
    assert configuration.parse_devices(text) == {}
