"""An API server without a store, as the clients of the real one see it."""

import asyncio

from benchmarks.population import Population, member_name, node_name, uid_of
from benchmarks.prepared import serving
from kube import objects, pods
from kube.client import Client, object_path
from kube.credentials import from_url
from kube.reflector import Change, ListWatch, Synced, Upserted
from tests.support.tasks import in_background

SOME = Population(nodes=3, with_chip=1, without=1, gang=2, reported_s=1_764_000_000)
ANNOTATIONS = {"huawei.com/Ascend910": "Ascend910-0"}


async def bind(client: Client, member: int, node: str) -> None:
    name = member_name(member)
    await pods.bind(
        client,
        objects.Meta(namespace="default", name=name, uid=uid_of(name)),
        node=node,
        annotations=ANNOTATIONS,
    )


async def test_lists_come_in_pages_and_a_bind_shows_in_the_watch() -> None:
    news: asyncio.Queue[Change[objects.Pod]] = asyncio.Queue()
    async with serving(SOME) as url, Client(from_url(url)) as client:
        watch = ListWatch(client, object_path("pods", ""), objects.Pod, page_size=3)
        async with in_background(watch.run(news.put_nowait)):
            listed = [await news.get() for _ in range(SOME.pods + 1)]
            await bind(client, 1, node_name(2))
            shown = await news.get()
            read = await pods.get(client, "default", member_name(1))

    assert sum(isinstance(change, Upserted) for change in listed) == SOME.pods
    assert isinstance(listed[-1], Synced)
    assert isinstance(shown, Upserted)
    assert shown.obj == read
    assert read.spec.node_name == node_name(2)
    assert (read.metadata.annotations or {}).items() >= ANNOTATIONS.items()


async def test_a_report_that_is_asked_for_shows_in_the_watch() -> None:
    news: asyncio.Queue[Change[objects.ConfigMap]] = asyncio.Queue()
    async with serving(SOME) as url, Client(from_url(url)) as client:
        path = object_path("configmaps", "", namespace="kube-system")
        watch = ListWatch(client, path, objects.ConfigMap)
        async with in_background(watch.run(news.put_nowait)):
            listed = [await news.get() for _ in range(SOME.nodes + 1)]
            await client.request("POST", "/benchmark/report/1/broken")
            shown = await news.get()

    assert isinstance(listed[-1], Synced)
    assert isinstance(shown, Upserted)
    assert shown.obj.metadata.name.endswith(node_name(1))
