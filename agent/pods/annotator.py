"""Patch the annotations of pods until they match the ledger of one product line.

An Allocate never waits for these patches, because it is answered from the ledger.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import NoReturn

from agent.claims import annotations
from agent.claims.annotations import Basis, Patch
from agent.claims.events import PodUpdated
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger
from agent.observe.problems import REFUSED
from agent.report.reporter import LONGEST_PAUSE_S
from kube.errors import ApiError, ForbiddenError, KubeError
from kube.events import Regarding
from kube.write_history import WriteHistory
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.pods import NpuPod
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Patches sent at once.
AT_ONCE = 8
#: Statuses of a patch that may fail because of its pod alone: those of a pod that
#: breaks a rule, of what admits pods of its namespace, and of a webhook that fails.
_OF_POD = REFUSED | {500}
#: In a refusal for want of a right. Source: Kubernetes, `forbiddenMessage` in
#: `apiserver/pkg/endpoints/handlers/responsewriters/errors.go` (v1.36).
_NO_RIGHT = " cannot patch resource "


#: Sends one patch; returns the patched pod, None if it has gone; raises KubeError.
SendPatch = Callable[[Patch], Awaitable[NpuPod | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delay:
    """Back-off of a pod whose annotations are not right, and when to patch it again."""

    backoff: Backoff
    until_s: float  #: loop time
    patch: Patch
    #: Why the patch failed, so that its outcome is unknown; None: it did not last.
    error: KubeError | None = None
    #: When the first was sent of the patches in a row that failed; loop time.
    since_s: float = inf


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
        on_pod: Callable[[Regarding, str], None] = lambda _pod, _problem: None,
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
            on_outcome: Called with an error because of which no pod may be annotated,
                or with None without one, each time that patches were sent.
            on_pod: Called then, too, with each pod whose own annotations are not taken,
                and why; with "" once they are, or the pod has gone.
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
        self._on_pod = on_pod
        self._new_backoff = new_backoff
        #: uids of deleted pods that the watch still shows
        self._deleted: frozenset[str] = frozenset()
        #: {uid of a pod whose patch failed or did not last: its back-off}
        self._delays: dict[str, _Delay] = {}
        #: pods of which `_on_pod` was told that their annotations are not taken
        self._refused: frozenset[Regarding] = frozenset()
        #: when the API server has taken a patch last; loop time
        self._taken_s = -inf
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
            self._tell(delays)
            again_s = min((delay.until_s for delay in delays), default=None)
            await self._store.changed(version, until=again_s)

    def _tell(self, delays: Iterable[_Delay]) -> None:
        """Tell why patches have failed: because of their pods, or of the node.

        If a patch was taken since, all others have failed because of their pods. If
        none was, a refusal still is of its pod while it is the only one. A right that
        is missing is the node's.
        """
        failed = [(delay, delay.error) for delay in delays if delay.error is not None]
        unclear = [error for delay, error in failed if delay.since_s > self._taken_s]
        of_node = [error for _, error in failed if _lacks_right(error)]
        of_node += [e for e in unclear if len(unclear) > 1 or not _may_be_of_pod(e)]
        of_pods = {
            _regarding(delay.patch): str(error)
            for delay, error in failed
            if not _lacks_right(error)
            and (delay.since_s <= self._taken_s or _may_be_of_pod(error))
        }
        self._on_outcome(of_node[0] if of_node else None)
        for pod in self._refused | of_pods.keys():
            self._on_pod(pod, of_pods.get(pod, ""))
        self._refused = frozenset(of_pods)

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
        delay = self._delays[patch.uid]
        if delay.error is not None:
            return True
        return patch.annotations.items() <= delay.patch.annotations.items()

    def _patches(self) -> tuple[Patch, ...]:
        ledger = self._store.ledger
        host_ip, addresses = self._host_ip(), self._addresses()
        self._update_correct(ledger, host_ip, addresses)
        failed = {uid for uid, d in self._delays.items() if d.error is not None}
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
        sent_s = clock.loop_s()
        try:
            pod = await self._send(patch)
        except KubeError as error:
            self._delay(patch, error, sent_s)
            return
        self._delays.pop(patch.uid, None)
        if pod is None:
            self._deleted |= {patch.uid}
            return
        self._taken_s = clock.loop_s()
        self._delay_if_undone(patch, pod)
        known_pod = self._store.ledger.pods.get(patch.uid)
        if known_pod is not None:
            # only the annotations: the watch may have shown the pod's end since
            self._store.apply(
                PodUpdated(replace(known_pod, annotations=pod.annotations))
            )

    def _delay(self, patch: Patch, error: KubeError, sent_s: float) -> None:
        delay = self._delays.get(patch.uid)
        backoff = delay.backoff if delay else self._new_backoff()
        pause_s = backoff.next_s(error.retry_after_s)
        self._delays[patch.uid] = _Delay(
            backoff=backoff,
            until_s=clock.loop_s() + pause_s,
            patch=patch,
            error=error,
            since_s=min(sent_s, delay.since_s) if delay else sent_s,
        )
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
            self._delays[patch.uid] = _Delay(
                backoff=self._new_backoff(),
                until_s=clock.loop_s() + pause_s,
                patch=patch,
            )


def _regarding(patch: Patch) -> Regarding:
    return Regarding(
        kind="Pod", name=patch.name, namespace=patch.namespace, uid=patch.uid
    )


def _lacks_right(error: KubeError) -> bool:
    """Whether a patch was refused because the agent may not patch pods at all."""
    return isinstance(error, ForbiddenError) and _NO_RIGHT in error.message


def _may_be_of_pod(error: KubeError) -> bool:
    """Whether a patch may have failed because of its pod alone."""
    return (
        isinstance(error, ApiError)
        and error.status in _OF_POD
        and not _lacks_right(error)
    )
