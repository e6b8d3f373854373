"""A node of two product lines in simulated time, from libdcmi's calls to the reports.

Real are the agent's parts: driver, poller, monitors, ledgers, plugin, reconciler, and
schedule of the reports. Workers, kubelet, kernel and API server are played.

What breaks a law is noted in `breaches`, because most of it is seen within a task.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NoReturn, cast

from agent.claims import occupancy, values
from agent.claims.annotations import make_affinity
from agent.claims.events import InUse, PodDeleted, PodUpdated
from agent.claims.store import LedgerStore
from agent.claims.values import Hold, Ledger
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.poller import Observation, Poller
from agent.devices.reading import Reading
from agent.health.conditions import UNREAD_S, Condition
from agent.health.rules import FaultConfig
from agent.monitor.chips import ChipMonitor
from agent.monitor.driver import DriverMonitor
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.servicer import Servicer
from agent.pods.reconciler import Containers, Reconciler
from agent.report import content, schedule
from agent.report.content import NodeReport
from agent.report.schedule import StoredConfigMap
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire.deviceinfo import LABELS
from scheduler_core.wire.pods import NpuPod, PodMeta, RawContainer, npu_pod
from tests.agent.announcing import Announced
from tests.agent.devices.dcmi.rude_workers import RudeWorkers
from tests.agent.devices.rude_library import RudeLibrary, Word
from tests.agent.node import NODE
from tests.support.simulated_loop import SimulatedLoop

#: As the settings have them, but for the pause between two observations, and for a
#: hold-off that is long enough for something to come in between.
CALL_S = 5.0
POLL_S = 0.5
RECOVER_S = 6.0
HEARTBEAT_S = 10.0
RECONCILE_S = 5.0
#: Longest time for which the agent does not know that a worker hangs.
UNKNOWN_S = CALL_S + 2 * POLL_S
#: Longest time from a worker's rest, between two looks, to the publication of what the
#: agent makes of it: two observations, and the pause between two writes.
PUBLISHED_S = 2 * POLL_S + schedule.SPACING_S


class RefusedError(Exception):
    """The plugin does not serve a pod."""


class _Context:
    """What gRPC gives an Allocate."""

    async def abort(self, _code: object, text: str) -> NoReturn:
        raise RefusedError(text)


class _Mounts:
    """The answer to an Allocate is the hold."""

    def problem(self) -> str:
        return ""

    def answer(self, hold: Hold) -> api_pb2.ContainerAllocateResponse:
        return api_pb2.ContainerAllocateResponse(
            envs={"chips": ",".join(map(str, hold.chips))}
        )


class _Pods:
    """The watch of pods, which never breaks off."""

    def hurry(self) -> None:
        """There is nothing to hurry."""

    def unseen_s(self) -> float:
        return 0.0

    async def of_kubelet(self, _resource: str) -> Iterable[NpuPod]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process on a chip, as it is."""

    pid: int
    chip: int
    #: of the pod that began it
    uid: str
    #: whether the kernel shows it among those of its pod
    is_in_pod: bool


