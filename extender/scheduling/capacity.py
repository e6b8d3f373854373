"""CPU, memory and pod places of nodes, for jobs that put several pods on one node.

kube-scheduler's filters check one pod at a time. So two pods of a job may each fit a
node, but not both together. For example, a node has free chips for four pods of a job,
but CPU for two. Then only the chips for two pods count as free in the job's plan. Pure:
reads the cache, or an overlay on it, and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from extender.cache.overlay import ClusterView
from extender.cache.requests import Resources, sum_resources
from scheduler_core.index.cluster import NodeState
from scheduler_core.node import chips
from scheduler_core.node.decision import Placement
from scheduler_core.products.columns import Product
from scheduler_core.wire import shapes
from scheduler_core.wire.pods import NpuPod


def free_on(view: ClusterView, name: str) -> Resources:
    """Return the CPU, memory and pod places that are still free on a node.

    Requests of pods with a reservation on the node count like those of bound pods.
    """
    allocatable = view.nodes[name].allocatable_resources
    reserved = view.reserved.get(name, ())
    waiting = sum_resources(
        view.requests.ask(reservation.kept_for)
        if isinstance(reservation.kept_for, str)
        else reservation.ask
        for reservation in reserved
        if reservation.claim is not None
    )
    return allocatable.minus(view.requests.of(name)).minus(waiting)


def limit_by_requests(
    view: ClusterView,
    row: Product,
    names: Sequence[str],
    asks: Sequence[Resources],
    size: int,
) -> tuple[dict[str, NodeState], list[str]]:
    """Find the nodes on which CPU, memory or pod places limit the chips a job can use.

    Each pod counts with the smallest CPU, memory and pod places that any of `asks` has.

    Args:
        names: Candidate nodes, all of them of `view`.
        asks: CPU, memory and pod places that each pod of the job requests.
        size: Chips of the job's largest pod.

    Returns:
        First, {node: state} of these nodes, without those that fit no pod of the job.
        In the state, only the chips that the job can use are free. For example, if a
        node has CPU for two pods of 2 chips each, only 4 chips are free. Second, the
        names of all candidate nodes with enough CPU, memory and pod places for at least
        one pod of the job.
    """
    least = Resources(
        min(ask.cpu for ask in asks),
        min(ask.memory for ask in asks),
        min(ask.pods for ask in asks),
    )
    capped: dict[str, NodeState] = {}
    offered: list[str] = []
    cached_counts: dict[tuple[Resources, Resources], int] = {}
    line = view.index.nodes(row)
    for name in names:
        fitting = _fitting(view, name, least, cached_counts)
        if not fitting:
            continue
        offered.append(name)
        state = line[name]
        if fitting * size < state.free.bit_count():
            capped[name] = replace(state, free=_some(row, state, size, fitting))
    return capped, offered


def _fitting(
    view: ClusterView,
    name: str,
    least: Resources,
    cached_counts: dict[tuple[Resources, Resources], int],
) -> int:
    """Return how many more pods with the requests `least` a node can run.

    Args:
        cached_counts: {(allocatable, requested): number of pods}, results of earlier
            calls. This call may add its result.
    """
    if name in view.reserved:
        return least.times(free_on(view, name))
    allocatable, load = view.nodes[name].allocatable_resources, view.requests.of(name)
    count = cached_counts.get((allocatable, load))
    if count is None:
        count = cached_counts[allocatable, load] = least.times(allocatable.minus(load))
    return count


def _some(row: Product, state: NodeState, size: int, count: int) -> int:
    """Return the mask of the free chips that `count` pods of `size` chips would get."""
    free, taken = state.free_for(row), 0
    for _ in range(count):
        chosen = chips.choose(row, free, size)
        taken |= chosen
        free &= ~chosen
    return taken


def select_fitting(
    view: ClusterView, node: str, pods: Sequence[tuple[NpuPod, Resources, Placement]]
) -> list[Placement]:
    """Return the placements of the pods that fit the node together, in the given order.

    A pod is left out if the pods selected before it leave too little CPU, memory or pod
    places. It is also left out if its shape conflicts with that of a selected pod: an
    Allocate names no pod, so the agent could mix up the two.

    Args:
        pods: Each pod, what it requests besides chips, and its placement.
    """
    available = free_on(view, node)
    selected: list[NpuPod] = []
    fitting: list[Placement] = []
    for pod, ask, place in pods:
        after = available.minus(ask)
        is_alike = not any(
            shapes.conflict(pod.shape, other_pod.shape) for other_pod in selected
        )
        if min(after) >= 0 and is_alike:
            available = after
            selected.append(pod)
            fitting.append(place)
    return fitting
