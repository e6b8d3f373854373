"""Chips behind a libdcmi: it hangs, crashes, lies; and a process outlives its pod.

The agent asks a libdcmi.so of our own making, as it would Huawei's, in a process of its
own. Containers get no devices here, because the node has none: what they got is read
from their pods' annotations.
"""

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from agent.status import document, socket
from tests.agent.devices import fake_machine
from tests.agent.devices.fake_machine import FakeMachine
from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import run, until
from tests.e2e.configurations import RESOURCE
from tests.e2e.faults import ours
from tests.e2e.namespaces import Namespace
from tests.e2e.places import REPOSITORY, RUNTIME
from tests.e2e.pods import container, pod
from tests.e2e.stages import CannotError

pytestmark = pytest.mark.faults

_AGENT, _ = product.WORKLOADS
_SOURCE = REPOSITORY / "tests" / "agent" / "devices" / "fake_dcmi" / "dcmi.c"
_FOLDER = RUNTIME / "dcmi"
_LIBRARY = _FOLDER / "libdcmi.so"
#: A library that is stuck has to be told so soon.
_TOLD_WITHIN_S = 10.0
_CODES = "dcmi_get_device_errorcode_v2"
_BROKEN = "80818C00"
_STUBBORN = ["bash", "-c", "trap '' TERM; while :; do sleep 600 & wait; done"]


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
        text = self.cluster.kubectl("logs", _AGENT, "-n", product.NAMESPACE)
        lines = [json.loads(line) for line in text.splitlines() if line[:1] == "{"]
        return [str(line.get("reason", "")) for line in lines]

    def wait_logged(self, part: str) -> None:
        """Wait until the log says something of the driver."""
        until(
            lambda: any(part in reason for reason in self.log()),
            lambda: f"{part!r} in the log: {self.log()}",
            within_s=60,
        )


@pytest.fixture(scope="module")
def machine(cluster: Cluster) -> Iterator[FakeMachine]:
    """A machine that a libdcmi shows to the agent; afterwards it simulates again."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir()
    run("cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", _LIBRARY, _SOURCE)
    machine = fake_machine.training_910a(_FOLDER / "machine")
    with product.patched(cluster, {_AGENT: _asking_the_library()}):
        yield machine
        machine.tell()
    ours.agent(cluster).wait_ready()
    shutil.rmtree(_FOLDER)


def _asking_the_library() -> dict[str, Any]:
    """What the agent's pod needs for it: not the rights, for there is no device."""
    args = ["--listen=:9410", "--driver=dcmi", f"--dcmi-library={_LIBRARY}"]
    env = [{"name": "FAKE_DCMI", "value": str(_FOLDER / "machine")}]
    mount = {"name": "dcmi", "mountPath": str(_FOLDER), "readOnly": True}
    volume = {"name": "dcmi", "hostPath": {"path": str(_FOLDER), "type": "Directory"}}
    agent = {"name": "agent", "args": args, "env": env, "volumeMounts": [mount]}
    return {"hostPID": True, "containers": [agent], "volumes": [volume]}


@pytest.fixture
def chips(namespace: Namespace, machine: FakeMachine) -> Iterator[Chips]:
    chips = Chips(namespace, machine)
    chips.agent.wait_ready()
    chips.wait_fresh()
    yield chips
    for pid in chips.strays:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # If its test has failed it would end in ten minutes, and every test after it wait.
    namespace.cluster.kubectl(
        *("delete", "pod", "left", "-n", namespace.name, "--ignore-not-found"),
        *("--force", "--grace-period=0"),
    )
    machine.tell()
    for card in range(8):
        machine.say(card, 0, codes="", pids="")
    truth.wait_node(namespace.cluster, unhealthy=())


def test_a_call_hangs(chips: Chips) -> None:
    _fail_and_recover(
        chips,
        f"hang {_CODES} 2 0",
        f"{_CODES} (card 2, device 0) has not come back for 5 s",
        broken=1,
        within_s=_TOLD_WITHIN_S,
    )

    assert _line("the chips cannot be read").endswith(
        "left out: it did not come back last time (-99996)"
    )


def test_the_library_crashes(chips: Chips) -> None:
    _fail_and_recover(
        chips,
        "crash dcmi_get_device_health 3 0",
        "the driver worker was ended by SIGSEGV in dcmi_get_device_health (card 3, "
        "device 0)",
        broken=5,
    )


def _fail_and_recover(
    chips: Chips, fault: str, reason: str, *, broken: int, within_s: float = 60
) -> None:
    """Have a call fail: pods are served meanwhile, and another worker goes on.

    Args:
        chips: The node.
        fault: What the library is told.
        reason: What the log says of it.
        broken: A chip that breaks afterwards, which the next worker sees.
        within_s: How soon the failure is counted.
    """
    failures, worker = chips.metric("driver_failures_total"), chips.worker()
    before = truth.node(chips.cluster)
    chips.machine.tell(fault)
    until(
        lambda: chips.metric("driver_failures_total") > failures,
        "the failing call told",
        within_s=within_s,
    )
    during = truth.node(chips.cluster)
    served = chips.serve("during")

    chips.wait_logged(reason)
    chips.wait_fresh()
    chips.machine.say(broken, 0, codes=_BROKEN)
    truth.wait_node(chips.cluster, unhealthy=(broken,))

    assert during == before
    assert served
    assert chips.worker() != worker


