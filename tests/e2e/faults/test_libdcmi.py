"""Chips behind a libdcmi: it hangs, crashes, lies, comes late; a process stays."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from scheduler_core.wire import inventory
from tests.agent.devices.fake_machine import FakeMachine
from tests.e2e import truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import run, until
from tests.e2e.configurations import RESOURCE
from tests.e2e.faults import library, ours
from tests.e2e.faults.library import Chips
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import container

pytestmark = pytest.mark.faults

#: A chip without faults is asked each 10 s; a call has 5 s.
_TOLD_WITHIN_S = 20.0
_CODES = "dcmi_get_device_errorcode_v2"
#: Between two cards that come up.
_PAUSE_S = 1.0
_BROKEN = "80818C00"
_STUBBORN = ["bash", "-c", "trap '' TERM; while :; do sleep 600 & wait; done"]


@pytest.fixture(scope="module")
def machine(cluster: Cluster) -> Iterator[FakeMachine]:
    """A machine that a libdcmi shows to the agent; afterwards it simulates again."""
    with library.shown(cluster) as machine:
        yield machine


@pytest.fixture
def chips(namespace: Namespace, machine: FakeMachine) -> Iterator[Chips]:
    chips = Chips(namespace, machine)
    chips.agent.wait_ready()
    chips.wait_fresh()
    yield chips
    namespace.cluster.heal()
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
    chips.agent.kill()  # what a worker was lost in, it leaves out for a minute
    chips.agent.wait_ready()
    truth.wait_node(namespace.cluster, unhealthy=())


def test_a_call_hangs(chips: Chips) -> None:
    """Its chip is out of service, and the others are served."""
    [other] = truth.numbers(chips.serve("stays"))
    truth.wait_node(chips.cluster, held=(other,))
    assert other not in {1, 2}
    _fail_and_recover(
        chips,
        f"hang {_CODES} 2 0",
        f"{_CODES} (card 2, device 0) has not come back for 5 s",
        broken=1,
        within_s=_TOLD_WITHIN_S,
    )

    assert library.line("not all chips can be read").endswith(
        "left out: it did not come back last time (-99996)"
    )
    truth.wait_node(chips.cluster, unhealthy=(1, 2))
    assert not {1, 2, other} & {*truth.numbers(chips.serve("after", 2))}


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
    until(
        lambda: broken in truth.node(chips.cluster).unhealthy,
        "the broken chip told",
        within_s=60,
    )

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
    # the kubelet writes the node's status each ten seconds
    until(lambda: _allocatable(chips) == "8", "eight chips offered", within_s=60)


def _allocatable(chips: Chips) -> str:
    node = chips.cluster.core.read_node(chips.cluster.node)
    return str(node.status.allocatable[RESOURCE])


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
    _forget(chips)
    truth.wait_node(cluster, releasing=its, within_s=120)
    chips.create("next", 4)
    until(lambda: _is_refused(chips, "next"), "next waits", within_s=60)
    until(lambda: _told(chips, its[0]), "the event", within_s=60)
    [text] = _told(chips, its[0])
    shown = [name for name in chips.agent.metrics() if "agent_releasing" in name]
    line = library.line(f"{its[0]} ")
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
    assert f'ascend_agent_releasing_chip_processes{{chip="{its[0]}"}}' in shown
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
            [c["chip"] for c in library.status()["chips"] if pid in c["pids"]]
            == [its[0]]
        ),
        "the process is seen",
        within_s=60,
    )
    return its, pid


def test_cards_come_late_to_a_node_that_was_served(chips: Chips) -> None:
    """What runs is not touched, what is missing is unhealthy until it is there."""
    its = truth.numbers(chips.serve("stays", 4))
    late = tuple(chip for chip in range(8) if chip not in its[:2])
    words = {chip: chips.machine.take_out(chip, 0) for chip in late}
    chips.machine.tell(f"unnamed {len(late)}")
    chips.agent.kill()
    chips.agent.wait_ready()
    truth.wait_node(chips.cluster, unhealthy=late, held=its)
    served = truth.numbers(chips.notes("stays")["huawei.com/AscendReal"])

    for count, chip in enumerate(late, start=1):
        chips.machine.tell(f"unnamed {len(late) - count}")
        chips.machine.add(chip, 0, words[chip])
        time.sleep(_PAUSE_S)
    truth.wait_node(chips.cluster, unhealthy=(), within_s=120)

    assert served == its
    assert truth.numbers(chips.serve("next", 4))


def test_cards_come_late_to_a_node_of_which_nothing_is_known(chips: Chips) -> None:
    """It offers no chip of a smaller server meanwhile, and all of them in the end."""
    words = {card: chips.machine.take_out(card, 0) for card in range(3, 8)}
    chips.machine.tell("unnamed 5")
    _forget_node(chips)
    chips.agent.wait_not_ready()
    chips.wait_logged("the driver cannot name 5 of its cards yet")
    offered = set()
    for count, (card, said) in enumerate(words.items(), start=1):
        chips.machine.tell(f"unnamed {5 - count}")
        chips.machine.add(card, 0, said)
        time.sleep(_PAUSE_S)
        node = chips.cluster.core.read_node(chips.cluster.node)
        offered.add(node.status.allocatable.get(RESOURCE, "0"))

    chips.agent.wait_ready()
    truth.wait_node(chips.cluster, unhealthy=())
    until(
        lambda: (
            chips.cluster.core.read_node(chips.cluster.node).status.allocatable[
                RESOURCE
            ]
            == "8"
        ),
        "eight chips offered",
        within_s=60,
    )

    assert offered <= {"0", "8"}
    assert truth.numbers(chips.serve("next", 4))


def _forget_node(chips: Chips) -> None:
    """Have neither node nor API server know the chips, and another agent begin."""
    agent = chips.agent.running_pid()
    os.kill(agent, signal.SIGSTOP)  # it would write again what is taken away
    (ours.STATE / "chips").unlink()
    unnamed = {"metadata": {"annotations": {inventory.BASE_DEVICE_INFOS: None}}}
    chips.cluster.core.patch_node(chips.cluster.node, unnamed)
    os.kill(agent, signal.SIGKILL)


def test_the_name_of_a_process_hangs(chips: Chips) -> None:
    """Nobody is named from then on, and chips come back as before."""
    cluster = chips.cluster
    its, pid = _stubborn(chips)
    _hang_name(chips, pid)
    _forget(chips)
    truth.wait_node(cluster, releasing=its, within_s=120)
    until(lambda: _told(chips, its[0]), "the event", within_s=60)
    [text] = _told(chips, its[0])
    cluster.programs.containerd.thaw()
    chips.machine.say(its[0], 0, pids="")

    truth.wait_node(cluster, releasing=(), within_s=120)
    chips.create("next", 4)

    assert truth.numbers(chips.wait_served("next")) == its
    assert f"process {pid}" in text
    assert "bash" not in text


def _forget(chips: Chips) -> None:
    """Have API server and kubelet forget the pod `left`, whose container stays.

    Who is to end it cannot. It has two seconds until then, and the kubelet as many to
    hear of the pod's end: it cleans up each two seconds, and hangs as well then.
    """
    chips.cluster.kubectl(
        *("delete", "pod", "left", "-n", chips.namespace.name),
        *("--force", "--grace-period=0"),
    )
    chips.cluster.programs.containerd.freeze()


def _hang_name(chips: Chips, pid: int) -> None:
    """Have whoever asks for the name of a process wait, as the agent sees it."""
    pipe = ours.STATE / "comm"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    inside = f"/var/lib/ascend-agent/{pipe.name}"
    agent = str(chips.agent.running_pid())
    run(*("nsenter", "-t", agent, "-m"), "mount", "--bind", inside, f"/proc/{pid}/comm")
    pipe.unlink()


def _is_refused(chips: Chips, name: str) -> bool:
    """Whether the scheduler has found no place for a pod."""
    found = chips.namespace.pod(name)
    return found.spec.node_name is None and any(
        each.type == "PodScheduled" and each.reason == "Unschedulable"
        for each in found.status.conditions or ()
    )


def _told(chips: Chips, chip: int) -> list[str]:
    """What the node's events say of a process that stays on a chip of our pod."""
    events = chips.cluster.events("default", "NpuStillInUse")
    texts = {str(each.message) for each in events}
    ours = f"pod {chips.namespace}/left "
    return sorted(
        text for text in texts if re.match(rf"chip {chip} ", text) and ours in text
    )
