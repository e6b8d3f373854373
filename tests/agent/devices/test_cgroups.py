"""Processes are found in the groups of pods, whatever file hangs."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.devices.cgroups import MOST_HUNG, Cgroups, PodPids
from tests.agent.devices.fake_proc import add, hanging, let_go, threads
from tests.support.tasks import ended
from tests.support.until import until

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
#: Far longer than any of the files below takes, unless it hangs.
HANG_S = 1.0
LONG_S = 30.0


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for pid, text in GROUPS.items():
        add(tmp_path, pid, cgroup=text)
    (tmp_path / "meminfo").write_text("")
    add(tmp_path, 14)  # has just ended
    return tmp_path


def cgroups(proc: Path) -> Cgroups:
    return Cgroups(proc, hang_s=HANG_S)


async def test_the_processes_of_a_pod_are_found_by_its_group(proc: Path) -> None:
    reader = cgroups(proc)

    one = await reader.find([ONE, "none"], within_s=LONG_S)
    both = await reader.find([ONE, TWO], within_s=LONG_S)

    assert one == PodPids(pids={ONE: (9, 11)}, unread=frozenset())
    assert both == PodPids(pids={ONE: (9, 11), TWO: (12,)}, unread=frozenset())


@pytest.mark.parametrize(
    "group",
    [
        f"0::/kubepods/burstable/pod{STATIC}/4f\n",
        f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-9a.scope\n",
    ],
)
async def test_the_processes_of_a_static_pod_are_found(proc: Path, group: str) -> None:
    add(proc, 16, cgroup=group)

    found = await cgroups(proc).find([STATIC], within_s=LONG_S)

    assert found.pids == {STATIC: (16,)}


async def test_a_process_whose_group_hangs_hides_no_other(
    proc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = cgroups(proc)
    with hanging(proc, 15, "cgroup"):
        found = [await reader.find([ONE, TWO], within_s=LONG_S) for _ in range(3)]

    known = PodPids(pids={ONE: (9, 11), TWO: (12,)}, unread=frozenset({15}))
    assert found == [known] * 3
    told = [(record.message, record.__dict__["reason"]) for record in caplog.records]
    reason = "the cgroup of process 15 is not read"
    assert told == [("process without a readable cgroup", reason)]


async def test_it_is_read_again_when_it_hangs_no_more(proc: Path) -> None:
    reader = cgroups(proc)
    with hanging(proc, 15, "cgroup"):
        hung = await reader.find([TWO], within_s=LONG_S)
        let_go(proc / "15" / "cgroup")
        (proc / "15" / "cgroup").write_text(GROUPS[12])
        found = await until(
            lambda: reader.find([TWO], within_s=LONG_S), lambda now: not now.unread
        )

    assert hung.unread == frozenset({15})
    assert found == PodPids(pids={TWO: (12, 15)}, unread=frozenset())


async def test_one_that_hangs_is_not_missed_once_it_has_ended(proc: Path) -> None:
    reader = cgroups(proc)
    with hanging(proc, 15, "cgroup"):
        hung = await reader.find([TWO], within_s=LONG_S)
        (proc / "15").rename(proc / "ended")
        found = await reader.find([TWO], within_s=LONG_S)
        (proc / "ended").rename(proc / "15")

    assert (hung.unread, found.unread) == (frozenset({15}), frozenset())


async def test_where_many_hang_nothing_is_known_and_few_threads_are_lost(
    proc: Path,
) -> None:
    before = threads("cgroups")
    with ExitStack() as stack:
        for pid in range(20, 20 + 2 * MOST_HUNG):
            stack.enter_context(hanging(proc, pid, "cgroup"))
        reader = Cgroups(proc, hang_s=0.05)
        found = [await reader.find([TWO, "none"], within_s=LONG_S) for _ in range(5)]
        lost = await until(
            lambda: threads("cgroups") - before, lambda now: len(now) <= MOST_HUNG
        )

    assert [each.unread for each in found] == [None] * 5
    assert len(lost) == MOST_HUNG


async def test_a_call_that_has_no_time_left_keeps_no_other_waiting(proc: Path) -> None:
    reader = Cgroups(proc, hang_s=LONG_S)
    with hanging(proc, 15, "cgroup"):
        first = await reader.find([ONE], within_s=1.0)
        second = await reader.find([ONE], within_s=LONG_S)

    assert first.unread is None
    assert first.pids.keys() <= {ONE}
    assert second == PodPids(pids={ONE: (9, 11)}, unread=frozenset({15}))


async def test_a_caller_that_is_cancelled_leaves_no_other_waiting(proc: Path) -> None:
    reader = Cgroups(proc, hang_s=LONG_S)
    with hanging(proc, 15, "cgroup"):
        call = asyncio.create_task(reader.find([TWO], within_s=LONG_S))
        await asyncio.wait({call}, timeout=1.0)  # all but the one that hangs are read
        await ended(call)
        found = await reader.find([TWO], within_s=LONG_S)

    assert found == PodPids(pids={TWO: (12,)}, unread=frozenset({15}))


async def test_a_thread_that_was_given_up_reads_no_further(proc: Path) -> None:
    before = threads("cgroups")
    reader = Cgroups(proc, hang_s=LONG_S)
    with hanging(proc, 15, "cgroup"), hanging(proc, 17, "cgroup"):
        await reader.find([TWO], within_s=1.0)
        let_go(first_of(proc, "15", "17") / "cgroup")
        left = await until(
            lambda: len(threads("cgroups") - before), lambda now: now == 0, within_s=10
        )

    assert left == 0


async def test_a_file_that_fails_may_be_of_any_pod(proc: Path) -> None:
    add(proc, 15)
    (proc / "15" / "cgroup").mkdir()  # reading it is an error

    found = await cgroups(proc).find([TWO], within_s=LONG_S)

    assert found == PodPids(pids={TWO: (12,)}, unread=frozenset({15}))


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"\xff\xfe\n", b"0::/\n", f"0::/kubepods/pod{ONE[:-1]}\n".encode()],
)
async def test_what_names_no_pod_is_of_no_pod(proc: Path, content: bytes) -> None:
    add(proc, 15)
    (proc / "15" / "cgroup").write_bytes(content)

    found = await cgroups(proc).find([ONE], within_s=LONG_S)

    assert found == PodPids(pids={ONE: (9, 11)}, unread=frozenset())


async def test_of_a_pod_with_many_processes_the_lowest_are_told(proc: Path) -> None:
    for pid in range(5000, 7000):
        add(proc, pid, cgroup=GROUPS[12])

    found = await cgroups(proc).find([TWO], within_s=LONG_S)

    assert found.pids == {TWO: (12, *range(5000, 5007))}


async def test_without_a_list_of_processes_nothing_is_known(tmp_path: Path) -> None:
    found = await cgroups(tmp_path / "absent").find([ONE], within_s=LONG_S)

    assert found == PodPids(pids={}, unread=None)


def first_of(proc: Path, *names: str) -> Path:
    """The one of these folders that is read first."""
    return next(path for path in proc.iterdir() if path.name in names)
