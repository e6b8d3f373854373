"""For how long nobody has told which pods are on this node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.api_client import ApiClient
from agent.pods.informer import PodInformer, make_watch
from kube.client import Client
from kube.credentials import Credentials
from kube.events import Recorder
from tests.agent.node import NODE, current
from tests.kube.fire import Bed, served
from tests.support.tasks import ended

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def followed(bed: Bed) -> AsyncIterator[PodInformer]:
    async with served(bed) as client:
        yield node_pods(client)


def node_pods(client: Client) -> PodInformer:
    given = Credentials("http://bed")
    pods = PodInformer(
        ApiClient(client, Recorder(client, component="c"), credentials=given, url=""),
        make_watch(client, NODE),
        node=NODE,
        on_known=lambda: None,
    )
    pods.add_line(current(), is_served=lambda: True)
    return pods


async def test_an_api_server_that_was_never_there_has_not_been_followed() -> None:
    bed = Bed()
    async with followed(bed) as pods:
        bed.pipes.go_down()
        following = asyncio.create_task(pods.run())
        await asyncio.sleep(40)

        away_s = pods.unseen_s()
        bed.pipes.is_down = False
        pods.hurry()
        await asyncio.sleep(0.1)

        assert (round(away_s), pods.unseen_s(), pods.is_listed) == (40, 0.0, True)
        await ended(following)
