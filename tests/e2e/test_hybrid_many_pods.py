"""A job with more pods than its extender may at first have open files.

Each bind that waits at the gate is a connection; the extender is started with the soft
limit that container runtimes give, as all of them are here (`ours.py`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable

import pytest
import pytest_asyncio

from sandbox.apiclient import ApiClient
from tests.e2e import jobs, npu_nodes, ours
from tests.e2e.bare import until
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIZE = 1500
#: Room for all pods, and some.
NODES = tuple(f"node-{number}" for number in range(SIZE // 8 + 2))
#: How many requests of ours are under way at once.
_AT_ONCE = 32
#: From the creation of the last pod until the gate opens, on a machine that creates all
#: of them within half of this; a slower one has as much longer as it took for that.
WITHIN_S = 10.0
#: From then on until the API server has taken all binds: by the pace that the size of
#: jobs assumes.
ALL_WITHIN_S = SIZE / 100


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[ApiClient]:
    """The API server of a cluster with our extender under the stock scheduler."""
    async with ours.installed() as cluster:
        await run_all(npu_nodes.create(cluster.api, name) for name in NODES)
        await ours.serve(cluster, "--job-rules", "per-pod")
        yield cluster.api


async def run_all(calls: Iterable[Coroutine[None, None, object]]) -> None:
    """Await all of these, some at once."""
    left = iter(calls)

    async def run() -> None:
        for call in left:
            await call

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(run())


async def test_a_job_of_more_pods_than_open_files_is_bound(api: ApiClient) -> None:
    members = (jobs.member(f"many-{at}", "many", SIZE, 1) for at in range(SIZE))
    begun_s = time.monotonic()
    await run_all(api.create(PODS, pod) for pod in members)
    created_s = time.monotonic() - begun_s
    slowness = max(1.0, created_s / (WITHIN_S / 2))

    async def is_open() -> bool:
        return bool(await api.items(PODS, fieldSelector="spec.nodeName!=", limit="1"))

    async def are_bound() -> bool:
        return not await api.items(PODS, fieldSelector="spec.nodeName=", limit="1")

    await until(is_open, "the gate open", within_s=WITHIN_S * slowness)
    await until(are_bound, f"{SIZE} pods bound", within_s=ALL_WITHIN_S * slowness)

    assert len(await npu_nodes.taken(api)) == SIZE
