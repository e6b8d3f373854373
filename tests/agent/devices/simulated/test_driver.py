"""The simulated driver: a file that is edited while the agent runs."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.devices.driver import DriverFileError
from agent.devices.reading import ChipFault, Reading
from agent.devices.simulated.driver import SimulatedDriver
from scheduler_core.products.table import PRODUCTS

MACHINE = "product: atlas-800-training\n"
FAULT_ON_3 = MACHINE + 'faults: [{chip: 3, code: "80E01801"}]\n'
FAULT_ON_5 = FAULT_ON_3.replace("chip: 3", "chip: 5")
FAULTS_ON_3_AND_4 = (
    MACHINE + 'faults: [{chip: 3, code: "80E01801"}, {chip: 4, code: "80E01801"}]\n'
)


class Clock:
    def __init__(self) -> None:
        self.ms = 1000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a machine with a fault."""
    found = tmp_path / "npu.yaml"
    found.write_text(FAULT_ON_3)
    return found


def write(path: Path, text: str) -> None:
    path.write_text(text)


def driver_on(path: Path, wall_ms: Callable[[], int] | None = None) -> SimulatedDriver:
    return SimulatedDriver(path, poll_s=0.01, wall_ms=wall_ms or Clock())


async def flaw_of(driver: SimulatedDriver) -> str:
    with pytest.raises(DriverFileError) as caught:
        await driver.read()
    return str(caught.value)


async def test_a_fault_is_dated_when_it_is_first_seen(path: Path) -> None:
    clock = Clock()
    driver = driver_on(path, clock)
    await driver.read()
    clock.ms = 2000
    write(path, FAULTS_ON_3_AND_4)

    reading = await driver.read()

    assert reading.faults == (
        ChipFault(chip=3, code="80E01801", since_ms=1000),
        ChipFault(chip=4, code="80E01801", since_ms=2000),
    )


async def test_an_unchanged_file_gives_an_equal_reading(path: Path) -> None:
    clock = Clock()
    driver = driver_on(path, clock)
    first = await driver.read()
    clock.ms = 2000

    assert await driver.read() == first


async def faults_after(driver: SimulatedDriver) -> list[int]:
    reading: Reading = await driver.read()
    return [fault.chip for fault in reading.faults]


def rewritten(path: Path) -> None:
    path.write_text(FAULT_ON_5)


def rewritten_and_dated_back(path: Path) -> None:
    before = path.stat()
    path.write_text(FAULT_ON_5)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced_by_one_of_the_same_date(path: Path) -> None:
    before, new = path.stat(), path.with_suffix(".new")
    new.write_text(FAULT_ON_5)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.rename(path)


def renamed(path: Path) -> None:
    path.with_suffix(".new").write_text(FAULT_ON_5)
    path.with_suffix(".new").rename(path)


@pytest.mark.parametrize("before", [MACHINE, FAULT_ON_3])
@pytest.mark.parametrize("edit", [rewritten, renamed])
async def test_an_edit_in_the_same_moment_is_picked_up(
    path: Path, before: str, edit: Callable[[Path], None]
) -> None:
    write(path, before)
    driver = driver_on(path)
    await driver.read()
    edit(path)

    assert await faults_after(driver) == [5]


@pytest.mark.parametrize(
    "edit", [rewritten, rewritten_and_dated_back, replaced_by_one_of_the_same_date]
)
async def test_news_of_a_file_is_any_edit_of_it(
    path: Path, edit: Callable[[Path], None]
) -> None:
    driver = driver_on(path)
    before = await faults_after(driver)
    told = asyncio.create_task(driver.wait_for_news(3600.0))
    await asyncio.sleep(0.05)
    was_told = told.done()
    edit(path)

    assert await told
    assert (was_told, before, await faults_after(driver)) == (False, [3], [5])
    await driver.close()


async def test_without_news_nobody_waits_longer_than_asked(path: Path) -> None:
    driver = driver_on(path)
    await driver.read()

    assert not await driver.wait_for_news(0.02)
    assert await faults_after(driver) == [3]
    await driver.close()


async def test_closing_ends_a_wait(path: Path) -> None:
    driver = SimulatedDriver(path, poll_s=3600.0, wall_ms=Clock())
    await driver.read()
    told = asyncio.create_task(driver.wait_for_news(3600.0))
    await asyncio.sleep(0.05)
    was_told = told.done()
    await driver.close()

    assert await told
    assert not was_told


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 32)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "flaw"),
    [
        (Path.unlink, "expected a readable file, found No such file or directory"),
        (make_folder, "expected a readable file, found Is a directory"),
        (
            lambda path: path.write_text(""),
            "document: expected an object, found nothing",
        ),
        (
            lambda path: path.write_bytes(b"\xff"),
            "byte 0: expected UTF-8, found invalid start byte",
        ),
        (make_huge, "expected at most 1048576 bytes, found more"),
    ],
    ids=["absent", "a directory", "empty", "not text", "huge"],
)
async def test_a_file_that_cannot_be_read_is_an_error_with_its_path(
    path: Path, spoil: Callable[[Path], object], flaw: str
) -> None:
    spoil(path)

    assert await flaw_of(driver_on(path)) == f"{path}: {flaw}"


