"""Places for all pods of a gang, or for none of them.

The largest pods come first, each on the node that is best for it by itself.
If that fails and another arrangement may fit, `packing.py` searches for one.
A pod that has a place keeps it while the place is good.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from operator import attrgetter, itemgetter
from typing import NamedTuple

from scheduler_core.index.counts import Census, Groups
from scheduler_core.index.queries import NodeIndex, sort_reasons
from scheduler_core.node import chips, packing
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.node.reasons import Reason, reason_text
from scheduler_core.node.state import NodeState
from scheduler_core.placement.draft import Draft
from scheduler_core.placement.pod import placement
from scheduler_core.products.columns import Product, distributed


class Member(NamedTuple):
    """Pod of a gang that asks for chips: a tuple, like `Placement`."""

    name: str
    #: number of chips, at least 1
    chips: int
    #: the pod's number in the job, from 0; None takes the next free number
    rank: int | None = None
    #: present place, or None; the index must not count its chips as free
    place: Placement | None = None


#: refusal text of nodes that could serve a pod by themselves
_CONFLICT = reason_text(Reason.CONFLICT)
_TAKEN_BY_JOB = "taken by other pods of this job"


def assign_ranks(members: Sequence[Member]) -> list[tuple[int, Member]]:
    """Return the members with their ranks, ordered by rank.

    A member that has a rank keeps it.
    The others get the smallest free ranks in the order of `members`.

    Raises:
        ValueError: Two members have the same rank.
    """
    taken = [member.rank for member in members if member.rank is not None]
    if len(set(taken)) != len(taken):
        raise ValueError(f"ranks: expected each once, found {sorted(taken)}")
    free = (rank for rank in count() if rank not in taken)
    ranked = [(next(free) if m.rank is None else m.rank, m) for m in members]
    return sorted(ranked, key=itemgetter(0))


def plan(
    wanted: Product | str,
    members: Sequence[Member],
    cluster: NodeIndex,
    *,
    names: Iterable[str] | None = None,
) -> JobPlacement | Rejection:
    """Place all members of a job, or return why not all of them fit.

    Args:
        wanted: Resource, or the row that the job means (`lookup.resolve_job`).
        members: Pods, each once; at least one.
        cluster: Nodes; not changed.
        names: Candidate nodes, each once, in any order; None is all.

    Returns:
        A place for each pod, ordered by rank. The search is complete for pods of equal
        size, for sizes that divide each other, and for any job of up to
        `packing.EXACT_UP_TO` pods. Beyond that it ends at a bound (`packing.BOUND`),
        and the rejection says so.

    Cost:
        A few microseconds for each pod.
    """
    node_names = None if names is None else tuple(names)
    query = NodeQuery(
        wanted=wanted, cluster=cluster, names=node_names, in_network=len(members) > 1
    )
    placements: list[Placement] = []
    to_place: dict[int, list[tuple[int, str]]] = {}
    for rank, member in assign_ranks(members):
        place = verify_place(query, member)
        if place is not None:
            placements.append(place._replace(pod=member.name, rank=rank))
        else:
            to_place.setdefault(member.chips, []).append((rank, member.name))
    arranged = _arrange(query, to_place)
    if isinstance(arranged, Rejection):
        return arranged
    return JobPlacement(
        pods=tuple(sorted([*placements, *arranged], key=attrgetter("rank")))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuery:
    """Resource or row that a gang asks for, with the nodes to ask the index about."""

    wanted: Product | str
    cluster: NodeIndex
    names: tuple[str, ...] | None
    in_network: bool

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """All nodes with chips of the wanted resource, by name."""
        return self.cluster.nodes(self.wanted)

    def row(self, node: NodeState) -> Product:
        """Return the row by which a node serves the gang."""
        row = node.product if isinstance(self.wanted, str) else self.wanted
        return distributed(row) if self.in_network else row

    def serving(self, size: int) -> Iterator[tuple[Product, int, str]]:
        """Yield (row, rank, name) of the nodes that fit `size` chips, best first."""
        return self.cluster.ranked(
            self.wanted, size, names=self.names, in_network=self.in_network
        )

    def rank(self, size: int, name: str) -> tuple[str, int]:
        """Return the sort key of a node that fits `size` chips; smaller is better."""
        return self.cluster.rank(self.wanted, size, name, in_network=self.in_network)

    def census(self, groups: Groups, size: int) -> Census:
        """Return the nodes of each leaf or SuperPoD that fit a pod of `size`."""
        census = self.cluster.census(
            groups, self.wanted, size, in_network=self.in_network
        )
        if self.names is None:
            return census
        survey = self.cluster.survey(
            self.wanted, size, self.names, in_network=self.in_network
        )
        names = (*survey.best, *survey.worse)
        if census.sites.count(names) == census.total:
            return census  # the common case: schedulers offer all nodes that serve
        return Census(census.sites, size, names)

    def place(self, name: str, member: Member, rank: int) -> Placement:
        """Return the place that a node gives to a member that it fits."""
        node = self.nodes[name]
        row = self.row(node)
        free = node.free_for(row)
        chosen = chips.choose(row, free, member.chips)
        return placement(row, node, free, chosen, pod=member.name, rank=rank)

    def reasons(self, size: int, able_text: str) -> tuple[tuple[str, int], ...]:
        """Return why the job does not fit: (text, number of nodes), most nodes first.

        Args:
            size: Chips of the pod that does not fit.
            able_text: Text for nodes that could serve that pod by itself.
        """
        refusals = self.cluster.refusals(
            self.wanted, size, names=self.names, in_network=self.in_network
        )
        return sort_reasons(
            (able_text if text == _CONFLICT else text, n) for text, n in refusals
        )


def verify_place(query: NodeQuery, member: Member) -> Placement | None:
    """Return the present place of a pod if it is still good, else None."""
    place = member.place
    node = None if place is None else query.nodes.get(place.node)
    if place is None or node is None or node.barred:
        return None
    row, mask = query.row(node), chips.mask_of(place.chips)
    is_good = (
        len(place.chips) == member.chips
        and not mask & ~node.usable(row)
        and chips.is_legal(row, mask)
    )
    return place if is_good else None


def _arrange(
    query: NodeQuery, pods: Mapping[int, Sequence[tuple[int, str]]]
) -> list[Placement] | Rejection:
    """Place pods, given as {size: (rank, name) of each}, or return why not."""
    draft = Draft(
        query.cluster,
        query.wanted,
        names=query.names,
        in_network=query.in_network,
    )
    placements: list[Placement] = []
    failed_size = None
    for size in sorted(pods, reverse=True):
        placed = list(draft.place_each(size, pods[size]))
        placements += placed
        if failed_size is None and len(placed) < len(pods[size]):
            failed_size = size
    if failed_size is None:
        return placements
    packing_result = _pack(query, {size: len(pods[size]) for size in pods})
    if packing_result.pods is not None:
        return _read_packing(query, packing_result.pods, pods)
    total = sum(map(len, pods.values()))
    text = f"{len(placements)} of {total} pods fit"
    if packing_result.bounded:
        text += "; the search for another way ended at its bound"
    return Rejection(job=text, reasons=query.reasons(failed_size, _TAKEN_BY_JOB))


def _pack(query: NodeQuery, sizes: Mapping[int, int]) -> packing.Packing:
    """Search for another arrangement, unless the greedy one was already exact."""
    free: dict[str, tuple[Product, int]] = {}
    for size in sorted(sizes, reverse=True):
        for row, _, name in query.serving(size):
            if name not in free:
                free[name] = row, query.nodes[name].free_for(row)
    rows = {row for row, _ in free.values()}
    if all(packing.is_greedy_exact(row, tuple(sizes)) for row in rows):
        return packing.Packing(pods=None)
    return packing.pack(free, sizes)


def _read_packing(
    query: NodeQuery,
    filled_nodes: Mapping[str, Sequence[tuple[int, int]]],
    pods: Mapping[int, Sequence[tuple[int, str]]],
) -> list[Placement]:
    """Return the placements of a packing, each with its reason."""
    placements: list[Placement] = []
    pods_by_size = {size: iter(group) for size, group in pods.items()}
    for name, filling in sorted(filled_nodes.items()):
        node = query.nodes[name]
        row = query.row(node)
        free = node.free_for(row)
        for size, mask in filling:
            rank, pod = next(pods_by_size[size])
            place = placement(row, node, free, mask, pod=pod, rank=rank)
            reason = f"{place.reason}, so that all pods of the job fit"
            placements.append(place._replace(reason=reason))
            free &= ~mask
    return placements
