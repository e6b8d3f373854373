"""Base class of all device plugin servicers, which sends the kubelet the device list.

The servicer sends the device list when the kubelet opens a stream, and again after each
change of the list.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import grpc

from agent.claims.store import LedgerStore
from agent.plugin import translate
from agent.plugin.translate import ListedDevice
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

log = logging.getLogger(__name__)

#: Device lists that the kubelet may still have, since it has not read later ones.
_MOST_EARLIER = 16

Context = grpc.aio.ServicerContext[object, object]


class ListAndWatchServicer(api_pb2_grpc.DevicePluginServicer):
    """Base class that sends a device plugin's options and device list to the kubelet.

    It also counts the open ListAndWatch streams and the requests being answered.
    """

    def __init__(
        self,
        store: LedgerStore,
        devices: Callable[[], tuple[ListedDevice, ...]],
        *,
        steers: bool,
    ) -> None:
        """Construct the servicer of one resource; the kubelet has not connected yet.

        Args:
            store: Ledger of the product line. After a change of the ledger, the device
                list is sent to the kubelet if it differs from the list sent last.
            devices: Returns the device list as it is now.
            steers: Whether the kubelet shall call GetPreferredAllocation.
        """
        self.options = api_pb2.DevicePluginOptions(
            pre_start_required=False, get_preferred_allocation_available=steers
        )
        self._store = store
        self._devices = devices
        self._closing = False
        self._running_count = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self.streams = 0
        self._followers = 0
        self._frozen = False
        #: healthy ids of the last list; None: no list was sent
        self.listed_ids: frozenset[str] | None = None
        #: healthy ids of the lists before it, the newest last
        self.earlier_ids: deque[frozenset[str]] = deque(maxlen=_MOST_EARLIER)
        #: number of GetPreferredAllocation and Allocate requests so far
        self.request_count = 0
        self.stream_ended = asyncio.Event()

    @property
    def is_followed(self) -> bool:
        """Whether the kubelet has a stream open on which the device list was sent.

        Always false after `close`.
        """
        return self._followers > 0 and not self._closing

    def freeze(self) -> None:
        """Stop sending device lists, but keep the streams to the kubelet open.

        The server calls this when it finds another plugin for the same resource. If a
        stream of this plugin ended, the kubelet would drop the other plugin.
        """
        self._frozen = True

    def close(self) -> None:
        """Make all device-list streams of this servicer end."""
        self._closing = True
        self._store.wake()

    async def wait_until_answered(self, within_s: float) -> None:
        """Wait until no GetPreferredAllocation or Allocate is being answered.

        Args:
            within_s: Longest wait. After it, the method returns without an error. Unit:
                seconds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._all_answered.wait()

    @contextmanager
    def _answering(self) -> Iterator[None]:
        self._running_count += 1
        self.request_count += 1
        self._all_answered.clear()
        try:
            yield
        finally:
            self._running_count -= 1
            if not self._running_count:
                self._all_answered.set()

    async def GetDevicePluginOptions(
        self, request: api_pb2.Empty, context: object
    ) -> api_pb2.DevicePluginOptions:
        """Tell the kubelet whether to call GetPreferredAllocation."""
        return self.options

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """Send the kubelet the device list now, and again whenever the list changes.

        Nothing is sent after `freeze`.
        """
        self.streams += 1
        sent: tuple[ListedDevice, ...] | None = None
        try:
            while not self._closing:
                version = self._store.version
                devices = self._devices()
                if devices != sent and not self._frozen:
                    yield translate.device_list(devices)
                    self._followers += sent is None
                    sent = devices
                    if self.listed_ids is not None:
                        self.earlier_ids.append(self.listed_ids)
                    self.listed_ids = translate.healthy(devices)
                await self._store.changed(version)
        finally:
            self.streams -= 1
            self._followers -= sent is not None
            self.stream_ended.set()

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: object
    ) -> api_pb2.PreStartContainerResponse:
        """Do nothing; the plugin's options tell the kubelet not to make this call."""
        return api_pb2.PreStartContainerResponse()

    @staticmethod
    async def _refuse(context: Context, text: str) -> NoReturn:
        log.warning("allocate refused", extra={"reason": text})
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
