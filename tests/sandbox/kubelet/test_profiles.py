"""Kubelets of other versions; what the newest does, the contract tests know."""

from collections.abc import AsyncIterator

import grpc.aio
import pytest

from kubelet_api.deviceplugin.v1beta1 import api_pb2
from sandbox.apiserver import ApiServer
from sandbox.kubelet import Kubelet
from sandbox.kubelet.profiles import PROFILES, Profile
from tests.contract.kubelet.plugin import Context, Plugin
from tests.contract.kubelet.site import Site
from tests.support.servers import embedded_kubelet


@pytest.fixture(params=PROFILES, ids=str)
def profile(request: pytest.FixtureRequest) -> Profile:
    found: Profile = request.param
    return found


@pytest.fixture
async def kubelet(server: ApiServer, profile: Profile) -> AsyncIterator[Kubelet]:
    async with embedded_kubelet(server.url, "node-1", profile) as kubelet:
        yield kubelet


def test_every_version_has_one_row() -> None:
    rows = [minor for row in PROFILES for minor in range(row.first, row.last + 1)]

    assert rows == list(range(28, 37))


async def test_get_answers_where_it_is_on(site: Site, profile: Profile) -> None:
    await site.plugin()
    pod = await site.running_pod(1)

    if profile.has_get:
        assert await site.shown_by_get(pod) == {"c0": [["dev-0"]]}
        return
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await site.shown_by_get(pod)
    assert (refused.value.code(), refused.value.details()) == (
        grpc.StatusCode.UNKNOWN,
        "PodResources API Get method disabled",
    )


async def test_list_shows_pods_that_were_rejected_where_it_shows_all(
    site: Site, profile: Profile
) -> None:
    plugin = await site.plugin()
    plugin.refusal = "no"
    rejected = await site.pod(1)
    await site.until_phase(rejected, "Failed")

    name = rejected["metadata"]["name"]
    listed = await site.shown_by_list()

    assert listed == ({name: {"c0": []}} if profile.lists_ended else {})


class CdiPlugin(Plugin):
    """Names a CDI device for each id."""

    async def Allocate(
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        answer = await super().Allocate(request, context)
        answer.container_responses[0].cdi_devices.append(
            api_pb2.CDIDevice(name="example.com/chip=0")
        )
        return answer


async def test_names_of_cdi_devices_reach_containers_where_they_are_passed_on(
    site: Site, kubelet: Kubelet, profile: Profile
) -> None:
    plugin = CdiPlugin(site.resource)
    await plugin.serve(site.socket)
    try:
        await plugin.register(site.socket)
        await site.until_counts(capacity=8, allocatable=8)

        await site.running_pod(1)

        (record,) = kubelet.containers()
        assert record.cdi == (("example.com/chip=0",) if profile.passes_cdi else ())
    finally:
        await plugin.stop()
