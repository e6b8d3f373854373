"""The agent dies: before, in the middle of and after an Allocate, and by a rollout."""

import json
import os
import signal
import time

import pytest

from tests.e2e import product
from tests.e2e.cluster import Cluster
from tests.e2e.faults import ours
from tests.e2e.faults.conftest import Try
from tests.e2e.faults.trial import Trial

pytestmark = pytest.mark.faults

#: Allowed by the issue: from the old plugin's end to the new one's registration.
_GAP_S = 15.0
_RAN = "the pod ran"
_JOURNAL = ours.STATE / "holds"


def test_the_agent_dies_before_an_allocate(attempt: Try) -> None:
    with attempt("agent, before Allocate", "kill -9 while a pod is bound") as this:
        this.quiet()  # the next Allocate is the victim's
        kubelet = this.cluster.programs.kubelet
        kubelet.freeze()
        this.victim("cut-off")
        this.load.chronicle.wait(lambda story: bool(story.bound_claim), "cut-off")
        this.load.churn.go_on()

        this.agent.kill()
        kubelet.thaw()

        this.recover()
        this.remark = _fate(this, "cut-off")
        this.wait_runs("cut-off")


def test_the_agent_dies_in_the_middle_of_an_allocate(attempt: Try) -> None:
    with attempt(
        "agent, in the middle of Allocate", "SIGSTOP while it is asked, then kill -9"
    ) as this:
        this.quiet()  # the next Allocate is the victim's
        disk = ours.Hanging()
        disk.begin()
        try:
            pid = this.agent.pid
            assert pid is not None
            this.victim("cut-off")
            disk.wait_caught(pid)
            os.kill(pid, signal.SIGSTOP)
            this.load.churn.go_on()
            time.sleep(1)
            os.kill(pid, signal.SIGKILL)
        finally:
            disk.end()

        this.recover()
        this.remark = this.wait_rejected("cut-off")
        assert "Allocate failed" in this.remark
        this.wait_runs("cut-off")


def test_the_agent_dies_after_an_allocate(attempt: Try) -> None:
    with attempt(
        "agent, after Allocate", "kill -9 before it knows which pod it was"
    ) as this:
        # It is a matter of a few milliseconds: tried until the kill fell into them.
        assert any(_is_killed_in_time(this) for _ in range(5))
        this.remark = f"its hold was unconfirmed; {_RAN}"


def test_the_agents_are_rolled_over(attempt: Try, cluster: Cluster) -> None:
    with attempt("DaemonSet rolled over", "kubectl rollout restart") as this:
        cluster.kubectl(
            "rollout", "restart", "daemonset/ascend-agent", "-n", product.NAMESPACE
        )
        gap_s = _gap_s()
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
            this.load.churn.wait_succeeded(3, within_s=60)

        this.recover()


def _is_killed_in_time(this: Trial) -> bool:
    """Kill the agent after its answer, and before it knows whose it was."""
    this.quiet()  # the next Allocate is the victim's
    pid = this.agent.pid
    assert pid is not None
    this.victim("cut-off")
    while not _open_holds():
        time.sleep(0.0005)
    time.sleep(0.002)  # for the answer to leave
    os.kill(pid, signal.SIGKILL)
    is_open = bool(_open_holds())
    this.load.churn.go_on()
    this.recover()
    return _fate(this, "cut-off") == _RAN and is_open


def _fate(this: Trial, name: str) -> str:
    """What became of a pod: it ended well, or failed visibly."""
    story = this.load.chronicle.wait(lambda story: story.is_over, name)
    assert story.phase == "Succeeded" or story.rejection, story.pod["status"]
    this.load.remove(name)
    return story.rejection or _RAN


def _open_holds() -> list[object]:
    """The holds of the journal that nobody's are yet."""
    try:
        body = _JOURNAL.read_bytes().split(b"\n", 1)[1]
    except FileNotFoundError:  # between two renames
        return []
    return [each for each in json.loads(body)["entries"] if not each["pod_uid"]]


def _gap_s() -> float:
    end = time.monotonic() + 60
    while ours.SOCKET.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    gone = time.monotonic()
    while not ours.SOCKET.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    return time.monotonic() - gone
