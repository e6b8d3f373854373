"""Overlay on the cache: as if pods were gone, or as if nodes had other free chips."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.cache.node_state import NodeInfo
from extender.cache.requests import RequestsWithout
from extender.cache.reservations import Reservation
from scheduler_core.index.queries import NodeIndex
from scheduler_core.node.state import NodeState
from scheduler_core.placement.overlay import Overlay


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOverlay:
    """View of the cache in which some nodes and requests differ.

    It reads through: the cache is not changed, and a later change of it shows.
    """

    nodes: Mapping[str, NodeInfo]
    index: NodeIndex
    requests: RequestsWithout
    reserved: Mapping[str, tuple[Reservation, ...]]


#: Nodes, chips and requests: those of the cache, or of an overlay on it.
ClusterView = Cache | CacheOverlay


def overlay_cache(
    cache: Cache,
    states: Iterable[NodeState],
    *,
    gone_uids: Collection[str] = (),
) -> CacheOverlay:
    """Return the cache as if nodes were in other states, and pods requested nothing.

    Args:
        states: Nodes with the chips that are to count as free.
        gone_uids: UIDs of the pods whose CPU, memory and pod places count as free.

    Cost:
        A step for each of `states` and `gone_uids`, however large the cluster is.
    """
    return CacheOverlay(
        nodes=cache.nodes,
        index=Overlay(cache.index, states),
        requests=RequestsWithout(cache.requests, gone_uids),
        reserved=cache.reserved,
    )
