"""What the agent needs does not answer: the whole agent, and each way to be told.

The driver, the API server, the kubelet's pod-resources and the disk of the journal;
`agent.observe.problems` has the table, and its test each row.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from agent.observe.problems import Need as ApiNeed
from agent.observe.problems import Row, Subject
from agent.status.socket import NAME
from sandbox.apiserver.outages import READS, WRITES, Trouble, What
from scheduler_core.wire.annotations import ASCEND_REAL, PREDICATE_TIME, SERVED
from tests.agent.site import NODE, RESOURCE, Site, page_of, running_site
from tests.agent.test_pod_resources_silent import Relay
from tests.support.objects import NODES, PODS
from tests.support.until import until

# fifteen seconds of silence are waited for, many times
pytestmark = pytest.mark.long


class Node:
    """A node whose agent asks for each thing that it needs in a way that can fail."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.relay = Relay(site.kubelet.pod_resources_socket)
        # no file can be made where these are
        self._taken = [site.root / f"holds.tmp-{number}" for number in range(500)]
        self._driver_file = site.root / "npu.yaml"
        self._chips = self._driver_file.read_text()
        self._answer_api: Callable[[], None] = lambda: None

    def break_driver(self) -> None:
        self._driver_file.write_text("product: [")

    def mend_driver(self) -> None:
        self._driver_file.write_text(self._chips)

    def break_api_server(self) -> None:
        self._answer_api = self.site.troubles.begin(
            Trouble(what=What.REFUSED, status=503, user="*ascend-agent")
        )

    def mend_api_server(self) -> None:
        self._answer_api()

    def break_pod_resources(self) -> None:
        self.relay.fall_silent()

    def mend_pod_resources(self) -> None:
        self.relay.answer()

    def break_journal(self) -> None:
        for path in self._taken:
            path.mkdir()

    def mend_journal(self) -> None:
        for path in self._taken:
            path.rmdir()

    def fail(self, need: str) -> None:
        getattr(self, f"break_{need}")()

    def mend(self, need: str) -> None:
        getattr(self, f"mend_{need}")()

    async def readiness(self) -> str:
        return await page_of(self.site.root / "address", "readyz")

    async def status(self) -> dict[str, Any]:
        reader, writer = await asyncio.open_unix_connection(self.site.root / NAME)
        try:
            found: dict[str, Any] = json.loads(await reader.read())
        finally:
            writer.close()
        return found

    async def metric(self, name: str) -> str:
        page = await page_of(self.site.root / "address", "metrics")
        found = dict(line.rsplit(" ", 1) for line in page.splitlines() if line)
        return found.get(f"ascend_agent_{name}", "")

    async def until_ready(self, words: str = "ok") -> str:
        return await until(self.readiness, lambda page: words in page, within_s=60.0)


@dataclass(frozen=True)
class Need:
    """How it is told that one thing does not answer."""

    #: row with the status and the metric, and row with readiness and events
    now: Row
    lasting: Row
    #: in each sentence
    words: str
    #: same from the start of the agent
    at_start: Row

    async def expect_told(self, node: Node, row: Row) -> None:
        page = await node.until_ready(self.words)
        found = await node.status()
        assert row.ready.partition("{")[0] in page
        # what was asked last can differ between the two looks
        sentence = page.partition(": ")[0]
        assert (sentence, self.words in found["waitingFor"]) == (
            found["waitingFor"].partition(": ")[0],
            True,
        )
        assert self.words in found[self.now.status]
        assert await node.metric(self.now.gauge[0]) == "1.0"

    async def expect_taken_back(self, node: Node, row: Row) -> None:
        await node.until_ready()
        found = await node.status()
        assert (found["waitingFor"], found[self.now.status]) == (None, None)
        assert await node.metric(self.now.gauge[0]) == "0.0"
        for reason in row.events:
            (event,) = await until(lambda: node.site.events(reason), within_s=60.0)  # noqa: B023
            assert event.get("count", 1) == 1


def _need(now: Subject, lasting: Subject, words: str, at_start: Subject) -> Need:
    return Need(now.value, lasting.value, words, at_start.value)


