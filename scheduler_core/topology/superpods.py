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

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice


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
        As `decide`.
    """
    numbers = {superpod: len(nodes) for superpod, nodes in free.items()}
    return decide(request, numbers, free.__getitem__, kept=kept)


def decide(
    request: Request,
    numbers: Mapping[int, int],
    nodes: Callable[[int], Sequence[str]],
    *,
    kept: Iterable[Block] = (),
) -> tuple[Block, ...] | str:
    """Choose the nodes of every logical SuperPoD of a job.

    Args:
        request: What the job asks for.
        numbers: {physical SuperPoD: how many of its nodes can take a pod of the job}.
        nodes: These nodes, the best first; asked for where some are taken. Without
            those of `kept`, as `numbers`.
        kept: Blocks that stay as they are (`refill`).

    Returns:
        All blocks by number, or why there is no place in a sentence.

    Cost:
        A step for each SuperPoD, and a few for each block and each number of nodes
        that a SuperPoD can have.
    """
    blocks = {block.number: block for block in kept}
    rest = [number for number in range(request.blocks) if number not in blocks]
    left = _Left(numbers, nodes)
    for superpod in _superpods(request, left, len(rest)):
        number = rest.pop(0)
        taken = left.take(superpod, request.block_nodes)
        blocks[number] = Block(number=number, nodes=taken)
    if rest and not request.soft:
        return (
            f"room for {request.blocks - len(rest)} of {request.blocks} logical "
            f"SuperPoDs of {request.block_nodes} nodes"
        )
    if left.total < len(rest) * request.block_nodes:
        return (
            f"fewer than {request.blocks * request.block_nodes} nodes in all SuperPoDs"
        )
    for number in rest:
        some = tuple(_scattered(left, request.block_nodes))
        blocks[number] = Block(number=number, nodes=some)
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


class _Left:
    """The nodes that are left of each SuperPoD while a job is laid out.

    Invariant: `_having` says of the SuperPoDs what `_number` says.
    """

    __slots__ = ("_begun", "_having", "_nodes", "_number")

    def __init__(
        self, numbers: Mapping[int, int], nodes: Callable[[int], Sequence[str]]
    ) -> None:
        """Begin with nothing taken."""
        self._number = dict(numbers)
        self._nodes = nodes
        #: {SuperPoD of which some are taken: those that are left, the best first}
        self._begun: dict[int, Iterator[str]] = {}
        #: {number of nodes: SuperPoDs that have so many, by id}
        self._having: dict[int, list[int]] = {}
        for superpod in sorted(numbers):
            self._having.setdefault(numbers[superpod], []).append(superpod)

    @property
    def total(self) -> int:
        """How many nodes are left in all."""
        return sum(self._number.values())

    def numbers(self) -> Iterable[int]:
        """How many nodes some SuperPoD has."""
        return self._having

    def of(self, superpod: int) -> int:
        """How many nodes this one has."""
        return self._number[superpod]

    def first(self, number: int) -> int:
        """The first SuperPoD that has so many nodes."""
        return self._having[number][0]

    def fullest(self) -> int | None:
        """The first SuperPoD of those that have the most nodes."""
        return self.first(max(self._having)) if self._having else None

    def take(self, superpod: int, number: int) -> tuple[tuple[int, str], ...]:
        """Take that many nodes, the best; all when there are fewer."""
        before = self._number[superpod]
        after = self._number[superpod] = max(before - number, 0)
        self._having[before].remove(superpod)
        if not self._having[before]:
            del self._having[before]
        insort(self._having.setdefault(after, []), superpod)
        if superpod not in self._begun:
            self._begun[superpod] = iter(self._nodes(superpod))
        some = islice(self._begun[superpod], before - after)
        return tuple([(superpod, node) for node in some])


def _superpods(request: Request, left: _Left, missing: int) -> Iterator[int]:
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
        while missing and left.of(superpod) >= request.block_nodes + request.reserve:
            yield superpod
            missing -= 1
    for _ in range(missing):
        fullest = left.fullest()
        if fullest is None or left.of(fullest) < request.block_nodes:
            return
        yield fullest


def _best_whole(request: Request, left: _Left, missing: int) -> int | None:
    part = replace(request, blocks=max(missing, 1))
    keyed = [
        (key, number)
        for number in left.numbers()
        if (key := order_of_whole(part, number)) is not None
    ]
    return left.first(min(keyed)[1]) if keyed and missing else None


def _best_of_queue_1(request: Request, left: _Left, missing: int) -> int | None:
    """Most blocks first, never more than are missing, then the smallest remainder."""
    keyed = []
    for number in left.numbers():
        beyond = number - request.reserve
        blocks = min(beyond // request.block_nodes, missing)
        if blocks > 0:
            rest = beyond - blocks * request.block_nodes
            keyed.append((-blocks, rest, number))
    return left.first(min(keyed)[2]) if keyed else None


def _scattered(left: _Left, number: int) -> Iterator[tuple[int, str]]:
    """So many nodes of the SuperPoDs with the most free ones, one after the other."""
    missing = number
    while missing and (superpod := left.fullest()) is not None:
        some = left.take(superpod, missing)
        missing -= len(some)
        yield from some
