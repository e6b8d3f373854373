import json
import random  # noqa: TID251  # a fixed seed: the test knows the jitter
from typing import Any

import pytest

from kube.client import Client, object_path
from kube.credentials import from_url
from kube.errors import KubeError
from kube.events import Recorder, Regarding
from service.backoff import Backoff
from tests.kube.server import Answer, Script, refusal
from tests.support.clock import Time
from tests.support.servers import api_server
from tests.support.tasks import in_background

POD = Regarding(kind="Pod", name="p", namespace="ns", uid="u1")
MADE = Answer(status=201)


@pytest.fixture
def clock() -> Time:
    return Time(1_000_000_000.0)


@pytest.fixture
def dropped() -> list[int]:
    """The numbers of events that the recorder has dropped."""
    return []


@pytest.fixture
def recorder(script: Script, clock: Time, dropped: list[int]) -> Recorder:
    rng = random.Random(1)  # noqa: S311  # jitter, not a secret
    return Recorder(
        script.client,
        component="ascend-agent",
        host="node-1",
        wall_s=clock,
        backoff=Backoff(rng=rng),
        count_dropped=dropped.append,
    )


def say(recorder: Recorder, message: str = "chip 3 broke", **more: Any) -> None:
    recorder.record(POD, reason="ChipBroken", message=message, type="Warning", **more)


async def test_an_event_is_what_kubectl_describe_wants(
    script: Script, recorder: Recorder
) -> None:
    script.will(MADE)
    say(recorder)

    assert await recorder.attempt() == 0.0

    (request,) = script.requests
    name = request.body["metadata"]["name"]
    assert name.startswith("p.")
    assert request.path == "/api/v1/namespaces/ns/events"
    assert request.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "ns"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "namespace": "ns",
            "uid": "u1",
        },
        "type": "Warning",
        "reason": "ChipBroken",
        "message": "chip 3 broke",
        "source": {"component": "ascend-agent", "host": "node-1"},
        "firstTimestamp": "2001-09-09T01:46:40Z",
        "lastTimestamp": "2001-09-09T01:46:40Z",
        "count": 1,
    }


async def test_equal_events_are_one_with_a_count(
    script: Script, recorder: Recorder, clock: Time
) -> None:
    script.will(MADE, Answer())
    say(recorder)
    say(recorder)
    await recorder.attempt()
    clock.now_s += 60.0
    say(recorder)

    await recorder.attempt()

    made, counted = script.requests
    assert made.body["count"] == 2
    assert counted.method == "PATCH"
    assert counted.path == f"{made.path}/{made.body['metadata']['name']}"
    assert counted.body == {"count": 3, "lastTimestamp": "2001-09-09T01:47:40Z"}


async def test_an_event_that_the_server_forgot_is_made_anew(
    script: Script, recorder: Recorder, clock: Time
) -> None:
    script.will(MADE, refusal(404, "NotFound"), MADE)
    say(recorder)
    await recorder.attempt()
    clock.now_s += 4000.0
    say(recorder)

    await recorder.attempt()

    methods = [request.method for request in script.requests]
    assert methods == ["POST", "PATCH", "POST"]
    assert script.requests[2].body["count"] == 1
    names = {script.requests[at].body["metadata"]["name"] for at in (0, 2)}
    assert len(names) == 2


async def test_a_node_speaks_in_the_default_namespace(
    script: Script, recorder: Recorder
) -> None:
    script.will(MADE)
    node = Regarding(kind="Node", name="n1", uid="n1")
    recorder.record(node, reason="ChipBroken", message="chip 3")

    await recorder.attempt()

    (request,) = script.requests
    assert request.path == "/api/v1/namespaces/default/events"
    assert request.body["type"] == "Normal"
    assert request.body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "n1",
    }


