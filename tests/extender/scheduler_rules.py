"""The rules by which kube-scheduler offers nodes to a pod, in the plainest way.

Pods and nodes are objects as the API server has them. Only what the tests use is here:
selectors and taints, host ports, required (anti-)affinity and spread of one namespace.

Source:
    kube-scheduler v1.36.3, pkg/scheduler/framework/plugins: nodeaffinity,
    tainttoleration, nodeports, interpodaffinity/filtering.go,
    podtopologyspread/filtering.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sandbox.apiclient import Object

_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
HOST_NAME = "kubernetes.io/hostname"

#: {name of a pod: (pod, name of its node)}
Placed = Mapping[str, tuple[Object, str]]


def offered(pod: Object, nodes: Mapping[str, Object], placed: Placed) -> list[str]:
    """The nodes that pass the scheduler's own filters, in the order of `nodes`."""
    return [
        name
        for name, node in nodes.items()
        if is_selected(pod, node)
        and _is_tolerated(pod, node)
        and _has_ports(pod, name, placed)
        and _is_apart(pod, name, nodes, placed)
        and _is_beside(pod, name, nodes, placed)
        and _is_spread(pod, name, nodes, placed)
    ]


def is_selected(pod: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels", {})
    selector = pod["spec"].get("nodeSelector", {})
    return all(labels.get(key) == value for key, value in selector.items())


def _is_tolerated(pod: Object, node: Object) -> bool:
    tolerated = {each["key"] for each in pod["spec"].get("tolerations", ())}
    return all(
        each["key"] in tolerated for each in node.get("spec", {}).get("taints", ())
    )


def _ports(pod: Object) -> set[int]:
    return {
        port["hostPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
    }


def _has_ports(pod: Object, name: str, placed: Placed) -> bool:
    return all(
        node != name or not _ports(pod) & _ports(other)
        for other, node in placed.values()
    )


def _matches(selector: Mapping[str, Any], pod: Object) -> bool:
    labels = pod["metadata"].get("labels", {})
    return all(labels.get(k) == v for k, v in selector["matchLabels"].items())


def _terms(pod: Object, kind: str) -> Sequence[Mapping[str, Any]]:
    terms: Sequence[Mapping[str, Any]] = (
        pod["spec"].get("affinity", {}).get(kind, {}).get(_TERMS, ())
    )
    return terms


def _is_of(one: str, other: str, key: str, nodes: Mapping[str, Object]) -> bool:
    """Whether two nodes are of one domain."""
    values = [nodes[name]["metadata"]["labels"].get(key) for name in (one, other)]
    return values[0] is not None and values[0] == values[1]


def _is_apart(
    pod: Object, name: str, nodes: Mapping[str, Object], placed: Placed
) -> bool:
    for other, node in placed.values():
        pairs = ((pod, other), (other, pod))  # both sides may object
        for one, two in pairs:
            for term in _terms(one, "podAntiAffinity"):
                is_of = _is_of(name, node, term["topologyKey"], nodes)
                if is_of and _matches(term["labelSelector"], two):
                    return False
    return True


def _is_beside(
    pod: Object, name: str, nodes: Mapping[str, Object], placed: Placed
) -> bool:
    terms = _terms(pod, "podAffinity")
    if not terms:
        return True

    def is_wanted(other: Object) -> bool:
        return all(_matches(term["labelSelector"], other) for term in terms)

    others = [node for other, node in placed.values() if is_wanted(other)]
    if not others:
        return is_wanted(pod)
    return all(
        any(_is_of(name, node, term["topologyKey"], nodes) for node in others)
        for term in terms
    )


def is_near_others(pod: Object) -> bool:
    """Whether it must be near pods with other labels than its own."""
    terms = _terms(pod, "podAffinity")
    return not all(_matches(term["labelSelector"], pod) for term in terms)


def _is_spread(
    pod: Object, name: str, nodes: Mapping[str, Object], placed: Placed
) -> bool:
    for constraint in pod["spec"].get("topologySpreadConstraints", ()):
        key, selector = constraint["topologyKey"], constraint["labelSelector"]
        domain_of = {n: each["metadata"]["labels"][key] for n, each in nodes.items()}
        counts = {
            domain_of[n]: 0 for n, each in nodes.items() if is_selected(pod, each)
        }
        for other, node in placed.values():
            if domain_of[node] in counts and _matches(selector, other):
                counts[domain_of[node]] += is_selected(pod, nodes[node])
        own = int(_matches(selector, pod))
        if counts[domain_of[name]] + own - min(counts.values()) > constraint["maxSkew"]:
            return False
    return True


def term(labels: Mapping[str, str], key: str = HOST_NAME) -> dict[str, Any]:
    """A required term about pods with these labels."""
    selector = {"matchLabels": dict(labels)}
    return {_TERMS: [{"topologyKey": key, "labelSelector": selector}]}


def spread(
    labels: Mapping[str, str], skew: int = 1, key: str = HOST_NAME
) -> dict[str, Any]:
    """A spread constraint over pods with these labels."""
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": dict(labels)},
    }


def names_of(pods: Iterable[Object]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]
