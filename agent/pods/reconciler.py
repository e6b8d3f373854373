"""Correct the ledger by the kubelet's answers (pod-resources) about pods' device ids.

One round of questions is called a pass. Each pass asks about deleted and terminal pods
that still own a hold. While any hold has no known owner, a pass also asks about each
living pod that is not confirmed (`values.is_confirmed`). Each answer can show the
owner of a hold. At the end of a pass, the ledger releases holds whose container no
longer exists. A pass follows soon after each Allocate.

A thorough pass asks about all living pods, and so finds devices that the kubelet has
forgotten. The setting `reconcile_period_s` is the pause between two thorough passes.
After CALM_PASSES thorough passes that changed nothing, the pause is CALM_PERIOD_S (one
minute), if that is longer. It is `reconcile_period_s` again when the ledger has changed
or the kubelet has restarted. It also stays `reconcile_period_s` while a pod or hold
still has to be confirmed or released.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NoReturn, Protocol

from agent.claims import confirm, release, values
from agent.claims.events import InUse, PassEnded, ResourcesRead, StrayProcessesRead
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Pause between two passes soon after a hold was opened. Unit: seconds.
AGAIN_S = 0.1
#: The same pause for a hold that stays open, as of a rejected pod. Unit: seconds.
PATIENT_S = 1.0
#: Passes with the short pause after a change.
EAGER_PASSES = 10
#: Thorough passes in a row without a change, after which CALM_PERIOD_S applies.
CALM_PASSES = 3
#: Pause between two thorough passes while nothing happens. Unit: seconds.
CALM_PERIOD_S = 60.0
#: Pause between two reads; pod-resources takes 100 calls a second, 10 at once, from all
#: callers together. Unit: seconds.
READ_EACH_S = 0.01

#: {container: its device ids}; None: the kubelet does not know the pod
Containers = Mapping[str, frozenset[str]] | None


#: Returns {uid of an ended pod: pids of processes that still run}; bounded in time.
FindStrayProcesses = Callable[
    [frozenset[str]], Awaitable[Mapping[str, tuple[int, ...]]]
]


#: Asks the driver for a look that begins now, and does not wait for it. The monitor of
#: the chips tells the ledger what the look has shown.
LookNow = Callable[[], None]


class ResourcesError(Exception):
    """pod-resources did not say which pod has which device ids; ask again later."""


class NotNowError(ResourcesError):
    """pod-resources must not be asked now: an Allocate is running or expected."""


class PodResources(Protocol):
    """Client of the kubelet's pod-resources API, for the device ids of one resource.

    Both calls raise NotNowError if the kubelet must not be asked now, and
    ResourcesError if it does not answer.
    """

    @property
    def kubelet(self) -> object:
        """Object that identifies the kubelet process; a restart changes the object."""

    async def read(self, namespace: str, name: str) -> Containers:
        """Return {container: device ids} of a pod; None if the kubelet has none."""

    async def forget_ended_pods(self) -> InUse:
        """Make the kubelet forget the device ids of ended pods, by listing all pods."""


class Activity(Protocol):
    """Observer of Allocate calls that tells whether one ran since a mark was taken."""

    def mark(self) -> int:
        """Return a mark of this moment for `was_quiet_since`; -1 during an Allocate."""

    def was_quiet_since(self, mark: int) -> bool:
        """Whether no Allocate has run since the method `mark` returned this mark."""


class Reconciler:
    """Task that corrects one product line's ledger by what pod-resources answers."""

    def __init__(  # noqa: PLR0913  # each comes from somewhere else
        self,
        store: LedgerStore,
        *,
        resources: PodResources,
        activity: Activity,
        find_stray_processes: FindStrayProcesses,
        period_s: float,
        look_now: LookNow,
        backoff: Backoff | None = None,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Construct without asking pod-resources.

        Args:
            activity: Tells whether an Allocate was running during a pass.
            find_stray_processes: Asks the kernel for processes of ended pods that still
                run.
            period_s: Pause between two passes that ask about all living pods. While
                nothing changes, the pause is `CALM_PERIOD_S` if that is longer. Unit:
                seconds.
            backoff: Pauses between passes while the kubelet does not answer; None for
                the default.
            on_problem: Called after each pass with why the kubelet did not answer; ""
                if it did, or has not to be asked anything.
        """
        self._store = store
        self._resources = resources
        self._activity = activity
        self._find_stray_processes = find_stray_processes
        self._period_s = period_s
        self._backoff = backoff or Backoff()
        self._look_now = look_now
        self._on_problem = on_problem
        self._calm = _Calm()

    async def run(self) -> NoReturn:
        """Make passes until cancelled: ask pod-resources which pods have which ids.

        The first case that applies decides when the next pass begins:

            the kubelet did not answer          after a back-off
            a hold's owner is unknown or ended  after AGAIN_S; PATIENT_S if no hold
                                                came in the last EAGER_PASSES passes
            otherwise                           at the next change of the ledger, or if
                                                the next thorough pass is due

        In the first two cases, the pass begins earlier if `_needs_pass` becomes true.
        """
        eager, known_sequence = EAGER_PASSES, -1
        thorough_at = clock.loop_s()
        while True:
            version, ledger = self._store.version, self._store.ledger
            thorough = clock.loop_s() + clock.EARLY_S >= thorough_at
            if thorough:
                thorough_at = clock.loop_s() + self._period_s
                thorough = self._may_find_changes()
            pause_s = await self.run_once(thorough=thorough)
            sequence = self._store.ledger.sequence
            eager = EAGER_PASSES if sequence != known_sequence else eager - 1
            known_sequence = sequence
            if pause_s is None and confirm.has_open_holds(self._store.ledger):
                pause_s = AGAIN_S if eager > 0 else PATIENT_S
            if pause_s is None:
                await self._store.changed(version, until=thorough_at)
            else:
                until = clock.loop_s() + pause_s
                await self._sleep_until_work(ledger, version, until=until)

    async def _sleep_until_work(
        self, before: Ledger, version: int, *, until: float
    ) -> None:
        """Sleep until `_needs_pass` is true of the ledger, or until the time `until`.

        Args:
            before: Ledger before the last pass.
            version: Version of `before` in the ledger store.
            until: Latest end of the sleep. Unit: seconds, loop time.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while not _needs_pass(self._store.ledger, before):
                    version = await self._store.changed(version)

    def _may_find_changes(self) -> bool:
        """Whether a thorough pass may change the ledger now."""
        ledger = self._store.ledger
        return (
            confirm.has_open_holds(ledger)
            or bool(confirm.unconfirmed_pods(ledger))
            or not self._calm.lasts((ledger, self._resources.kubelet))
        )

    async def run_once(self, *, thorough: bool) -> float | None:
        """Make one pass: ask pod-resources which ids pods have, and correct the ledger.

        Args:
            thorough: Ask about all living pods, not only about those that
                `confirm.pods_to_read` returns otherwise.

        Returns:
            Seconds until the next pass if the kubelet did not answer. None if the pass
            is complete.
        """
        kubelet, began_s = self._resources.kubelet, clock.loop_s()
        mark = self._activity.mark()
        try:
            has_asked = await self._read(thorough=thorough)
        except ResourcesError as error:
            self._calm = _Calm()
            if not isinstance(error, NotNowError):
                self._on_problem(str(error))
            pause_s = self._backoff.next_s()
            log.info(
                "correction pass put off",
                extra={"reason": str(error), "retry_in_s": round(pause_s, 2)},
            )
            return min(pause_s, self._period_s)
        self._backoff.reset()
        if has_asked or not confirm.pods_to_read(self._store.ledger, thorough=True):
            self._on_problem("")
        if thorough and self._activity.was_quiet_since(mark):
            self._calm.add((self._store.ledger, kubelet), began_s)
        elif thorough:  # an Allocate was running, so missing entries prove nothing
            self._calm = _Calm()
        return None

    async def _read(self, *, thorough: bool) -> bool:
        """Send the answers of pod-resources to the ledger, then the event `PassEnded`.

        An answer can show the owner of a hold. On `PassEnded` the ledger releases
        holds. Nothing is sent if there is no pod to ask about and each hold has a
        known, living owner.

        Returns:
            Whether the kubelet was asked.

        Raises:
            ResourcesError: The kubelet did not answer.
        """
        ledger = self._store.ledger
        if values.unchecked_chips(ledger) | values.releasing_chips(ledger):
            self._look_now()
        pods = confirm.pods_to_read(ledger, thorough=thorough)
        if not pods and not confirm.has_open_holds(ledger):
            return False
        mark = self._activity.mark()
        await self._read_pods(pods)
        in_use = None
        if release.needs_full_list(self._store.ledger) and self._activity.mark() >= 0:
            in_use = await self._resources.forget_ended_pods()
            await self._read_pods(
                confirm.pods_to_read(self._store.ledger, thorough=False)
            )
        uids = release.pods_to_check_for_processes(self._store.ledger)
        if uids:
            pids = await self._find_stray_processes(uids)
            self._store.apply(StrayProcessesRead(uids=uids, pids=pids))
        quiet = self._activity.was_quiet_since(mark)
        self._store.apply(PassEnded(quiet=quiet, in_use=in_use))
        return bool(pods) or in_use is not None

    async def _read_pods(self, pods: tuple[tuple[str, str, str], ...]) -> None:
        for uid, namespace, name in pods:
            as_of = self._store.ledger.sequence
            mark, kubelet = self._activity.mark(), self._resources.kubelet
            containers = await self._resources.read(namespace, name)
            # else either of two kubelets may have answered
            is_same = kubelet == self._resources.kubelet
            self._store.apply(
                ResourcesRead(
                    uid=uid,
                    containers=containers,
                    as_of=as_of,
                    until=self._store.ledger.sequence,
                    quiet=is_same and self._activity.was_quiet_since(mark),
                    kubelet=kubelet if is_same else None,
                )
            )
            await asyncio.sleep(READ_EACH_S)


class _Calm:
    """Result of the last thorough pass, and how often it was repeated in a row.

    The result is the ledger after the pass, with the identity of the kubelet before it.
    """

    def __init__(self) -> None:
        self._result: object = None
        self._equal_count = 0
        self._began_s = float("-inf")

    def add(self, result: object, began_s: float) -> None:
        """Add the result of a thorough pass that began at this loop time.

        It is counted if it equals the previous one.
        """
        self._equal_count = self._equal_count + 1 if result == self._result else 0
        self._result = result
        self._began_s = began_s

    def lasts(self, result: object) -> bool:
        """Whether a thorough pass can be left out, because nothing has changed.

        Three facts are required. `result` is still the result of the last thorough
        pass. At least CALM_PASSES thorough passes in a row repeated it. The last one
        began less than CALM_PERIOD_S ago.
        """
        ago_s = clock.loop_s() - self._began_s + clock.EARLY_S
        is_calm = self._equal_count >= CALM_PASSES and ago_s < CALM_PERIOD_S
        return is_calm and result == self._result


def _needs_pass(now: Ledger, before: Ledger) -> bool:
    """Whether the ledger has changed so that pod-resources may answer something new.

    True if a hold was made, if the last process on a chip has ended, or if a pod has
    become unconfirmed (`confirm.unconfirmed_pods`). Also true if a pod with chips has
    ended, or a look has shown what such a pod has left.

    Args:
        now: The present ledger.
        before: Ledger before the last pass.
    """
    return (
        now.sequence != before.sequence
        or bool(before.busy & ~now.busy)
        or now.ended_s != before.ended_s
        or not (confirm.unconfirmed_pods(now) <= confirm.unconfirmed_pods(before))
    )
