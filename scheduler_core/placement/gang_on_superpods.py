"""Where all pods of a job of logical SuperPoDs go, or none of them.

The SuperPoDs decide which nodes (`superpods.py`); every pod takes a node of its own.
Rank r lies in logical SuperPoD r // L. After a fault, a logical SuperPoD whose pods
have places keeps the good ones and their ranks.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from scheduler_core.index.counts import Groups, ones
from scheduler_core.node import chips
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement.gang import Member, Question, good_place, ranked
from scheduler_core.placement.pod import placement
from scheduler_core.topology import superpods
from scheduler_core.topology.superpods import Block, Request

#: said of nodes that could take a pod of the job
_ELSEWHERE = "can take a pod, but its SuperPoD does not suit the job"
_NOWHERE = "can take a pod, but its SuperPoD is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperPods:
    """How a cluster's nodes are joined to SuperPoDs.

    Cost:
        To make one, a step for each node, so that no decision needs them.
    """

    #: {node: id of its SuperPoD, 0 or more}
    of_node: Mapping[str, int] = field(
        default_factory=lambda: MappingProxyType(dict[str, int]())
    )
    #: nodes of each that are kept free where possible
    reserve: int = 2
    #: all ids, ascending
    ids: tuple[int, ...] = field(init=False, repr=False, compare=False)
    #: the nodes of each, in that order
    groups: Groups = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out what every decision asks for, once."""
        nodes: dict[int, list[str]] = {}
        for name, superpod in self.of_node.items():
            if superpod >= 0:
                nodes.setdefault(superpod, []).append(name)
        ids = tuple(sorted(nodes))
        object.__setattr__(self, "ids", ids)
        groups = tuple([tuple(nodes[superpod]) for superpod in ids])
        object.__setattr__(self, "groups", groups)


class _Free:
    """The nodes of each SuperPoD that can take a pod of a job, without those in use."""

    __slots__ = ("_census", "_joined", "_question", "_size", "_used")

    def __init__(self, question: Question, joined: SuperPods, size: int) -> None:
        """Begin with none in use.

        Args:
            question: What is wanted.
            joined: Which node is in which SuperPoD.
            size: Chips of a pod.
        """
        self._question = question
        self._joined = joined
        self._size = size
        self._census = question.census(joined.groups, size)
        self._used: set[str] = set()

    def use(self, nodes: Iterable[str]) -> None:
        """Have these nodes be in use."""
        self._used.update(nodes)

    def numbers(self) -> dict[int, int]:
        """{SuperPoD: how many of its nodes can take a pod}."""
        slots = map(int.bit_count, self._census.slots)
        numbers = dict(zip(self._joined.ids, slots, strict=True))
        for superpod in {self._joined.of_node.get(node, -1) for node in self._used}:
            if superpod in numbers:
                numbers[superpod] = len(self.nodes(superpod))
        return numbers

    def nodes(self, superpod: int) -> list[str]:
        """Those nodes of one SuperPoD, the best first."""
        site = bisect_left(self._joined.ids, superpod)
        group = self._joined.groups[site]
        some = (group[position] for position in ones(self._census.slots[site]))
        return sorted(
            (node for node in some if node not in self._used),
            key=lambda node: (self._question.rank(self._size, node), node),
        )

    @property
    def total(self) -> int:
        """How many nodes of all SuperPoDs can take a pod, in use or not."""
        return self._census.total


def plan(
    question: Question,
    members: Sequence[Member],
    joined: SuperPods,
    block_nodes: int,
    *,
    soft: bool,
) -> JobPlacement | Rejection:
    """Place all members of a job, each on a node of its own.

    Args:
        question: What is wanted, and of which nodes.
        members: The pods, each once; a multiple of `block_nodes`.
        joined: Which node is in which SuperPoD.
        block_nodes: Nodes of a logical SuperPoD.
        soft: Whether one may be spread over several physical ones if it must.

    Returns:
        A place for each pod, by rank, with its SuperPoDs; or why there is none.
    """
    gang = ranked(members)
    size = max(member.chips for member in members)
    free = _Free(question, joined, size)
    good = {m.name: p for _, m in gang if (p := good_place(question, m)) is not None}
    kept = _refilled(gang, good, free, block_nodes, joined)
    request = Request(
        blocks=len(gang) // block_nodes,
        block_nodes=block_nodes,
        reserve=joined.reserve,
        soft=soft,
    )
    blocks = superpods.decide(request, free.numbers(), free.nodes, kept=kept)
    if isinstance(blocks, str):
        return Rejection(job=blocks, reasons=_reasons(question, size, free))
    ports = [(block.number, *port) for block in blocks for port in block.nodes]
    return JobPlacement(
        pods=tuple(
            [
                _place(question, good.get(member.name), port, (rank, member))
                for (rank, member), port in zip(gang, ports, strict=True)
            ]
        )
    )


def _refilled(
    gang: Sequence[tuple[int, Member]],
    good: Mapping[str, Placement],
    free: _Free,
    block_nodes: int,
    joined: SuperPods,
) -> list[Block]:
    """The logical SuperPoDs whose pods all had a place, with their holes filled.

    Their nodes are in use then.
    """
    kept: list[Block] = []
    for number in range(len(gang) // block_nodes):
        pods = [m for _, m in gang[number * block_nodes : (number + 1) * block_nodes]]
        had = [member.place for member in pods if member.place is not None]
        if len(had) < len(pods) or not any(member.name in good for member in pods):
            continue
        nodes = tuple((joined.of_node.get(p.node, -1), p.node) for p in had)
        before = Block(number=number, nodes=nodes)
        spare = {
            superpod: free.nodes(superpod) for superpod, _ in nodes if superpod >= 0
        }
        healthy = [good[m.name].node for m in pods if m.name in good]
        block = superpods.refill(before, healthy, spare)
        if block is not None:
            kept.append(block)
            free.use(node for _, node in block.nodes)
    return kept


def _place(
    question: Question,
    had: Placement | None,
    port: tuple[int, int, str],
    pod: tuple[int, Member],
) -> Placement:
    number, superpod, name = port
    rank, member = pod
    if had is not None and had.node == name:
        place = had._replace(pod=member.name, rank=rank)
    else:
        node = question.nodes[name]
        row = question.row(node)
        free = node.free_for(row)
        chosen = chips.choose(row, free, member.chips)
        place = placement(row, node, free, chosen, pod=member.name, rank=rank)
        place = place._replace(reason=f"{place.reason}, in SuperPoD {superpod}")
    return place._replace(superpod=superpod, superpod_rank=number)


def _reasons(question: Question, size: int, free: _Free) -> tuple[tuple[str, int], ...]:
    """Why there is no more room, counted over the nodes."""
    said = dict(question.reasons(size, _ELSEWHERE))
    lost = said.get(_ELSEWHERE, 0) - free.total
    said |= {_ELSEWHERE: free.total, _NOWHERE: lost}
    some = [(text, nodes) for text, nodes in said.items() if nodes]
    return tuple(sorted(some, key=lambda item: (-item[1], item[0])))
