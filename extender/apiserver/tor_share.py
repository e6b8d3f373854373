"""Writer of the ConfigMap `tor-share-cm`, which lists the jobs on each leaf switch.

Like MindCluster's scheduler, the extender writes it only if the setting `nslb-version`
(version of the leaf-switch rules) is 2.0. MindCluster's clusterd and people read the
ConfigMap. It is written when its text has changed, at most once in `PAUSE_S` seconds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from extender.cache.cache import Cache
from extender.planning.topology import NetworkTopology
from kube.errors import KubeError
from scheduler_core.topology.leaves import Version
from scheduler_core.wire import switches

log = logging.getLogger(__name__)

#: Seconds between two checks for a change.
PAUSE_S = 5.0


#: Writes a text into the ConfigMap `tor-share-cm`, which may not exist yet.
Share = Callable[[str], Awaitable[None]]


class TorShareWriter:
    """Writer of the ConfigMap `tor-share-cm`, which lists the jobs on each leaf switch.

    Jobs and leaf switches are read from the cache.
    """

    def __init__(self, cache: Cache, networks: NetworkTopology, share: Share) -> None:
        """Create a writer that has written nothing yet."""
        self._cache = cache
        self._networks = networks
        self._share = share
        self._version = (-1, -1)
        #: text of the ConfigMap; None: not known
        self._written_text: str | None = None

    async def run(self) -> NoReturn:
        """Run `step` every `PAUSE_S` until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(PAUSE_S)

    async def step(self) -> None:
        """Write `tor-share-cm` if its text has changed since the last successful write.

        A failed write is logged, and the next call tries again.
        """
        if self._version == self._cache.version:
            return
        version, text = self._cache.version, self.render_text()
        if text is not None and text != self._written_text:
            try:
                await self._share(text)
            except KubeError as error:
                log.warning(
                    "ConfigMap of leaf switches not written",
                    extra={"error": str(error)},
                )
                return
            self._written_text = text
        self._version = version

    def render_text(self) -> str | None:
        """Return the text for the ConfigMap `tor-share-cm` under `nslb-version` 2.0.

        Return None under another version, or if the cluster has no readable list of
        leaf switches. Also None if the switches are a single layer.
        """
        network = self._networks.network(None)
        if network is None or network.version is not Version.TWO:
            return None
        return switches.render_share(network, self._jobs())

    def _jobs(self) -> dict[str, set[str]]:
        """Return {node: names of the jobs with pods there}; ended pods do not count.

        A pod that is a job by itself is listed by its owner's name. Without an owner
        it is listed by its own name.
        """
        jobs_of_node: dict[str, set[str]] = {}
        for uid, pod in self._cache.pods.items():
            if pod.terminal or not pod.node:
                continue
            gang = self._cache.gang_of(uid)
            job_name = gang.job if gang is not None else pod.owner or pod.name
            jobs_of_node.setdefault(pod.node, set()).add(job_name.rpartition("/")[2])
        return jobs_of_node
