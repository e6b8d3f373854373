import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.pod_resources import PodResourcesClient, RateLimit
from agent.pods.reconciler import ResourcesError
from kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from service import clock
from tests.agent.node import RESOURCE
from tests.agent.plugin.conftest import grpc_server

DEVICES = [
    (RESOURCE, "Ascend910-1"),
    (RESOURCE, "Ascend910-0"),
    ("example.com/nic", "eth0"),
]


class FakePodResources(api_pb2_grpc.PodResourcesListerServicer):
    """Two pods, one with devices; Get can be switched off."""

    def __init__(self) -> None:
        self.get_is_off = False
        self.is_ending = False
        self.calls: list[str] = []
        self.pods = {
            "train": api_pb2.PodResources(
                name="train",
                namespace="default",
                containers=[
                    api_pb2.ContainerResources(
                        name="main",
                        devices=[
                            api_pb2.ContainerDevices(
                                resource_name=of, device_ids=[name]
                            )
                            for of, name in DEVICES
                        ],
                    ),
                    api_pb2.ContainerResources(name="sidecar"),
                ],
            )
        }

    async def Get(
        self,
        request: api_pb2.GetPodResourcesRequest,
        context: grpc.aio.ServicerContext[object, object],
    ) -> api_pb2.GetPodResourcesResponse:
        self.calls.append("Get")
        if self.get_is_off:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")
        found = self.pods.get(request.pod_name)
        if found is None:
            # as the kubelet's plain Go error arrives
            await context.abort(
                grpc.StatusCode.UNKNOWN,
                f"pod {request.pod_name} in namespace default not found",
            )
        return api_pb2.GetPodResourcesResponse(pod_resources=found)

    async def List(
        self,
        request: api_pb2.ListPodResourcesRequest,
        context: grpc.aio.ServicerContext[object, object],
    ) -> api_pb2.ListPodResourcesResponse:
        self.calls.append("List")
        if self.is_ending:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the kubelet ends")
        return api_pb2.ListPodResourcesResponse(pod_resources=self.pods.values())

    async def GetAllocatableResources(
        self, request: api_pb2.AllocatableResourcesRequest, context: object
    ) -> api_pb2.AllocatableResourcesResponse:
        return api_pb2.AllocatableResourcesResponse()


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[FakePodResources]:
    fake = FakePodResources()
    add = api_pb2_grpc.add_PodResourcesListerServicer_to_server
    async with grpc_server(add, fake, tmp_path / "r.sock"):
        yield fake


@pytest.fixture
def activity() -> AllocateActivity:
    return AllocateActivity(lambda: 0.0)


@pytest.fixture
async def resources(
    kubelet: FakePodResources, tmp_path: Path, activity: AllocateActivity
) -> AsyncIterator[PodResourcesClient]:
    made = PodResourcesClient(
        tmp_path / "r.sock", resource=RESOURCE, activity=activity, list_call_s=10.0
    )
    yield made
    await made.close()


HAS = {"main": frozenset({"Ascend910-0", "Ascend910-1"}), "sidecar": frozenset[str]()}


async def test_another_kubelet_is_told_from_the_one_before(
    resources: PodResourcesClient, kubelet: FakePodResources, tmp_path: Path
) -> None:
    before = resources.kubelet
    await resources.read("default", "train")
    unchanged = resources.kubelet

    (tmp_path / "r.sock").rename(tmp_path / "old.sock")
    gone = resources.kubelet
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(tmp_path / "r.sock"))
        after = resources.kubelet

    assert unchanged == before is not None
    assert gone is None
    assert after not in (before, None)


async def test_each_container_has_its_ids_of_our_resource_alone(
    resources: PodResourcesClient, kubelet: FakePodResources
) -> None:
    assert await resources.read("default", "train") == HAS
    assert kubelet.calls == ["Get"]


async def test_a_pod_that_the_kubelet_does_not_know_is_none(
    resources: PodResourcesClient,
) -> None:
    assert await resources.read("default", "other") is None


async def test_where_get_is_off_all_pods_are_listed(
    resources: PodResourcesClient, kubelet: FakePodResources
) -> None:
    kubelet.get_is_off = True

    assert await resources.read("default", "train") == HAS
    assert await resources.read("default", "other") is None
    assert kubelet.calls == ["Get", "List", "List"]


