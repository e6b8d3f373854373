"""Jobs under leaf switches and in SuperPoDs, under the stock scheduler.

Nodes and pods are objects only. Servers are called after leaf and position: b2.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from extender.apiserver import live_settings
from sandbox.apiclient import ApiClient, Object
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING as RINGS
from scheduler_core.products.table import Product
from scheduler_core.topology.leaves import TOR_AFFINITY
from scheduler_core.wire import annotations, switches
from scheduler_core.wire.job_annotations import IS_SHARED_TOR
from tests.e2e import jobs, npu_nodes, ours
from tests.e2e.bare import until
from tests.e2e.bare_pods import remove_all, wait_bound, wait_told
from tests.support import watched
from tests.support.objects import CONFIGMAPS, PODS, configmap
from tests.support.rows import rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

A3 = table.by_key("atlas-a3-16-superpod")
#: {leaf: its servers}
LEAVES = {leaf: tuple(f"{leaf}{at}" for at in range(4)) for leaf in "abc"}
#: {SuperPoD: its nodes}
SUPERPODS = {0: ("p0", "p1", "p2", "p3"), 1: ("q0", "q1", "q2"), 2: ("r0", "r1")}
PRODUCTS: Mapping[str, Product] = {
    **{name: RINGS for names in LEAVES.values() for name in names},
    **{name: A3 for names in SUPERPODS.values() for name in names},
}
ADDRESSES = {name: f"10.0.0.{at}" for at, name in enumerate(PRODUCTS)}
#: From the creation of the last pod until the job is bound.
WITHIN_S = 10.0
ONE = {"nslb-version": "1.0"}
TWO = {"nslb-version": "2.0"}
SINGLE = {"tor_level": "single_layer"}
DEFAULTS = {"nslb-version": "1.0", "reserve-nodes": "2"}
LARGE, NORMAL = "large-model-schema", "normal-schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster with our extender, and what it says that it knows."""

    api: ApiClient
    extender: ApiClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_site() -> AsyncIterator[Site]:
    """A cluster with our extender and no agent at all."""
    async with ours.installed() as cluster:
        superpods = {name: id_ for id_, names in SUPERPODS.items() for name in names}
        for name, product in PRODUCTS.items():
            await npu_nodes.create_bare(
                cluster.api,
                name,
                product,
                address=ADDRESSES[name],
                superpod=superpods.get(name, -2),
            )
        addresses = [
            tuple(ADDRESSES[name] for name in names) for names in LEAVES.values()
        ]
        leaves = {switches.TOR_INFO_KEY: watched.leaves(*addresses).tor_info}
        for config in (
            configmap(live_settings.NAME, ONE),
            configmap(switches.NAME, leaves),
        ):
            await cluster.api.create(CONFIGMAPS, config)
        extender = await ours.serve(cluster, "--bare-nodes", "true")
        async with ApiClient(extender.url, "") as explains:
            yield Site(api=cluster.api, extender=explains)


@pytest_asyncio.fixture(loop_scope="module")
async def site(whole_site: Site) -> AsyncIterator[Site]:
    """The same, with no pods."""
    yield whole_site
    await remove_all(whole_site.api)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Pods that each get all chips of a node."""

    pods: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    product: Product = RINGS

    async def create(self, site: Site, name: str) -> Sequence[str]:
        """Have its pods made; return their names by rank."""
        names = [f"{name}-{rank}" for rank in range(self.pods)]
        for rank, each in enumerate(names):
            pod = jobs.member(each, name, self.pods, self.product.chip_count)
            pod["metadata"]["labels"] |= self.labels
            pod["metadata"]["annotations"] |= self.annotations
            pod["metadata"]["annotations"]["hccl/rankIndex"] = str(rank)
            kind = self.product.accelerator_types[-1]
            pod["spec"]["nodeSelector"] = {"accelerator-type": kind}
            await site.api.create(PODS, pod)
        return names

    async def run(self, site: Site, name: str) -> Sequence[Object]:
        """Have it bound; return its pods by rank."""
        names = await self.create(site, name)
        return await wait_bound(site.api, *names, within_s=WITHIN_S)


def under_leaves(schema: str, pods: int) -> Job:
    return Job(pods=pods, labels={TOR_AFFINITY: schema})


def in_superpods(pods: int, block_nodes: int, *, is_soft: bool = False) -> Job:
    return Job(
        pods=pods,
        labels={"super-pod-affinity": "soft"} if is_soft else {},
        annotations={"sp-block": str(block_nodes * A3.chip_count)},
        product=A3,
    )


@rows(
    ("settings", "busy", "before", "job", "expected"),
    {
        "1.0: a job fills a leaf": (ONE, "", 0, (LARGE, 4), "a0 a1 a2 a3"),
        "1.0: a small one under the smallest leaf": (
            *(ONE, "b0 b1", 0),
            *((LARGE, 2), "b2 b3"),
        ),
        "1.0: one crosses to the next leaf": (
            *(ONE, "", 0),
            *((LARGE, 6), "a0 a1 a2 a3 b0 b1"),
        ),
        "1.0: one crosses by positions": (
            *(ONE, "a2 a3 b0 b1 c0 c1 c2 c3", 0),
            *((LARGE, 4), "a0 a1 b2 b3"),
        ),
        "1.0: normal jobs share a leaf": (
            *(ONE, "", 6),
            *((NORMAL, 6), "c0 c1 c2 c3 b2 b3"),
        ),
        "2.0: a job crosses and shares a leaf": (
            *(TWO, "", 0),
            *((LARGE, 6), "a0=2 a1=2 a2=2 a3=2 b0=1 b1=1"),
        ),
        "2.0: the next shares the same leaf": (
            *(TWO, "", 6),
            *((LARGE, 6), "c0=2 c1=2 c2=2 c3=2 b2=1 b3=1"),
        ),
        "2.0: a small one under the shared leaf": (
            *(TWO, "", 6),
            *((LARGE, 2), "b2=0 b3=0"),
        ),
        "single layer: the last of equal leaves": (
            *(SINGLE, "c0", 0),
            *((LARGE, 4), "b0 b1 b2 b3"),
        ),
    },
)
async def test_a_job_lies_under_its_leaves(
    site: Site,
    settings: Mapping[str, str],
    busy: str,
    before: int,
    job: tuple[str, int],
    expected: str,
) -> None:
    """`before` is the size of a normal job that runs; after `=` stands a leaf's use."""
    await set_up(site, settings, busy)
    if before:
        await under_leaves(NORMAL, before).run(site, "before")

    found = await under_leaves(*job).run(site, "job")

    marks = IS_SHARED_TOR if "=" in expected else ""
    assert " ".join(_shown(pod, marks) for pod in found) == expected


