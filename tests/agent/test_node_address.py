"""A node's address in its pods' configuration, as the whole agent learns it (F2)."""

import json

from sandbox.apiclient import Changed, Object
from sandbox.apiserver.outages import Trouble, What
from scheduler_core.wire import annotations
from tests.agent.site import Site
from tests.support.objects import PODS
from tests.support.tasks import in_background
from tests.support.until import until

HOST_IP = "127.0.0.1"


class Addresses:
    """Every address that a configuration has had."""

    def __init__(self, site: Site) -> None:
        self._site = site
        #: (pod, host_ip), in the order in which they came
        self.told: list[tuple[str, str]] = []

    async def follow(self) -> None:
        async for event in self._site.api.follow(PODS):
            items = (event.item,) if isinstance(event, Changed) else event.items
            for item in items:
                self._take(item)

    def _take(self, item: Object) -> None:
        written = item["metadata"].get("annotations", {})
        text = written.get(annotations.CONFIGURATION)
        if text is not None:
            document = json.loads(text)
            found = item["metadata"]["name"], document["host_ip"]
            assert document["server_ip"] == document["host_ip"]
            if found not in self.told:
                self.told.append(found)


async def test_an_agent_that_starts_while_the_node_is_refused_leaves_addresses_alone(
    site: Site,
) -> None:
    """429 to the first list of the Node, as a rollout of agents produces it."""
    seen = Addresses(site)
    await site.serve("before", 2)
    await site.stop_agent()
    await site.until_allocatable(0)
    refusal = Trouble(
        what=What.REFUSED,
        verbs=frozenset({"list"}),
        user="ascend-agent",
        resource="nodes",
        status=429,
        retry_after_s=2,
        count=1,
    )

    site.troubles.begin(refusal)
    async with in_background(seen.follow()):
        site.start_agent()
        await site.until_allocatable(8)
        await site.serve("after", 1)
        assert {address for _, address in seen.told} == {HOST_IP}
        await until(lambda: ("after", HOST_IP) in seen.told)

    assert seen.told == [("before", HOST_IP), ("after", HOST_IP)]
