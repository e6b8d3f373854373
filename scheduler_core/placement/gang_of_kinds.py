"""Places for all pods of a gang that may not share all nodes, or for none of them.

The members are cohorts (`siblings.py`). Each pod gets a node that its kind is offered,
and that it may share with the pods there. Cohorts with the fewest nodes come first, and
of a cohort the largest pods, each on the node that is best for it by itself. If that
fails for a job of a few pods, all other ways are tried.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import groupby, islice
from operator import attrgetter
from typing import NamedTuple

from scheduler_core.index.queries import NodeIndex
from scheduler_core.node import chips
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.node.packing import EXACT_UP_TO
from scheduler_core.node.state import NodeState
from scheduler_core.placement.gang_query import (
    Member,
    NodeQuery,
    UsedNode,
    assign_ranks,
)
from scheduler_core.placement.job_rules import list_names
from scheduler_core.placement.pod import placement
from scheduler_core.placement.siblings import CohortSpread, Siblings
from scheduler_core.products.columns import Product

#: most nodes that are tried for a job of up to `EXACT_UP_TO` pods; each takes some
#: microseconds
BOUND = 20_000

_UNSUITABLE = "can take a pod, but not beside the other pods of this job"
#: sort key of a node: key of its row, its rank, its name
_Key = tuple[str, int, str]


class _Pod(NamedTuple):
    """A pod to place."""

    rank: int
    name: str
    #: number of its chips
    size: int
    cohort: int


def plan(
    wanted: Product | str,
    members: Sequence[Member],
    cluster: NodeIndex,
    siblings: Siblings,
    *,
    names: Iterable[str] | None = None,
) -> JobPlacement | Rejection:
    """Place all members of a job, or return why not all of them fit.

    Args:
        wanted: Resource, or the row that the job means (`lookup.resolve_job`).
        members: Pods without a place, each once; at least one.
        cluster: Nodes; not changed.
        siblings: Cohorts of these members and of those that have nodes.
        names: Candidate nodes of all cohorts together, each once; None is all.

    Returns:
        A place for each pod, ordered by rank. The search is complete for up to
        `packing.EXACT_UP_TO` pods, unless it ends at its bound: then, and beyond that
        number, pods of several cohorts may fit although the rejection says no.

    Cost:
        Some microseconds for each pod, and one for each cohort and node.
    """
    node_names = None if names is None else tuple(names)
    query = NodeQuery(
        wanted=wanted, cluster=cluster, names=node_names, in_network=len(members) > 1
    )
    pods = _sort_pods(
        siblings,
        [
            _Pod(rank, member.name, member.chips, siblings.cohort_of[member.name])
            for rank, member in assign_ranks(members)
        ],
    )
    servers = _Servers(query)
    most: Sequence[Placement] = ()
    is_bounded = False
    for domain in _domains(siblings):
        placed = list(_Board(servers, siblings, pods, domain).place_each())
        if len(placed) == len(pods):
            return _sorted(placed)
        most = max(most, placed, key=len)
        if domain is not _Domain.EMPTY and len(pods) <= EXACT_UP_TO:
            board = _Board(servers, siblings, pods, domain)
            search = _Search(board, servers, pods)
            found = search.run()
            if found is not None:
                return _sorted(found)
            is_bounded = search.is_bounded
    placed_names = {place.pod for place in most}
    left = list_names([pod.name for pod in pods if pod.name not in placed_names])
    text = f"{len(most)} of {len(pods)} pods fit beside each other, not {left}"
    if is_bounded:
        text += "; the search for another way ended at its bound"
    failed_size = max(pod.size for pod in pods)
    return Rejection(job=text, reasons=query.reasons(failed_size, _UNSUITABLE))


def _sorted(placed: Iterable[Placement]) -> JobPlacement:
    return JobPlacement(pods=tuple(sorted(placed, key=attrgetter("rank"))))


def _sort_pods(siblings: Siblings, pods: Iterable[_Pod]) -> list[_Pod]:
    """Return the pods with those first that have the least choice, by rank last."""
    cohorts = siblings.cohorts
    choices = [
        (
            cohort.together is not None and number not in cohort.together,
            cohort.together is None,
            float("inf") if cohort.names is None else len(cohort.names),
            number,
        )
        for number, cohort in enumerate(cohorts)
    ]
    return sorted(pods, key=lambda pod: (choices[pod.cohort], -pod.size, pod.rank))


class _Domain(Enum):
    """Nodes of which the emptiest counts for a spread demand; the strictest first.

    The scheduler counts nodes with taints, too, and does not offer them.
    """

    #: one without pods counts: then the scheduler may ask in any order
    EMPTY = auto()
    #: all nodes that any cohort may have
    ALL = auto()
    #: those of the cohort with the demand
    OWN = auto()


def _domains(siblings: Siblings) -> tuple[_Domain, ...]:
    """Return the domains to try, the strictest first."""
    if not any(cohort.spreads for cohort in siblings.cohorts):
        return (_Domain.OWN,)
    return tuple(_Domain) if siblings.has_whole_lists else (_Domain.EMPTY,)


class _Servers:
    """The nodes that serve pods of each size, sorted once."""

    def __init__(self, query: NodeQuery) -> None:
        self._query = query
        self.nodes: Mapping[str, NodeState] = query.nodes
        self._by_size: dict[int, list[tuple[Product, _Key]]] = {}

    def of(self, size: int) -> Sequence[tuple[Product, _Key]]:
        """Return (row, sort key) of the nodes that fit `size` chips, best first."""
        servers = self._by_size.get(size)
        if servers is None:
            servers = self._by_size[size] = [
                (row, (row.key, rank, name))
                for row, rank, name in self._query.serving(size)
            ]
        return servers

    @cached_property
    def names(self) -> Sequence[str]:
        """All candidate nodes."""
        return tuple(self.nodes) if self._query.names is None else self._query.names


class _Level:
    """Pods that count for one spread demand, on each node that counts for it.

    Nodes of one part of the cluster count together.
    """

    def __init__(
        self,
        spread: CohortSpread,
        number: int,
        names: Iterable[str],
        siblings: Siblings,
    ) -> None:
        """Begin without pods.

        Args:
            number: Cohort with the demand.
            names: Nodes that it may have; those that it has are added.
        """
        self._spread = spread
        self._part_of = spread.parts.get
        self._counts = {self._part_of(name, name): 0 for name in names}
        for name, cohorts in siblings.bound.items():
            if number in cohorts:
                self._counts[self._part_of(name, name)] = 0
        #: {number of pods: nodes with it}
        self._nodes = Counter(self._counts.values())
        #: least number of pods of a node
        self.least = min(self._nodes, default=0)

    def add(self, name: str, cohort: int, by: int) -> None:
        """Count a pod that is placed on a node, or with -1 taken off it."""
        part = self._part_of(name, name)
        if cohort not in self._spread.counted or part not in self._counts:
            return
        before = self._counts[part]
        self._counts[part] = before + by
        self._nodes[before] -= 1
        self._nodes[before + by] += 1
        self._nodes += Counter()  # forgets numbers without nodes
        self.least = min(self._nodes, default=0)

    def allows(self, name: str, *, more: int, is_level: bool) -> bool:
        """Return whether a node may have `more` pods than now.

        Args:
            is_level: Whether the node with the fewest pods counts; else none has any.
        """
        is_enough = is_level and len(self._counts) >= self._spread.least_nodes
        least = self.least if is_enough else 0
        count = self._counts.get(self._part_of(name, name), 0)
        return count + more <= self._spread.skew + least


class _Board:
    """Pods of one job on their nodes, on an index that must not change meanwhile.

    Invariant: no chip is given twice, and no pod is where its cohort may not be.
    """

    def __init__(
        self,
        servers: _Servers,
        siblings: Siblings,
        pods: Sequence[_Pod],
        domain: _Domain,
    ) -> None:
        """Put the members that have nodes onto the board.

        Args:
            pods: The others, in the order in which they are placed.
        """
        self._servers = servers
        self._siblings = siblings
        self._pods = pods
        self._is_level = domain is not _Domain.EMPTY
        every_name = servers.names
        if domain is _Domain.ALL:
            lists = (c.names for c in siblings.cohorts if c.names is not None)
            every_name = tuple({*every_name}.union(*lists))
        self._used: dict[str, UsedNode] = {}
        #: number of pods of each cohort
        self._total = [0] * len(siblings.cohorts)
        #: {node: the same of the node}; without nodes that have none
        self._here: dict[str, list[int]] = {}
        #: [cohort] = levels of its spread demands
        self._levels = [
            [
                _Level(
                    spread,
                    number,
                    (domain is _Domain.OWN and cohort.names) or every_name,
                    siblings,
                )
                for spread in cohort.spreads
            ]
            for number, cohort in enumerate(siblings.cohorts)
        ]
        self._has_spreads = any(self._levels)
        #: [cap] = its pods on its nodes
        self._capped = [0] * len(siblings.caps)
        for name, cohorts in siblings.bound.items():
            for number in cohorts:
                self._count(name, number, 1)

    def place_each(self) -> Iterator[Placement]:
        """Place pod after pod, each on its best node; yield their places.

        Pods that fit no node are left out.
        """
        for (number, size), pods in groupby(
            self._pods, key=lambda pod: (pod.cohort, pod.size)
        ):
            names = self._names(number, size)
            for pod, (row, name) in zip(pods, names, strict=False):
                yield self.put(pod, row, name)

    def _names(self, number: int, size: int) -> Iterator[tuple[Product, str]]:
        """Yield the best (row, node) for the next pod; it is put there before the next.

        Args:
            number: Cohort of the pods.
            size: Chips of each.
        """
        cohort, used = self._siblings.cohorts[number], self._used
        unused = (
            (key, row)
            for row, key in self._servers.of(size)
            if key[2] not in used and cohort.may_have(key[2])
        )
        queue = [
            ((node.row.key, rank, name), node.row)
            for name, node in used.items()
            if node.free and cohort.may_have(name)
            if (rank := node.rank(size)) is not None
        ]
        queue += islice(unused, 1)  # the best of them: the queue stays short
        heapify(queue)
        uneven: list[tuple[_Key, Product]] = []
        while queue:
            key, row = heappop(queue)
            if key[2] not in used:
                for following in islice(unused, 1):
                    heappush(queue, following)
            if not self.may_share(number, key[2], row):
                continue
            if not self._is_even(number, key[2]):
                uneven.append((key, row))
            else:
                least = self._least(number)
                yield row, key[2]
                rank = used[key[2]].rank(size) if used[key[2]].free else None
                if rank is not None:
                    heappush(queue, ((row.key, rank, key[2]), row))
                if uneven and self._is_level and self._least(number) > least:
                    queue += uneven
                    heapify(queue)
                    uneven.clear()

    def put(self, pod: _Pod, row: Product, name: str) -> Placement:
        """Put a pod onto a node that fits it; return its place."""
        node = self._node(row, name)
        chosen = chips.choose(row, node.free, pod.size)
        place = placement(
            row, node.node, node.free, chosen, pod=pod.name, rank=pod.rank
        )
        node.free &= ~chosen
        self._count(name, pod.cohort, 1)
        return place

    def take(self, pod: _Pod, place: Placement) -> None:
        """Take a pod off its node again."""
        self._used[place.node].free |= chips.mask_of(place.chips)
        self._count(place.node, pod.cohort, -1)

    def fits(self, pod: _Pod, row: Product, name: str) -> bool:
        """Return whether a node has chips for a pod, and no pod that keeps it off."""
        cohort = self._siblings.cohorts[pod.cohort]
        if not cohort.may_have(name) or not self._is_apart(pod.cohort, name):
            return False
        return bool(chips.choose(row, self._node(row, name).free, pod.size))

    def may_share(self, number: int, name: str, row: Product) -> bool:
        """Return whether the pods on a node let one of a cohort be there."""
        cohort, here = self._siblings.cohorts[number], self._here.get(name)
        if not self._is_apart(number, name):
            return False
        if cohort.together is None:
            return True
        if here is not None and any(here[other] for other in cohort.together):
            return True
        is_first = not any(self._total[other] for other in cohort.together)
        return is_first and number in cohort.together and self._holds(number, name, row)

    def is_settled(self, pod: _Pod, name: str) -> bool:
        """Return whether a pod may be on its node once all others are on theirs."""
        cohort, here = self._siblings.cohorts[pod.cohort], self._here[name]
        if not all(
            level.allows(name, more=0, is_level=True)
            for level in self._levels[pod.cohort]
        ):
            return False
        if cohort.together is None:
            return True
        if pod.cohort not in cohort.together:
            return any(here[other] for other in cohort.together)
        bound = self._siblings.bound.get(name, ())
        return all(
            self._total[other] == here[other] for other in cohort.together
        ) or any(other in cohort.together for other in bound)

    def _is_apart(self, number: int, name: str) -> bool:
        """Return whether no pod on a node, and no cap, keeps a cohort off it."""
        here, caps = self._here.get(name), self._siblings.caps
        apart = self._siblings.cohorts[number].apart
        if here is not None and any(here[other] for other in apart):
            return False
        return not caps or not any(
            capped >= cap.most and number in cap.counted and name in cap.nodes
            for cap, capped in zip(caps, self._capped, strict=True)
        )

    def _is_even(self, number: int, name: str) -> bool:
        """Return whether the spread demands allow one more pod of a cohort on a node.

        Unless the board is level, this includes demands of the pods that are there.
        """
        if not self._has_spreads:
            return True  # the common case: no step for each pod there
        spreads = self._siblings.cohorts[number].spreads
        for level, spread in zip(self._levels[number], spreads, strict=True):
            more = int(number in spread.counted)
            if not level.allows(name, more=more, is_level=self._is_level):
                return False
        if self._is_level:
            return True
        here = self._here.get(name, ())
        return all(
            level.allows(name, more=1, is_level=False)
            for other, pods in enumerate(here)
            if pods and other != number
            for level, spread in zip(
                self._levels[other],
                self._siblings.cohorts[other].spreads,
                strict=True,
            )
            if number in spread.counted
        )

    def _least(self, number: int) -> int:
        return sum(level.least for level in self._levels[number])

    def _holds(self, number: int, name: str, row: Product) -> bool:
        """Return whether a node has chips for all pods that must be beside a cohort."""
        together = self._siblings.cohorts[number].together or ()
        free = self._node(row, name).free
        sizes = [pod.size for pod in self._pods if pod.cohort in together]
        for size in sorted(sizes, reverse=True):
            chosen = chips.choose(row, free, size)
            if not chosen:
                return False
            free &= ~chosen
        return True

    def _node(self, row: Product, name: str) -> UsedNode:
        node = self._used.get(name)
        if node is None:
            state = self._servers.nodes[name]
            node = self._used[name] = UsedNode(
                row=row, node=state, free=state.free_for(row)
            )
        return node

    def _count(self, name: str, number: int, by: int) -> None:
        here = self._here.get(name)
        if here is None:
            here = self._here[name] = [0] * len(self._total)
        here[number] += by
        self._total[number] += by
        for at, cap in enumerate(self._siblings.caps):
            if number in cap.counted and name in cap.nodes:
                self._capped[at] += by
        for levels in self._levels if self._has_spreads else ():
            for level in levels:
                level.add(name, number, by)


class _Search:
    """Every way to place the pods of a small job, until one is found."""

    def __init__(self, board: _Board, servers: _Servers, pods: Sequence[_Pod]) -> None:
        self._board = board
        self._servers = servers
        self._pods = pods
        self._places: list[Placement] = []
        #: number of nodes that may still be tried
        self._left = BOUND

    @property
    def is_bounded(self) -> bool:
        """Whether the search ended at its bound."""
        return not self._left

    def run(self) -> Sequence[Placement] | None:
        """Return a place for each pod; None if no way was found."""
        return self._places if self._is_placed(0, 0) else None

    def _is_placed(self, at: int, first: int) -> bool:
        """Place the pods from number `at` on; return whether all have places.

        Args:
            first: Number of the first node to try.
        """
        if at == len(self._pods):
            return all(map(self._board.is_settled, self._pods, self._nodes()))
        pod = self._pods[at]
        servers = self._servers.of(pod.size)
        for index in range(first, len(servers)):
            if not self._left:
                return False
            self._left -= 1
            row, (_, _, name) = servers[index]
            if not self._board.fits(pod, row, name):
                continue
            place = self._board.put(pod, row, name)
            self._places.append(place)
            after = self._pods[at + 1] if at + 1 < len(self._pods) else pod
            is_alike = (after.cohort, after.size) == (pod.cohort, pod.size)
            if self._is_placed(at + 1, index if is_alike else 0):
                return True
            self._board.take(pod, self._places.pop())
        return False

    def _nodes(self) -> Iterator[str]:
        return (place.node for place in self._places)