def _shown(pod: Object, key: str) -> str:
    node: str = pod["spec"]["nodeName"]
    return f"{node}={pod['metadata']['annotations'][key]}" if key else node


@rows(
    ("settings", "busy", "schema", "pods", "told"),
    {
        "1.0: no even load": (
            *(ONE, "a0 a1 a2 b1 b2 b3 c0 c2 c3"),
            *(LARGE, 3, "no leaf switch has 3 nodes that can take a pod"),
        ),
        "single layer: no leaf is so large": (
            *(SINGLE, ""),
            *(NORMAL, 5, "no leaf switch has 5 nodes that can take a pod"),
        ),
        "2.0: nothing is left to share": (
            *(TWO, "a0 b0 c0 c1"),
            *(LARGE, 9, "fewer than 9 nodes under idle leaf switches"),
        ),
    },
)
async def test_a_job_that_suits_no_leaves_is_told_so(
    site: Site,
    settings: Mapping[str, str],
    busy: str,
    schema: str,
    pods: int,
    told: str,
) -> None:
    await set_up(site, settings, busy)
    await under_leaves(schema, pods).create(site, "job")
    await wait_told(site.api, told, "job-0")


@rows(
    ("reserve", "busy", "job", "expected"),
    {
        "the smallest SuperPoD": (0, "", in_superpods(2, 2), "r0 r1"),
        "one that keeps its reserve": (2, "", in_superpods(2, 2), "p0 p1"),
        "a whole SuperPoD": (0, "", in_superpods(4, 2), "p0 p1 p2 p3"),
        "blocks of two SuperPoDs": (2, "", in_superpods(4, 2), "p0 p1 q0 q1"),
        "those of which least is left": (
            *(0, "p0 q1"),
            *(in_superpods(4, 2), "q0 q2 r0 r1"),
        ),
        "all SuperPoDs, reserve and all": (
            *(2, ""),
            *(in_superpods(8, 2), "p0 p1 q0 q1 p2 p3 r0 r1"),
        ),
        "soft: spread as a last resort": (
            *(0, "p1 p2 p3 q1 q2 r1"),
            *(in_superpods(2, 2, is_soft=True), "p0 q0"),
        ),
        "soft: together where it fits": (
            *(0, "p1 p2 p3 q1"),
            *(in_superpods(2, 2, is_soft=True), "q0 q2"),
        ),
    },
)
async def test_a_job_lies_in_its_superpods(
    site: Site, reserve: int, busy: str, job: Job, expected: str
) -> None:
    await set_up(site, {"reserve-nodes": str(reserve)}, busy)

    found = await job.run(site, "job")

    assert " ".join(_shown(pod, "") for pod in found) == expected


async def test_hard_blocks_that_no_superpod_holds_wait_for_room(site: Site) -> None:
    await set_up(site, {"reserve-nodes": "0"}, "p1 p2 p3 q1 q2 r1")
    names = await in_superpods(2, 2).create(site, "job")
    await wait_told(site.api, "0 of 1 logical SuperPoDs of 2 nodes fit", names[0])

    await site.api.delete(f"{PODS}/busy-q1", grace_s=0)

    found = await wait_bound(site.api, *names, within_s=WITHIN_S)
    assert [pod["spec"]["nodeName"] for pod in found] == ["q0", "q1"]


async def set_up(site: Site, settings: Mapping[str, str], busy: str) -> None:
    """Have these settings in force, and pods on all chips of these nodes."""
    level = {switches.TOR_LEVEL_KEY: settings.get(switches.TOR_LEVEL_KEY)}
    texts = {**DEFAULTS, **settings}
    texts.pop(switches.TOR_LEVEL_KEY, None)
    for name, data in ((switches.NAME, level), (live_settings.NAME, texts)):
        await site.api.patch(f"{CONFIGMAPS}/{name}", {"data": data})
    version = level[switches.TOR_LEVEL_KEY] or texts["nslb-version"]

    async def are_in_force() -> bool:
        seen = await site.extender.get("/v1/snapshot")
        found = seen["switches"]["version"], str(seen["superpods"]["reserve"])
        return found == (version, texts["reserve-nodes"])

    await until(are_in_force, f"{settings} in force", within_s=WITHIN_S)
    for node in busy.split():
        await site.api.create(PODS, _running(f"busy-{node}", node))


def _running(name: str, node: str) -> Object:
    """A pod that was bound before, with all chips of its node."""
    product = PRODUCTS[node]
    pod = npu_nodes.pod(name, product.chip_count)
    chips = [f"{product.chip_prefix}{chip}" for chip in range(product.chip_count)]
    pod["metadata"]["annotations"] = {
        product.resource: ",".join(chips),
        annotations.PREDICATE_TIME: "1",
    }
    pod["spec"]["nodeName"] = node
    return pod
