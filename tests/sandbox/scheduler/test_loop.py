"""The loop against the sandbox's API server and a stub of an extender."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from sandbox.apiclient import ApiClient
from sandbox.apiserver import ApiServer
from sandbox.scheduler import ExtenderSettings, SchedulingLoop
from tests.sandbox.scheduler.extender import Body, StubExtender
from tests.support.objects import NODES, PODS, node, offered, pod
from tests.support.servers import api_server
from tests.support.until import until

CHIPS = "huawei.com/Ascend910"
RECORDED = Path(__file__).parents[2] / "extender" / "bodies"


class World:
    """An API server, a stub extender, and loops that are stopped at the end."""

    def __init__(
        self, api: ApiClient, server: ApiServer, stack: AsyncExitStack
    ) -> None:
        self.api = api
        self.extender = StubExtender(api)
        self.server = server
        self._stack = stack

    async def loop(self, **settings: object) -> SchedulingLoop:
        extender = ExtenderSettings(url=self.extender.url, **settings)  # type: ignore[arg-type]  # checked by the dataclass
        loop = SchedulingLoop(
            self.server.url,
            "user:system:kube-scheduler",
            extender=extender,
            backoff_s=0.05,
        )
        await loop.start()
        self._stack.push_async_callback(loop.stop)
        return loop

    async def nodes(self, *counts: int) -> None:
        for number, count in enumerate(counts, 1):
            status = offered(**{CHIPS: str(count), "pods": "110"})
            await self.api.create(NODES, {**node(f"node{number}"), **status})

    async def pod(
        self, name: str, count: int, resource: str = CHIPS, *gates: str
    ) -> None:
        closed = [{"name": gate} for gate in gates]
        made = pod(name, count, resource=resource, schedulingGates=closed)
        await self.api.create(PODS, made)

    async def node_of(self, name: str) -> str:
        found = await self.api.get(f"{PODS}/{name}")
        return str(found["spec"].get("nodeName", ""))

    async def until_bound(self, *names: str) -> None:
        for name in names:
            await until(partial(self.node_of, name), within_s=10)

    async def bound_pod(self, name: str, count: int) -> None:
        await self.pod(name, count)
        await self.until_bound(name)

    async def until_event(self, name: str, reason: str) -> str:
        async def told() -> list[str]:
            return [
                event["message"]
                for event in await self.api.items("/api/v1/namespaces/default/events")
                if (event["involvedObject"]["name"], event["reason"]) == (name, reason)
            ]

        return (await until(told, within_s=10))[0]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(api_server())
        client = ApiClient(server.url, "user:admin")
        api = await stack.enter_async_context(client)
        made = World(api, server, stack)
        await stack.enter_async_context(made.extender.serving())
        yield made


async def test_two_nodes_are_filtered_scored_and_the_better_one_is_bound(
    world: World,
) -> None:
    await world.nodes(8, 8, 8)
    world.extender.scores = {"node1": 1, "node2": 9, "node3": 0}
    await world.loop()

    await world.bound_pod("a", 1)

    assert await world.node_of("a") == "node2"
    assert world.extender.verbs("a") == ["filter", "prioritize", "bind"]
    told = await world.until_event("a", "Scheduled")
    assert told == "Successfully assigned default/a to node2"


async def test_one_node_that_is_left_is_not_scored(world: World) -> None:
    await world.nodes(8, 8)
    world.extender.filter = lambda _: {"NodeNames": ["node2"], "FailedNodes": {}}
    await world.loop()

    await world.bound_pod("a", 1)

    assert world.extender.verbs("a") == ["filter", "bind"]


async def test_the_next_filter_goes_out_before_the_last_bind_has_answered(
    world: World,
) -> None:
    await world.nodes(2)
    world.extender.open.clear()
    loop = await world.loop()
    for name in ("a", "b", "c"):
        await world.pod(name, 1)
    await world.until_event("c", "FailedScheduling")

    # Two binds hang, and yet both pods count: there is no room for the third.
    assert loop.overlaps == 1
    assert [step.kind for step in loop.trace if step.pod == "default/c"] == [
        "unschedulable"
    ]
    world.extender.open.set()
    await world.until_bound("a", "b")


async def test_only_nodes_with_room_by_count_are_offered(world: World) -> None:
    await world.nodes(8, 0, 4)
    await world.loop()

    await world.bound_pod("a", 8)

    assert world.extender.asked[0][1]["NodeNames"] == ["node1"]


async def test_pods_without_the_resource_are_bound_without_the_extender(
    world: World,
) -> None:
    await world.nodes(8)
    await world.loop()

    await world.bound_pod("plain", 0)

    assert world.extender.asked == []


async def test_the_event_of_a_pod_that_fits_nowhere_counts_nodes_by_reason(
    world: World,
) -> None:
    await world.nodes(8, 8, 0)
    world.extender.filter = lambda _: {
        "NodeNames": [],
        "FailedNodes": {"node1": "no HCCS ring has 4 free chips"},
        "FailedAndUnresolvableNodes": {"node2": "no HCCS ring has 4 free chips"},
    }
    await world.loop()

    await world.pod("a", 4)

    assert await world.until_event("a", "FailedScheduling") == (
        "0/3 nodes are available: 1 Insufficient huawei.com/Ascend910, "
        "2 no HCCS ring has 4 free chips. preemption: 0/3 nodes are available: "
        "1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )

    async def marked() -> bool:
        pod = await world.api.get(f"{PODS}/a")
        return [
            (one["type"], one["status"], one["reason"])
            for one in pod["status"].get("conditions", [])
        ] == [("PodScheduled", "False", "Unschedulable")]

    await until(marked)


async def test_an_unschedulable_pod_is_tried_again_when_a_node_changes(
    world: World,
) -> None:
    await world.nodes(0)
    await world.loop()
    await world.pod("a", 4)
    await world.until_event("a", "FailedScheduling")

    await world.api.patch_status(
        "/api/v1/nodes/node1",
        {"status": {"allocatable": {CHIPS: "8"}, "capacity": {CHIPS: "8"}}},
    )

    await world.until_bound("a")


async def test_an_unschedulable_pod_is_tried_again_when_another_goes(
    world: World,
) -> None:
    await world.nodes(8)
    await world.loop()
    await world.bound_pod("a", 8)
    await world.pod("b", 8)
    await world.until_event("b", "FailedScheduling")

    await world.api.delete(f"{PODS}/a", grace_s=0)

    await world.until_bound("b")


async def test_a_bind_that_is_refused_is_an_event_and_is_tried_again(
    world: World,
) -> None:
    await world.nodes(8)
    refusals = ["chips were taken meanwhile"]
    bind = world.extender.bind

    async def refuse_once(body: Body) -> Body:
        return {"Error": refusals.pop()} if refusals else await bind(body)

    world.extender.bind = refuse_once
    await world.loop()

    await world.bound_pod("a", 8)

    told = await world.until_event("a", "FailedScheduling")
    assert told == "chips were taken meanwhile"
    assert world.extender.verbs("a") == ["filter", "bind", "filter", "bind"]


async def test_a_bind_that_takes_too_long_is_given_up(world: World) -> None:
    await world.nodes(8)
    world.extender.open.clear()
    await world.loop(http_timeout_s=0.1)

    await world.pod("a", 8)

    assert await world.until_event("a", "FailedScheduling") == (
        f'Post "{world.extender.url}/bind": context deadline exceeded '
        "(Client.Timeout exceeded while awaiting headers)"
    )
    world.extender.open.set()
    await world.until_bound("a")


async def test_an_error_of_filter_fails_the_attempt(world: World) -> None:
    await world.nodes(8)
    answers = [{"Error": "caches are not synced"}]
    usual = world.extender.filter
    world.extender.filter = lambda body: answers.pop() if answers else usual(body)
    await world.loop()

    await world.pod("a", 1)

    told = await world.until_event("a", "FailedScheduling")
    assert told == "caches are not synced"
    await world.until_bound("a")


async def test_a_node_that_was_not_offered_is_an_error(world: World) -> None:
    await world.nodes(8)
    world.extender.filter = lambda _: {"NodeNames": ["nowhere"]}
    await world.loop()

    await world.pod("a", 1)

    assert await world.until_event("a", "FailedScheduling") == (
        f'extender "{world.extender.url}" claims a filtered node "nowhere" '
        "which is not found in the input node list"
    )


async def test_without_a_node_cache_whole_nodes_go_both_ways(world: World) -> None:
    await world.nodes(8, 8)

    def first(body: Body) -> Body:
        return {"Nodes": {"items": body["Nodes"]["items"][:1]}}

    world.extender.filter = first
    await world.loop(node_cache_capable=False)

    await world.bound_pod("a", 1)

    verb, body = world.extender.asked[0]
    assert (verb, body["NodeNames"]) == ("filter", None)
    names = [item["metadata"]["name"] for item in body["Nodes"]["items"]]
    assert sorted(names) == ["node1", "node2"]


async def test_a_whole_api_outage_is_survived(world: World) -> None:
    await world.nodes(8)
    await world.loop()
    await world.bound_pod("a", 1)

    await world.server.pause()
    await asyncio.sleep(0)
    await world.server.resume()
    await world.pod("b", 1)

    await world.until_bound("b")


@pytest.mark.parametrize(
    ("recorded", "verb", "node_cache_capable"),
    [
        ("filter-names", "filter", True),
        ("prioritize-names", "prioritize", True),
        ("bind", "bind", True),
        ("filter-nodes", "filter", False),
        ("prioritize-nodes", "prioritize", False),
    ],
)
async def test_bodies_have_the_recorded_ones_keys(
    world: World, recorded: str, verb: str, *, node_cache_capable: bool
) -> None:
    await world.nodes(8, 8, 8)
    world.extender.filter = lambda body: body
    await world.loop(node_cache_capable=node_cache_capable)

    await world.bound_pod("a1", 1)

    expected = json.loads((RECORDED / f"kube-scheduler-{recorded}.json").read_text())
    asked = dict(world.extender.asked)[verb]
    assert _outline(asked) == _outline(expected)


def _outline(body: Body) -> object:
    """The body without what differs between any two clusters."""
    outline: dict[str, object] = dict.fromkeys(body)
    if isinstance(body.get("NodeNames"), list):
        outline["NodeNames"] = sorted(body["NodeNames"])
    if body.get("Nodes"):
        nodes = body["Nodes"]
        names = sorted(item["metadata"]["name"] for item in nodes["items"])
        kinds = {key for item in nodes["items"] for key in item}
        outline["Nodes"] = (nodes["metadata"], names, sorted(kinds))
    if body.get("Pod"):
        containers = body["Pod"]["spec"]["containers"]
        outline["Pod"] = (sorted(body["Pod"]), containers[0]["resources"])
    return outline


async def test_a_pod_with_gates_waits_until_they_are_gone(world: World) -> None:
    await world.nodes(8)
    await world.pod("gated", 1, CHIPS, "example.com/gate")
    await world.pod("other", 1)
    await world.loop()

    await world.until_bound("other")
    before = await world.node_of("gated")
    await world.api.patch(f"{PODS}/gated", {"spec": {"schedulingGates": []}})
    await world.until_bound("gated")

    assert before == ""
