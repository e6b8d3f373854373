"""Each writer of the agent waits as long as the API server asks (F15)."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from agent.api_client import ApiClient
from kube.client import Client
from kube.credentials import Credentials
from kube.events import Recorder, Regarding
from sandbox.apiserver.outages import Trouble, What
from tests.agent.annotating import annotator_of
from tests.agent.node import current, pod
from tests.agent.reporting import ONE, TWO, create_node, reporting
from tests.kube.fire import Bed, served
from tests.support import objects
from tests.support.tasks import in_background
from tests.support.until import until

ASKED_S = 23
#: How often the server refuses.
REFUSED_COUNT = 2
#: More than a pause of a writer's own, and than the time between two writes.
MORE_S = 15
WRITES = frozenset({"create", "patch"})

#: Has one writer of the agent at work, with news for it each second.
Writer = Callable[[Bed, Client], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def each_second(call: Callable[[], object]) -> AsyncIterator[None]:
    async def go_on() -> None:
        while True:
            call()
            await asyncio.sleep(1)

    async with in_background(go_on()):
        yield


@asynccontextmanager
async def annotations(bed: Bed, client: Client) -> AsyncIterator[None]:
    recorder = Recorder(client, component="c")
    given = Credentials("http://bed")
    api = ApiClient(client, recorder, credentials=given, url="")
    bed.write("POST", "2", objects.pod("2", 1))  # the second object, so uid-2
    now = current(pod("2", [0]))
    now.mounts_for("2", 0)
    annotator = annotator_of(now, send=api.send)
    async with in_background(annotator.run()), each_second(now.wake):
        yield


@asynccontextmanager
async def reports(_bed: Bed, client: Client) -> AsyncIterator[None]:
    """To ConfigMap and Node."""
    texts = itertools.cycle((ONE, TWO))
    async with (
        reporting(client) as world,
        each_second(lambda: world.reporter.publish(next(texts))),
    ):
        yield


@asynccontextmanager
async def events(_bed: Bed, client: Client) -> AsyncIterator[None]:
    recorder = Recorder(client, component="c")
    node = Regarding(kind="Node", name="node-1")
    async with (
        in_background(recorder.run()),
        each_second(lambda: recorder.record(node, reason="R", message="m")),
    ):
        yield


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("resource", "writer"),
    [
        ("pods", annotations),
        ("configmaps", reports),
        ("nodes", reports),
        ("events", events),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_writer_waits_as_long_as_it_is_asked_to_and_then_writes(
    resource: str, writer: Writer, status: int
) -> None:
    bed = Bed()
    async with served(bed) as client:
        await create_node(client)
        bed.troubles.begin(
            Trouble(
                what=What.REFUSED,
                verbs=WRITES,
                resource=resource,
                status=status,
                retry_after_s=ASKED_S,
                count=REFUSED_COUNT,
            )
        )

        def written_count() -> int:
            return sum(
                count
                for call, count in bed.calls.items()
                if call.verb in WRITES and call.resource == resource
            )

        before, began_s = written_count(), asyncio.get_running_loop().time()
        async with writer(bed, client):
            await until(lambda: written_count() > before, every_s=0.1)
        took_s = asyncio.get_running_loop().time() - began_s

    least_s = REFUSED_COUNT * ASKED_S
    assert least_s <= took_s <= least_s + MORE_S
