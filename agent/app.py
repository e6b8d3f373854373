"""Construct the running agent of one node; start and stop its parts in order.

A *line* is a product line. Each line has its own health, ledger, plugin and annotator.
The other parts in this diagram exist once. The ConfigMap is
`mindx-dl-deviceinfo-<node>`.

driver ------> each line: health -> ledger -+-> plugin -> kubelet
pods --------> each line: ledger            +-> annotator -> pod annotations
ConfigMap <--- reporter <-- node report of each line
journal <----- writer <---- holds of each line
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import NoReturn

from aiohttp import web

from agent import wiring
from agent.claims.store import LedgerStore
from agent.claims.values import Hold
from agent.devices.cgroups import Cgroups
from agent.devices.poller import Poller
from agent.devices.processes import ProcessNames
from agent.devices.reading import Reading
from agent.health.rules import FaultConfig
from agent.journal.file import Journal, JournalProblem, ProblemKind
from agent.journal.writer import JournalWriter
from agent.monitor.driver import DriverMonitor
from agent.monitor.fault_config import FaultConfigWatch
from agent.observe.announcer import Announcer
from agent.observe.problems import Need, Problems, Subject
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.foreign import ForeignPods
from agent.plugin.node_lock import lock_kubelet_dir
from agent.plugin.pod_resources import RateLimit
from agent.pods.informer import FIRST_LIST_S, PodInformer
from agent.pods.reconciler import READ_EACH_S, ResourcesError
from agent.process_parts import ProcessParts
from agent.product_line import NodeServices, ProductLine
from agent.report import content
from agent.report.owner import Owner
from agent.report.reporter import Reporter
from agent.settings import Settings
from agent.status import document, socket
from agent.status.document import View
from agent.status.socket import serve_status
from service import clock
from service.endpoints import Endpoints
from service.version import version

log = logging.getLogger(__name__)


async def main(settings: Settings) -> None:
    """Run the node agent until cancelled.

    If the chips turn out not to be those of the product row that is served, the agent
    begins anew: all but `ProcessParts` is constructed again, and the holds are handed
    over.

    Raises:
        SettingsError: The settings do not fit the machine or the cluster.
    """
    async with AsyncExitStack() as stack:
        parts = await ProcessParts.open(stack, settings)
        while True:
            reason, parts.holds = await _run(settings, parts)
            parts.problems.begin_anew(reason)
            (await parts.driver()).change_rows()


class RowChangedError(Exception):
    """The chips of the node have to be served by other rows of the product table."""


async def _run(settings: Settings, parts: ProcessParts) -> tuple[str, tuple[Hold, ...]]:
    """Run the agent until cancelled, or until it has to begin anew.

    Returns:
        Why it has to, and all holds of the node.

    Raises:
        SettingsError: The settings do not fit the machine or the cluster.
    """
    api, metrics, problems = parts.api, parts.metrics, parts.problems
    problems.tell(Subject.DIRECTORY, "the kubelet's directory is not ours yet")
    for awaited in (Subject.FIRST_READING, Subject.PODS):
        problems.tell(awaited, "awaited")
    async with AsyncExitStack() as stack:
        # probes of MindCluster's device plugin ask at this path
        alive = web.get("/", _alive)
        endpoints = Endpoints(parts.registry, problems.why_not_ready, routes=[alive])
        address = await stack.enter_async_context(
            endpoints.serving(settings.listen, settings.address_file)
        )
        log.info("serving", extra={"address": address})
        await stack.enter_async_context(
            lock_kubelet_dir(settings.kubelet_dir, partial(_wait, problems))
        )
        problems.tell(Subject.DIRECTORY, "")
        announcer = Announcer(metrics, problems)
        agents: list[Agent] = []
        await stack.enter_async_context(
            serve_status(
                settings.state_dir / socket.NAME,
                lambda: _status(settings, problems, *agents),
            )
        )
        driver = await parts.driver()
        poller = Poller(
            driver,
            poll_s=settings.driver_poll_s,
            deadline_s=settings.driver_deadline_s,
        )
        reading = await wiring.first_reading(
            poller,
            settings,
            problems,
            ask_inventory=partial(
                wiring.tell_inventory,
                driver,
                api.client,
                settings.node_name,
                on_outcome=partial(problems.tell_need, Need.NODES),
            ),
        )
        agent = Agent(
            settings, parts, reading=reading, announcer=announcer, poller=poller
        )
        agents.append(agent)
        return await agent.run_until_row_changes()


def _status(
    settings: Settings, problems: Problems, *agents: "Agent"
) -> dict[str, object]:
    """Return the JSON document that `ascend-agent status` prints."""
    return document.document(
        *(view for agent in agents for view in agent.views()),
        node=settings.node_name,
        version=version(),
        mode=settings.mode,
        waiting_for=problems.why_not_ready(),
        problems=problems.status(),
        stale_since_ms=next((agent.stale_since_ms for agent in agents), None),
    )


async def _alive(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _wait(problems: Problems, text: str) -> None:
    log.error(text)
    problems.tell(Subject.DIRECTORY, text)


class Agent:
    """The agent of one node: constructs, runs and closes all its parts."""

    def __init__(
        self,
        settings: Settings,
        parts: ProcessParts,
        *,
        reading: Reading,
        announcer: Announcer,
        poller: Poller,
    ) -> None:
        """Construct all parts of the agent; `run` starts them.

        Args:
            settings: Settings that `agent.settings.verify` has accepted.
            parts: Parts that the caller closes. Without `holds` these are read from the
                journal.
            reading: First reading of the driver; it shows the node's product lines.
            announcer: Writer of log lines and events of this agent.
            poller: Gives the readings after the first.
        """
        api, metrics = parts.api, parts.metrics
        tell = parts.problems.tell
        self._holds = parts.holds
        self._announcer = announcer
        self._poller = poller
        self._journal_writer = JournalWriter(
            Journal(
                settings.state_dir / "holds",
                boot_id=parts.boot_id,
                node=settings.node_name,
            ),
            observe_s=metrics.journal_s.observe,
            on_outcome=self._announcer.journal_written,
        )
        self._reporter = Reporter(
            api.client,
            node=settings.node_name,
            writer=parts.writer,
            heartbeat_s=settings.heartbeat_s,
            metrics=metrics,
            wall_s=clock.wall_s,
            tell=tell,
            tell_need=parts.problems.tell_need,
            owner=Owner(
                api.client,
                pod=settings.pod_name,
                namespace=settings.pod_namespace,
                configmap_namespace=settings.namespace,
            ).reference,
            on_configmap=self._apply_configmap,
            on_host_ip=self._wake_annotators,
            namespace=settings.namespace,
        )
        # until all plugins have looked for a rival, which would write the ConfigMap
        self._reporter.set_silent(is_silent=True)
        self._pods = PodInformer(
            api,
            parts.pod_watch,
            node=settings.node_name,
            on_known=partial(tell, Subject.PODS, ""),
        )
        self._foreign = ForeignPods(parts.problems)
        services = NodeServices(
            settings=settings,
            api=api,
            metrics=metrics,
            announcer=self._announcer,
            pods=self._pods,
            journal_writer=self._journal_writer,
            activity=AllocateActivity(asyncio.get_running_loop().time),
            foreign=self._foreign,
            rate_limit=RateLimit(READ_EACH_S),
            cgroups=Cgroups(),
            process_names=ProcessNames(),
            mount=wiring.mount(settings, reading),
            host_ip=lambda: self._reporter.host_ip,
            look_now=poller.look_now,
            readings=lambda: [line.chip_monitor.reading for line in self._lines],
        )
        readings = wiring.lines(settings, reading)
        products = [line_reading.product for line_reading in readings]
        self._lines = [
            ProductLine(
                services,
                line_reading,
                other_products=[
                    row for row in products if row is not line_reading.product
                ],
                on_rival=self._update_silence,
            )
            for line_reading in readings
        ]
        self._part_lines = [part for line in self._lines for part in line.part_lines]
        parts.problems.add_check(self._reporter.problem)
        self._driver_monitor = DriverMonitor(
            [
                *(line.chip_monitor for line in self._lines),
                *(line.monitor for line in self._part_lines),
            ],
            problems=parts.problems,
            metrics=metrics,
            loop_s=asyncio.get_running_loop().time,
        )
        self._fault_config_watch = FaultConfigWatch(
            api.client,
            namespace=settings.namespace,
            apply=self._apply_fault_config,
            on_problem=partial(tell, Subject.FAULT_CONFIG),
        )
        metrics.device_list_watched.set_function(
            lambda: all(line.server.is_followed for line in self._lines)
        )
        self._announcer.expose_watches(
            {
                Need.PODS: self._pods.watch,
                Need.NODES: self._reporter.node_watch,
                Need.REPORTS: self._reporter.configmap_watch,
                Need.FAULT_CONFIG: self._fault_config_watch.watch,
            }
        )

    async def run_until_row_changes(self) -> tuple[str, tuple[Hold, ...]]:
        """Run until cancelled, or until the agent has to begin anew; then close.

        Returns:
            Why it has to, and all holds of the node.
        """
        try:
            await self.run()
        except* RowChangedError:
            pass
        finally:
            await self.close()
        # before Python 3.13 a task group drops a cancellation that comes while it ends
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return self._driver_monitor.changed_row, self._journal_writer.entries()

    async def run(self) -> None:
        """Restore the holds, then run all parts until cancelled.

        The call also ends when a part fails.

        Raises:
            RowChangedError: The agent has to begin anew; as one of an `ExceptionGroup`.
        """
        await self._restore()
        for line in self._lines:
            line.chip_monitor.judge_again()
        for part_line in self._part_lines:
            part_line.monitor.judge_again()
        all_lines = (*self._lines, *self._part_lines)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run(), name="pods")
            tasks.create_task(
                self._poller.run(self._driver_monitor.observe), name="driver"
            )
            tasks.create_task(self._fault_config_watch.run(), name="faults")
            tasks.create_task(self._journal_writer.run(), name="journal")
            tasks.create_task(self._reporter.run(), name="reporter")
            await self._pods.wait_until_known()
            await self._wait_for_separated()
            list_pods = self._lines[0].list_pods
            with suppress(ResourcesError):  # the task asks again
                await list_pods()
            tasks.create_task(self._foreign.run(list_pods), name="foreign pods")
            for resource_line in all_lines:
                await resource_line.confirm_holds()
                resource_line.start_tasks(tasks)
            for resource_line in all_lines:
                tasks.create_task(self._report(resource_line.store), name="report")
            # in the body, so that the plugins end first, on a signal and when the row
            # changes: an Allocate that waits for its claim, or for a look of the
            # driver, still needs all of the other tasks
            async with asyncio.TaskGroup() as serving:
                for resource_line in all_lines:
                    resource_line.serve(serving)
                await self._driver_monitor.begins_anew.wait()
                raise RowChangedError

    @property
    def stale_since_ms(self) -> int | None:
        """Unix milliseconds of the last reading if no chip can be read now."""
        return self._driver_monitor.stale_since_ms

    def views(self) -> Iterator[View]:
        """Yield the state of each product line for the status document."""
        for line in self._lines:
            yield View(
                ledger=line.store.ledger,
                reading=line.chip_monitor.reading,
                health=line.chip_monitor.health,
                changes=tuple(line.chip_monitor.changes),
                stray_processes=line.stray_processes.occupants,
            )

    async def close(self) -> None:
        """Clean up when the agent stops.

        Remove the agent's CDI spec file if no container needs it. Remove this agent's
        name as writer from the ConfigMap `mindx-dl-deviceinfo-<node>`. Close the
        connections to the kubelet, and the journal.
        """
        all_lines = (*self._lines, *self._part_lines)
        has_holds = any(line.store.ledger.holds for line in all_lines)
        for line in self._lines:
            line.mounts.clean_up(has_holds=has_holds)
        await self._reporter.release_configmap()
        for resource_line in all_lines:
            await resource_line.close()
        await self._journal_writer.close()

    # Inputs of all product lines

    async def _restore(self) -> None:
        unclaimed = list(
            await self._read_journal() if self._holds is None else self._holds
        )
        for line in (*self._lines, *self._part_lines):
            line.restore(entry for entry in unclaimed if line.owns(entry))
            unclaimed = [entry for entry in unclaimed if not line.owns(entry)]
        if unclaimed:
            text = f"{len(unclaimed)} holds of chips that this agent does not serve"
            log.warning("holds kept in the journal", extra={"reason": text})
            self._journal_writer.keep(unclaimed)

    async def _read_journal(self) -> Sequence[Hold]:
        entries = await self._journal_writer.read()
        if not isinstance(entries, JournalProblem):
            return entries
        if entries.kind in {ProblemKind.ABSENT, ProblemKind.OTHER_BOOT}:
            log.info("no holds of this boot", extra={"reason": entries.text})
        else:
            self._announcer.journal_unusable(entries.text)
        return ()

    async def _wait_for_separated(self) -> None:
        """Wait until the reporter has read the agent's ConfigMap, at most FIRST_LIST_S.

        The ConfigMap `mindx-dl-deviceinfo-<node>` lists the separated chips. Without
        the wait, the first device list could offer a separated chip to the kubelet. If
        the agent has no list of pods yet, it does not wait: the API server may be
        unreachable.
        """
        if self._pods.is_listed:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LIST_S):
                    await self._reporter.configmap_known.wait()

    def _apply_fault_config(self, config: FaultConfig) -> None:
        for line in self._lines:
            line.chip_monitor.apply_fault_config(config)

    def _apply_configmap(self, data: Mapping[str, str] | None) -> None:
        for line in self._lines:
            line.chip_monitor.apply_configmap(data)

    def _wake_annotators(self) -> None:
        """Have the address of the node written into the configuration of its pods."""
        for line in self._lines:
            line.store.wake()

    def _update_silence(self) -> None:
        """Let the reporter write to the API server unless a product line has a rival.

        A rival is another device plugin for the same resource. It would write the same
        ConfigMap `mindx-dl-deviceinfo-<node>`. A product line that has not looked for a
        rival yet is treated as if it had one.
        """
        is_ours = all(line.server.rival == "" for line in self._lines)
        self._reporter.set_silent(is_silent=not is_ours)

    # Outputs of all product lines

    async def _report(self, store: LedgerStore) -> NoReturn:
        """Publish the node report now and after each change of the ledger in `store`.

        The report has all product lines of the node, not only that of this ledger.
        """
        while True:
            version = store.version
            reports = [line.node_report() for line in self._lines]
            static_parts = tuple(line.report() for line in self._part_lines)
            report = replace(content.merge_lines(reports), static_parts=static_parts)
            self._reporter.publish(report)
            await store.changed(version)
