"""How often the kubelet is asked who else there is, and what that notices."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from agent.plugin.rivals import LATE_LOOKS, LOOK_EACH_S, Rivals

OURS = frozenset({"Ascend910-0", "Ascend910-1"})
THEIRS = frozenset({"npu-0"})


def listening(path: Path) -> socket.socket:
    """A plugin's socket that takes connections until it is closed."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


class Looking:
    """A plugin that has just registered and looks around, each second."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.allocatable_ids = OURS
        #: what it has listed before
        self.earlier_ids: list[frozenset[str]] = []
        #: seconds from the first look at which the kubelet was asked
        self.asked: list[int] = []
        self._second = 0
        self._rivals = Rivals(
            directory / "Ascend910.sock",
            resource="huawei.com/Ascend910",
            allocatable_ids=self,
        )

    async def __call__(self) -> frozenset[str]:
        self.asked.append(self._second)
        return self.allocatable_ids

    async def look(self, for_s: int) -> int:
        """Look for so long; return after how many seconds a rival was seen, or 0."""
        for second in range(1, for_s + 1):
            if await self._rivals.find_while_registered(0, OURS, self.earlier_ids):
                return second
            await asyncio.sleep(LOOK_EACH_S)
            self._second += 1
        return 0


@pytest.mark.looptime
async def test_while_no_plugin_comes_the_kubelet_is_asked_each_quarter_minute(
    tmp_path: Path,
) -> None:
    looking = Looking(tmp_path)

    await looking.look(90)

    assert looking.asked == [*range(31), 45, 60, 75]


@pytest.mark.looptime
async def test_after_something_has_come_into_its_directory_it_is_asked_each_second(
    tmp_path: Path,
) -> None:
    os.utime(tmp_path, (0, 0))  # not within one tick with what comes
    looking = Looking(tmp_path)
    await looking.look(40)
    looking.asked.clear()

    (tmp_path / "Other910.sock").touch()
    await looking.look(44)

    assert looking.asked == [*range(40, 71)]


@pytest.mark.looptime
async def test_a_plugin_that_has_been_there_all_the_time_is_seen_as_well(
    tmp_path: Path,
) -> None:
    with listening(tmp_path / "Other910.sock"):
        looking = Looking(tmp_path)
        await looking.look(31)

        looking.allocatable_ids = THEIRS

        assert await looking.look(30) == 17


@pytest.mark.looptime
async def test_other_devices_are_nobodys_while_no_other_plugin_listens(
    tmp_path: Path,
) -> None:
    looking = Looking(tmp_path)

    looking.allocatable_ids = THEIRS

    assert await looking.look(30) == 0


@pytest.mark.looptime
async def test_a_kubelet_that_reads_lists_late_has_no_other_plugin_for_a_minute(
    tmp_path: Path,
) -> None:
    with listening(tmp_path / "rdma.sock"):
        looking = Looking(tmp_path)
        looking.earlier_ids = [THEIRS, OURS]
        looking.allocatable_ids = THEIRS

        assert await looking.look(100) == LATE_LOOKS


@pytest.mark.parametrize("name", ["Ascend310P.sock", "Ascend910-4c.1cpu.sock"])
async def test_a_plugin_for_another_line_or_for_parts_of_chips_is_no_rival(
    name: str, tmp_path: Path
) -> None:
    async def does_not_say() -> None:
        return None

    rivals = Rivals(
        tmp_path / "Ascend910.sock",
        resource="huawei.com/Ascend910",
        allocatable_ids=does_not_say,
    )
    with listening(tmp_path / name):
        with listening(tmp_path / "x.sock"):
            gone = [await rivals.is_gone(0)]
        gone.append(await rivals.is_gone(0))

    assert gone == [False, True]
