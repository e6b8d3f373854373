"""Tell the cluster what jobs have made of the leaf switches, in `tor-share-cm`.

Under `nslb-version` 2.0 only, as MindCluster's scheduler does: clusterd reads it, and
people. Written when it has changed, and no more often than people read.
"""

import asyncio
import logging
from typing import NoReturn, Protocol

from extender.cache.cache import Cache
from extender.planning.topology import Networks
from kube.errors import KubeError
from scheduler_core.topology.leaves import Version
from scheduler_core.wire import switches

log = logging.getLogger(__name__)

#: Between two looks at whether it has changed.
PAUSE_S = 5.0


class ShareApi(Protocol):
    """What sharing asks of the API server."""

    async def share(self, text: str) -> None:
        """Have the ConfigMap say this; make it if there is none."""


class Sharing:
    """Keeps the ConfigMap equal to what is. Source of truth: the cache."""

    def __init__(self, cache: Cache, networks: Networks, api: ShareApi) -> None:
        """Say nothing yet."""
        self._cache = cache
        self._networks = networks
        self._api = api
        self._version = -1
        #: what the ConfigMap says; None is not known
        self._said: str | None = None

    async def run(self) -> NoReturn:
        """Keep it so until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(PAUSE_S)

    async def step(self) -> None:
        """Write what has changed; what fails is tried again at the next step."""
        if self._version == self._cache.version:
            return
        version, text = self._cache.version, self.text()
        if text is not None and text != self._said:
            try:
                await self._api.share(text)
            except KubeError as error:
                log.warning("leaf switches not told", extra={"error": str(error)})
                return
            self._said = text
        self._version = version

    def text(self) -> str | None:
        """What it is to say; None: nothing."""
        network = self._networks.network(None)
        if network is None or network.version is not Version.TWO:
            return None
        return switches.render_share(network, self._jobs())

    def _jobs(self) -> dict[str, set[str]]:
        """{node: names of the jobs with pods there}."""
        found: dict[str, set[str]] = {}
        for uid, pod in self._cache.pods.items():
            if pod.terminal or not pod.node:
                continue
            gang = self._cache.gangs.of(uid)
            named = gang.job if gang is not None else pod.owner or pod.name
            found.setdefault(pod.node, set()).add(named.rpartition("/")[2])
        return found
