"""How chips come into containers: the answers to Allocate, and the CDI spec."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import text_format

from agent.claims.values import Hold
from agent.devices.board_size import fit_row
from agent.devices.reading import Reading, VirtualDevice
from agent.plugin import cdi, mounts
from agent.plugin.mounts import MountMethod, Mounts
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING
from tests.agent.conftest import Compare

HOLD = Hold(
    sequence=1,
    kubelet_ids=("Ascend910-0", "Ascend910-1"),
    chips=(10, 2),
    slot="uid-pod",
    need=0,
)
TRAINING = Reading(product=ATLAS_800_TRAINING, chip_name="910A", chips=tuple(range(8)))
CUT = replace(TRAINING, virtual=(VirtualDevice(chip=7, number=100, kind="4c"),))
BOX = Reading(
    product=table.by_key("atlas-a2-box16"),
    chip_name="910B3",
    chips=tuple(range(16)),
)
CARDS_310B = Reading(
    product=fit_row("atlas-300i-chip", 3), chip_name="310B1", chips=(0, 1, 2, 3)
)
SIMULATED = Reading(product=ATLAS_800_TRAINING, chips=(0,), stand_in="/dev/null")

#: Devices that are on no server at once; what is looked for is taken from them.
EVERYTHING = (
    *("davinci_manager", "hisi_hdc", "devmm_svm", "davinci0", "null", "sda"),
    *("uburma/uburma1", "uburma/uburma0", "ummu/deep/tid", "ummu/tid"),
)
OF_310B = ("davinci_manager_docker", "venc", "hdmi", "svm0")


def dev(root: Path, *names: str) -> Path:
    """A folder of devices."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def mounting_of(
    mount: MountMethod, reading: Reading, root: Path, *devices: str
) -> Mounts:
    """What mounts the chips of a reading, on a node with these devices."""
    (root / "cdi").mkdir()
    devices_dir = dev(root / "dev", *devices)
    return Mounts(
        mount, last_reading=lambda: reading, cdi_dir=root / "cdi", dev=devices_dir
    )


@pytest.mark.seed("000-04")
@pytest.mark.parametrize(
    ("name", "mount", "reading", "devices"),
    [
        ("runtime", MountMethod.RUNTIME, TRAINING, ()),
        ("runtime-310b", MountMethod.RUNTIME, CARDS_310B, ()),
        ("runtime-simulated", MountMethod.RUNTIME, SIMULATED, ()),
        ("native-910", MountMethod.NATIVE, BOX, EVERYTHING),
        ("native-310b", MountMethod.NATIVE, CARDS_310B, (*EVERYTHING, *OF_310B)),
        ("native-simulated", MountMethod.NATIVE, SIMULATED, ()),
        ("cdi", MountMethod.CDI, BOX, EVERYTHING),
    ],
)
def test_the_answer_to_allocate(  # a case, and where it happens
    name: str,
    mount: MountMethod,
    reading: Reading,
    devices: tuple[str, ...],
    tmp_path: Path,
    compare: Compare,
) -> None:
    asked = mounting_of(mount, reading, tmp_path, *devices)

    assert asked.problem() is None
    answer = text_format.MessageToString(asked.answer(HOLD))
    compare(f"allocate-{name}.txt", answer)


@pytest.mark.parametrize("mount", list(MountMethod))
def test_the_answer_to_allocate_for_a_part_of_a_chip(
    mount: MountMethod, tmp_path: Path, compare: Compare
) -> None:
    part = VirtualDevice(chip=7, number=100, kind="4c.3cpu")
    reading = replace(TRAINING, virtual=(part,))
    devices = ("davinci_manager", "hisi_hdc", "davinci7", "vdavinci100")
    asked = mounting_of(mount, reading, tmp_path, *devices)

    assert asked.problem() is None
    answer = text_format.MessageToString(asked.answer_virtual(part))
    compare(f"allocate-virtual-{mount.value}.txt", answer)
    if mount is MountMethod.CDI:
        spec = json.loads((tmp_path / "cdi" / cdi.FILE).read_text())
        assert spec["devices"][-1] == {
            "name": "v100",
            "containerEdits": {
                "deviceNodes": [
                    {
                        "path": "/dev/davinci100",
                        "hostPath": "/dev/vdavinci100",
                        "permissions": "rw",
                    }
                ]
            },
        }


