"""CPU, memory and pod slots of nodes, for jobs that put several pods on one node.

A scheduler's own filters check one pod at a time, so two pods of a job may not fit a
node together. A node that can run fewer pods than it has chips for counts with as many
chips as those pods need. Pure: reads the cache and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from extender.cache.cache import Cache
from extender.cache.requests import Resources, sum_resources
from scheduler_core.index.cluster import NodeState
from scheduler_core.node import chips
from scheduler_core.node.decision import Placement
from scheduler_core.products.columns import Product
from scheduler_core.wire import shapes
from scheduler_core.wire.pods import NpuPod


def free_on(cache: Cache, name: str) -> Resources:
    """Return what a node still offers besides chips, after all reservations."""
    node_info = cache.nodes[name]
    available = node_info.allocatable_resources.minus(
        cache.requested_resources.of(name)
    )
    for resource_state in node_info.resources:
        if resource_state.reservations:
            available = available.minus(
                sum_resources(
                    cache.requested_resources.ask(uid)
                    for uid in resource_state.reservations
                )
            )
    return available


def limit_by_requests(
    cache: Cache,
    row: Product,
    names: Sequence[str],
    asks: Sequence[Resources],
    size: int,
) -> tuple[dict[str, NodeState], list[str]]:
    """Return the nodes where CPU or memory limits a job, and all usable names.

    A limited node counts with the chips that the pods it can run would get.

    Args:
        cache: Read only.
        row: Product row by which the job is served.
        names: Candidate nodes, all of them known.
        asks: Requests of each pod besides chips.
        size: Chips of the largest pod.
    """
    least = Resources(
        min(ask.cpu for ask in asks),
        min(ask.memory for ask in asks),
        min(ask.pods for ask in asks),
    )
    capped: dict[str, NodeState] = {}
    offered: list[str] = []
    cached_counts: dict[tuple[Resources, Resources], int] = {}
    line = cache.cluster.nodes(row)
    for name in names:
        fitting = _fitting(cache, name, least, cached_counts)
        if not fitting:
            continue
        offered.append(name)
        state = line[name]
        if fitting * size < state.free.bit_count():
            capped[name] = replace(state, free=_some(row, state, [size] * fitting))
    return capped, offered


def _fitting(
    cache: Cache,
    name: str,
    least: Resources,
    cached_counts: dict[tuple[Resources, Resources], int],
) -> int:
    """Return how many pods fit; cached for nodes with equal offers and load."""
    node_info, load = cache.nodes[name], cache.requested_resources.of(name)
    for resource_state in node_info.resources:
        if resource_state.reservations:
            return least.times(free_on(cache, name))
    count = cached_counts.get((node_info.allocatable_resources, load))
    if count is None:
        count = cached_counts[node_info.allocatable_resources, load] = least.times(
            node_info.allocatable_resources.minus(load)
        )
    return count


def _some(row: Product, state: NodeState, sizes: Sequence[int]) -> int:
    """Return the mask of chips that pods of these sizes would get."""
    free, taken = state.free_for(row), 0
    for size in sizes:
        chosen = chips.choose(row, free, size)
        taken |= chosen
        free &= ~chosen
    return taken


def select_fitting(
    cache: Cache, node: str, pods: Sequence[tuple[NpuPod, Placement]]
) -> list[Placement]:
    """Return the pods that fit the node together, in the given order.

    Args:
        cache: Read only.
        node: Name of the node.
        pods: Pods with the chips that they would have there.
    """
    available = free_on(cache, node)
    selected: list[NpuPod] = []
    fitting: list[Placement] = []
    for pod, place in pods:
        after = available.minus(cache.requested_resources.ask(pod.uid))
        is_alike = not any(
            shapes.conflict(pod.shape, other_pod.shape) for other_pod in selected
        )
        if min(after) >= 0 and is_alike:
            available = after
            selected.append(pod)
            fitting.append(place)
    return fitting
