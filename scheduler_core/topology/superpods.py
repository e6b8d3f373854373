"""Choice of physical SuperPoDs and of their nodes for a job.

A job consists of logical SuperPoDs ("blocks") of L nodes with much traffic inside.
Each therefore goes into one physical SuperPoD. R nodes of each physical SuperPoD stay
in reserve while possible. Its number of free nodes determines its queue:

    queue 1   free ≥ L + R        a block fits, the reserve is kept
    queue 2   L ≤ free < L + R    a block fits, the reserve is used
    queue 3   free < L            no block fits: only for jobs of the soft policy

A SuperPoD that takes the whole job and keeps its reserve comes first. The rest of
queue 1, queue 2 and queue 3 follow. After each block the queue is determined again.

Source:
    Node Scoring, "Affinity Scheduling of Logical SuperPoDs".
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Request of a job to the SuperPoDs."""

    #: number of logical SuperPoDs, 1 or more
    blocks: int
    #: nodes of a logical SuperPoD, 1 or more
    block_nodes: int
    #: nodes of a physical SuperPoD to leave free where possible; may be 0
    reserve: int = 2
    #: whether a logical SuperPoD may use several physical ones as a last resort
    soft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Nodes of one logical SuperPoD."""

    #: number of the logical SuperPoD in the job, from 0
    number: int
    #: (id of the physical SuperPoD, node), in the order of ranks
    nodes: tuple[tuple[int, str], ...]


def decide(
    request: Request,
    numbers: Mapping[int, int],
    nodes: Callable[[int], Sequence[str]],
    *,
    fixed_blocks: Iterable[Block] = (),
) -> tuple[Block, ...] | str:
    """Choose the nodes of every logical SuperPoD of a job.

    Args:
        request: Request of the job.
        numbers: {physical SuperPoD: number of its nodes that can take a pod of the
            job}; without the nodes of `fixed_blocks`.
        nodes: Physical SuperPoD -> these nodes, the best first. Called only for
            SuperPoDs that the job uses.
        fixed_blocks: Blocks that stay as they are (`refill`).

    Returns:
        All blocks by number, or a sentence that says why they do not fit.

    Cost:
        A step for each SuperPoD, and a few for each block and each number of nodes
        that a SuperPoD can have.
    """
    blocks = {block.number: block for block in fixed_blocks}
    rest = [number for number in range(request.blocks) if number not in blocks]
    free_nodes = _FreeNodes(numbers, nodes)
    for superpod in _superpods(request, free_nodes, len(rest)):
        number = rest.pop(0)
        taken = free_nodes.take(superpod, request.block_nodes)
        blocks[number] = Block(number=number, nodes=taken)
    if rest and not request.soft:
        return (
            f"{request.blocks - len(rest)} of {request.blocks} logical "
            f"SuperPoDs of {request.block_nodes} nodes fit: the freest SuperPoD then "
            f"has {free_nodes.most} that can take a pod"
        )
    if free_nodes.total < len(rest) * request.block_nodes:
        able = free_nodes.total + len(blocks) * request.block_nodes
        return (
            f"fewer than {request.blocks * request.block_nodes} nodes in all SuperPoDs "
            f"can take a pod: {able} can"
        )
    for number in rest:
        nodes_of_block = tuple(_spread_nodes(free_nodes, request.block_nodes))
        blocks[number] = Block(number=number, nodes=nodes_of_block)
    return tuple(blocks[number] for number in sorted(blocks))


def refill(
    before: Block, healthy: Iterable[str], free: Mapping[int, Sequence[str]]
) -> Block | None:
    """Return a logical SuperPoD after a fault; healthy nodes keep their ranks.

    Args:
        before: The block before the fault.
        healthy: Nodes of the block that can continue.
        free: {physical SuperPoD: its nodes that can take a pod, the best first};
            nodes with a past fault come last.

    Returns:
        The block with new nodes of the same physical SuperPoD in place of faulty
        ones. None when it has too few nodes, or when the block uses several.
    """
    healthy = set(healthy)
    superpods = {superpod for superpod, _ in before.nodes}
    if all(node in healthy for _, node in before.nodes):
        return before
    if len(superpods) > 1:
        return None
    (superpod,) = superpods
    remaining = {node for _, node in before.nodes if node in healthy}
    spare = iter([node for node in free.get(superpod, ()) if node not in remaining])
    names = [node if node in healthy else next(spare, None) for _, node in before.nodes]
    nodes = [(superpod, node) for node in names if node is not None]
    if len(nodes) < len(before.nodes):
        return None
    return Block(number=before.number, nodes=tuple(nodes))


def whole_job_key(request: Request, free: int) -> tuple[int, ...] | None:
    """Return the key of a SuperPoD for a whole job; smaller is better.

    The free nodes beyond job and reserve fill a table of L rows, column by column.
    The first columns, one for each block, come first, row by row. All larger numbers
    follow, ascending.

    Args:
        request: Request of the job.
        free: Number of free nodes of the SuperPoD.

    Returns:
        The key, or None when it cannot take the whole job and keep its reserve.
    """
    beyond = free - request.blocks * request.block_nodes - request.reserve
    if beyond < 0:
        return None
    column, row = divmod(beyond, request.block_nodes)
    return (0, row, column) if column < request.blocks else (1, beyond)


class _FreeNodes:
    """Free nodes of each SuperPoD while the blocks of a job are placed.

    Invariant: `_ids_by_number` follows from `_numbers`.
    """

    __slots__ = ("_ids_by_number", "_iterators", "_nodes", "_numbers")

    def __init__(
        self, numbers: Mapping[int, int], nodes: Callable[[int], Sequence[str]]
    ) -> None:
        #: {SuperPoD: number of its free nodes}
        self._numbers = dict(numbers)
        #: SuperPoD -> its free nodes before the job, the best first
        self._nodes = nodes
        #: {SuperPoD that the job uses: its remaining free nodes, the best first}
        self._iterators: dict[int, Iterator[str]] = {}
        #: {number of free nodes: SuperPoDs with that number, by id}
        self._ids_by_number: dict[int, list[int]] = {}
        for superpod in sorted(numbers):
            self._ids_by_number.setdefault(numbers[superpod], []).append(superpod)

    @property
    def total(self) -> int:
        """Number of free nodes of all SuperPoDs."""
        return sum(self._numbers.values())

    def numbers(self) -> Iterable[int]:
        """Return the different numbers of free nodes that SuperPoDs have."""
        return self._ids_by_number

    def number(self, superpod: int) -> int:
        """Return the number of free nodes of one SuperPoD."""
        return self._numbers[superpod]

    def first(self, number: int) -> int:
        """Return the first SuperPoD with this number of free nodes."""
        return self._ids_by_number[number][0]

    @property
    def most(self) -> int:
        """Largest number of free nodes of a SuperPoD; 0 if there is none."""
        return max(self._ids_by_number, default=0)

    def emptiest(self) -> int | None:
        """Return the first of the SuperPoDs with the most free nodes, or None."""
        return self.first(self.most) if self._ids_by_number else None

    def take(self, superpod: int, number: int) -> tuple[tuple[int, str], ...]:
        """Remove the best free nodes of a SuperPoD and return (SuperPoD, node) of each.

        Args:
            superpod: Id of the SuperPoD.
            number: Number of nodes; all are taken when it has fewer.
        """
        before = self._numbers[superpod]
        after = self._numbers[superpod] = max(before - number, 0)
        self._ids_by_number[before].remove(superpod)
        if not self._ids_by_number[before]:
            del self._ids_by_number[before]
        insort(self._ids_by_number.setdefault(after, []), superpod)
        if superpod not in self._iterators:
            self._iterators[superpod] = iter(self._nodes(superpod))
        nodes = islice(self._iterators[superpod], before - after)
        return tuple([(superpod, node) for node in nodes])


def _superpods(request: Request, free_nodes: _FreeNodes, missing: int) -> Iterator[int]:
    """Yield the physical SuperPoD of each missing block.

    The caller takes the nodes from `free_nodes` before it resumes the iteration.
    """
    whole = _best_whole(request, free_nodes, missing)
    if whole is not None:
        for _ in range(missing):
            yield whole
        return
    while missing:
        superpod = _best_of_queue_1(request, free_nodes, missing)
        if superpod is None:
            break
        while (
            missing
            and free_nodes.number(superpod) >= request.block_nodes + request.reserve
        ):
            yield superpod
            missing -= 1
    for _ in range(missing):
        emptiest = free_nodes.emptiest()
        if emptiest is None or free_nodes.number(emptiest) < request.block_nodes:
            return
        yield emptiest


def _best_whole(request: Request, free_nodes: _FreeNodes, missing: int) -> int | None:
    part = replace(request, blocks=max(missing, 1))
    keyed = [
        (key, number)
        for number in free_nodes.numbers()
        if (key := whole_job_key(part, number)) is not None
    ]
    return free_nodes.first(min(keyed)[1]) if keyed and missing else None


def _best_of_queue_1(
    request: Request, free_nodes: _FreeNodes, missing: int
) -> int | None:
    """Return the SuperPoD for most of the missing blocks, then least remainder."""
    keyed = []
    for number in free_nodes.numbers():
        beyond = number - request.reserve
        blocks = min(beyond // request.block_nodes, missing)
        if blocks > 0:
            rest = beyond - blocks * request.block_nodes
            keyed.append((-blocks, rest, number))
    return free_nodes.first(min(keyed)[2]) if keyed else None


def _spread_nodes(free_nodes: _FreeNodes, number: int) -> Iterator[tuple[int, str]]:
    """Yield (SuperPoD, node) of `number` nodes, most free nodes of a SuperPoD first."""
    missing = number
    while missing and (superpod := free_nodes.emptiest()) is not None:
        nodes = free_nodes.take(superpod, missing)
        missing -= len(nodes)
        yield from nodes
