"""Parts of the agent that stay when it begins anew in its process.

The agent begins anew to serve its node by other rows of the product table. The API
server may be away then, the disk may hang, and to load libdcmi takes seconds. What was
learnt from them stays: the node would have no plugin until it is learnt again.
"""

import asyncio
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

from prometheus_client import CollectorRegistry

from agent import wiring
from agent.api_client import ApiClient
from agent.claims.values import Hold
from agent.devices.driver import Driver
from agent.observe.metrics import Metrics
from agent.observe.problems import Need, Problems
from agent.pods import informer
from agent.settings import Settings, boot_id
from kube.errors import KubeError
from kube.objects import Pod
from kube.reflector import ListWatch
from service.metrics import open_registry


@dataclass(slots=True, kw_only=True)
class ProcessParts:
    """API client, metrics, problems, the node's pods as listed, and the driver.

    The driver is opened when it is first needed: another agent may serve the node until
    then, and change what is stored of the chips.
    """

    #: Closes all parts.
    stack: AsyncExitStack
    settings: Settings
    api: ApiClient
    #: Has `metrics`.
    registry: CollectorRegistry
    metrics: Metrics
    problems: Problems
    pod_watch: ListWatch[Pod]
    boot_id: str
    #: Name of this process in the ConfigMap, unique in the cluster.
    writer: str
    #: All holds of the node once the agent has begun anew; None before. The journal may
    #: lack some: a disk can be full, or hang.
    holds: tuple[Hold, ...] | None = None
    _driver: Driver | None = field(default=None, init=False)

    @classmethod
    async def open(cls, stack: AsyncExitStack, settings: Settings) -> Self:
        """Open the API client and begin to send events; `stack` closes all parts.

        Raises:
            SettingsError: The settings yield no API server address or no credentials.
        """
        registry = open_registry("ascend_agent", mode=settings.mode)
        metrics = Metrics(registry)

        def on_event(error: KubeError | None) -> None:
            problems.tell_need(Need.EVENTS, error)

        api = await ApiClient.open(stack, settings, metrics, on_event=on_event)
        problems = Problems(metrics, api.recorder, node=settings.node_name)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(tasks.create_task(api.recorder.run(), name="events").cancel)
        return cls(
            stack=stack,
            settings=settings,
            api=api,
            registry=registry,
            metrics=metrics,
            problems=problems,
            pod_watch=informer.make_watch(api.client, settings.node_name),
            boot_id=boot_id(),
            writer=f"{boot_id()}/{uuid.uuid4().hex[:8]}",
        )

    async def driver(self) -> Driver:
        """Return the driver; the first call opens it."""
        if self._driver is None:
            self._driver = await wiring.driver(self.stack, self.settings)
        return self._driver
