"""What the agent works with on its node: driver, mounting, plugins beside the first.

Told by the settings, or found out where they leave it open; the log says which.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from agent.devices import detect
from agent.devices.driver import Driver
from agent.devices.poller import Source
from agent.devices.reading import Reading
from agent.observe.registration import Quiet
from agent.plugin.list_and_watch import ListServicer
from agent.plugin.mounts import Mount, resolve
from agent.plugin.server import Server
from agent.readiness import Readiness
from agent.settings import Settings
from scheduler_core.products.table import PRODUCTS, Product
from service import clock

log = logging.getLogger(__name__)


def driver(stack: AsyncExitStack, settings: Settings) -> Driver:
    """Take the driver of this node; it is let go of at the end."""
    choice = detect.choose(
        detect.Wish(
            kind=settings.driver,
            file=settings.driver_file,
            poll_s=settings.driver_poll_s,
            library=settings.dcmi_library,
            product=settings.product,
            call_s=settings.driver_deadline_s,
        ),
        wall_ms=wall_ms,
    )
    log.info("driver", extra={"driver": choice.kind, "reason": choice.why})
    stack.push_async_callback(choice.driver.close)
    return choice.driver


async def first_reading(
    source: Source, settings: Settings, ready: Readiness
) -> Reading:
    """Wait until the hardware has been seen once: without it there is no product."""
    said = ""
    while True:
        seen = await source.look()
        if seen.reading is not None:
            ready.has("driver")
            return seen.reading
        if seen.problem != said:
            said = seen.problem
            log.error("driver cannot be read", extra={"reason": said})
            ready.lacks("driver", f"driver: {said}")
        await asyncio.sleep(settings.driver_poll_s)


def lines(settings: Settings, reading: Reading) -> tuple[Reading, ...]:
    """Return what was seen of each product line that this agent serves.

    Told a product it serves that line alone, if the node has it.
    """
    rows = [row for row in PRODUCTS if row.key == settings.product]
    told = [row.resource for row in rows]
    named = tuple(each for each in reading.lines if each.product.resource in told)
    return named or reading.lines


def mount(settings: Settings, reading: Reading) -> Mount:
    """Say how chips come into containers, told or found out."""
    mount = resolve(settings.mount, os.environ, reading)
    log.info("mount", extra={"mount": mount.value, "told": settings.mount})
    return mount


def virtual_server(
    row: Product,
    *,
    kubelet_dir: Path,
    offered: Callable[[str], Awaitable[frozenset[str] | None]],
    servicer: Callable[[Product], ListServicer],
) -> Server:
    """Make a plugin for one kind of virtual device, beside that for whole chips.

    Args:
        row: Names the resource.
        kubelet_dir: The kubelet's device plugin directory.
        offered: Asks the kubelet which devices of a resource it would give out.
        servicer: Makes a servicer.
    """
    return Server(
        lambda: servicer(row),
        product=row,
        kubelet_dir=kubelet_dir,
        offered=lambda: offered(row.resource),
        tell=Quiet(),
    )


def wall_ms() -> int:
    """Return Unix milliseconds now."""
    return clock.wall_ns() // 1_000_000
