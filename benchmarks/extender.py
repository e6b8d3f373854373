"""What a filter costs the scheduler: node names out and back, over loopback.

The extender's own server and cache in a process of its own, as a scheduler meets it:
5,000 nodes of random occupancy, one in ten with a chip that is not healthy; 1,000 of
them with pods that wait for their chips. Fifty calls a second, so that neither side
is warm from the one before. The clock runs from the first byte sent to the last byte
received; the scheduler's own decoding is not in it.
"""

import asyncio
import http.client
import json
import random  # noqa: TID251  # seeded: the same cluster in every run
from collections.abc import Sequence
from math import inf

from aiohttp import web
from prometheus_client import CollectorRegistry

from benchmarks.cached import learn
from benchmarks.deployed import filter_body, served
from benchmarks.pace import paced
from benchmarks.table import Row, percentile
from extender.apiserver.wake import SchedulerWaker
from extender.apiserver.writers import KubeJobs, KubePods
from extender.cache.cache import Cache
from extender.cache.reservations import Claim, Owner, Reservation
from extender.clocks import Clock
from extender.dispatch import Dispatcher, Router
from extender.kube_scheduler.binder import Binder
from extender.kube_scheduler.verbs import KubeSchedulerVerbs
from extender.metrics import Metrics
from extender.planning.job_calls import JobCalls
from extender.planning.permits import BindPermits
from extender.planning.planner import Planner
from extender.scheduling.decisions import LastDecisions
from kube import credentials
from kube.client import Client
from kube.events import Recorder
from scheduler_core.node import chips
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from scheduler_core.wire.shapes import ContainerKind, Shape
from service import clock, gc_freeze
from service.endpoints import Endpoints

_NODES = 5_000
_WAITING = 1_000
_SAMPLES = 1_000
_WARM_UP = 50
#: calls a second
RATE = 50
#: {names: p99 that is the goal, in milliseconds}
_GOALS = {1_000: 2.5, 5_000: 5}
_NOBODY = "http://127.0.0.1:9"  # filter asks no API server


def rows() -> list[Row]:
    """Measure. Takes a minute and a half."""
    found: list[Row] = []
    with served("benchmarks.extender") as (address, _):
        for size, goal in _GOALS.items():
            # of all, not the first: those are the ones with pods that wait
            names = _names()[:: _NODES // size]
            for count, what in ((1, "some nodes fit"), (8, "hardly any fits")):
                samples = filters(address, names, count)
                p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
                found.append(
                    Row(
                        figure=f"extender filter, {size:,} names, {what}, "
                        f"{RATE} a second",
                        goal=f"p99 ≤ {goal:g} ms",
                        value=f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
                        passed=p99 <= goal,
                    )
                )
    return found


def filters(
    address: str, names: Sequence[str], count: int, *, calls: int = _SAMPLES
) -> list[float]:
    """Milliseconds of each call, over one connection, as the scheduler keeps it.

    Args:
        address: Of an extender.
        names: What it is offered.
        count: Chips that the pod asks for.
        calls: How many calls, after some for warming up.
    """
    body = filter_body(pod_for(count), names)
    connection = http.client.HTTPConnection(address)

    def ask() -> bytes:
        connection.request("POST", "/filter", body)
        return connection.getresponse().read()

    _check(ask(), names)
    for _ in range(_WARM_UP):
        ask()
    samples = paced(ask, rate=RATE, calls=calls)
    connection.close()
    return samples


def _check(answer: bytes, names: Sequence[str]) -> None:
    """Check that some of the nodes fit, or that each has a reason."""
    found = json.loads(answer)
    failed = (found["FailedNodes"] or {}) | (found["FailedAndUnresolvableNodes"] or {})
    assert not found["Error"], found["Error"]
    fitting = set(found["NodeNames"] or ())
    assert fitting <= set(names)
    assert fitting or failed.keys() == set(names)


def pod_for(count: int) -> dict[str, object]:
    """A pod that asks for so many chips, as a scheduler sends it."""
    limits = {PRODUCT.resource: str(count)}
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": "Pending"},
    }


def _names() -> list[str]:
    return [f"node-{index:05}.cluster.example" for index in range(_NODES)]


async def _serve() -> None:
    cache = _cluster()
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    wall = Clock(now_s=clock.wall_s, now_ns=clock.wall_ns)
    async with Client(credentials.from_url(_NOBODY)) as client:
        recorder = Recorder(client, component="benchmark")
        waker = SchedulerWaker(_no_mark)
        jobs = KubeJobs(client, recorder, waker, metrics)
        dispatcher = Dispatcher(cache, wall)
        apply = dispatcher.apply
        job_calls = JobCalls(cache, apply, jobs)
        permits = BindPermits(cache, apply, clock=wall, metrics=metrics)
        planner = Planner(
            cache,
            apply,
            clock=wall,
            request_size=job_calls.request_size,
            metrics=metrics,
            open_files=1 << 20,
        )
        binder = Binder(
            cache,
            apply,
            KubePods(client),
            wait=permits.wait,
            clock=wall,
            metrics=metrics,
            on_bound=lambda *_: None,
        )
        dispatcher.connect(
            Router(
                permits=permits.carry_out,
                job_calls=job_calls.carry_out,
                waker=waker.carry_out,
                owners={Owner.PLAN: planner.carry_out, Owner.BIND: binder.carry_out},
            ).carry_out
        )
        server = KubeSchedulerVerbs(
            cache,
            binder,
            planner=planner,
            notes=LastDecisions(),
            metrics=metrics,
            clock=wall,
            why_not_ready=lambda: None,
            on_refused=lambda: None,
        )
        routes: list[web.RouteDef] = server.routes()
        endpoints = Endpoints(registry, lambda: None, routes=routes)
        async with endpoints.serving("127.0.0.1:0") as address:
            gc_freeze.freeze_live_objects()  # as the extender after a sync
            print(address, flush=True)
            await asyncio.Event().wait()


async def _no_mark(_node: str) -> None:
    """Nobody waits for it."""


def _cluster() -> Cache:
    chance = random.Random(_NODES)  # noqa: S311  # no secret is made
    cache = Cache()
    now_s = clock.wall_s()
    for index, name in enumerate(_names()):
        unhealthy = (chance.randrange(8),) if chance.random() < 0.1 else ()
        held = chips.ids_of(chance.randrange(PRODUCT.all_chips + 1))
        told = DeviceInfo(unhealthy=unhealthy, update_time=int(now_s))
        learn(cache, name, told, Affinity(held=held, sequence=1))
        if index < _WAITING:
            cache.step(_reservation(name), now_s)
    return cache


def _reservation(name: str) -> Reservation:
    """A pod with another container beside, so that it is unlike the one we ask for."""
    needs = ((ContainerKind.APP, 1), (ContainerKind.APP, 1))
    shape = Shape(resource=PRODUCT.resource, needs=needs)
    return Reservation(
        kept_for=f"uid-{name}",
        owner=Owner.BIND,
        node=name,
        resource=PRODUCT.resource,
        chips=0,
        until_s=inf,
        claim=Claim(predicate_time=1, shape=shape),
    )


if __name__ == "__main__":
    asyncio.run(_serve())
