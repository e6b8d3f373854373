"""What the agent's node does to it: kubelet, containerd, a reboot."""

import shutil
import signal
import time

import pytest

from tests.e2e import machine
from tests.e2e.cluster import Cluster
from tests.e2e.components import end, marked
from tests.e2e.faults import ours
from tests.e2e.faults.conftest import Try

pytestmark = pytest.mark.faults


def test_the_kubelet_dies(attempt: Try, cluster: Cluster) -> None:
    with attempt("kubelet", "kill -9, started again", rejects_staying=True):
        cluster.programs.kubelet.kill()
        time.sleep(1)
        cluster.programs.kubelet.start()


def test_kubelet_and_agent_die_and_containers_run_on(
    attempt: Try, cluster: Cluster
) -> None:
    with attempt(
        "kubelet and agent", "kill -9 of both, containers run on", rejects_staying=True
    ) as this:
        cluster.programs.kubelet.kill()
        this.agent.kill()
        time.sleep(1)
        cluster.programs.kubelet.start()


def test_the_node_reboots(attempt: Try, cluster: Cluster) -> None:
    with attempt(
        "reboot of the node",
        "kubelet, containerd and all containers killed, the journal gone",
        rejects_staying=True,
    ) as this:
        this.ends_all = True
        cluster.programs.kubelet.kill()
        _kill(machine.pod_processes())
        cluster.programs.containerd.kill()
        _kill([pid for pid, name in marked() if name == "containerd"])  # its shims
        _kill(machine.pod_processes())  # what a shim had just begun
        for entry in ours.STATE.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        time.sleep(1)
        cluster.programs.containerd.start()
        cluster.programs.kubelet.start()


@pytest.mark.core("untouched")
def test_containerd_dies(attempt: Try, cluster: Cluster) -> None:
    with attempt("containerd", "kill -9, away for 3 s"):
        cluster.programs.containerd.kill()
        time.sleep(3)
        cluster.programs.containerd.start()


def _kill(pids: list[int]) -> None:
    for pid in pids:
        # Gone, and not only told to: what it writes is to be deleted next.
        assert end(pid, signal.SIGKILL, within_s=60), pid
