"""Write the node report into the node's ConfigMap and onto its Node object.

The ConfigMap is `mindx-dl-deviceinfo-<node>`; `agent.report.schedule` decides when it
is written. The reporter watches both objects, so that it sees an edit or a deletion at
once. It waits longer after each failed write. A report is never written after a newer
one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any

from agent.observe.metrics import Metrics
from agent.observe.problems import REFUSED, Need, Subject
from agent.report import content, schedule
from agent.report.content import MANUAL_KEY, NodeReport
from kube import configmaps, nodes, resource_versions
from kube.client import Client
from kube.errors import ApiError, KubeError, NotFoundError
from kube.objects import ConfigMap, ManagedNode, OwnerReference
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from kube.write_history import WriteHistory
from scheduler_core.wire import deviceinfo
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Longest pause after failed writes, so that ConfigMap, Node and pods' annotations are
#: right soon after the API server is back. One that it asks for may be longer. Unit:
#: seconds.
LONGEST_PAUSE_S = 10.0
#: How long the last patch may take when the agent stops. Unit: seconds.
_FAREWELL_S = 1.0


class Reporter:
    """Writer of a node's ConfigMap `mindx-dl-deviceinfo-<node>` and of its Node object.

    On the Node it writes the labels and annotations that describe the chips.
    """

    def __init__(  # noqa: PLR0913  # each comes from somewhere else
        self,
        client: Client,
        *,
        node: str,
        writer: str,
        heartbeat_s: float,
        metrics: Metrics,
        wall_s: Callable[[], float],
        tell: Callable[[Subject, str], None],
        tell_need: Callable[[Need, KubeError | None], None],
        owner: Callable[[], Awaitable[OwnerReference | None]],
        on_configmap: Callable[[Mapping[str, str] | None], None] = lambda _data: None,
        on_host_ip: Callable[[], None] = lambda: None,
        namespace: str = deviceinfo.CONFIGMAP_NAMESPACE,
    ) -> None:
        """Construct without a request to the API server.

        "The ConfigMap" is `mindx-dl-deviceinfo-<node>`.

        Args:
            client: An open client; the caller closes it.
            writer: Name of this process, which it writes into an annotation of the
                ConfigMap; unique in the cluster, not empty.
            heartbeat_s: Longest time between two writes. Unit: seconds.
            wall_s: Returns Unix seconds, for the ConfigMap's update time.
            tell: Called with a sentence, or "" for no problem, when another program
                writes the ConfigMap or has gone (RIVAL_WRITER), at each write that the
                API server refuses or takes (REPORT), at each look at the Node (LABEL).
            tell_need: Called with the error of each other write that fails, and with
                None after a write: of the ConfigMap (REPORT), of the Node (MARKS).
            owner: Returns the ConfigMap's owner reference, or None for no owner; may
                raise KubeError.
            on_configmap: Called with the data of each version of the ConfigMap that the
                watch shows, oldest first; called with None when there is no ConfigMap.
            on_host_ip: Called when `host_ip` has changed.
        """
        self._client = client
        self._node_name = node
        self._namespace = namespace
        self._name = deviceinfo.configmap_name(node)
        self._metrics = metrics
        self._wall_s = wall_s
        self._tell = tell
        self._tell_need = tell_need
        self._owner = owner
        self._on_configmap = on_configmap
        self._on_host_ip = on_host_ip
        self._host_ip = ""
        #: why the last write failed, "" if it did not
        self._failure = ""
        #: Set once the ConfigMap was read or found absent; nothing is written before.
        self.configmap_known = asyncio.Event()
        self._state = schedule.State(me=writer, heartbeat_s=heartbeat_s)
        self._events: asyncio.Queue[schedule.Event] = asyncio.Queue()
        self._backoff = Backoff(cap_s=LONGEST_PAUSE_S)
        #: Loop time in seconds of the oldest change that is not written yet.
        self._changed_at: float | None = None
        self._node: ManagedNode | None = None
        self._node_history = WriteHistory(f"node {node}")
        self._node_woken = asyncio.Event()
        only_ours = {"fieldSelector": f"metadata.name={self._name}"}
        #: Public for their metrics: restarts, last_event_s, synced.
        self.configmap_watch: ListWatch[ConfigMap] = ListWatch(
            client,
            f"/api/v1/namespaces/{namespace}/configmaps",
            ConfigMap,
            params=only_ours,
        )
        self.node_watch: ListWatch[ManagedNode] = ListWatch(
            client,
            "/api/v1/nodes",
            ManagedNode,
            params={"fieldSelector": f"metadata.name={node}"},
        )
        self._report: NodeReport | None = None

    def publish(self, report: NodeReport) -> None:
        """Set the report to write into `mindx-dl-deviceinfo-<node>` and onto the Node.

        `run` writes it. Cheap if the report equals that of the previous call.
        """
        before, self._report = self._report, report
        if report == before:
            if report.separated.read != before.separated.read:
                self._events.put_nowait(schedule.ReportChanged(report))
            return
        if self._changed_at is None:
            self._changed_at = clock.loop_s()
        self._events.put_nowait(schedule.ReportChanged(report))
        self._node_woken.set()

    def set_silent(self, *, is_silent: bool) -> None:
        """Forbid or allow writes to the node's ConfigMap and Node object.

        Args:
            is_silent: True forbids them, because another device plugin serves the same
                resource on this node or may do so.
        """
        self._events.put_nowait(schedule.SilenceChanged(is_silent))
        self._node_woken.set()

    @property
    def host_ip(self) -> str:
        """The node's last known InternalIP; "" while none is known."""
        return self._host_ip

    def problem(self) -> str | None:
        """Return why this agent has not written the ConfigMap yet; None if it has."""
        if self._state.published is None:
            failure = f": {self._failure}" if self._failure else ""
            return f"{self._name} is not written yet{failure}"
        return None

    def _rival_text(self, writer: str) -> str:
        return (
            f"{writer} writes the ConfigMap {self._namespace}/{self._name} besides "
            "this agent, which leaves it alone until the other one has been silent for "
            f"{schedule.SILENT_HEARTBEATS * self._state.heartbeat_s:g} s or the "
            "ConfigMap is deleted"
        )

    @property
    def _is_ours(self) -> bool:
        """Whether this agent may write the node's ConfigMap and Node object.

        False while another program writes the ConfigMap or `set_silent` forbids writes.
        """
        return not self._state.rival and not self._state.is_silent

    async def run(self) -> None:
        """Watch and write the node's ConfigMap and Node object until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.configmap_watch.run(self._configmap_changed))
            tasks.create_task(self.node_watch.run(self._node_changed))
            tasks.create_task(self._keep_configmap())
            tasks.create_task(self._keep_node())

    async def release_configmap(self) -> None:
        """Remove this agent's name as writer from `mindx-dl-deviceinfo-<node>`.

        An earlier agent that stopped writing because of this one can then write again
        at once. Otherwise that agent would wait for SILENT_HEARTBEATS heartbeats. A
        failure is only logged.
        """
        if not self._is_ours or self._state.published is None:
            return
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await configmaps.patch(
                    self._client,
                    namespace=self._namespace,
                    name=self._name,
                    data={},
                    annotations={schedule.WRITER: None},
                )
        except (KubeError, TimeoutError) as error:
            log.info("no farewell", extra={"reason": str(error)})

    # The ConfigMap

    def _configmap_changed(self, change: Change[ConfigMap]) -> None:
        match change:
            case Upserted(obj):
                self._on_configmap(obj.data or {})
                self._events.put_nowait(schedule.ConfigMapSeen(stored_configmap(obj)))
            case Deleted():
                self._on_configmap(None)
                self._events.put_nowait(schedule.ConfigMapDeleted())
            case Synced():
                if (
                    not self.configmap_known.is_set()
                    and not self.configmap_watch.objects()
                ):
                    self._on_configmap(None)
                self.configmap_known.set()

    async def _keep_configmap(self) -> None:
        await self.configmap_known.wait()
        while True:
            await self._handle(await self._next_event())

    async def _next_event(self) -> schedule.Event:
        due_at = schedule.due_at(self._state)
        try:
            async with asyncio.timeout_at(due_at):
                return await self._events.get()
        except TimeoutError:
            return schedule.Tick()

    async def _handle(self, event: schedule.Event) -> None:
        """Apply an event to the schedule of writes, and carry out the effects.

        If an effect is a write, the write's result is applied as the next event.
        """
        outcome: schedule.Event | None = event
        while outcome is not None:
            now = clock.loop_s()
            self._state, effects = schedule.step(self._state, outcome, now)
            outcome = None
            for effect in effects:
                if isinstance(effect, schedule.Write):
                    outcome = await self._write(effect)
                else:
                    self._announce(effect)

    async def _write(
        self, write: schedule.Write
    ) -> schedule.WriteSucceeded | schedule.WriteFailed:
        if len(self._node_name) > deviceinfo.LONGEST_NODE_NAME:
            return self._refused(_name_too_long(self._node_name), inf)
        now_s = int(self._wall_s())
        full_data = content.configmap_data(write.report, update_time=now_s)
        data = {key: text for key, text in full_data.items() if key != MANUAL_KEY}
        try:
            target: dict[str, Any] = {
                "namespace": self._namespace,
                "name": self._name,
                "labels": deviceinfo.LABELS,
                "annotations": {schedule.WRITER: self._state.me},
                "owner": await self._owner(),
            }
            try:
                written = await configmaps.patch(
                    self._client,
                    data=full_data if write.manual_at else data,
                    resource_version=str(write.manual_at) if write.manual_at else None,
                    **target,
                )
            except NotFoundError:
                written = await configmaps.create(
                    self._client, data=full_data, **target
                )
        except KubeError as error:
            return self._failed(error)
        self._metrics.report_writes.labels("written").inc()
        self._backoff.reset()
        self._failure = ""
        self._tell(Subject.REPORT, "")
        self._tell_need(Need.REPORT, None)
        self._observe_delay(write.report)
        return schedule.WriteSucceeded(write.report, data, stored_configmap(written))

    def _failed(self, error: KubeError) -> schedule.WriteFailed:
        self._metrics.report_writes.labels("failed").inc()
        pause_s = _pause_after(error, self._backoff, "report not written")
        if isinstance(error, ApiError) and error.status in REFUSED:
            return self._refused(str(error), pause_s)
        self._tell_need(Need.REPORT, error)
        self._failure = str(error)
        return schedule.WriteFailed(pause_s)

    def _refused(self, failure: str, pause_s: float) -> schedule.WriteFailed:
        """Tell that the ConfigMap cannot be written as things stand.

        Args:
            failure: What was expected and found, and what to do.
            pause_s: Pause until the next write; infinite if none can help.
        """
        self._failure = failure
        text = f"{self._namespace}/{self._name} is not written: {failure}"
        self._tell(Subject.REPORT, text)
        self._tell_need(Need.REPORT, None)
        return schedule.WriteFailed(pause_s)

    def _observe_delay(self, report: NodeReport) -> None:
        if self._changed_at is None or report != self._report:
            return
        now = clock.loop_s()
        self._metrics.published_s.observe(now - self._changed_at)
        self._changed_at = None

    def _announce(self, effect: schedule.Restoring | schedule.RivalChanged) -> None:
        match effect:
            case schedule.Restoring(what):
                self._metrics.report_restored.inc()
                log.warning("report was changed, restoring", extra={"reason": what})
            case schedule.RivalChanged(writer):
                text = self._rival_text(writer) if writer else ""
                self._tell(Subject.RIVAL_WRITER, text)
                self._node_woken.set()

    # The Node

    def _node_changed(self, change: Change[ManagedNode]) -> None:
        match change:
            case Upserted(obj):
                self._learn_host_ip(obj)
                self._node = obj
            case Deleted():
                self._node = None
            case Synced():
                return
        self._node_woken.set()

    def _learn_host_ip(self, node: ManagedNode) -> None:
        """Set `host_ip` to the Node's InternalIP if the Node has one.

        A Node without one is no news about the machine: a kubelet that registers its
        Node again, or a cloud's controller, may add the address later.
        """
        if node.internal_ip not in ("", self._host_ip):
            self._host_ip = node.internal_ip
            self._on_host_ip()
        if not self._host_ip and self._node is None:  # once for each Node
            log.warning("node has no InternalIP yet", extra={"node": self._node_name})

    async def _keep_node(self) -> None:
        backoff = Backoff(cap_s=LONGEST_PAUSE_S)
        while True:
            await self._node_woken.wait()
            self._node_woken.clear()
            try:
                pause_s = await self._mark_node()
                self._tell_need(Need.MARKS, None)
                await asyncio.sleep(pause_s)
                backoff.reset()
            except KubeError as error:
                self._tell_need(Need.MARKS, error)
                await asyncio.sleep(_pause_after(error, backoff, "node not marked"))
                self._node_woken.set()

    async def _mark_node(self) -> float:
        """Patch the Node if its labels or annotations differ from the latest report.

        Returns:
            Pause until the next patch, above 0 if this one does not last. Unit:
            seconds.

        Raises:
            KubeError: The Node is not patched; try again.
        """
        if self._node is None or self._report is None or not self._is_ours:
            return 0.0
        manager = self._client.field_manager
        problem = content.label_problem(self._node, self._report, manager=manager)
        self._tell(Subject.LABEL, problem)
        marks, pause_s = content.node_marks(self._report), 0.0
        labels, annotations = content.node_patch(self._node, marks)
        if labels or annotations:
            pause_s = await self._patch_node(labels, annotations)
        # a request of its own: admission policies of an earlier release refuse it
        own_labels = content.own_labels_patch(self._node, marks, manager=manager)
        if own_labels:
            version = self._node.metadata.resource_version
            pause_s += await self._patch_node(own_labels, {}, resource_version=version)
        return pause_s

    async def _patch_node(
        self,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str],
        *,
        resource_version: str = "",
    ) -> float:
        """Patch the Node; return the pause after that in seconds.

        Args:
            labels: A value None removes the label.
            annotations: To set.
            resource_version: Only over this version of the Node; "" over any.
        """
        self._node = await nodes.patch(
            self._client,
            self._node_name,
            labels=labels,
            annotations=annotations,
            resource_version=resource_version,
        )
        sent = {key: text for key, text in labels.items() if text is not None}
        return self._node_history.add(
            {**annotations, **sent}, {**self._node.annotations, **self._node.labels}
        )


def _name_too_long(node: str) -> str:
    """Return why no ConfigMap can have the name of a node."""
    return (
        f"expected a node name of at most {deviceinfo.LONGEST_NODE_NAME} characters, "
        f"because the name of a ConfigMap has at most 253, found one of {len(node)}. "
        "Join the node to the cluster under a shorter name"
    )


def _pause_after(error: KubeError, backoff: Backoff, text: str) -> float:
    """Log a failed request with `text`; return the pause after it in seconds."""
    pause_s = backoff.next_s(error.retry_after_s)
    extra = {"reason": str(error), "pause_s": round(pause_s, 1)}
    log.warning(text, extra=extra)
    return pause_s


def stored_configmap(config: ConfigMap) -> schedule.StoredConfigMap:
    """Return those parts of a ConfigMap that `agent.report.schedule` needs."""
    return schedule.StoredConfigMap(
        data=config.data or {},
        labels=config.metadata.labels or {},
        writer=(config.metadata.annotations or {}).get(schedule.WRITER, ""),
        # A number by the API's contract; any other text counts as the oldest.
        version=resource_versions.parse(config.metadata.resource_version) or 0,
    )
