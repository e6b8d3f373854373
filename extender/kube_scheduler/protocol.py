"""JSON bodies of kube-scheduler's extender protocol: decode requests, encode answers.

The scheduler's Go structs have no JSON names, so the keys are Go's field names (`Pod`,
`NodeNames`). Go finds a key in any mix of upper and lower case. This module does so for
the keys of the body and of `Nodes`. Node objects are passed through as bytes, for
speed; only their names are decoded.

Source: kubernetes/kube-scheduler `extender/v1/types.go`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from extender.http.body import BodyError, decode_body
from kube import objects

#: The scheduler's scale for prioritize: 0 to 10, higher is better.
MAX_SCORE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Names or whole objects of the candidate nodes of a filter or prioritize request.

    The answer of filter has names if the request had names, and else objects.
    """

    #: node names in the order of the request
    names: tuple[str, ...]
    #: {name: node object as sent}; None if the request gave names only
    nodes: Mapping[str, msgspec.Raw] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesArgs:
    """Body of a filter or prioritize request, with a pod and its candidate nodes."""

    pod: objects.Pod
    candidates: Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class BindArgs:
    """Body of a bind request, with a pod and the node to bind it to."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """Pods of one node that the scheduler would evict for a pod of higher priority."""

    uids: tuple[str, ...]
    #: evictions beyond what the PodDisruptionBudgets allow
    violations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptArgs:
    """Body of a preempt request, with a pod and the proposed victims on each node."""

    pod: objects.Pod
    #: {node: pods that the scheduler would evict there}
    victims: Mapping[str, Victims]


class _MetaPod(msgspec.Struct):
    uid: str = msgspec.field(name="UID", default="")
    metadata: objects.Meta = objects.Meta()


class _Victims(msgspec.Struct):
    pods: list[_MetaPod] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _NodeMeta(msgspec.Struct):
    name: str


class _Node(msgspec.Struct):
    metadata: _NodeMeta


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAMES = msgspec.json.Decoder(list[str] | None)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw] | None)
_NODE = msgspec.json.Decoder(_Node)
_POD = msgspec.json.Decoder(objects.Pod)
_TEXT = msgspec.json.Decoder(str)
_VICTIMS = msgspec.json.Decoder(dict[str, _Victims] | None)
_ENCODE = msgspec.json.Encoder()
_NULL = msgspec.Raw(b"null")


def nodes_args(body: bytes) -> NodesArgs:
    """Decode the pod and the candidate nodes of a filter or prioritize request.

    Raises:
        BodyError: The body is malformed; the message names the malformed key.
    """
    fields = _fields(body)
    if "pod" not in fields:
        raise BodyError("Pod: expected a pod, found nothing")
    pod = decode_body(_POD, fields["pod"], "Pod")
    names = decode_body(_NAMES, fields.get("nodenames", _NULL), "NodeNames")
    if names is not None:
        return NodesArgs(pod=pod, candidates=Candidates(names=tuple(names), nodes=None))
    nodes = _nodes(fields.get("nodes", _NULL))
    return NodesArgs(pod=pod, candidates=Candidates(names=tuple(nodes), nodes=nodes))


def preempt_args(body: bytes) -> PreemptArgs:
    """Decode the pod of a preempt request, and the proposed victims on each node.

    The victims may be whole pods or only their UIDs.

    Raises:
        BodyError: The body is malformed; the message names the malformed key.
    """
    fields = _fields(body)
    if "pod" not in fields:
        raise BodyError("Pod: expected a pod, found nothing")
    victims: dict[str, _Victims] = {}
    for key in ("NodeNameToVictims", "NodeNameToMetaVictims"):
        victims |= decode_body(_VICTIMS, fields.get(key.lower(), _NULL), key) or {}
    return PreemptArgs(
        pod=decode_body(_POD, fields["pod"], "Pod"),
        victims={
            node: Victims(
                uids=tuple(
                    pod.uid or pod.metadata.uid for pod in node_victims.pods or ()
                ),
                violations=node_victims.violations,
            )
            for node, node_victims in victims.items()
        },
    )


def bind_args(body: bytes) -> BindArgs:
    """Decode the pod of a bind request, and the node to bind it to.

    Raises:
        BodyError: The body is malformed; the message names the malformed key.
    """
    fields = _fields(body)

    def text(key: str) -> str:
        value = decode_body(_TEXT, fields.get(key.lower(), msgspec.Raw(b'""')), key)
        if not value:
            raise BodyError(f"{key}: expected a text, found nothing")
        return value

    return BindArgs(
        namespace=text("PodNamespace"),
        name=text("PodName"),
        uid=text("PodUID"),
        node=text("Node"),
    )


def filter_answer(
    candidates: Candidates,
    fitting: Sequence[str],
    *,
    failed: Mapping[str, str],
    unresolvable: Mapping[str, str],
) -> bytes:
    """Encode the answer of filter, with fitting nodes and refusals of the others.

    Fitting nodes are given as names if the request gave names, else as node objects.

    Args:
        candidates: Nodes of the request.
        fitting: Names of the candidates that the pod may go to.
        failed: {node: refusal} of nodes where the scheduler may try evictions.
        unresolvable: {node: refusal} of nodes where the scheduler tries no eviction.
    """
    answer: dict[str, object] = {
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }
    if candidates.nodes is None:
        answer["NodeNames"] = fitting
    else:
        answer["Nodes"] = {"items": [candidates.nodes[name] for name in fitting]}
    return _ENCODE.encode(answer)


def preempt_answer(victims: Mapping[str, Victims]) -> bytes:
    """Encode the answer of preempt.

    Args:
        victims: {node: pods whose eviction lets the preempting pod fit the node}.
    """
    by_node = {
        node: {
            "Pods": [{"UID": uid} for uid in node_victims.uids],
            "NumPDBViolations": node_victims.violations,
        }
        for node, node_victims in victims.items()
    }
    return _ENCODE.encode({"NodeNameToMetaVictims": by_node})


def error_answer(text: str) -> bytes:
    """Encode an answer of filter or bind that has only an error text.

    Args:
        text: The error. In an answer of bind, "" means that the pod is bound.
    """
    return _ENCODE.encode({"Error": text})


def scores_answer(scores: Iterable[tuple[str, int]]) -> bytes:
    """Encode the answer of prioritize from (node name, score) pairs."""
    return _ENCODE.encode([{"Host": name, "Score": score} for name, score in scores])


def _nodes(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    if bytes(raw) == b"null":
        return {}
    items = decode_body(_ITEMS, _fields(raw).get("items", _NULL), "Nodes.items")
    return {
        decode_body(_NODE, item, f"Nodes.items[{i}]").metadata.name: item
        for i, item in enumerate(items or ())
    }


def _fields(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    fields = decode_body(_FIELDS, body, "body")
    return {key.lower(): value for key, value in fields.items()}
