"""A plugin with as little as it needs, and how the kubelet asks it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import grpc
import pytest

from agent.devices.reading import Reading
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.mounts import MountMethod, Mounts
from agent.plugin.servicer import Servicer
from agent.pods.reconciler import LookNow
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire.pods import NpuPod
from service.clock import loop_s
from tests.agent.node import NodeLedger, current, ids

T = TypeVar("T")


async def nothing() -> None:
    """A disk that writes at once; a kubelet without pod-resources."""


@dataclass(kw_only=True)
class Sight:
    """What can be seen of pods, and who wanted to see."""

    kubelet_pods: Sequence[NpuPod] = ()
    kubelet_was_asked: int = 0
    was_hurried: int = 0
    silent_s: float = 0.0

    def hurry(self) -> None:
        self.was_hurried += 1

    def unseen_s(self) -> float:
        return self.silent_s

    async def of_kubelet(self, _resource: str) -> Sequence[NpuPod]:
        self.kubelet_was_asked += 1
        return self.kubelet_pods


@dataclass(kw_only=True)
class Surroundings:
    """What a servicer is given, with as little as it needs."""

    store: NodeLedger
    sight: Sight = field(default_factory=Sight)
    write_journal: Callable[[], Awaitable[None]] = nothing
    allocate_s: list[float] = field(default_factory=list)
    #: {uid of a pod that has gone: processes that it has left}
    left: dict[str, tuple[int, ...]] = field(default_factory=dict)
    stand_in: str = ""
    numa: tuple[int, ...] = ()
    look_now: LookNow = lambda: None

    async def find_stray_processes(
        self, uids: frozenset[str]
    ) -> dict[str, tuple[int, ...]]:
        return {uid: self.left[uid] for uid in uids if uid in self.left}

    def reading(self) -> Reading:
        return Reading(product=PRODUCT, chips=(), stand_in=self.stand_in)

    def make_servicer(self) -> Servicer:
        return Servicer(
            self.store,
            activity=AllocateActivity(loop_s),
            pods=cast("Any", self.sight),
            find_stray_processes=self.find_stray_processes,
            write_journal=self.write_journal,
            observe_allocate_s=self.allocate_s.append,
            numa=lambda: self.numa,
            mounts=Mounts(
                MountMethod.RUNTIME, last_reading=self.reading, cdi_dir=Path()
            ),
            look_now=self.look_now,
        )


def servicer_of(now: NodeLedger, **given: Any) -> Servicer:
    """A servicer of a ledger; what it is given besides is a field of the above."""
    return Surroundings(store=now, **given).make_servicer()


def allocate_request(*chips: int) -> api_pb2.AllocateRequest:
    """Asks for these chips' ids, for one container."""
    asked = api_pb2.ContainerAllocateRequest(devices_ids=ids(*chips))
    return api_pb2.AllocateRequest(container_requests=[asked])


def preference_request(
    available: tuple[str, ...], size: int
) -> api_pb2.PreferredAllocationRequest:
    """Asks which of these ids one container should have."""
    asked = api_pb2.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, allocation_size=size
    )
    return api_pb2.PreferredAllocationRequest(container_requests=[asked])


def visible_in(answer: api_pb2.AllocateResponse) -> str:
    """What the one container of an answer may see."""
    return answer.container_responses[0].envs["ASCEND_VISIBLE_DEVICES"]


LOCALHOST = (("grpc.default_authority", "localhost"),)


@asynccontextmanager
async def plugin_at(
    socket: Path,
) -> AsyncIterator["api_pb2_grpc.DevicePluginAsyncStub"]:
    """The plugin that serves at a socket, as the kubelet calls it."""
    address = f"unix://{socket}"
    async with grpc.aio.insecure_channel(address, options=LOCALHOST) as channel:
        yield api_pb2_grpc.DevicePluginStub(channel)


@asynccontextmanager
async def grpc_server(
    add: Callable[[T, grpc.aio.Server], object], servicer: T, socket: Path
) -> AsyncIterator[None]:
    """Serve at a socket.

    Args:
        add: What gRPC's compiler has made to add such a servicer to a server.
    """
    server = grpc.aio.server()
    add(servicer, server)
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@dataclass(kw_only=True)
class Plugin(Surroundings):
    """A servicer on a real socket, and all that it is given."""

    stub: "api_pb2_grpc.DevicePluginAsyncStub" = field(init=False)  # typed stubs alone
    servicer: Servicer = field(init=False)
    journalled: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write_journal = self.journal
        self.servicer = self.make_servicer()

    async def journal(self) -> None:
        await asyncio.sleep(0)
        self.journalled.append(tuple(self.store.ledger.holds))


MakePlugin = Callable[..., Awaitable[Plugin]]


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[MakePlugin]:
    add, socket = api_pb2_grpc.add_DevicePluginServicer_to_server, tmp_path / "p.sock"
    async with AsyncExitStack() as stack:

        async def make(*pods: NpuPod) -> Plugin:
            made = Plugin(store=current(*pods))
            serving = grpc_server(add, made.servicer, socket)
            await stack.enter_async_context(serving)
            stack.callback(made.servicer.close)
            made.stub = await stack.enter_async_context(plugin_at(socket))
            return made

        yield make
