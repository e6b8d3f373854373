"""One product line of a node: its ledger, and all parts that read or change the ledger.

driver -> health -+               +-> plugin -> kubelet
API server's pods +-> LedgerStore +-> annotator -> pod annotations
pod-resources ----+               +-> node report
                                  +-> journal writer
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agent import wiring
from agent.api_client import ApiClient
from agent.claims import confirm, occupancy
from agent.claims import ledger as ledgers
from agent.claims.annotations import make_affinity
from agent.claims.events import Effect, Noted, Registering
from agent.claims.store import LedgerStore
from agent.claims.values import Hold, Ledger
from agent.devices.cgroups import Cgroups
from agent.devices.processes import ProcessNames
from agent.devices.reading import Reading
from agent.journal import writer
from agent.journal.writer import JournalWriter
from agent.monitor import parts, pod_processes
from agent.monitor.chips import ChipMonitor
from agent.monitor.parts import PartMonitor
from agent.monitor.pod_faults import PodFaults
from agent.monitor.pod_processes import PodProcesses
from agent.monitor.stray_processes import StrayProcesses
from agent.observe.announcer import Announcer
from agent.observe.metrics import Metrics
from agent.observe.problems import Need, Subject
from agent.observe.registration import Registration
from agent.plugin import vnpu
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.foreign import ForeignPods
from agent.plugin.mounts import MountMethod, Mounts
from agent.plugin.pod_resources import PodResourcesClient, RateLimit
from agent.plugin.server import Server
from agent.plugin.servicer import Renderer, Servicer
from agent.plugin.static_parts import PartMounts, PartServicer
from agent.plugin.vnpu import VirtualServicer
from agent.pods.annotator import Annotator
from agent.pods.informer import PodInformer
from agent.pods.reconciler import LookNow, Reconciler
from agent.report import content
from agent.report.content import NodeReport, addresses
from agent.settings import STANDALONE, Settings
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire.deviceinfo import StaticParts
from service import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeServices:
    """Parts of the agent that exist once on a node, for all its product lines."""

    settings: Settings
    api: ApiClient
    metrics: Metrics
    announcer: Announcer
    pods: PodInformer
    journal_writer: JournalWriter
    #: Shared, because pod-resources lists the devices of all resources at once.
    activity: AllocateActivity
    #: Shared for the same reason.
    foreign: ForeignPods
    #: Shared, because the kubelet limits the requests of all callers together.
    rate_limit: RateLimit
    cgroups: Cgroups
    process_names: ProcessNames
    mount: MountMethod
    #: Returns the node's last known InternalIP; "" while none is known.
    host_ip: Callable[[], str]
    #: Asks the driver for a look at every chip that begins now.
    look_now: LookNow
    #: Returns the last reading of each product line.
    readings: Callable[[], Sequence[Reading]]


class _Line(ABC):
    """Ledger, plugin, reconciler and annotator of one resource."""

    def __init__(
        self,
        services: NodeServices,
        ledger: Ledger,
        *,
        last_reading: Callable[[], Reading],
        on_rival: Callable[[], None],
        registration: Registration | None,
    ) -> None:
        """Construct what all resources need; start nothing.

        Args:
            services: Parts of the agent that all product lines of the node share; the
                caller owns them.
            ledger: Ledger of the resource without pods and holds.
            last_reading: Returns the last reading of the chips; it has their processes.
            on_rival: Called after the first check for another device plugin that serves
                the same resource. Called again when such a plugin appears or goes.
            registration: As for `Server`.
        """
        settings = services.settings
        self._services = services
        self._on_rival = on_rival
        self.product = ledger.product
        self.store = LedgerStore(
            ledger, self._on_effect, loop_s=asyncio.get_running_loop().time
        )
        services.announcer.count_ledger(self.store)
        services.journal_writer.follow(self.store)
        self._resources = PodResourcesClient(
            settings.pod_resources_socket,
            resource=self.product.resource,
            activity=services.activity,
            rate_limit=services.rate_limit,
            foreign=services.foreign,
        )
        self._pod_processes = PodProcesses(
            self.store, last_reading=last_reading, cgroups=services.cgroups
        )
        self._reconciler = Reconciler(
            self.store,
            resources=self._resources,
            activity=services.activity,
            find_stray_processes=partial(
                self._pod_processes.find, within_s=pod_processes.PATIENT_S
            ),
            period_s=settings.reconcile_period_s,
            look_now=services.look_now,
            on_problem=partial(
                services.announcer.problems.tell,
                Subject.POD_RESOURCES,
                of=self.product.resource,
            ),
        )
        self.server = Server(
            self._servicer,
            product=self.product,
            kubelet_dir=settings.kubelet_dir,
            allocatable_ids=self._resources.allocatable_ids,
            on_rival=self._on_rival_change,
            registration=registration,
        )
        self._annotator = Annotator(
            self.store,
            send=services.api.send,
            host_ip=services.host_ip,
            is_silent=lambda: bool(self.server.rival),
            on_outcome=partial(
                services.announcer.problems.tell_need,
                Need.ANNOTATIONS,
                of=self.product.resource,
            ),
            on_pod=lambda pod, problem: services.announcer.problems.tell(
                Subject.POD_ANNOTATIONS, problem, of=pod
            ),
            addresses=lambda: addresses(last_reading()),
        )
        self._pods = services.pods.add_line(
            self.store, is_served=lambda: self.server.problem() is None
        )

    @abstractmethod
    def _servicer(self) -> Servicer:
        """Return a servicer that is about to be registered."""

    def owns(self, entry: Hold) -> bool:
        """Whether a journal entry is a hold on chips of this product line."""
        return writer.is_of_line(entry, self.product)

    def restore(self, entries: Iterable[Hold]) -> None:
        """Put the holds of journal entries into the ledger of this product line."""
        self.store.replace(ledgers.restore(self.store.ledger, entries))

    async def confirm_holds(self) -> None:
        """Finish interrupted swaps of slots; ask the kubelet which pods own the holds.

        A swap is interrupted if the agent's process ends during it. Call this before
        the plugin serves, and after the ledger has all pods of the node.
        """
        self.store.replace(ledgers.resume(self.store.ledger, clock.loop_s()))
        await self._reconciler.run_once(thorough=True)

    def start_tasks(self, tasks: asyncio.TaskGroup) -> None:
        """Start this product line's tasks, except its device plugins."""
        tasks.create_task(self._reconciler.run(), name="reconciler")
        tasks.create_task(self._annotator.run(), name="annotator")

    def serve(self, tasks: asyncio.TaskGroup) -> None:
        """Start the device plugin."""
        tasks.create_task(self.server.run(), name=self.product.key)

    async def close(self) -> None:
        """Close the connection to the kubelet's pod-resources."""
        await self._resources.close()

    def _on_effect(self, effect: Effect) -> None:
        """Announce a ledger effect; suspect a rival if the effect is evidence of one.

        Evidence is that a pod has devices that this agent never gave out, although only
        this agent's plugin served the resource when the pod came.
        """
        self._services.announcer.ledger_effect(effect)
        if not isinstance(effect, Noted) or not self._pods.is_expected(effect.uid):
            return
        if effect.reason == confirm.RESTORED:
            self.server.suspect(
                f"another device plugin serves {self.product.resource}: the kubelet "
                f"gave devices to a pod without asking us ({effect.text})"
            )

    def _on_rival_change(self, text: str) -> None:
        """Announce that another plugin for this resource has appeared or has gone.

        The first check for such a plugin also calls this method. If it has found none,
        nothing is announced. While there is such a plugin, this agent does not change
        the annotations of the pods that ask for the resource.

        Args:
            text: A sentence about the other plugin; "" if there is none.
        """
        self._services.announcer.problems.tell(
            Subject.RIVAL_PLUGIN, text, of=self.product.resource
        )
        self._on_rival()
        self.store.wake()

    def _make_servicer(
        self,
        kind: type[Servicer],
        mounts: Renderer,
        numa: Callable[[], Sequence[int]] = tuple,
    ) -> Servicer:
        """Return a servicer that is about to be registered; tell the ledger of it."""
        self.store.apply(Registering(self._resources.kubelet))
        return kind(
            self.store,
            activity=self._services.activity,
            pods=self._services.pods,
            find_stray_processes=self._pod_processes.find,
            write_journal=self._services.journal_writer.write,
            observe_allocate_s=self._services.metrics.allocate_s.observe,
            numa=numa,
            mounts=mounts,
            look_now=self._services.look_now,
        )


