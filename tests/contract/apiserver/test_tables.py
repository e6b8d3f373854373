"""Tables, as `kubectl get` asks for them, against what the real API server drew.

The golden file is its answer. `--update-golden` writes it anew, from a real server
only (CONTRACT_API_URL).
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.contract.apiserver import drawn
from tests.contract.apiserver.client import Api, Object, config, problem
from tests.contract.apiserver.drawn import TABLE, normal

pytestmark = pytest.mark.contract

_GOLDEN = Path(__file__).with_name("golden") / "tables.json"
_WORKLOADS = ("daemonsets", "deployments")


class Golden:
    """The tables that the real server drew, {name: columns and rows}."""

    def __init__(self, *, update: bool) -> None:
        self._is_updated = update

    def check(self, name: str, found: Object) -> None:
        """Compare a table with what is written about it, or write it."""
        known = json.loads(_GOLDEN.read_text()) if _GOLDEN.exists() else {}
        if self._is_updated:
            assert os.environ.get("CONTRACT_API_URL"), (
                "only a real server's word counts"
            )
            text = json.dumps(known | {name: found}, indent=1, sort_keys=True)
            _GOLDEN.write_text(text + "\n")
        else:
            wanted = known[name]
            # Row by row first: of a whole table nobody sees what differs.
            for row, cells in found.get("rows", {}).items():
                assert cells == wanted["rows"][row], row
            assert found == wanted


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(update=request.config.getoption("--update-golden"))


async def _table(api: Api, path: str, **query: str) -> Object:
    code, table = await api.call("GET", path, query=query, accept=TABLE)
    assert (code, table["kind"], table["apiVersion"]) == (
        200,
        "Table",
        "meta.k8s.io/v1",
    )
    return table


def _core(table: Object, columns: int | None = None) -> Object:
    """Reduce a table to columns and, by name, rows."""
    return {
        "columns": table["columnDefinitions"][:columns],
        "rows": {
            row["object"]["metadata"]["name"]: _row(row, columns)
            for row in table["rows"]
        },
    }


def _row(row: Object, columns: int | None) -> Object:
    told = {"conditions": row["conditions"]} if "conditions" in row else {}
    return {"cells": [normal(cell) for cell in row["cells"][:columns]], **told}


#: Ours come after them.
_COLUMNS_OF_PODS = 9


async def test_pods_are_drawn_as_by_the_real_server(api: Api, golden: Golden) -> None:
    for name, status in drawn.PODS.items():
        await api.create("pods", drawn.pod_of(name))
        await api.patch(f"pods/{name}/status", {"status": status})

    table = await _table(api, "pods", limit="500")

    golden.check("pods", _core(table, _COLUMNS_OF_PODS))


async def test_a_pod_that_is_deleted_is_terminating(api: Api, node: str) -> None:
    spec = {"nodeName": node}
    for name, phase in (("going", "Running"), ("over", "Succeeded")):
        await api.create("pods", {**drawn.pod_of("new"), "metadata": {"name": name}})
        await api.patch(f"pods/{name}/status", {"status": {"phase": phase}})
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        }
        await api.post(f"pods/{name}/binding", body)
        finalizers = {"metadata": {"finalizers": ["example.com/stay"]}}
        await api.patch(f"pods/{name}", finalizers)
        await api.delete(f"pods/{name}")

    table = await _table(api, "pods")
    for name in ("going", "over"):
        await api.patch(f"pods/{name}", {"metadata": {"finalizers": None}})
        await api.delete(f"pods/{name}", {"gracePeriodSeconds": 0})

    shown = [(row["cells"][2], row["cells"][6]) for row in table["rows"]]
    assert shown == [("Terminating", spec["nodeName"]), ("Succeeded", node)]


async def test_nodes_are_drawn_as_by_the_real_server(api: Api, golden: Golden) -> None:
    paths = {}
    for name, (labels, spec, status) in drawn.NODES.items():
        metadata = {"name": f"{api.namespace}-{name}", "labels": labels}
        paths[name] = f"/api/v1/nodes/{metadata['name']}"
        await api.post("/api/v1/nodes", {"metadata": metadata, "spec": spec})
        await api.patch(f"{paths[name]}/status", {"status": status})

    tables = {name: await _table(api, path) for name, path in paths.items()}
    for path in paths.values():
        await api.delete(path)

    rows = {name: _row(table["rows"][0], None) for name, table in tables.items()}
    for name, row in rows.items():
        assert row["cells"].pop(0) == f"{api.namespace}-{name}"
    columns = tables["bare"]["columnDefinitions"]
    golden.check("nodes", {"columns": columns, "rows": rows})


async def test_events_are_drawn_as_by_the_real_server(api: Api, golden: Golden) -> None:
    for name, rest in drawn.EVENTS.items():
        involved = {"kind": "Pod", "namespace": api.namespace, "name": "p"}
        involved["fieldPath"] = "spec.containers{main}"
        metadata = {"name": name}
        await api.create(
            "events", {"metadata": metadata, "involvedObject": involved, **rest}
        )

    table = await _table(api, "events")

    golden.check("events", _core(table))


@pytest.mark.parametrize("plural", drawn.OTHERS)
async def test_small_objects_are_drawn_as_by_the_real_server(
    api: Api, golden: Golden, plural: str
) -> None:
    made = await api.create(plural, drawn.OTHERS[plural])

    table = await _table(api, f"{plural}/{made['metadata']['name']}")

    golden.check(plural, _core(table))


async def test_leases_are_drawn_as_by_the_real_server(api: Api, golden: Golden) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
    await api.post(path, {"metadata": {"name": "a"}})
    await api.post(
        path, {"metadata": {"name": "b"}, "spec": {"holderIdentity": "somebody"}}
    )

    golden.check("leases", _core(await _table(api, path)))


async def test_namespaces_are_drawn_as_by_the_real_server(
    api: Api, golden: Golden
) -> None:
    table = await _table(api, f"/api/v1/namespaces/{api.namespace}")

    found = _core(table)
    assert list(found["rows"]) == [api.namespace]
    cells = found["rows"].pop(api.namespace)["cells"]
    golden.check("namespaces", {**found, "cells": cells[1:]})


async def test_jobs_are_drawn_as_by_the_real_server(api: Api, golden: Golden) -> None:
    path = f"/apis/batch/v1/namespaces/{api.namespace}/jobs"
    for name, (_, status) in drawn.JOBS.items():
        code, made = await api.post(path, drawn.job_of(name))
        assert code == 201, made
        code, made = await api.patch(f"{path}/{name}/status", {"status": status})
        assert code == 200, made

    table = await _table(api, path)

    found = _core(table)
    for row in found["rows"].values():
        key, _, uid = row["cells"].pop().partition("=")
        assert (key, len(uid)) == ("batch.kubernetes.io/controller-uid", 36)
    golden.check("jobs", found)


@pytest.mark.parametrize("plural", _WORKLOADS)
async def test_workloads_have_the_columns_of_the_real_server(
    api: Api, golden: Golden, plural: str
) -> None:
    table = await _table(api, f"/apis/apps/v1/namespaces/{api.namespace}/{plural}")

    assert table["rows"] == []
    golden.check(plural, {"columns": table["columnDefinitions"]})


async def test_a_row_brings_the_metadata_of_its_object(api: Api) -> None:
    made = await api.create("configmaps", config("a", metadata={"labels": {"k": "v"}}))

    row = (await _table(api, "configmaps"))["rows"][-1]

    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["apiVersion"] == "meta.k8s.io/v1"
    assert _unmanaged(row["object"]["metadata"]) == _unmanaged(made["metadata"])


def _unmanaged(metadata: Object) -> Object:
    return {key: metadata[key] for key in metadata if key != "managedFields"}


@pytest.mark.parametrize(
    ("included", "found"), [("Object", "ConfigMap"), ("None", None)]
)
async def test_a_row_brings_what_is_asked_for(
    api: Api, included: str, found: str | None
) -> None:
    await api.create("configmaps", config("a", data={"k": "v"}))

    path = "configmaps/a"
    row = (await _table(api, path, includeObject=included))["rows"][0]

    assert (row["object"] or {}).get("kind") == found


async def test_an_unknown_wish_is_a_bad_request(api: Api) -> None:
    _, status = await api.call(
        "GET", "configmaps", query={"includeObject": "Some"}, accept=TABLE
    )

    assert problem(status) == (
        400,
        "BadRequest",
        (
            "Unable to convert to Table as requested: includeObject: Invalid "
            "value: \"Some\": must be 'Metadata', 'Object', 'None', or empty"
        ),
    )


async def test_a_failure_is_a_status_and_no_table(api: Api) -> None:
    code, status = await api.call("GET", "pods/missing", accept=TABLE)

    assert (code, status["kind"], status["reason"]) == (404, "Status", "NotFound")


async def test_a_table_comes_in_pages(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.create("configmaps", config(name, metadata={"labels": {"k": "v"}}))
    query = {"labelSelector": "k=v", "limit": "2"}

    first = await _table(api, "configmaps", **query)
    token = first["metadata"]["continue"]
    rest = await _table(api, "configmaps", **query, **{"continue": token})

    assert [row["cells"][0] for row in first["rows"]] == ["a", "b"]
    assert [row["cells"][0] for row in rest["rows"]] == ["c"]
    assert "continue" not in rest["metadata"]


async def test_a_watch_sends_a_table_for_each_event_and_its_header_once(
    api: Api,
) -> None:
    await api.create("configmaps", config("a", metadata={"labels": {"k": "v"}}))
    query = {"labelSelector": "k=v"}

    async with api.watch("configmaps", accept=TABLE, **query) as stream:
        first = await stream.next()
        await api.patch("configmaps/a", {"data": {"one": "1"}})
        second = await stream.next()
        await api.delete("configmaps/a")
        third = await stream.next()

    assert [_told(event) for event in (first, second, third)] == [
        ("ADDED", "Table", ["Name", "Data", "Age"], ["a", 0]),
        ("MODIFIED", "Table", [], ["a", 1]),
        ("DELETED", "Table", [], ["a", 1]),
    ]


def _told(event: Object) -> tuple[str, str, list[str], list[Any]]:
    table = event["object"]
    names = [column["name"] for column in table["columnDefinitions"] or ()]
    return event["type"], table["kind"], names, table["rows"][0]["cells"][:2]


async def test_metadata_alone_can_be_had(api: Api) -> None:
    made = await api.create("configmaps", config("a", data={"k": "v"}))
    one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    many = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

    _, alone = await api.call("GET", "configmaps/a", accept=one)
    _, listed = await api.call("GET", "configmaps", accept=many)

    assert (alone["kind"], "data" in alone) == ("PartialObjectMetadata", False)
    assert alone["metadata"]["uid"] == made["metadata"]["uid"]
    assert (listed["kind"], listed["apiVersion"]) == (
        "PartialObjectMetadataList",
        "meta.k8s.io/v1",
    )
    assert made["metadata"]["uid"] in [
        item["metadata"]["uid"] for item in listed["items"]
    ]
    _, status = await api.call("GET", "configmaps", accept=one)
    assert problem(status) == (
        406,
        "NotAcceptable",
        (
            "you requested PartialObjectMetadata, but the requested object "
            "is a list (*core.ConfigMapList)"
        ),
    )
