"""What could be done for a pod that has no place, and the index as if it were done."""

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

from scheduler_core.index.cluster import Cluster
from scheduler_core.node.reasons import Reason
from scheduler_core.node.state import NodeState
from scheduler_core.products.columns import Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """The pod for whose sake a node is to be avoided gets its chips."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Who has a chip lets go of it."""

    node: str
    chip: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal:
    """A chip becomes healthy, and is free then unless somebody is known to have it."""

    node: str
    chip: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HealNetwork:
    """The network of a chip becomes healthy."""

    node: str
    chip: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mend:
    """A node that is out of use as a whole takes pods again."""

    node: str
    #: what keeps it out of use
    bar: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """One more node, with nothing on it."""

    #: the name by which the advice calls it
    node: str
    row: Product


Part = Settle | Free | Heal | HealNetwork | Mend | Add
#: in which order parts are said
_ORDER = (Settle, Free, Heal, HealNetwork, Mend, Add)
#: clauses that are said; of more only the number
_SAID = 5
_MENDED: Mapping[Reason, str] = {
    Reason.NO_ALLOCATABLE: "the kubelet of {node} offered its NPUs",
    Reason.AGENT_SILENT: "the agent of {node} reported again",
    Reason.BAD_NODE_REPORT: "the NPU report of {node} could be read",
    Reason.IDS_LOST: "the pod of {node} whose device ids are lost had ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """All that must be done together."""

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """In a sentence, for who looks at the pod."""
        said = list(_clauses(self.parts))
        more = len(said) - _SAID
        rest = [f"{more} more such things"] if more > 0 else []
        return f"it would fit if {'; and '.join([*said[:_SAID], *rest])}"


class Trial:
    """A copy of an index, to be asked what would be if some parts were done.

    Invariant: `_done` are the parts that are done in the copy, by node, and `_base` the
    nodes as they were, None for those that are to be added. From one question to the
    next only those nodes change of which other parts are done.
    """

    __slots__ = ("_base", "_done", "_given", "_wanted", "avoid", "cluster", "names")

    def __init__(
        self,
        wanted: Product | str,
        cluster: Cluster,
        names: Iterable[str] | None,
        avoid: Container[str],
    ) -> None:
        """Copy of an index what is of one resource. Arguments as for `Cluster.best`."""
        asked = None if names is None else tuple(names)
        line = cluster.line(wanted)
        shunned = frozenset(name for name in line if name in avoid)
        self._given = asked, shunned
        self._base: dict[str, NodeState | None] = {}
        self._done: dict[str, list[Part]] = {}
        self._wanted = wanted
        self.cluster = Cluster(line.values())
        self.names: tuple[str, ...] | None = asked
        self.avoid: frozenset[str] = shunned

    def nodes(self) -> list[NodeState]:
        """Those that are asked about, by name."""
        names = None if self.names is None else frozenset(self.names)
        return [node for node in self.cluster if names is None or node.name in names]

    def holds(self, parts: Iterable[Part], asked: "Asked") -> bool:
        """Whether it is so when these parts are done, and no others."""
        done: dict[str, list[Part]] = {}
        for part in parts:
            done.setdefault(part.node, []).append(part)
        for name in {**self._done, **done}:
            if self._done.get(name) != done.get(name):
                self._do(name, done.get(name, ()))
        self._done = done
        names, avoid = self._given
        every = [part for some in done.values() for part in some]
        added = [part.node for part in every if isinstance(part, Add)]
        self.names = None if names is None else (*names, *added)
        self.avoid = avoid - {part.node for part in every if isinstance(part, Settle)}
        return asked(self)

    def _do(self, name: str, parts: Iterable[Part]) -> None:
        """Make one node what it is when these parts are done, from what it was."""
        now = self.cluster.line(self._wanted).get(name)
        node = self._base.setdefault(name, now)
        # A chip can be let go of only when it is healthy: see `_better`.
        for part in sorted(parts, key=_is_free):
            if isinstance(part, Add):
                node = _new(part)
            elif node is not None:
                node = _better(node, part)
        if node is None:
            self.cluster.drop(name, self._wanted)
        else:
            self.cluster.put(node)


#: a question to a trial
Asked = Callable[[Trial], bool]


def _is_free(part: Part) -> bool:
    return isinstance(part, Free)


def _new(part: Add) -> NodeState:
    every = part.row.all_chips
    return NodeState(
        name=part.node, product=part.row, inventory=every, healthy=every, free=every
    )


def _better(
    node: NodeState, part: Settle | Free | Heal | HealNetwork | Mend
) -> NodeState:
    """A node when one part has been done."""
    match part:
        case Settle():
            return node
        case Free(chip=chip):
            return replace(node, free=node.free | 1 << chip & node.healthy)
        case Heal(chip=chip):
            healthy, idle = node.healthy | 1 << chip, 1 << chip & ~node.taken
            return replace(node, healthy=healthy, free=node.free | idle)
        case HealNetwork(chip=chip):
            bad = node.network_unhealthy & ~(1 << chip)
            return replace(node, network_unhealthy=bad)
        case Mend():
            return replace(node, barred=None)


def in_order(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same parts as they are said: by kind, node and chip."""
    return tuple(sorted(parts, key=_place_in_text))


def _place_in_text(part: Part) -> tuple[int, str, int]:
    return _ORDER.index(type(part)), part.node, sum(_chips((part,)))


def _chips(parts: Iterable[Part]) -> tuple[int, ...]:
    return tuple(
        part.chip for part in parts if isinstance(part, Free | Heal | HealNetwork)
    )


def _clauses(parts: Iterable[Part]) -> Iterator[str]:
    """One for each kind of part and node; nodes to be added are said together."""

    def subject(part: Part) -> tuple[type[Part], str]:
        return type(part), "" if isinstance(part, Add) else part.node

    for _, some in groupby(in_order(parts), key=subject):
        alike = tuple(some)
        yield _clause(alike[0], alike)


def _clause(part: Part, alike: Sequence[Part]) -> str:
    """What of one node, or of all nodes to be added, would have to be."""
    listed = ", ".join(map(str, _chips(alike)))
    chips, were = ("chips", "were") if len(alike) > 1 else ("chip", "was")
    match part:
        case Settle(node=node):
            said = f"the pod that waits on {node} had its chips"
        case Free(node=node):
            said = f"{chips} {listed} of {node} {were} free"
        case Heal(node=node):
            said = f"{chips} {listed} of {node} {were} healthy"
        case HealNetwork(node=node):
            said = f"{chips} {listed} of {node} had a healthy network"
        case Mend(node=node, bar=bar):
            said = _MENDED.get(bar, "{node} took pods again").format(node=node)
        case Add(row=row):
            number = "one more node" if len(alike) == 1 else f"{len(alike)} more nodes"
            said = f"there {were} {number} ({row.name})"
        case _:
            assert_never(part)
    return said
