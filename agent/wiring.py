"""Choose driver, product lines and mount method of a node, from settings or by probing.

The mount method is the way in which containers get chips. The choices of driver and
mount method are logged.
"""

import asyncio
import logging
import os
from contextlib import AsyncExitStack

from agent.devices import detect
from agent.devices.driver import Driver
from agent.devices.poller import Poller
from agent.devices.reading import Reading
from agent.plugin.mounts import MountMethod, resolve
from agent.readiness import Readiness
from agent.settings import Settings
from scheduler_core.products.table import PRODUCTS
from service import clock

log = logging.getLogger(__name__)


def driver(stack: AsyncExitStack, settings: Settings) -> Driver:
    """Open the driver that the settings choose for this node; `stack` closes it."""
    choice = detect.choose_driver(
        detect.DriverSettings(
            kind=settings.driver,
            file=settings.driver_file,
            poll_s=settings.driver_poll_s,
            library=settings.dcmi_library,
            product=settings.product,
            call_s=settings.driver_deadline_s,
        ),
        wall_ms=wall_ms,
    )
    log.info("driver", extra={"driver": choice.kind, "reason": choice.reason})
    stack.push_async_callback(choice.driver.close)
    return choice.driver


async def first_reading(
    poller: Poller, settings: Settings, ready: Readiness
) -> Reading:
    """Read the driver repeatedly until a reading succeeds; return that reading.

    While the driver cannot be read, `ready` says why.
    """
    problem = ""
    while True:
        observation = await poller.poll()
        if observation.reading is not None:
            ready.set_ready("driver")
            return observation.reading
        if observation.problem != problem:
            problem = observation.problem
            log.error("driver cannot be read", extra={"reason": problem})
            ready.set_waiting("driver", f"driver: {problem}")
        await asyncio.sleep(settings.driver_poll_s)


def lines(settings: Settings, reading: Reading) -> tuple[Reading, ...]:
    """Return one reading for each product line that this agent serves.

    If the setting `product` names a product line of the node, only that one is served.
    Otherwise all product lines are served.
    """
    rows = [row for row in PRODUCTS if row.key == settings.product]
    resources = [row.resource for row in rows]
    selected = tuple(
        line for line in reading.lines if line.product.resource in resources
    )
    return selected or reading.lines


def mount(settings: Settings, reading: Reading) -> MountMethod:
    """Return the way in which containers get chips, as set or as found by probing."""
    mount = resolve(settings.mount, os.environ, reading)
    log.info("mount", extra={"mount": mount.value, "told": settings.mount})
    return mount


def wall_ms() -> int:
    """Return the time of the wall clock in milliseconds since the epoch."""
    return clock.wall_ns() // 1_000_000
