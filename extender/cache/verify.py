"""Does the cache hold what the watches have shown, and what follows from it?

Watches and cache are changed in one go, so at any moment each object can be asked
about: the change that the watch would deliver for it now must change nothing.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from typing import assert_never

from extender.cache.cache import Cache
from extender.cache.events import (
    Change,
    NodeSeen,
    OtherSeen,
    PodGone,
    PodSeen,
    ReportSeen,
    SwitchesSeen,
)
from extender.cache.node_record import tenant_of
from scheduler_core.products.table import Product
from service.quote import shown

#: What a watch shows of the cluster.
Shown = NodeSeen | ReportSeen | SwitchesSeen | PodSeen | OtherSeen | PodGone


def wrong(cache: Cache, change: Shown) -> str:
    """What is held otherwise than a watch shows it; "" if all is as it should be.

    Args:
        cache: What is held.
        change: What the watch shows of one object.
    """
    return "; ".join(
        f"{name}: expected {shown(expected)}, found {shown(found)}"
        for name, expected, found in _pairs(cache, change)
        if expected != found
    )


def strays(
    cache: Cache,
    *,
    nodes: Collection[str],
    pods: Collection[str],
    reports: Collection[str],
) -> list[Change]:
    """What is to happen so that nothing is held of objects that no watch shows.

    Args:
        cache: What is held.
        nodes: Names of all nodes.
        pods: UIDs of all pods.
        reports: Names of the nodes that a report is there of.
    """
    held = cache.pods.keys() | cache.loads.uids()
    found: list[Change] = [PodGone(uid=uid) for uid in sorted(held - set(pods))]
    for name, host in cache.hosts.items():
        has_chips = any(record.product is not None for record in host.lines)
        if has_chips and name not in nodes:
            found.append(NodeSeen(name=name))
        if any(host.report_texts) and name not in reports:
            found.append(ReportSeen(node=name))
    return found


def forgotten(cache: Cache, known: Collection[str]) -> list[str]:
    """UIDs of pods that have been promised chips, and nobody answers for it.

    Args:
        cache: What is held.
        known: UIDs of pods whose promises somebody answers for, besides plans of jobs.
    """
    places = {uid for gang in cache.gangs.jobs.values() for uid in gang.places}
    return sorted(cache.assumed.keys() - places.union(known))


#: (what, as it should be, as it is held)
_Pairs = Iterator[tuple[str, object, object]]


def _pairs(cache: Cache, change: Shown) -> _Pairs:
    match change:
        case NodeSeen():
            found = _of_node(cache, change)
        case ReportSeen():
            found = _of_report(cache, change)
        case PodSeen():
            found = _of_pod(cache, change)
        case OtherSeen():
            found = _of_other(cache, change)
        case PodGone():
            found = _of_gone(cache, change.uid)
        case SwitchesSeen():
            told = (change.tor_info, change.tor_level)
            found = iter([("switches", told, cache.switch_texts)])
        case _:
            assert_never(change)
    return found


def _of_node(cache: Cache, change: NodeSeen) -> _Pairs:
    host = cache.hosts.get(change.name)
    lines = host.lines if host is not None else ()
    held = {line.product: line for line in lines if line.product is not None}
    offered = {offer.product: offer for offer in change.offers}
    yield "product", _keys(offered), _keys(held)
    if host is None or not offered:
        return  # nothing else of it counts, nor is it kept
    yield "inventory", change.inventory, host.inventory_text
    yield "room", change.room, host.room
    yield "address", change.address, host.address
    yield "SuperPoD", change.superpod, host.superpod
    for product, line in held.items():
        offer = offered.get(product)
        if offer is not None:
            yield "allocatable", offer.allocatable, line.allocatable
        state = line.state(self_maintain=cache.self_maintains)
        indexed = cache.cluster.line(product).get(change.name)
        yield "in the index", state, indexed


def _keys(products: Iterable[Product]) -> list[str]:
    return sorted(product.key for product in products)


def _of_report(cache: Cache, change: ReportSeen) -> _Pairs:
    host = cache.hosts.get(change.node)
    held = host.report_texts if host is not None else ("", "")
    yield "DeviceInfoCfg", change.device_info, held[0]
    yield "AscendAffinity", change.affinity, held[1]


def _of_pod(cache: Cache, change: PodSeen) -> _Pairs:
    pod = change.pod
    held = cache.pods.get(pod.uid)
    if held is None:
        yield "pod", pod.uid, None
        return
    for each in fields(pod):
        yield each.name, getattr(pod, each.name), getattr(held, each.name)
    load = None if pod.terminal else (pod.node, change.ask)
    yield "CPU and memory", load, cache.loads.at(pod.uid)
    if change.priority:
        yield "priority", change.priority, cache.priorities.get(pod.uid)
    seat = change.seat if pod.phase != "Failed" else None
    job = seat.membership.job if seat is not None else ""
    yield "job", job, cache.gangs.job_of.get(pod.uid, "")
    record = cache.line(pod.node, pod.shape.resource)
    if record is not None:
        tenant = None if pod.terminal else tenant_of(pod, record.product)
        yield "on its node", tenant, record.tenants.get(pod.uid)
    elif pod.node and not pod.terminal:
        yield "on its node", pod.node, None


def _of_other(cache: Cache, change: OtherSeen) -> _Pairs:
    yield "CPU and memory", (change.node, change.ask), cache.loads.at(change.uid)
    yield "job", change.job, cache.gangs.job_of.get(change.uid, "")


def _of_gone(cache: Cache, uid: str) -> _Pairs:
    yield "pod", None, cache.pods.get(uid)
    yield "CPU and memory", None, cache.loads.at(uid)