NEEDS = {
    "driver": _need(Subject.DRIVER, Subject.READINGS, "npu.yaml", Subject.START),
    "api_server": _need(*(2 * (Subject.API_SERVER,)), "503", Subject.API_SERVER),
    "pod_resources": _need(
        *(2 * (Subject.POD_RESOURCES,)), "pod-resources", Subject.POD_RESOURCES
    ),
    "journal": _need(*(2 * (Subject.JOURNAL,)), "holds", Subject.JOURNAL),
}

each_need = pytest.mark.parametrize("need", NEEDS)


@asynccontextmanager
async def serving() -> AsyncIterator[Node]:
    """A node with a pod that has chips."""
    told = ("{root}/relay.sock", "--address-file", "{root}/address")
    async with running_site("--pod-resources-socket", *told, starts=False) as site:
        node = Node(site)
        server = await asyncio.start_unix_server(
            node.relay.serve, site.root / "relay.sock"
        )
        site.start_agent()
        await site.until_allocatable()
        await site.serve("before")
        await node.until_ready()
        try:
            yield node
        finally:
            await site.stop_agent()
            node.relay.hang_up()
            server.close()


@each_need
async def test_what_stops_answering_is_told_in_each_way_and_taken_back(
    need: str,
) -> None:
    async with serving() as node:
        node.fail(need)
        assert await node.site.bind("during", 2)
        await NEEDS[need].expect_told(node, NEEDS[need].lasting)
        node.mend(need)
        await NEEDS[need].expect_taken_back(node, NEEDS[need].lasting)
        await node.site.until_phase("during", "Running")
        await node.site.settle()


@each_need
async def test_what_does_not_answer_from_the_start_is_told_in_each_way(
    need: str,
) -> None:
    async with serving() as node:
        mounted = node.site.mounted()
        await node.site.stop_agent()
        await node.site.until_allocatable(0)
        node.fail(need)
        node.site.start_agent()
        await NEEDS[need].expect_told(node, NEEDS[need].at_start)
        node.mend(need)
        await NEEDS[need].expect_taken_back(node, NEEDS[need].at_start)
        await node.site.settle()
        assert node.site.mounted() == mounted


async def test_all_that_stop_answering_at_once_are_told_and_taken_back_one_by_one() -> (
    None
):
    order = ["driver", "api_server", "pod_resources", "journal"]
    async with serving() as node:
        for need in reversed(order):
            node.fail(need)
        assert await node.site.bind("during", 2)
        statuses = [NEEDS[need].now.status for need in order]
        await until(
            node.status,
            lambda found: all(found[key] for key in statuses),
            within_s=60.0,
        )
        said = []
        for number, need in enumerate(order):
            said.append(NEEDS[need].words in await node.until_ready(NEEDS[need].words))
            found = await node.status()
            assert [bool(found[key]) for key in statuses] == [
                each >= number for each in range(len(order))
            ]
            node.mend(need)
        for need in order:
            await NEEDS[need].expect_taken_back(node, NEEDS[need].lasting)
        assert said == [True] * len(order)
        await node.site.settle()


WATCHES = [ApiNeed.PODS, ApiNeed.NODES, ApiNeed.REPORTS, ApiNeed.FAULT_CONFIG]
#: {requests of the agent that fail while all others are answered: (verbs, resource,
#: status, what it needs and does not get)}
PARTS = {
    "watch of pods, refused": (frozenset({"watch"}), "pods", 403, [ApiNeed.PODS]),
    "watch of pods, silent": (frozenset({"watch"}), "pods", 503, [ApiNeed.PODS]),
    "reads, refused": (READS, "*", 403, WATCHES),
    # an event that is refused is dropped
    "writes, refused": (WRITES, "[!e]*", 403, [ApiNeed.ANNOTATIONS, ApiNeed.MARKS]),
    "writes, silent": (
        WRITES,
        "*",
        503,
        [ApiNeed.ANNOTATIONS, ApiNeed.MARKS, ApiNeed.REPORT, ApiNeed.EVENTS],
    ),
}


