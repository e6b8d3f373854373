"""A chip that is separated by name, from the ConfigMap to the kubelet and back."""

from collections.abc import AsyncIterator

import pytest

from tests.agent.site import REPORT, Site, running_site


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with running_site() as site:
        yield site


async def name(site: Site, text: str) -> None:
    await site.api.patch(REPORT, {"data": {"ManuallySeparateNPU": text}})


async def test_a_separated_chip_is_kept_from_the_kubelet_until_its_name_goes(
    site: Site,
) -> None:
    await name(site, "Ascend910-3")
    await site.until_allocatable(7)

    await site.restart_agent(7)
    report = await site.api.get(REPORT)
    assert report["data"]["ManuallySeparateNPU"] == "Ascend910-3"

    await name(site, "")
    await site.until_allocatable(8)
