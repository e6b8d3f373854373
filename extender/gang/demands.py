"""Read from a pod which nodes it may have, and which pods it may be beside there.

Selectors, tolerations and node affinity are compared as they are written: the scheduler
evaluates them. Of (anti-)affinity and spread only what is required and about the host
name is read. Zones, volumes and claims of devices are not: the planner learns from the
scheduler's refusals.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from kube.objects import (
    Affinity,
    Container,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)
from scheduler_core.placement.siblings import (
    ANY_ADDRESS,
    FREE,
    Demands,
    HostPort,
    Requirement,
    Selector,
    Spread,
)

_HOST_NAME = "kubernetes.io/hostname"
_REQUIRED = "DoNotSchedule"
#: added by the admission plugin DefaultTolerationSeconds
_ADDED = tuple(
    Toleration(key=f"node.kubernetes.io/{name}", operator="Exists", effect="NoExecute")
    for name in ("not-ready", "unreachable")
)
_ENCODE = msgspec.json.Encoder(order="sorted").encode


class _Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parts of a pod that decide its demands."""

    namespace: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: object = None
    affinity: Affinity | None = None
    spreads: list[TopologySpreadConstraint] | None = None
    #: labels that `match_label_keys` of the spreads name
    labels: dict[str, str] | None = None
    ports: list[HostPort] | None = None


def read_demands(pod: Pod) -> Demands:
    """Return the demands of a pod on its node and on the other pods there."""
    spec = pod.spec
    spreads = spec.topology_spread_constraints
    return _demands(
        _ENCODE(
            _Source(
                namespace=pod.metadata.namespace if spec.affinity else "",
                node_selector=spec.node_selector or None,
                tolerations=_own_tolerations(spec.tolerations or ()) or None,
                affinity=spec.affinity,
                spreads=spreads or None,
                labels=_named_labels(pod) if spreads else None,
                ports=list(_host_ports(pod)) or None,
            )
        )
    )


def _own_tolerations(tolerations: Iterable[Toleration]) -> list[Toleration]:
    """Return the tolerations but those that admission adds to each pod.

    Templates lack these. A node with one of these taints has it with the effect
    `NoSchedule`, too, so they let a pod onto no node.
    """
    return [toleration for toleration in tolerations if toleration not in _ADDED]


# The thousands of pods of a job are mostly of one kind.
@lru_cache(maxsize=4096)
def _demands(text: bytes) -> Demands:
    if text == b"{}":
        return FREE
    source = msgspec.json.decode(text, type=_Source)
    affinity = source.affinity or Affinity()
    return Demands(
        kind=text.decode(),
        ports=tuple(source.ports or ()),
        apart=tuple(_selectors(affinity.pod_anti_affinity, source.namespace)),
        together=tuple(_selectors(affinity.pod_affinity, source.namespace)),
        awaits=tuple(
            _selectors(affinity.pod_affinity, source.namespace, any_domain=True)
        ),
        spreads=tuple(_spreads(source.spreads or (), source.labels or {})),
        on_nodes=_on_nodes(source),
        has_unread=_has_unread(source),
    )


def _on_nodes(source: _Source) -> str:
    of_nodes = source.affinity and source.affinity.node_affinity
    demands = _Source(
        node_selector=source.node_selector,
        tolerations=source.tolerations,
        affinity=Affinity(node_affinity=of_nodes) if of_nodes else None,
    )
    text = _ENCODE(demands).decode()
    return "" if text == "{}" else text


def _has_unread(source: _Source) -> bool:
    affinity = source.affinity or Affinity()
    terms = [
        term
        for one in (affinity.pod_affinity, affinity.pod_anti_affinity)
        for term in (one and one.required) or ()
    ]
    return any(
        term.topology_key != _HOST_NAME or term.namespace_selector is not None
        for term in terms
    ) or any(
        spread.topology_key != _HOST_NAME
        for spread in source.spreads or ()
        if spread.when_unsatisfiable == _REQUIRED
    )


def _named_labels(pod: Pod) -> dict[str, str] | None:
    labels = pod.metadata.labels or {}
    keys = {
        key
        for spread in pod.spec.topology_spread_constraints or ()
        for key in spread.match_label_keys or ()
        if key in labels
    }
    return {key: labels[key] for key in sorted(keys)} or None


def _host_ports(pod: Pod) -> Iterator[HostPort]:
    """Yield the ports of the node that a pod takes.

    On the network of the node these are all its ports. The API server says so in pods,
    but not in templates inside objects that are not its own.
    """
    init = [c for c in pod.spec.init_containers or () if c.restart_policy == "Always"]
    containers: Sequence[Container] = (*init, *(pod.spec.containers or ()))
    for container in containers:
        for port in container.ports or ():
            number = port.host_port
            if pod.spec.host_network:
                number = number or port.container_port
            if number > 0:
                address = port.host_ip or ANY_ADDRESS
                yield HostPort(number, port.protocol or "TCP", address)


def _selectors(
    affinity: PodAffinity | None, namespace: str, *, any_domain: bool = False
) -> Iterator[Selector]:
    """Yield the label selectors of terms about pods of this namespace on one node.

    Args:
        any_domain: Also of terms about pods in one zone, for example.
    """
    for term in (affinity and affinity.required) or ():
        is_near = any_domain or term.topology_key == _HOST_NAME
        if not is_near or not _is_about(term, namespace):
            continue
        selector = _selector(term.label_selector)
        if selector is not None:
            yield selector


def _is_about(term: PodAffinityTerm, namespace: str) -> bool:
    """Return whether a term is about pods of this namespace, as far as it says so.

    Labels of namespaces are not known here.
    """
    if term.namespace_selector is not None and not _selector(term.namespace_selector):
        return True  # all namespaces
    if term.namespaces:
        return namespace in term.namespaces
    return term.namespace_selector is None


def _spreads(
    constraints: Iterable[TopologySpreadConstraint], labels: dict[str, str]
) -> Iterator[Spread]:
    for constraint in constraints:
        selector = _selector(constraint.label_selector)
        if (
            constraint.when_unsatisfiable == _REQUIRED
            and constraint.topology_key == _HOST_NAME
            and selector  # without requirements, the scheduler counts no pod
        ):
            more = [
                Requirement(key, "In", frozenset((labels[key],)))
                for key in constraint.match_label_keys or ()
                if key in labels
            ]
            yield Spread(
                skew=constraint.max_skew,
                selector=tuple(dict.fromkeys((*selector, *more))),
                least_nodes=constraint.min_domains or 1,
            )


def _selector(selector: LabelSelector | None) -> Selector | None:
    """Return the requirements of a selector; None for one that matches no pod."""
    if selector is None:
        return None
    equal = [
        Requirement(key, "In", frozenset((value,)))
        for key, value in sorted((selector.match_labels or {}).items())
    ]
    others = [
        Requirement(other.key, other.operator, frozenset(other.values or ()))
        for other in selector.match_expressions or ()
    ]
    return (*equal, *others)
