"""The running agent: what its product lines share, and what runs when.

driver ------> each line: health -> ledger -+-> plugin -> kubelet
pods --------> each line: ledger            +-> publisher -> pod annotations
ConfigMap <--- reporter <-- what each line says
journal <----- holdbook <-- each line's holds
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import NoReturn

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector

from agent import wiring
from agent.api_client import Api
from agent.devices.poller import Source
from agent.devices.processes import Processes
from agent.devices.reading import Reading
from agent.health.rules import FaultConfig
from agent.journal.file import Journal, JournalProblem, ProblemKind
from agent.journal.writer import Holdbook
from agent.monitor.driver import Sight
from agent.monitor.fault_config import FaultWatch
from agent.observe.announcer import News
from agent.observe.metrics import Metrics
from agent.plugin.allocate_activity import Traffic
from agent.plugin.node_lock import exclusive
from agent.plugin.rate_limit import Pace
from agent.pods.informer import FIRST_LIST_S, NodePods
from agent.pods.reconciler import READ_EACH_S
from agent.product_line import Line, Shared
from agent.readiness import Readiness
from agent.report import content
from agent.report.owner import Owner
from agent.report.reporter import Reporter
from agent.settings import Settings, boot_id
from agent.status import document, socket
from agent.status.document import View
from agent.status.socket import telling
from service import clock
from service.endpoints import Endpoints
from service.version import version

log = logging.getLogger(__name__)

COMPONENT = "ascend-agent"


async def main(settings: Settings) -> None:
    """Run an agent until cancelled.

    Raises:
        SettingsError: The machine is not as the settings say.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    metrics = Metrics(registry)
    metrics.build.labels(version(), settings.mode).set(1)
    ready = Readiness(
        directory="the kubelet's directory is not ours yet",
        driver="the driver has not been read yet",
        pods="the pods of this node are not known yet",
    )
    metrics.ready.set_function(lambda: ready() is None)
    async with AsyncExitStack() as stack:
        api = await Api.open(stack, settings, metrics)
        # where probes of other device plugins ask, which tell by it that we live
        alive = web.get("/", _alive)
        endpoints = Endpoints(registry, ready, routes=[alive])
        address = await stack.enter_async_context(
            endpoints.serving(settings.listen, settings.address_file)
        )
        log.info("serving", extra={"address": address})
        await stack.enter_async_context(
            exclusive(settings.kubelet_dir, lambda text: _waiting(ready, text))
        )
        ready.has("directory")
        source = Source(
            wiring.driver(stack, settings),
            poll_s=settings.driver_poll_s,
            deadline_s=settings.driver_deadline_s,
        )
        reading = await wiring.first_reading(source, settings, ready)
        agent = Agent(settings, api, metrics=metrics, ready=ready, reading=reading)
        stack.push_async_callback(agent.close)
        await stack.enter_async_context(
            telling(settings.state_dir / socket.NAME, agent.status)
        )
        await agent.run(source)