class Kubelet:
    """pod-resources of one product line."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.kubelet: object = "first"
        #: {pod: its device ids}
        self.shown: dict[str, frozenset[str]] = {}
        self.activity = AllocateActivity(now_s)

    async def read(self, _namespace: str, name: str) -> Containers:
        ids = self.shown.get(name)
        return None if ids is None else {"main": ids}

    async def forget_ended_pods(self) -> InUse:
        return {("default", name, "main"): ids for name, ids in self.shown.items()}


class NotingStore(LedgerStore):
    """A ledger that tells which chips it releases."""

    on_release: Callable[[int], None] = staticmethod(lambda _chip: None)

    def replace(self, ledger: Ledger) -> None:
        before = values.held_chips(self.ledger)
        super().replace(ledger)
        for chip in chip_sets.ids_of(before & ~values.held_chips(self.ledger)):
            self.on_release(chip)


class Line:
    """One product line, as the agent has it."""

    def __init__(
        self, node: "DrivenNode", reading: Reading, others: Iterable[Product]
    ) -> None:
        self.product = reading.product
        loop = node.loop
        self.store = NotingStore(
            Ledger(product=self.product, node=NODE, kubelet="first"),
            lambda _effect: None,
            loop_s=loop.time,
        )
        self.store.on_release = partial(node.note_release, self)
        self.monitor = ChipMonitor(
            self.store,
            reading=reading,
            recover_s=RECOVER_S,
            announcer=node.announced.announcer,
            wall_ms=node.wall_ms,
            other_products=tuple(others),
        )
        self.kubelet = Kubelet(loop.time)
        self.reconciler = Reconciler(
            self.store,
            resources=self.kubelet,
            activity=self.kubelet.activity,
            find_stray_processes=node.find_in_pods,
            period_s=RECONCILE_S,
            look_now=node.poller.look_now,
        )
        self.servicer = Servicer(
            self.store,
            activity=self.kubelet.activity,
            pods=cast("Any", _Pods()),
            find_stray_processes=node.find_in_pods,
            write_journal=_write_nothing,
            observe_allocate_s=lambda _seconds: None,
            numa=tuple,
            mounts=cast("Any", _Mounts()),
            look_now=node.poller.look_now,
        )

    @property
    def chips(self) -> tuple[int, ...]:
        return chip_sets.ids_of(self.product.all_chips)

    @property
    def held(self) -> int:
        return values.held_chips(self.store.ledger)

    def report(self) -> NodeReport:
        """As the agent makes it, without virtual devices."""
        ledger = self.store.ledger
        taken = occupancy.claimed_chips(ledger) | occupancy.unusable_chips(ledger)
        return content.node_report(
            self.monitor.reading,
            self.monitor.health,
            taken=chip_sets.ids_of(taken & ~ledger.unhealthy),
            affinity=make_affinity(ledger),
            findings=self.monitor.findings,
        )


async def _write_nothing() -> None:
    """No journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What the ConfigMap said of the chips, from a time on."""

    at_s: float
    conditions: Mapping[int, Condition]
    #: (chip, code) of levels that are raised
    raised: frozenset[tuple[int, str]]
    #: number of edits of the fault configuration before it was made
    edits: int
    #: when a worker that had read chips was well, the last time
    well_s: float


@dataclass
class Pod:
    """A pod that runs."""

    line: Line
    made: NpuPod
    chips: tuple[int, ...]
    ids: frozenset[str] = field(default_factory=frozenset)


class DrivenNode:
    """The agent of one node, and all that it stands between."""

    def __init__(self, loop: SimulatedLoop, library: RudeLibrary, path: Path) -> None:
        """Start nothing; `path` is a file that may be loaded."""
        self.loop = loop
        self.library = library
        self.breaches: list[str] = []
        self.announced = Announced()
        self.workers = RudeWorkers(library)
        self.driver = DcmiDriver(
            path,
            Conversion(wait_s=600.0),
            call_s=CALL_S,
            wall_ms=self.wall_ms,
            environment={},
            start=self.workers.start,
        )
        self.poller = Poller(self.driver, poll_s=POLL_S, deadline_s=CALL_S)
        self.lines: list[Line] = []
        self.pods: dict[str, Pod] = {}
        self.ended: list[Pod] = []
        self.processes: dict[int, Process] = {}
        self.observation = Observation()
        self.published: list[Publication] = []
        self.edits = 0
        #: when a worker that had read chips was well, the last time
        self.well_s = -inf
        #: {chip: when it could know what processes are on it, the last time}
        self.pids_s: dict[int, float] = {}
        self.on_judged: Callable[[], None] = lambda: None
        self._schedule = schedule.State(me="agent", heartbeat_s=HEARTBEAT_S)
        self._version = 1
        self._pods_made = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._written = asyncio.Event()

    def wall_ms(self) -> int:
        return round(self.loop.time() * 1000)

    # its life

    def start(self) -> None:
        """Begin, once the first reading is there."""
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        observation = await self.poller.poll()
        while observation.reading is None:
            await asyncio.sleep(POLL_S)
            observation = await self.poller.poll()
        readings = observation.reading.lines
        for reading in readings:
            others = (other.product for other in readings if other is not reading)
            self.lines.append(Line(self, reading, others))
        self._driver_monitor = DriverMonitor(
            [line.monitor for line in self.lines],
            problems=self.announced.problems,
            metrics=self.announced.metrics,
            loop_s=self.loop.time,
        )
        for line in self.lines:
            line.monitor.judge_again()
        self._apply_configmap({})
        self._tasks = [
            asyncio.create_task(self.poller.run(self._observe)),
            asyncio.create_task(self._tick()),
            *(asyncio.create_task(line.reconciler.run()) for line in self.lines),
            *(asyncio.create_task(self._report(line)) for line in self.lines),
        ]

    def stop(self) -> None:
        """End all tasks and processes."""
        self.loop.run_until_complete(self._stop())

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.workers.end()
        await self.driver.close()
        for process in self.workers.processes:
            await process.join()

    def run_for(self, seconds: float) -> None:
        """Let time pass; what a task ends with is raised."""
        self.loop.run_for(seconds)
        for task in self._tasks:
            if task.done():
                task.result()
        for process in self.workers.processes:
            failure = process.failure()
            if failure is not None:
                raise failure

    def note_wellness(self) -> None:
        """Note whether the agent can know now what the chips tell."""
        truth = self.library.truth
        is_well = self.workers.last.is_well
        if not is_well and truth.looked_s <= self.well_s:
            return
        self.well_s = self.loop.time() if is_well else truth.looked_s
        for chip, answer in truth.answers.items():
            if answer.has_pids and answer.word is Word.TOLD:
                self.pids_s[chip] = self.well_s

    # driver

    def _observe(self, observation: Observation) -> bool:
        self.note_wellness()
        self.observation = observation
        needs_more = self._driver_monitor.observe(observation)
        self.on_judged()
        return needs_more

    def apply_fault_config(self, config: FaultConfig) -> None:
        """Somebody has edited the fault configuration."""
        self.edits += 1
        for line in self.lines:
            line.monitor.apply_fault_config(config)
        self.on_judged()

    def conditions(self) -> dict[int, Condition]:
        """Return {chip: its condition}."""
        return {
            chip: line.monitor.health.chips[chip].condition
            for line in self.lines
            for chip in line.chips
            if chip in line.monitor.health.chips
        }

    def raised(self) -> frozenset[tuple[int, str]]:
        """Return (chip, code) of the levels that are raised."""
        return frozenset(
            (reason.chip, reason.code)
            for line in self.lines
            for reason in line.monitor.findings.upgrades
        )

    # reports

    async def _report(self, line: Line) -> NoReturn:
        while True:
            version = line.store.version
            reports = [each.report() for each in self.lines]
            event = schedule.ReportChanged(content.merge_lines(reports))
            self._step_schedule(event)
            await line.store.changed(version)

    async def _tick(self) -> NoReturn:
        while True:
            self._written.clear()
            due_at = schedule.due_at(self._schedule)
            try:
                async with asyncio.timeout_at(due_at):
                    await self._written.wait()
            except TimeoutError:
                self._step_schedule(schedule.Tick())

    def _step_schedule(self, event: schedule.Event) -> None:
        now_s = self.loop.time()
        self._schedule, effects = schedule.step(self._schedule, event, now_s)
        for effect in effects:
            if isinstance(effect, schedule.Write):
                self._write(effect)
        self._written.set()

    def _write(self, write: schedule.Write) -> None:
        """Write the ConfigMap; the watch shows it at once, also to the monitors."""
        self._note_publication(write.report)
        data = content.configmap_data(write.report, update_time=round(self.loop.time()))
        self._version += 1
        manual = data.pop(content.MANUAL_KEY)
        stored = StoredConfigMap(
            data={**data, content.MANUAL_KEY: manual},
            labels=LABELS,
            writer="agent",
            version=self._version,
        )
        self._step_schedule(schedule.WriteSucceeded(write.report, data, stored))
        self._apply_configmap(stored.data)
        self._step_schedule(schedule.ConfigMapSeen(stored))

    def _apply_configmap(self, data: Mapping[str, str]) -> None:
        for line in self.lines:
            line.monitor.apply_configmap(data)
        self.on_judged()

    def _note_publication(self, report: NodeReport) -> None:
        self.note_wellness()
        conditions: dict[int, Condition] = {}
        for line in report.lines:
            info = line.info
            found = dict.fromkeys(chip_sets.ids_of(line.product.all_chips))
            conditions |= dict.fromkeys(found, Condition.HEALTHY)
            conditions |= dict.fromkeys(info.unhealthy, Condition.UNHEALTHY)
            conditions |= dict.fromkeys(info.recovering, Condition.RECOVERING)
            network = Condition.NETWORK_UNHEALTHY
            conditions |= dict.fromkeys(info.network_unhealthy, network)
        raised = frozenset(
            (reason.chip, reason.code)
            for line in report.lines
            for reason in line.upgrades
        )
        publication = Publication(
            at_s=self.loop.time(),
            conditions=conditions,
            raised=raised,
            edits=self.edits,
            well_s=self.well_s,
        )
        if self.published:
            self._compare(self.published[-1], publication)
        self.published.append(publication)

    def _compare(self, before: Publication, after: Publication) -> None:
        """Note what is published as new although nothing was read since before.

        A look that is under way shows nothing yet, however long it takes.
        """
        if after.at_s - after.well_s <= PUBLISHED_S or after.well_s > before.at_s:
            return
        in_service = {Condition.HEALTHY, Condition.NETWORK_UNHEALTHY}
        changed = {
            chip
            for chip, condition in after.conditions.items()
            if condition is not before.conditions[chip]
            and (before.edits == after.edits or condition in in_service)
        }
        if changed or before.raised != after.raised:
            self._breach(
                f"published as new, and read {after.at_s - after.well_s:g} s ago: "
                f"{before} -> {after}"
            )

    # pods

    async def _serve(self, line: Line, made: NpuPod, count: int) -> Pod:
        """Have a pod served as the kubelet does.

        Raises:
            RefusedError: It is not served.
        """
        free = [
            name
            for name, is_healthy in occupancy.list_devices(line.store.ledger)
            if is_healthy and not any(name in pod.ids for pod in self.pods.values())
        ]
        if len(free) < count:
            raise RefusedError("the kubelet has not so many devices")
        asked = api_pb2.PreferredAllocationRequest(
            container_requests=[
                api_pb2.ContainerPreferredAllocationRequest(
                    available_deviceIDs=free, allocation_size=count
                )
            ]
        )
        preferred = await line.servicer.GetPreferredAllocation(asked, None)
        ids = list(preferred.container_responses[0].deviceIDs)
        ids += [name for name in free if name not in ids][: count - len(ids)]
        answer = await line.servicer.Allocate(
            api_pb2.AllocateRequest(
                container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)]
            ),
            cast("Any", _Context()),
        )
        chips = answer.container_responses[0].envs["chips"]
        return Pod(line, made, tuple(map(int, chips.split(","))), frozenset(ids))

    def add_pod(self, line: Line, chips: tuple[int, ...]) -> bool:
        """A pod comes that a scheduler has given these chips.

        Returns:
            Whether it runs.
        """
        self._pods_made += 1
        name, resource = f"pod-{self._pods_made}", line.product.resource
        text = ",".join(occupancy.device_id(line.product, chip) for chip in chips)
        meta = PodMeta(
            uid=f"uid-{name}",
            namespace="default",
            name=name,
            node=NODE,
            phase="Pending",
            admitted=True,
            annotations={resource: text, "predicate-time": str(self._pods_made)},
        )
        limits = {resource: str(len(chips))}
        made = npu_pod(meta, [RawContainer("main", limits=limits)], resource)
        assert made is not None
        line.store.apply(PodUpdated(made))
        try:
            pod = self.loop.run_until_complete(self._serve(line, made, len(chips)))
        except RefusedError:
            line.store.apply(PodDeleted(made.uid))
            return False
        for chip in pod.chips:
            self._check_free(line, chip, f"given to {name}")
        line.kubelet.shown[name] = pod.ids
        self.pods[name] = pod
        line.store.apply(PodUpdated(replace(made, phase="Running")))
        return True

    def add_process(self, pod: Pod, chip: int, *, is_in_pod: bool) -> None:
        """A process of a pod opens a chip."""
        pid = 10_000 + len(self.processes) + self._pods_made * 100
        self.processes[pid] = Process(
            pid=pid, chip=chip, uid=pod.made.uid, is_in_pod=is_in_pod
        )
        self._tell_processes()

    def end_processes(self, of: Callable[[Process], bool]) -> None:
        """Let processes end."""
        self.processes = {
            pid: each for pid, each in self.processes.items() if not of(each)
        }
        self._tell_processes()

    def _tell_processes(self) -> None:
        by_chip: dict[int, tuple[int, ...]] = {}
        for each in self.processes.values():
            by_chip[each.chip] = (*by_chip.get(each.chip, ()), each.pid)
        self.library.pids_of = by_chip

    def end_pod(self, name: str) -> None:
        """A pod is deleted; its processes may go on."""
        pod = self.pods.pop(name)
        del pod.line.kubelet.shown[name]
        self.ended.append(pod)
        pod.line.store.apply(PodDeleted(pod.made.uid))

    async def find_in_pods(
        self, uids: Collection[str]
    ) -> Mapping[str, tuple[int, ...]]:
        """Return {uid: pids} of those ended pods of which processes are left."""
        await asyncio.sleep(0)
        found: dict[str, tuple[int, ...]] = {}
        for each in self.processes.values():
            if each.uid in uids and each.is_in_pod:
                found[each.uid] = (*found.get(each.uid, ()), each.pid)
        return found

    def note_release(self, line: Line, chip: int) -> None:
        """Note a breach if a process is on a chip that is released."""
        self._check_free(line, chip, "released")

    def _check_free(self, line: Line, chip: int, what: str) -> None:
        living = {pod.made.uid for pod in self.pods.values()}
        on_chip = [
            each
            for each in self.processes.values()
            if each.chip == chip and each.uid not in living
        ]
        if not any(each.is_in_pod for each in on_chip) and not self._tells_pids(chip):
            return  # only the driver could have told it
        if on_chip:
            self._breach(
                f"chip {chip} of {line.product.key} {what} with {on_chip} on it"
            )

    def _tells_pids(self, chip: int) -> bool:
        """Whether the driver has told of the processes on a chip lately."""
        answer = self.library.truth.answers.get(chip)
        if answer is not None and answer.has_pids is None:
            return False
        return self.loop.time() - self.pids_s.get(chip, -inf) < UNREAD_S - UNKNOWN_S

    def _breach(self, text: str) -> None:
        self.breaches.append(f"at {self.loop.time():g} s: {text}")
