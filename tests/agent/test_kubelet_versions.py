"""The agent under kubelets before 1.34: it finds out alike who has what."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.kubelet.profiles import PROFILES
from tests.agent.site import PODS, SETTLED_S, Site

#: All other tests have the newest. Those between differ from it in nothing that the
#: agent asks of them.
OLDEST = PROFILES[0]


class OnceSite(Site):
    """Its pods run once."""

    @staticmethod
    def pod(name: str, count: int) -> dict[str, Any]:
        made = Site.pod(name, count)
        made["spec"]["restartPolicy"] = "Never"
        return made


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    # Not tmp_path: the sockets' paths must stay below 108 bytes.
    with tempfile.TemporaryDirectory(prefix="kv-") as root:
        site = OnceSite(Path(root), profile=OLDEST)
        await site.start()
        site.start_agent()
        await site.until_allocatable()
        yield site
        await site.stop()


async def test_pods_are_confirmed_though_others_were_rejected_or_have_ended(
    site: Site,
) -> None:
    assert not site.profile.has_get
    await site.api.create(PODS, _around_the_scheduler(site))
    for name, count in (("a", 2), ("b", 2), ("c", 1)):
        assert await site.bind(name, count)
        await _until_running(site, name)
    await site.settle()

    site.kubelet.finish("b", "main")
    await _until_phase(site, "b", "Succeeded")
    await site.settle()
    assert await site.bind("d", 2)
    await _until_running(site, "d")
    await site.settle()

    assert {name: len(chips) for name, chips in site.mounted().items()} == {
        "a": 2,
        "c": 1,
        "d": 2,
    }


def _around_the_scheduler(site: Site) -> dict[str, Any]:
    pod = site.pod("rejected", 1)
    pod["spec"]["nodeName"] = site.kubelet.node_name
    return pod


async def _until_running(site: Site, name: str) -> None:
    await _until_phase(site, name, "Running")


async def _until_phase(site: Site, name: str, phase: str) -> None:
    async with asyncio.timeout(SETTLED_S):
        while (await site.api.get(f"{PODS}/{name}"))["status"].get("phase") != phase:
            await asyncio.sleep(0.02)  # it happens on the node
