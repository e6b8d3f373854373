"""Relaxations that could give a pod a place, and a simulation of the index with them.

A relaxation is one change of the cluster, such as a freed chip or an added node.
"""

from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from itertools import groupby
from typing import assert_never

from scheduler_core.index.queries import NodeIndex
from scheduler_core.node.reasons import Reason
from scheduler_core.node.state import NodeState
from scheduler_core.placement.overlay import Overlay
from scheduler_core.products.columns import Product


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmPod:
    """The pod that waits unconfirmed on a node gets its chips, so others may follow."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeChip:
    """The pod or process that has a chip releases it."""

    node: str
    chip: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HealChip:
    """A chip becomes healthy; it is free unless it is known to be taken."""

    node: str
    chip: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HealNetwork:
    """The network of a chip becomes healthy."""

    node: str
    chip: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReopenNode:
    """A barred node takes pods again."""

    node: str
    #: reason for which the node is barred
    bar: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNode:
    """The cluster gets one more node, without pods."""

    #: name of the node in the advice
    node: str
    row: Product


Relaxation = ConfirmPod | FreeChip | HealChip | HealNetwork | ReopenNode | AddNode
#: order of the kinds in an advice's text
_ORDER = (ConfirmPod, FreeChip, HealChip, HealNetwork, ReopenNode, AddNode)
#: number of clauses in a text; it counts the others
_CLAUSES_SHOWN = 5
_REOPENED: Mapping[Reason, str] = {
    Reason.NO_ALLOCATABLE: "the kubelet of {node} offered its NPUs",
    Reason.AGENT_SILENT: "the agent of {node} reported again",
    Reason.BAD_NODE_REPORT: "the NPU report of {node} could be read",
    Reason.IDS_LOST: "the pod of {node} whose device ids are lost had ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Relaxations that together give the pod or job a place."""

    parts: tuple[Relaxation, ...]

    @property
    def text(self) -> str:
        """The advice in one sentence, for the pod's owner."""
        clauses = list(_clauses(self.parts))
        rest_count = len(clauses) - _CLAUSES_SHOWN
        rest = [f"{rest_count} more such things"] if rest_count > 0 else []
        return f"it would fit if {'; and '.join([*clauses[:_CLAUSES_SHOWN], *rest])}"


class Simulation:
    """Index with an overlay of the nodes to which relaxations are applied.

    Invariant: `_applied` has the relaxations of the last check by node, `_relaxed` the
    nodes with them. Between two checks only nodes with other relaxations than before
    are computed again.
    """

    __slots__ = (
        *("_applied", "_base", "_names_and_avoid", "_relaxed", "_wanted"),
        *("avoid", "cluster", "names"),
    )

    def __init__(
        self,
        wanted: Product | str,
        cluster: NodeIndex,
        names: Iterable[str] | None,
        avoid: Container[str],
    ) -> None:
        """Start without relaxations. Arguments as for `NodeIndex.best`."""
        node_names = None if names is None else tuple(names)
        avoided = frozenset(name for name in cluster.nodes(wanted) if name in avoid)
        self._names_and_avoid = node_names, avoided
        self._applied: dict[str, list[Relaxation]] = {}
        self._relaxed: dict[str, NodeState] = {}
        self._wanted = wanted
        self._base = cluster
        self.cluster = cluster
        self.names: tuple[str, ...] | None = node_names
        self.avoid: frozenset[str] = avoided

    def nodes(self) -> list[NodeState]:
        """Return the candidate nodes, ordered by name."""
        names = None if self.names is None else frozenset(self.names)
        nodes = self.cluster.nodes(self._wanted)
        return [nodes[name] for name in sorted(nodes) if names is None or name in names]

    def passes(self, parts: Iterable[Relaxation], check: "Check") -> bool:
        """Apply exactly these relaxations, and return the result of `check`."""
        by_node: dict[str, list[Relaxation]] = {}
        for part in parts:
            by_node.setdefault(part.node, []).append(part)
        for name in {**self._applied, **by_node}:
            if self._applied.get(name) != by_node.get(name):
                self._apply(name, by_node.get(name, ()))
        self._applied = by_node
        self.cluster = Overlay(self._base, self._relaxed.values())
        names, avoid = self._names_and_avoid
        applied = [part for of_node in by_node.values() for part in of_node]
        added = [part.node for part in applied if isinstance(part, AddNode)]
        self.names = None if names is None else (*names, *added)
        self.avoid = avoid - {
            part.node for part in applied if isinstance(part, ConfirmPod)
        }
        return check(self)

    def _apply(self, name: str, parts: Sequence[Relaxation]) -> None:
        """Compute the node with these relaxations, and no others."""
        node = self._base.nodes(self._wanted).get(name) if parts else None
        # `_relax` frees a chip only if it is healthy, so healing comes first.
        for part in sorted(parts, key=_is_free):
            if isinstance(part, AddNode):
                node = _new_node(part)
            elif node is not None:
                node = _relax(node, part)
        if node is None:
            self._relaxed.pop(name, None)
        else:
            self._relaxed[name] = node