async def _alive(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _waiting(ready: Readiness, text: str) -> None:
    log.error(text)
    ready.lacks("directory", text)


class Agent:
    """The parts, put together and kept running; what they protect is theirs."""

    def __init__(
        self,
        settings: Settings,
        api: Api,
        *,
        metrics: Metrics,
        ready: Readiness,
        reading: Reading,
    ) -> None:
        """Put the parts together; nothing runs yet.

        Args:
            settings: What we were told.
            api: The API server.
            metrics: What is counted.
            ready: What is still missing.
            reading: The first look at the hardware.
        """
        self._settings = settings
        self._api = api
        self._ready = ready
        self._news = News(metrics, api.recorder, node=settings.node_name)
        boot = boot_id()
        self._holdbook = Holdbook(
            Journal(
                settings.state_dir / "holds", boot_id=boot, node=settings.node_name
            ),
            boot_id=boot,
            observe_s=metrics.journal_s.observe,
            on_failure=self._news.journal_failed,
        )
        self._reporter = Reporter(
            api.client,
            node=settings.node_name,
            writer=f"{boot}/{uuid.uuid4().hex[:8]}",
            heartbeat_s=settings.heartbeat_s,
            metrics=metrics,
            wall_s=clock.wall_s,
            on_rival=partial(self._news.rival, "configmap"),
            owner=Owner(
                api.client,
                pod=settings.pod_name,
                namespace=settings.pod_namespace,
                configmap_namespace=settings.namespace,
            ).reference,
            on_seen=self._reported,
            namespace=settings.namespace,
        )
        # until we have looked whether the node is another plugin's to report
        self._reporter.hush(is_silent=True)
        self._pods = NodePods(api, node=settings.node_name, ready=ready)
        shared = Shared(
            settings=settings,
            api=api,
            metrics=metrics,
            news=self._news,
            ready=ready,
            pods=self._pods,
            holdbook=self._holdbook,
            traffic=Traffic(asyncio.get_running_loop().time),
            pace=Pace(READ_EACH_S),
            processes=Processes(),
            mount=wiring.mount(settings, reading),
            host_ip=lambda: self._reporter.host_ip,
            readings=lambda: [line.diagnosis.reading for line in self._lines],
        )
        readings = wiring.lines(settings, reading)
        products = [each.product for each in readings]
        self._lines = [
            Line(
                shared,
                each,
                beside=[row for row in products if row is not each.product],
                on_rival=self._hush,
            )
            for each in readings
        ]
        ready.ask(self._reporter.problem)
        self._sight = Sight(
            [line.diagnosis for line in self._lines], news=self._news, metrics=metrics
        )
        self._fault_watch = FaultWatch(
            api.client,
            namespace=settings.namespace,
            apply=self._configured,
            complain=self._news.fault_config,
        )
        metrics.followed.set_function(self._is_followed)
        metrics.events_dropped.set_function(lambda: api.recorder.dropped)
        self._news.watches(
            pods=self._pods.watch,
            configmap=self._reporter.configmap_watch,
            node=self._reporter.node_watch,
            faultconfig=self._fault_watch.watch,
        )

    async def run(self, source: Source) -> None:
        """Run until cancelled or until a part fails."""
        await self._restore()
        for line in self._lines:
            line.diagnosis.look()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._api.recorder.run(), name="events")
            tasks.create_task(self._pods.run(), name="pods")
            tasks.create_task(source.run(self._sight.observed), name="driver")
            tasks.create_task(self._fault_watch.run(), name="faults")
            tasks.create_task(self._holdbook.run(), name="journal")
            tasks.create_task(self._reporter.run(), name="reporter")
            await self._pods.learn()
            await self._learn_separated()
            for line in self._lines:
                await line.settle()
                line.begin(tasks)
            for line in self._lines:
                tasks.create_task(self._report(line), name="report")
            # in the body, so that when we are told to stop these end first: an
            # Allocate that waits for its claim still needs all of the others
            async with asyncio.TaskGroup() as serving:
                for line in self._lines:
                    serving.create_task(line.server.run(), name=line.product.key)

    def status(self) -> dict[str, object]:
        """What a person at the node is told."""
        return document.document(*map(self._view, self._lines))

    def _view(self, line: Line) -> View:
        return View(
            version=version(),
            mode=self._settings.mode,
            waiting_for=self._ready(),
            driver_problem=self._sight.problem,
            ledger=line.current.ledger,
            reading=line.diagnosis.reading,
            health=line.diagnosis.health,
            changes=tuple(line.diagnosis.changes),
            leftovers=line.leftovers.found,
        )

    async def close(self) -> None:
        """Let go of what is ours in the cluster and on the node."""
        is_needed = any(line.current.ledger.holds for line in self._lines)
        for line in self._lines:
            line.mounting.farewell(is_needed=is_needed)
        await self._reporter.farewell()
        for line in self._lines:
            await line.close()

    # What the lines learn at once

    async def _restore(self) -> None:
        found = await self._holdbook.read()
        if isinstance(found, JournalProblem):
            if found.kind in {ProblemKind.ABSENT, ProblemKind.OTHER_BOOT}:
                log.info("no holds of this boot", extra={"reason": str(found)})
            else:
                self._news.journal_unusable(str(found))
            return
        unclaimed = list(found.entries)
        for line in self._lines:
            line.restore(entry for entry in unclaimed if line.owns(entry))
            unclaimed = [entry for entry in unclaimed if not line.owns(entry)]
        if unclaimed:
            text = f"{len(unclaimed)} holds of chips that this agent does not serve"
            log.warning("holds kept in the journal", extra={"reason": text})
            self._holdbook.keep(unclaimed)

    async def _learn_separated(self) -> None:
        """Know which chips are separated by name before the kubelet hears of any."""
        if self._pods.is_listed:  # else the API server is away, and nobody says
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LIST_S):
                    await self._reporter.looked.wait()

    def _configured(self, config: FaultConfig) -> None:
        for line in self._lines:
            line.diagnosis.configured(config)

    def _reported(self, data: Mapping[str, str] | None) -> None:
        for line in self._lines:
            line.diagnosis.reported(data)

    def _hush(self) -> None:
        """Report while no other plugin serves any line of the node, and only then.

        Who serves one writes the same ConfigMap; None: it is not known yet.
        """
        is_ours = all(line.server.rival == "" for line in self._lines)
        self._reporter.hush(is_silent=not is_ours)

    def _is_followed(self) -> bool:
        return all(line.server.is_followed for line in self._lines)

    # What is said of all of them

    async def _report(self, line: Line) -> NoReturn:
        """Have the newest state published."""
        while True:
            version = line.current.version
            drawn = content.of_node([each.picture() for each in self._lines])
            self._reporter.publish(drawn)
            await line.current.changed(version)
