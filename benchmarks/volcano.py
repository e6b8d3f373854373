"""What Volcano's predicate costs: a call for each task and node, 16 at a time.

The extender's own server in a process of its own, and a cluster of 1,000 nodes in which
a job of 64 whole nodes waits. The bodies are recorded ones, with the names of these
nodes and pods in them. Volcano asks for task after task, of each for every node; the
clock runs for each call from its first byte to the last of its answer.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import psutil
from prometheus_client import CollectorRegistry

from benchmarks.cached import learn
from benchmarks.deployed import served
from benchmarks.table import Row, percentile
from extender.cache import decode, events
from extender.cache.cache import Cache
from extender.cache.reservations import Owner
from extender.clocks import Clock
from extender.dispatch import Dispatcher, Router, ignore
from extender.gang.membership import SizeSource
from extender.gang.size import Size, whole
from extender.metrics import Metrics
from extender.planning.job_calls import JobCalls
from extender.planning.planner import Planner
from extender.scheduling.decisions import LastDecisions
from extender.volcano.claims import ClaimWriter
from extender.volcano.podgroup_conditions import PodGroupConditions
from extender.volcano.protocol import pod_of, predicate_args
from extender.volcano.sessions import Sessions
from extender.volcano.verbs import Parts, VolcanoVerbs
from kube import objects
from kube.podgroups import Condition
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from scheduler_core.wire.pods import NpuPod
from service import clock, gc_freeze
from service.endpoints import Endpoints

_BODIES = Path(__file__).parents[1] / "tests" / "extender" / "bodies"
_NODES = 1_000
_TASKS = 64
_PARALLEL = 16
_CALLS = 20_000
_WARM_UP = 1_000
_HEAD = b"POST /volcano/predicate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


def rows() -> list[Row]:
    """Measure. Takes about ten seconds."""
    with served("benchmarks.volcano") as (address, process):
        node_info, _, port = address.rpartition(":")
        samples, took_s, spent_s = asyncio.run(_measure(node_info, int(port), process))
    rate, spent_us = len(samples) / took_s, spent_s / len(samples) * 1e6
    p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
    what = f"Volcano predicate, {_PARALLEL} in parallel, recorded bodies"
    return [
        Row(
            figure=f"{what}: calls a second",
            goal="≥ 4,000",
            value=f"{rate:,.0f} ({spent_us:.0f} µs of processor time each)",
            passed=rate >= 4_000,
        ),
        Row(
            figure=f"{what}: time",
            goal="p50 ≤ 4 ms, p99 ≤ 12 ms",
            value=f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
            passed=p50 <= 4 and p99 <= 12,
        ),
    ]


def _bodies() -> list[bytes]:
    """A session's questions, as whole requests: task by task, node by node."""
    recorded = (_BODIES / "volcano-predicate-1.json").read_bytes().strip()
    args = predicate_args(recorded)
    found = []
    for count in range(_CALLS // _NODES):
        for name in _names():
            body = recorded.replace(args.task.uid.encode(), _uid(count).encode())
            body = body.replace(b'"Name":"node3"', b'"Name":"%b"' % name.encode())
            found.append(_HEAD % len(body) + body)
    return found


class _Caller(asyncio.Protocol):
    """One of Volcano's connections: a question after the other."""

    def __init__(self, bodies: Iterator[bytes], samples: list[float]) -> None:
        self._bodies = bodies
        self._samples = samples
        self._transport: asyncio.Transport | None = None
        self._got = b""
        self._start = 0.0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        if len(body) >= length:
            self._samples.append((perf_counter() - self._start) * 1000)
            self._got = b""
            self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        body = next(self._bodies, None)
        if body is None:
            self._transport.close()
            self.done.set_result(None)
            return
        self._start = perf_counter()
        self._transport.write(body)


async def _measure(
    node_info: str, port: int, process: psutil.Process
) -> tuple[list[float], float, float]:
    """Milliseconds of each call, seconds of all, and the server's processor time."""
    bodies = _bodies()
    await _ask(node_info, port, bodies[:_WARM_UP])
    before_s = sum(process.cpu_times()[:2])
    samples, took_s = await _ask(node_info, port, bodies)
    return samples, took_s, sum(process.cpu_times()[:2]) - before_s


async def _ask(
    node_info: str, port: int, bodies: Sequence[bytes]
) -> tuple[list[float], float]:
    left = iter(bodies)
    samples: list[float] = []
    loop = asyncio.get_running_loop()
    start = perf_counter()
    callers = [
        await loop.create_connection(lambda: _Caller(left, samples), node_info, port)
        for _ in range(_PARALLEL)
    ]
    await asyncio.gather(*(caller.done for _, caller in callers))
    return samples, perf_counter() - start


class _NoApi:
    """A world that predicate asks nothing of."""

    async def size(self, told: SizeSource) -> Size | str:
        return told.kind

    async def remove(self, pod: NpuPod) -> None: ...

    def tell(
        self, pod: NpuPod, reason: str, text: str, *, is_warning: bool = True
    ) -> None: ...

    def wake(self) -> None: ...

    async def mark(self, pod: NpuPod, annotations: object) -> None: ...

    async def read(self, *_: object) -> tuple[str, Sequence[Condition]]:
        return "1", ()

    async def write(self, *_: object) -> None: ...


async def _serve() -> None:
    cache = _cluster()
    registry = CollectorRegistry()
    wall = Clock(now_s=clock.wall_s, now_ns=clock.wall_ns)
    dispatcher = Dispatcher(cache, wall)
    apply = dispatcher.apply
    job_calls = JobCalls(cache, apply, _NoApi())
    metrics = Metrics(registry)
    planner = Planner(
        cache,
        apply,
        clock=wall,
        request_size=job_calls.request_size,
        metrics=metrics,
        open_files=1 << 20,
    )
    volcano = VolcanoVerbs(
        Parts(
            cache=cache,
            apply=apply,
            sessions=Sessions(cache, apply, planner, wall),
            marks=ClaimWriter(_NoApi().mark),
            groups=PodGroupConditions(_NoApi(), wall),
            notes=LastDecisions(),
            metrics=metrics,
            clock=wall,
            tell=lambda *_: None,
        ),
        lambda: None,
    )
    dispatcher.connect(
        Router(
            permits=ignore,
            job_calls=job_calls.carry_out,
            waker=ignore,
            owners={Owner.PLAN: planner.carry_out, Owner.VOLCANO: volcano.carry_out},
        ).carry_out
    )
    endpoints = Endpoints(registry, lambda: None, routes=volcano.routes())
    async with endpoints.serving("127.0.0.1:0") as address:
        gc_freeze.freeze_live_objects()  # as the extender after a sync
        print(address, flush=True)
        await asyncio.Event().wait()


def _cluster() -> Cache:
    cache = Cache()
    now_s = clock.wall_s()
    told = DeviceInfo(available=tuple(range(8)), update_time=int(now_s))
    for name in _names():
        learn(cache, name, told, Affinity(sequence=1))
    for number in range(_TASKS):
        cache.step(_pod(number), now_s)
    job = cache.job_of(_uid(0))
    cache.step(events.SizeRead(job=job, size=whole(_TASKS)), now_s)
    return cache


def _pod(number: int) -> events.Change:
    """The recorded pod, as one of the job's."""
    recorded = (_BODIES / "volcano-predicate-1.json").read_bytes()
    pod = json.loads(bytes(predicate_args(recorded).task.pod))
    pod["metadata"] |= {"name": f"g1-{number}", "uid": _uid(number)}
    return decode.pod_change(_decoded(json.dumps(pod).encode()))


def _decoded(pod: bytes) -> objects.Pod:
    body = b'{"task":{"UID":"u","Pod":%b},"node":{"Name":"n"}}' % pod
    return pod_of(predicate_args(body).task)


def _uid(number: int) -> str:
    return f"5f4c6be2-2a71-4669-928c-{number:012}"


def _names() -> list[str]:
    return [f"node-{index:05}.cluster.example" for index in range(_NODES)]


if __name__ == "__main__":
    asyncio.run(_serve())
