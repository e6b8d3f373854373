"""The whole package against an API server that was written without it."""

import json
from collections.abc import AsyncIterator
from functools import partial

import pytest

from kube import configmaps, events, nodes, objects, pods
from kube.client import Client
from kube.credentials import Credentials
from kube.errors import ConflictError, NotFoundError
from kube.leases import LeaseRequests
from kube.objects import LeaseSpec, Meta, Pod
from kube.reflector import ListWatch
from sandbox.apiserver.server import ApiServer
from tests.kube.fire import Mirror
from tests.support import objects as made
from tests.support.servers import api_server
from tests.support.tasks import in_background
from tests.support.until import equal, until


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


@pytest.fixture
async def client(api: ApiServer) -> AsyncIterator[Client]:
    async with Client(Credentials(api.url)) as found:
        yield found


async def create_pod(client: Client, name: str) -> Pod:
    await client.request("POST", made.PODS, body=objects.encode(made.pod(name)))
    return await pods.get(client, "default", name)


async def uid_of_new_pod(client: Client, name: str) -> str:
    return (await create_pod(client, name)).metadata.uid


async def delete_pod(client: Client, name: str) -> None:
    path = f"{made.PODS}/{name}"
    await client.request("DELETE", path, params={"gracePeriodSeconds": "0"})


async def create_node(client: Client, name: str) -> None:
    await client.request("POST", made.NODES, body=objects.encode(made.node(name)))


async def test_a_watch_survives_an_outage_in_which_history_is_lost(
    api: ApiServer, client: Client
) -> None:
    mirror = Mirror()
    stays, goes = [await uid_of_new_pod(client, name) for name in ("stays", "goes")]
    watch = ListWatch(client, "/api/v1/pods", Pod, page_size=1)

    async def becomes(uids: set[str], synced_count: int) -> None:
        wanted = equal((uids, synced_count))
        await until(lambda: (set(mirror.pods), mirror.synced_count), wanted)

    async with in_background(watch.run(mirror.take)):
        await becomes({stays, goes}, 1)
        comes = await uid_of_new_pod(client, "comes")
        await becomes({stays, goes, comes}, 1)

        await api.pause()
        await api.resume()
        await delete_pod(client, "goes")
        api.expire()

        await becomes({stays, comes}, 2)
    assert mirror.wrong == []


async def test_a_decision_is_bound_and_marked_on_the_right_pod_only(
    client: Client,
) -> None:
    await create_node(client, "n1")
    pod = await create_pod(client, "a")
    uid = pod.metadata.uid

    async def bind(uid: str) -> None:
        target = Meta(namespace="default", name="a", uid=uid)
        await pods.bind(client, target, node="n1", annotations={"chips": "0,1"})

    async def mark(uid: str, name: str = "a") -> Pod:
        target = Meta(namespace="default", name=name, uid=uid)
        return await pods.patch_annotations(client, target, {"real": "1"})

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
    first = await create(labels={"l": "m"}, data={"a": "1"})
    await patch(data={"b": "2"})
    with pytest.raises(ConflictError):
        await patch(data={"b": "3"}, resource_version=first.metadata.resource_version)

    found = await configmaps.get(client, "kube-system", "c")
    assert found.data == {"a": "1", "b": "2"}


async def test_an_event_counts_up(client: Client) -> None:
    uid = await uid_of_new_pod(client, "a")
    regarding = events.Regarding(kind="Pod", name="a", namespace="default", uid=uid)
    dropped: list[int] = []
    recorder = events.Recorder(client, component="test", count_dropped=dropped.append)
    for _ in range(3):
        recorder.record(regarding, reason="Told", message="twice told")
        await recorder.attempt()

    listed = await client.request("GET", "/api/v1/namespaces/default/events")

    assert listed.count(b'"twice told"') == 1
    assert b'"count":3' in listed
    assert dropped == []


async def test_a_lease_is_written_by_one_of_those_who_have_read_it(
    client: Client,
) -> None:
    mine, theirs = (LeaseSpec(holder_identity=who) for who in ("me", "another"))
    requests = LeaseRequests(client, "kube-system", "l", timeout_s=10)
    lease = await requests.create(mine)

    written = await requests.write(lease, theirs)
    with pytest.raises(ConflictError):
        await requests.write(lease, mine)

    assert written == await requests.get()
    assert written.spec == theirs
    freed = await requests.write(written, LeaseSpec())
    assert freed.spec == LeaseSpec()


@pytest.fixture
async def runs(client: Client) -> Meta:
    """A pod on a node, with one condition besides."""
    await create_node(client, "n1")
    pod = await create_pod(client, "a")
    await pods.bind(client, pod.metadata, node="n1", annotations={})
    return pod.metadata


async def test_a_pod_is_told_of_its_disruption_and_deleted_at_once(
    client: Client, runs: Meta
) -> None:
    other = Meta(namespace="default", name="a", uid="another")
    tell = partial(
        pods.patch_disruption_target,
        client,
        reason="Fault",
        message="a chip has failed",
        at="2026-11-28T08:00:00Z",
    )
    with pytest.raises(ConflictError) as told:
        await tell(other)
    with pytest.raises(ConflictError) as deleted:
        await pods.delete(client, other, grace_s=0)
    version = runs.resource_version
    with pytest.raises(ConflictError) as outdated:
        await pods.delete(client, runs, grace_s=0, resource_version=version)
    await tell(runs)
    await tell(runs)
    raw = json.loads(await client.request("GET", f"{made.PODS}/a"))

    await pods.delete(client, runs, grace_s=0)
    with pytest.raises(NotFoundError) as gone:
        await pods.delete(client, runs, grace_s=0)

    assert [pods.has_gone(each.value) for each in (told, deleted, outdated, gone)] == [
        *(True, True, False, True)
    ]
    said = {each["type"]: each for each in raw["status"]["conditions"]}
    assert said.keys() == {"PodScheduled", "DisruptionTarget"}
    assert said["DisruptionTarget"]["message"] == "a chip has failed"


async def test_an_eviction_of_another_pod_of_the_name_finds_the_pod_gone(
    client: Client, runs: Meta
) -> None:
    other = Meta(namespace="default", name="a", uid="another")

    with pytest.raises(ConflictError) as caught:
        await pods.evict(client, other)

    assert pods.has_gone(caught.value)
    assert (await pods.get(client, "default", "a")).metadata.uid == runs.uid


async def test_config_maps_are_found_by_labels_and_deleted_by_uid(
    client: Client,
) -> None:
    create = partial(configmaps.create, client, namespace="kube-system", data={})
    mine = await create(name="mine", labels={"app": "moves", "job": "a"})
    await create(name="half", labels={"app": "moves"})
    await create(name="other", labels={"app": "other", "job": "a"})
    delete = partial(configmaps.delete, client, namespace="kube-system")
    find = partial(configmaps.find, client, "kube-system")

    both = await find({"app": "moves"})
    one = await find({"app": "moves", "job": "a"})
    with pytest.raises(ConflictError):
        await delete(name="mine", uid="another")
    await delete(name="mine", uid=mine.metadata.uid)
    with pytest.raises(NotFoundError):
        await delete(name="mine", uid=mine.metadata.uid)

    assert sorted(found.metadata.name for found in both) == ["half", "mine"]
    assert [found.metadata.uid for found in one] == [mine.metadata.uid]
    assert await find({"job": "b"}) == []
