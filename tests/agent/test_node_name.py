"""An agent whose node has a name of which no ConfigMap's name can be made."""

import asyncio

from agent.status import socket
from tests.agent.site import Site, page_of, running_site

NAME = "n" * 236
WHY = (
    "expected a node name of at most 233 characters, because the name of a ConfigMap "
    "has at most 253, found one of 236. Join the node to the cluster under a shorter "
    "name"
)
CONFIGMAP = f"mindx-dl-deviceinfo-{NAME}"


async def events(site: Site) -> list[tuple[str, str]]:
    """Object and message of each event about the report."""
    return [
        (each["involvedObject"]["name"], each["message"])
        for each in await site.events("NpuReportRefused")
    ]


async def test_d17_readiness_event_and_status_say_that_the_name_is_too_long() -> None:
    told = ("--node-name", NAME, "--address-file", "{root}/address")
    async with running_site(*told, starts=False) as site:
        await site.api.create("/api/v1/nodes", {"metadata": {"name": NAME}})
        site.start_agent()
        happened = await site.until(lambda: events(site))
        address = site.root / "address"
        ready = await site.until(
            lambda: page_of(address, "readyz"), lambda said: CONFIGMAP in said
        )
        status = await asyncio.to_thread(socket.ask, site.root / socket.NAME)

    assert happened == [(NAME, f"kube-system/{CONFIGMAP} is not written: {WHY}")]
    assert ready == f"kube-system/{CONFIGMAP} is not written: {WHY}"
    assert status["waitingFor"] == ready
