import json
import random  # noqa: TID251  # with a seed
from pathlib import Path

import pytest

from kubelet_api.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet import checkpoint
from sandbox.kubelet.devices import Assignment, DeviceTables


def empty() -> DeviceTables:
    return DeviceTables(chance=random.Random(0))  # noqa: S311  # an order, not a secret


def filled() -> DeviceTables:
    tables = empty()
    tables.connected("example.com/chips")
    tables.reported("example.com/chips", {"d0": "Healthy", "d1": "Unhealthy"})
    tables.assignments["uid", "main", "example.com/chips"] = Assignment(
        ids=frozenset({"d0", "d1"}),
        response=api_pb2.ContainerAllocateResponse(envs={"A": "1"}),
    )
    return tables


def test_assignments_come_back_and_devices_do_not(tmp_path: Path) -> None:
    written = filled()
    checkpoint.write(tmp_path / checkpoint.NAME, written)

    read = empty()
    checkpoint.read(tmp_path / checkpoint.NAME, read, now=7.0)

    assert read.assignments == written.assignments
    assert read.allocated == {"example.com/chips": {"d0", "d1"}}
    assert read.endpoints == {"example.com/chips": 7.0}
    assert read.capacity(now=8.0) == (
        {"example.com/chips": 0},
        {"example.com/chips": 0},
    )


def test_the_file_has_the_real_ones_fields(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / checkpoint.NAME, filled())

    stored = json.loads((tmp_path / "kubelet_internal_checkpoint").read_text())

    assert stored["Data"] == {
        "PodDeviceEntries": [
            {
                "PodUID": "uid",
                "ContainerName": "main",
                "ResourceName": "example.com/chips",
                "DeviceIDs": {"-1": ["d0", "d1"]},
                "AllocResp": "CgYKAUESATE=",
            }
        ],
        "RegisteredDevices": {"example.com/chips": ["d0"]},
    }


def test_a_file_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.NAME
    checkpoint.write(path, filled())
    path.write_text(path.read_text().replace("d1", "d2"))

    with pytest.raises(ValueError, match="checksum does not fit"):
        checkpoint.read(path, empty(), now=0.0)


def test_no_file_is_an_empty_node(tmp_path: Path) -> None:
    tables = empty()

    checkpoint.read(tmp_path / checkpoint.NAME, tables, now=0.0)

    assert tables.assignments == {}
