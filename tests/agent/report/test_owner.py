"""With whom the ConfigMap goes, against an API server on a real socket."""

import logging
from collections.abc import AsyncIterator

import pytest

from agent.report.owner import Owner
from kube import configmaps
from kube.client import Client
from kube.credentials import from_url
from kube.errors import KubeError
from kube.objects import OwnerReference
from sandbox.apiclient import ApiClient, Object
from sandbox.apiserver import ApiServer
from tests.agent.site import NODE, running_site
from tests.support import objects
from tests.support.servers import api_server

SYSTEM_PODS = "/api/v1/namespaces/kube-system/pods"
REPORT = f"/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{NODE}"
DAEMONSET = OwnerReference(
    api_version="apps/v1",
    kind="DaemonSet",
    name="ascend-agent",
    uid="5f3c",
    controller=True,
)
REFERENCE = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "ascend-agent",
    "uid": "5f3c",
}
MADE_BY = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "somebody",
    "uid": "77",
}


def agents_pod(name: str, *owners: Object) -> Object:
    owned = {"ownerReferences": list(owners)}
    return objects.pod(name, namespace="kube-system", meta=owned)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        async with ApiClient(server.url, "user:admin") as api:
            controller = REFERENCE | {"controller": True, "blockOwnerDeletion": True}
            await api.create(SYSTEM_PODS, agents_pod("agent-x", MADE_BY, controller))
            await api.create(SYSTEM_PODS, agents_pod("by-hand", MADE_BY))
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with Client(from_url(server.url)) as client:
        yield client


def owner(client: Client, pod: str, namespace: str = "kube-system") -> Owner:
    return Owner(
        client, pod=pod, namespace=namespace, configmap_namespace="kube-system"
    )


async def test_the_owner_is_the_controller_of_our_pod(client: Client) -> None:
    assert await owner(client, "agent-x").reference() == DAEMONSET


@pytest.mark.parametrize(
    ("pod", "namespace", "why"),
    [
        ("", "", "this agent was not told its pod (POD_NAME, POD_NAMESPACE)"),
        (
            "agent-x",
            "npu",
            "this agent runs in namespace npu and the ConfigMap is in kube-system: ",
        ),
        ("by-hand", "kube-system", "pod kube-system/by-hand has no controller"),
        ("gone", "kube-system", "this agent's own pod cannot be read: "),
    ],
)
async def test_without_an_owner_the_reason_is_logged_once(
    client: Client,
    caplog: pytest.LogCaptureFixture,
    pod: str,
    namespace: str,
    why: str,
) -> None:
    caplog.set_level(logging.INFO)
    nobody = owner(client, pod, namespace)

    assert [await nobody.reference(), await nobody.reference()] == [None, None]

    (said,) = (
        record.__dict__["reason"]
        for record in caplog.records
        if record.message == "the ConfigMap has no owner and will outlast the agent"
    )
    assert said.startswith(why)


async def test_an_api_server_that_is_away_is_asked_again(server: ApiServer) -> None:
    async with Client(from_url(server.url)) as client:
        ours = owner(client, "agent-x")
        await server.pause()
        with pytest.raises(KubeError):
            await ours.reference()
        await server.resume()

        assert await ours.reference() == DAEMONSET


async def test_owners_of_others_stay_beside_ours(
    server: ApiServer, client: Client
) -> None:
    async with ApiClient(server.url, "user:admin") as api:
        path = "/api/v1/namespaces/kube-system/configmaps"
        metadata = {"name": "report", "ownerReferences": [MADE_BY]}
        await api.create(path, {"metadata": metadata, "data": {"b": "2", "c": "3"}})

        for _ in range(2):
            await configmaps.patch(
                client,
                namespace="kube-system",
                name="report",
                data={"a": "1"},
                owner=DAEMONSET,
            )
        found = await api.get(f"{path}/report")

    assert found["metadata"]["ownerReferences"] == [REFERENCE, MADE_BY]
    assert found["data"] == {"a": "1", "b": "2", "c": "3"}


async def test_the_report_of_an_agent_in_a_pod_belongs_to_its_daemonset() -> None:
    told = ("--pod-name", "agent-x", "--pod-namespace", "kube-system")
    async with running_site(*told, starts=False) as site:
        controller = REFERENCE | {"controller": True}
        await site.api.create(SYSTEM_PODS, agents_pod("agent-x", controller))
        site.start_agent()
        await site.until_allocatable()

        made = await site.report()
        # one that was made without an owner is owned from the next write on
        await site.api.patch(
            REPORT, {"metadata": {"ownerReferences": None}, "data": {"Description": ""}}
        )
        mended = await site.until(
            site.report, lambda found: "ownerReferences" in found["metadata"]
        )

    assert made["metadata"]["ownerReferences"] == [REFERENCE]
    assert mended["metadata"]["ownerReferences"] == [REFERENCE]
