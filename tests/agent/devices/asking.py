"""Drivers on the libdcmi of the tests, and how to wait for what they see."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.driver import DriverError
from agent.devices.reading import Reading
from tests.agent.devices.fake_machine import FakeMachine
from tests.support.until import until

#: Far longer than anything takes: a test that waits so long has failed.
PATIENCE_S = 30.0
#: When nothing is meant to hang, no delay of this machine may look like it.
NEVER_S = 600.0
NOW_MS = 1_700_000_000_000


@asynccontextmanager
async def driver_on(
    machine: FakeMachine,
    *,
    product: str = "",
    call_s: float = NEVER_S,
    load_s: float | None = None,
    **waits: Any,
) -> AsyncIterator[DcmiDriver]:
    """A driver of a machine, let go of at the end."""
    driver = DcmiDriver(
        machine.library,
        Conversion(product, **waits),
        call_s=call_s,
        load_s=call_s if load_s is None else load_s,
        wall_ms=lambda: NOW_MS,
        environment={**os.environ, **machine.environment},
    )
    try:
        yield driver
    finally:
        await driver.close()


async def read_once(machine: FakeMachine, product: str = "") -> Reading:
    """What a driver of a machine reads first."""
    async with driver_on(machine, product=product) as driver:
        return await driver.read()


async def seen_with(
    driver: DcmiDriver, is_met: Callable[[Reading | str], bool]
) -> Reading | str:
    """Read until a reading, or the words of a failure, are as expected."""

    async def look() -> Reading | str:
        try:
            return await driver.read()
        except DriverError as error:
            return str(error)
        finally:
            await driver.wait_for_news(0.02)

    return await until(look, is_met, within_s=PATIENCE_S)


async def reading_with(
    driver: DcmiDriver, is_met: Callable[[Reading], bool]
) -> Reading:
    """Read until a reading is as it is expected to be; failures may come before."""
    found = await seen_with(driver, lambda s: isinstance(s, Reading) and is_met(s))
    assert isinstance(found, Reading)
    return found


async def problem_with(driver: DcmiDriver, part: str) -> str:
    """Read until the driver complains of something; return its words."""
    return str(await seen_with(driver, lambda s: isinstance(s, str) and part in s))
