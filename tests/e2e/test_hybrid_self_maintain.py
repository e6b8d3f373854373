"""What the list of free chips in the ConfigMap means, under the stock scheduler.

A node of which that list and all else say different things: only so it shows whom
the extender believes. Chips that are held or being released are nobody's either way.
"""

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from extender.apiserver import live_settings
from sandbox.apiclient import ApiClient
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import deviceinfo
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import until
from tests.e2e.bare_pods import bound, remove_all, wait_bound, wait_told
from tests.support.objects import CONFIGMAPS, PODS, configmap

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVENTS = f"/api/v1/namespaces/{deviceinfo.CONFIGMAP_NAMESPACE}/events"
WITHIN_S = 60.0
LISTED, HELD, RELEASING = (0, 1, 2, 3), (2,), (3,)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender under the stock scheduler."""
    async with ours.installed("node-0") as cluster:
        report = npu_nodes.report(HELD, releasing=RELEASING, listed=LISTED)
        path = f"{CONFIGMAPS}/{deviceinfo.configmap_name('node-0')}"
        await cluster.api.patch(path, {"data": report})
        await cluster.api.create(CONFIGMAPS, configmap(live_settings.NAME, {}))
        await ours.serve(cluster)
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

    found = await _bound(api, "ring", "two")

    assert found == {"ring": chips(4, 5, 6, 7), "two": chips(0, 1)}
    # only now: the scheduler binds in parallel, and it could overtake "two"
    await api.create(PODS, npu_nodes.pod("one", 1))
    await wait_told(api, "free chip", "one")
    await remove_all(api)


@pytest.mark.seed("000-06")
@pytest.mark.seed("004-13")
async def test_otherwise_the_list_bounds_what_there_is(api: ApiClient) -> None:
    await _set(api, "false")
    await api.create(PODS, npu_nodes.pod("ring", 4))
    await wait_told(api, "free chip", "ring")
    await api.create(PODS, npu_nodes.pod("two", 2))

    found = await _bound(api, "two")

    assert found == {"two": chips(0, 1)}
    await remove_all(api)


def chips(*ids: int) -> str:
    return ",".join(f"{PRODUCT.chip_prefix}{chip}" for chip in ids)


async def _set(api: ApiClient, mode: str) -> None:
    """Say who maintains the list, and wait until the extender has taken it."""
    # another edit besides, so that there is always something to be taken
    data = {"self-maintain-available-card": mode, "reserve-nodes": "1"}
    await api.patch(f"{CONFIGMAPS}/{live_settings.NAME}", {"data": data})
    text = f"in force: self-maintain-available-card {mode}, "

    async def is_taken() -> bool:
        said = [event["message"] for event in await api.items(EVENTS)]
        return any(each.startswith(text) for each in said)

    await until(is_taken, f"self-maintain {mode} in force", within_s=WITHIN_S)


async def _bound(api: ApiClient, *names: str) -> Mapping[str, str]:
    """{pod: its chips}, once all of them have a node."""
    pods = await wait_bound(api, *names)
    notes = [pod["metadata"]["annotations"] for pod in pods]
    assert len(await bound(api)) == len(names)
    return {
        name: each[PRODUCT.resource] for name, each in zip(names, notes, strict=True)
    }
