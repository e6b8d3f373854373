"""Count the functions and files of ours that one filter call enters.

    python -m tests.entered [--list]

A whole extender reads a cluster of 8 nodes with 16 chips each from the sandbox's API
server. Then `/filter` is called over HTTP: for a pod by itself, and for a pod of a job
of four, whose call plans the job. Both fit. `--list` also prints the functions of each
file, in the order in which the call enters them. `tests/test_entered.py` holds the
limits.

A function counts once. Lambdas count. Comprehensions belong to the function around
them, and methods that `dataclass` generates to nobody. The record begins at the handler
of the route, after aiohttp and the middleware. Functions first forget their remembered
results, so that earlier calls in this process do not change the figures.
"""

import argparse
import asyncio
import sys
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

from aiohttp import test_utils, web
from prometheus_client import CollectorRegistry

from extender import clocks
from extender.app import Extender
from extender.election.term import Leadership
from extender.metrics import Metrics
from extender.settings import Settings
from kube import credentials
from kube.client import Client
from sandbox.apiclient import ApiClient, Object
from scheduler_core.products import table
from scheduler_core.wire import deviceinfo, inventory
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from service import clock, settings
from tests.support.objects import (
    CONFIGMAPS,
    NODES,
    PODS,
    node,
    offered,
    pod,
    report,
)
from tests.support.servers import api_server
from tests.support.tasks import in_background
from tests.support.until import until

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("extender", "kube", "scheduler_core", "service")

#: Code objects that are no functions of their own.
_PARTS = frozenset(("<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))

_PRODUCT = table.by_key("atlas-a2-box16")
_NODE_LABELS = {"accelerator-type": "module-910b-16"}
_NODES = tuple(f"n{number}" for number in range(1, 9))
_JOB_SIZE = 4

T = TypeVar("T")
_Handler = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Entered:
    """The functions of some packages that this thread enters while it records."""

    root: Path = ROOT
    packages: Sequence[str] = PACKAGES
    #: {file below the root: {(first line, name): None}}, in the order of the calls
    functions: dict[str, dict[tuple[int, str], None]] = field(default_factory=dict)

    def figures(self) -> tuple[int, int]:
        """Return the numbers of functions and of files."""
        return sum(map(len, self.functions.values())), len(self.functions)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record until the `with` block ends."""
        before = sys.getprofile()
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or code.co_name in _PARTS:
            return
        if path.is_relative_to(self.root):
            path = path.relative_to(self.root)
            if path.parts[0] in self.packages:
                function = (code.co_firstlineno, code.co_qualname)
                self.functions.setdefault(str(path), {})[function] = None


async def measure() -> Mapping[str, Entered]:
    """Return what each of the two filter calls enters, by its title."""
    job = {"ascend-affinity/job": "train", "ascend-affinity/job-size": str(_JOB_SIZE)}
    members = [_pod(f"member-{number}", 16, job) for number in range(_JOB_SIZE)]
    return {
        "filter of a pod by itself": await _enter_filter(
            [_pod("alone", 2)], node_count=len(_NODES)
        ),
        f"filter that plans a job of {_JOB_SIZE} pods": await _enter_filter(
            members, node_count=1
        ),
    }


async def _enter_filter(pods: Sequence[Object], *, node_count: int) -> Entered:
    """Return what a filter call for the first pod of a new cluster enters.

    Args:
        pods: All pods of the cluster.
        node_count: Number of nodes in the expected answer.

    Raises:
        RuntimeError: The answer is another one.
    """
    entered = Entered()
    async with api_server() as server, ApiClient(server.url, "user:test") as api:
        for name in _NODES:
            await _create_node(api, name)
        asking, *_ = [await api.create(PODS, body) for body in pods]
        async with _leading_extender(server.url) as leadership:
            _forget_results()
            async with _served(leadership, entered) as scheduler:
                body = {"Pod": asking, "NodeNames": _NODES}
                response = await scheduler.post("/filter", json=body)
                answer = await response.json()
    if len(answer["NodeNames"] or ()) != node_count:
        raise RuntimeError(f"filter: expected {node_count} nodes, found {answer}")
    return entered


@asynccontextmanager
async def _leading_extender(url: str) -> AsyncIterator[Leadership]:
    """Run an extender as its program does; yield it once it knows the cluster."""
    wall, metrics = clocks.of_this_machine(), Metrics(CollectorRegistry())
    defaults = settings.load(Settings, [], {})
    async with Client(credentials.from_url(url)) as client:
        leadership = Leadership(
            lambda: Extender(defaults, client, wall=wall, metrics=metrics), None
        )
        async with in_background(leadership.run()):
            await until(leadership.why_not_ready, lambda reason: reason is None)
            yield leadership


@asynccontextmanager
async def _served(
    leadership: Leadership, entered: Entered
) -> AsyncIterator[test_utils.TestClient[web.Request, web.Application]]:
    """Serve `/filter` of an extender, and record its handler; yield an HTTP client."""
    routes = {route.path: route.handler for route in leadership.routes()}
    handler = cast(_Handler, routes["/filter"])

    async def record(request: web.Request) -> web.StreamResponse:
        await request.read()  # the handler finds the body complete
        with entered.recording():
            return _run_to_end(handler(request))

    app = web.Application()
    app.router.add_post("/filter", record)
    async with test_utils.TestClient(test_utils.TestServer(app)) as client:
        yield client


def _run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits.

    While it waited, other tasks would run and be recorded.

    Raises:
        RuntimeError: The coroutine waits.
    """
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    work.close()
    raise RuntimeError("filter waits, so a record would also have other tasks")


def _forget_results() -> None:
    """Clear the results that functions of ours remember from earlier calls."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES:
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


async def _create_node(api: ApiClient, name: str) -> None:
    chips = range(_PRODUCT.chip_count)
    base = {inventory.BASE_DEVICE_INFOS: inventory.render(chips, _PRODUCT)}
    await api.create(NODES, node(name, labels=_NODE_LABELS, annotations=base))
    has = {_PRODUCT.resource: str(len(chips)), "pods": "110", "cpu": "192"}
    await api.patch_status(f"{NODES}/{name}", offered(**has, memory="1500Gi"))
    info = DeviceInfo(available=tuple(chips), update_time=int(clock.wall_s()))
    text = deviceinfo.render(info, Affinity(sequence=1), _PRODUCT)
    await api.create(CONFIGMAPS, report(name, text))


def _pod(
    name: str, chip_count: int, annotations: Mapping[str, str] | None = None
) -> Object:
    return pod(
        name,
        chip_count,
        resource=_PRODUCT.resource,
        limits={"cpu": "16", "memory": "64Gi"},
        meta={"annotations": dict(annotations or {})},
    )


def lines(entered: Mapping[str, Entered], *, is_list: bool) -> Iterator[str]:
    """Yield the figures of each call, and with `is_list` its functions by file."""
    for title, call in entered.items():
        functions, files = call.figures()
        yield f"{title}: {functions} functions in {files} files"
        for file, names in call.functions.items() if is_list else ():
            yield f"  {file}"
            yield from (f"    {line:4} {name}" for line, name in names)


def main(arguments: Sequence[str]) -> int:
    """Print what the filter calls enter."""
    parser = argparse.ArgumentParser(description="what a filter call enters")
    parser.add_argument("--list", action="store_true", help="the functions by file")
    is_list = parser.parse_args(arguments).list
    for line in lines(asyncio.run(measure()), is_list=is_list):
        sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
