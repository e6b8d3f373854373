"""A made-up cluster in the store of the sandbox's API server."""

from benchmarks.population import Population, member_name, node_name, uid_of
from benchmarks.stored import fill
from kube import objects, pods
from kube.client import Client, object_path
from kube.credentials import from_url
from kube.pager import Listing
from sandbox.apiserver.server import ApiServer

SOME = Population(nodes=3, with_chip=1, without=1, gang=2, reported_s=1_764_000_000)


async def test_what_was_filled_in_is_listed_and_can_be_bound() -> None:
    server = ApiServer()
    fill(server, SOME)
    await server.start()
    try:
        async with Client(from_url(server.url)) as client:
            listing = Listing(
                client, object_path("pods", ""), objects.Pod, params={}, page_size=3
            )
            before, _ = await listing.read()
            name = member_name(1)
            await pods.bind(
                client,
                objects.Meta(namespace="default", name=name, uid=uid_of(name)),
                node=node_name(2),
                annotations={},
            )
            bound = await pods.get(client, "default", name)
    finally:
        await server.stop()

    assert len(before) == SOME.pods
    assert before[uid_of(name)].spec.node_name == ""
    assert bound.spec.node_name == node_name(2)
