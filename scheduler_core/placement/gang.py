"""Where all pods of a job go, or none of them.

The largest pods first, each where it is best by itself. Where that fails although
another arrangement may not, the arrangements are searched (`packing.py`). Pods that
have a place keep it as long as it is good.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from operator import attrgetter, itemgetter
from typing import NamedTuple

from scheduler_core.index.cluster import Cluster
from scheduler_core.index.counts import Census, Groups
from scheduler_core.node import chips, packing
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.node.reasons import Reason, text_of
from scheduler_core.node.state import NodeState
from scheduler_core.placement.overlay import Draft
from scheduler_core.placement.pod import placement
from scheduler_core.products.columns import Product, distributed


class Member(NamedTuple):
    """One pod of a gang that asks for chips: a tuple, like `Placement`."""

    name: str
    #: chips, 1 or more
    chips: int
    #: its number in the job, from 0; None is the next that is free
    rank: int | None = None
    #: where it is already; None is nowhere. Its chips are not free in the index.
    place: Placement | None = None


#: said of nodes that could serve by themselves
_CONFLICT = text_of(Reason.CONFLICT)
_TAKEN = "taken by other pods of this job"


def ranked(members: Sequence[Member]) -> list[tuple[int, Member]]:
    """The members with their ranks, in the order of these.

    Who has a rank keeps it, the others get the smallest that are free, in the order
    given.

    Raises:
        ValueError: Two members have the same rank.
    """
    said = [member.rank for member in members if member.rank is not None]
    if len(set(said)) != len(said):
        raise ValueError(f"ranks: expected each once, found {sorted(said)}")
    free = (rank for rank in count() if rank not in said)
    return sorted(
        (
            (next(free) if member.rank is None else member.rank, member)
            for member in members
        ),
        key=itemgetter(0),
    )


def plan(
    wanted: Product | str,
    members: Sequence[Member],
    cluster: Cluster,
    *,
    names: Iterable[str] | None = None,
) -> JobPlacement | Rejection:
    """Place all members of a job, or say why not all of them can be.

    Args:
        wanted: The resource, or the row that the job means (`lookup.wanted`).
        members: The pods, each once; at least one.
        cluster: The nodes; not changed.
        names: Only these nodes, each once, in any order; None is all.

    Returns:
        A place for each pod, by rank. It is found if there is one for pods of equal
        size, for sizes that divide each other, and for any job of up to
        `packing.EXACT_UP_TO` pods; beyond that the search has a bound
        (`packing.BOUND`), and the rejection says when it was reached.

    Cost:
        A few microseconds for each pod.
    """
    asked = None if names is None else tuple(names)
    question = Question(
        wanted=wanted, cluster=cluster, names=asked, in_network=len(members) > 1
    )
    done: list[Placement] = []
    move: dict[int, list[tuple[int, str]]] = {}
    for rank, member in ranked(members):
        place = good_place(question, member)
        if place is not None:
            done.append(place._replace(pod=member.name, rank=rank))
        else:
            move.setdefault(member.chips, []).append((rank, member.name))
    found = _arrange(question, move)
    if isinstance(found, Rejection):
        return found
    return JobPlacement(pods=tuple(sorted([*done, *found], key=attrgetter("rank"))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is wanted, and of which nodes."""

    wanted: Product | str
    cluster: Cluster
    names: tuple[str, ...] | None
    in_network: bool

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """All nodes with chips of the wanted resource, by name."""
        return self.cluster.line(self.wanted)

    def row(self, node: NodeState) -> Product:
        """The row by which a node serves."""
        row = node.product if isinstance(self.wanted, str) else self.wanted
        return distributed(row) if self.in_network else row

    def serving(self, size: int) -> Iterator[tuple[Product, int, str]]:
        """The nodes that can serve a pod of this size, best first."""
        return self.cluster.ranked(
            self.wanted, size, names=self.names, in_network=self.in_network
        )

    def rank(self, size: int, name: str) -> tuple[str, int]:
        """How good a node is that can serve a pod of this size, smaller is better."""
        return self.cluster.rank(self.wanted, size, name, in_network=self.in_network)

    def census(self, groups: Groups, size: int) -> Census:
        """The nodes of each leaf or SuperPoD that can serve a pod of this size."""
        every = self.cluster.census(
            groups, self.wanted, size, in_network=self.in_network
        )
        if self.names is None:
            return every
        some = self.cluster.survey(
            self.wanted, size, self.names, in_network=self.in_network
        )
        able = (*some.best, *some.worse)
        if every.sites.count(able) == every.total:
            return every  # nearly always: whoever offers nodes offers all that serve
        return Census(every.sites, size, able)

    def reasons(self, size: int, able: str) -> tuple[tuple[str, int], ...]:
        """Why the job has no room, counted over the nodes.

        Args:
            size: Chips of the pod that has none.
            able: What is said of nodes that could serve that pod by itself.
        """
        said = self.cluster.refusals(
            self.wanted, size, names=self.names, in_network=self.in_network
        )
        renamed = [(able if text == _CONFLICT else text, n) for text, n in said]
        return tuple(sorted(renamed, key=lambda item: (-item[1], item[0])))


