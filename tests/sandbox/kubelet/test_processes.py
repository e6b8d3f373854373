"""Which processes a simulated driver is shown of the containers of a node."""

import json
from pathlib import Path

import pytest

from sandbox.kubelet.processes import Processes
from sandbox.kubelet.runtime import Run, Runtime, Setup
from sandbox.kubelet.switches import Switches
from sandbox.pods import Pod, pod_of
from tests.support import objects
from tests.support.until import equal, until

_NO_PROCESS = 1 << 22


class Node:
    """A runtime, and what a driver reads of it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.switches = Switches()
        self.processes = Processes(file, self.switches)
        self.runtime = Runtime(lambda: 0.0, self.processes.changed)

    def start(self, name: str, chips: str) -> Run:
        pod = made(name)
        (container,) = pod.containers
        return self.runtime.start(pod, container, setup(chips))

    def chips(self) -> list[int]:
        """Those with a process."""
        return sorted(use["chip"] for use in self.uses())

    def uses(self) -> list[dict[str, int]]:
        uses: list[dict[str, int]] = json.loads(self.file.read_text())["processes"]
        return uses


def made(name: str) -> Pod:
    meta = {"uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return pod_of(objects.pod(name, 1, meta=meta))


def setup(chips: str) -> Setup:
    env = {"ASCEND_VISIBLE_DEVICES": chips} if chips else {}
    return Setup(ids=(), env=env, cdi=())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "driver.processes.yaml")


def test_a_container_has_a_process_on_each_of_its_chips_while_it_runs(
    node: Node,
) -> None:
    first = node.start("first", "3,1")
    second = node.start("second", "0")
    both = node.uses()
    node.runtime.end(first, 0)
    one = node.chips()
    node.runtime.end(second, 0)

    assert [use["chip"] for use in both] == [1, 3, 0]
    assert len({use["pid"] for use in both}) == 2
    assert min(use["pid"] for use in both) > _NO_PROCESS
    assert (one, node.chips()) == ([0], [])


def test_a_container_without_chips_has_none(node: Node) -> None:
    node.runtime.end(node.start("plain", ""), 0)
    node.runtime.end(node.start("virtual", "no number"), 0)

    assert not node.file.exists()


async def test_processes_stay_where_it_is_said(node: Node) -> None:
    node.switches.outlived.add("left")
    node.switches.process_lag_s = 0.01
    runs = [node.start("left", "4"), node.start("late", "5")]
    for run in runs:
        node.runtime.end(run, 0)
    at_once = node.chips()
    await until(node.chips, equal([4]))

    node.processes.end_left("late")
    node.processes.end_left("left")

    assert (at_once, node.chips()) == ([4, 5], [])
