"""Another controller undoes what the agent writes on its Node (F11)."""

import asyncio

import pytest

from agent.report import content
from kube import nodes
from kube.client import Client
from kube.write_history import LONGEST_PAUSE_S
from tests.agent.reporting import ONE, create_node, reporting
from tests.kube.fire import Bed, served
from tests.support.tasks import in_background

LABEL = "accelerator"
#: Most writes in a minute that is undone each time.
MOST = 20


class Rival:
    """A controller that takes a label away, or gives it another text."""

    def __init__(self, client: Client, text: str | None) -> None:
        self._client = client
        self._text = text
        self.count = 0

    async def run(self, each_s: float) -> None:
        while True:
            await asyncio.sleep(each_s)
            node = await nodes.get(self._client, "node-1")
            if node.labels.get(LABEL) not in (None, self._text):
                self.count += 1
                await nodes.patch(self._client, "node-1", labels={LABEL: self._text})


@pytest.mark.looptime
@pytest.mark.parametrize("each_s", [pytest.param(0.02, marks=pytest.mark.long), 1.0])
@pytest.mark.parametrize("text", [None, "theirs"])
async def test_labels_that_do_not_last_are_written_with_pauses(
    text: str | None, each_s: float
) -> None:
    bed = Bed()
    async with served(bed) as client:
        await create_node(client)
        rival = Rival(client, text)
        async with reporting(client) as world:
            world.reporter.publish(ONE)
            await world.node_with(lambda node: LABEL in node.labels)
            async with in_background(rival.run(each_s)):
                await asyncio.sleep(60)
            await asyncio.sleep(LONGEST_PAUSE_S)
            node = await nodes.get(client, "node-1")

    assert 1 < rival.count <= MOST
    assert content.node_patch(node, content.node_marks(ONE)) == ({}, {})
