"""Play a scenario, step by step, until its end or the first that does not hold."""

import asyncio
from collections.abc import Iterator
from fnmatch import fnmatchcase

from sandbox.apiclient import FAILURES
from sandbox.faults.inject import Breakage
from sandbox.faults.kinds import Fault, FaultError
from sandbox.inspect import checks, observer, pods
from sandbox.inspect.facts import Cluster, PodFacts
from sandbox.inspect.terminal import Terminal
from sandbox.scenario.parse import (
    Create,
    CreateJob,
    Delete,
    End,
    Expect,
    Scenario,
    Step,
    Wait,
)
from sandbox.world import World

_LOOK_S = 0.05


async def play(scenario: Scenario, world: World, terminal: Terminal) -> bool:
    """Play all steps; say whether each expectation was met.

    Args:
        scenario: What to play.
        world: Fresh, with the scenario's nodes.
        terminal: Where each step is told.
    """
    breakage = Breakage(world)
    terminal.title(scenario.title)
    try:
        for step in scenario.steps:
            problems = await _step(step, world, breakage)
            if problems:
                terminal.bad(f"line {step.line}: {step.text}")
                for problem in problems:
                    terminal.say(f"  {problem}")
                return False
            is_expectation = isinstance(step.action, Expect)
            (terminal.good if is_expectation else terminal.say)(step.text)
    finally:
        await breakage.end_all()
    return True


async def _step(step: Step, world: World, breakage: Breakage) -> tuple[str, ...]:
    try:
        match step.action:
            case Fault() as fault:
                await breakage.begin(fault)
            case End(name=name):
                await breakage.end(name)
            case action:
                return await _act(action, world)
    except FaultError as error:
        return error.problems
    except FAILURES as error:
        return (f"the API server did not do it: {str(error) or repr(error)}",)
    return ()


async def _act(
    action: Create | CreateJob | Delete | Wait | Expect, world: World
) -> tuple[str, ...]:
    match action:
        case Create(names=names, chips=chips, node=node):
            made = (pods.manifest(name, chips, node=node) for name in names)
            await pods.create(world, *made)
        case CreateJob(name=name, pods=count, chips=chips):
            job = pods.job(name, count, chips, action.fault_scheduling)
            await world.api.create(observer.JOBS, job)
        case Wait(seconds=seconds):
            await asyncio.sleep(seconds)
        case Delete():
            return await _delete(world, action)
        case Expect():
            return await _expect(world, action)
    return ()


async def _delete(world: World, wanted: Delete) -> tuple[str, ...]:
    path, kind = (observer.JOBS, "Job") if wanted.of_jobs else (observer.PODS, "pod")
    names = [each["metadata"]["name"] for each in await world.api.items(path)]
    found = [name for name in names if fnmatchcase(name, wanted.pattern)]
    grace_s = 0 if wanted.is_forced else None
    for name in found:
        await world.api.delete(
            f"{path}/{name}", grace_s=grace_s, propagation="Background"
        )
    return () if found else (f"expected a {kind} {wanted.pattern!r}, found none",)


async def _expect(world: World, expected: Expect) -> tuple[str, ...]:
    """Look again and again; return what is still wrong when the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + expected.within_s
    while True:
        try:
            problems = tuple(_missing(await observer.cluster(world), expected))
        except (*FAILURES, KeyError) as error:
            problems = (f"the cluster could not be looked at: {error!r}",)
        if not problems:
            return ()
        if loop.time() > deadline:
            late = f"not within {expected.within_s:g} s"
            return tuple(f"{problem}, {late}" for problem in problems)
        await asyncio.sleep(_LOOK_S)


def _missing(cluster: Cluster, expected: Expect) -> Iterator[str]:
    if expected.pods is not None:
        yield from _of_pods(cluster, expected.pods, expected)
    if expected.agreed:
        yield from checks.paired(cluster).problems
        yield from checks.configured(cluster)
        yield from checks.agreed(cluster)
    if expected.node is None:
        return
    node = cluster.node(expected.node)
    for what, wanted, found in (
        ("allocatable chips", expected.allocatable, node.allocatable),
        ("free chips", expected.free, len(node.available)),
        ("as unhealthy chips", expected.unhealthy, node.broken),
    ):
        if wanted not in (None, found):
            yield f"expected {wanted} {what} of {node.name}, found {found}"


def _of_pods(cluster: Cluster, pattern: str, expected: Expect) -> Iterator[str]:
    found = [pod for pod in cluster.pods if fnmatchcase(pod.name, pattern)]
    right = [pod for pod in found if _is_right(pod, expected)]
    wanted = len(found) if expected.count is None else expected.count
    if len(right) == wanted and (found or expected.count == 0):
        return
    what = " ".join(filter(None, [expected.phase, "pods", repr(pattern)]))
    what += f" on {expected.node}" if expected.node else ""
    if expected.message:
        what += f" that say {expected.message!r}"
    number = "all" if expected.count is None else str(expected.count)
    shown = ", ".join(_shown(pod) for pod in found) or "no such pods"
    yield f"expected {number} {what}, found {len(right)}: {shown}"


def _is_right(pod: PodFacts, expected: Expect) -> bool:
    is_settled = pod.phase != "Running" or pod.is_confirmed
    has_phase = expected.phase in (None, pod.phase) and is_settled
    has_node = expected.node in (None, pod.node)
    return has_phase and has_node and (expected.message or "") in pod.message


def _shown(pod: PodFacts) -> str:
    said = f" ({pod.message})" if pod.message else ""
    unconfirmed = "" if pod.phase != "Running" or pod.is_confirmed else ", unconfirmed"
    where = f" on {pod.node}" if pod.node else ""
    return f"{pod.name} {pod.phase}{where}{unconfirmed}{said}"