@pytest.mark.parametrize("part", PARTS)
async def test_a_part_of_its_needs_that_is_not_met_is_told_in_each_way(
    part: str,
) -> None:
    verbs, resource, status, needs = PARTS[part]
    row = (Subject.API_ACCESS if status == 403 else Subject.API_SERVER).value

    def text_of(need: ApiNeed, said: dict[str, Any]) -> str:
        is_event = need is ApiNeed.EVENTS
        return said["eventsProblem" if is_event else row.status] or ""

    async with serving() as node:
        site = node.site
        await site.stop_agent()
        await site.until_allocatable(0)
        unmarked = {"metadata": {"labels": {"accelerator": None}}}
        await site.api.patch(f"{NODES}/{NODE}", unmarked)
        mend = site.troubles.begin(
            Trouble(
                what=What.REFUSED,
                verbs=verbs,
                user="*ascend-agent",
                resource=resource,
                status=status,
            )
        )
        site.start_agent()
        await site.until_allocatable()
        if verbs == WRITES:
            assert await site.bind("during", 2)
            await site.until_phase("during", "Running")
        found = await until(
            node.status,
            lambda said: all(need.value[1] in text_of(need, said) for need in needs),
            within_s=90.0,
        )
        page = await node.readiness()
        gauge = await node.metric(row.gauge[0])
        mend()
        await node.until_ready()
        after = await node.status()
        events = [
            await until(lambda: site.events(reason), within_s=60.0)  # noqa: B023
            for reason in row.events
        ]

    told = [need for need in ApiNeed if f"{need.value[1]} " in text_of(need, found)]
    assert (page, told) == (found["waitingFor"], needs)
    assert all(str(status) in text_of(need, found) for need in needs)
    assert [need.value[0] in text_of(need, found) for need in needs] == (
        [status == 403] * len(needs)
    )
    assert gauge == "1.0"
    assert (after["waitingFor"], after[row.status]) == (None, None)
    assert [[event.get("count", 1) for event in found_] for found_ in events] == [
        [1],
        [1],
    ]


async def test_events_that_fail_alone_are_told_and_the_agent_is_ready() -> None:
    """A webhook of events that was away made the agent not ready."""
    async with serving() as node:
        mend = node.site.troubles.begin(
            Trouble(what=What.REFUSED, verbs=WRITES, resource="events", status=500)
        )
        await node.site.separate("Ascend910-7")  # it is told by an event
        found = await until(
            node.status, lambda said: said["eventsProblem"], within_s=60.0
        )
        ready = await node.readiness()
        gauge = await node.metric("api_server_unanswered")
        mend()
        after = await until(
            node.status, lambda said: not said["eventsProblem"], within_s=60.0
        )
        await until(lambda: node.site.events("NpuSeparated"), within_s=60.0)

    assert (ready, gauge, found["waitingFor"]) == ("ok", "1.0", None)
    assert found["eventsProblem"].startswith("events are not written (POST ")
    assert (found["apiServerProblem"], after["waitingFor"]) == (None, None)


#: Bytes of annotations with which a pod can be bound, and not annotated any more.
FILLED = 256 * 1024 - 150


async def test_a_pod_whose_annotations_are_refused_is_told_and_the_agent_is_ready() -> (
    None
):
    """Anybody who could make a pod could make the agent of its node not ready."""
    async with serving() as node:
        site, row = node.site, Subject.POD_ANNOTATIONS.value
        large = site.pod("large", 2)
        large["metadata"]["annotations"] = {"filler": "x" * FILLED}
        claim = {RESOURCE: "Ascend910-6,Ascend910-7"}
        await site.bind_to(large, claim)
        await site.until_phase("large", "Running")
        (event,) = await until(lambda: site.events(row.events[0]), within_s=60.0)
        ready, found = await node.readiness(), await node.status()
        gauge = await node.metric(row.gauge[0])
        assert await site.bind("after", 2)
        await site.until_phase("after", "Running")
        written = await site.until(
            lambda: site.api.get(f"{PODS}/after"),
            lambda made: ASCEND_REAL in made["metadata"]["annotations"],
        )
        await site.api.delete(f"{PODS}/large")
        after = await until(
            node.status, lambda said: not said["apiAccessProblem"], within_s=60.0
        )
        mended = await node.metric(row.gauge[0])

    about = event["involvedObject"]
    assert (about["kind"], about["name"]) == ("Pod", "large")
    assert "metadata.annotations: Too long" in event["message"]
    assert found["apiAccessProblem"] == event["message"]
    assert (ready, found["waitingFor"], gauge) == ("ok", None, "1.0")
    assert written["metadata"]["annotations"][PREDICATE_TIME] == str(SERVED)
    assert (after["waitingFor"], mended) == (None, "0.0")
