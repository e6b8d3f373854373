"""Watch the ConfigMap `mindx-dl-fault-config`, and apply what is usable of it.

People write the ConfigMap. If a part of a version is wrong, the rest is applied. An
event on the Node then names the wrong places in the ConfigMap, the values that were
read there, and the values that were expected. Without the ConfigMap the built-in fault
configuration applies.
"""

import logging
from collections.abc import Callable
from typing import NoReturn

from agent.health import fault_config, rules
from agent.health.fault_config import Parsed
from agent.health.rules import FaultConfig
from kube.client import Client
from kube.objects import ConfigMap
from kube.reflector import Change, ListWatch, Synced, Upserted

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
            apply: Called with each fault configuration, as far as it is usable. Called
                with the built-in one when the ConfigMap is deleted.
            on_problem: Called with a sentence that names the parts of a version that
                cannot be used. Called with "" when all of a version can be used, or the
                ConfigMap is deleted.
        """
        self._namespace = namespace
        self._apply = apply
        self._on_problem = on_problem
        self._config = rules.DEFAULT
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
        if isinstance(change, Synced):
            return
        parsed = Parsed(config=rules.DEFAULT)
        if isinstance(change, Upserted):
            parsed = fault_config.parse(change.obj.data or {}, self._config)
            extra = {
                "version": change.obj.metadata.resource_version,
                "problems": len(parsed.problems),
            }
            log.info("fault configuration applied", extra=extra)
        else:
            log.info("fault configuration deleted, the built-in one holds")
        name = f"{self._namespace}/{fault_config.NAME}"
        problem = (
            f"of the fault configuration {name} all is used but what cannot be "
            f"understood: {'; '.join(parsed.problems)}"
        )
        self._config = parsed.config
        self._apply(parsed.config)
        self._on_problem(problem if parsed.problems else "")
