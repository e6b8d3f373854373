import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry

from agent.observe.metrics import Metrics
from agent.observe.registration import Registration
from agent.plugin.server import FLUSH_S, Server
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire.pods import NpuPod
from service.backoff import Backoff
from tests.agent.node import current, pod
from tests.agent.plugin.conftest import (
    allocate_request,
    grpc_server,
    nothing,
    plugin_at,
    servicer_of,
    visible_in,
)
from tests.support.tasks import in_background
from tests.support.until import until

#: Nobody waits for so long, unless it never comes.
NOTICED_S = 30.0


class Patience(Backoff):
    """Tries twice, then for an hour no more."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        self.failures += 1
        return 0.05 if self.failures == 1 else 3600.0

    def reset(self) -> None:
        self.failures = 0


class FakeKubelet(api_pb2_grpc.RegistrationServicer):
    """The registration side of a kubelet; dials back and keeps the stream open."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "kubelet.sock"
        self.plugin = directory / "Ascend910.sock"
        self.story: list[str] = []
        self.requests: asyncio.Queue[api_pb2.RegisterRequest] = asyncio.Queue()
        self.dials_back = True
        #: where the kubelet asks: it hangs up there when the stream ends
        self.asks: api_pb2_grpc.DevicePluginAsyncStub | None = None
        self.streams: list[asyncio.Task[None]] = []
        self._serving = AsyncExitStack()

    async def Register(
        self, request: api_pb2.RegisterRequest, context: object
    ) -> api_pb2.Empty:
        self.story.append("registered")
        if self.dials_back:
            self.follow(request.endpoint)
        self.requests.put_nowait(request)
        return api_pb2.Empty()

    def follow(self, endpoint: str) -> None:
        self.streams.append(asyncio.create_task(self._follow(endpoint)))

    async def _follow(self, endpoint: str) -> None:
        async with plugin_at(self.directory / endpoint) as plugin:
            self.asks = plugin
            with suppress(grpc.aio.AioRpcError):
                async for _ in plugin.ListAndWatch(api_pb2.Empty()):
                    self.story.append("list")
        self.story.append("stream ended")

    async def start(self) -> None:
        add = api_pb2_grpc.add_RegistrationServicer_to_server
        await self._serving.enter_async_context(grpc_server(add, self, self.socket))

    async def stop(self) -> None:
        await self._serving.aclose()
        for stream in self.streams:
            stream.cancel()
        await asyncio.gather(*self.streams, return_exceptions=True)
        self.streams.clear()
        self.socket.unlink(missing_ok=True)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def registration(self) -> api_pb2.RegisterRequest:
        async with asyncio.timeout(NOTICED_S):
            return await self.requests.get()


@asynccontextmanager
async def serving(
    kubelet: FakeKubelet,
    *,
    registration: Registration | None = None,
    backoff: Backoff | None = None,
    pods: Sequence[NpuPod] = (),
    write_journal: Callable[[], Awaitable[None]] = nothing,
    allocatable_ids: Callable[[], Awaitable[None]] = nothing,
) -> AsyncIterator[Server]:
    now = current(*pods)
    server = Server(
        lambda: servicer_of(now, write_journal=write_journal),
        product=PRODUCT,
        kubelet_dir=kubelet.directory,
        allocatable_ids=allocatable_ids,
        on_rival=print,
        registration=registration,
        backoff=backoff,
    )
    async with in_background(server.run()):
        yield server


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[FakeKubelet]:
    fake = FakeKubelet(tmp_path)
    await fake.start()
    yield fake
    await fake.stop()


async def test_it_registers_its_resource_and_is_asked_for_the_list(
    kubelet: FakeKubelet,
) -> None:
    async with serving(kubelet) as server:
        request = await kubelet.registration()

        assert request == api_pb2.RegisterRequest(
            version="v1beta1",
            endpoint="Ascend910.sock",
            resource_name="huawei.com/Ascend910",
            options=api_pb2.DevicePluginOptions(
                get_preferred_allocation_available=True
            ),
        )
        assert kubelet.plugin.stat().st_mode & 0o777 == 0o600
        await until(lambda: server.problem() is None)


async def test_a_kubelet_that_restarts_is_registered_with_again(
    kubelet: FakeKubelet,
) -> None:
    registry = CollectorRegistry()
    counted = Registration(Metrics(registry), asyncio.get_running_loop().time)
    async with serving(kubelet, registration=counted) as server:
        await kubelet.registration()
        await until(lambda: server.problem() is None)

        await kubelet.restart()

        await kubelet.registration()
        await until(lambda: server.problem() is None)
    assert registry.get_sample_value("ascend_agent_registrations_total") == 2


async def test_a_kubelet_that_restarts_while_we_look_around_is_told_of_us_once(
    kubelet: FakeKubelet,
) -> None:
    looked, looked_again = asyncio.Event(), asyncio.Event()

    async def allocatable_ids() -> None:
        if looked.is_set():
            looked_again.set()
            return
        looked.set()
        await kubelet.restart()

    async with serving(kubelet, allocatable_ids=allocatable_ids) as server:
        await looked_again.wait()
        await until(lambda: server.problem() is None)

        assert kubelet.story == ["registered", "list"]


