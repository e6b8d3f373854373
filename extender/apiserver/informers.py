"""What the extender follows of the cluster, and brings to its cache."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from extender.apiserver import live_settings
from extender.apiserver.writers import PAUSE_S, reports
from extender.cache import decode, events
from extender.cache.trim import Kept
from kube import objects
from kube.client import Client, object_path
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from scheduler_core.wire import deviceinfo, switches

#: How long a watch may be between two streams; then what it showed is old.
_LOST_S = 1.0


class Feed:
    """Five watches. Protects that the cache learns of all that they show, in order."""

    def __init__(
        self,
        client: Client,
        *,
        learn: Callable[[events.Change], None],
        settings: Callable[[Change[objects.ConfigMap]], None],
        synced: Callable[[], None],
    ) -> None:
        """Follow nothing yet.

        Args:
            client: An open client.
            learn: Gets each change of the cluster.
            settings: Gets each change of the ConfigMap of settings.
            synced: Told when a watch has brought a whole list.
        """
        self._learn = learn
        self._take_settings = settings
        self._synced = synced
        self.nodes = ListWatch(
            client, object_path("nodes", ""), objects.Node, pause_s=PAUSE_S
        )
        self.pods = ListWatch(
            client,
            object_path("pods", ""),
            objects.Pod,
            pause_s=PAUSE_S,
            keep=Kept().pod,
        )
        self.reports = reports(client, labels=deviceinfo.LABELS)
        self.switches = reports(client, name=switches.NAME)
        self.settings = reports(client, name=live_settings.NAME)

    def missing(self) -> str:
        """Which watches have not brought a whole list yet; "" if all have."""
        watches = (self.nodes, self.pods, self.reports)
        missing = [_named(not watch.synced for watch in watches)]
        missing.append("" if self.settings.synced else "settings")
        return ", ".join(filter(None, missing))

    def lost(self) -> str:
        """Which watches have been broken for too long; "" if none has."""
        watches = (self.nodes, self.pods, self.reports)
        return _named(watch.lost_s() > _LOST_S for watch in watches)

    def watches(self) -> Mapping[str, ListWatch[Any]]:
        """All of them, by names from a closed set."""
        return {
            "nodes": self.nodes,
            "pods": self.pods,
            "reports": self.reports,
            "switches": self.switches,
            "settings": self.settings,
        }

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.run(self._node), name="nodes")
            group.create_task(self.pods.run(self._pod), name="pods")
            group.create_task(self.reports.run(self._report), name="reports")
            group.create_task(self.switches.run(self._leaves), name="switches")
            group.create_task(self.settings.run(self._setting), name="settings")

    def _node(self, change: Change[objects.Node]) -> None:
        match change:
            case Upserted(obj=node):
                self._learn(decode.node_change(node))
            case Deleted(obj=node):
                self._learn(events.NodeSeen(name=node.metadata.name))
            case Synced():
                self._synced()

    def _pod(self, change: Change[objects.Pod]) -> None:
        match change:
            case Upserted(obj=pod):
                self._learn(decode.pod_change(pod))
            case Deleted(obj=pod):
                self._learn(events.PodGone(uid=pod.metadata.uid))
            case Synced():
                self._synced()

    def _report(self, change: Change[objects.ConfigMap]) -> None:
        found: events.ReportSeen | None = None
        match change:
            case Upserted(obj=report):
                found = decode.report_change(report)
            case Deleted(obj=report):
                found = decode.report_gone(report)
            case Synced():
                self._synced()
        if found is not None:
            self._learn(found)

    def _leaves(self, change: Change[objects.ConfigMap]) -> None:
        match change:
            case Upserted(obj=found):
                self._learn(decode.switches_change(found))
            case Deleted():
                self._learn(decode.switches_change(None))
            case Synced():
                pass

    def _setting(self, change: Change[objects.ConfigMap]) -> None:
        self._take_settings(change)
        if isinstance(change, Synced):
            self._synced()


def _named(which: Iterable[bool]) -> str:
    """Name those of the three watches on which all decisions rest."""
    names = ("nodes", "pods", "device ConfigMaps")
    return ", ".join(name for name, is_it in zip(names, which, strict=True) if is_it)
