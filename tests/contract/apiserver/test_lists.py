import pytest

from tests.contract.apiserver.client import Api, config, pod

pytestmark = pytest.mark.contract


async def _labelled(api: Api) -> str:
    """Make four ConfigMaps with labels of their own; return their collection."""
    for name, labels in {
        "a": {"app": "one", "tier": "front"},
        "b": {"app": "two"},
        "c": {"app": "three", "tier": "back"},
        "d": {"tier": ""},
    }.items():
        # A label of every test's object, to leave out what controllers add.
        all_labels = {**labels, "ours": "yes"}
        await api.create("configmaps", config(name, metadata={"labels": all_labels}))
    return "configmaps"


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=one", ["a"]),
        ("app==one", ["a"]),
        ("app!=one", ["b", "c", "d"]),
        ("app in (one,two)", ["a", "b"]),
        ("app notin (one, two)", ["c", "d"]),
        ("app", ["a", "b", "c"]),
        ("!app", ["d"]),
        ("app,tier", ["a", "c"]),
        ("app in (one,three),tier!=back", ["a"]),
        ("tier=", ["d"]),
        ("app=none", []),
    ],
)
async def test_label_selectors(api: Api, selector: str, names: list[str]) -> None:
    collection = await _labelled(api)

    found = await api.names(collection, labelSelector=f"ours,{selector}")

    assert found == names


async def test_lists_are_in_order_of_names_and_of_one_namespace(api: Api) -> None:
    for name in ("b", "c-1", "a", "c"):
        await api.create("configmaps", config(name, metadata={"labels": {"k": "v"}}))

    names = await api.names("configmaps", labelSelector="k=v")

    assert names == ["a", "b", "c", "c-1"]


async def test_a_list_has_the_kind_and_a_version_of_its_own(api: Api) -> None:
    made = await api.create("configmaps", config("a"))

    _, listed = await api.get("configmaps", labelSelector="none")

    version = int(listed["metadata"]["resourceVersion"])
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert listed["items"] == []
    assert version >= int(made["metadata"]["resourceVersion"])


async def test_items_of_all_namespaces_are_listed_together(api: Api) -> None:
    await api.create("configmaps", config("a", metadata={"labels": {"k": "v"}}))

    _, listed = await api.get("/api/v1/configmaps", labelSelector="k=v")

    spaces = {item["metadata"]["namespace"] for item in listed["items"]}
    assert api.namespace in spaces


async def test_field_selectors_of_pods(api: Api, node: str) -> None:
    await api.create("pods", pod("free"))
    for name in ("bound", "done"):
        await api.bound(node, name)
    await api.patch("pods/done/status", {"status": {"phase": "Succeeded"}})
    pods = "pods"

    found = [
        await api.names(pods, fieldSelector=f"spec.nodeName={node}"),
        await api.names(pods, fieldSelector="spec.nodeName="),
        await api.names(pods, fieldSelector=f"spec.nodeName!={node}"),
        await api.names(pods, fieldSelector="status.phase==Pending"),
        await api.names(
            "/api/v1/pods",
            fieldSelector=f"spec.nodeName={node},status.phase!=Succeeded",
        ),
        await api.names(pods, fieldSelector="metadata.name=free"),
        await api.names(
            "/api/v1/pods",
            fieldSelector=f"metadata.namespace={api.namespace},metadata.name=free",
        ),
    ]

    assert found == [
        ["bound", "done"],
        ["free"],
        ["free"],
        ["bound", "free"],
        ["bound"],
        ["free"],
        ["free"],
    ]


async def test_pages_show_one_moment(api: Api) -> None:
    for name in ("a", "b", "c", "d"):
        await api.create("configmaps", config(name))
    path = "configmaps"

    _, first = await api.get(path, limit="2")
    await api.create("configmaps", config("bb"))
    await api.delete("configmaps/c")
    token = first["metadata"]["continue"]
    _, second = await api.get(path, limit="9", **{"continue": token})

    names = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert len(first["items"]) == 2
    assert first["metadata"]["remainingItemCount"] >= 2
    assert [name for name in names if name != "kube-root-ca.crt"] == list("abcd")
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in second["metadata"]


async def test_a_list_at_an_exact_version_shows_that_moment(api: Api) -> None:
    made = await api.create("configmaps", config("a", metadata={"labels": {"k": "v"}}))
    await api.create("configmaps", config("b", metadata={"labels": {"k": "v"}}))
    version = made["metadata"]["resourceVersion"]

    _, listed = await api.get(
        "configmaps",
        labelSelector="k=v",
        resourceVersion=version,
        resourceVersionMatch="Exact",
    )

    assert listed["metadata"]["resourceVersion"] == version
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]


async def test_a_version_of_the_future_is_too_large(api: Api) -> None:
    _, listed = await api.get("configmaps")
    future = str(int(listed["metadata"]["resourceVersion"]) + 1_000_000)

    code, status = await api.get("configmaps", resourceVersion=future)

    assert (code, status["reason"]) == (504, "Timeout")
    assert status["message"].startswith(
        f"Timeout: Too large resource version: {future}"
    )
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_get_of_a_status_shows_the_whole_object(api: Api) -> None:
    await api.create("pods", pod("p"))

    code, shown = await api.get("pods/p/status")

    assert (code, shown["kind"], shown["status"]["phase"]) == (200, "Pod", "Pending")
    assert shown["spec"]["containers"][0]["name"] == "main"


async def test_events_are_found_by_what_they_are_about(api: Api) -> None:
    for name, about, reason, kind in (
        ("e1", "p", "Scheduled", "Normal"),
        ("e2", "p", "Failed", "Warning"),
        ("e3", "q", "Failed", "Warning"),
    ):
        involved = {"kind": "Pod", "namespace": api.namespace, "name": about}
        await api.create(
            "events",
            {
                "metadata": {"name": name},
                "involvedObject": {**involved, "uid": f"uid-{about}"},
                "reason": reason,
                "type": kind,
                "source": {"component": "tester"},
            },
        )
    events = "events"

    found = [
        await api.names(events, fieldSelector="involvedObject.name=p"),
        await api.names(events, fieldSelector="involvedObject.uid=uid-q"),
        await api.names(
            events, fieldSelector="involvedObject.kind=Pod,reason=Failed,type!=Normal"
        ),
        await api.names(events, fieldSelector="source=tester,reason!=Failed"),
    ]

    assert found == [["e1", "e2"], ["e3"], ["e2", "e3"], ["e1"]]


async def test_an_event_about_a_node_lives_in_the_default_namespace(api: Api) -> None:
    path = "/api/v1/namespaces/default/events"
    body = {
        "metadata": {"generateName": "contract-"},
        "involvedObject": {"kind": "Node", "name": "n"},
    }

    code, made = await api.post(path, body)
    deleted, _ = await api.delete(f"{path}/{made['metadata']['name']}")

    assert (code, deleted) == (201, 200)
