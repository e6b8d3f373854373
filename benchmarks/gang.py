"""A job of 5,000 pods on 5,000 nodes, from its plan to its last bind.

The extender is the real program, its API server a process of its own, and this process
is the scheduler: it asks filter once, as for the first of the pods, and then sends a
bind for each of them; those wait until the last has come. Beside it the same binds
without an extender: sent by the extender's own client to such an API server, as many
at once as the extender sends.

Twice: with the sandbox's API server, which checks, stores and shows what it is told, as
Kubernetes' does, though not as thoroughly; and with one that says yes and nothing else.
"""

import asyncio
import json
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median

from benchmarks.deployed import (
    PREPARED,
    STORED,
    Extender,
    api_server,
    ask,
    extender,
    filter_body,
)
from benchmarks.population import Population, member_name, node_name, uid_of
from benchmarks.table import Row
from extender.kube_scheduler.binder import AT_ONCE
from kube import pods
from kube.client import Client
from kube.credentials import from_url
from kube.objects import Meta
from service import clock

NODES = 5_000
PODS = 5_000
_ROUNDS = 3
#: Filters beside the one that plans.
_OTHERS = 5
#: Of this permit: a job may have a hundred pods for each second.
_PERMIT_S = "120"
_NAMESPACE = "default"
#: By then the binds that were sent wait for their permit.
_ARRIVED_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round has shown."""

    #: by how much the filter that plans the job takes longer than others
    plan_ms: float
    #: from the last bind's being sent until the last was answered
    gate_s: float
    #: the same number of binds without an extender
    bare_s: float


def rows() -> list[Row]:
    """Measure. Takes two minutes."""
    stored = [measured(STORED, NODES, PODS) for _ in range(_ROUNDS)]
    prepared = [measured(PREPARED, NODES, PODS)]
    what = f"job of {PODS:,} pods on {NODES:,} nodes"
    plans_ms = [each.plan_ms for each in (*stored, *prepared)]
    plan_ms = median(plans_ms)
    ratio = _ratio(stored)
    return [
        Row(
            figure=f"{what}: what planning adds to a filter",
            goal="≤ 70 ms",
            value=f"{plan_ms:.0f} ms, the slowest of {len(plans_ms)} "
            f"{max(plans_ms):.0f} ms",
            passed=plan_ms <= 70,
        ),
        Row(
            figure=f"{what}: gate open to last bound, over bare binds",
            goal="≤ 1.45",
            value=f"{ratio:.2f} ({_shown(stored)})",
            passed=ratio <= 1.45,
        ),
        Row(
            figure=f"{what}: the same, API server that does nothing",
            goal="none",
            value=f"{_ratio(prepared):.2f} ({_shown(prepared)})",
            passed=True,
        ),
    ]


def _ratio(rounds: Sequence[Round]) -> float:
    return median(each.gate_s / each.bare_s for each in rounds)


def _shown(rounds: Sequence[Round]) -> str:
    return ", ".join(f"{each.gate_s:.2f} s over {each.bare_s:.2f} s" for each in rounds)


def waiting(nodes: int, members: int) -> Population:
    """A cluster whose chips are free, with a job that waits for all of a node each."""
    return Population(
        nodes=nodes, without=2, gang=members, reported_s=int(clock.wall_s())
    )


def measured(module: str, nodes: int, members: int) -> Round:
    """Bind a job twice: without an extender, then through one.

    Args:
        module: The API server; one that knows of no bind for each of the two.
        nodes: How many there are.
        members: How many pods the job has.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection each
    population = waiting(nodes, members)
    with api_server(population, module) as url:
        bare_s = asyncio.run(_bare(url, members))
    with api_server(population, module) as url, _ready(url) as one:
        plan_ms = _plan(one, population)
        gate_s = asyncio.run(_bind_all(one, _planned_nodes(one)))
    return Round(plan_ms=plan_ms, gate_s=gate_s, bare_s=bare_s)


def _ready(url: str) -> AbstractContextManager[Extender]:
    return extender(url, "--permit-s", _PERMIT_S)


async def _bare(api_url: str, members: int) -> float:
    """Seconds from the first bind to the last answer."""
    left = iter(range(members))

    async def bind(client: Client) -> None:
        for member in left:
            name = member_name(member)
            await pods.bind(
                client,
                Meta(namespace=_NAMESPACE, name=name, uid=uid_of(name)),
                node=node_name(member),
                annotations={},
            )

    async with Client(from_url(api_url)) as client:
        begun_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(bind(client))
        return time.perf_counter() - begun_s


def _plan(one: Extender, population: Population) -> float:
    """Milliseconds that the filter which plans the job takes longer than others."""
    names = [node_name(number) for number in range(population.nodes)]
    found = []
    for member in range(1 + _OTHERS):
        pod = json.loads(population.waiting(member))
        body = filter_body(pod, names)
        begun_s = time.perf_counter()
        _, answer = ask(one.address, "POST", "/filter", body)
        found.append((time.perf_counter() - begun_s) * 1000)
        text = json.loads(answer)
        assert len(text["NodeNames"] or ()) == 1, text
    return found[0] - median(found[1:])


def _planned_nodes(one: Extender) -> Mapping[str, str]:
    """{pod: node} of the whole job."""
    path = f"/v1/explain/{_NAMESPACE}/{member_name(0)}"
    plan: Mapping[str, str] = json.loads(ask(one.address, "GET", path)[1])["job_plan"]
    return plan


class _Call(asyncio.Protocol):
    """One bind of the scheduler's, over a connection of its own."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._got = b""
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(
            b"POST /bind HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(self._body), self._body)
        )

    def data_received(self, data: bytes) -> None:
        self._got += data

    def connection_lost(self, _error: Exception | None) -> None:
        self.answer.set_result(self._got.partition(b"\r\n\r\n")[2])


async def _bind_all(one: Extender, nodes: Mapping[str, str]) -> float:
    """Seconds from the last bind's being sent until the last was answered."""
    *bodies, last = [_bind_body(name, node) for name, node in nodes.items()]
    calls = [await _sent(one, body) for body in bodies]
    await asyncio.sleep(_ARRIVED_S)
    sent_s = time.perf_counter()
    calls.append(await _sent(one, last))
    answers = await asyncio.gather(*(call.answer for call in calls))
    took_s = time.perf_counter() - sent_s
    _check(answers)
    return took_s


async def _sent(one: Extender, body: bytes) -> _Call:
    node_info, _, port = one.address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, call = await loop.create_connection(lambda: _Call(body), node_info, int(port))
    return call


def _bind_body(name: str, node: str) -> bytes:
    return json.dumps(
        {
            "PodName": name,
            "PodNamespace": _NAMESPACE,
            "PodUID": uid_of(name),
            "Node": node,
        }
    ).encode()


def _check(answers: Sequence[bytes]) -> None:
    refused = {text for body in answers if (text := json.loads(body)["Error"])}
    assert not refused, refused
