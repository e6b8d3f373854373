"""Choice of nodes under leaf switches for pods that join a job that runs.

The pods that run keep their nodes, and the job keeps its rules: under one leaf while
there is room, under no other leaf if it may not use the spine, and else as even as
can be. Nodes load the spines evenly if no position has two nodes more than another.

Source:
    As `leaf_order.py`. MindCluster gives a pod that is made again a node of the slice
    that its job uses least (1.0), and a node under its job's leaves first (2.0).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from scheduler_core.index.counts import Census, set_bits
from scheduler_core.node.decision import LeafUse
from scheduler_core.topology import leaf_order, shared_leaves
from scheduler_core.topology.leaves import (
    FILLER_BELOW,
    Part,
    Request,
    Schema,
    Server,
    Version,
    sort_by_slice,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The pods of a job that run."""

    #: names of their nodes
    nodes: frozenset[str]
    #: {node: use of its leaf by the job, and whether the leaf is healthy} (2.0)
    uses: Mapping[str, tuple[LeafUse, bool]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joining:
    """Pods that join a job, and its nodes that have a leaf."""

    request: Request
    #: {node: (leaf, position)} of the pods that run
    places: Mapping[str, tuple[int, int]]
    uses: Mapping[str, tuple[LeafUse, bool]]

    @property
    def leaves(self) -> list[int]:
        """Leaves of the job, those with the most of its nodes first."""
        counts = Counter(leaf for leaf, _ in self.places.values())
        return sorted(counts, key=lambda leaf: (-counts[leaf], leaf))

    @property
    def is_filler(self) -> bool:
        """Whether the job with these pods must be under one leaf."""
        pods = self.request.pods + len(self.places)
        return self.request.schema is Schema.LARGE_MODEL and pods < FILLER_BELOW

    def use_of(self, leaf: int) -> tuple[LeafUse, bool]:
        """Return the use of a leaf by the job, and whether it is healthy."""
        uses = (
            self.uses[node]
            for node, (other, _) in self.places.items()
            if other == leaf and node in self.uses
        )
        return next(uses, (LeafUse.IDLE, True))

    def take(self, leaf: int, count: int) -> Part:
        """Return the part with so many more nodes under a leaf of the job."""
        use, healthy = self.use_of(leaf)
        nodes = self.request.best_nodes(leaf, count)
        return Part(nodes=nodes, use=use, healthy=healthy)


def decide(request: Request, running: Running) -> tuple[Part, ...] | str:
    """Choose nodes for the pods that join a job, one for each.

    Args:
        request: The pods that join, and slots that are no nodes of the job.
        running: The pods that run. Nodes without a leaf are ignored.

    Returns:
        The parts in the order of ranks, or a sentence that says why none fit.
    """
    sites = request.slots.sites
    places = {
        node: place
        for node in sorted(running.nodes)
        if (place := sites.place(node)) is not None
    }
    if not places:
        return leaf_order.decide(request)
    joining = _Joining(request=request, places=places, uses=running.uses)
    first, *more = joining.leaves
    if not more and request.free_slots(first) >= request.pods:
        return (joining.take(first, request.pods),)
    version = request.network.version
    if version is Version.SINGLE_LAYER or (not more and joining.is_filler):
        name = request.network.leaves[first].name
        return f"too few nodes under leaf switch {name}, where its job runs"
    if version is Version.ONE:
        return _join_evenly(joining)
    return _join_shared(joining)


def _join_evenly(joining: _Joining) -> tuple[Part, ...] | str:
    """Return nodes at the positions that the job uses least (1.0)."""
    request, leaves = joining.request, joining.leaves
    crossings, is_large = request.network.crossings, request.schema is not Schema.NORMAL
    closed = crossings.spine if is_large else crossings.spine & crossings.large_model
    own = sum(1 << leaf for leaf in leaves)
    uneven = (
        f"no {request.pods} nodes that load the spine switches evenly can take a pod"
    )
    if closed & own and len(leaves) == 1:
        return uneven  # it would use the spine beside another job
    columns = [column & ~closed for column in request.slots.columns]
    counts = Counter(position for _, position in joining.places.values())
    chosen: list[tuple[int, int]] = []
    for _ in range(request.pods):
        positions = [position for position, column in enumerate(columns) if column]
        if not positions:
            return uneven
        position = min(
            positions, key=lambda one: (counts[one], not columns[one] & own, one)
        )
        able = columns[position] & own or columns[position]
        leaf = max(set_bits(able), key=lambda one: (request.free_slots(one), -one))
        columns[position] &= ~(1 << leaf)
        counts[position] += 1
        chosen.append((leaf, position))
    numbers = [counts[position] for position in range(request.network.width)]
    if is_large and max(numbers) - min(numbers) > 1:
        return uneven
    return (Part(nodes=sort_by_slice(_servers(request, chosen))),)


def _servers(
    request: Request, places: Iterable[tuple[int, int]]
) -> Iterable[tuple[str, Server]]:
    for number, position in places:
        leaf = request.network.leaves[number]
        yield leaf.name, leaf.servers[position]


def _join_shared(joining: _Joining) -> tuple[Part, ...] | str:
    """Return nodes under the job's leaves, then under others as for a new job (2.0).

    Of the leaves that a job may share, those that it shares already count.
    """
    request, leaves = joining.request, joining.leaves
    parts: list[Part] = []
    missing = request.pods
    for leaf in leaves:
        count = min(missing, request.free_slots(leaf))
        if count:
            parts.append(joining.take(leaf, count))
            missing -= count
    if not missing:
        return tuple(parts)
    uses = [joining.use_of(leaf)[0] for leaf in leaves]
    if request.schema is Schema.LARGE_MODEL and LeafUse.IDLE in uses:
        # no pod of the job says yet that it uses the spine from there
        name = request.network.leaves[leaves[0]].name
        return f"too few nodes under leaf switch {name}, where its job runs"
    shared = max(request.network.shared_leaves - uses.count(LeafUse.SHARED), 0)
    rest = replace(request, pods=missing, slots=_without(request.slots, leaves))
    more = shared_leaves.cross_spine(rest, shared)
    return more if isinstance(more, str) else (*parts, *more)


def _without(slots: Census, leaves: Iterable[int]) -> Census:
    """Return the slots of all leaves but these."""
    left_out = set(leaves)
    groups = slots.sites.groups
    names = [
        groups[leaf][position]
        for leaf, positions in enumerate(slots.slots)
        if leaf not in left_out
        for position in set_bits(positions)
    ]
    return Census(slots.sites, slots.count, names)
