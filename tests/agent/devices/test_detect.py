"""Which driver is taken, and in which words that is said."""

from pathlib import Path

from agent.devices import detect
from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.detect import DriverSettings, choose_driver
from agent.devices.simulated.driver import SimulatedDriver


def wish(kind: str, library: Path | None = None) -> DriverSettings:
    return DriverSettings(
        kind=kind,
        file=Path("npu.yaml"),
        poll_s=0.2,
        library=library,
        product="",
        call_s=1.0,
    )


def chosen(told: DriverSettings, folder: Path) -> tuple[type, str, str]:
    choice = choose_driver(
        told, wall_ms=lambda: 0, environment={"LD_LIBRARY_PATH": str(folder)}
    )
    return type(choice.driver), choice.kind, choice.reason.partition(", ")[0]


def test_auto_takes_the_library_where_there_is_one(tmp_path: Path) -> None:
    without = chosen(wish(detect.AUTO), tmp_path)
    (tmp_path / "libdcmi.so").touch()
    found = chosen(wish(detect.AUTO), tmp_path)

    assert without == (SimulatedDriver, "simulated", f"no libdcmi.so in {tmp_path}")
    assert found == (DcmiDriver, "dcmi", f"{tmp_path}/libdcmi.so")


def test_what_was_asked_for_is_taken_whatever_is_found(tmp_path: Path) -> None:
    told = tmp_path / "lib" / "libdcmi.so"
    asked = chosen(wish(detect.DCMI, told), tmp_path)
    missing = chosen(wish(detect.DCMI), tmp_path)
    (tmp_path / "libdcmi.so").touch()

    assert chosen(wish(detect.SIMULATED), tmp_path) == (
        SimulatedDriver,
        "simulated",
        "as told",
    )
    assert asked == (DcmiDriver, "dcmi", str(told))
    assert missing == (DcmiDriver, "dcmi", "/usr/local/dcmi/libdcmi.so")
