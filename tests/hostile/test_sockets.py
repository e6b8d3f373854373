"""The same on real sockets: gRPC from and to a kubelet, HTTP from kube-scheduler."""

import asyncio
import io
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.pod_resources import PodResourcesClient
from agent.pods.reconciler import ResourcesError
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from tests.agent.node import RESOURCE, ids, pod
from tests.agent.plugin.conftest import LOCALHOST, MakePlugin, plugin
from tests.extender.kube_scheduler.test_verbs import recorded_cluster, served
from tests.extender.volcanos import volcano
from tests.hostile import mutations
from tests.hostile.objects import ROWS
from tests.hostile.volcano import BODIES
from tests.support.caches import cluster

__all__ = ["plugin"]

#: What is no message: a field without an end, of no kind, text that is no UTF-8.
GARBAGE = (b"\xff", b"\x0a\xff\xff\xff\x7f", b"\x0a\x03\x0a\x01\xff", bytes(1 << 20))


class _Anything(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not at run time
    """A kubelet that answers every call with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def service(
        self, _details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def answer(_request: bytes, _context: object) -> bytes:
            return self._answer

        return grpc.unary_unary_rpc_method_handler(answer)


@asynccontextmanager
async def resources(tmp_path: Path, answer: bytes) -> AsyncIterator[PodResourcesClient]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Anything(answer),))
    server.add_insecure_port(f"unix://{tmp_path}/k.sock")
    await server.start()
    activity = AllocateActivity(asyncio.get_running_loop().time)
    asked = PodResourcesClient(
        tmp_path / "k.sock", resource=RESOURCE, activity=activity
    )
    yield asked
    await asked.close()
    await server.stop(None)


@pytest.mark.parametrize("answer", GARBAGE)
async def test_an_answer_of_pod_resources_that_is_none_is_as_no_answer(
    tmp_path: Path, answer: bytes
) -> None:
    async with resources(tmp_path, answer) as asked:
        with pytest.raises(ResourcesError, match=r"expected .+, found"):
            await asked.read("default", "train")
        with pytest.raises(ResourcesError, match=r"expected .+, found"):
            await asked.forget_ended_pods()
        assert await asked.allocatable_ids() is None


@pytest.mark.parametrize("call", ["Allocate", "GetPreferredAllocation"])
async def test_a_question_of_the_kubelet_that_is_none_changes_nothing(
    plugin: MakePlugin, tmp_path: Path, call: str
) -> None:
    made = await plugin(pod("train", (0, 1)))
    before = made.store.ledger

    async with grpc.aio.insecure_channel(
        f"unix://{tmp_path}/p.sock", options=LOCALHOST
    ) as channel:
        ask = channel.unary_unary(
            f"/v1beta1.DevicePlugin/{call}",
            request_serializer=bytes,
            response_deserializer=bytes,
        )
        for question in GARBAGE:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(question)
            assert "Traceback" not in (caught.value.details() or "")

    assert made.store.ledger == before
    answer = await made.stub.Allocate(
        api_pb2.AllocateRequest(
            container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids(0, 1))]
        )
    )
    assert answer.container_responses[0].envs["ASCEND_VISIBLE_DEVICES"] == "0,1"


def logged_errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the extender logged with an exception."""
    ours = [each for each in caplog.records if each.name.startswith("extender")]
    return [record for record in ours if record.exc_info]


VERBS = {"filter": "filter", "prioritize": "filter", "bind": "bind"}


@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_answers_whatever_it_is_sent(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    row = next(
        row for row in ROWS if row.name.startswith(f"kube-scheduler: {VERBS[verb]}")
    )
    cache = recorded_cluster()
    before = {state.name: state for state in cache.index}

    async with served(cache) as (extender, api):
        for _, body in mutations.always(row.seeds, row.leaves, alone=False):
            answer = await extender.post(verb, io.BytesIO(body))
            assert isinstance(answer, list if verb == "prioritize" else dict)

    assert not logged_errors(caplog)
    assert {state.name: state for state in cache.index} == before
    assert not api.bindings


async def test_a_body_that_is_not_encoded_as_it_says_is_refused() -> None:
    async with served(recorded_cluster()) as (extender, _):
        said = await extender.post("filter", b"{}", {"Content-Encoding": "gzip"})

    assert said == {"Error": "body: expected 'gzip', found other bytes"}


@pytest.mark.parametrize("verb", [*BODIES, "reclaimable"])
async def test_every_verb_of_volcano_answers_whatever_it_is_sent(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = BODIES.get(verb, BODIES["preemptable"])

    async with volcano(cluster()) as world:
        asked = list(mutations.always((body,), mutations.LEAVES, alone=False))
        for _, content in asked[::6]:  # `make fuzz` asks everything, at every place
            assert isinstance(await world.send(verb, content), dict)
        answer = await world.send(verb, body)

    assert "the extender" not in str(answer)
    assert not logged_errors(caplog)