async def test_a_kubelet_that_was_replaced_may_have_get(
    resources: PodResourcesClient, kubelet: FakePodResources
) -> None:
    kubelet.get_is_off = kubelet.is_ending = True
    with pytest.raises(ResourcesError, match="the kubelet ends"):
        await resources.read("default", "train")
    kubelet.get_is_off = kubelet.is_ending = False

    assert await resources.read("default", "train") == HAS
    assert kubelet.calls == ["Get", "List", "Get"]


async def test_nothing_is_listed_while_devices_are_given_out(
    resources: PodResourcesClient, kubelet: FakePodResources, activity: AllocateActivity
) -> None:
    kubelet.get_is_off = True

    with activity.allocating(), pytest.raises(ResourcesError, match="given out"):
        await resources.read("default", "train")
    with activity.allocating(), pytest.raises(ResourcesError, match="given out"):
        await resources.forget_ended_pods()

    assert "List" not in kubelet.calls


async def test_a_preference_waits_for_a_listing_to_end(
    activity: AllocateActivity,
) -> None:
    async def prefer() -> None:
        async with activity.preferring():
            pass

    with activity.listing():
        waiting = asyncio.create_task(prefer())
        await asyncio.sleep(0.01)
        during = waiting.done()
    await waiting

    assert not during


async def test_a_kubelet_that_is_away_is_an_error_of_our_own(tmp_path: Path) -> None:
    away = PodResourcesClient(
        tmp_path / "no.sock", resource=RESOURCE, activity=AllocateActivity(float)
    )

    with pytest.raises(ResourcesError, match="UNAVAILABLE"):
        await away.read("default", "train")

    await away.close()


@pytest.mark.looptime
async def test_callers_take_turns_and_the_first_of_them_need_not_wait() -> None:
    rate_limit, asked = RateLimit(0.5), list[float]()
    begun_s = clock.loop_s()

    async def ask() -> None:
        await rate_limit.wait_for_turn()
        asked.append(round(clock.loop_s() - begun_s, 1))

    await asyncio.gather(ask(), ask(), ask())
    await asyncio.sleep(2)
    await ask()

    assert asked == [0.0, 0.5, 1.0, 3.0]


class Turns(RateLimit):
    """A rate limit that counts who took a turn."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.count = 0

    async def wait_for_turn(self) -> None:
        self.count += 1
        await super().wait_for_turn()


async def test_each_call_of_the_kubelet_takes_a_turn(
    kubelet: FakePodResources, tmp_path: Path, activity: AllocateActivity
) -> None:
    turns = Turns()
    resources = PodResourcesClient(
        tmp_path / "r.sock", resource=RESOURCE, activity=activity, rate_limit=turns
    )
    taken = []
    for call in (
        lambda: resources.read("default", "train"),
        resources.forget_ended_pods,
        resources.allocatable_ids,
    ):
        await call()
        taken.append(turns.count)
    kubelet.get_is_off = True
    await resources.read("default", "train")  # Get, then List
    taken.append(turns.count)
    await resources.close()

    assert taken == [1, 2, 3, 5]


# under which authority the agent calls the kubelet: Go servers refuse a path

#: HTTP/2: an empty SETTINGS frame, without which no client begins.
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_METHOD = b"/v1.PodResourcesLister/Get"


class HttpKubelet:
    """Reads what comes until a call was made, and hangs up."""

    def __init__(self) -> None:
        self.read = b""

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(_SETTINGS)
        while _METHOD not in self.read and (some := await reader.read(4096)):
            self.read += some
        writer.close()


@pytest.fixture
async def http_kubelet(tmp_path: Path) -> AsyncIterator[HttpKubelet]:
    kubelet = HttpKubelet()
    server = await asyncio.start_unix_server(kubelet.serve, tmp_path / "r.sock")
    yield kubelet
    server.close()


async def test_the_kubelet_is_called_by_the_name_of_localhost(
    http_kubelet: HttpKubelet, tmp_path: Path
) -> None:
    resources = PodResourcesClient(
        tmp_path / "r.sock", resource=RESOURCE, activity=AllocateActivity(lambda: 0.0)
    )

    with contextlib.suppress(ResourcesError):
        await resources.read("default", "train")
    await resources.close()

    assert _METHOD in http_kubelet.read
    assert b"localhost" in http_kubelet.read
    assert b"r.sock" not in http_kubelet.read
