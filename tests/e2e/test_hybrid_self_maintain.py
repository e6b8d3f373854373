"""What the list of free chips in the ConfigMap means, under the stock scheduler.

A node of which that list and all else say different things: only so it shows whom
the extender believes. Chips that are held or being released are nobody's either way.
"""

from collections.abc import AsyncIterator, Iterable, Mapping

import pytest
import pytest_asyncio

from extender.apiserver import live_settings
from sandbox.apiclient import ApiClient
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import deviceinfo
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import bare_cluster, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PODS = "/api/v1/namespaces/default/pods"
CONFIGMAPS = f"/api/v1/namespaces/{deviceinfo.CONFIGMAP_NAMESPACE}/configmaps"
EVENTS = f"/api/v1/namespaces/{deviceinfo.CONFIGMAP_NAMESPACE}/events"
WITHIN_S = 60.0
LISTED, HELD, RELEASING = (0, 1, 2, 3), (2,), (3,)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender under the stock scheduler."""
    async with bare_cluster(ours.USERS) as cluster:
        ours.give_rights(cluster)
        await npu_nodes.create(cluster.api, "node-0")
        report = npu_nodes.report(HELD, releasing=RELEASING, listed=LISTED)
        path = f"{CONFIGMAPS}/{deviceinfo.configmap_name('node-0')}"
        await cluster.api.patch(path, {"data": report})
        extender = await ours.start_extender(cluster)
        await cluster.start_scheduler(extender.url)
        yield cluster.api


@pytest.mark.seed("000-01")
@pytest.mark.seed("000-08")
@pytest.mark.seed("004-13")
async def test_maintaining_itself_the_extender_passes_the_list_over(
    api: ApiClient,
) -> None:
    await _set(api, "true")
    await api.create(PODS, npu_nodes.pod("ring", 4))
    await api.create(PODS, npu_nodes.pod("two", 2))

    found = await _bound(api, ("ring", "two"))

    assert found == {"ring": chips(4, 5, 6, 7), "two": chips(0, 1)}
    # only now: the scheduler binds in parallel, and it could overtake "two"
    await api.create(PODS, npu_nodes.pod("one", 1))
    await _until_told(api, "one")
    await _remove_all(api, ("ring", "two", "one"))


@pytest.mark.seed("000-06")
@pytest.mark.seed("004-13")
async def test_otherwise_the_list_bounds_what_there_is(api: ApiClient) -> None:
    await _set(api, "false")
    await api.create(PODS, npu_nodes.pod("ring", 4))
    await _until_told(api, "ring")
    await api.create(PODS, npu_nodes.pod("two", 2))

    found = await _bound(api, ("two",))

    assert found == {"two": chips(0, 1)}
    await _remove_all(api, ("ring", "two"))


def chips(*ids: int) -> str:
    return ",".join(f"{PRODUCT.chip_prefix}{chip}" for chip in ids)


async def _set(api: ApiClient, mode: str) -> None:
    """Say who maintains the list, and wait until the extender has taken it."""
    # another edit besides, so that there is always something to be taken
    data = {"self-maintain-available-card": mode, "reserve-nodes": "1"}
    names = {each["metadata"]["name"] for each in await api.items(CONFIGMAPS)}
    if live_settings.NAME in names:
        await api.patch(f"{CONFIGMAPS}/{live_settings.NAME}", {"data": data})
    else:
        await api.create(
            CONFIGMAPS, {"metadata": {"name": live_settings.NAME}, "data": data}
        )
    text = f"in force: self-maintain-available-card {mode}, "

    async def is_taken() -> bool:
        said = [event["message"] for event in await api.items(EVENTS)]
        return any(each.startswith(text) for each in said)

    await until(is_taken, f"self-maintain {mode} in force", within_s=WITHIN_S)


async def _bound(api: ApiClient, names: Iterable[str]) -> Mapping[str, str]:
    """{pod: its chips}, once all of them have a node."""
    found: dict[str, str] = {}

    async def are_bound() -> bool:
        found.clear()
        for pod in await api.items(PODS):
            if pod["spec"].get("nodeName"):
                notes = pod["metadata"]["annotations"]
                found[pod["metadata"]["name"]] = notes[PRODUCT.resource]
        return found.keys() >= set(names)

    await until(are_bound, f"{names} bound", within_s=WITHIN_S)
    return found


async def _until_told(api: ApiClient, name: str) -> None:
    """The pod is told that there are not enough free chips."""

    async def is_told() -> bool:
        pod = await api.get(f"{PODS}/{name}")
        conditions = pod["status"].get("conditions", [])
        return any("free chip" in each.get("message", "") for each in conditions)

    await until(is_told, f"{name} told", within_s=WITHIN_S)


async def _remove_all(api: ApiClient, names: Iterable[str]) -> None:
    for name in names:
        await api.delete(f"{PODS}/{name}", grace_s=0)

    async def are_gone() -> bool:
        return not await api.items(PODS)

    await until(are_gone, "all gone", within_s=WITHIN_S)
