import pytest

from tests.contract.apiserver.client import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Api,
    Object,
    config,
    pod,
)
from tests.support.rows import rows

pytestmark = pytest.mark.contract


async def test_a_merge_patch_merges_maps_and_removes_by_null(api: Api) -> None:
    await api.create("configmaps", config("a", data={"kept": "1", "gone": "2"}))

    code, patched = await api.patch(
        "configmaps/a", {"data": {"gone": None, "new": "3"}}
    )

    assert (code, patched["data"]) == (200, {"kept": "1", "new": "3"})


async def test_the_last_annotation_takes_the_map_with_it(api: Api) -> None:
    await api.create("configmaps", config("a", metadata={"annotations": {"k": "v"}}))

    _, patched = await api.patch(
        "configmaps/a", {"metadata": {"annotations": {"k": None}}}
    )

    assert "annotations" not in patched["metadata"]


async def test_removing_what_is_not_there_is_fine_in_a_merge_patch(api: Api) -> None:
    await api.create("configmaps", config("a"))

    code, _ = await api.patch(
        "configmaps/a", {"metadata": {"annotations": {"k": None}}}
    )

    assert code == 200


async def test_a_patch_of_an_unknown_kind_is_refused(api: Api) -> None:
    await api.create("configmaps", config("a"))

    code, status = await api.patch("configmaps/a", {}, media_type="application/json")

    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


async def test_a_json_patch_does_its_operations_in_order(api: Api) -> None:
    await api.create("configmaps", config("a", data={"one": "1", "two": "2"}))

    code, patched = await api.patch(
        "configmaps/a",
        [
            {"op": "test", "path": "/data/one", "value": "1"},
            {"op": "replace", "path": "/data/one", "value": "eins"},
            {"op": "move", "from": "/data/two", "path": "/data/three"},
            {"op": "copy", "from": "/data/one", "path": "/data/four"},
            {"op": "add", "path": "/metadata/annotations", "value": {}},
            {"op": "add", "path": "/metadata/annotations/a~1b", "value": "v"},
        ],
        JSON_PATCH,
    )

    assert code == 200
    assert patched["data"] == {"one": "eins", "three": "2", "four": "eins"}
    assert patched["metadata"]["annotations"] == {"a/b": "v"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/k", "value": "other"},
        {"op": "remove", "path": "/data/missing"},
        {"op": "replace", "path": "/metadata/annotations/k", "value": "v"},
        {"op": "add", "path": "/metadata/annotations/k", "value": "v"},
    ],
)
async def test_a_json_patch_that_does_not_apply_is_invalid(
    api: Api, operation: Object
) -> None:
    await api.create("configmaps", config("a", data={"k": "v"}))

    code, status = await api.patch("configmaps/a", [operation], JSON_PATCH)

    assert (code, status["reason"], status["message"]) == (
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )


async def test_a_strategic_patch_merges_containers_by_name(api: Api) -> None:
    containers = [{"name": "one", "image": "a:1"}, {"name": "two", "image": "b:1"}]
    await api.create("pods", pod("p", spec={"containers": containers}))

    code, patched = await api.patch(
        "pods/p",
        {"spec": {"containers": [{"name": "two", "image": "b:2"}]}},
        STRATEGIC,
    )

    assert code == 200
    assert [(c["name"], c["image"]) for c in patched["spec"]["containers"]] == [
        ("one", "a:1"),
        ("two", "b:2"),
    ]


async def test_a_strategic_patch_merges_conditions_by_type(api: Api, node: str) -> None:
    path = f"/api/v1/nodes/{node}/status"
    ready = {"type": "Ready", "status": "True", "reason": "R"}
    pressure = {"type": "MemoryPressure", "status": "False"}
    await api.patch(path, {"status": {"conditions": [ready, pressure]}}, MERGE)

    code, patched = await api.patch(
        path,
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        STRATEGIC,
    )

    shown = [(c["type"], c["status"]) for c in patched["status"]["conditions"]]
    assert code == 200
    assert shown == [("Ready", "False"), ("MemoryPressure", "False")]
    assert patched["status"]["conditions"][0]["reason"] == "R"


_IP = {"type": "InternalIP", "address": "192.0.2.1"}
_HOST = {"type": "Hostname", "address": "h"}


@rows(
    ("before", "order", "patch", "after"),
    {
        "removes by directive": (
            [_IP, _HOST],
            ["Hostname"],
            {"type": "InternalIP", "$patch": "delete"},
            [_HOST],
        ),
        "orders as it is told": (
            [_IP],
            ["Hostname", "InternalIP"],
            _HOST,
            [_HOST, _IP],
        ),
    },
)
async def test_a_strategic_patch_of_a_list(  # a column each
    api: Api,
    node: str,
    before: list[Object],
    order: list[str],
    patch: Object,
    after: list[Object],
) -> None:
    path = f"/api/v1/nodes/{node}/status"
    await api.patch(path, {"status": {"addresses": before}})
    ordered = {"$setElementOrder/addresses": [{"type": each} for each in order]}

    _, patched = await api.patch(
        path, {"status": {**ordered, "addresses": [patch]}}, STRATEGIC
    )

    assert patched["status"]["addresses"] == after


async def test_a_strategic_patch_replaces_maps_and_lists_on_demand(api: Api) -> None:
    metadata = {"annotations": {"old": "1"}, "finalizers": ["example.com/a"]}
    await api.create("configmaps", config("a", metadata=metadata))

    _, patched = await api.patch(
        "configmaps/a",
        {
            "metadata": {
                "annotations": {"$patch": "replace", "new": "2"},
                "finalizers": ["example.com/b"],
                "$deleteFromPrimitiveList/finalizers": ["example.com/a"],
            }
        },
        STRATEGIC,
    )
    await api.patch("configmaps/a", {"metadata": {"finalizers": None}})

    assert patched["metadata"]["annotations"] == {"new": "2"}
    assert patched["metadata"]["finalizers"] == ["example.com/b"]


async def test_taints_are_replaced_not_merged(api: Api, node: str) -> None:
    one = {"key": "one", "effect": "NoSchedule"}
    two = {"key": "two", "effect": "NoSchedule"}
    await api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [one]}})

    _, patched = await api.patch(
        f"/api/v1/nodes/{node}", {"spec": {"taints": [two]}}, STRATEGIC
    )

    assert patched["spec"]["taints"] == [two]
