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
from typing import ClassVar

from scheduler_core.index.queries import NodeIndex
from scheduler_core.node.reasons import Reason
from scheduler_core.node.state import NodeState
from scheduler_core.placement.overlay import Overlay
from scheduler_core.products.columns import Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """Change of one node."""

    node: str
    #: word of the kind in documents
    word: ClassVar[str]
    #: clause of a text for relaxations of the kind on one node
    clause: ClassVar[str]

    def relax(self, node: NodeState | None) -> NodeState | None:
        """Return the node with the change; a node that is None is not in the index."""
        return node and self._change(node)

    def _change(self, node: NodeState) -> NodeState:
        return node


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRelaxation(Relaxation):
    """Change of one chip."""

    chip: int


class ConfirmPod(Relaxation):
    """The pod that waits unconfirmed on a node gets its chips, so others may follow."""

    word = "settle"
    clause = "the pod that waits on {part.node} had its chips"


class FreeChip(ChipRelaxation):
    """The pod or process that has a chip releases it."""

    word = "free"
    clause = "{chips} of {part.node} {were} free"

    def _change(self, node: NodeState) -> NodeState:
        return replace(node, free=node.free | 1 << self.chip & node.healthy)


class HealChip(ChipRelaxation):
    """A chip becomes healthy; it is free unless it is known to be taken."""

    word = "heal"
    clause = "{chips} of {part.node} {were} healthy"

    def _change(self, node: NodeState) -> NodeState:
        healthy, idle = node.healthy | 1 << self.chip, 1 << self.chip & ~node.taken
        return replace(node, healthy=healthy, free=node.free | idle)


class HealNetwork(ChipRelaxation):
    """The network of a chip becomes healthy."""

    word = "heal-network"
    clause = "{chips} of {part.node} had a healthy network"

    def _change(self, node: NodeState) -> NodeState:
        unhealthy_network = node.network_unhealthy & ~(1 << self.chip)
        return replace(node, network_unhealthy=unhealthy_network)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReopenNode(Relaxation):
    """A barred node takes pods again."""

    word = "mend"
    clause = "{part.reopened}"
    #: reason for which the node is barred
    bar: Reason

    @property
    def reopened(self) -> str:
        """The clause, by the reason."""
        text = _REOPENED.get(self.bar, "{node} took pods again")
        return text.format(node=self.node)

    def _change(self, node: NodeState) -> NodeState:
        return replace(node, barred=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNode(Relaxation):
    """The cluster gets one more node, without pods, under a name in the advice."""

    word = "add"
    clause = "there {were} {number} ({part.row.name})"
    row: Product

    def relax(self, node: NodeState | None) -> NodeState:
        """Return the new node."""
        del node
        all_chips = self.row.all_chips
        return NodeState(
            name=self.node,
            product=self.row,
            inventory=all_chips,
            healthy=all_chips,
            free=all_chips,
        )


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
        # `FreeChip` frees a chip only if it is healthy, so healing comes first.
        for part in sorted(parts, key=lambda part: isinstance(part, FreeChip)):
            node = part.relax(node)
        if node is None:
            self._relaxed.pop(name, None)
        else:
            self._relaxed[name] = node


#: predicate on a simulation, such as "the pod gets a place"
Check = Callable[[Simulation], bool]


def sort_relaxations(parts: Iterable[Relaxation]) -> tuple[Relaxation, ...]:
    """Return the relaxations in the order of texts: by kind, node and chip."""
    return tuple(sorted(parts, key=_sort_key))


def _sort_key(part: Relaxation) -> tuple[int, str, int]:
    chip = part.chip if isinstance(part, ChipRelaxation) else 0
    return _ORDER.index(type(part)), part.node, chip


def _clauses(parts: Iterable[Relaxation]) -> Iterator[str]:
    """Yield a clause for each kind and node, and one for all nodes to be added."""

    def subject(part: Relaxation) -> tuple[type[Relaxation], str]:
        return type(part), "" if isinstance(part, AddNode) else part.node

    for _, group in groupby(sort_relaxations(parts), key=subject):
        yield _clause(tuple(group))


def _clause(parts: Sequence[Relaxation]) -> str:
    """Return the clause for relaxations of one kind on one node, or of added nodes."""
    several = len(parts) > 1
    listed = ", ".join(str(p.chip) for p in parts if isinstance(p, ChipRelaxation))
    return parts[0].clause.format(
        part=parts[0],
        chips=f"{'chips' if several else 'chip'} {listed}",
        were="were" if several else "was",
        number=f"{len(parts)} more nodes" if several else "one more node",
    )
