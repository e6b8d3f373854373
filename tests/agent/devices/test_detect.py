"""Which driver is taken, and in which words that is said."""

from pathlib import Path

from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.simulated.driver import SimulatedDriver
from agent.settings import Settings
from agent.wiring import choose_driver
from service import settings


def wish(kind: str, library: Path | None = None) -> Settings:
    flags = ["--node-name=node-1", f"--driver={kind}"]
    flags += [f"--dcmi-library={library}"] if library else []
    return settings.load(Settings, flags, {})


async def chosen(told: Settings, folder: Path) -> tuple[type, str, str]:
    found = await choose_driver(told, {"LD_LIBRARY_PATH": str(folder)})
    driver, kind, reason = found
    return type(driver), kind, reason.partition(", ")[0]


async def test_auto_takes_the_library_where_there_is_one(tmp_path: Path) -> None:
    without = await chosen(wish("auto"), tmp_path)
    (tmp_path / "libdcmi.so").touch()
    found = await chosen(wish("auto"), tmp_path)

    assert without == (SimulatedDriver, "simulated", f"no libdcmi.so in {tmp_path}")
    assert found == (DcmiDriver, "dcmi", f"{tmp_path}/libdcmi.so")


async def test_what_was_asked_for_is_taken_whatever_is_found(tmp_path: Path) -> None:
    told = tmp_path / "lib" / "libdcmi.so"
    asked = await chosen(wish("dcmi", told), tmp_path)
    missing = await chosen(wish("dcmi"), tmp_path)
    (tmp_path / "libdcmi.so").touch()

    assert await chosen(wish("simulated"), tmp_path) == (
        SimulatedDriver,
        "simulated",
        "as told",
    )
    assert asked == (DcmiDriver, "dcmi", str(told))
    assert missing == (DcmiDriver, "dcmi", "/usr/local/dcmi/libdcmi.so")
