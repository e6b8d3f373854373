"""What one product line of a node has of its own: its ledger, and all that serve it.

driver -> health -+                    +-> plugin -> kubelet
API server's pods +-> Current (ledger) +-> publisher -> pod annotations
pod-resources ----+                    +-> picture
+-> holdbook
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agent import wiring
from agent.api_client import Api
from agent.claims import confirm, occupancy
from agent.claims import ledger as ledgers
from agent.claims.annotations import affinity
from agent.claims.events import Effect, Noted
from agent.claims.store import Current
from agent.claims.values import Ledger
from agent.devices.processes import Processes
from agent.devices.reading import Reading
from agent.journal import writer
from agent.journal.file import HoldEntry
from agent.journal.writer import Holdbook
from agent.monitor.chips import Clocks, Diagnosis
from agent.monitor.stray_processes import Leftovers
from agent.observe.announcer import News
from agent.observe.metrics import Metrics
from agent.observe.registration import Standing
from agent.plugin import vnpu
from agent.plugin.allocate_activity import Traffic
from agent.plugin.mounts import Mount, Mounting
from agent.plugin.pod_resources import Resources
from agent.plugin.rate_limit import Pace
from agent.plugin.server import Server
from agent.plugin.servicer import Servicer
from agent.plugin.vnpu import Parts, VirtualServicer
from agent.pods.annotator import Publisher
from agent.pods.informer import NodePods
from agent.pods.reconciler import Reconciler
from agent.readiness import Readiness
from agent.report import content
from agent.report.content import Picture, addresses
from agent.settings import STANDALONE, Settings
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all product lines of a node have in common."""

    settings: Settings
    api: Api
    metrics: Metrics
    news: News
    ready: Readiness
    pods: NodePods
    holdbook: Holdbook
    #: One for all: pod-resources lists the devices of every resource at once.
    traffic: Traffic
    #: One for all: so is the kubelet's limit on questions.
    pace: Pace
    processes: Processes
    mount: Mount
    #: The node's InternalIP, as far as it is known.
    host_ip: Callable[[], str]
    #: The last look at each product line.
    readings: Callable[[], Sequence[Reading]]


