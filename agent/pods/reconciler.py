"""The correction pass: what was mounted, against what the annotations say.

Soon after each Allocate and at least each period: ask pod-resources about the
pods that are open and let the ledger settle. What then has to be written is
the publisher's.

Each period the other living pods are asked about too, whether the kubelet still knows
what they have. Between two such passes that may change only when something is given
out, when a pod comes or goes, or with the kubelet itself; so once several have found
all as it was, and until one of these happens, they are made each minute.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NoReturn, Protocol

from agent.claims import confirm, release
from agent.claims.events import InUse, LeftRead, PassEnded, ResourcesRead
from agent.claims.store import Current
from agent.claims.values import Ledger
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Between two passes while something is open and has just changed.
AGAIN_S = 0.1
#: Between two passes while it stays open (the hold of a rejected pod, say).
PATIENT_S = 1.0
#: Passes at the first rate after a change.
EAGER_PASSES = 10
#: After so many thorough passes in a row that have found all as it was …
CALM_PASSES = 3
#: … the next is made so long after the last, if nothing happens.
CALM_PERIOD_S = 60.0
#: pod-resources takes 100 calls a second, 10 at once, from all callers together.
READ_EACH_S = 0.01

#: {container: its device ids}; None: the kubelet does not know the pod
Containers = Mapping[str, frozenset[str]] | None


#: Finds the processes that pods which have gone have left; bounded in time.
FindLeft = Callable[[frozenset[str]], Awaitable[Mapping[str, tuple[int, ...]]]]


class ResourcesError(Exception):
    """The kubelet did not say who has what; try again later."""


class PodResources(Protocol):
    """What the pass asks of the kubelet."""

    @property
    def kubelet(self) -> object:
        """What tells the kubelet that would answer now from its successor."""

    async def read(self, namespace: str, name: str) -> Containers:
        """Return what one pod has; raise ResourcesError."""

    async def let_go(self) -> InUse:
        """Make the kubelet forget what ended pods had; raise ResourcesError.

        Returns:
            The ids that each container has now.
        """


class Traffic(Protocol):
    """Whether devices are being given out."""

    def mark(self) -> int:
        """Return a mark for `was_quiet_since`."""

    def was_quiet_since(self, mark: int) -> bool:
        """Tell whether nothing was given out since."""


class Reconciler:
    """Protects when the next pass is due."""

    def __init__(
        self,
        current: Current,
        *,
        resources: PodResources,
        traffic: Traffic,
        find_left: FindLeft,
        period_s: float,
        backoff: Backoff | None = None,
    ) -> None:
        """Do nothing yet.

        Args:
            current: The ledger.
            resources: The kubelet's pod-resources.
            traffic: Whether an Allocate is under way.
            find_left: Asks the kernel for processes of pods that have gone.
            period_s: Between two thorough passes; when nothing happens it becomes
                `CALM_PERIOD_S`, if that is longer.
            backoff: Pauses while the kubelet does not answer.
        """
        self._current = current
        self._resources = resources
        self._traffic = traffic
        self._find_left = find_left
        self._period_s = period_s
        self._backoff = backoff or Backoff()
        self._calm = _Calm()

    async def run(self) -> NoReturn:
        """Make passes until cancelled."""
        eager, known_sequence = EAGER_PASSES, -1
        thorough_at = clock.loop_s()
        while True:
            version, known = self._current.version, self._current.ledger
            thorough = clock.loop_s() + clock.EARLY_S >= thorough_at
            if thorough:
                thorough_at = clock.loop_s() + self._period_s
                thorough = self._may_find_news()
            pause_s = await self.run_once(thorough=thorough)
            sequence = self._current.ledger.sequence
            eager = EAGER_PASSES if sequence != known_sequence else eager - 1
            known_sequence = sequence
            if pause_s is None and confirm.is_open(self._current.ledger):
                pause_s = AGAIN_S if eager > 0 else PATIENT_S
            if pause_s is None:
                await self._changed(version, until=thorough_at)
            else:
                until = clock.loop_s() + pause_s
                await self._more(known, version, until=until)

    async def _changed(self, version: int, *, until: float) -> None:
        """Sleep until something is newer than a version."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._current.changed(version)

    async def _more(self, known: Ledger, version: int, *, until: float) -> None:
        """Sleep until there is more to find out than there was."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while not _has_more(self._current.ledger, known):
                    version = await self._current.changed(version)

    def _may_find_news(self) -> bool:
        """Tell whether a thorough pass that is due may find anything."""
        ledger = self._current.ledger
        return (
            confirm.is_open(ledger)
            or bool(confirm.unsettled(ledger))
            or not self._calm.lasts((ledger, self._resources.kubelet))
        )

    async def run_once(self, *, thorough: bool) -> float | None:
        """Make one pass.

        Args:
            thorough: Ask about all living pods, not only the open ones.

        Returns:
            How long to wait before the next; None: until something changes.
        """
        kubelet, began_s = self._resources.kubelet, clock.loop_s()
        mark = self._traffic.mark()
        try:
            await self._read(thorough=thorough)
        except ResourcesError as error:
            self._calm = _Calm()
            pause_s = self._backoff.next_s()
            log.info(
                "correction pass put off",
                extra={"reason": str(error), "retry_in_s": round(pause_s, 2)},
            )
            return min(pause_s, self._period_s)
        self._backoff.reset()
        if thorough and self._traffic.was_quiet_since(mark):
            self._calm.take((self._current.ledger, kubelet), began_s)
        elif thorough:  # what was not shown to it proves nothing
            self._calm = _Calm()
        return None

    async def _read(self, *, thorough: bool) -> None:
        """Ask about the pods that matter and let the ledger settle."""
        wanted = confirm.wants_reading(self._current.ledger, thorough=thorough)
        if not wanted and not confirm.is_open(self._current.ledger):
            return
        mark = self._traffic.mark()
        await self._read_each(wanted)
        in_use = None
        if release.lingers(self._current.ledger) and self._traffic.mark() >= 0:
            in_use = await self._resources.let_go()
            await self._read_each(
                confirm.wants_reading(self._current.ledger, thorough=False)
            )
        gone = release.vacating(self._current.ledger)
        if gone:
            found = await self._find_left(gone)
            self._current.apply(LeftRead(uids=gone, found=found))
        quiet = self._traffic.was_quiet_since(mark)
        self._current.apply(PassEnded(quiet=quiet, in_use=in_use))

    async def _read_each(self, wanted: tuple[tuple[str, str, str], ...]) -> None:
        for uid, namespace, name in wanted:
            as_of = self._current.ledger.sequence
            mark = self._traffic.mark()
            containers = await self._resources.read(namespace, name)
            self._current.apply(
                ResourcesRead(
                    uid=uid,
                    containers=containers,
                    as_of=as_of,
                    until=self._current.ledger.sequence,
                    quiet=self._traffic.was_quiet_since(mark),
                )
            )
            await asyncio.sleep(READ_EACH_S)


class _Calm:
    """Protects what the last thorough passes have left, and how many alike."""

    def __init__(self) -> None:
        self._seen: object = None
        self._alike = 0
        self._began_s = float("-inf")

    def take(self, seen: object, began_s: float) -> None:
        """Take in what one has left: the ledger, and the kubelet that was asked."""
        self._alike = self._alike + 1 if seen == self._seen else 0
        self._seen = seen
        self._began_s = began_s

    def lasts(self, seen: object) -> bool:
        """Tell whether nothing has happened since, and it is not long ago."""
        ago_s = clock.loop_s() - self._began_s + clock.EARLY_S
        is_young = ago_s < CALM_PERIOD_S
        return is_young and self._alike >= CALM_PASSES and seen == self._seen


def _has_more(now: Ledger, known: Ledger) -> bool:
    """Tell whether more was given out since, or more can be told of whom to.

    Or a process has ended, which may be the last that kept a chip from being free.
    """
    return (
        now.sequence != known.sequence
        or bool(known.busy & ~now.busy)
        or not (confirm.unsettled(now) <= confirm.unsettled(known))
    )
