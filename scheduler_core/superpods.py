"""Which nodes a job gets where nodes are joined to SuperPoDs.

A job is made of logical SuperPoDs of L nodes each, that talk a lot among themselves,
so each lies inside one physical SuperPoD. Of a physical one R nodes are kept in
reserve, as long as that is possible. By its free nodes it stands in a queue:

    queue 1   free ≥ L + R        a block fits, the reserve is kept
    queue 2   L ≤ free < L + R    a block fits, the reserve is used
    queue 3   free < L            no block fits: only for jobs of the soft policy

First one that takes the whole job and keeps its reserve; then the rest of queue 1,
then queue 2, then queue 3. After each block a SuperPoD is classed anew.

Source:
    Node Scoring, "Affinity Scheduling of Logical SuperPoDs".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job asks of the SuperPoDs."""

    #: logical SuperPoDs, 1 or more
    blocks: int
    #: nodes of each, 1 or more
    block_nodes: int
    #: nodes of a physical SuperPoD that are kept free where possible; may be 0
    reserve: int = 2
    #: whether a logical SuperPoD may be spread over physical ones if it must
    soft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The nodes of one logical SuperPoD."""

    #: its number in the job, from 0
    number: int
    #: (id of the physical SuperPoD, node), in the order of ranks
    nodes: tuple[tuple[int, str], ...]


def plan(
    request: Request,
    free: Mapping[int, Sequence[str]],
    *,
    kept: Iterable[Block] = (),
) -> tuple[Block, ...] | str:
    """Choose the nodes of every logical SuperPoD of a job.

    Args:
        request: What the job asks for.
        free: {physical SuperPoD: its nodes that can take a pod of the job, the best
            first}; without the nodes of `kept`.
        kept: Blocks that stay as they are (`refill`).

    Returns:
        All blocks by number, or why there is no place in a sentence.

    Cost:
        A few steps for each SuperPoD and block.
    """
    blocks = {block.number: block for block in kept}
    numbers = iter([n for n in range(request.blocks) if n not in blocks])
    missing = request.blocks - len(blocks)
    left = {superpod: list(nodes) for superpod, nodes in free.items()}
    for superpod in _superpods(request, left, missing):
        number = next(numbers)
        nodes = _taken(left, superpod, request.block_nodes)
        blocks[number] = Block(number=number, nodes=nodes)
    rest = list(numbers)
    if rest and not request.soft:
        return (
            f"room for {request.blocks - len(rest)} of {request.blocks} logical "
            f"SuperPoDs of {request.block_nodes} nodes"
        )
    if sum(map(len, left.values())) < len(rest) * request.block_nodes:
        return (
            f"fewer than {request.blocks * request.block_nodes} nodes in all SuperPoDs"
        )
    for number in rest:
        nodes = tuple(_scattered(left, request.block_nodes))
        blocks[number] = Block(number=number, nodes=nodes)
    return tuple(blocks[number] for number in sorted(blocks))


def refill(
    before: Block, healthy: Iterable[str], free: Mapping[int, Sequence[str]]
) -> Block | None:
    """A logical SuperPoD after a fault: who is healthy keeps node and rank.

    Args:
        before: As it was.
        healthy: Nodes of it that can go on.
        free: {physical SuperPoD: its nodes that can take a pod, the best first};
            nodes that had a fault last.

    Returns:
        The block with its holes filled from the same physical SuperPoD; None when
        that has too few nodes, or when the block lies in several.
    """
    good = set(healthy)
    superpods = {superpod for superpod, _ in before.nodes}
    if all(node in good for _, node in before.nodes):
        return before
    if len(superpods) > 1:
        return None
    (superpod,) = superpods
    used = {node for _, node in before.nodes if node in good}
    spare = iter([node for node in free.get(superpod, ()) if node not in used])
    filled = [node if node in good else next(spare, None) for _, node in before.nodes]
    nodes = [(superpod, node) for node in filled if node is not None]
    if len(nodes) < len(before.nodes):
        return None
    return Block(number=before.number, nodes=tuple(nodes))


def order_of_whole(request: Request, free: int) -> tuple[int, ...] | None:
    """How good a SuperPoD is for a whole job, smaller is better.

    With d free nodes beyond job and reserve: the first columns of a table of L rows
    come first, row by row, then the others, ascending.

    Args:
        request: What the job asks for.
        free: Free nodes of the SuperPoD.

    Returns:
        The key, or None when it cannot take the whole job and keep its reserve.
    """
    beyond = free - request.blocks * request.block_nodes - request.reserve
    if beyond < 0:
        return None
    column, row = divmod(beyond, request.block_nodes)
    return (0, row, column) if column < request.blocks else (1, beyond)


def _superpods(
    request: Request, left: Mapping[int, Sequence[str]], missing: int
) -> Iterator[int]:
    """The physical SuperPoD of one block after the other; `left` is kept up to date."""
    whole = _best_whole(request, left, missing)
    if whole is not None:
        for _ in range(missing):
            yield whole
        return
    while missing:
        superpod = _best_of_queue_1(request, left, missing)
        if superpod is None:
            break
        while missing and len(left[superpod]) >= request.block_nodes + request.reserve:
            yield superpod
            missing -= 1
    for _ in range(missing):
        fullest = max(left, key=lambda each: (len(left[each]), -each), default=None)
        if fullest is None or len(left[fullest]) < request.block_nodes:
            return
        yield fullest


def _best_whole(
    request: Request, left: Mapping[int, Sequence[str]], missing: int
) -> int | None:
    part = Request(
        blocks=max(missing, 1),
        block_nodes=request.block_nodes,
        reserve=request.reserve,
    )
    keyed = [
        (key, superpod)
        for superpod, nodes in left.items()
        if (key := order_of_whole(part, len(nodes))) is not None
    ]
    return min(keyed)[1] if keyed and missing else None


def _best_of_queue_1(
    request: Request, left: Mapping[int, Sequence[str]], missing: int
) -> int | None:
    """Most blocks first, never more than are missing, then the smallest remainder."""
    keyed = []
    for superpod, nodes in left.items():
        beyond = len(nodes) - request.reserve
        blocks = min(beyond // request.block_nodes, missing)
        if blocks > 0:
            rest = beyond - blocks * request.block_nodes
            keyed.append((-blocks, rest, superpod))
    return min(keyed)[2] if keyed else None


def _taken(
    left: dict[int, list[str]], superpod: int, number: int
) -> tuple[tuple[int, str], ...]:
    nodes, left[superpod] = left[superpod][:number], left[superpod][number:]
    return tuple((superpod, node) for node in nodes)


def _scattered(left: dict[int, list[str]], number: int) -> Iterator[tuple[int, str]]:
    """So many nodes of the SuperPoDs with the most free ones, one after the other."""
    missing = number
    while missing:
        superpod = max(left, key=lambda each: (len(left[each]), -each))
        some = _taken(left, superpod, missing)
        missing -= len(some)
        yield from some
