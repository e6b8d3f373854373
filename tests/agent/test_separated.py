"""A chip that is separated by name, from the ConfigMap to the kubelet and back."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler_core.wire import deviceinfo
from tests.agent.site import NODE, Site

REPORT = "/api/v1/namespaces/kube-system/configmaps/" + deviceinfo.configmap_name(NODE)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    # Not tmp_path: the sockets' paths must stay below 108 bytes.
    with tempfile.TemporaryDirectory(prefix="sp-") as root:
        made = Site(Path(root))
        await made.start()
        made.start_agent()
        await made.until_allocatable()
        yield made
        await made.stop()


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
