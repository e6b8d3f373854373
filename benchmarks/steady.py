"""What an agent costs for as long as it runs: ten quiet minutes, and a day of churn.

Sixteen chips behind a libdcmi of ours, a hundred pods. Ten minutes are two heartbeats
and a renewal of each watch, so what is counted in them is what an hour has six times.
Then what happens in a day happens at once: memory does not grow by time, but by what
is done. A day is taken to be a pod with a chip each minute (it comes, is served, and
goes), a chip that fails and recovers each hour, and a restart of the kubelet.
"""

import asyncio
import time

import psutil

from benchmarks.hardware import CHIPS, NODE, RESOURCE, Bench, bench, full
from benchmarks.table import Row
from sandbox.apiclient import FAILURES

_WATCHED_S = 600.0
_DAY_PODS = 24 * 60
_DAY_FAULTS = 24
#: Pods that come together, each with a chip.
_AT_ONCE = CHIPS
_PODS = "/api/v1/namespaces/default/pods"
_CODE = "80818C00"
#: RSS that allocator and caches may still move by. Unit: MiB.
_FLAT_MIB = 2.0


def rows() -> list[Row]:
    """Measure. Takes a quarter of an hour."""
    return asyncio.run(_rows())


async def _rows() -> list[Row]:
    async with bench() as it:
        await full(it)
        programs = (it.agent, it.worker)
        cpu, asked = [_cpu_s(each) for each in programs], await _requests(it)
        begun = time.perf_counter()
        await asyncio.sleep(_WATCHED_S)
        took = time.perf_counter() - begun
        shares = [
            (_cpu_s(each) - before) / took
            for each, before in zip(programs, cpu, strict=True)
        ]
        hourly = (await _requests(it) - asked) * 3600 / took
        for number in range(CHIPS):
            await it.world.api.delete(f"{_PODS}/bench-{number}")
        await _day(it)  # caches and allocator have had their fill
        before = [_mib(each) for each in programs]
        await _day(it)
        after = [_mib(each) for each in programs]
    return [
        Row(
            figure="CPU, steady, 16 chips held, 100 pods",
            goal="≤ 0.5 % of a core",
            value=f"{sum(shares):.2%} (agent {shares[0]:.2%}, driver worker "
            f"{shares[1]:.2%})",
            passed=sum(shares) <= 0.005,
        ),
        Row(
            figure="API requests per node and hour, steady",
            goal="≤ 40",
            value=f"{hourly:.0f}",
            passed=hourly <= 40,
        ),
        *(
            _flat(name, goal, sizes)
            for name, goal, sizes in zip(
                ("agent", "driver worker"),
                (70, 25),
                zip(before, after, strict=True),
                strict=True,
            )
        ),
    ]


def _flat(name: str, goal_mib: float, sizes: tuple[float, float]) -> Row:
    then, now = sizes
    return Row(
        figure=f"{name} memory (RSS) after the events of 24 h, and of 24 h more",
        goal=f"≤ {goal_mib:g} MiB, flat",
        value=f"{then:.1f} MiB, {now:.1f} MiB",
        passed=now <= goal_mib and now - then <= _FLAT_MIB,
    )


def _cpu_s(program: psutil.Process) -> float:
    spent = program.cpu_times()
    return spent.user + spent.system


def _mib(program: psutil.Process) -> float:
    return program.memory_info().rss / 2**20


async def _requests(it: Bench) -> float:
    """How many requests the agent has made to the API server."""
    text = await it.world.metrics(NODE)
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("ascend_agent_api_requests_total")
    )


async def _day(it: Bench) -> None:
    """Have as much happen as in a day."""
    faults = asyncio.create_task(_faults(it))
    for first in range(0, _DAY_PODS, _AT_ONCE):
        names = [f"churn-{number}" for number in range(first, first + _AT_ONCE)]
        await asyncio.gather(*(_create(it, name) for name in names))
        await _until(it, names, is_there=True)
        for name in names:
            await it.world.api.delete(f"{_PODS}/{name}")
        await _until(it, names, is_there=False)
    await faults
    await it.world.kubelets[NODE].restart()
    await asyncio.sleep(10)


async def _faults(it: Bench) -> None:
    for number in range(_DAY_FAULTS):
        chip = number % CHIPS
        it.machine.say(chip // 2, chip % 2, codes=_CODE)
        it.machine.event(chip, _CODE, 3, 1)
        await asyncio.sleep(1.0)
        it.machine.say(chip // 2, chip % 2, codes="")
        await asyncio.sleep(2.0)


async def _create(it: Bench, name: str) -> None:
    asks = {"limits": {RESOURCE: "1"}}
    container = {"name": "main", "image": "x", "resources": asks}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]},
    }
    await it.world.api.create(_PODS, body)


async def _until(it: Bench, names: list[str], *, is_there: bool) -> None:
    """Wait until these pods run with their chips confirmed, or are gone."""
    wanted = set(names)
    async with asyncio.timeout(300):
        while True:
            try:
                pods = await it.world.api.items(_PODS)
            except FAILURES:
                continue
            found = {
                pod["metadata"]["name"]
                for pod in pods
                if not is_there or "huawei.com/AscendReal" in _notes(pod)
            }
            if wanted <= found if is_there else not wanted & found:
                return
            await asyncio.sleep(0.05)


def _notes(pod: dict[str, object]) -> dict[str, str]:
    meta = pod["metadata"]
    assert isinstance(meta, dict)
    notes: dict[str, str] = meta.get("annotations", {})
    return notes
