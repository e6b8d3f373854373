"""Extender caches: fed by events, and read.

Tests build caches with these functions, and read with them what a cache hides.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from extender.cache import events
from extender.cache import step as steps
from extender.cache.cache import Cache
from extender.cache.node_state import ResourceState
from extender.cache.reservations import (
    REVIEW_S,
    Claim,
    NodeReservation,
    Owner,
    Reservation,
)
from extender.gang.gang import Gang
from extender.planning import plan
from extender.planning.topology import NetworkTopology, Rules
from extender.refusals import Refusal
from extender.scheduling import reserve
from extender.scheduling.reserve import Choice, Ownership
from scheduler_core.node import chips
from scheduler_core.node.reasons import Reason
from scheduler_core.node.state import NodeState
from scheduler_core.products.table import ATLAS_800_TRAINING, Product
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape
from tests.support.clock import NOW_NS, NOW_S
from tests.support.watched import (
    A3,
    BOTH,
    RESOURCE,
    Line,
    leaves,
    node,
    report,
)

# -- built ---------------------------------------------------------------------


def cluster(
    *extra: events.Change,
    nodes: Iterable[str] = ("n1",),
    lines: Iterable[Line] = (),
    **settings: Any,
) -> Cache:
    """A cache of nodes with an agent each, then of what else has been seen.

    Args:
        nodes: Names.
        lines: What each node has; nothing: eight chips for training.
        settings: Arguments of `Cache`.
    """
    cache = Cache(**settings)
    for name in nodes:
        apply(cache, node(name, *lines), report(name, *lines))
    apply(cache, *extra)
    return cache


def empty(**settings: Any) -> Cache:
    """A cache that has seen nothing."""
    return cluster(nodes=(), **settings)


#: {cache: the nodes that offer more than before}
_improved: WeakKeyDictionary[Cache, set[str]] = WeakKeyDictionary()


def apply(
    cache: Cache,
    *found: events.Change,
    now_s: float = NOW_S,
    may_conflict: bool = False,
) -> list[events.Effect]:
    """Apply events; return their effects, which nobody carries out."""
    effects: list[events.Effect] = []
    for change in found:
        outcome = cache.step(change, now_s)
        assert may_conflict or outcome.conflict is None, outcome.conflict
        effects += outcome.effects
    for effect in effects:
        if isinstance(effect, events.NodesImproved):
            _improved.setdefault(cache, set()).update(effect.nodes)
    return effects


def lined(*extra: events.Change, names: Iterable[str] = ("n1",)) -> Cache:
    """A cluster of nodes that have chips of both lines."""
    return cluster(*extra, nodes=names, lines=BOTH)


def add_node(
    cache: Cache,
    name: str,
    product: Product = ATLAS_800_TRAINING,
    *,
    address: str = "",
    superpod: int = -2,
    addresses: Addresses | None = None,
) -> None:
    """Add a node with all chips of a product."""
    line = Line(product=product, there=tuple(range(product.chip_count)))
    apply(
        cache,
        node(name, line, address=address, addresses=addresses),
        report(name, line, superpod=superpod),
    )


def superpods(**ids: int) -> Cache:
    """Nodes of A3 servers, each in the SuperPoD with this id.

    Their addresses are 10.0.0.1 and so on.
    """
    cache = empty()
    for number, (name, superpod) in enumerate(ids.items(), start=1):
        add_node(cache, name, A3, superpod=superpod, address=f"10.0.0.{number}")
    return cache


def switched(*names: str) -> Cache:
    """Nodes with the addresses 10.0.0.1 and so on, two to a leaf."""
    cache = empty()
    ips = [f"10.0.0.{number}" for number in range(1, len(names) + 1)]
    for name, ip in zip(names, ips, strict=True):
        add_node(cache, name, address=ip)
    apply(cache, leaves(*(tuple(ips[at : at + 2]) for at in range(0, len(ips), 2))))
    return cache


def kept(  # noqa: PLR0913  # the parts of a reservation
    uid: str,
    node: str,
    mask: int,
    *,
    owner: Owner = Owner.BIND,
    shape: Shape | None = None,
    resource: str = RESOURCE,
    predicate_time: int = 1,
) -> Reservation:
    """Chips kept for a pod or job; without a shape they are being freed for it."""
    return Reservation(
        kept_for=uid,
        owner=owner,
        node=node,
        resource=resource,
        chips=mask,
        until_s=NOW_S + REVIEW_S,
        claim=None if shape is None else Claim(predicate_time, shape),
        text="chips are kept for it",
    )


def choose(
    cache: Cache,
    wanted: NpuPod,
    name: str,
    *,
    now_s: float = NOW_S,
    now_ns: int = NOW_NS,
) -> Choice | Refusal:
    """Choose chips for as long as a bind may be under way, and reserve nothing."""
    ownership = Ownership(owner=Owner.BIND, until_s=now_s + 65.0)
    return reserve.choose_chips(
        cache, wanted, name, ownership=ownership, now_s=now_s, now_ns=now_ns
    )


def bind(cache: Cache, wanted: NpuPod, name: str) -> Choice:
    """Choose and reserve, as bind does."""
    made = choose(cache, wanted, name)
    assert isinstance(made, Choice), made
    apply(cache, made.reservation)
    return made


def planned(
    cache: Cache, names: tuple[str, ...], rules: Rules, job: str = "j"
) -> dict[str, tuple[str, Mapping[str, str]]] | str:
    """{pod: its node, and what is written on it}, or why there is no room."""
    wanted = gang(cache, job)
    topology = NetworkTopology(cache, rules).snapshot(wanted)
    found = plan.plan(cache, wanted, names, NOW_NS, topology)
    if isinstance(found, Refusal):
        return found.text
    apply(cache, *found)
    return {
        cache.pods[str(each.kept_for)].name: (each.node, annotated(each))
        for each in found
    }


def time_of(reservation: Reservation) -> int:
    """The predicate-time that bind writes."""
    assert reservation.claim is not None
    return reservation.claim.predicate_time


def annotated(reservation: Reservation) -> Mapping[str, str]:
    """What bind writes on the pod besides its chips."""
    assert reservation.claim is not None
    return reservation.claim.annotations


# -- read ----------------------------------------------------------------------


def node_states(
    cache: Cache, resource: Product | str = RESOURCE
) -> Mapping[str, NodeState]:
    """{node: its entry in the index} of a resource."""
    return cache.index.nodes(resource)


def free(cache: Cache, name: str, resource: str = RESOURCE) -> tuple[int, ...]:
    return chips.ids_of(node_states(cache, resource)[name].free)


def barred(cache: Cache, name: str = "n1", resource: str = RESOURCE) -> Reason | None:
    """Why the index takes no pod for a node; None: it does."""
    return node_states(cache, resource)[name].barred


def state_of(cache: Cache, name: str = "n1", resource: str = RESOURCE) -> ResourceState:
    """What is known of the chips of a node."""
    return cache._state.facts.ensure_resource(name, resource)


def resource_states(cache: Cache) -> Iterable[ResourceState]:
    return cache._state.facts.resource_states()


def known_pod(cache: Cache, name: str) -> NpuPod:
    """The pod whose uid is `uid-<name>`."""
    return cache.pods[f"uid-{name}"]


def known_uid(cache: Cache, name: str, namespace: str = "default") -> str:
    """The uid of the newest pod of this name."""
    found = cache.pod_named(namespace, name)
    assert found is not None, name
    return found.uid


def has_unconfirmed(cache: Cache) -> bool:
    """Whether a claim waits for its Allocate."""
    return bool(cache._state.unconfirmed)


def conflicts(cache: Cache, shape: Shape) -> frozenset[str]:
    """The nodes where Allocate could mix up a pod of this shape with another."""
    return cache._state.unconfirmed.conflicts(shape)


def recompute(cache: Cache, state: ResourceState) -> None:
    """Compute the free chips again, after a test has damaged the state."""
    place = state.node_info.name, state.resource
    steps._compute(cache._state, [place], steps._Draft())


def all_reservations(cache: Cache) -> list[Reservation]:
    return list(cache._state.reservations)


def reservations(cache: Cache) -> Mapping[str, Reservation]:
    """{uid: reservation} of pods that have chips of their own."""
    return {
        str(each.kept_for): each
        for each in all_reservations(cache)
        if each.claim is not None
    }


def nominations(cache: Cache) -> Mapping[str, Mapping[str, int]]:
    """{uid of a pod, or job: {node: chips that are being freed for it}}."""
    found: dict[str, dict[str, int]] = {}
    for each in all_reservations(cache):
        if each.claim is None:
            found.setdefault(str(each.kept_for), {})[each.node] = each.chips
    return found


def masks_on(cache: Cache, state: ResourceState, *, freed: bool) -> dict[str, int]:
    """{uid, or job: reserved chips of a node}: those of pods, or those being freed."""
    return {
        str(each.kept_for): each.chips
        for each in cache.reserved.get(state.node_info.name, ())
        if each.resource == state.resource and (each.claim is None) == freed
    }


def gang(cache: Cache, job: str = "j") -> Gang:
    """The job of this name whose pods say their number."""
    return cache.gangs[f"Job of pods/default/{job}"]


def only_gang(cache: Cache) -> Gang:
    (found,) = cache.gangs.values()
    return found


def improved(cache: Cache) -> set[str]:
    """The nodes that offer more than before."""
    return _improved.get(cache, set()).copy()


def take_improved(cache: Cache) -> set[str]:
    """The same; from now on they are no news."""
    found = improved(cache)
    _improved.pop(cache, None)
    return found


def reserved_nodes(cache: Cache, resource: str = RESOURCE) -> set[str]:
    """The nodes that are set aside for jobs."""
    found = cache.node_reservation(resource)
    return set() if found is None else set(found.nodes)


def set_aside(cache: Cache, name: str, job: str) -> None:
    """Reserve a node for a job of priority 0."""
    kept_nodes = NodeReservation(
        job=job,
        resource=RESOURCE,
        priority=0,
        nodes=frozenset({name}),
        until_s=NOW_S + REVIEW_S,
    )
    apply(cache, kept_nodes)


def backoff(cache: Cache, job: str, now_s: float = NOW_S) -> object | None:
    """Why pods of a controller have to wait; None: they do not."""
    return cache._state.backoff.refusal(job, now_s)


def record_rejection(cache: Cache, job: str, now_s: float = NOW_S) -> None:
    """Let the kubelet have rejected a pod of a controller."""
    cache._state.backoff.record_rejection(job, now_s)


def set_limits(cache: Cache, **limits: Any) -> None:
    cache.limits = cache._state.limits = replace(cache.limits, **limits)


def damage(cache: Cache) -> None:
    """Let whatever looks into the index fail, as an error of ours would."""
    del cache.index