def test_the_library_lies(chips: Chips) -> None:
    chips.machine.tell("number dcmi_get_card_list -1 -1 1000")
    _replace_worker(chips)
    chips.machine.say(1, 0, codes=_BROKEN)
    truth.wait_node(chips.cluster, unhealthy=(1,))
    served = chips.serve("counted")

    chips.machine.say(6, 0, phy=0)
    chips.machine.say(1, 0, codes="")
    chips.machine.tell()
    _replace_worker(chips)
    chips.machine.say(6, 0, codes=_BROKEN)
    truth.wait_node(chips.cluster, unhealthy=(6,))
    also_served = chips.serve("named")

    chips.machine.say(6, 0, phy=6, codes="")
    _replace_worker(chips)
    truth.wait_node(chips.cluster, unhealthy=())

    assert served
    assert also_served
    node = chips.cluster.core.read_node(chips.cluster.node)
    assert node.status.allocatable[RESOURCE] == "8"


def _replace_worker(chips: Chips) -> None:
    """Have another worker identify all chips, which is done once a minute otherwise."""
    worker = chips.worker()
    os.kill(worker, signal.SIGKILL)
    chips.wait_logged("the driver worker was ended by SIGKILL")
    until(lambda: chips.workers() not in ([], [worker]), "a worker", within_s=60)
    chips.wait_fresh()


def test_a_process_outlives_its_pod(chips: Chips) -> None:
    cluster = chips.cluster
    its, pid = _stubborn(chips)
    # Who is to end its container cannot: the API server and the kubelet forget the pod
    # all the same.
    cluster.programs.containerd.freeze()
    cluster.kubectl(
        *("delete", "pod", "left", "-n", chips.namespace.name),
        *("--force", "--grace-period=0"),
    )
    truth.wait_node(cluster, releasing=its, within_s=120)
    chips.create("next", 4)
    until(lambda: _is_refused(chips, "next"), "next waits", within_s=60)
    until(lambda: _told(cluster, its[0]), "the event", within_s=60)
    [text] = _told(cluster, its[0])
    shown = [name for name in chips.agent.metrics() if "agent_releasing" in name]
    line = _line(f"{its[0]} ")
    held, is_waiting = truth.node(cluster).held, _is_refused(chips, "next")

    cluster.programs.containerd.thaw()
    # the pod's own processes have ended then; the driver's list has one of them yet
    truth.wait_node(cluster, releasing=its[:1], within_s=120)
    is_waiting_yet = _is_refused(chips, "next")
    chips.machine.say(its[0], 0, pids="")
    served = chips.wait_served("next")

    named = f"process {pid} (bash, uid 0)"
    assert text.startswith(
        f"chip {its[0]} is not free, though pod {chips.namespace}/left has gone: "
        f"{named}"
    )
    assert f'ascend_agent_releasing{{chip="{its[0]}"}}' in shown
    assert f"{chips.namespace}/left/main (gone); {named}" in line
    assert set(its) <= set(held)
    assert is_waiting
    assert is_waiting_yet
    assert truth.numbers(served) == its


def _stubborn(chips: Chips) -> tuple[tuple[int, ...], int]:
    """Have a pod with a ring that does not end when it is told to, and no chip free.

    Returns:
        Its chips, on the first of which the driver sees its process; and that.
    """
    cluster = chips.cluster
    main = container("main", 4, command=_STUBBORN)
    chips.create("left", 4, containers=[main], terminationGracePeriodSeconds=600)
    its = truth.numbers(chips.wait_served("left"))
    # Earlier reports call its chips free.
    until(
        lambda: set(its) <= set(truth.node(cluster).held), "its chips held", within_s=60
    )
    if len(truth.node(cluster).available) >= 4:
        chips.serve("other", 4)
    truth.wait_node(cluster, available=())
    found = chips.namespace.pod("left").status
    pid = cluster.container_pid(found.container_statuses[0].container_id)
    chips.strays.append(pid)
    chips.machine.say(its[0], 0, pids=pid)
    until(
        lambda: (
            [c["chip"] for c in _status()["chips"] if pid in c["processes"]] == [its[0]]
        ),
        "the process is seen",
        within_s=60,
    )
    return its, pid


def _status() -> dict[str, Any]:
    """What `ascend-agent status` is told, at the socket that is the node's."""
    return dict(socket.ask(ours.STATE / socket.NAME))


def _line(beginning: str) -> str:
    """A line of what `ascend-agent status` prints."""
    text = document.text(_status())
    lines = [line for line in text.splitlines() if line.startswith(beginning)]
    if not lines:
        raise CannotError(f"no line {beginning!r} in {text}")
    return lines[0]


def _is_refused(chips: Chips, name: str) -> bool:
    """Whether the scheduler has found no place for a pod."""
    found = chips.namespace.pod(name)
    return found.spec.node_name is None and any(
        each.type == "PodScheduled" and each.reason == "Unschedulable"
        for each in found.status.conditions or ()
    )


def _told(cluster: Cluster, chip: int) -> list[str]:
    """What the node's events say of a process that stays on a chip."""
    texts = {str(each.message) for each in cluster.events("default", "NpuStillInUse")}
    return sorted(text for text in texts if re.match(rf"chip {chip} ", text))
