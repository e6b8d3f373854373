"""Which pods would have to go so that another fits, and would that help at all?

kube-scheduler's search for victims counts chips. Whether those that it has found free a
place by the rules of rings is said here; nothing is chosen or changed.
"""

from collections.abc import Iterable

from extender.cache import Cache
from scheduler_core import chips
from scheduler_core.wire.pods import NpuPod


def do_help(cache: Cache, pod: NpuPod, node: str, uids: Iterable[str]) -> bool:
    """Whether `pod` could be placed on `node` once these pods have gone.

    Args:
        cache: What is known.
        pod: Asks for NPUs and has no node.
        node: Where the others are.
        uids: The others.
    """
    state = cache.cluster.get(node)
    if state is None or state.barred or node in cache.kept_from(pod.uid):
        return False
    row = state.row_for(pod.shape.resource)
    if row is None:
        return False
    tenants = cache.records[node].tenants
    gone = chips_of(tenants[uid].chips for uid in uids if uid in tenants)
    there = state.free_for(row) | gone & state.usable(row)
    return bool(chips.choose(row, there, pod.total))


def chips_of(masks: Iterable[int]) -> int:
    """All of them in one mask."""
    found = 0
    for mask in masks:
        found |= mask
    return found
