"""Standalone: each pod takes all chips as soon as the one before it has ended.

`make successors` has a thousand of them follow one another.
"""

import asyncio
import os
import random  # noqa: TID251  # seeded: the same phases in every run
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.apiclient import Object
from scheduler_core.wire import annotations
from tests.agent.devices import fake_machine
from tests.agent.devices.fake_machine import FakeMachine
from tests.agent.site import NODE, Site, running_site
from tests.agent.two_lines import add_other_line, on_both_nodes, on_both_nodes_long
from tests.support import objects
from tests.support.objects import PODS, container

_COUNT = int(os.environ.get("SUCCESSORS", "15"))
_STANDALONE = ("--mode", "standalone")
#: A code that no table has, of severity 0: nothing follows from it.
_HARMLESS = "80E18FFF"
#: A look each second: pods end at all its phases.
_LOOK_S = 1.0

pytestmark = [pytest.mark.site(*_STANDALONE), pytest.mark.timeout(60 + 3 * _COUNT)]


class Node:
    """A node on which pods follow one another."""

    def __init__(self, site: Site) -> None:
        self.site = site
        #: whether pods live until the agent knows whose their chips are
        self.is_patient = True

    async def runs(self, name: str) -> None:
        """Do what the driver needs to see a pod that has just begun."""

    def ends(self, name: str) -> None:
        """End a pod's container; its processes have ended then."""
        self.site.kubelet.finish(name, "main")

    async def follow_one_another(self, count: int) -> list[str]:
        """Have so many pods follow one another, each of all chips.

        Each lives for a time of its own, so that its end meets another phase of the
        look.

        Returns:
            What the kubelet says to those that it rejects.
        """
        chance = random.Random(16)  # noqa: S311  # a time, not a secret
        rejected = []
        await self.create("taker-0")
        for number in range(count):
            name = f"taker-{number}"
            found = await self.until_phase(name, "Running", "Failed")
            if found["phase"] == "Failed":
                rejected.append(f"{name}: {found['message']}")
            else:
                if self.is_patient:
                    await self.until_served(name)
                    await self.runs(name)
                    await asyncio.sleep(number % 3 and chance.uniform(0.0, _LOOK_S))
                self.ends(name)
                await self.until_phase(name, "Succeeded")
            await self.create(f"taker-{number + 1}")
            await self.site.api.delete(f"{PODS}/{name}")
        return rejected

    async def create(self, name: str) -> None:
        """Create a pod of all chips that ends when its container does."""
        main = container("main", 8)
        body = objects.pod(name, node=NODE, containers=[main], restartPolicy="Never")
        await self.site.api.create(PODS, body)

    async def until_served(self, name: str) -> None:
        """Wait until the agent knows whose the chips are."""
        await self.site.until(
            lambda: self.site.api.get(f"{PODS}/{name}"),
            lambda pod: (
                pod["metadata"].get("annotations", {}).get(annotations.PREDICATE_TIME)
                == str(annotations.SERVED)
            ),
        )

    async def until_phase(self, name: str, *phases: str) -> Object:
        """Wait until a pod has come so far; return its status."""
        found = await self.site.until(
            lambda: self.site.api.get(f"{PODS}/{name}"),
            lambda pod: pod["status"].get("phase") in phases,
        )
        return dict(found["status"])


class NodeWithEvents(Node):
    """A node whose libdcmi has events: it looks at quiet chips each 10 s only."""

    def __init__(self, site: Site, machine: FakeMachine, pids: Path) -> None:
        super().__init__(site)
        self.machine = machine
        self.pids = pids
        for card in range(8):
            machine.say(card, 0, pids=f"@{pids}")

    async def runs(self, name: str) -> None:
        self.pids.write_text(str(os.getpid()))
        if int(name.partition("-")[2]) % 2:  # one chip is looked at, and is busy
            self.machine.event(0, _HARMLESS, 0, 2)
            await asyncio.sleep(0.1)

    def ends(self, name: str) -> None:
        self.pids.write_text("")
        super().ends(name)


@pytest.fixture
async def with_events(
    libdcmi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_second: bool
) -> AsyncIterator[NodeWithEvents]:
    machine = fake_machine.training_910a(tmp_path / "machine")
    if is_second:
        add_other_line(machine)
    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    told = ("--driver", "dcmi", "--dcmi-library", str(libdcmi))
    async with running_site(*_STANDALONE, *told) as site:
        yield NodeWithEvents(site, machine, tmp_path / "pids")


@on_both_nodes
async def test_no_successor_is_rejected(site: Site) -> None:
    assert await Node(site).follow_one_another(_COUNT) == []


@pytest.mark.long
async def test_no_successor_is_rejected_where_chips_are_seldom_looked_at(
    with_events: NodeWithEvents,
) -> None:
    assert await with_events.follow_one_another(_COUNT) == []


@on_both_nodes_long
async def test_ids_are_unhealthy_for_as_long_as_processes_end_late(
    site: Site,
) -> None:
    site.kubelet.switches.process_lag_s = 3 * _LOOK_S
    node = Node(site)
    await node.create("late")
    await node.until_phase("late", "Running")
    await node.until_served("late")
    await asyncio.sleep(_LOOK_S)  # it has been seen

    node.ends("late")

    await site.until_allocatable(0)
    await site.until_allocatable(8)


@on_both_nodes_long
async def test_no_successor_is_rejected_of_a_pod_that_ended_before_it_was_known(
    site: Site,
) -> None:
    node = Node(site)
    node.is_patient = False

    assert await node.follow_one_another(5) == []


@on_both_nodes_long
async def test_exactly_the_ids_of_a_process_that_is_left_are_unhealthy(
    site: Site,
) -> None:
    site.kubelet.switches.outlived.add("left")
    for name, count in (("left", 2), ("other", 2)):
        main = container("main", count)
        body = objects.pod(name, node=NODE, containers=[main], restartPolicy="Never")
        await site.api.create(PODS, body)
        await site.until_phase(name, "Running")
    await site.settle()
    its = site.mounted()["left"]
    await asyncio.sleep(_LOOK_S * 1.2)  # the driver has seen both
    for name in ("left", "other"):
        site.kubelet.finish(name, "main")

    await site.until_allocatable(6)
    await site.until(site.affinity, lambda found: found.releasing == its)
    await site.until(site.affinity, lambda found: found.held == its)
    site.kubelet.end_processes("left")
    await site.until_allocatable(8)

    assert await Node(site).follow_one_another(1) == []