async def test_while_the_server_is_away_events_wait_and_add_up(
    script: Script, recorder: Recorder
) -> None:
    down = refusal(503, "ServiceUnavailable", **{"Retry-After": "9"})
    script.will(down, down, MADE)
    say(recorder)

    assert await recorder.attempt() == 9.0
    say(recorder)
    assert await recorder.attempt() == 9.0
    assert await recorder.attempt() == 0.0
    assert await recorder.attempt() == 0.0

    assert script.requests[2].body["count"] == 2
    assert len(script.requests) == 3


async def test_an_event_whose_answer_was_lost_is_not_made_twice(
    script: Script, recorder: Recorder, dropped: list[int]
) -> None:
    script.will(refusal(500, "InternalError"), refusal(409, "AlreadyExists"), Answer())
    say(recorder)
    await recorder.attempt()
    await recorder.attempt()
    say(recorder)
    await recorder.attempt()

    first, again, counted = script.requests
    assert first.body["metadata"]["name"] == again.body["metadata"]["name"]
    assert (counted.method, counted.body["count"]) == ("PATCH", 2)
    assert dropped == []


@pytest.mark.parametrize("code", [403, 404, 409, 422])
async def test_an_event_that_is_refused_is_dropped_and_counted(
    script: Script, recorder: Recorder, dropped: list[int], code: int
) -> None:
    script.will(refusal(code, "No"), MADE)
    say(recorder, "refused")
    say(recorder, "taken")

    assert await recorder.attempt() == 0.0
    assert await recorder.attempt() == 0.0

    assert dropped == [1]
    assert script.requests[1].body["message"] == "taken"


async def test_the_queue_has_a_bound_and_the_oldest_goes(
    recorder: Recorder, dropped: list[int]
) -> None:
    for number in range(4140):
        say(recorder, f"message {number}")

    assert dropped == [1] * 44
    assert next(iter(recorder._pending)).message == "message 44"


async def test_events_are_spaced_where_there_is_a_lot_to_say(script: Script) -> None:
    recorder = Recorder(script.client, component="test", spacing_s=0.05)
    script.will(MADE)
    say(recorder)

    assert (await recorder.attempt(), await recorder.attempt()) == (0.05, 0.0)


async def test_a_long_message_is_cut(script: Script, recorder: Recorder) -> None:
    script.will(MADE)
    say(recorder, "x" * 5000)

    await recorder.attempt()

    assert script.requests[0].body["message"] == "x" * 1024


@pytest.mark.parametrize("rest", ["", "n", ".nn", "-nn", "--n"])
@pytest.mark.parametrize("length", [0, 234, 235, 236, 250])
async def test_d17_an_object_of_any_name_has_events(length: int, rest: str) -> None:
    name = f"n{'n' * (length - 1)}{rest}"
    node = Regarding(kind="Node", name=name, uid=name)
    async with api_server() as server, Client(from_url(server.url)) as client:
        recorder = Recorder(client, component="test")
        recorder.record(node, reason="ChipBroken", message="chip 3")
        await recorder.attempt()
        path = object_path("events", "", namespace="default")
        [made] = json.loads(await client.request("GET", path))["items"]

    assert made["involvedObject"]["name"] == name
    assert len(made["metadata"]["name"]) <= 253


async def test_recording_wakes_the_loop(script: Script) -> None:
    recorder = Recorder(script.client, component="test")
    script.will(MADE)

    async with in_background(recorder.run()):
        say(recorder)
        await script.asked.wait()

    assert script.requests[0].body["source"] == {"component": "test"}


async def test_events_that_have_to_be_sent_again_are_told_and_refused_ones_are_not(
    script: Script,
) -> None:
    outcomes: list[KubeError | None] = []
    recorder = Recorder(script.client, component="c", on_outcome=outcomes.append)
    down, forbidden = refusal(503, "Down"), refusal(403, "Forbidden")
    script.will(down, MADE, forbidden)
    for message in ("one", "two"):
        say(recorder, message)
    for _ in range(3):
        await recorder.attempt()

    assert ["503" in str(error) for error in outcomes] == [True, False, False]
    assert outcomes[1:] == [None, None]
