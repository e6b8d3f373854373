"""A node as large as they come: 64 chips and 250 pods, the agent and a real kubelet.

How long it takes is measured by `benchmarks/crowd.py`.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable

import pytest

from scheduler_core.products.table import by_key
from scheduler_core.wire import annotations
from tests.agent.site import NODE, Site
from tests.support.objects import PODS, pod

PRODUCT = by_key("atlas-310p")
WITHOUT_CHIPS = 250 - PRODUCT.chip_count
#: For everything that is waited for; a loaded machine may take its time.
PATIENCE_S = 120.0


pytestmark = pytest.mark.site(count=PRODUCT.chip_count, product=PRODUCT)


async def come(site: Site, names: Iterable[str], chips: Iterable[int | None]) -> None:
    """Create pods that are bound already, all at once."""
    pods = []
    for name, chip in zip(names, chips, strict=True):
        meta = {}
        if chip is not None:
            site.predicate_time += 1
            meta["annotations"] = {
                PRODUCT.resource: annotations.render_chips((chip,), PRODUCT),
                annotations.PREDICATE_TIME: str(site.predicate_time),
            }
        asked, resource = int(chip is not None), PRODUCT.resource
        pods.append(pod(name, asked, resource=resource, meta=meta, node=NODE))
    await asyncio.gather(*(site.api.create(PODS, each) for each in pods))


async def served(site: Site, count: int) -> Counter[str]:
    """Wait until so many pods are confirmed and none waits; the phases of all."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            pods = await site.api.items(PODS)
            written = [pod["metadata"].get("annotations", {}) for pod in pods]
            done = [each.get(annotations.PREDICATE_TIME) for each in written]
            phases = Counter(pod["status"]["phase"] for pod in pods)
            if done.count(str(annotations.SERVED)) == count and "Pending" not in phases:
                return phases
            if "Failed" in phases:
                return phases
            await asyncio.sleep(0.1)


async def gone(site: Site, count: int) -> None:
    """Wait until only so many pods are left, and the agent has let go of the rest."""
    async with asyncio.timeout(PATIENCE_S):
        while len(await site.api.items(PODS)) != count or await site.problems():
            await asyncio.sleep(0.1)


@pytest.mark.long
async def test_each_of_250_pods_on_64_chips_has_what_its_annotations_say(
    site: Site,
) -> None:
    count = PRODUCT.chip_count
    plain = [f"plain-{number}" for number in range(WITHOUT_CHIPS)]
    first = [f"first-{number}" for number in range(count)]
    second = [f"second-{number}" for number in range(count // 2)]

    await come(site, plain, [None] * len(plain))
    # in another order than the kubelet's ids have
    await come(site, first, [number * 7 % count for number in range(count)])
    assert await served(site, count) == {"Running": 250}
    await site.settle()
    mounted = site.mounted()
    assert sorted(chips for chips in mounted.values() if chips) == [
        (chip,) for chip in range(count)
    ]

    leaving = first[::2]
    freed = [mounted[name][0] for name in leaving]
    await asyncio.gather(*(site.api.delete(f"{PODS}/{name}") for name in leaving))
    await gone(site, 250 - len(leaving))
    await come(site, second, reversed(freed))
    assert await served(site, count) == {"Running": 250}
    await site.settle()

    assert sorted(chips for chips in site.mounted().values() if chips) == [
        (chip,) for chip in range(count)
    ]
    stayed = {name: mounted[name] for name in first if name not in leaving}
    assert stayed.items() <= site.mounted().items()
