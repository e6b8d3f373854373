"""Where all pods of a job of logical SuperPoDs go, or none of them.

The SuperPoDs decide which nodes (`superpods.py`); every pod takes a node of its own.
Rank r lies in logical SuperPoD r // L. After a fault, a logical SuperPoD whose pods
have places keeps the good ones and their ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from scheduler_core import chips, superpods
from scheduler_core.answers import JobPlacement, Placement, Rejection
from scheduler_core.gangs import Member, Question, good_place, ranked
from scheduler_core.placement import placement
from scheduler_core.rows import Product
from scheduler_core.superpods import Block, Request

#: said of nodes that could take a pod of the job
_ELSEWHERE = "can take a pod, but its SuperPoD does not suit the job"
_NOWHERE = "can take a pod, but its SuperPoD is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperPods:
    """How a cluster's nodes are joined to SuperPoDs."""

    #: {node: id of its SuperPoD, 0 or more}
    of_node: Mapping[str, int] = field(
        default_factory=lambda: MappingProxyType(dict[str, int]())
    )
    #: nodes of each that are kept free where possible
    reserve: int = 2


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
    rows: dict[str, Product] = {}
    free: dict[int, list[str]] = {}
    for row, _, name in question.serving(size):
        superpod = joined.of_node.get(name, -1)
        if superpod >= 0:
            rows[name] = row
            free.setdefault(superpod, []).append(name)
    good = {m.name: p for _, m in gang if (p := good_place(question, m)) is not None}
    kept = _refilled(gang, good, free, block_nodes, joined)
    used = {node for block in kept for _, node in block.nodes}
    left = {
        superpod: [node for node in nodes if node not in used]
        for superpod, nodes in free.items()
    }
    request = Request(
        blocks=len(gang) // block_nodes,
        block_nodes=block_nodes,
        reserve=joined.reserve,
        soft=soft,
    )
    blocks = superpods.plan(request, left, kept=kept)
    if isinstance(blocks, str):
        return Rejection(job=blocks, reasons=_reasons(question, size, joined))
    ports = [(block.number, *port) for block in blocks for port in block.nodes]
    return JobPlacement(
        pods=tuple(
            _place(question, rows, good.get(member.name), port, (rank, member))
            for (rank, member), port in zip(gang, ports, strict=True)
        )
    )


def _refilled(
    gang: Sequence[tuple[int, Member]],
    good: Mapping[str, Placement],
    free: Mapping[int, Sequence[str]],
    block_nodes: int,
    joined: SuperPods,
) -> list[Block]:
    """The logical SuperPoDs whose pods all had a place, with their holes filled."""
    kept: list[Block] = []
    for number in range(len(gang) // block_nodes):
        pods = [m for _, m in gang[number * block_nodes : (number + 1) * block_nodes]]
        had = [member.place for member in pods if member.place is not None]
        if len(had) < len(pods) or not any(member.name in good for member in pods):
            continue
        nodes = tuple((joined.of_node.get(p.node, -1), p.node) for p in had)
        before = Block(number=number, nodes=nodes)
        used = {node for block in kept for _, node in block.nodes}
        spare = {
            superpod: [node for node in some if node not in used]
            for superpod, some in free.items()
        }
        healthy = [good[m.name].node for m in pods if m.name in good]
        block = superpods.refill(before, healthy, spare)
        if block is not None:
            kept.append(block)
    return kept


def _place(
    question: Question,
    rows: Mapping[str, Product],
    had: Placement | None,
    port: tuple[int, int, str],
    pod: tuple[int, Member],
) -> Placement:
    number, superpod, name = port
    rank, member = pod
    if had is not None and had.node == name:
        place = replace(had, pod=member.name, rank=rank)
    else:
        row, node = rows[name], question.cluster[name]
        free = node.free_for(row)
        chosen = chips.choose(row, free, member.chips)
        place = placement(row, node, free, chosen, pod=member.name, rank=rank)
        place = replace(place, reason=f"{place.reason}, in SuperPoD {superpod}")
    return replace(place, superpod=superpod, superpod_rank=number)


def _reasons(
    question: Question, size: int, joined: SuperPods
) -> tuple[tuple[str, int], ...]:
    """Why there is no more room, counted over the nodes."""
    lost = sum(
        joined.of_node.get(name, -1) < 0 for _, _, name in question.serving(size)
    )
    said = dict(question.reasons(size, _ELSEWHERE))
    said |= {_ELSEWHERE: said.get(_ELSEWHERE, 0) - lost, _NOWHERE: lost}
    some = [(text, nodes) for text, nodes in said.items() if nodes]
    return tuple(sorted(some, key=lambda item: (-item[1], item[0])))