async def test_a_new_socket_is_noticed_even_if_the_stream_does_not_end(
    kubelet: FakeKubelet,
) -> None:
    async with serving(kubelet):
        await kubelet.registration()

        kubelet.socket.unlink()
        second = FakeKubelet(kubelet.directory)
        await second.start()
        await second.registration()

        await second.stop()


async def test_a_kubelet_that_was_away_for_long_does_not_wait_for_the_next_try(
    kubelet: FakeKubelet,
) -> None:
    patience = Patience()
    async with serving(kubelet, backoff=patience):
        await kubelet.registration()
        await kubelet.stop()
        with socket.socket(socket.AF_UNIX) as left_behind:
            left_behind.bind(str(kubelet.socket))
        await until(lambda: patience.failures == 2)

        kubelet.socket.unlink()
        await kubelet.start()

        await kubelet.registration()


async def test_a_socket_that_cannot_be_made_does_not_end_the_agent(
    tmp_path: Path,
) -> None:
    deep = tmp_path / ("d" * 100)  # beyond what a socket's path may have
    deep.mkdir()
    (deep / "kubelet.sock").touch()

    async with serving(FakeKubelet(deep)) as server:
        await until(lambda: "failed" in (server.problem() or ""))

    assert server.problem() == (
        f"registering with the kubelet failed: cannot serve at {deep}/Ascend910.sock"
    )


async def test_a_connection_without_a_question_does_not_hold_up_registering_again(
    kubelet: FakeKubelet,
) -> None:
    async with serving(kubelet) as server:
        await kubelet.registration()
        await until(lambda: server.problem() is None)
        with socket.socket(socket.AF_UNIX) as mute:
            mute.connect(str(kubelet.plugin))

            kubelet.plugin.unlink()

            await kubelet.registration()


async def test_it_is_ready_only_while_the_kubelet_follows_the_device_list(
    kubelet: FakeKubelet,
) -> None:
    kubelet.dials_back = False
    async with serving(kubelet) as server:
        request = await kubelet.registration()
        await until(lambda: server.problem() != "not registered with the kubelet yet")
        registered = server.problem()
        kubelet.follow(request.endpoint)
        # The kubelet has read the list somewhat later than the server has sent it.
        await until(lambda: server.problem() is None and "list" in kubelet.story)
        told = list(kubelet.story)

        kubelet.streams[0].cancel()
        await kubelet.registration()
        await until(lambda: server.problem() != "registering with the kubelet again")
        ended = server.problem()

    assert registered == ended == "the kubelet does not follow the device list"
    assert told == ["registered", "list"]


async def test_any_end_of_the_stream_means_registering_again(
    kubelet: FakeKubelet,
) -> None:
    async with serving(kubelet):
        await kubelet.registration()
        await until(lambda: "list" in kubelet.story)

        kubelet.streams[0].cancel()

        await kubelet.registration()


async def test_the_old_stream_has_ended_before_the_new_registration(
    kubelet: FakeKubelet,
) -> None:
    async with serving(kubelet):
        await kubelet.registration()
        await until(lambda: "list" in kubelet.story)

        kubelet.plugin.unlink()
        await kubelet.registration()

    assert kubelet.story.index("stream ended") < kubelet.story.index("registered", 1)


@pytest.mark.parametrize("begins_anew", [False, True])
async def test_an_allocate_that_runs_is_answered_however_long_the_disk_takes(
    kubelet: FakeKubelet, *, begins_anew: bool
) -> None:
    writes, may_go = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        writes.set()
        await may_go.wait()

    async with AsyncExitStack() as agent:
        server = await agent.enter_async_context(
            serving(kubelet, pods=[pod("train", [0])], write_journal=slow)
        )
        await until(lambda: "list" in kubelet.story)
        assert kubelet.asks is not None
        call = kubelet.asks.Allocate(allocate_request(0))
        await writes.wait()
        if begins_anew:
            kubelet.plugin.unlink()
            await until(lambda: "again" in (server.problem() or ""))
        stopping = asyncio.create_task(agent.pop_all().aclose())
        await asyncio.sleep(2 * FLUSH_S)  # real: gRPC's own clock runs
        has_ended = stopping.done()
        may_go.set()
        answer = await call
        await stopping

    assert (visible_in(answer), has_ended) == ("0", False)


async def test_it_says_what_it_waits_for_and_then_nothing(kubelet: FakeKubelet) -> None:
    await kubelet.stop()

    async with serving(kubelet) as server:
        before = server.problem()
        await kubelet.start()
        await kubelet.registration()
        await until(lambda: server.problem() is None)

    assert before == "not registered with the kubelet yet"


async def test_the_socket_is_gone_when_the_agent_is(kubelet: FakeKubelet) -> None:
    async with serving(kubelet):
        await kubelet.registration()

    assert not kubelet.plugin.exists()
