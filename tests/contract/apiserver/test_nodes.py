import pytest

from tests.contract.apiserver.client import Api

pytestmark = pytest.mark.contract


async def test_a_node_comes_with_its_status_and_canonical_quantities(
    api: Api, node: str
) -> None:
    _, shown = await api.get(f"/api/v1/nodes/{node}")

    amounts = {"cpu": "4", "huawei.com/Ascend910": "8"}
    assert shown["status"]["capacity"] == amounts
    assert shown["status"]["allocatable"] == amounts
    assert "namespace" not in shown["metadata"]


async def test_allocatable_changes_through_status_only(api: Api, node: str) -> None:
    path = f"/api/v1/nodes/{node}"
    seven = {"status": {"allocatable": {"huawei.com/Ascend910": "7"}}}

    _, ignored = await api.patch(path, seven)
    code, written = await api.patch(f"{path}/status", seven)

    assert ignored["status"]["allocatable"]["huawei.com/Ascend910"] == "8"
    assert (code, written["status"]["allocatable"]) == (
        200,
        {"cpu": "4", "huawei.com/Ascend910": "7"},
    )


async def test_annotations_of_a_node_change_through_both(api: Api, node: str) -> None:
    path = f"/api/v1/nodes/{node}"

    await api.patch(path, {"metadata": {"annotations": {"a": "1"}}})
    _, written = await api.patch(
        f"{path}/status", {"metadata": {"annotations": {"b": "2"}}}
    )

    annotations = written["metadata"]["annotations"]
    assert {key: annotations[key] for key in ("a", "b")} == {"a": "1", "b": "2"}


async def test_nodes_are_selected_by_whether_they_take_pods(
    api: Api, node: str
) -> None:
    mine = f"metadata.name={node}"

    before = await api.names("/api/v1/nodes", fieldSelector=mine)
    open_ = await api.names(
        "/api/v1/nodes", fieldSelector=f"{mine},spec.unschedulable=false"
    )
    await api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    closed = await api.names(
        "/api/v1/nodes", fieldSelector=f"{mine},spec.unschedulable=true"
    )

    assert (before, open_, closed) == ([node], [node], [node])


async def test_a_namespace_that_goes_takes_no_new_objects(api: Api) -> None:
    finalized = {"metadata": {"name": "a", "finalizers": ["example.com/wait"]}}
    await api.create("configmaps", finalized)
    code, marked = await api.delete(f"/api/v1/namespaces/{api.namespace}")

    refused, status = await api.post("configmaps", {"metadata": {"name": "late"}})
    await api.patch("configmaps/a", {"metadata": {"finalizers": None}})

    assert code == 200
    assert marked["status"]["phase"] == "Terminating"
    assert (refused, status["reason"]) == (403, "Forbidden")
    assert "because it is being terminated" in status["message"]


async def test_discovery_names_the_groups_and_resources(api: Api) -> None:
    _, version = await api.get("/version")
    _, core = await api.get("/api")
    _, listed = await api.get("/api/v1")
    _, groups = await api.get("/apis")
    _, leases = await api.get("/apis/coordination.k8s.io/v1")

    by_name = {row["name"]: row for row in listed["resources"]}
    assert version["major"] == "1"
    assert core["versions"] == ["v1"]
    assert by_name["pods"]["shortNames"] == ["po"]
    assert by_name["pods/binding"]["verbs"] == ["create"]
    assert by_name["nodes"]["namespaced"] is False
    assert "coordination.k8s.io" in {group["name"] for group in groups["groups"]}
    assert "leases" in {row["name"] for row in leases["resources"]}