def test_the_spec_of_a_node(tmp_path: Path, compare: Compare) -> None:
    asked = mounting_of(MountMethod.CDI, TRAINING, tmp_path, *EVERYTHING)

    assert asked.problem() is None
    path = tmp_path / "cdi" / cdi.FILE
    compare("cdi.json", path.read_text())
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in (tmp_path / "cdi").iterdir()] == [cdi.FILE]


def test_every_name_that_is_answered_is_in_the_spec(tmp_path: Path) -> None:
    asked = mounting_of(MountMethod.CDI, BOX, tmp_path, *EVERYTHING)

    assert asked.problem() is None
    spec = json.loads((tmp_path / "cdi" / cdi.FILE).read_text())
    known = {f"{spec['kind']}={each['name']}" for each in spec["devices"]}
    asked_for = [each.name for each in asked.answer(HOLD).cdi_devices]
    assert asked_for == [f"{cdi.KIND}=2", f"{cdi.KIND}=10"]
    assert set(asked_for) <= known


def test_a_spec_that_was_removed_or_changed_is_put_back(tmp_path: Path) -> None:
    asked = mounting_of(MountMethod.CDI, TRAINING, tmp_path, *EVERYTHING)
    path = tmp_path / "cdi" / cdi.FILE
    asked.problem()
    first = path.read_text()
    inode = path.stat().st_ino

    asked.problem()
    assert path.stat().st_ino == inode  # not written without need
    path.unlink()
    asked.problem()
    assert path.read_text() == first
    path.write_text("{}")
    asked.problem()
    assert path.read_text() == first


@pytest.mark.parametrize(
    ("has_holds", "reading", "is_left"),
    [(True, TRAINING, True), (False, TRAINING, False), (False, CUT, True)],
)
def test_the_spec_goes_with_the_agent_unless_a_container_may_need_it(
    tmp_path: Path, has_holds: bool, reading: Reading, is_left: bool
) -> None:
    asked = mounting_of(MountMethod.CDI, reading, tmp_path, *EVERYTHING)
    asked.problem()

    asked.clean_up(has_holds=has_holds)

    assert (tmp_path / "cdi" / cdi.FILE).exists() is is_left


def test_a_spec_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    asked = mounting_of(MountMethod.CDI, TRAINING, tmp_path, *EVERYTHING)
    (tmp_path / "cdi").rmdir()

    said = asked.problem()

    assert said is not None
    assert said.startswith(f"the CDI spec cannot be written to {tmp_path}/cdi: ")


@pytest.mark.parametrize("mount", [MountMethod.NATIVE, MountMethod.CDI])
def test_without_a_driver_nobody_gets_a_chip(
    tmp_path: Path, mount: MountMethod
) -> None:
    assert mounting_of(mount, TRAINING, tmp_path, "davinci0").problem() == (
        "this node has no /dev/davinci_manager: its driver is not loaded"
    )


@pytest.mark.parametrize(
    ("told", "environment", "reading", "devices", "found"),
    [
        ("cdi", {}, TRAINING, (), MountMethod.CDI),
        ("native", {"ASCEND_DOCKER_RUNTIME": "True"}, TRAINING, (), MountMethod.NATIVE),
        (
            "auto",
            {"ASCEND_DOCKER_RUNTIME": "True"},
            TRAINING,
            EVERYTHING,
            MountMethod.RUNTIME,
        ),
        (
            "auto",
            {"ASCEND_DOCKER_RUNTIME": "False"},
            TRAINING,
            EVERYTHING,
            MountMethod.NATIVE,
        ),
        ("auto", {}, TRAINING, EVERYTHING, MountMethod.NATIVE),
        ("auto", {}, TRAINING, (), MountMethod.RUNTIME),
        ("auto", {}, SIMULATED, EVERYTHING, MountMethod.RUNTIME),
    ],
)
def test_who_mounts_is_found_out(  # a case, and where it happens
    told: str,
    environment: dict[str, str],
    reading: Reading,
    devices: tuple[str, ...],
    found: MountMethod,
    tmp_path: Path,
) -> None:
    root = dev(tmp_path, *devices)

    assert mounts.resolve(told, environment, reading, root) is found
