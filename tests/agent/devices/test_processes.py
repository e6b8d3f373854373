"""Processes are named, and found in the groups of pods that have left them."""

import asyncio
import os
from pathlib import Path

import pytest

from agent.devices.processes import Occupant, Processes

ONE = "0b9f0f3c-3f3e-4a4b-9c7d-2f6f5a1e0c11"
TWO = "5d0c1c1e-93a8-4f7d-8a55-8d1d3c9f7b22"
#: Of a static pod, as the kubelet makes it from the file.
STATIC = "2f6f5a1e0c110b9f0f3c3f3e4a4b9c7d"
GROUPS = {
    # cgroup v1, driver cgroupfs
    11: f"5:devices:/kubepods/besteffort/pod{ONE}/4f\n1:name=systemd:/\n",
    # cgroup v2, driver systemd
    12: "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
    f"{TWO.replace('-', '_')}.slice/cri-containerd-9a.scope\n",
    # the same as a process in a group of its own sees it
    9: f"0::/../../kubepods-besteffort-pod{ONE.replace('-', '_')}.slice/x.scope\n",
    13: "0::/system.slice/sshd.service\n",
}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for pid, text in GROUPS.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    (tmp_path / "meminfo").write_text("")
    (tmp_path / "14").mkdir()  # has just ended
    return tmp_path


async def test_the_processes_of_a_pod_are_found_by_its_group(proc: Path) -> None:
    processes = Processes(proc)

    assert await processes.pids_of_pods([ONE, "none"]) == {ONE: (9, 11)}
    assert await processes.pids_of_pods([ONE, TWO]) == {ONE: (9, 11), TWO: (12,)}


async def test_who_cannot_be_told_in_time_may_have_some(proc: Path) -> None:
    (proc / "15").mkdir()
    os.mkfifo(proc / "15" / "cgroup")  # never answers
    processes = Processes(proc, deadline_s=0.05)

    found = [await processes.pids_of_pods([TWO]) for _ in range(2)]
    named = await processes.describe([os.getpid()])

    assert found == [{TWO: ()}, {TWO: ()}]
    assert named == {os.getpid(): Occupant(pid=os.getpid())}


@pytest.mark.xfail(strict=True, reason="F4: one hung file hides all processes")
async def test_a_process_whose_group_hangs_hides_no_other(proc: Path) -> None:
    (proc / "15").mkdir()
    os.mkfifo(proc / "15" / "cgroup")  # never answers

    found = await Processes(proc).pids_of_pods([ONE, TWO, "none"])

    assert found == {ONE: (9, 11), TWO: (12,), "none": ()}


@pytest.mark.xfail(strict=True, reason="F4: names and releases share a thread")
async def test_a_group_that_hangs_takes_no_names_away(proc: Path) -> None:
    (proc / "15").mkdir()
    os.mkfifo(proc / "15" / "cgroup")
    processes = Processes(proc, deadline_s=0.05)

    await processes.pids_of_pods([TWO])
    named = await processes.describe([os.getpid()])

    assert named[os.getpid()].name


@pytest.mark.xfail(strict=True, reason="F4: a long name is read with a lock")
async def test_a_long_name_is_read_without_the_command_line(proc: Path) -> None:
    (proc / "21").mkdir()
    (proc / "21" / "comm").write_text("VLLM::EngineCor\n")
    os.mkfifo(proc / "21" / "cmdline")  # hangs while the process hangs in its driver

    found = await Processes(proc).describe([21])

    assert found == {21: Occupant(pid=21, name="VLLM::EngineCor", user=os.getuid())}


@pytest.mark.xfail(strict=True, reason="F15: the uid of a static pod has no dashes")
async def test_the_processes_of_a_static_pod_are_found(proc: Path) -> None:
    (proc / "16").mkdir()
    (proc / "16" / "cgroup").write_text(f"0::/kubepods/burstable/pod{STATIC}/4f\n")

    assert await Processes(proc).pids_of_pods([STATIC]) == {STATIC: (16,)}


async def test_a_process_has_a_name_and_a_user() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "600")
    found = await Processes().describe([process.pid])
    process.kill()
    await process.wait()

    who = Occupant(pid=process.pid, name="sleep", user=os.getuid())
    assert found == {process.pid: who}
    assert str(who) == f"{process.pid} (sleep, uid {os.getuid()})"


async def test_one_that_cannot_be_seen_has_its_number() -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()

    found = await Processes().describe([gone.pid])

    assert [str(who) for who in found.values()] == [str(gone.pid)]