def good_place(question: Question, member: Member) -> Placement | None:
    """The place of a pod that has one, if it is still good."""
    place = member.place
    node = None if place is None else question.nodes.get(place.node)
    if place is None or node is None or node.barred:
        return None
    row, mask = question.row(node), chips.mask_of(place.chips)
    is_good = (
        len(place.chips) == member.chips
        and not mask & ~node.usable(row)
        and chips.is_legal(row, mask)
    )
    return place if is_good else None


def _arrange(
    question: Question, pods: Mapping[int, Sequence[tuple[int, str]]]
) -> list[Placement] | Rejection:
    """Places for pods, given by size as rank and name."""
    draft = Draft(
        question.cluster,
        question.wanted,
        names=question.names,
        in_network=question.in_network,
    )
    found: list[Placement] = []
    short = None
    for size in sorted(pods, reverse=True):
        some = list(draft.place_each(size, pods[size]))
        found += some
        if short is None and len(some) < len(pods[size]):
            short = size
    if short is None:
        return found
    packed = _packed(question, {size: len(pods[size]) for size in pods})
    if packed.pods is not None:
        return _read(question, packed.pods, pods)
    total = sum(map(len, pods.values()))
    of_bound = "; the search for another way ended at its bound"
    return Rejection(
        job=(
            f"room for {len(found)} of {total} pods{of_bound if packed.bounded else ''}"
        ),
        reasons=question.reasons(short, _TAKEN),
    )


def _packed(question: Question, sizes: Mapping[int, int]) -> packing.Packing:
    """Another arrangement, where there can be one."""
    free: dict[str, tuple[Product, int]] = {}
    for size in sorted(sizes, reverse=True):
        for row, _, name in question.serving(size):
            if name not in free:
                free[name] = row, question.nodes[name].free_for(row)
    rows = {row for row, _ in free.values()}
    if all(packing.is_greedy_exact(row, tuple(sizes)) for row in rows):
        return packing.Packing(pods=None)
    return packing.pack(free, sizes)


def _read(
    question: Question,
    packed: Mapping[str, Sequence[tuple[int, int]]],
    pods: Mapping[int, Sequence[tuple[int, str]]],
) -> list[Placement]:
    """The places of a packing, each with its reason."""
    found: list[Placement] = []
    named = {size: iter(some) for size, some in pods.items()}
    for name, filling in sorted(packed.items()):
        node = question.nodes[name]
        row = question.row(node)
        free = node.free_for(row)
        for size, mask in filling:
            rank, pod = next(named[size])
            place = placement(row, node, free, mask, pod=pod, rank=rank)
            reason = f"{place.reason}, so that all pods of the job fit"
            found.append(place._replace(reason=reason))
            free &= ~mask
    return found
