"""The half of a device plugin that is the same for whole chips and for parts of them.

The device list is sent as it is when the stream opens, and again whenever it differs;
who follows it and what waits for an answer is counted for `agent.plugin.server`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import grpc

from agent.claims.store import Current
from agent.plugin import translate
from agent.plugin.translate import Listed
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[object, object]


class ListServicer(api_pb2_grpc.DevicePluginServicer):
    """Device lists, and the RPCs that need nothing else.

    Protects how many device-list streams are open, how many of them have brought
    the list, and whether they may go on, and how many questions wait for their answer.
    """

    def __init__(
        self,
        current: Current,
        devices: Callable[[], tuple[Listed, ...]],
        *,
        steers: bool,
    ) -> None:
        """Serve a list.

        Args:
            current: Wakes whoever waits for news.
            devices: The list as it is now.
            steers: Whether the kubelet is to ask which devices we would like.
        """
        self.options = api_pb2.DevicePluginOptions(
            pre_start_required=False, get_preferred_allocation_available=steers
        )
        self._current = current
        self._devices = devices
        self._closing = False
        self._asked = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
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
        return self.options

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """Send the list as it is now, then again whenever it differs."""
        self.streams += 1
        sent: tuple[Listed, ...] | None = None
        try:
            while not self._closing:
                version = self._current.version
                devices = self._devices()
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

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: object
    ) -> api_pb2.PreStartContainerResponse:
        """Do nothing: we do not ask for it, see GetDevicePluginOptions."""
        return api_pb2.PreStartContainerResponse()

    @staticmethod
    async def _refuse(context: Context, text: str) -> NoReturn:
        log.warning("allocate refused", extra={"reason": text})
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
