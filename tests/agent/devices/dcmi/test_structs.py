"""The structures as ctypes has them, and as a compiler has them."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from agent.devices.dcmi import structs

STRUCTURES = {
    "dcmi_chip_info_v2": structs.ChipInfo,
    "dcmi_board_info": structs.BoardInfo,
    "dcmi_ip_addr": structs.IpAddress,
    "dcmi_hbm_info": structs.HbmInfo,
    "dcmi_spod_info": structs.SuperPodInfo,
    "dcmi_vdev_query_info": structs.VirtualInfo,
    "dcmi_vdev_query_stru": structs.VirtualQuery,
    "dcmi_soc_total_resource": structs.TotalResource,
    "dcmi_proc_mem_info": structs.ProcessInfo,
    "dcmi_dms_fault_event": structs.FaultEvent,
    "dcmi_event": structs.Event,
    "dcmi_event_filter": structs.EventFilter,
}


@pytest.mark.parametrize(
    ("structure", "size"),
    [
        (structs.FaultEvent, 352),
        (structs.Event, 360),
        (structs.EventFilter, 48),
        (structs.IpAddress, 20),
        (structs.HbmInfo, 32),
        (structs.SuperPodInfo, 48),
    ],
)
def test_structures_have_the_sizes_of_the_drivers_header(
    structure: type[ctypes.Structure], size: int
) -> None:
    assert ctypes.sizeof(structure) == size


def test_fields_of_an_event_lie_where_the_driver_writes_them() -> None:
    assert structs.FaultEvent.alarm_raised_time.offset == 24
    assert structs.FaultEvent.event_name.offset == 32
    assert structs.Event.event_t.offset == 8


def test_a_compiler_agrees_about_every_field(layout_program: Path) -> None:
    said = subprocess.run(  # noqa: S603  # our own program
        [layout_program], check=True, capture_output=True, text=True
    )

    expected = []
    for name, structure in STRUCTURES.items():
        expected.append(f"{name} {ctypes.sizeof(structure)}")
        for field, *_ in structure._fields_:
            if (name, field) != ("dcmi_ip_addr", "octets"):  # a union's first member
                offset = getattr(structure, field).offset
                expected.append(f"{name}.{field} {offset}")
    assert said.stdout.split("\n")[:-1] == expected
