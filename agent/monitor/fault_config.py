"""Follow the cluster's fault configuration, and keep to the last that is usable.

The ConfigMap `mindx-dl-fault-config` is written by people. One that is wrong changes
nothing: what was right before stays in force, and the node's event says what was
expected, what was found, and where. Without the ConfigMap the built-in one is right.
"""

import logging
from collections.abc import Callable
from typing import NoReturn

from agent.health import fault_config, rules
from agent.health.fault_config import FaultConfigError
from agent.health.rules import FaultConfig
from agent.observe import log as keys
from kube.client import Client
from kube.objects import ConfigMap
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted

log = logging.getLogger(__name__)

#: It is quiet for days: a watch of half an hour asks for little. Unit: seconds.
_LONGEST_WATCH_S = 3600


class FaultWatch:
    """Protects what was said of the configuration, so that it is said once."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        apply: Callable[[FaultConfig], None],
        complain: Callable[[str], None],
    ) -> None:
        """Follow nothing yet; the built-in configuration holds.

        Args:
            client: An open client.
            namespace: Where the ConfigMap is.
            apply: Told each configuration from which on it holds.
            complain: Told in a sentence why one cannot be used; "" when one can.
        """
        self._apply = apply
        self._complain = complain
        #: Public for its metrics.
        self.watch: ListWatch[ConfigMap] = ListWatch(
            client,
            f"/api/v1/namespaces/{namespace}/configmaps",
            ConfigMap,
            params={"fieldSelector": f"metadata.name={fault_config.NAME}"},
            longest_s=_LONGEST_WATCH_S,
        )

    async def run(self) -> NoReturn:
        """Follow for ever."""
        await self.watch.run(self._changed)

    def _changed(self, change: Change[ConfigMap]) -> None:
        match change:
            case Upserted(obj):
                self._take(obj)
            case Deleted():
                self._apply(rules.DEFAULT)
                self._complain("")
                log.info("fault configuration deleted, the built-in one holds")
            case Synced():
                pass

    def _take(self, found: ConfigMap) -> None:
        version = {keys.VERSION: found.metadata.resource_version}
        try:
            config = fault_config.parse(found.data or {})
        except FaultConfigError as error:
            where = f"{found.metadata.namespace}/{fault_config.NAME}"
            self._complain(
                f"the fault configuration {where} cannot be used and the last one "
                f"that could stays in force: {error}"
            )
            return
        self._apply(config)
        self._complain("")
        log.info("fault configuration applied", extra=version)
