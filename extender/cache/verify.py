"""Compare the facts in the cache with the objects that the watches have stored.

A watch stores an object and applies its event to the cache in the same turn of the
event loop. So the cache is wrong if it would change when the event of a stored object
is applied again.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from typing import assert_never

from extender.cache.cache import Cache
from extender.cache.events import (
    Change,
    NodeUpdated,
    OtherPodUpdated,
    PodDeleted,
    PodUpdated,
    ReportUpdated,
    Shown,
    SwitchesUpdated,
)
from extender.cache.node_state import tenant_of
from scheduler_core.products.table import Product
from service.quote import quote_value


def find_drift(cache: Cache, change: Shown) -> str:
    """Return how the cache differs from an object stored by a watch; "" if it does not.

    Args:
        change: The stored object, in the form of the event that reports it.
    """
    return "; ".join(
        f"{name}: expected {quote_value(expected)}, found {quote_value(cached)}"
        for name, expected, cached in _pairs(cache, change)
        if expected != cached
    )


def find_strays(
    cache: Cache,
    *,
    nodes: Collection[str],
    pods: Collection[str],
    reports: Collection[str],
) -> list[Change]:
    """Return events that remove from the cache each object that no watch has stored.

    Args:
        nodes: Names of all nodes that the node watch has stored.
        pods: UIDs of all pods that the pod watch has stored.
        reports: Names of the nodes whose agent's ConfigMap a watch has stored.
    """
    held = cache.pods.keys() | cache.requests.uids()
    changes: list[Change] = [PodDeleted(uid=uid) for uid in sorted(held - set(pods))]
    for name, node_info in cache.nodes.items():
        if node_info.offers and name not in nodes:
            changes.append(NodeUpdated(name=name))
        if any(node_info.report_texts) and name not in reports:
            changes.append(ReportUpdated(node=name))
    return changes


#: (name, value by the watch, value in the cache)
_Pairs = Iterator[tuple[str, object, object]]


def _pairs(cache: Cache, change: Shown) -> _Pairs:
    match change:
        case NodeUpdated():
            pairs = _of_node(cache, change)
        case ReportUpdated():
            pairs = _of_report(cache, change)
        case PodUpdated():
            pairs = _of_pod(cache, change)
        case OtherPodUpdated():
            pairs = _of_other(cache, change)
        case PodDeleted():
            pairs = _of_gone(cache, change.uid)
        case SwitchesUpdated():
            texts = (change.tor_info, change.tor_level)
            pairs = iter([("switches", texts, cache.switch_texts)])
        case _:
            assert_never(change)
    return pairs


def _of_node(cache: Cache, change: NodeUpdated) -> _Pairs:
    node_info = cache.nodes.get(change.name)
    lines = node_info.resources if node_info is not None else ()
    held = {line.product: line for line in lines if line.product is not None}
    rows = [
        (node_info.row_of(offer) if node_info else offer.product, offer)
        for offer in change.offers
    ]
    offered = {row: offer for row, offer in rows if row is not None}
    yield "product", _keys(offered), _keys(held)
    if node_info is None or not offered:
        return  # nothing else of it is cached
    yield "inventory", change.inventory, node_info.inventory_text
    yield "resources", change.allocatable_resources, node_info.allocatable_resources
    yield "addresses", change.internal_ips, node_info.internal_ips
    yield "SuperPoD", change.superpod, node_info.superpod
    yield "labels and taints", change.marks, node_info.marks
    for product, line in held.items():
        offer = offered.get(product)
        if offer is not None:
            yield "allocatable", offer.allocatable, line.allocatable
        indexed = cache.index.nodes(product).get(change.name)
        yield "in the index", cache.computed(line), indexed


def _keys(products: Iterable[Product]) -> list[str]:
    return sorted(product.key for product in products)


def _of_report(cache: Cache, change: ReportUpdated) -> _Pairs:
    node_info = cache.nodes.get(change.node)
    held = node_info.report_texts if node_info is not None else ("", "")
    yield "DeviceInfoCfg", change.device_info, held[0]
    yield "AscendAffinity", change.affinity, held[1]


def _of_pod(cache: Cache, change: PodUpdated) -> _Pairs:
    pod = change.pod
    held = cache.pods.get(pod.uid)
    if held is None:
        yield "pod", pod.uid, None
        return
    for field in fields(pod):
        yield field.name, getattr(pod, field.name), getattr(held, field.name)
    load = None if pod.terminal else (pod.node, change.ask)
    yield "CPU and memory", load, cache.requests.at(pod.uid)
    if change.priority:
        yield "priority", change.priority, cache.priority(pod.uid)
    yield "row", change.row, cache.row_asked_for(pod.uid)
    yield "about faults", change.wishes, cache.wishes(pod.uid)
    member = change.member if pod.phase != "Failed" else None
    job = cache.stage_of(member.membership) if member is not None else ""
    counting = change.other_membership if not pod.terminal else None
    yield "job", counting.job if counting else job, cache.job_of(pod.uid)
    gang = cache.gangs.get(job)
    if gang is not None:
        bound = bool(pod.node) or pod.terminal
        yield "bound in its job", bound, pod.uid in gang.bound
        is_ending = pod.deleting or pod.uid in gang.outdated
        yield "ending in its job", is_ending, pod.uid in gang.ending
        is_away = member is not None and member.is_kept_away and not bound
        is_absent = is_ending or is_away or pod.uid in gang.predecessors
        yield "absent from its job", is_absent, pod.uid in gang.absent
    resource_state = cache.resource_state(pod.node, pod.shape.resource)
    if resource_state is not None:
        tenant = None if pod.terminal else tenant_of(pod, resource_state.product)
        yield "on its node", tenant, resource_state.tenants.get(pod.uid)
    elif pod.node and not pod.terminal:
        yield "on its node", pod.node, None


def _of_other(cache: Cache, change: OtherPodUpdated) -> _Pairs:
    yield (
        "CPU and memory",
        (change.node, change.ask),
        cache.requests.at(change.uid),
    )
    yield "job", change.job, cache.job_of(change.uid)


def _of_gone(cache: Cache, uid: str) -> _Pairs:
    yield "pod", None, cache.pods.get(uid)
    yield "CPU and memory", None, cache.requests.at(uid)
