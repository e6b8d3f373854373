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
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager, suppress
from typing import NoReturn

import grpc

from agent.claims.events import (
    AllocateAsked,
    Granted,
    PodSeen,
    PreferenceAsked,
    Preferred,
    Refused,
)
from agent.claims.values import Hold
from agent.current import Current
from agent.plugin import translate
from agent.plugin.mounting import Mounting
from agent.plugin.traffic import Traffic
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from scheduler_core.wire.pods import NpuPod
from service import clock

log = logging.getLogger(__name__)

#: The claim is written in the same call that binds the pod, so it reaches us as
#: fast as the pod reaches the kubelet; a second is a hundred times that.
CLAIM_WAIT_S = 1.0
KUBELET_PODS_S = 0.5

KubeletPods = Callable[[], Awaitable[Iterable[NpuPod]]]
WriteJournal = Callable[[], Awaitable[None]]


class Servicer(api_pb2_grpc.DevicePluginServicer):
    """The device plugin's RPCs.

    Protects how many device-list streams are open, how many of them have brought
    the list, and whether they may go on, how many questions wait for their answer,
    and when a preference last waited for a claim in vain.
    """

    def __init__(  # noqa: PLR0913  # each comes from somewhere else
        self,
        current: Current,
        *,
        traffic: Traffic,
        kubelet_pods: KubeletPods,
        write_journal: WriteJournal,
        observe_allocate_s: Callable[[float], None],
        numa: Callable[[], Sequence[int]],
        mounting: Mounting,
    ) -> None:
        """Serve from a ledger.

        Args:
            current: The ledger.
            traffic: Told what is under way.
            kubelet_pods: The pods that the kubelet itself knows; bounded in time.
            write_journal: Puts the ledger's holds on disk, bounded in time;
                returns even if it could not.
            observe_allocate_s: Told how long each Allocate took.
            numa: NUMA node of each chip; none if the kubelet is not to align by them.
            mounting: How chips come into containers.
        """
        self._numa = numa
        self._mounting = mounting
        self._current = current
        self._traffic = traffic
        self._kubelet_pods = kubelet_pods
        self._write_journal = write_journal
        self._observe_allocate_s = observe_allocate_s
        self._closing = False
        self._asked = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._waited_until = float("-inf")
        self.streams = 0
        self._followers = 0
        self._frozen = False
        #: healthy ids of the last list; None: none was sent
        self.listed: frozenset[str] | None = None
        #: how often the kubelet has asked for a preference or for devices
        self.asked_count = 0
        self.stream_ended = asyncio.Event()

    @property
    def is_followed(self) -> bool:
        """Whether somebody has been sent the device list and listens for more."""
        return self._followers > 0 and not self._closing

    def freeze(self) -> None:
        """Send no list any more, but keep the stream: its end would drop a rival."""
        self._frozen = True

    def close(self) -> None:
        """End the device-list streams."""
        self._closing = True
        self._current.wake()

    async def answered(self, within_s: float) -> None:
        """Wait until no question waits for its answer, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._all_answered.wait()

    @contextmanager
    def _answering(self) -> Iterator[None]:
        self._asked += 1
        self.asked_count += 1
        self._all_answered.clear()
        try:
            yield
        finally:
            self._asked -= 1
            if not self._asked:
                self._all_answered.set()

    async def GetDevicePluginOptions(
        self, request: api_pb2.Empty, context: object
    ) -> api_pb2.DevicePluginOptions:
        """Say what we want to be asked."""
        return options()

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """Send the list as it is now, then again whenever it differs."""
        self.streams += 1
        sent: tuple[translate.Listed, ...] | None = None
        try:
            while not self._closing:
                version = self._current.version
                devices = translate.listed(self._current.ledger, self._numa())
                if devices != sent and not self._frozen:
                    yield translate.device_list(devices)
                    self._followers += sent is None
                    sent = devices
                    self.listed = translate.healthy(devices)
                await self._current.changed(version)
        finally:
            self.streams -= 1
            self._followers -= sent is not None
            self.stream_ended.set()

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
        context: grpc.aio.ServicerContext[object, object],
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

    @staticmethod
    async def _refuse(
        context: grpc.aio.ServicerContext[object, object], text: str
    ) -> NoReturn:
        log.warning("allocate refused", extra={"reason": text})
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: object
    ) -> api_pb2.PreStartContainerResponse:
        """Do nothing: we do not ask for it, see GetDevicePluginOptions."""
        return api_pb2.PreStartContainerResponse()

    async def _prefer(self, asked: PreferenceAsked) -> tuple[str, ...]:
        """Wait for a claim of this size, but answer in any case."""
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
            if not await self._news(version, deadline):
                self._waited_until = clock.loop_s()
                return answer.kubelet_ids

    async def _decide(self, kubelet_ids: tuple[str, ...]) -> Hold | Refused:
        """Serve at once if there is a claim; else wait for it, then decide."""
        # what the preference has waited for in vain need not be waited for again
        waited = clock.loop_s() - self._waited_until < CLAIM_WAIT_S
        deadline = clock.loop_s() + (0.0 if waited else CLAIM_WAIT_S)
        while True:
            version = self._current.version
            answer = self._ask(AllocateAsked(kubelet_ids, last_call=False))
            if answer is not None:
                return answer
            if not await self._news(version, deadline):
                break
        for pod in await self._kubelet_pods():
            self._current.apply(PodSeen(pod, by_kubelet=True))
        answer = self._ask(AllocateAsked(kubelet_ids, last_call=True))
        if answer is None:
            raise AssertionError(kubelet_ids)  # a last call is always answered
        return answer

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


def options() -> api_pb2.DevicePluginOptions:
    """Return what we want the kubelet to ask us."""
    return api_pb2.DevicePluginOptions(
        pre_start_required=False, get_preferred_allocation_available=True
    )
