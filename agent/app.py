"""The running agent: who feeds the ledger, and who is fed from it.

driver -> health -+                    +-> plugin -> kubelet
API server's pods +-> Current (ledger) +-> publisher -> pod annotations
pod-resources ----+                    +-> reporter -> ConfigMap, Node
+-> holdbook -> journal
"""

import asyncio
import logging
import uuid
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import NoReturn

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector

from agent import equipment, holdbook, picture, status, statussocket
from agent.api import Api
from agent.claims import ledger as ledgers
from agent.claims import occupancy, settling
from agent.claims.events import Effect, Noted
from agent.claims.publishing import affinity
from agent.claims.values import Ledger
from agent.current import Current
from agent.devices.processes import Processes
from agent.devices.reading import Reading
from agent.devices.source import Source
from agent.diagnosis import Clocks, Diagnosis
from agent.faultwatch import FaultWatch
from agent.holdbook import Holdbook
from agent.journal import Journal, JournalProblem, ProblemKind
from agent.leftovers import Leftovers
from agent.nodepods import FIRST_LIST_S, NodePods
from agent.observe.metrics import Metrics
from agent.observe.news import News
from agent.owner import Owner
from agent.picture import addresses
from agent.plugin import virtual
from agent.plugin.exclusive import exclusive
from agent.plugin.resources import Resources
from agent.plugin.server import Server
from agent.plugin.servicer import Servicer
from agent.plugin.traffic import Traffic
from agent.plugin.virtual import Parts, VirtualServicer
from agent.publisher import Publisher
from agent.readiness import Readiness
from agent.reconciler import Reconciler
from agent.reporter import Reporter
from agent.settings import STANDALONE, Settings, boot_id
from agent.standing import Standing
from agent.status import View
from agent.statussocket import telling
from scheduler_core import chips as chip_sets
from scheduler_core.products import Product
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
            equipment.driver(stack, settings),
            poll_s=settings.driver_poll_s,
            deadline_s=settings.driver_deadline_s,
        )
        reading = await equipment.first_reading(source, settings, ready)
        agent = Agent(settings, api, metrics=metrics, ready=ready, reading=reading)
        stack.push_async_callback(agent.close)
        await stack.enter_async_context(
            telling(settings.state_dir / statussocket.NAME, agent.status)
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
        self._metrics = metrics
        self._ready = ready
        self._product: Product = reading.product
        self._loop_s = asyncio.get_running_loop().time
        self._news = News(metrics, api.recorder, node=settings.node_name)
        self._current = Current(
            Ledger(
                product=self._product,
                node=settings.node_name,
                standalone=settings.mode == STANDALONE,
            ),
            self._told,
        )
        self._news.follow(self._current)
        self._diagnosis = Diagnosis(
            self._current,
            reading=reading,
            recover_s=settings.recover_s,
            news=self._news,
            metrics=metrics,
            clocks=Clocks(loop_s=self._loop_s, wall_ms=equipment.wall_ms),
        )
        self._fault_watch = FaultWatch(
            api.client,
            namespace=settings.namespace,
            apply=self._diagnosis.configured,
            complain=self._news.fault_config,
        )
        self._mounting = equipment.mounting(
            settings, reading, hardware=lambda: self._diagnosis.reading
        )
        boot = boot_id()
        self._holdbook = Holdbook(
            self._current,
            Journal(
                settings.state_dir / "holds", boot_id=boot, node=settings.node_name
            ),
            boot_id=boot,
            observe_s=metrics.journal_s.observe,
            on_failure=self._news.journal_failed,
        )
        self._traffic = Traffic(self._loop_s)
        self._resources = Resources(
            settings.pod_resources_socket,
            resource=self._product.resource,
            traffic=self._traffic,
        )
        self._leftovers = Leftovers(
            self._current,
            hardware=lambda: self._diagnosis.reading,
            processes=Processes(),
            news=self._news,
        )
        self._reconciler = Reconciler(
            self._current,
            resources=self._resources,
            traffic=self._traffic,
            find_left=self._leftovers.processes.of_pods,
            period_s=settings.reconcile_period_s,
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
            on_seen=self._diagnosis.reported,
            namespace=settings.namespace,
        )
        self._publisher = Publisher(
            self._current,
            send=api.send,
            host_ip=lambda: self._reporter.host_ip,
            is_silent=lambda: bool(self._server.rival),
            addresses=lambda: addresses(self._diagnosis.reading),
        )
        self._server = Server(
            self._servicer,
            product=self._product,
            kubelet_dir=settings.kubelet_dir,
            offered=self._resources.offered,
            tell=Standing(metrics, self._loop_s, on_rival=self._rival),
        )
        metrics.followed.set_function(lambda: self._server.is_followed)
        metrics.events_dropped.set_function(lambda: api.recorder.dropped)
        # until we have looked whether the node is another plugin's to report
        self._reporter.hush(is_silent=True)
        for part in (self._mounting, self._server, self._reporter):
            ready.ask(part.problem)
        self._pods = NodePods(
            api,
            self._current,
            resource=self._product.resource,
            ready=ready,
            is_served=lambda: self._server.problem() is None,
        )
        self._news.watches(
            pods=self._pods.watch,
            configmap=self._reporter.configmap_watch,
            node=self._reporter.node_watch,
            faultconfig=self._fault_watch.watch,
        )

    async def run(self, source: Source) -> None:
        """Run until cancelled or until a part fails."""
        await self._restore()
        self._diagnosis.look()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._api.recorder.run(), name="events")
            tasks.create_task(self._pods.run(), name="pods")
            tasks.create_task(source.run(self._diagnosis.observed), name="driver")
            tasks.create_task(self._fault_watch.run(), name="faults")
            tasks.create_task(self._holdbook.run(), name="journal")
            tasks.create_task(self._reporter.run(), name="reporter")
            await self._pods.learn()
            await self._learn_separated()
            self._current.replace(ledgers.resume(self._current.ledger))
            await self._reconciler.run_once(thorough=True)
            tasks.create_task(self._reconciler.run(), name="reconciler")
            tasks.create_task(self._publisher.run(), name="publisher")
            tasks.create_task(self._leftovers.run(), name="leftovers")
            for row in virtual.rows_of(self._diagnosis.reading):
                server = equipment.virtual_server(
                    row,
                    kubelet_dir=self._settings.kubelet_dir,
                    offered=self._resources.offered,
                    servicer=lambda row: VirtualServicer(
                        self._current, row, parts=self._parts, mounting=self._mounting
                    ),
                )
                tasks.create_task(server.run(), name=row.key)
            tasks.create_task(self._report(), name="report")
            # in the body, so that when we are told to stop this ends first: an
            # Allocate that waits for its claim still needs all of the others
            await self._server.run()

    def status(self) -> dict[str, object]:
        """What a person at the node is told."""
        return status.document(
            View(
                version=version(),
                mode=self._settings.mode,
                waiting_for=self._ready(),
                driver_problem=self._diagnosis.problem,
                ledger=self._current.ledger,
                reading=self._diagnosis.reading,
                health=self._diagnosis.health,
                changes=tuple(self._diagnosis.changes),
                leftovers=self._leftovers.found,
            )
        )

    async def close(self) -> None:
        """Let go of what is ours in the cluster and on the node."""
        self._mounting.farewell(is_needed=bool(self._current.ledger.holds))
        await self._reporter.farewell()
        await self._resources.close()

    # What feeds the ledger

    async def _restore(self) -> None:
        found = await self._holdbook.read()
        if isinstance(found, JournalProblem):
            if found.kind in {ProblemKind.ABSENT, ProblemKind.OTHER_BOOT}:
                log.info("no holds of this boot", extra={"reason": str(found)})
            else:
                self._news.journal_unusable(str(found))
            return
        holds = [holdbook.hold(each) for each in found.entries]
        self._current.replace(ledgers.restore(self._current.ledger, holds))

    async def _learn_separated(self) -> None:
        """Know which chips are separated by name before the kubelet hears of any."""
        if self._pods.is_listed:  # else the API server is away, and nobody says
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LIST_S):
                    await self._reporter.looked.wait()

    def _told(self, effect: Effect) -> None:
        """Take note of an effect; a pod that was served without us is a rival's."""
        self._news.tell(effect)
        if not isinstance(effect, Noted) or not self._pods.awaits_us(effect.uid):
            return
        if effect.reason == settling.RESTORED:
            self._server.suspect(
                f"another device plugin serves {self._product.resource}: the kubelet "
                f"gave devices to a pod without asking us ({effect.text})"
            )

    def _rival(self, text: str) -> None:
        """Leave the node to another plugin, or take it up again."""
        self._news.rival("kubelet", text)
        self._reporter.hush(is_silent=bool(text))
        self._current.wake()

    # What is fed from it

    def _servicer(self) -> Servicer:
        return Servicer(
            self._current,
            traffic=self._traffic,
            pods=self._pods,
            find_left=self._leftovers.processes.of_pods,
            write_journal=self._holdbook.write,
            observe_allocate_s=self._metrics.allocate_s.observe,
            numa=self._numa,
            mounting=self._mounting,
        )

    def _numa(self) -> tuple[int, ...]:
        return self._diagnosis.reading.numa if self._settings.numa_topology else ()

    def _parts(self) -> Parts:
        found = self._diagnosis
        return Parts(reading=found.reading, in_service=found.health.in_service)

    async def _report(self) -> NoReturn:
        """Have the newest state published."""
        while True:
            version = self._current.version
            ledger = self._current.ledger
            taken = occupancy.claimed(ledger) | occupancy.unusable(ledger)
            self._reporter.publish(
                picture.picture(
                    self._diagnosis.reading,
                    self._diagnosis.health,
                    taken=(
                        *chip_sets.ids_of(taken & ~ledger.unhealthy),
                        *virtual.parents_of(self._diagnosis.reading),
                    ),
                    affinity=affinity(ledger),
                    findings=self._diagnosis.findings,
                )
            )
            await self._current.changed(version)
