"""The whole package against an API server that was written without it."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from kube import configmaps, events, leases, nodes, objects, pods
from kube.client import Client, object_path
from kube.credentials import Credentials
from kube.errors import ConflictError, NotFoundError
from kube.objects import LeaseSpec, Pod
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from sandbox.apiserver.server import ApiServer


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer(bookmark_period_s=0.05)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(api: ApiServer) -> AsyncIterator[Client]:
    async with Client(Credentials(api.url)) as made:
        yield made


async def create_pod(client: Client, name: str) -> Pod:
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none"}]}
    body = objects.encode({"metadata": {"name": name}, "spec": spec})
    await client.request(
        "POST", object_path("pods", "", namespace="default"), body=body
    )
    return await pods.get(client, "default", name)


async def delete_pod(client: Client, name: str) -> None:
    path = object_path("pods", name, namespace="default")
    await client.request("DELETE", path, params={"gracePeriodSeconds": "0"})


async def create_node(client: Client, name: str) -> None:
    body = objects.encode({"metadata": {"name": name}})
    await client.request("POST", object_path("nodes", ""), body=body)


class Mirror:
    """What a consumer of changes believes, and a way to wait for it."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.synced_count = 0
        self._changed = asyncio.Event()

    def take(self, change: Change[Pod]) -> None:
        match change:
            case Upserted(obj):
                self.names.add(obj.metadata.name)
            case Deleted(obj):
                self.names.discard(obj.metadata.name)
            case Synced():
                self.synced_count += 1
        self._changed.set()

    async def becomes(self, names: set[str], synced_count: int) -> None:
        async with asyncio.timeout(60):
            while (self.names, self.synced_count) != (names, synced_count):
                self._changed.clear()
                await self._changed.wait()


async def test_a_watch_survives_an_outage_in_which_history_is_lost(
    api: ApiServer, client: Client
) -> None:
    mirror = Mirror()
    await create_pod(client, "stays")
    await create_pod(client, "goes")
    watch = ListWatch(client, "/api/v1/pods", Pod, page_size=1)
    task = asyncio.create_task(watch.run(mirror.take))
    await mirror.becomes({"stays", "goes"}, 1)
    await create_pod(client, "comes")
    await mirror.becomes({"stays", "goes", "comes"}, 1)

    await api.pause()
    await api.resume()
    await delete_pod(client, "goes")
    api.expire()

    await mirror.becomes({"stays", "comes"}, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_decision_is_bound_and_marked_on_the_right_pod_only(
    client: Client,
) -> None:
    await create_node(client, "n1")
    pod = await create_pod(client, "a")
    uid = pod.metadata.uid

    async def bind(uid: str) -> None:
        await pods.bind(
            client,
            namespace="default",
            name="a",
            uid=uid,
            node="n1",
            annotations={"chips": "0,1"},
        )

    async def mark(uid: str, name: str = "a") -> Pod:
        return await pods.patch_annotations(
            client, namespace="default", name=name, uid=uid, annotations={"real": "1"}
        )

    with pytest.raises(ConflictError):
        await bind("another")
    await bind(uid)
    with pytest.raises(ConflictError):
        await bind(uid)
    with pytest.raises(ConflictError):
        await mark("another")
    with pytest.raises(NotFoundError):
        await mark(uid, "nobody")
    marked = await mark(uid)

    assert marked.spec.node_name == "n1"
    assert marked.metadata.annotations == {"chips": "0,1", "real": "1"}


async def test_own_keys_are_written_and_others_left(client: Client) -> None:
    await create_node(client, "n1")
    await nodes.patch(client, "n1", labels={"a": "1"}, annotations={"b": "2"})
    node = await nodes.patch(client, "n1", annotations={"b": None, "c": "3"})
    assert (node.labels["a"], node.annotations) == ("1", {"c": "3"})

    create = partial(configmaps.create, client, namespace="kube-system", name="c")
    patch = partial(configmaps.patch, client, namespace="kube-system", name="c")
    made = await create(labels={"l": "m"}, data={"a": "1"})
    await patch(data={"b": "2"})
    with pytest.raises(ConflictError):
        await patch(data={"b": "3"}, resource_version=made.metadata.resource_version)

    found = await configmaps.get(client, "kube-system", "c")
    assert found.data == {"a": "1", "b": "2"}


async def test_an_event_counts_up(client: Client) -> None:
    pod = await create_pod(client, "a")
    recorder = events.Recorder(client, component="test")
    for _ in range(3):
        recorder.record(events.pod_reference(pod), reason="Told", message="twice told")
        await recorder.attempt()

    listed = await client.request("GET", "/api/v1/namespaces/default/events")

    assert listed.count(b'"twice told"') == 1
    assert b'"count":3' in listed
    assert recorder.dropped_count == 0


async def test_a_lease_is_written_by_one_of_those_who_have_read_it(
    client: Client,
) -> None:
    mine, theirs = (LeaseSpec(holder_identity=who) for who in ("me", "another"))
    made = await leases.create(client, "kube-system", "l", mine, timeout_s=10)

    written = await leases.write(client, made, theirs, timeout_s=10)
    with pytest.raises(ConflictError):
        await leases.write(client, made, mine, timeout_s=10)

    assert written == await leases.get(client, "kube-system", "l", timeout_s=10)
    assert written.spec == theirs
    freed = await leases.write(client, written, LeaseSpec(), timeout_s=10)
    assert freed.spec == LeaseSpec()
