"""Informers of the extender: five watches whose changes become events of the cache."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from extender.apiserver import live_settings
from extender.cache import decode, events
from extender.cache.trim import PodTrimmer
from kube import objects
from kube.client import Client, object_path
from kube.pager import HasMeta
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from scheduler_core.wire import deviceinfo, switches

T = TypeVar("T", bound=HasMeta)

#: Longest pause in seconds before a watch is retried. It is short because there are one
#: or two extenders, not a fleet, and pods wait for them.
_PAUSE_S = 5.0
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
            client, object_path("nodes", ""), objects.Node, pause_s=_PAUSE_S
        )
        self.pods = ListWatch(
            client,
            object_path("pods", ""),
            objects.Pod,
            pause_s=_PAUSE_S,
            transform=PodTrimmer().pod,
        )
        labels = ",".join(f"{key}={value}" for key, value in deviceinfo.LABELS.items())
        self.reports = _config_maps(client, {"labelSelector": labels})
        self.switches = _config_maps(client, _named(switches.NAME))
        self.settings = _config_maps(client, _named(live_settings.NAME))

    def name_unsynced(self) -> str:
        """Return the names of the watches that have received no complete list yet.

        The names are separated by commas; "" means none. The watch of leaf switches
        does not count.
        """
        required = {**self._of_chips(), "settings": self.settings}
        return ", ".join(name for name, watch in required.items() if not watch.synced)

    def name_disconnected(self) -> str:
        """Return the names of the watches without an open stream for `_GAP_MOST_S` s.

        Only the watches of nodes, pods and device ConfigMaps count. The names are
        separated by commas; "" means none.
        """
        return ", ".join(
            name
            for name, watch in self._of_chips().items()
            if watch.disconnected_s() > _GAP_MOST_S
        )

    def _of_chips(self) -> dict[str, ListWatch[Any]]:
        """Return {name for people: watch} of the watches that show free chips."""
        return {
            "nodes": self.nodes,
            "pods": self.pods,
            "device ConfigMaps": self.reports,
        }

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
        nodes = self._follow(decode.node_change, _node_gone)
        pods = self._follow(decode.pod_change, _pod_gone)
        reports = self._follow(
            decode.report_change, partial(decode.report_change, is_deleted=True)
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.run(nodes), name="nodes")
            group.create_task(self.pods.run(pods), name="pods")
            group.create_task(self.reports.run(reports), name="reports")
            group.create_task(self.switches.run(self._on_switches), name="switches")
            group.create_task(self.settings.run(self._on_setting), name="settings")

    def _follow(
        self,
        upserted: Callable[[T], events.Change | None],
        deleted: Callable[[T], events.Change | None],
    ) -> Callable[[Change[T]], None]:
        """Return a function that passes on the changes of a watch as events.

        Args:
            upserted: Returns the event of a new or changed object; None for none.
            deleted: Returns the event of a deleted object; None for none.
        """

        def deliver(change: Change[T]) -> None:
            event: events.Change | None = None
            match change:
                case Upserted(obj=obj):
                    event = upserted(obj)
                case Deleted(obj=obj):
                    event = deleted(obj)
                case Synced():
                    self._synced()
            if event is not None:
                self._learn(event)

        return deliver

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


def _named(name: str) -> dict[str, str]:
    return {"fieldSelector": f"metadata.name={name}"}


def _config_maps(
    client: Client, params: Mapping[str, str]
) -> ListWatch[objects.ConfigMap]:
    """Return a list-watch of the ConfigMaps in `kube-system` that `params` select."""
    return ListWatch(
        client,
        object_path("configmaps", "", namespace=deviceinfo.CONFIGMAP_NAMESPACE),
        objects.ConfigMap,
        params=params,
        pause_s=_PAUSE_S,
    )


def _node_gone(node: objects.Node) -> events.Change:
    return events.NodeUpdated(name=node.metadata.name)


def _pod_gone(pod: objects.Pod) -> events.Change:
    return events.PodDeleted(uid=pod.metadata.uid)
