"""Base class of all device plugin servicers, which sends the kubelet the device list.

The servicer sends the device list when the kubelet opens a stream, and again after each
change of the list.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import NoReturn

import grpc

from agent.claims.store import LedgerStore
from agent.plugin import translate
from agent.plugin.allocate_activity import NEXT_WITHIN_S, AllocateActivity
from agent.plugin.translate import ListedDevice
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

log = logging.getLogger(__name__)

#: Device lists that the kubelet may still have, since it has not read later ones.
_MOST_EARLIER = 16

#: Pause between two looks whether the kubelet still asks. Unit: seconds.
_LOOK_EACH_S = 0.02
#: Looks in a row that show no request: after one, and if none has come for a while.
_LOOKS, _FEWEST_LOOKS = round(NEXT_WITHIN_S / _LOOK_EACH_S), 3

Context = grpc.aio.ServicerContext[object, object]


class ListAndWatchServicer(api_pb2_grpc.DevicePluginServicer):
    """Base class that sends a device plugin's options and device list to the kubelet.

    It also counts the open ListAndWatch streams and the requests.
    """

    def __init__(
        self,
        store: LedgerStore,
        devices: Callable[[], tuple[ListedDevice, ...]],
        *,
        activity: AllocateActivity,
        steers: bool,
    ) -> None:
        """Construct the servicer of one resource; the kubelet has not connected yet.

        Args:
            store: Ledger of the product line. After a change of the ledger, the device
                list is sent to the kubelet if it differs from the list sent last.
            devices: Returns the device list as it is now.
            activity: Records each running request, so that the agent neither calls List
                of pod-resources nor ends meanwhile.
            steers: Whether the kubelet shall call GetPreferredAllocation.
        """
        self.options = api_pb2.DevicePluginOptions(
            pre_start_required=False, get_preferred_allocation_available=steers
        )
        self._store = store
        self._devices = devices
        self._activity = activity
        self._closing = False
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
        """Wait until the kubelet asks no plugin of this node for anything.

        Without a stream there is nothing to wait for: the kubelet has hung up. Looks
        are counted, not seconds: if this process gets no time, a request may have come.

        Args:
            within_s: Longest wait. After it, the method returns without an error. Unit:
                seconds.
        """
        activity = self._activity
        needed, count = _FEWEST_LOOKS if activity.is_idle else _LOOKS, 0
        mark = activity.mark()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.streams and count < needed:
                    await asyncio.sleep(_LOOK_EACH_S)
                    if activity.was_quiet_since(mark):
                        count += 1
                    else:
                        needed, count = _LOOKS, 0
                    mark = activity.mark()

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
