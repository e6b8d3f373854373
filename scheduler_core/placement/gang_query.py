"""Members of a gang, and the question that they put to the index together.

The plans of gangs ask it: anywhere, under leaf switches, and in SuperPoDs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import NamedTuple

from scheduler_core.index.counts import Census, Groups
from scheduler_core.index.queries import NodeIndex, sort_reasons
from scheduler_core.node import chips, order
from scheduler_core.node.decision import Placement
from scheduler_core.node.reasons import Reason, reason_text
from scheduler_core.node.state import NodeState
from scheduler_core.placement.pod import placement
from scheduler_core.products.columns import Product, distributed

#: refusal text of nodes that could serve a pod by themselves
_CONFLICT = reason_text(Reason.CONFLICT)


class Member(NamedTuple):
    """Pod of a gang that asks for chips: a tuple, like `Placement`."""

    name: str
    #: number of chips, at least 1
    chips: int
    #: the pod's number in the job, from 0; None takes the next free number
    rank: int | None = None
    #: present place, or None; the index must not count its chips as free
    place: Placement | None = None


def assign_ranks(members: Sequence[Member]) -> list[tuple[int, Member]]:
    """Return the members with their ranks, ordered by rank.

    A member that has a rank keeps it.
    The others get the smallest free ranks in the order of `members`.

    Raises:
        ValueError: Two members have the same rank.
    """
    ranks = [member.rank for member in members if member.rank is not None]
    if not ranks:
        return list(enumerate(members))
    taken = frozenset(ranks)
    if len(taken) != len(ranks):
        raise ValueError(f"ranks: expected each once, found {sorted(ranks)}")
    free = (rank for rank in count() if rank not in taken)
    ranked = [(next(free) if m.rank is None else m.rank, m) for m in members]
    return sorted(ranked, key=itemgetter(0))


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

    def reasons_with_unknown(
        self, size: int, known: int, able_text: str, unknown_text: str
    ) -> tuple[tuple[str, int], ...]:
        """Return `reasons`, with the nodes apart whose leaf or SuperPoD is not known.

        Args:
            size: Chips of the pod that does not fit.
            known: Number of the other nodes that could serve that pod by itself.
            able_text: Text for these.
            unknown_text: Text for nodes that could serve it and are not known.
        """
        counts = dict(self.reasons(size, able_text))
        unknown = counts.get(able_text, 0) - known
        return sort_reasons(
            (counts | {able_text: known, unknown_text: unknown}).items()
        )


@dataclass(slots=True)
class UsedNode:
    """Node on which a draft of a plan has placed pods."""

    row: Product
    node: NodeState
    #: mask of the chips that are still free
    free: int

    def rank(self, count: int) -> int | None:
        """Return the node's present rank for a pod of `count` chips, or None."""
        key = order.rank(self.row, self.node.healthy, self.free, count)
        return None if key is None else order.encode_rank(self.row, key)


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
