import aiohttp
import pytest

from sandbox.apiserver import ApiServer
from sandbox.apiserver.routes import Call
from tests.contract.apiserver.client import Api, binding, config, pod
from tests.support.until import equal, until


async def test_an_outage_breaks_watches_and_refuses_connections(
    server: ApiServer, api: Api
) -> None:
    url = server.url

    async with api.watch(api.path("configmaps")) as stream:
        await server.pause()
        # A clean end of the stream would be an outage that nobody notices.
        with pytest.raises(aiohttp.ClientError):
            await stream.response.content.read()
    with pytest.raises(aiohttp.ClientConnectorError):
        await api.get("/version")
    await until(lambda: server.watch_count, equal(0))

    assert server.url == url


async def test_after_an_outage_everything_is_as_before(
    server: ApiServer, api: Api
) -> None:
    made = await api.create("configmaps", config("a"))

    await server.pause()
    await server.pause()
    await server.resume()
    await server.resume()

    assert await api.get(api.path("configmaps", "a")) == (200, made)


async def test_a_watch_can_go_on_after_an_outage(server: ApiServer, api: Api) -> None:
    made = await api.create("configmaps", config("a"))
    await server.pause()
    await server.resume()

    await api.create("configmaps", config("b"))
    async with api.watch(
        api.path("configmaps"), resourceVersion=made["metadata"]["resourceVersion"]
    ) as stream:
        assert await stream.change() == ("ADDED", "b")


async def test_expired_history_ends_watches_with_410(
    server: ApiServer, api: Api
) -> None:
    old = (await api.create("configmaps", config("a")))["metadata"]["resourceVersion"]
    await api.create("configmaps", config("b"))

    async with api.watch(api.path("configmaps"), resourceVersion=old) as stream:
        assert await stream.change() == ("ADDED", "b")
        server.expire()
        live = await stream.rest()
    async with api.watch(api.path("configmaps"), resourceVersion=old) as stream:
        late = await stream.rest()

    for events in (live, late):
        assert [
            (e["type"], e["object"]["code"], e["object"]["reason"]) for e in events
        ] == [("ERROR", 410, "Expired")]


async def test_a_list_after_expiry_is_a_place_to_watch_from(
    server: ApiServer, api: Api
) -> None:
    await api.create("configmaps", config("a"))
    server.expire()

    _, listed = await api.get(api.path("configmaps"))
    version = listed["metadata"]["resourceVersion"]
    async with api.watch(api.path("configmaps"), resourceVersion=version) as stream:
        await api.create("configmaps", config("b"))
        assert await stream.change() == ("ADDED", "b")


async def test_an_expired_page_is_410_with_a_token_to_go_on_in_the_present(
    server: ApiServer, api: Api
) -> None:
    for name in ("a", "b", "c"):
        await api.create("configmaps", config(name))
    path = api.path("configmaps")
    _, first = await api.get(path, limit="1")
    await api.create("configmaps", config("bb"))
    server.expire()

    code, status = await api.get(
        path, limit="1", **{"continue": first["metadata"]["continue"]}
    )
    names = await api.names(path, **{"continue": status["metadata"]["continue"]})

    assert (code, status["reason"]) == (410, "Expired")
    assert names == ["b", "bb", "c"]


async def test_an_expired_version_cannot_be_listed(server: ApiServer, api: Api) -> None:
    made = await api.create("configmaps", config("a"))
    await api.create("configmaps", config("b"))
    server.expire()

    code, status = await api.get(
        api.path("configmaps"),
        resourceVersion=made["metadata"]["resourceVersion"],
        resourceVersionMatch="Exact",
    )

    assert (code, status["reason"], status["message"]) == (
        410,
        "Expired",
        "The resourceVersion for the provided list is too old.",
    )


async def test_bookmarks_come_periodically_and_only_with_news(
    server: ApiServer, api: Api
) -> None:
    before = str(server.store.log.revision)

    async with api.watch(
        api.path("configmaps"),
        resourceVersion=before,
        fieldSelector="metadata.name=nobody",
        allowWatchBookmarks="1",
    ) as stream:
        made = await api.create("configmaps", config("a"))
        marks = [await stream.next(), await stream.next()]

    version = made["metadata"]["resourceVersion"]
    assert (
        marks
        == [
            {
                "type": "BOOKMARK",
                "object": {
                    "kind": "ConfigMap",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": version},
                },
            }
        ]
        * 2
    )


async def test_a_client_that_goes_away_ends_its_watch(
    server: ApiServer, api: Api
) -> None:
    async with api.watch(api.path("pods")):
        during = server.watch_count
    await until(lambda: server.watch_count, equal(0))

    assert during == 1


async def test_who_called_what_is_counted(server: ApiServer, api: Api) -> None:
    await api.create("pods", pod("p"))
    await api.post(api.path("pods", "p", "binding"), binding("p", "n"))
    await api.get(api.path("pods", "p"))
    await api.names(api.path("pods"))
    async with api.watch(api.path("pods"), timeoutSeconds="1") as stream:
        await stream.next()
    await api.patch(api.path("pods", "p", "status"), {"status": {"phase": "Failed"}})
    await api.delete(api.path("pods", "p"))

    assert server.calls == {
        Call("alice", verb, resource, "default"): 1
        for verb, resource in (
            ("create", "pods"),
            ("create", "pods/binding"),
            ("get", "pods"),
            ("list", "pods"),
            ("watch", "pods"),
            ("patch", "pods/status"),
            ("delete", "pods"),
        )
    }


async def test_a_namespace_goes_when_the_last_of_its_pods_is_gone(api: Api) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    api.namespace = "team"
    await api.create("configmaps", config("a"))
    await api.create("pods", pod("p"))
    await api.post(api.path("pods", "p", "binding"), binding("p", "n"))

    await api.delete("/api/v1/namespaces/team")
    waiting, _ = await api.get("/api/v1/namespaces/team")
    config_map, _ = await api.get(api.path("configmaps", "a"))
    await api.delete(api.path("pods", "p"), {"gracePeriodSeconds": 0})
    gone, _ = await api.get("/api/v1/namespaces/team")

    assert (waiting, config_map, gone) == (200, 404, 404)


async def test_workloads_are_listed_and_cannot_be_created(api: Api) -> None:
    path = "/apis/apps/v1/namespaces/default/daemonsets"

    names = await api.names(path)
    code, _ = await api.post(path, {"metadata": {"name": "d"}})

    assert (names, code) == ([], 405)


async def test_a_server_can_be_stopped_twice_and_has_no_url_before_it_starts() -> None:
    server = ApiServer()

    with pytest.raises(RuntimeError, match="has not been started"):
        _ = server.url
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()


async def test_the_port_is_free_after_a_stop() -> None:
    first, second = ApiServer(), ApiServer()

    await first.start()
    port = int(first.url.rpartition(":")[2])
    await first.stop()
    await second.start(port)
    await second.stop()

    assert second.url == first.url
