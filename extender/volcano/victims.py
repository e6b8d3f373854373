"""Choose the running pods that Volcano should evict to make room for a pending pod.

Volcano evicts the chosen pods until enough chips are free, whichever chips these are.
So on each node, only pods are chosen that must all be evicted before the pending pod
fits there. They are ordered by priority, the lowest first.
"""

from collections import defaultdict
from collections.abc import Sequence

from extender.cache.cache import Cache
from extender.preemption import victims
from extender.volcano.protocol import Evictee
from scheduler_core.wire.pods import NpuPod


def choose(cache: Cache, evictor: NpuPod, evictees: Sequence[Evictee]) -> list[Evictee]:
    """Return, for each node, the evictees that must leave before `evictor` fits there.

    Pods of high priority are spared if the eviction of others is enough. If `evictor`
    does not fit a node even after all evictions, no evictee on that node is returned.

    If enough chips are free on a node already, `evictor` lacks something else, such as
    CPU. Then all evictees on the node that have no NPUs are returned.

    Args:
        cache: Read only.
        evictor: The pending pod, which asks for NPUs.
        evictees: Running pods on any nodes, which Volcano may evict.
    """
    by_node: defaultdict[str, list[Evictee]] = defaultdict(list)
    for evictee in evictees:
        by_node[evictee.task.node].append(evictee)
    chosen_victims: list[Evictee] = []
    for node, subset in by_node.items():
        chosen_victims += _choose_on_node(cache, evictor, node, subset)
    return chosen_victims


def _choose_on_node(
    cache: Cache, evictor: NpuPod, node: str, evictees: Sequence[Evictee]
) -> list[Evictee]:
    node_info = cache.nodes.get(node)
    resource_state = cache.resource_state(node, evictor.shape.resource)
    tenants = resource_state.tenants if resource_state is not None else {}
    holders = [e for e in evictees if e.task.uid in tenants]

    def fits(subset: Sequence[Evictee]) -> bool:
        return victims.do_help(
            cache, evictor, node, [evictee.task.uid for evictee in subset]
        )

    if fits(()):
        resource_states = node_info.resources if node_info is not None else ()
        npu_uids = {uid for state in resource_states for uid in state.tenants}
        return [evictee for evictee in evictees if evictee.task.uid not in npu_uids]
    subset = sorted(
        holders, key=lambda evictee: (evictee.task.priority, evictee.task.uid)
    )
    if not fits(subset):
        return []
    for evictee in reversed(subset.copy()):  # the most important stay if possible
        fewer = [spared for spared in subset if spared is not evictee]
        if fits(fewer):
            subset = fewer
    return subset
