"""Watch the ConfigMap `mindx-dl-fault-config`, and apply each version that is usable.

People write the ConfigMap. If a version is wrong, the configuration that was in force
before stays so. An event on the Node then names the wrong place in the ConfigMap, the
value that was read there, and the value that was expected. Without the ConfigMap the
built-in fault configuration applies.
"""

import logging
from collections.abc import Callable
from typing import NoReturn

from agent.health import fault_config, rules
from agent.health.rules import FaultConfig
from kube.client import Client
from kube.objects import ConfigMap
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from scheduler_core.documents.reader import DocumentError

log = logging.getLogger(__name__)

#: The ConfigMap seldom changes, so a long watch saves requests. Unit: seconds.
_LONGEST_WATCH_S = 3600


class FaultConfigWatch:
    """Watch of the cluster's fault configuration, ConfigMap `mindx-dl-fault-config`.

    The fault configuration says how serious each fault is.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        apply: Callable[[FaultConfig], None],
        on_problem: Callable[[str], None],
    ) -> None:
        """Create the watch of `mindx-dl-fault-config` without starting it.

        Args:
            client: Open client, owned by the caller.
            namespace: Namespace of this ConfigMap.
            apply: Called with each usable fault configuration. Called with the built-in
                one when the ConfigMap is deleted.
            on_problem: Called with a sentence why a version of this ConfigMap cannot be
                used. Called with "" when a version can be used, or the ConfigMap is
                deleted.
        """
        self._apply = apply
        self._on_problem = on_problem
        #: Public: the metrics show its restarts and its age.
        self.watch: ListWatch[ConfigMap] = ListWatch(
            client,
            f"/api/v1/namespaces/{namespace}/configmaps",
            ConfigMap,
            params={"fieldSelector": f"metadata.name={fault_config.NAME}"},
            longest_s=_LONGEST_WATCH_S,
        )

    async def run(self) -> NoReturn:
        """Watch the ConfigMap `mindx-dl-fault-config` until this task is cancelled.

        After the ConfigMap is deleted, the built-in configuration is applied.
        """
        await self.watch.run(self._changed)

    def _changed(self, change: Change[ConfigMap]) -> None:
        match change:
            case Upserted(obj):
                self._apply_configmap(obj)
            case Deleted():
                self._apply(rules.DEFAULT)
                self._on_problem("")
                log.info("fault configuration deleted, the built-in one holds")
            case Synced():
                pass

    def _apply_configmap(self, configmap: ConfigMap) -> None:
        version = {"version": configmap.metadata.resource_version}
        try:
            config = fault_config.parse(configmap.data or {})
        except DocumentError as error:
            name = f"{configmap.metadata.namespace}/{fault_config.NAME}"
            self._on_problem(
                f"the fault configuration {name} cannot be used and the last one "
                f"that could stays in force: {'; '.join(error.problems)}"
            )
            return
        self._apply(config)
        self._on_problem("")
        log.info("fault configuration applied", extra=version)
