"""Keep ConfigMap, labels and annotations of the node equal to what is.

`agent.report.schedule` decides, this carries out: it follows both objects by a watch,
so that an edit or a deletion is noticed at once, and writes with back-off. The latest
picture wins; what came between two writes is never seen by anybody.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from agent.observe import log as keys
from agent.observe.metrics import Metrics
from agent.report import content as pictures
from agent.report import schedule
from agent.report.content import MANUAL_KEY, Picture
from kube import configmaps, nodes, resource_versions
from kube.client import Client
from kube.errors import KubeError, NotFoundError
from kube.objects import ConfigMap, Node, OwnerReference
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from scheduler_core.wire import deviceinfo
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Ceiling of the pause after failed writes: the cluster should not have to wait
#: long for the truth once its API server is back. Unit: seconds.
_LONGEST_PAUSE_S = 10.0
#: How long the farewell may take. Unit: seconds.
_FAREWELL_S = 1.0


class Reporter:
    """One node's reports. Protects what was said last and what stands there now."""

    def __init__(  # noqa: PLR0913  # each comes from somewhere else
        self,
        client: Client,
        *,
        node: str,
        writer: str,
        heartbeat_s: float,
        metrics: Metrics,
        wall_s: Callable[[], float],
        on_rival: Callable[[str], None],
        owner: Callable[[], Awaitable[OwnerReference | None]],
        on_seen: Callable[[Mapping[str, str] | None], None] = lambda _data: None,
        namespace: str = deviceinfo.CONFIGMAP_NAMESPACE,
    ) -> None:
        """Say nothing yet.

        Args:
            client: An open client.
            node: The node that is reported.
            writer: Names this process; unique in the cluster, not empty.
            heartbeat_s: Longest time between two writes. Unit: seconds.
            metrics: Where writes are counted.
            wall_s: Unix seconds now, for the readers of the ConfigMap.
            on_rival: Told in a sentence that somebody else writes the ConfigMap; ""
                when nobody does any more.
            owner: Says with whom the ConfigMap is to go; may raise KubeError.
            on_seen: Told the data of each version of the ConfigMap, in their order;
                None when there is none.
            namespace: Where the ConfigMap lives.
        """
        self._client = client
        self._node_name = node
        self._namespace = namespace
        self._name = deviceinfo.configmap_name(node)
        self._metrics = metrics
        self._wall_s = wall_s
        self._on_rival = on_rival
        self._owner = owner
        self._on_seen = on_seen
        #: Set once it is known what stands there: nothing is written before.
        self.looked = asyncio.Event()
        self._state = schedule.State(me=writer, heartbeat_s=heartbeat_s)
        self._events: asyncio.Queue[schedule.Event] = asyncio.Queue()
        self._backoff = Backoff(cap_s=_LONGEST_PAUSE_S)
        #: When the oldest change that is not published was told. Loop seconds.
        self._changed_at: float | None = None
        self._node: Node | None = None
        self._node_woken = asyncio.Event()
        only_ours = {"fieldSelector": f"metadata.name={self._name}"}
        #: Public for their metrics: restarts, last_event_s, synced.
        self.configmap_watch: ListWatch[ConfigMap] = ListWatch(
            client,
            f"/api/v1/namespaces/{namespace}/configmaps",
            ConfigMap,
            params=only_ours,
        )
        self.node_watch: ListWatch[Node] = ListWatch(
            client,
            "/api/v1/nodes",
            Node,
            params={"fieldSelector": f"metadata.name={node}"},
        )
        self._drawn: Picture | None = None

    def publish(self, picture: Picture) -> None:
        """Have this stand in the cluster from now on; cheap when nothing changed."""
        before, self._drawn = self._drawn, picture
        if picture == before:
            if picture.separated.read != before.separated.read:
                self._events.put_nowait(schedule.Drawn(picture))
            return
        if self._changed_at is None:
            self._changed_at = clock.loop_s()
        self._events.put_nowait(schedule.Drawn(picture))
        self._node_woken.set()

    def hush(self, *, is_silent: bool) -> None:
        """Say nothing from now on, because the node is another's; or speak again."""
        self._events.put_nowait(schedule.Hushed(is_silent))
        self._node_woken.set()

    @property
    def host_ip(self) -> str:
        """The node's InternalIP; empty while it is not known."""
        return self._node.internal_ip if self._node is not None else ""

    def problem(self) -> str | None:
        """Why the cluster does not know the truth about this node; None: it does."""
        if self._state.rival:
            return self._rivalry(self._state.rival)
        if self._state.published is None:
            return f"{self._name} is not written yet"
        return None

    def _rivalry(self, writer: str) -> str:
        return (
            f"{writer} writes the ConfigMap {self._namespace}/{self._name} besides "
            "this agent, which leaves it alone until the other one has been silent for "
            f"{schedule.SILENT_HEARTBEATS * self._state.heartbeat_s:g} s or the "
            "ConfigMap is deleted"
        )

    @property
    def _is_ours(self) -> bool:
        """Whether the node is ours to report, as far as is known."""
        return not self._state.rival and not self._state.is_silent

    async def run(self) -> None:
        """Report for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.configmap_watch.run(self._configmap_changed))
            tasks.create_task(self.node_watch.run(self._node_changed))
            tasks.create_task(self._keep_configmap())
            tasks.create_task(self._keep_node())

    async def farewell(self) -> None:
        """Take our name off the ConfigMap, so that a second agent need not wait."""
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
            log.info("no farewell", extra={keys.REASON: str(error)})

    # The ConfigMap

    def _configmap_changed(self, change: Change[ConfigMap]) -> None:
        match change:
            case Upserted(obj):
                self._on_seen(obj.data or {})
                self._events.put_nowait(schedule.Watched(seen(obj)))
            case Deleted():
                self._on_seen(None)
                self._events.put_nowait(schedule.Vanished())
            case Synced():
                if not self.looked.is_set() and not self.configmap_watch.known():
                    self._on_seen(None)
                self.looked.set()

    async def _keep_configmap(self) -> None:
        await self.looked.wait()
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
        """Take one event, and the outcomes of the writes that follow from it."""
        outcome: schedule.Event | None = event
        while outcome is not None:
            now = clock.loop_s()
            self._state, effects = schedule.step(self._state, outcome, now)
            outcome = None
            for effect in effects:
                if isinstance(effect, schedule.Write):
                    outcome = await self._write(effect)
                else:
                    self._tell(effect)

    async def _write(self, write: schedule.Write) -> schedule.Landed | schedule.Failed:
        now_s = int(self._wall_s())
        data = pictures.wanted(write.picture, update_time=now_s)
        manual = data.pop(MANUAL_KEY)
        try:
            owner = await self._owner()
            wished = {**data, MANUAL_KEY: manual}
            try:
                found = await self._patch(
                    wished if write.manual_at else data, write.manual_at, owner
                )
            except NotFoundError:
                found = await self._create(wished, owner)
        except KubeError as error:
            return self._failed(error)
        self._metrics.report_writes.labels("ok").inc()
        self._backoff.reset()
        self._published(write.picture)
        return schedule.Landed(write.picture, data, seen(found))

    async def _patch(
        self, data: dict[str, str], manual_at: int, owner: OwnerReference | None
    ) -> ConfigMap:
        return await configmaps.patch(
            self._client,
            namespace=self._namespace,
            name=self._name,
            data=data,
            labels=deviceinfo.LABELS,
            annotations={schedule.WRITER: self._state.me},
            resource_version=str(manual_at) if manual_at else None,
            owner=owner,
        )

    async def _create(
        self, data: dict[str, str], owner: OwnerReference | None
    ) -> ConfigMap:
        return await configmaps.create(
            self._client,
            namespace=self._namespace,
            name=self._name,
            labels=deviceinfo.LABELS,
            annotations={schedule.WRITER: self._state.me},
            data=data,
            owner=owner,
        )

    def _failed(self, error: KubeError) -> schedule.Failed:
        self._metrics.report_writes.labels("failed").inc()
        pause_s = self._backoff.next_s(error.retry_after_s)
        log.warning(
            "report not written",
            extra={keys.REASON: str(error), keys.PAUSE: round(pause_s, 1)},
        )
        return schedule.Failed(pause_s)

    def _published(self, picture: Picture) -> None:
        if self._changed_at is None or picture != self._drawn:
            return
        now = clock.loop_s()
        self._metrics.published_s.observe(now - self._changed_at)
        self._changed_at = None

    def _tell(
        self,
        effect: schedule.Restoring | schedule.RivalAppeared | schedule.RivalVanished,
    ) -> None:
        match effect:
            case schedule.Restoring(what):
                self._metrics.report_restored.inc()
                log.warning("report was changed, restoring", extra={keys.REASON: what})
            case schedule.RivalAppeared(writer):
                self._on_rival(self._rivalry(writer))
            case schedule.RivalVanished():
                self._on_rival("")
                self._node_woken.set()

    # The Node

    def _node_changed(self, change: Change[Node]) -> None:
        match change:
            case Upserted(obj):
                self._node = obj
            case Deleted():
                self._node = None
            case Synced():
                return
        self._node_woken.set()

    async def _keep_node(self) -> None:
        backoff = Backoff(cap_s=_LONGEST_PAUSE_S)
        while True:
            await self._node_woken.wait()
            self._node_woken.clear()
            try:
                await self._mark_node()
                backoff.reset()
            except KubeError as error:
                pause_s = backoff.next_s(error.retry_after_s)
                log.warning(
                    "node not marked",
                    extra={keys.REASON: str(error), keys.PAUSE: round(pause_s, 1)},
                )
                await asyncio.sleep(pause_s)
                self._node_woken.set()

    async def _mark_node(self) -> None:
        """Set what the Node object lacks, if it is there and nobody else does."""
        if self._node is None or self._drawn is None or not self._is_ours:
            return
        patch = pictures.node_patch(self._node, pictures.node_marks(self._drawn))
        if patch:
            self._node = await nodes.patch(
                self._client,
                self._node_name,
                labels=patch.labels,
                annotations=patch.annotations,
            )


def seen(config: ConfigMap) -> schedule.Seen:
    """A ConfigMap as `agent.report.schedule` looks at it."""
    return schedule.Seen(
        data=config.data or {},
        labels=config.metadata.labels or {},
        writer=(config.metadata.annotations or {}).get(schedule.WRITER, ""),
        # A number by the API's contract; whatever is not one is older than all.
        version=resource_versions.number(config.metadata.resource_version) or 0,
    )
