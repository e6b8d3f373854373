"""What do nodes offer besides chips, and how many pods of a job fit there?

A scheduler's own filters have looked at one pod, and two of a job's pods may not both
fit a node. Nodes with room for fewer pods than they have chips for count with as many
chips as those pods need.

Pure: looks at the cache and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from extender.cache.cache import Cache
from extender.cache.requests import Ask, total
from scheduler_core.index.cluster import NodeState
from scheduler_core.node import chips
from scheduler_core.node.decision import Placement
from scheduler_core.products.columns import Product
from scheduler_core.wire import shapes
from scheduler_core.wire.pods import NpuPod


def left_on(cache: Cache, name: str) -> Ask:
    """What a node still offers besides chips, promises counted."""
    host = cache.hosts[name]
    left = host.room.minus(cache.loads.of(name))
    for record in host.lines:
        if record.assumed:
            left = left.minus(total(cache.loads.ask(uid) for uid in record.assumed))
    return left


def with_room(
    cache: Cache, row: Product, names: Sequence[str], asks: Sequence[Ask], size: int
) -> tuple[dict[str, NodeState], list[str]]:
    """Nodes with room for some of a job's pods only, as they count; and all with room.

    Args:
        cache: What is known; not changed.
        row: By which the job is served.
        names: The nodes in question, all of them known.
        asks: What each of the pods asks for besides chips.
        size: Chips of the largest of them.
    """
    least = Ask(
        min(ask.cpu for ask in asks),
        min(ask.memory for ask in asks),
        min(ask.pods for ask in asks),
    )
    capped: dict[str, NodeState] = {}
    offered: list[str] = []
    known: dict[tuple[Ask, Ask], int] = {}
    line = cache.cluster.line(row)
    for name in names:
        fitting = _fitting(cache, name, least, known)
        if not fitting:
            continue
        offered.append(name)
        state = line[name]
        if fitting * size < state.free.bit_count():
            capped[name] = replace(state, free=_some(row, state, [size] * fitting))
    return capped, offered


def _fitting(
    cache: Cache, name: str, least: Ask, known: dict[tuple[Ask, Ask], int]
) -> int:
    """How many pods fit; of nodes that offer and carry the same it is known."""
    host, load = cache.hosts[name], cache.loads.of(name)
    for record in host.lines:
        if record.assumed:
            return least.times(left_on(cache, name))
    found = known.get((host.room, load))
    if found is None:
        found = known[host.room, load] = least.times(host.room.minus(load))
    return found


def _some(row: Product, state: NodeState, sizes: Sequence[int]) -> int:
    """Mask of the chips that pods of these sizes would get."""
    free, taken = state.free_for(row), 0
    for size in sizes:
        chosen = chips.choose(row, free, size)
        taken |= chosen
        free &= ~chosen
    return taken


def together(
    cache: Cache, node: str, pods: Sequence[tuple[NpuPod, Placement]]
) -> list[Placement]:
    """Those of the pods that fit the node together, the first first.

    Args:
        cache: What is known; not changed.
        node: Its name.
        pods: With the places that they would have there.
    """
    left = left_on(cache, node)
    there: list[NpuPod] = []
    kept: list[Placement] = []
    for pod, place in pods:
        after = left.minus(cache.loads.ask(pod.uid))
        is_alike = not any(shapes.conflict(pod.shape, one.shape) for one in there)
        if min(after) >= 0 and is_alike:
            left = after
            there.append(pod)
            kept.append(place)
    return kept
