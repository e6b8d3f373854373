"""Patch the annotations of pods until they match the ledger of one product line.

An Allocate never waits for these patches, because it is answered from the ledger.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from agent.claims import annotations
from agent.claims.annotations import Basis, Patch
from agent.claims.events import PodUpdated
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger
from agent.report.reporter import LONGEST_PAUSE_S
from kube.errors import KubeError
from kube.write_history import WriteHistory
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.pods import NpuPod
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Patches sent at once.
AT_ONCE = 8


#: Sends one patch; returns the patched pod, None if it has gone; raises KubeError.
SendPatch = Callable[[Patch], Awaitable[NpuPod | None]]


@dataclass(slots=True)
class _Delay:
    """Back-off of a pod whose annotations are not right, and when to patch it again."""

    backoff: Backoff
    until_s: float  #: loop time
    #: {key: text} of a patch that did not last; or why the patch failed, so that its
    #: outcome is unknown
    cause: Mapping[str, str] | KubeError


class Annotator:
    """Writer of the annotations of all pods that use chips of one product line.

    Each pod has its own back-off. So a pod whose patches the API server refuses does
    not delay pods with other chips.
    """

    def __init__(  # noqa: PLR0913  # each comes from somewhere else
        self,
        store: LedgerStore,
        *,
        send: SendPatch,
        host_ip: Callable[[], str],
        is_silent: Callable[[], bool],
        on_outcome: Callable[[KubeError | None], None] = lambda _: None,
        addresses: Callable[[], Addresses] = Addresses,
        new_backoff: Callable[[], Backoff] = lambda: Backoff(cap_s=LONGEST_PAUSE_S),
    ) -> None:
        """Construct without sending a patch.

        Args:
            host_ip: Returns the node's last known InternalIP; "" while none is known.
                The configuration of pods is not written then. After a change of the
                result, the caller wakes `store`.
            is_silent: Returns whether another device plugin serves this product line
                and annotates its pods. While the result is true, no patch is sent.
            on_outcome: Called with the error of a patch that has to be sent again, or
                with None without any, each time that patches were sent.
            addresses: Returns the addresses of node and chips that the driver has
                reported.
            new_backoff: Returns a new back-off, for one pod whose patches fail.
        """
        self._store = store
        self._send = send
        self._host_ip = host_ip
        self._is_silent = is_silent
        self._addresses = addresses
        self._on_outcome = on_outcome
        self._new_backoff = new_backoff
        #: uids of deleted pods that the watch still shows
        self._deleted: frozenset[str] = frozenset()
        #: {uid of a pod whose patch failed or did not last: its back-off}
        self._delays: dict[str, _Delay] = {}
        #: {uid of a patched pod: its patches}
        self._histories: dict[str, WriteHistory] = {}
        #: host IP and addresses for which `_correct` holds
        self._node_addresses: tuple[str, Addresses] | None = None
        #: {uid of a pod with correct annotations: what they were computed from}
        self._correct: dict[str, Basis] = {}

    async def run(self) -> NoReturn:
        """Patch pods' annotations after each change of the ledger, until cancelled.

        A failed patch is sent again when the pod's back-off has ended. So is one whose
        annotations the API server does not keep, or another program changes again. No
        patch is sent while another device plugin serves the product line.
        """
        while True:
            version = self._store.version
            while not self._is_silent() and await self.run_once():
                pass
            # the end of the silence wakes the store
            delays = [] if self._is_silent() else [*self._delays.values()]
            causes = (delay.cause for delay in delays)
            failures = (cause for cause in causes if isinstance(cause, KubeError))
            self._on_outcome(next(failures, None))
            again_s = min((delay.until_s for delay in delays), default=None)
            await self._store.changed(version, until=again_s)

    async def run_once(self) -> int:
        """Send at most AT_ONCE patches of pods' annotations; return how many were sent.

        A patch that fails or does not last is counted too. Its pod gets no patch until
        the pod's back-off has ended. But after a patch that did not last, annotations
        that this patch did not have are sent at once.
        """
        self._deleted &= self._store.ledger.pods.keys()
        due_s = clock.loop_s() + clock.EARLY_S
        waiting = {uid for uid, delay in self._delays.items() if delay.until_s > due_s}
        patches = self._patches()
        obsolete = self._delays.keys() - waiting - {patch.uid for patch in patches}
        if obsolete:  # the watch has shown no change, so the failed patch had no effect
            for uid in obsolete:
                del self._delays[uid]
            patches = self._patches()
        batch = [
            patch
            for patch in patches
            if patch.uid not in self._deleted
            and not (patch.uid in waiting and self._has_to_wait(patch))
        ][:AT_ONCE]
        # wait for all, even if one fails: no patch may arrive after a later one
        await asyncio.gather(*(self._patch(patch) for patch in batch))
        return len(batch)

    def _has_to_wait(self, patch: Patch) -> bool:
        """Whether `patch` must wait for the end of its pod's back-off."""
        cause = self._delays[patch.uid].cause
        if isinstance(cause, KubeError):
            return True
        return patch.annotations.items() <= cause.items()

    def _patches(self) -> tuple[Patch, ...]:
        ledger = self._store.ledger
        host_ip, addresses = self._host_ip(), self._addresses()
        self._update_correct(ledger, host_ip, addresses)
        failed = {u for u, d in self._delays.items() if isinstance(d.cause, KubeError)}
        return annotations.plan_patches(
            ledger,
            host_ip=host_ip,
            addresses=addresses,
            unsure=self._deleted | failed,
            up_to_date=self._correct.keys(),
        )

    def _update_correct(
        self, ledger: Ledger, host_ip: str, addresses: Addresses
    ) -> None:
        """Update `_correct`, the pods whose annotations already match the ledger.

        A pod in `_correct` is checked again only if the pod, its slot or its holds have
        changed. All pods are checked if `host_ip` or `addresses` has changed.
        """
        if self._node_addresses != (host_ip, addresses):
            self._node_addresses, self._correct = (host_ip, addresses), {}
        bases = {
            u: annotations.get_basis(ledger, u)
            for u in annotations.uids_to_annotate(ledger)
        }
        for uid in self._histories.keys() - bases.keys():
            del self._histories[uid]
        self._correct = {
            uid: basis
            for uid, basis in bases.items()
            if self._correct.get(uid) == basis
            or annotations.is_up_to_date(
                ledger, uid, host_ip=host_ip, addresses=addresses
            )
        }

    async def _patch(self, patch: Patch) -> None:
        try:
            pod = await self._send(patch)
        except KubeError as error:
            self._delay(patch, error)
            return
        self._delays.pop(patch.uid, None)
        if pod is None:
            self._deleted |= {patch.uid}
            return
        self._delay_if_undone(patch, pod)
        known_pod = self._store.ledger.pods.get(patch.uid)
        if known_pod is not None:
            # only the annotations: the watch may have shown the pod's end since
            self._store.apply(
                PodUpdated(replace(known_pod, annotations=pod.annotations))
            )

    def _delay(self, patch: Patch, error: KubeError) -> None:
        delay = self._delays.get(patch.uid)
        backoff = delay.backoff if delay else self._new_backoff()
        pause_s = backoff.next_s(error.retry_after_s)
        self._delays[patch.uid] = _Delay(backoff, clock.loop_s() + pause_s, error)
        log.warning(
            "annotations not written yet",
            extra={"reason": str(error), "retry_in_s": round(pause_s, 2)},
        )

    def _delay_if_undone(self, patch: Patch, answer: NpuPod) -> None:
        """Delay the pod's next patch if annotations in `patch` do not last.

        `answer` is the patched pod.
        """
        if patch.uid not in self._histories:
            title = f"pod {patch.namespace}/{patch.name}"
            self._histories[patch.uid] = WriteHistory(title)
        pause_s = self._histories[patch.uid].add(patch.annotations, answer.annotations)
        if pause_s:
            until_s = clock.loop_s() + pause_s
            self._delays[patch.uid] = _Delay(
                self._new_backoff(), until_s, patch.annotations
            )
