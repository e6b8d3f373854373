"""What pod-resources tells, and what it does not."""

import aiohttp
import grpc.aio
import pytest

from tests.contract.kubelet.plugin import Plugin
from tests.contract.kubelet.site import Site

pytestmark = pytest.mark.contract


async def test_get_shows_one_entry_for_each_id_of_each_container(site: Site) -> None:
    await site.plugin()
    pod = await site.running_pod(2, 1)

    assert await site.shown_by_get(pod) == {
        "c0": [["dev-0"], ["dev-1"]],
        "c1": [["dev-2"]],
    }


async def test_ordinary_init_containers_are_left_out_and_sidecars_are_not(
    site: Site,
) -> None:
    await site.plugin()
    pod = await site.running_pod(2, init=(1,), sidecars=(1,))

    assert await site.shown_by_get(pod) == {
        "s0": [["dev-0"]],
        "c0": [["dev-1"], ["dev-2"]],
    }


async def test_get_of_an_unknown_pod_is_an_error(site: Site) -> None:
    await site.plugin()

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await site.shown_by_get({"metadata": {"name": "nobody"}})

    assert (refused.value.code(), refused.value.details()) == (
        grpc.StatusCode.UNKNOWN,
        "pod nobody in namespace default not found",
    )


async def test_list_shows_running_pods_and_no_rejected_ones(
    site: Site, plugin: Plugin
) -> None:
    running = await site.running_pod(1)
    plugin.refusal = "no"
    rejected = await site.pod(1)
    await site.until_phase(rejected, "Failed")

    listed = await site.shown_by_list()

    assert listed[running["metadata"]["name"]] == {"c0": [["dev-0"]]}
    assert rejected["metadata"]["name"] not in listed


async def test_the_kubelets_pod_list_wants_a_bearer_token(
    site: Site, kubelet_url: str, api_token: str
) -> None:
    pod = await site.running_pod(0)
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(kubelet_url, connector=connector) as session:
        async with session.get("/pods") as refused:
            assert refused.status == 401
        headers = {"Authorization": f"Bearer {api_token or 'any'}"}
        async with session.get("/pods", headers=headers) as answer:
            listed = await answer.json(content_type=None)

    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert pod["metadata"]["uid"] in {
        item["metadata"]["uid"] for item in listed["items"]
    }