#: predicate on a simulation, such as "the pod gets a place"
Check = Callable[[Simulation], bool]


def _is_free(part: Relaxation) -> bool:
    return isinstance(part, FreeChip)


def _new_node(part: AddNode) -> NodeState:
    all_chips = part.row.all_chips
    return NodeState(
        name=part.node,
        product=part.row,
        inventory=all_chips,
        healthy=all_chips,
        free=all_chips,
    )


def _relax(
    node: NodeState, part: ConfirmPod | FreeChip | HealChip | HealNetwork | ReopenNode
) -> NodeState:
    """Return the node with one relaxation applied."""
    match part:
        case ConfirmPod():
            return node
        case FreeChip(chip=chip):
            return replace(node, free=node.free | 1 << chip & node.healthy)
        case HealChip(chip=chip):
            healthy, idle = node.healthy | 1 << chip, 1 << chip & ~node.taken
            return replace(node, healthy=healthy, free=node.free | idle)
        case HealNetwork(chip=chip):
            unhealthy_network = node.network_unhealthy & ~(1 << chip)
            return replace(node, network_unhealthy=unhealthy_network)
        case ReopenNode():
            return replace(node, barred=None)


def sort_relaxations(parts: Iterable[Relaxation]) -> tuple[Relaxation, ...]:
    """Return the relaxations in the order of texts: by kind, node and chip."""
    return tuple(sorted(parts, key=_sort_key))


def _sort_key(part: Relaxation) -> tuple[int, str, int]:
    return _ORDER.index(type(part)), part.node, sum(_chips((part,)))


def _chips(parts: Iterable[Relaxation]) -> tuple[int, ...]:
    return tuple(
        part.chip
        for part in parts
        if isinstance(part, FreeChip | HealChip | HealNetwork)
    )


def _clauses(parts: Iterable[Relaxation]) -> Iterator[str]:
    """Yield a clause for each kind and node, and one for all nodes to be added."""

    def subject(part: Relaxation) -> tuple[type[Relaxation], str]:
        return type(part), "" if isinstance(part, AddNode) else part.node

    for _, group in groupby(sort_relaxations(parts), key=subject):
        relaxations = tuple(group)
        yield _clause(relaxations[0], relaxations)


def _clause(part: Relaxation, relaxations: Sequence[Relaxation]) -> str:
    """Return the clause for relaxations of one kind on one node, or of added nodes."""
    listed = ", ".join(map(str, _chips(relaxations)))
    chips, were = ("chips", "were") if len(relaxations) > 1 else ("chip", "was")
    match part:
        case ConfirmPod(node=node):
            clause = f"the pod that waits on {node} had its chips"
        case FreeChip(node=node):
            clause = f"{chips} {listed} of {node} {were} free"
        case HealChip(node=node):
            clause = f"{chips} {listed} of {node} {were} healthy"
        case HealNetwork(node=node):
            clause = f"{chips} {listed} of {node} had a healthy network"
        case ReopenNode(node=node, bar=bar):
            clause = _REOPENED.get(bar, "{node} took pods again").format(node=node)
        case AddNode(row=row):
            number = (
                "one more node"
                if len(relaxations) == 1
                else f"{len(relaxations)} more nodes"
            )
            clause = f"there {were} {number} ({row.name})"
        case _:
            assert_never(part)
    return clause