class Line:
    """The parts of one product line, put together; what they protect is theirs."""

    def __init__(
        self,
        shared: Shared,
        reading: Reading,
        *,
        beside: Sequence[Product],
        on_rival: Callable[[], None],
    ) -> None:
        """Put the parts together; nothing runs yet.

        Args:
            shared: What the node has.
            reading: The first look at the chips of this line.
            beside: The node's other product lines.
            on_rival: Told that another plugin serves this line, or no longer does.
        """
        settings, metrics = shared.settings, shared.metrics
        self._shared = shared
        self._on_rival = on_rival
        self.product = reading.product
        loop_s = asyncio.get_running_loop().time
        self.current = Current(
            Ledger(
                product=self.product,
                node=settings.node_name,
                standalone=settings.mode == STANDALONE,
            ),
            self._told,
        )
        shared.news.follow(self.current)
        shared.holdbook.follow(self.current)
        self.diagnosis = Diagnosis(
            self.current,
            reading=reading,
            recover_s=settings.recover_s,
            news=shared.news,
            clocks=Clocks(loop_s=loop_s, wall_ms=wiring.wall_ms),
            beside=beside,
        )
        self.mounting = Mounting(
            shared.mount,
            hardware=lambda: self.diagnosis.reading,
            cdi_dir=settings.cdi_dir,
            beside=lambda: _others(shared.readings(), self.product),
        )
        self._resources = Resources(
            settings.pod_resources_socket,
            resource=self.product.resource,
            traffic=shared.traffic,
            pace=shared.pace,
        )
        self.leftovers = Leftovers(
            self.current,
            hardware=lambda: self.diagnosis.reading,
            processes=shared.processes,
            news=shared.news,
        )
        self._reconciler = Reconciler(
            self.current,
            resources=self._resources,
            traffic=shared.traffic,
            find_left=shared.processes.of_pods,
            period_s=settings.reconcile_period_s,
        )
        self.server = Server(
            self._servicer,
            product=self.product,
            kubelet_dir=settings.kubelet_dir,
            offered=self._resources.offered,
            tell=Standing(metrics, loop_s, on_rival=self._rival),
        )
        self._publisher = Publisher(
            self.current,
            send=shared.api.send,
            host_ip=shared.host_ip,
            is_silent=lambda: bool(self.server.rival),
            addresses=lambda: addresses(self.diagnosis.reading),
        )
        self._pods = shared.pods.serve(
            self.current,
            resource=self.product.resource,
            is_served=lambda: self.server.problem() is None,
        )
        for part in (self.mounting, self.server):
            shared.ready.ask(part.problem)

    def owns(self, entry: HoldEntry) -> bool:
        """Tell whether what the last agent gave out is of this line."""
        return writer.is_of(entry, self.product)

    def restore(self, entries: Iterable[HoldEntry]) -> None:
        """Take over what the last agent gave out of this line."""
        holds = [writer.hold(entry) for entry in entries]
        self.current.replace(ledgers.restore(self.current.ledger, holds))

    async def settle(self) -> None:
        """Find out who has what, before anything is served: all pods are known."""
        self.current.replace(ledgers.resume(self.current.ledger))
        await self._reconciler.run_once(thorough=True)

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Have all done that goes on beside the plugin for whole chips."""
        tasks.create_task(self._reconciler.run(), name="reconciler")
        tasks.create_task(self._publisher.run(), name="publisher")
        tasks.create_task(self.leftovers.run(), name="leftovers")
        for row in vnpu.rows_of(self.diagnosis.reading):
            server = wiring.virtual_server(
                row,
                kubelet_dir=self._shared.settings.kubelet_dir,
                offered=self._resources.offered,
                servicer=lambda row: VirtualServicer(
                    self.current, row, parts=self._parts, mounting=self.mounting
                ),
            )
            tasks.create_task(server.run(), name=row.key)

    def picture(self) -> Picture:
        """What is to be published of these chips now, but for their separation."""
        ledger, reading = self.current.ledger, self.diagnosis.reading
        taken = occupancy.claimed(ledger) | occupancy.unusable(ledger)
        return content.picture(
            reading,
            self.diagnosis.health,
            taken=(
                *chip_sets.ids_of(taken & ~ledger.unhealthy),
                *vnpu.parents_of(reading),
            ),
            affinity=affinity(ledger),
            findings=self.diagnosis.findings,
        )

    async def close(self) -> None:
        """Let go of what is open."""
        await self._resources.close()

    def _told(self, effect: Effect) -> None:
        """Take note of an effect; a pod that was served without us is a rival's."""
        self._shared.news.tell(effect)
        if not isinstance(effect, Noted) or not self._pods.awaits_us(effect.uid):
            return
        if effect.reason == confirm.RESTORED:
            self.server.suspect(
                f"another device plugin serves {self.product.resource}: the kubelet "
                f"gave devices to a pod without asking us ({effect.text})"
            )

    def _rival(self, text: str) -> None:
        """Leave the chips to another plugin, or take them up again."""
        self._shared.news.rival("kubelet", text, line=self.product.resource)
        self._on_rival()
        self.current.wake()

    def _servicer(self) -> Servicer:
        return Servicer(
            self.current,
            traffic=self._shared.traffic,
            pods=self._pods,
            find_left=self._shared.processes.of_pods,
            write_journal=self._shared.holdbook.write,
            observe_allocate_s=self._shared.metrics.allocate_s.observe,
            numa=self._numa,
            mounting=self.mounting,
        )

    def _numa(self) -> tuple[int, ...]:
        is_told = self._shared.settings.numa_topology
        return self.diagnosis.reading.numa if is_told else ()

    def _parts(self) -> Parts:
        found = self.diagnosis
        return Parts(reading=found.reading, in_service=found.health.in_service)


def _others(readings: Iterable[Reading], product: Product) -> tuple[Reading, ...]:
    return tuple(each for each in readings if each.product is not product)
