import pytest

from tests.contract.apiserver.client import Api, pod
from tests.contract.apiserver.drawn import TABLE


async def test_pods_have_chips_and_a_reason_behind_all_other_columns(api: Api) -> None:
    metadata = {"annotations": {"huawei.com/Ascend910": "Ascend910-2,Ascend910-3"}}
    made = await api.create("pods", pod("p", metadata=metadata))
    involved = {"namespace": "default", "uid": made["metadata"]["uid"]}
    event = {"metadata": {"name": "e"}, "involvedObject": involved}
    told = {"reason": "AscendScheduled", "message": "chips 2,3 of node-1"}
    await api.create("events", {**event, **told})

    _, table = await api.call("GET", api.path("pods"), accept=TABLE)

    shown = [
        (column["name"], column["priority"]) for column in table["columnDefinitions"]
    ]
    assert shown[-2:] == [("Chips", 1), ("Why", 1)]
    assert table["rows"][0]["cells"][-2:] == ["2,3 (claimed)", "chips 2,3 of node-1"]


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "*/*",
        "application/vnd.kubernetes.protobuf, application/json",
        "application/json;as=Table;g=example.com;v=v1, application/json",
        "application/json;as=Table;g=meta.k8s.io;v=v7",
        "application/json;as=Chair;g=meta.k8s.io;v=v1",
    ],
)
async def test_who_asks_for_no_table_gets_objects(api: Api, accept: str) -> None:
    _, listed = await api.call("GET", api.path("pods"), accept=accept)

    assert listed["kind"] == "PodList"


async def test_the_first_form_that_there_is_counts(api: Api) -> None:
    accept = "application/json;as=Table;g=meta.k8s.io;v=v1beta1;q=0.9,application/json"

    _, table = await api.call("GET", api.path("pods"), accept=accept)

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1beta1")


async def test_a_watch_of_metadata_sends_metadata(api: Api) -> None:
    await api.create("pods", pod("p"))
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

    async with api.watch(api.path("pods"), accept=accept) as stream:
        event = await stream.next()

    assert (event["type"], event["object"]["kind"]) == (
        "ADDED",
        "PartialObjectMetadata",
    )
    assert sorted(event["object"]) == ["apiVersion", "kind", "metadata"]
