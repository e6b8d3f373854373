"""A day of an agent in simulated time: what it asks of the API server when idle."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.health.rules import FaultConfig
from agent.monitor.fault_config import FaultConfigWatch
from kube.client import Client
from kube.objects import Pod
from kube.reflector import ListWatch
from tests.agent.reporting import NAMESPACE, World, create_node, drawn, reporting
from tests.kube.fire import Bed, served
from tests.support.objects import pod

CHANGES = 6
#: What a node may cost its API server in an hour in which nothing happens.
REQUESTS = 40


@asynccontextmanager
async def an_agent(client: Client) -> AsyncIterator[World]:
    """All of an agent that speaks to the API server while no pod comes or goes."""
    ours = {"fieldSelector": "spec.nodeName=node-1"}
    pods = ListWatch(client, "/api/v1/pods", Pod, params=ours)
    configured: list[FaultConfig] = []
    faults = FaultConfigWatch(
        client, namespace=NAMESPACE, apply=configured.append, on_problem=unexpected
    )
    async with reporting(client) as world:
        tasks = {
            asyncio.create_task(pods.run(lambda _change: None)),
            asyncio.create_task(faults.run()),
        }
        yield world
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert configured == []


def unexpected(problem: str) -> None:
    raise AssertionError(problem)


async def go_by(bed: Bed, minutes: int) -> None:
    """Let time go by; in each minute something of another node is written."""
    for _ in range(minutes):
        mark = {"metadata": {"annotations": {"n": str(bed.store.log.revision)}}}
        bed.write("PATCH", "other", mark)
        await asyncio.sleep(60)


@pytest.mark.looptime
@pytest.mark.long
async def test_a_day_costs_few_requests_and_leaves_nothing_behind() -> None:
    """Every second hour nothing happens, in the others something each ten minutes."""
    bed, reports = Bed(), (drawn(1), drawn(2))
    idle = 0
    objects: list[int] = []

    async with served(bed) as client:
        await create_node(client)
        bed.write("POST", "other", pod("other"))
        async with an_agent(client) as world:
            world.reporter.publish(reports[0])
            await go_by(bed, 1)
            at_first = bed.calls.total()
            for _ in range(12):
                before = bed.calls.total()
                await go_by(bed, 60)
                idle += bed.calls.total() - before
                for change in range(CHANGES):
                    world.reporter.publish(reports[(change + 1) % 2])
                    await go_by(bed, 60 // CHANGES)
                await asyncio.sleep(30)  # all have heard of the last change
                bed.store.log.compact()  # the API server's memory is not the agent's
                gc.collect()
                objects.append(len(gc.get_objects()))
            busy = bed.calls.total() - at_first - idle

    assert idle <= 12 * REQUESTS, bed.calls
    assert busy <= 12 * (REQUESTS + CHANGES), bed.calls
    verbs = {call.verb for call in bed.calls}
    assert verbs <= {"get", "list", "watch", "create", "patch"}, verbs
    # no list but the first of each kind: nothing is polled
    reads = [each for each in bed.calls.elements() if each.verb in ("get", "list")]
    assert sorted(call.resource for call in reads) == [
        "configmaps",
        "configmaps",
        "nodes",
        "pods",
    ]
    patches = [call for call in bed.calls.elements() if call.verb == "patch"]
    assert sum(call.resource == "configmaps" for call in patches) >= 12 * 12
    assert max(objects[6:]) - min(objects[1:6]) < 500, objects
