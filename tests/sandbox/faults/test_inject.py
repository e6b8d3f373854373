"""Faults in a world that is up: together, twice, and asked for wrongly."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.faults.inject import DOABLE, Breakage
from sandbox.faults.kinds import Fault, FaultError, read
from sandbox.inspect import observer, pods
from sandbox.inspect.terminal import Terminal
from sandbox.scenario import parse, run
from sandbox.world import World
from sandbox.world.directories import PROCESS_FILE
from service import clock
from tests.support.objects import CONFIGMAPS
from tests.support.until import until

TOUR = Path(__file__).parent.parent / "scenario" / "tour.yaml"

SHORT = """
nodes: 1
steps:
  - fault: {name: api-slow, delay: 10ms}
  - pods: {name: one, chips: 1}
  - expect: {pods: one, phase: Running, within: 60s}
  - end: api-slow
  - expect: {agreed: true, within: 60s}
  - delete: one
  - end: api-slow
  - expect: {pods: never, phase: Running}
"""


def fault(name: str, **given: object) -> Fault:
    return read(name, {"node": "node-1", **given}, ["node-1"])


async def test_faults_are_done_once_and_scenarios_end_at_what_does_not_hold(
    world: World,
) -> None:
    breakage = Breakage(world)
    out = io.StringIO()
    passed = await run.play(parse.read(SHORT), world, Terminal(out, {}))

    await breakage.begin(fault("kubelet-killed"))
    for name in ("kubelet-killed", "kubelet-restarted", "checkpoint-lost"):
        with pytest.raises(FaultError, match="kubelet of node-1 is away already"):
            await breakage.begin(fault(name))
    await breakage.end("kubelet-killed")
    with pytest.raises(FaultError, match=r"chips of node-1, 0 to 7, found 7,8"):
        await breakage.begin(fault("chip-broken", chips="7,8"))

    assert breakage.names == ()
    assert not passed
    assert out.getvalue().splitlines()[-2:] == [
        "   ✗ line 10: end: api-slow",
        "     'api-slow' does not last; lasting: none",
    ]


@pytest.mark.long
async def test_a_job_controller_is_late_and_makes_pods_twice(world: World) -> None:
    breakage = Breakage(world)

    async def until_pods(count: int) -> list[str]:
        found = await until(
            lambda: observer.pods(world), lambda found: len(found) == count
        )
        return [pod.name.rpartition("-")[0] for pod in found]

    await breakage.begin(read("job-late", {"delay": "1h"}, ()))
    await world.api.create(observer.JOBS, pods.job("late", 1, 1))
    before = await observer.pods(world)
    await breakage.end("job-late")
    late = await until_pods(1)
    await breakage.begin(read("job-double", {}, ()))
    await world.api.create(observer.JOBS, pods.job("more", 1, 1))
    doubled = await until_pods(3)
    await breakage.end("job-double")
    at_rest = await until_pods(2)

    assert (before, late) == ((), ["late-0"])
    assert doubled == ["late-0", "more-0", "more-0"]
    assert at_rest == ["late-0", "more-0"]


@pytest.mark.long
async def test_an_agent_whose_clock_is_stepped_reports_by_that_clock(
    world: World,
) -> None:
    breakage = Breakage(world)
    with pytest.raises(FaultError, match=r"one of ascend-extender, .*, found 'nobody'"):
        await breakage.begin(read("clock-stepped", {"user": "nobody"}, ()))
    hours = read("clock-stepped", {"user": "ascend-agent-*", "by": "2h"}, ())

    await breakage.begin(hours)
    world.nodes["node-1"].set_faults([3])
    await _reported(world, lambda ahead_s: ahead_s > 3600)
    await breakage.end("clock-stepped")
    world.nodes["node-1"].set_faults([])
    await _reported(world, lambda ahead_s: ahead_s < 3600)


async def _reported(world: World, is_so: Callable[[float], bool]) -> None:
    """Wait until the node's report is so far ahead of the clock of this machine."""
    path = f"{CONFIGMAPS}/mindx-dl-deviceinfo-node-1"

    async def ahead_s() -> float:
        written = json.loads((await world.api.get(path))["data"]["DeviceInfoCfg"])
        return float(written["DeviceInfo"]["UpdateTime"]) - clock.wall_s()

    await until(ahead_s, is_so)


@pytest.mark.long
async def test_processes_stay_on_chips_after_a_forced_deletion(world: World) -> None:
    breakage = Breakage(world)
    await breakage.begin(fault("container-outlives", lag="2s"))
    await pods.create(world, pods.manifest("train", 2))
    await pods.settled(world, ["train"])

    await world.api.delete(f"{observer.PODS}/train", grace_s=0)
    left = await observer.pods(world)
    await until(lambda: not world.kubelets["node-1"].containers())
    shown, held = processes(world), await observer.node(world, "node-1")
    await until(
        lambda: observer.node(world, "node-1"), lambda node: len(node.available) == 8
    )
    await breakage.end_all()

    assert (left, len(shown), len(held.available)) == ((), 2, 6)
    assert processes(world) == []


def processes(world: World) -> list[object]:
    """What the driver of the node is shown of containers' processes."""
    file = world.nodes["node-1"].root / PROCESS_FILE
    found: list[object] = json.loads(file.read_text(encoding="utf-8"))["processes"]
    return found


def test_the_tour_is_of_all_faults() -> None:
    actions = [step.action for step in parse.read(TOUR.read_text("utf-8")).steps]

    assert {each.kind.name for each in actions if isinstance(each, Fault)} == DOABLE
