import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from agent.devices.reading import Reading
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.mounts import MountMethod, Mounts
from agent.plugin.servicer import Servicer
from kubelet_api.deviceplugin.v1beta1 import api_pb2_grpc
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import NodeLedger, current, nobody
from tests.agent.plugin.sight import Sight


async def nothing() -> None:
    """A disk that writes at once; a kubelet without pod-resources."""


def loop_s() -> float:
    return asyncio.get_running_loop().time()


def servicer_of(
    now: NodeLedger,
    *,
    sight: Sight | None = None,
    write_journal: Callable[[], Awaitable[None]] = nothing,
) -> Servicer:
    """A servicer of a ledger, with as little as it needs."""
    return Servicer(
        now,
        activity=AllocateActivity(loop_s),
        pods=sight or Sight(),
        find_stray_processes=nobody,
        write_journal=write_journal,
        observe_allocate_s=lambda _: None,
        numa=tuple,
        mounts=Mounts(
            MountMethod.RUNTIME,
            last_reading=lambda: Reading(product=PRODUCT, chips=()),
            cdi_dir=Path(),
        ),
    )


LOCALHOST = (("grpc.default_authority", "localhost"),)


@dataclass(kw_only=True)
class Plugin:
    """A servicer on a real socket, and all that it is given."""

    store: NodeLedger
    stub: "api_pb2_grpc.DevicePluginAsyncStub"  # a name of the typed stubs alone
    servicer: Servicer
    sight: Sight
    journalled: list[tuple[int, ...]] = field(default_factory=list)
    allocate_s: list[float] = field(default_factory=list)
    #: {uid of a pod that has gone: processes that it has left}
    left: dict[str, tuple[int, ...]] = field(default_factory=dict)
    stand_in: str = ""
    numa: tuple[int, ...] = ()


MakePlugin = Callable[..., Awaitable[Plugin]]


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[MakePlugin]:
    async with AsyncExitStack() as stack:

        async def make(*pods: NpuPod) -> Plugin:
            now = current(*pods)
            sight = Sight()

            async def find_stray_processes(
                uids: frozenset[str],
            ) -> dict[str, tuple[int, ...]]:
                return {uid: made.left[uid] for uid in uids if uid in made.left}

            async def write_journal() -> None:
                await asyncio.sleep(0)
                made.journalled.append(tuple(now.ledger.holds))

            servicer = Servicer(
                now,
                activity=AllocateActivity(asyncio.get_running_loop().time),
                pods=sight,
                find_stray_processes=find_stray_processes,
                write_journal=write_journal,
                observe_allocate_s=lambda seconds: made.allocate_s.append(seconds),  # noqa: PLW0108  # made comes later
                numa=lambda: made.numa,
                mounts=Mounts(
                    MountMethod.RUNTIME,
                    last_reading=lambda: Reading(
                        product=PRODUCT, chips=(), stand_in=made.stand_in
                    ),
                    cdi_dir=tmp_path,
                ),
            )
            server = grpc.aio.server()
            api_pb2_grpc.add_DevicePluginServicer_to_server(servicer, server)
            server.add_insecure_port(f"unix://{tmp_path}/p.sock")
            await server.start()
            stack.push_async_callback(server.stop, None)
            stack.callback(servicer.close)
            channel = await stack.enter_async_context(
                grpc.aio.insecure_channel(
                    f"unix://{tmp_path}/p.sock", options=LOCALHOST
                )
            )
            made = Plugin(
                store=now,
                stub=api_pb2_grpc.DevicePluginStub(channel),
                servicer=servicer,
                sight=sight,
            )
            return made

        yield make
