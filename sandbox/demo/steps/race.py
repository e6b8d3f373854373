"""Step 3: which pod is this Allocate for?

Eight one-chip pods and two equal two-chip pods come at the same moment. The
kubelets admit them in another order than they were scheduled, one takes ids of
its own choice for a two-chip pod, another for every pod.
"""

import asyncio
from collections.abc import Sequence

from sandbox.apiclient import Object
from sandbox.demo import measurements, picture
from sandbox.demo.stage import Stage
from sandbox.inspect import checks, observer, pods
from sandbox.inspect.checks import Problems
from sandbox.inspect.facts import Choice, Cluster
from sandbox.world import CHIP_COUNT

#: Takes two ids of its own choice, once.
STUBBORN = "node-1"
#: Takes ids of its own choice, always.
CHAOTIC = "node-2"

PAIRS = ("duo-a", "duo-b")
#: By node: on the first they fill what the pairs leave.
SINGLES = {
    STUBBORN: tuple(f"solo-{number}" for number in range(1, 5)),
    CHAOTIC: tuple(f"solo-{number}" for number in range(5, 9)),
}
NAMES = (*PAIRS, *SINGLES[STUBBORN], *SINGLES[CHAOTIC])


async def play(stage: Stage) -> Problems:
    """Let them race, then look at who has what."""
    world = stage.world
    await pods.remove_all(world)
    for kubelet in world.kubelets.values():
        kubelet.switches.hold_admission = True
    try:
        await asyncio.gather(*(pods.create(world, each) for each in _manifests()))
        await pods.bound(world, NAMES)
        choices = await _choices(stage)
        admitted = await _admit(stage, choices)
    finally:
        for kubelet in world.kubelets.values():
            kubelet.switches.hold_admission = False
            kubelet.switches.ignore_preferences = False
            kubelet.switches.scripted_ids.clear()
    cluster = await pods.settled(world, NAMES)
    _show(stage, cluster, choices)
    return (
        stage.judge(cluster, NAMES)
        + await _judge_sets(stage, cluster, choices)
        + checks.raced(cluster, choices, admitted)
    )


def _manifests() -> list[Object]:
    wanted = [(2, STUBBORN, PAIRS), *((1, *single) for single in SINGLES.items())]
    return [
        pods.manifest(name, count, node=node)
        for count, node, names in wanted
        for name in names
    ]


async def _choices(stage: Stage) -> dict[str, Choice]:
    """Return what bind wrote on each pod of the race, as the watch has seen it."""

    async def seen() -> dict[str, Choice]:
        found = {u: c for u, c in stage.choices.items() if c.pod in NAMES}
        return found if len(found) == len(NAMES) else {}

    return await observer.until(seen, what="bind's annotations on every pod")


async def _admit(stage: Stage, choices: dict[str, Choice]) -> dict[str, int]:
    """Admit the youngest first, pairs before singles; say what the kubelets do.

    Returns:
        {pod: its place in the order of admission}.
    """
    by_age = sorted(choices.values(), key=lambda c: c.predicate_time, reverse=True)
    order = [c.pod for c in sorted(by_age, key=lambda c: c.pod not in PAIRS)]
    oldest = next(choice for choice in reversed(by_age) if choice.pod in PAIRS)
    # one of the other ring, and one of the claim: 7 and 0 for 0 and 1
    ids = CHIP_COUNT - 1 - oldest.chips[0], oldest.chips[0]
    stage.world.kubelets[STUBBORN].switches.scripted_ids.append(
        [f"Ascend910-{chip}" for chip in ids]
    )
    stage.world.kubelets[CHAOTIC].switches.ignore_preferences = True
    say = stage.terminal.say
    say(f"scheduled: {' '.join(c.pod for c in reversed(by_age))}")
    say(f"admitted:  {' '.join(order)}")
    say(
        f"{STUBBORN} takes ids {ids[0]} and {ids[1]} where the claim says "
        f"{' and '.join(map(str, oldest.chips))}; {CHAOTIC} takes any ids at all"
    )
    await asyncio.gather(
        *(
            stage.world.kubelets[node].admit(_of_node(order, choices, node))
            for node in SINGLES
        )
    )
    return {pod: place for place, pod in enumerate(order)}


def _of_node(
    order: Sequence[str], choices: dict[str, Choice], node: str
) -> tuple[str, ...]:
    here = {choice.pod for choice in choices.values() if choice.node == node}
    return tuple(pod for pod in order if pod in here)


def _show(stage: Stage, cluster: Cluster, choices: dict[str, Choice]) -> None:
    rows: list[tuple[str, ...]] = [
        ("pod", "node", "bind chose", "kubelet's ids", "mounted", "AscendReal")
    ]
    for mount in sorted(cluster.mounts, key=lambda m: (m.node, m.chips)):
        choice = choices.get(mount.pod_uid)
        pod = cluster.pod(mount.pod)
        found = (choice.chips if choice else (), mount.ids, mount.chips, pod.real)
        rows.append((mount.pod, mount.node, *(",".join(map(str, c)) for c in found)))
    stage.terminal.say()
    stage.terminal.table(rows)
    stage.terminal.say()
    stage.terminal.lines(picture.nodes(cluster))


async def _judge_sets(
    stage: Stage, cluster: Cluster, choices: dict[str, Choice]
) -> Problems:
    rechosen = {
        node: measurements.total(
            await stage.world.metrics(node),
            "ascend_agent_allocate_identity_total",
            identity="rechosen",
        )
        for node in stage.world.nodes
    }
    problems = checks.as_chosen(cluster, choices) + checks.not_rechosen(rechosen)
    if not problems:
        chosen = {choice.pod: choice.chips for choice in choices.values()}
        swapped = sum(chosen[mount.pod] != mount.chips for mount in cluster.mounts)
        stage.terminal.good(
            "the chip sets mounted on each node are the very sets that bind chose "
            f"(pods that swapped with an equal: {swapped}; rechosen: 0)"
        )
    return problems
