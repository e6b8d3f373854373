"""The node with an agent that asks a libdcmi of ours, and what is said of its chips.

The agent asks it as it would Huawei's, in a process of its own. Containers get no
devices here, because the node has none: what they got is read from their pods'
annotations.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from agent.status import document, socket
from tests.agent.devices import fake_machine
from tests.agent.devices.fake_machine import FakeMachine
from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import run, until
from tests.e2e.faults import ours
from tests.e2e.namespaces import Namespace
from tests.e2e.places import REPOSITORY, RUNTIME
from tests.e2e.pods import pod
from tests.e2e.stages import CannotError

AGENT, _ = product.WORKLOADS
FOLDER = RUNTIME / "dcmi"
_SOURCE = REPOSITORY / "tests" / "agent" / "devices" / "fake_dcmi" / "dcmi.c"
_LIBRARY = FOLDER / "libdcmi.so"


@contextmanager
def shown(cluster: Cluster, *arguments: str) -> Iterator[FakeMachine]:
    """Have a libdcmi show the agent a machine; afterwards it simulates again.

    Args:
        cluster: Whose agent.
        arguments: What the agent is told besides.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    run("cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", _LIBRARY, _SOURCE)
    machine = fake_machine.training_910a(FOLDER / "machine")
    with product.patched(cluster, {AGENT: _asking_the_library(arguments)}):
        yield machine
        machine.tell()
    ours.agent(cluster).wait_ready()
    shutil.rmtree(FOLDER)


def _asking_the_library(arguments: tuple[str, ...]) -> dict[str, Any]:
    """What the agent's pod needs for it: not the rights, for there is no device."""
    args = ["--listen=:9410", "--driver=dcmi", f"--dcmi-library={_LIBRARY}"]
    args += arguments
    env = [{"name": "FAKE_DCMI", "value": str(FOLDER / "machine")}]
    mount = {"name": "dcmi", "mountPath": str(FOLDER), "readOnly": True}
    volume = {"name": "dcmi", "hostPath": {"path": str(FOLDER), "type": "Directory"}}
    agent = {"name": "agent", "args": args, "env": env, "volumeMounts": [mount]}
    return {"hostPID": True, "containers": [agent], "volumes": [volume]}


class Chips:
    """The node with an agent that asks the library. Protects what that says."""

    def __init__(self, namespace: Namespace, machine: FakeMachine) -> None:
        """Nothing misbehaves yet."""
        self.cluster = namespace.cluster
        self.namespace = namespace
        self.machine = machine
        self.agent = ours.agent(self.cluster)
        #: processes that do not end by themselves
        self.strays: list[int] = []

    def metric(self, name: str) -> float:
        """One of the agent's figures."""
        return self.agent.metrics()[f"ascend_agent_{name}"]

    def worker(self) -> int:
        """The process that has the library."""
        [found] = self.workers()
        return found

    def workers(self) -> list[int]:
        """The processes that have the library: none for a moment when one has ended."""
        return [each.pid for each in psutil.Process(self.agent.pid).children()]

    def serve(self, name: str, count: int = 1) -> str:
        """Have a pod run with its chips; returns them."""
        self.create(name, count)
        return self.wait_served(name)

    def create(self, name: str, count: int, **spec: Any) -> None:
        """Create a pod that wants chips."""
        body = pod(name, count, **spec)
        self.namespace.create(body)

    def wait_served(self, name: str) -> str:
        """Wait until everybody knows which chips a pod has."""
        self.namespace.wait_running(name)
        until(
            lambda: self.notes(name).get("predicate-time") == truth.SERVED,
            lambda: f"{name} confirmed: {self.notes(name)}",
            within_s=60,
        )
        return self.notes(name)["huawei.com/AscendReal"]

    def notes(self, name: str) -> dict[str, str]:
        """The annotations of a pod."""
        found = self.namespace.pod(name)
        return dict(found.metadata.annotations or {})

    def wait_fresh(self) -> None:
        """Wait until the agent has read the driver."""
        until(lambda: not self.metric("driver_stale"), "the driver read", within_s=60)

    def log(self) -> list[str]:
        """Why the driver could not be read, as the agent's log has it."""
        text = self.cluster.kubectl("logs", AGENT, "-n", product.NAMESPACE)
        lines = [json.loads(line) for line in text.splitlines() if line[:1] == "{"]
        return [str(line.get("reason", "")) for line in lines]

    def wait_logged(self, part: str) -> None:
        """Wait until the log says something of the driver."""
        until(
            lambda: any(part in reason for reason in self.log()),
            lambda: f"{part!r} in the log: {self.log()}",
            within_s=60,
        )


def status() -> dict[str, Any]:
    """What `ascend-agent status` is told, at the socket that is the node's."""
    return dict(socket.ask(ours.STATE / socket.NAME))


def line(beginning: str) -> str:
    """A line of what `ascend-agent status` prints."""
    text = document.text(status())
    lines = [line for line in text.splitlines() if line.startswith(beginning)]
    if not lines:
        raise CannotError(f"no line {beginning!r} in {text}")
    return lines[0]
