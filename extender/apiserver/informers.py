"""Informers of the extender: five watches whose changes become events of the cache."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from extender.apiserver import live_settings
from extender.apiserver.writers import PAUSE_S, watch_config_maps
from extender.cache import decode, events
from extender.cache.trim import PodTrimmer
from kube import objects
from kube.client import Client, object_path
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from scheduler_core.wire import deviceinfo, switches

#: A watch may be without a stream for so many seconds before its objects count as old.
_GAP_MOST_S = 1.0


class Informers:
    """Watches of nodes, pods and three kinds of ConfigMap.

    The ConfigMaps are the reports of the node agents (device ConfigMaps), the list of
    leaf switches, and the extender's settings. Each watch passes on its changes in the
    order in which the API server sent them.
    """

    def __init__(
        self,
        client: Client,
        *,
        learn: Callable[[events.Change], None],
        settings: Callable[[Change[objects.ConfigMap]], None],
        synced: Callable[[], None],
    ) -> None:
        """Create the five watches; `run` starts them.

        Args:
            client: An open client.
            learn: Called with each change of a node, a pod, an agent's report or the
                list of leaf switches.
            settings: Called with each change of the ConfigMap
                `ascend-extender-settings`.
            synced: Called each time a watch has received a complete list, except for
                the watch of leaf switches.
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
            transform=PodTrimmer().pod,
        )
        self.reports = watch_config_maps(client, labels=deviceinfo.LABELS)
        self.switches = watch_config_maps(client, name=switches.NAME)
        self.settings = watch_config_maps(client, name=live_settings.NAME)

    def name_unsynced(self) -> str:
        """Return the names of the watches that have received no complete list yet.

        The names are separated by commas; "" means none. The watch of leaf switches
        does not count.
        """
        watches = (self.nodes, self.pods, self.reports)
        unsynced = [_name_watches(not watch.synced for watch in watches)]
        unsynced.append("" if self.settings.synced else "settings")
        return ", ".join(filter(None, unsynced))

    def name_disconnected(self) -> str:
        """Return the names of the watches without an open stream for `_GAP_MOST_S` s.

        Only the watches of nodes, pods and device ConfigMaps count. The names are
        separated by commas; "" means none.
        """
        watches = (self.nodes, self.pods, self.reports)
        return _name_watches(watch.disconnected_s() > _GAP_MOST_S for watch in watches)

    def watches(self) -> Mapping[str, ListWatch[Any]]:
        """Return {name: watch} of all five watches; the names are labels in metrics."""
        return {
            "nodes": self.nodes,
            "pods": self.pods,
            "reports": self.reports,
            "switches": self.switches,
            "settings": self.settings,
        }

    async def run(self) -> None:
        """Run all five watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.run(self._on_node), name="nodes")
            group.create_task(self.pods.run(self._on_pod), name="pods")
            group.create_task(self.reports.run(self._on_report), name="reports")
            group.create_task(self.switches.run(self._on_switches), name="switches")
            group.create_task(self.settings.run(self._on_setting), name="settings")

    def _on_node(self, change: Change[objects.Node]) -> None:
        match change:
            case Upserted(obj=node):
                self._learn(decode.node_change(node))
            case Deleted(obj=node):
                self._learn(events.NodeUpdated(name=node.metadata.name))
            case Synced():
                self._synced()

    def _on_pod(self, change: Change[objects.Pod]) -> None:
        match change:
            case Upserted(obj=pod):
                self._learn(decode.pod_change(pod))
            case Deleted(obj=pod):
                self._learn(events.PodDeleted(uid=pod.metadata.uid))
            case Synced():
                self._synced()

    def _on_report(self, change: Change[objects.ConfigMap]) -> None:
        event: events.ReportUpdated | None = None
        match change:
            case Upserted(obj=report):
                event = decode.report_change(report)
            case Deleted(obj=report):
                event = decode.report_gone(report)
            case Synced():
                self._synced()
        if event is not None:
            self._learn(event)

    def _on_switches(self, change: Change[objects.ConfigMap]) -> None:
        match change:
            case Upserted(obj=switch_map):
                self._learn(decode.switches_change(switch_map))
            case Deleted():
                self._learn(decode.switches_change(None))
            case Synced():
                pass

    def _on_setting(self, change: Change[objects.ConfigMap]) -> None:
        self._take_settings(change)
        if isinstance(change, Synced):
            self._synced()


def _name_watches(chosen: Iterable[bool]) -> str:
    """Return the comma-separated names of the watches whose flag in `chosen` is True.

    Args:
        chosen: One flag each for nodes, pods and device ConfigMaps, in this order.
    """
    names = ("nodes", "pods", "device ConfigMaps")
    return ", ".join(
        name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen
    )
