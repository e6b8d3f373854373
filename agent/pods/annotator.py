"""Write what the ledger says onto the pods, and do not rest before it stands.

An API server that is slow or down delays what people read, and nothing else:
whoever waits for chips is served from the ledger.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from agent.claims import annotations
from agent.claims.annotations import Basis, Patch, PatchError
from agent.claims.events import PodSeen
from agent.claims.store import Current
from agent.claims.values import Ledger
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.pods import NpuPod
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Patches sent at once.
AT_ONCE = 8
#: Ceiling of the pause after a patch that did not land: once the API server is
#: back, people should not wait long for the truth. Unit: seconds.
LONGEST_PAUSE_S = 10.0


#: Sends one patch; returns the pod as it is then, None if that pod has gone;
#: raises PatchError.
SendPatch = Callable[[Patch], Awaitable[NpuPod | None]]


@dataclass(slots=True)
class _PutOff:
    """A pod whose patch did not land."""

    backoff: Backoff
    until_s: float  #: loop time


class Publisher:
    """Protects which pods have gone before the watch said so, and which must wait.

    Each pod waits for itself: one that the API server refuses holds up no other.
    """

    def __init__(
        self,
        current: Current,
        *,
        send: SendPatch,
        host_ip: Callable[[], str],
        is_silent: Callable[[], bool],
        addresses: Callable[[], Addresses] = Addresses,
        new_backoff: Callable[[], Backoff] = lambda: Backoff(cap_s=LONGEST_PAUSE_S),
    ) -> None:
        """Do nothing yet.

        Args:
            current: The ledger.
            send: Sends one patch to the API server.
            host_ip: The node's InternalIP, as far as it is known.
            is_silent: Whether another plugin serves the node, and annotates its pods.
            addresses: Of the node and its chips, as far as they are known.
            new_backoff: Pauses of a pod whose patch did not land.
        """
        self._current = current
        self._send = send
        self._host_ip = host_ip
        self._is_silent = is_silent
        self._addresses = addresses
        self._new_backoff = new_backoff
        self._gone: frozenset[str] = frozenset()
        self._put_off: dict[str, _PutOff] = {}
        #: where the node was when these pods were right
        self._where: tuple[str, Addresses] | None = None
        #: {uid of a pod that says what it has to: what that followed from}
        self._right: dict[str, Basis] = {}

    async def run(self) -> NoReturn:
        """Publish until cancelled."""
        while True:
            version = self._current.version
            while not self._is_silent() and await self.run_once():
                pass
            again_s = min((p.until_s for p in self._put_off.values()), default=None)
            if self._is_silent():
                again_s = None  # whoever ends the silence wakes us
            with suppress(TimeoutError):
                async with asyncio.timeout_at(again_s):
                    await self._current.changed(version)

    async def run_once(self) -> int:
        """Send the patches that may be sent now; return how many there were."""
        self._gone &= self._current.ledger.pods.keys()
        due_s = clock.loop_s() + clock.EARLY_S
        waiting = {u for u, p in self._put_off.items() if p.until_s > due_s}
        wanted = self._wanted()
        settled = self._put_off.keys() - waiting - {patch.uid for patch in wanted}
        if settled:  # no watch has told of what may have landed: it has not
            for uid in settled:
                del self._put_off[uid]
            wanted = self._wanted()
        batch = [p for p in wanted if p.uid not in self._gone | waiting][:AT_ONCE]
        # all of them, also when one fails: none may land behind its successor
        await asyncio.gather(*(self._publish(patch) for patch in batch))
        return len(batch)

    def _wanted(self) -> tuple[Patch, ...]:
        ledger = self._current.ledger
        host_ip, addresses = self._host_ip(), self._addresses()
        self._look(ledger, host_ip, addresses)
        return annotations.patches(
            ledger,
            host_ip=host_ip,
            addresses=addresses,
            unsure=self._gone | self._put_off.keys(),
            right=self._right.keys(),
        )

    def _look(self, ledger: Ledger, host_ip: str, addresses: Addresses) -> None:
        """Find out which pods are right, of those that may not be as they were.

        A ledger changes ten times while one pod starts, and a node may have sixty.
        """
        if self._where != (host_ip, addresses):
            self._where, self._right = (host_ip, addresses), {}
        bases = {u: annotations.basis(ledger, u) for u in annotations.concerned(ledger)}
        self._right = {
            uid: basis
            for uid, basis in bases.items()
            if self._right.get(uid) == basis
            or annotations.is_right(ledger, uid, host_ip=host_ip, addresses=addresses)
        }

    async def _publish(self, patch: Patch) -> None:
        try:
            pod = await self._send(patch)
        except PatchError as error:
            self._delay(patch, error)
            return
        self._put_off.pop(patch.uid, None)
        known = self._current.ledger.pods.get(patch.uid)
        if pod is None:
            self._gone |= {patch.uid}
        elif known is not None:
            # the watch may have told more since, its end even: not the whole pod
            self._current.apply(PodSeen(replace(known, annotations=pod.annotations)))

    def _delay(self, patch: Patch, error: PatchError) -> None:
        before = self._put_off.get(patch.uid)
        backoff = before.backoff if before else self._new_backoff()
        pause_s = backoff.next_s()
        self._put_off[patch.uid] = _PutOff(backoff, clock.loop_s() + pause_s)
        log.warning(
            "annotations not written yet",
            extra={"reason": str(error), "retry_in_s": round(pause_s, 2)},
        )
