"""What kube-scheduler sends to an extender and what it reads back, as values.

The scheduler's structs have no JSON names, so the keys are Go's (`Pod`, `NodeNames`),
and Go reads them in any case: so do we. Nodes are passed through as bytes, never
decoded beyond their name; five thousand names cost a fraction of a millisecond.

Source: kubernetes/kube-scheduler `extender/v1/types.go`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from extender.http.body import BodyError, decoded
from kube import objects

#: The scheduler's scale for prioritize: 0 to 10, higher is better.
MAX_SCORE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The nodes of a request, and the form in which the answer is wanted."""

    #: In the order of the request.
    names: tuple[str, ...]
    #: {name: the node object as sent}; None when the request gave names only.
    nodes: Mapping[str, msgspec.Raw] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesArgs:
    """Body of filter and prioritize."""

    pod: objects.Pod
    candidates: Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class BindArgs:
    """Body of bind."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """Pods of one node that the scheduler would evict."""

    uids: tuple[str, ...]
    #: evictions beyond what the PodDisruptionBudgets allow
    violations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptArgs:
    """Body of preempt."""

    pod: objects.Pod
    #: {node: whom the scheduler would evict there}
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
    """Read the body of filter or prioritize.

    Raises:
        BodyError: with the key that is wrong.
    """
    fields = _fields(body)
    if "pod" not in fields:
        raise BodyError("Pod: expected a pod, found nothing")
    pod = decoded(_POD, fields["pod"], "Pod")
    names = decoded(_NAMES, fields.get("nodenames", _NULL), "NodeNames")
    if names is not None:
        return NodesArgs(pod=pod, candidates=Candidates(names=tuple(names), nodes=None))
    nodes = _nodes(fields.get("nodes", _NULL))
    return NodesArgs(pod=pod, candidates=Candidates(names=tuple(nodes), nodes=nodes))


def preempt_args(body: bytes) -> PreemptArgs:
    """Read the body of preempt, with whole pods or with their UIDs only.

    Raises:
        BodyError: with the key that is wrong.
    """
    fields = _fields(body)
    if "pod" not in fields:
        raise BodyError("Pod: expected a pod, found nothing")
    victims: dict[str, _Victims] = {}
    for key in ("NodeNameToVictims", "NodeNameToMetaVictims"):
        victims |= decoded(_VICTIMS, fields.get(key.lower(), _NULL), key) or {}
    return PreemptArgs(
        pod=decoded(_POD, fields["pod"], "Pod"),
        victims={
            node: Victims(
                uids=tuple(each.uid or each.metadata.uid for each in found.pods or ()),
                violations=found.violations,
            )
            for node, found in victims.items()
        },
    )


def bind_args(body: bytes) -> BindArgs:
    """Read the body of bind.

    Raises:
        BodyError: with the key that is wrong.
    """
    fields = _fields(body)

    def text(key: str) -> str:
        found = decoded(_TEXT, fields.get(key.lower(), msgspec.Raw(b'""')), key)
        if not found:
            raise BodyError(f"{key}: expected a text, found nothing")
        return found

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
    """Write the answer of filter, in the form that was asked for.

    Args:
        candidates: the nodes of the request.
        fitting: those of them that the pod may go to.
        failed: {node: why not}, where evicting other pods could help.
        unresolvable: {node: why not}, where it could not.
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
    """Write the answer of preempt: the nodes where evicting these pods helps."""
    left = {
        node: {
            "Pods": [{"UID": uid} for uid in found.uids],
            "NumPDBViolations": found.violations,
        }
        for node, found in victims.items()
    }
    return _ENCODE.encode({"NodeNameToMetaVictims": left})


def error_answer(text: str) -> bytes:
    """Write the answer of filter or bind that says why there is no other."""
    return _ENCODE.encode({"Error": text})


def scores_answer(scores: Iterable[tuple[str, int]]) -> bytes:
    """Write the answer of prioritize."""
    return _ENCODE.encode([{"Host": name, "Score": score} for name, score in scores])


def _nodes(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    if bytes(raw) == b"null":
        return {}
    items = decoded(_ITEMS, _fields(raw).get("items", _NULL), "Nodes.items")
    return {
        decoded(_NODE, item, f"Nodes.items[{i}]").metadata.name: item
        for i, item in enumerate(items or ())
    }


def _fields(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    found = decoded(_FIELDS, body, "body")
    return {key.lower(): value for key, value in found.items()}
