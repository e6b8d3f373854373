"""What our extender costs a stock scheduler: pods bound per second, three ways.

etcd, kube-apiserver and kube-scheduler on this machine, 60 Node objects of eight
chips without kubelets. In turn: pods that ask for no chips; pods with a chip, through
an extender that decides nothing (`do_nothing.py`); pods with a chip, through ours.
Whoever has no part in a turn does not run.
"""

import asyncio
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import aiohttp
import psutil

from benchmarks.table import Row
from sandbox.world.programs import Program
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import BareCluster, bare_cluster
from tests.e2e.ours import Extender

NODES = 60
PODS = 400
WARM_UP = 40
ROUNDS = 6
#: Creations and deletions under way at once.
AT_ONCE = 16
PODS_PATH = "/api/v1/namespaces/default/pods"

_LONGEST_S = 120.0
_NO_END = aiohttp.ClientTimeout(total=None)
_ONLY_META = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

PLAIN, NOTHING, OURS = "plain pods", "do-nothing extender", "our extender"


def rows() -> list[Row]:
    """Measure. Takes about three minutes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave nothing behind
    found = asyncio.run(_measure())
    return [_row(found, PLAIN, 0.6), _row(found, NOTHING, 1.0)]


def _row(found: Mapping[str, Sequence[float]], of: str, goal: float) -> Row:
    # Of each round by itself: what else the machine does then slows both.
    ratio = median(
        ours / other for ours, other in zip(found[OURS], found[of], strict=True)
    )
    detail = f"{median(found[OURS]):.0f}/s over {median(found[of]):.0f}/s"
    return Row(
        figure=f"pods bound per second through our extender, over {of}",
        goal=f"≥ {goal}",
        value=f"{ratio:.2f} ({detail})",
        passed=ratio >= goal,
    )


async def _measure() -> dict[str, list[float]]:
    """{way: pods bound per second, in each round}."""
    found: dict[str, list[float]] = {PLAIN: [], NOTHING: [], OURS: []}
    order = [*found]
    async with bare_cluster(ours.USERS) as cluster:
        ours.give_rights(cluster)
        for number in range(NODES):
            await npu_nodes.create(cluster.api, f"node-{number:02}")
        for _ in range(ROUNDS):
            for way in order:
                rate, told = await _turn(cluster, way)
                found[way].append(rate)
                sys.stderr.write(f"  {way}: {rate:.0f}/s ({told})\n")
            order = [*order[1:], order[0]]  # nobody is always first, or always last
    return found


async def _turn(cluster: BareCluster, way: str) -> tuple[float, str]:
    """Pods bound per second this way, and who spent how much time on each."""
    chips = 0 if way == PLAIN else 1
    extender = await _extender(cluster, way)
    async with _bindings(cluster) as bound:
        scheduler = await cluster.start_scheduler(extender.url if extender else "")
        await _create(cluster, [f"warm-{i}" for i in range(WARM_UP)], chips)
        await bound.wait(WARM_UP)
        # The pods are created while whoever handles them stands still, so that the
        # clock sees the handling only: of the creation as well, not only of binding.
        theirs = [scheduler, *([extender.program] if extender else [])]
        _tell(theirs, signal.SIGSTOP)
        await _create(cluster, [f"pod-{i}" for i in range(PODS)], chips)
        before, started = _cpu_s(), perf_counter()
        _tell(theirs, signal.SIGCONT)
        ended = await bound.wait(WARM_UP + PODS)
        after = _cpu_s()
        for program in theirs:
            await cluster.programs.end(program)
        await cluster.api.request("DELETE", PODS_PATH, body={"gracePeriodSeconds": 0})
    spent = {name: after[name] - before.get(name, 0) for name in sorted(after)}
    told = ", ".join(f"{name} {1000 * s / PODS:.2f} ms" for name, s in spent.items())
    return PODS / (ended - started), told


def _tell(programs: Iterable[Program], number: signal.Signals) -> None:
    for program in programs:
        program.tell(number)


async def _extender(cluster: BareCluster, way: str) -> Extender | None:
    if way == OURS:
        return await ours.start_extender(cluster)
    if way == PLAIN:
        return None
    account = cluster.service_account(ours.EXTENDER)
    file = cluster.places.cache / "do-nothing-address"
    command = ("benchmarks.do_nothing", cluster.api_url, str(account), str(file))
    return await ours.start(cluster, command, file)


async def _create(cluster: BareCluster, names: Sequence[str], chips: int) -> None:
    left = iter(names)

    async def create() -> None:
        for name in left:
            await cluster.api.create(PODS_PATH, npu_nodes.pod(name, chips))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(create())


class _Bindings:
    """Counts the pods that are bound, as a watch brings their names.

    Only names are asked for, so that watching costs the machine little.
    """

    def __init__(self, cluster: BareCluster, session: aiohttp.ClientSession) -> None:
        self._cluster = cluster
        self._session = session
        self._tls = ssl.create_default_context(cafile=str(cluster.authority))

    async def wait(self, count: int) -> float:
        """The moment at which so many pods were bound."""
        names: set[str] = set()
        async with asyncio.timeout(_LONGEST_S):
            while len(names) < count:  # a busy API server may cut a watch off
                await self._follow(names, count)
        return perf_counter()

    async def _follow(self, names: set[str], count: int) -> None:
        async with self._session.get(
            self._cluster.api_url + PODS_PATH,
            params={"watch": "1", "fieldSelector": "spec.nodeName!="},
            headers={"Accept": _ONLY_META},
            ssl=self._tls,
            timeout=_NO_END,
        ) as answer:
            async for line in answer.content:
                names.add(json.loads(line)["object"]["metadata"]["name"])
                if len(names) == count:
                    return


@asynccontextmanager
async def _bindings(cluster: BareCluster) -> AsyncIterator[_Bindings]:
    headers = {"Authorization": f"Bearer {cluster.tokens['admin']}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        yield _Bindings(cluster, session)


def _cpu_s() -> dict[str, float]:
    """{program: seconds of processor time so far}."""
    spent: dict[str, float] = {}
    for child in psutil.Process().children():
        name, times = Path(child.cmdline()[0]).name, child.cpu_times()
        spent[name] = spent.get(name, 0) + times.user + times.system
    return spent
