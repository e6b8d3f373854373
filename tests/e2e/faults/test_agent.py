"""The agent dies: before, in the middle of and after an Allocate, and by a rollout."""

import json
import os
import signal
import time
from typing import Any

import pytest

from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import ours
from tests.e2e.faults.conftest import Try
from tests.e2e.faults.trial import Trial

pytestmark = pytest.mark.faults

#: Allowed by the issue: from the old plugin's end to the new one's registration.
_GAP_S = 15.0
_RAN = "the pod ran"
_JOURNAL = ours.STATE / "holds"
#: To do something within some milliseconds that others decide.
_TRIES = 10
#: inode and time of change: a number alone is soon given to another
_Socket = tuple[int, int]


def test_the_agent_dies_before_an_allocate(attempt: Try) -> None:
    with attempt("agent, before Allocate", "kill -9 while a pod is bound") as this:
        this.quiet()  # the next Allocate is the victim's
        kubelet = this.cluster.programs.kubelet
        kubelet.freeze()
        uid = this.victim("cut-off")
        this.wait_bound(uid)
        this.load.churn.go_on()

        this.agent.kill()
        kubelet.thaw()

        this.recover()
        this.remark = _fate(this, uid)
        this.wait_succeeded(this.victim("cut-off"))


@pytest.mark.core("cut-off")
def test_the_agent_dies_in_the_middle_of_an_allocate(attempt: Try) -> None:
    with attempt(
        "agent, in the middle of Allocate", "SIGSTOP while it is asked, then kill -9"
    ) as this:
        # An Allocate waits 0.2 s for its disk, and is then answered without: tried
        # until the agent was stopped before.
        fate = next(filter(_is_cut_off, (_cut_off(this) for _ in range(_TRIES))), "")
        assert fate, f"always answered before it was stopped, {_TRIES} times"
        this.remark = fate
        this.wait_succeeded(this.victim("cut-off"))


@pytest.mark.core("agreement")
def test_the_agent_dies_after_an_allocate(attempt: Try) -> None:
    with attempt(
        "agent, after Allocate", "kill -9 before it knows which pod it was"
    ) as this:
        # It is a matter of a few milliseconds: tried until the kill fell into them.
        assert any(_is_killed_in_time(this) for _ in range(_TRIES))
        this.remark = f"its hold was unconfirmed; {_RAN}"


@pytest.mark.core("rollout")
def test_the_agents_are_rolled_over(attempt: Try, cluster: Cluster) -> None:
    with attempt("DaemonSet rolled over", "kubectl rollout restart") as this:
        before = _socket()
        assert before is not None
        cluster.kubectl(
            "rollout", "restart", "daemonset/ascend-agent", "-n", product.NAMESPACE
        )
        gap_s = _gap_s(before)
        product.wait_rolled_out(cluster)

        this.recover()
        this.remark = f"no plugin for {gap_s:.1f} s"
        assert gap_s <= _GAP_S


def test_the_agents_are_brought_to_another_release_and_back(
    attempt: Try, cluster: Cluster, mine: str, theirs: str
) -> None:
    with attempt(
        "another release of the agent, and back",
        "`kubectl set image`; neither can read the other's journal",
    ) as this:
        agent, _ = product.WORKLOADS
        for tag in (theirs, mine):
            product.bring(cluster, agent, tag)
            this.load.churn.wait_succeeded(3)

        this.recover()


def _cut_off(this: Trial) -> str:
    """Stop the agent while it is asked, and kill it; returns the victim's fate."""
    this.quiet()  # the next Allocate is the victim's, and so is the next journal
    _wait_settled_journal(this)
    pid = this.agent.running_pid()
    disk = ours.Hanging()
    disk.begin()
    try:
        uid = this.victim("cut-off")
        disk.wait_caught(pid)
        os.kill(pid, signal.SIGSTOP)
        this.load.churn.go_on()
        time.sleep(1)
        os.kill(pid, signal.SIGKILL)
    finally:
        disk.end()
    this.recover()
    return _fate(this, uid)


def _is_cut_off(fate: str) -> bool:
    return "Allocate failed" in fate


def _is_killed_in_time(this: Trial) -> bool:
    """Kill the agent after its answer, and before it knows whose it was.

    The kubelet is frozen in between: the answer reaches it all the same, and it cannot
    tell the agent whose it was.
    """
    this.quiet()  # the next Allocate is the victim's
    _wait_settled_journal(this)
    # Looked up before: nothing slower than a signal fits into the moment.
    pid, kubelet = this.agent.running_pid(), this.cluster.programs.kubelet.pid
    assert kubelet is not None
    uid = this.victim("cut-off")
    while not _open_holds():
        if _is_past(this, uid):
            _fate(this, uid)
            return False
        time.sleep(0.0005)
    os.kill(kubelet, signal.SIGSTOP)
    try:
        time.sleep(0.3)  # for the answer to leave
        os.kill(pid, signal.SIGKILL)
        is_open = bool(_open_holds())
    finally:
        os.kill(kubelet, signal.SIGCONT)
    this.load.churn.go_on()
    this.recover()
    return _fate(this, uid) == _RAN and is_open


def _is_past(this: Trial, uid: str) -> bool:
    """Whether the moment has been missed: its chips are known to be this pod's."""
    return any(
        story.uid == uid
        and (story.is_over or story.annotations.get("predicate-time") == truth.SERVED)
        for story in this.load.chronicle.stories()
    )


def _fate(this: Trial, uid: str) -> str:
    """What became of a pod: it ended well, or failed visibly."""
    story = this.wait_over(uid)
    assert story.phase == "Succeeded" or story.rejection, story.pod["status"]
    return story.rejection or _RAN


def _wait_settled_journal(this: Trial) -> None:
    """Wait until the journal has what is held, and nothing else."""
    held = {*truth.node(this.cluster).held}
    until(
        lambda: {chip for each in _holds() for chip in each["chips"]} == held,
        lambda: f"chips {held} in the journal, and no others: {_holds()}",
        within_s=60,
    )


def _open_holds() -> list[dict[str, Any]]:
    """The holds of the journal that nobody's are yet."""
    return [each for each in _holds() if each["owner"] is None]


def _holds() -> list[dict[str, Any]]:
    try:
        body = _JOURNAL.read_bytes().split(b"\n", 1)[1]
    except FileNotFoundError:  # between two renames
        return []
    found: list[dict[str, Any]] = json.loads(body)["entries"]
    return found


def _gap_s(before: _Socket) -> float:
    """For how long the node has no plugin: from one socket to the next."""
    end = time.monotonic() + 180
    seen = time.monotonic()
    while (now := _socket()) in {before, None}:
        assert time.monotonic() < end, "no other plugin came"
        if now == before:
            seen = time.monotonic()
        time.sleep(0.01)
    return time.monotonic() - seen


def _socket() -> _Socket | None:
    try:
        found = ours.SOCKET.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns
