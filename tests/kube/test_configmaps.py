import pytest

from kube import configmaps
from kube.errors import ConflictError, MalformedError
from tests.kube.server import Answer, Request, Script, refusal

RAW = {"metadata": {"name": "c", "resourceVersion": "7"}, "data": {"a": "1"}}
PATH = "/api/v1/namespaces/kube-system/configmaps"


async def test_a_config_map_is_read(script: Script) -> None:
    script.will(Answer(body=RAW))

    found = await configmaps.get(script.client, "kube-system", "c")

    assert (found.metadata.resource_version, found.data) == ("7", {"a": "1"})
    assert script.requests[0].path == f"{PATH}/c"


async def test_a_config_map_is_made(script: Script) -> None:
    script.will(Answer(status=201, body=RAW), refusal(409, "AlreadyExists"))

    async def create() -> None:
        await configmaps.create(
            script.client,
            namespace="kube-system",
            name="c",
            labels={"l": "m"},
            annotations={"n": "o"},
            data={"a": "1"},
        )

    await create()
    with pytest.raises(ConflictError):
        await create()

    assert script.requests[0] == Request(
        method="POST",
        path=PATH,
        query={},
        body={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "c",
                "namespace": "kube-system",
                "labels": {"l": "m"},
                "annotations": {"n": "o"},
            },
            "data": {"a": "1"},
        },
    )


async def test_only_our_own_keys_are_patched(script: Script) -> None:
    script.will(Answer(body=RAW), Answer(body=RAW))

    await configmaps.patch(
        script.client, namespace="kube-system", name="c", data={"a": "2", "b": None}
    )
    await configmaps.patch(
        script.client,
        namespace="kube-system",
        name="c",
        data={"a": "3"},
        labels={"l": "m"},
        annotations={"n": None},
        resource_version="7",
    )

    assert [request.body for request in script.requests] == [
        {"data": {"a": "2", "b": None}},
        {
            "data": {"a": "3"},
            "metadata": {
                "labels": {"l": "m"},
                "annotations": {"n": None},
                "resourceVersion": "7",
            },
        },
    ]


async def test_a_strange_answer_is_malformed(script: Script) -> None:
    script.will(Answer(raw=b'{"data": {"a": 1}}'))

    with pytest.raises(MalformedError, match="configmaps/c"):
        await configmaps.get(script.client, "kube-system", "c")
