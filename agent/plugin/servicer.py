"""Answer the kubelet: device list, preference, Allocate.

The kubelet waits for GetPreferredAllocation and Allocate without a deadline,
and admits no other pod of the node meanwhile. So nothing here waits for long:
at most CLAIM_WAIT_S for a claim to come through the watch, KUBELET_PODS_S for
the kubelet's own list of pods, JOURNAL_S for the disk.
"""

import asyncio
import logging
import time
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Protocol

from agent.claims import release
from agent.claims.events import (
    AllocateAsked,
    Granted,
    LeftRead,
    PodSeen,
    PreferenceAsked,
    Preferred,
    Refused,
)
from agent.claims.store import Current
from agent.claims.values import Hold
from agent.plugin import translate
from agent.plugin.allocate_activity import Traffic
from agent.plugin.list_and_watch import Context, ListServicer
from agent.plugin.mounts import Mounting
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from scheduler_core.wire.pods import NpuPod
from service import clock

log = logging.getLogger(__name__)

#: The claim is written in the same call that binds the pod, so it reaches us as
#: fast as the pod reaches the kubelet; a second is a hundred times that.
CLAIM_WAIT_S = 1.0
KUBELET_PODS_S = 0.5

#: Finds the processes that pods which have gone have left; bounded in time.
FindLeft = Callable[[frozenset[str]], Awaitable[Mapping[str, tuple[int, ...]]]]
WriteJournal = Callable[[], Awaitable[None]]


class Pods(Protocol):
    """Where claims come from."""

    def hurry(self) -> None:
        """Have the API server asked again at once, if it is not being followed."""

    def unseen_s(self) -> float:
        """For how long the API server has not been followed; seconds, 0 if it is."""

    async def of_kubelet(self) -> Iterable[NpuPod]:
        """Return the pods that the kubelet itself knows; bounded in time."""


class Servicer(ListServicer):
    """The device plugin's RPCs for whole chips.

    Protects when a preference last waited for a claim in vain.
    """

    def __init__(  # noqa: PLR0913  # each comes from somewhere else
        self,
        current: Current,
        *,
        traffic: Traffic,
        pods: Pods,
        find_left: FindLeft,
        write_journal: WriteJournal,
        observe_allocate_s: Callable[[float], None],
        numa: Callable[[], Sequence[int]],
        mounting: Mounting,
    ) -> None:
        """Serve from a ledger.

        Args:
            current: The ledger.
            traffic: Told what is under way.
            pods: Where claims come from.
            find_left: Asks the kernel for processes of pods that have gone.
            write_journal: Puts the ledger's holds on disk, bounded in time;
                returns even if it could not.
            observe_allocate_s: Told how long each Allocate took.
            numa: NUMA node of each chip; none if the kubelet is not to align by them.
            mounting: How chips come into containers.
        """
        devices = translate.DeviceList()
        super().__init__(
            current, lambda: devices.of(current.ledger, numa()), steers=True
        )
        self._mounting = mounting
        self._traffic = traffic
        self._pods = pods
        self._find_left = find_left
        self._write_journal = write_journal
        self._observe_allocate_s = observe_allocate_s
        self._waited_until = float("-inf")

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: object
    ) -> api_pb2.PreferredAllocationResponse:
        """Steer the kubelet to the chips of the oldest claim."""
        with self._answering():
            await self._traffic.prefer()
            answers = [
                api_pb2.ContainerPreferredAllocationResponse(
                    deviceIDs=await self._prefer(
                        PreferenceAsked(
                            tuple(each.available_deviceIDs),
                            tuple(each.must_include_deviceIDs),
                            each.allocation_size,
                        )
                    )
                )
                for each in request.container_requests
            ]
        return api_pb2.PreferredAllocationResponse(container_responses=answers)

    async def Allocate(
        self,
        request: api_pb2.AllocateRequest,
        context: Context,
    ) -> api_pb2.AllocateResponse:
        """Hand out the chips of the claim that this is for."""
        started = time.perf_counter()
        with self._answering(), self._traffic.allocating():
            answers = []
            for each in request.container_requests:
                problem = self._mounting.problem()
                if problem:
                    await self._refuse(context, problem)
                decision = await self._decide(tuple(each.devices_ids))
                if isinstance(decision, Refused):
                    await self._refuse(context, decision.text)
                await self._write_journal()
                answers.append(self._mounting.answer(decision))
        self._observe_allocate_s(time.perf_counter() - started)
        return api_pb2.AllocateResponse(container_responses=answers)

    async def _prefer(self, asked: PreferenceAsked) -> tuple[str, ...]:
        """Wait for a claim of this size, but answer in any case."""
        await self._look_for_left((*asked.available, *asked.must_include))
        deadline = clock.loop_s() + CLAIM_WAIT_S
        while True:
            version = self._current.version
            (answer,) = (
                effect
                for effect in self._current.apply(asked)
                if isinstance(effect, Preferred)
            )
            if not answer.claim_missing:
                return answer.kubelet_ids
            self._pods.hurry()
            if not await self._news(version, deadline):
                self._waited_until = clock.loop_s()
                return answer.kubelet_ids

    async def _decide(self, kubelet_ids: tuple[str, ...]) -> Hold | Refused:
        """Serve at once if there is a claim; else wait for it, then decide."""
        await self._look_for_left(kubelet_ids)
        # what the preference has waited for in vain need not be waited for again
        waited = clock.loop_s() - self._waited_until < CLAIM_WAIT_S
        deadline = clock.loop_s() + (0.0 if waited else CLAIM_WAIT_S)
        while True:
            version = self._current.version
            answer = self._ask(AllocateAsked(kubelet_ids, last_call=False))
            if answer is not None:
                return answer
            self._pods.hurry()
            if not await self._news(version, deadline):
                break
        for pod in await self._pods.of_kubelet():
            self._current.apply(PodSeen(pod, by_kubelet=True))
        unseen_s = self._pods.unseen_s()
        answer = self._ask(
            AllocateAsked(kubelet_ids, last_call=True, unseen_s=unseen_s)
        )
        if answer is None:
            raise AssertionError(kubelet_ids)  # a last call is always answered
        return answer

    async def _look_for_left(self, kubelet_ids: Iterable[str]) -> None:
        """Learn whether pods that had these ids have left processes.

        The kubelet gives the ids of a pod again that was deleted by force, while its
        containers still run.
        """
        gone = release.vacating(self._current.ledger, frozenset(kubelet_ids))
        if gone:
            found = await self._find_left(gone)
            self._current.apply(LeftRead(uids=gone, found=found))

    def _ask(self, asked: AllocateAsked) -> Hold | Refused | None:
        for effect in self._current.apply(asked):
            if isinstance(effect, Granted):
                return effect.hold
            if isinstance(effect, Refused):
                return effect
        return None

    async def _news(self, version: int, deadline: float) -> bool:
        """Wait for a newer ledger; False when the deadline came first."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._current.changed(version)
        except TimeoutError:
            return False
        return True