async def test_another_product_needs_another_agent(path: Path) -> None:
    driver = driver_on(path)
    await driver.read()
    write(path, "product: other\n")

    keys = ", ".join(product.key for product in PRODUCTS)
    assert await flaw_of(driver) == (
        f"{path}: product: expected one of {keys}, found 'other'"
    )


async def test_a_file_that_is_mended_is_read_again(path: Path) -> None:
    clock = Clock()
    driver = driver_on(path, clock)
    before = await driver.read()
    write(path, "product: [")
    await flaw_of(driver)
    await flaw_of(driver)
    write(path, FAULT_ON_3)
    clock.ms = 2000

    assert await driver.read() == before


async def test_lines_beside_the_first_are_dated_and_cannot_change(
    path: Path,
) -> None:
    lines = "product: atlas-800-training\nbeside: [{product: atlas-310p, chips: [8]}]\n"
    driver = driver_on(path)
    write(path, f'{lines}faults: [{{chip: 8, code: "80E01801"}}]\n')
    reading = await driver.read()
    write(path, lines.replace("[8]", "[8, 9]"))
    flaw = await flaw_of(driver)

    (beside,) = reading.other_lines
    assert beside.faults == (ChipFault(chip=8, code="80E01801", since_ms=1000),)
    assert flaw == (
        f"{path}: product: expected 'atlas-800-training [0, 1, 2, 3, 4, 5, 6, 7], "
        "atlas-310p [8]', as when the agent started, found 'atlas-800-training "
        "[0, 1, 2, 3, 4, 5, 6, 7], atlas-310p [8, 9]'"
    )


BESIDE = MACHINE + "beside: [{product: atlas-310p, chips: [8, 9]}]\n"


def shows(path: Path, *uses: tuple[int, int]) -> None:
    """Have the second file show processes: (chip, pid)."""
    words = [f"{{chip: {chip}, pid: {pid}}}" for chip, pid in uses]
    write(path.with_suffix(".processes.yaml"), f"processes: [{', '.join(words)}]\n")


def processes(reading: Reading) -> list[list[tuple[int, int]]]:
    """Those of each line."""
    return [[(use.chip, use.pid) for use in line.processes] for line in reading.lines]


async def test_processes_of_containers_come_from_a_second_file(path: Path) -> None:
    write(path, BESIDE + "processes: [{chip: 1, pid: 7}]\n")
    driver = driver_on(path)
    without = await driver.read()
    shows(path, (8, 5), (1, 6), (1, 7), (70, 1))
    with_them = await driver.read()
    path.with_suffix(".processes.yaml").unlink()

    assert processes(without) == processes(await driver.read()) == [[(1, 7)], []]
    assert processes(with_them) == [[(1, 6), (1, 7)], [(8, 5)]]


async def test_processes_are_looked_at_when_the_wait_is_over_and_when_asked(
    path: Path,
) -> None:
    driver = driver_on(path)
    shows(path)
    await driver.read()
    told = asyncio.create_task(driver.wait_for_news(0.1))
    await asyncio.sleep(0.02)
    shows(path, (1, 7))
    await asyncio.sleep(0.03)
    was_told, is_news = told.done(), await told
    await driver.read()
    is_again = await driver.wait_for_news(0.01)
    shows(path)
    asked = asyncio.create_task(driver.wait_for_news(3600.0))
    await asyncio.sleep(0.02)
    driver.look_now()

    assert (was_told, is_news, is_again, await asked) == (False, True, False, True)
    assert processes(await driver.read()) == [[]]
    await driver.close()


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        (b"processes: [", "expected YAML"),
        (b"processes: [{chip: 1}]", "processes[0].pid: expected a process id"),
        (b"faults: []", "faults: no such key, expected one of processes"),
        (b"\xff", "byte 0: expected UTF-8"),
    ],
)
async def test_a_second_file_with_errors_is_an_error_with_its_path(
    path: Path, text: bytes, flaw: str
) -> None:
    second = path.with_suffix(".processes.yaml")
    second.write_bytes(text)
    found = await flaw_of(driver_on(path))

    assert found.startswith(f"{second}: ")
    assert flaw in found