class ProductLine(_Line):
    """Ledger, monitors, plugin, reconciler and annotator of one product line."""

    def __init__(
        self,
        services: NodeServices,
        reading: Reading,
        *,
        other_products: Sequence[Product],
        on_rival: Callable[[], None],
    ) -> None:
        """Construct the parts of the product line; start none.

        Args:
            services: As for `_Line`.
            reading: First reading of this product line's chips.
            other_products: Product table rows of the node's other product lines.
            on_rival: As for `_Line`.
        """
        settings = services.settings
        super().__init__(
            services,
            Ledger(
                product=reading.product,
                node=settings.node_name,
                standalone=settings.mode == STANDALONE,
            ),
            last_reading=lambda: self.chip_monitor.reading,
            on_rival=on_rival,
            registration=Registration(
                services.metrics, asyncio.get_running_loop().time
            ),
        )
        self.chip_monitor = ChipMonitor(
            self.store,
            reading=reading,
            recover_s=settings.recover_s,
            announcer=services.announcer,
            wall_ms=wiring.wall_ms,
            other_products=other_products,
        )
        self.mounts = Mounts(
            services.mount,
            last_reading=lambda: self.chip_monitor.reading,
            cdi_dir=settings.cdi_dir,
            readings=services.readings,
        )
        services.foreign.add_line(self.store, self.chip_monitor)
        #: asks for all pods of the node; the answer comes to `services.foreign`
        self.list_pods = self._resources.forget_ended_pods
        self.stray_processes = StrayProcesses(
            self.store,
            last_reading=lambda: self.chip_monitor.reading,
            names=services.process_names,
            announcer=services.announcer,
        )
        self._pod_faults = PodFaults(
            self.store,
            last_health=lambda: self.chip_monitor.health,
            announcer=services.announcer,
        )
        #: lines of the kinds of parts that are served by claims
        self.part_lines = tuple(
            PartLine(services, row, self) for row in parts.kinds_of(reading)
        )
        for part in (self.mounts, self.server):
            services.announcer.problems.add_check(part.problem)

    def start_tasks(self, tasks: asyncio.TaskGroup) -> None:
        """Start this product line's tasks, except its device plugins."""
        super().start_tasks(tasks)
        tasks.create_task(self.stray_processes.run(), name="stray processes")
        tasks.create_task(self._pod_faults.run(), name="pod faults")

    def serve(self, tasks: asyncio.TaskGroup) -> None:
        """Start the device plugins for whole chips, and for parts without claims."""
        super().serve(tasks)
        by_claims = {line.product.resource for line in self.part_lines}
        for row in vnpu.rows_of(self.chip_monitor.reading):
            if row.resource in by_claims:
                continue
            make_servicer = partial(
                VirtualServicer,
                self.store,
                row,
                activity=self._services.activity,
                monitor=self.chip_monitor,
                mounts=self.mounts,
            )
            server = Server(
                make_servicer,
                product=row,
                kubelet_dir=self._services.settings.kubelet_dir,
                allocatable_ids=partial(self._resources.allocatable_ids, row.resource),
                on_rival=partial(
                    self._services.announcer.problems.tell,
                    Subject.RIVAL_PLUGIN,
                    of=row.resource,
                ),
            )
            tasks.create_task(server.run(), name=row.key)

    def node_report(self) -> NodeReport:
        """Return this product line's node report, from its ledger and driver reading.

        The reading is the last one that succeeded.
        """
        ledger, reading = self.store.ledger, self.chip_monitor.reading
        taken = occupancy.claimed_chips(ledger) | occupancy.unusable_chips(ledger)
        cut, affinity = {part.chip for part in reading.virtual}, make_affinity(ledger)
        # a scheduler that keeps the books itself takes all others for free
        held = tuple(sorted({*affinity.held, *cut}))
        return content.node_report(
            reading,
            self.chip_monitor.health,
            taken=(*chip_sets.ids_of(taken & ~ledger.unhealthy), *cut),
            affinity=replace(affinity, held=held),
            findings=self.chip_monitor.findings,
            is_row_chosen=bool(self._services.settings.product),
        )

    def _servicer(self) -> Servicer:
        return self._make_servicer(Servicer, self.mounts, self._numa_nodes)

    def _numa_nodes(self) -> tuple[int, ...]:
        is_enabled = self._services.settings.numa_topology
        return self.chip_monitor.reading.numa if is_enabled else ()


class PartLine(_Line):
    """Ledger, monitor, plugin, reconciler and annotator of one kind of part.

    Pods without a claim are served as well, as in standalone mode: a scheduler that is
    not told of these resources binds them by their number alone.
    """

    def __init__(
        self, services: NodeServices, row: Product, whole: ProductLine
    ) -> None:
        """Construct the parts of the line; start none.

        Args:
            services: As for `_Line`.
            row: Row of the kind, with the parts of this node.
            whole: Product line of the chips.
        """
        super().__init__(
            services,
            Ledger(product=row, node=services.settings.node_name, standalone=True),
            # the driver does not tell which processes are on which part
            last_reading=lambda: Reading(product=row, chips=()),
            on_rival=lambda: None,
            registration=None,
        )
        self.monitor = PartMonitor(self.store, whole.chip_monitor, whole.store)
        self._mounts = PartMounts(whole.mounts, lambda: self.monitor.devices)

    def report(self) -> StaticParts:
        """Return what the node's ConfigMap and its Node say about these parts."""
        ledger = self.store.ledger
        return StaticParts(ledger.product, make_affinity(ledger))

    def _servicer(self) -> Servicer:
        return self._make_servicer(PartServicer, self._mounts)
