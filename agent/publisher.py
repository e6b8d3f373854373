"""Write what the ledger says onto the pods, and do not rest before it stands.

An API server that is slow or down delays what people read, and nothing else:
whoever waits for chips is served from the ledger.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from agent.claims import publishing
from agent.claims.events import PodSeen
from agent.claims.publishing import Patch
from agent.current import Current
from scheduler_core.wire.pods import NpuPod
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Patches sent at once.
AT_ONCE = 8


class PatchError(Exception):
    """A patch did not land; try again later."""


#: Sends one patch; returns the pod as it is then, None if that pod has gone;
#: raises PatchError.
SendPatch = Callable[[Patch], Awaitable[NpuPod | None]]


class Publisher:
    """Protects which pods were found to have gone before the watch said so."""

    def __init__(
        self, current: Current, *, send: SendPatch, host_ip: Callable[[], str]
    ) -> None:
        """Do nothing yet.

        Args:
            current: The ledger.
            send: Sends one patch to the API server.
            host_ip: The node's InternalIP, as far as it is known.
        """
        self._current = current
        self._send = send
        self._host_ip = host_ip
        self._gone: frozenset[str] = frozenset()

    async def run(self) -> NoReturn:
        """Publish until cancelled."""
        backoff = Backoff()
        while True:
            version = self._current.version
            try:
                while await self.run_once():
                    pass
            except PatchError as error:
                pause_s = backoff.next_s()
                log.warning(
                    "annotations not written yet",
                    extra={"reason": str(error), "retry_in_s": round(pause_s, 2)},
                )
                await asyncio.sleep(pause_s)
                continue
            backoff.reset()
            await self._current.changed(version)

    async def run_once(self) -> int:
        """Send the patches that may be sent now; return how many there were."""
        ledger = self._current.ledger
        self._gone &= ledger.pods.keys()
        wanted = publishing.patches(ledger, host_ip=self._host_ip())
        batch = [each for each in wanted if each.uid not in self._gone][:AT_ONCE]
        pods = await asyncio.gather(*(self._send(patch) for patch in batch))
        for patch, pod in zip(batch, pods, strict=True):
            if pod is None:
                self._gone |= {patch.uid}
            else:
                self._current.apply(PodSeen(pod))
        return len(batch)
