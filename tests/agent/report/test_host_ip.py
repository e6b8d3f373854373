"""The node's address: learnt from each answer to the Node watch that has one (F2)."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest

from kube.client import Client, send_patch
from sandbox.apiserver.outages import Trouble, What
from tests.agent.reporting import create_node, reporting
from tests.kube.fire import Bed, served

pytestmark = pytest.mark.looptime

A, B = "10.0.0.1", "10.0.0.2"
NODE = "/api/v1/nodes/node-1"
READS = frozenset({"list", "watch"})
#: Longest time from the end of a trouble until the agent has followed: the longest
#: pause of a watch, and the minute in which a list must come.
LATE_S = 95.0


def trouble(what: What, **more: Any) -> Trouble:
    return Trouble(what=what, verbs=READS, resource="nodes", **more)


#: What befalls the Node watch from the start on, for ten minutes.
TROUBLES = {
    "none": (),
    "429": (trouble(What.REFUSED, status=429, retry_after_s=20),),
    "503": (trouble(What.REFUSED, status=503),),
    "409": (trouble(What.REFUSED, status=409),),
    "slow": (trouble(What.SLOW, delay_s=8),),
    "too slow": (trouble(What.SLOW, delay_s=3600),),
    "cut": (trouble(What.CUT),),
    "silent": (trouble(What.SILENT),),
    "errors as events": (trouble(What.ERROR_EVENT, status=500),),
}


async def set_addresses(client: Client, *addresses: str) -> None:
    listed = [{"type": "Hostname", "address": "node-1"}]
    listed += [{"type": "InternalIP", "address": address} for address in addresses]
    await send_patch(client, f"{NODE}/status", {"status": {"addresses": listed}})


async def tell_a(client: Client) -> None:
    await set_addresses(client, A)


async def tell_b(client: Client) -> None:
    await set_addresses(client, B)


async def tell_none(client: Client) -> None:
    await set_addresses(client)


async def delete(client: Client) -> None:
    await client.request("DELETE", NODE)


Step = Callable[[Client], Awaitable[None]]
#: What becomes of the Node, and each address that follows from it.
COURSES: dict[str, tuple[tuple[Step, ...], list[str]]] = {
    "there": ((create_node, tell_a), [A]),
    "address later": ((create_node, tell_none, tell_a), [A]),
    "changes": ((create_node, tell_a, tell_b), [A, B]),
    "vanishes": ((create_node, tell_a, tell_none), [A]),
    "vanishes, comes back": ((create_node, tell_a, tell_none, tell_a), [A]),
    "vanishes, changes": ((create_node, tell_a, tell_none, tell_b), [A, B]),
    "deleted": ((create_node, tell_a, delete), [A]),
    "deleted, made again": ((create_node, tell_a, delete, create_node, tell_b), [A, B]),
    "never": ((create_node, tell_none), []),
    "no Node": ((), []),
}


@pytest.mark.parametrize("course", COURSES.values(), ids=COURSES)
async def test_each_address_is_learnt_once_and_none_is_forgotten(
    course: tuple[tuple[Step, ...], list[str]],
) -> None:
    steps, expected = course
    async with served(Bed()) as client, reporting(client) as world:
        for step in steps:
            await step(client)
            await asyncio.sleep(1)

    assert world.host_ips == expected
    assert world.reporter.host_ip == (expected or [""])[-1]


@pytest.mark.parametrize(
    ("kind", "course"),
    list(product(TROUBLES.values(), COURSES.values())),
    ids=[f"{kind}, {course}" for kind, course in product(TROUBLES, COURSES)],
)
async def test_whatever_befalls_the_watch_the_last_address_is_known_after_it(
    kind: tuple[Trouble, ...], course: tuple[tuple[Step, ...], list[str]]
) -> None:
    steps, expected = course
    bed = Bed()
    async with served(bed) as client:
        ends = [bed.troubles.begin(each) for each in kind]
        async with reporting(client) as world:
            for step in steps:
                await step(client)
                await asyncio.sleep(600 / max(len(steps), 1))
            for end in ends:
                end()
            await asyncio.sleep(LATE_S)

    # in trouble some may be missed, and what vanished before it was read is not known
    assert "" not in world.host_ips
    if steps and steps[-1] in (tell_a, tell_b):
        assert world.reporter.host_ip == expected[-1]
    else:
        assert world.reporter.host_ip in ("", *expected)
