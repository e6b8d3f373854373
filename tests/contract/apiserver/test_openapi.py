"""What kubectl reads about types, against what every API server says of them."""

import pytest

from sandbox.apiserver.openapi import types
from tests.contract.apiserver.client import Api, Object

pytestmark = pytest.mark.contract

_GROUPS = (
    "api/v1",
    "apis/apps/v1",
    "apis/batch/v1",
    "apis/coordination.k8s.io/v1",
    "apis/policy/v1",
)


async def _document(api: Api, group: str) -> Object:
    code, index = await api.get("/openapi/v3")
    assert code == 200
    path, _, digest = index["paths"][group]["serverRelativeURL"].partition("?hash=")
    assert digest
    code, document = await api.get(path, hash=digest)
    assert code == 200
    return document


@pytest.mark.parametrize("group", _GROUPS)
async def test_types_are_described_as_by_kubernetes(api: Api, group: str) -> None:
    served = (await _document(api, group))["components"]["schemas"]

    known = types.definitions()
    # One schema names all kinds of a group that it can delete.
    compared = {name for name in served if name in known} - {_DELETE_OPTIONS}
    assert {name: served[name] for name in compared} == {
        name: known[name] for name in compared
    }
    assert {name for name in known if name in served} >= _EXPECTED[group]


_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_EXPECTED = {
    "api/v1": {"io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.Node", _META},
    "apis/apps/v1": {"io.k8s.api.apps.v1.DaemonSet", _META},
    "apis/batch/v1": {"io.k8s.api.batch.v1.Job", _META},
    "apis/coordination.k8s.io/v1": {"io.k8s.api.coordination.v1.Lease", _META},
    "apis/policy/v1": {"io.k8s.api.policy.v1.PodDisruptionBudget", _META},
}


@pytest.mark.parametrize(
    ("group", "path", "kind"),
    [
        ("api/v1", "/api/v1/namespaces/{namespace}/pods/{name}", "Pod"),
        ("api/v1", "/api/v1/nodes/{name}", "Node"),
        (
            "apis/coordination.k8s.io/v1",
            "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}",
            "Lease",
        ),
    ],
)
async def test_a_patch_says_that_the_server_validates(
    api: Api, group: str, path: str, kind: str
) -> None:
    operations = (await _document(api, group))["paths"][path]

    patch = operations["patch"]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == kind
    assert operations["get"]["x-kubernetes-group-version-kind"]["kind"] == kind
    assert "fieldValidation" in [item["name"] for item in patch["parameters"]]
