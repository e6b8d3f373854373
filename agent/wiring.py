"""Choose driver, product lines and mount method of a node, from settings or by probing.

The mount method is the way in which containers get chips. The choices of driver and
mount method are logged.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

from agent.devices.dcmi import find_library
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.dcmi.memory import Memory
from agent.devices.driver import Driver
from agent.devices.poller import Poller
from agent.devices.reading import Reading
from agent.devices.simulated.driver import SimulatedDriver
from agent.observe.problems import Problems, Subject
from agent.plugin import host_devices
from agent.plugin.mounts import MountMethod, resolve
from agent.settings import Settings
from kube import nodes
from kube.client import Client
from kube.errors import KubeError
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import PRODUCTS
from scheduler_core.wire import inventory
from scheduler_core.wire.annotations import WireError
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)


async def driver(stack: AsyncExitStack, settings: Settings) -> Driver:
    """Open the driver that the settings choose for this node; `stack` closes it."""
    driver, kind, reason = await choose_driver(settings, os.environ)
    log.info("driver", extra={"driver": kind, "reason": reason})
    stack.push_async_callback(driver.close)
    return driver


async def choose_driver(
    settings: Settings, environment: Mapping[str, str]
) -> tuple[Driver, str, str]:
    """Create the driver of the kind `settings.driver`, which reads the node's chips.

    The kind `auto` means libdcmi if `settings.dcmi_library` is set or libdcmi is found.
    Otherwise `auto` means the simulated driver, which reads a YAML file.

    Args:
        environment: Environment variables of the agent. LD_LIBRARY_PATH names folders
            where libdcmi is searched.

    Returns:
        The driver, its kind, and why it was chosen.
    """
    library = settings.dcmi_library or find_library.locate(environment)
    is_chosen = settings.driver == "simulated"
    if is_chosen or (settings.driver == "auto" and library is None):
        searched = ", ".join(map(str, find_library.search_folders(environment)))
        reason = "as told" if is_chosen else f"no {find_library.LIBRARY} in {searched}"
        simulated = SimulatedDriver(
            settings.driver_file, poll_s=settings.driver_poll_s, wall_ms=wall_ms
        )
        return simulated, "simulated", reason
    library = library or find_library.FOLDERS[0] / find_library.LIBRARY
    directory = settings.memory_dir or settings.state_dir
    memory = Memory(directory, settings.node_name)
    dcmi = DcmiDriver(
        library,
        Conversion(
            settings.product,
            known=await memory.read(),
            wait_s=settings.survey_wait_s,
            device_ids=host_devices.chip_numbers,
        ),
        call_s=settings.driver_deadline_s,
        wall_ms=wall_ms,
        environment=find_library.make_environment(environment),
        memory=memory,
    )
    return dcmi, "dcmi", str(library)


async def first_reading(
    poller: Poller,
    settings: Settings,
    problems: Problems,
    *,
    ask_inventory: Callable[[], Coroutine[Any, Any, None]],
) -> Reading:
    """Read the driver repeatedly until a reading succeeds; return that reading.

    While there is none, `problems` tells why.

    Args:
        settings: With the pause between two readings.
        problems: Gets the reason while there is no reading.
        ask_inventory: Started once if the first reading fails: tells the driver which
            chips the Node has had.
    """
    async with asyncio.TaskGroup() as tasks:
        asking: asyncio.Task[None] | None = None
        while True:
            observation = await poller.poll()
            reading = observation.reading
            if reading is not None:
                if asking is not None:
                    asking.cancel()
                served = lines(settings, reading)
                rows = " and ".join(line.product.key for line in served)
                problems.tell(Subject.START, "", end=rows)
                problems.tell(Subject.FIRST_READING, "")
                return reading
            asking = asking or tasks.create_task(ask_inventory(), name="inventory")
            problems.tell(Subject.START, observation.problem)
            await asyncio.sleep(settings.driver_poll_s)


async def tell_inventory(
    driver: Driver,
    client: Client,
    node: str,
    *,
    on_outcome: Callable[[KubeError | None], None],
) -> None:
    """Tell the driver which chips the Node has had, once the API server answers.

    An agent without the file `chips` begins with these if what is read fits. Nothing is
    told if the Node has none.

    Args:
        driver: A driver that has not given a reading yet.
        on_outcome: Called with the error of each request that fails, then with None.
    """
    backoff = Backoff()
    marks: Mapping[str, str] | None = None
    while marks is None:
        try:
            found = await nodes.find(client, node)
            marks = found.annotations if found is not None else {}
        except KubeError as error:
            on_outcome(error)
            await asyncio.sleep(backoff.next_s(error.retry_after_s))
    on_outcome(None)
    try:
        lines = inventory.parse_lines(marks.get(inventory.BASE_DEVICE_INFOS, "{}"))
    except WireError as error:
        log.info("no chips expected", extra={"reason": str(error)})
        return
    if lines:
        log.info("chips expected", extra={"chips": lines})
        driver.expect({line: chip_sets.mask_of(ids) for line, ids in lines.items()})


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
