import pytest

from tests.contract.apiserver.client import Api, Object, binding, config, pod

pytestmark = pytest.mark.contract


async def _now(api: Api, plural: str = "configmaps") -> str:
    """Return the version from which a watch sees what is still to come."""
    _, listed = await api.get(plural, limit="1")
    version: str = listed["metadata"]["resourceVersion"]
    return version


async def test_a_watch_shows_what_happens_after_its_version(api: Api) -> None:
    before = await _now(api)
    path = "configmaps/a"
    await api.create("configmaps", config("a"))

    async with api.watch("configmaps", resourceVersion=before) as stream:
        await api.patch(path, {"data": {"k": "v"}})
        await api.delete(path)
        events = [await stream.next() for _ in range(3)]

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event["object"].get("data") for event in events] == [
        None,
        {"k": "v"},
        {"k": "v"},
    ]
    assert {event["object"]["kind"] for event in events} == {"ConfigMap"}
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(set(versions))


async def test_a_watch_without_a_version_begins_with_what_exists(api: Api) -> None:
    labels = {"metadata": {"labels": {"k": "v"}}}
    await api.create("configmaps", config("a", **labels))
    await api.create("configmaps", config("b", **labels))

    async with api.watch("configmaps", labelSelector="k=v") as stream:
        first = [await stream.change(), await stream.change()]
        await api.create("configmaps", config("c", **labels))
        last = await stream.change()

    assert sorted(first) == [("ADDED", "a"), ("ADDED", "b")]
    assert last == ("ADDED", "c")


async def test_a_watch_can_begin_with_all_there_is_and_say_where_that_ends(
    api: Api,
) -> None:
    labels = {"metadata": {"labels": {"k": "v"}}}
    await api.create("configmaps", config("a", **labels))

    async with api.watch(
        "configmaps",
        labelSelector="k=v",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as stream:
        first, second = await stream.next(), await stream.next()

    assert first["type"], first["object"]["metadata"]["name"] == ("ADDED", "a")
    assert second["type"] == "BOOKMARK"
    assert second["object"]["metadata"]["annotations"] == {
        "k8s.io/initial-events-end": "true"
    }


async def test_what_begins_to_match_is_added_and_what_ceases_is_deleted(
    api: Api,
) -> None:
    before = await _now(api)
    path = "configmaps/a"

    async with api.watch(
        "configmaps", resourceVersion=before, labelSelector="go=yes"
    ) as stream:
        await api.create("configmaps", config("a"))
        _, added = await api.patch(path, {"metadata": {"labels": {"go": "yes"}}})
        _, left = await api.patch(path, {"metadata": {"labels": {"go": "no"}}})
        await api.create("configmaps", config("b", metadata={"labels": {"go": "yes"}}))
        events = [await stream.next() for _ in range(3)]

    shown = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert shown == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    # What ceased to match comes in its last matching state, with the later version.
    metadata = events[1]["object"]["metadata"]
    assert metadata["labels"] == added["metadata"]["labels"]
    assert metadata["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_a_kubelet_sees_a_pod_when_it_is_bound(api: Api, node: str) -> None:
    before = await _now(api, "pods")

    async with api.watch(
        "/api/v1/pods", resourceVersion=before, fieldSelector=f"spec.nodeName={node}"
    ) as stream:
        await api.create("pods", pod("p"))
        bound = binding("p", node, annotations={"k": "v"})
        await api.post("pods/p/binding", bound)
        event = await stream.next()

    assert event["type"] == "ADDED"
    assert event["object"]["spec"]["nodeName"] == node
    assert event["object"]["metadata"]["annotations"] == {"k": "v"}


async def test_a_change_that_changes_nothing_is_no_event(api: Api) -> None:
    before = await _now(api)
    await api.create("configmaps", config("a", data={"k": "v"}))
    await api.patch("configmaps/a", {"data": {"k": "v"}})
    await api.create("configmaps", config("b"))

    async with api.watch("configmaps", resourceVersion=before) as stream:
        changes = [await stream.change(), await stream.change()]

    assert changes == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_of_one_name(api: Api) -> None:
    before = await _now(api)
    await api.create("configmaps", config("a"))
    await api.create("configmaps", config("b"))

    async with api.watch(
        "configmaps", resourceVersion=before, fieldSelector="metadata.name=b"
    ) as stream:
        change = await stream.change()

    assert change == ("ADDED", "b")


async def test_a_watch_ends_by_itself_after_its_timeout(api: Api) -> None:
    before = await _now(api)
    await api.create("configmaps", config("a"))

    async with api.watch(
        "configmaps", resourceVersion=before, timeoutSeconds="1"
    ) as stream:
        events = await stream.rest()

    assert [event["type"] for event in events] == ["ADDED"]


async def test_a_watch_that_asks_for_bookmarks_gets_one_before_it_ends(
    api: Api,
) -> None:
    before = await _now(api)

    async with api.watch(
        "configmaps",
        resourceVersion=before,
        fieldSelector="metadata.name=a",
        timeoutSeconds="5",
        allowWatchBookmarks="true",
    ) as stream:
        made = await api.create("configmaps", config("b"))
        events = await stream.rest()

    mark: Object = events[-1]["object"]
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert (mark["kind"], mark["apiVersion"]) == ("ConfigMap", "v1")
    assert int(mark["metadata"]["resourceVersion"]) >= int(
        made["metadata"]["resourceVersion"]
    )


async def test_a_version_that_is_too_old_is_an_error_event_with_410(api: Api) -> None:
    async with api.watch("configmaps", resourceVersion="1") as stream:
        events = await stream.rest()

    assert len(events) == 1
    status = events[0]["object"]
    assert events[0]["type"] == "ERROR"
    assert (status["kind"], status["code"], status["reason"]) == (
        "Status",
        410,
        "Expired",
    )
    assert status["message"].startswith("too old resource version: 1 (")
