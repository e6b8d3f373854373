"""Switch affinity 1.0, said once more in the plainest way.

Nothing here is shared with the program but the values that describe the question.
Leaves are lists of positions, and everything is looked at each time.
"""

from collections.abc import Mapping

from scheduler_core.topology.leaves import Leaf, Network, Schema, Server

#: nodes by rank, one list for each leaf or logical leaf; None when there is no place
Answer = list[list[str]] | None
_Port = tuple[Leaf, Server]


def version_one(
    network: Network, schema: Schema, pods: int, slots: Mapping[str, tuple[str, int]]
) -> Answer:
    """One leaf; else whole leaves; else logical leaves; else, if that is asked, any."""
    width = max((len(leaf.servers) for leaf in network.leaves), default=0)
    there = {leaf.name: _there(leaf, slots) for leaf in network.leaves}
    fitting = [leaf for leaf in network.leaves if len(there[leaf.name]) >= pods]
    is_filler = schema is Schema.LARGE_MODEL and pods < 4
    if fitting and (pods < width or is_filler):
        fewest = min(len(there[leaf.name]) for leaf in fitting)
        leaf = [leaf for leaf in fitting if len(there[leaf.name]) == fewest][-1]
        return [_some(leaf, slots, pods)]
    if is_filler:
        return None
    leaves = [
        leaf for leaf in network.leaves if _may_use(network, leaf, schema, fitting)
    ]
    leaves.sort(key=lambda leaf: -len(there[leaf.name]))
    if width == 0:
        return None
    numbers = [width] * ((pods - 1) // width)
    numbers.append(pods - sum(numbers))
    full = [leaf for leaf in leaves if len(there[leaf.name]) == width]
    if len(full) >= len(numbers):
        return [_some(leaf, slots, n) for leaf, n in zip(full, numbers, strict=False)]
    found = _logical(leaves, slots, width, numbers)
    if found is None and schema is Schema.NORMAL:
        found = _any(leaves, slots, pods)
    return found


def _there(leaf: Leaf, slots: Mapping[str, tuple[str, int]]) -> list[Server]:
    return [server for server in leaf.servers if server.node in slots]


def _some(leaf: Leaf, slots: Mapping[str, tuple[str, int]], number: int) -> list[str]:
    best = sorted(_there(leaf, slots), key=lambda server: slots[server.node])[:number]
    return [server.node for server in sorted(best, key=lambda server: server.slice_id)]


def _may_use(network: Network, leaf: Leaf, schema: Schema, fitting: list[Leaf]) -> bool:
    own = {server.node for server in leaf.servers}
    here = [tenant for tenant in network.tenants if tenant.nodes & own]
    if leaf in fitting or all(tenant.nodes <= own for tenant in here):
        return True
    return {schema, *(tenant.schema for tenant in here)} == {Schema.NORMAL}


def _logical(
    leaves: list[Leaf],
    slots: Mapping[str, tuple[str, int]],
    width: int,
    numbers: list[int],
) -> Answer:
    columns: list[list[_Port]] = [
        [
            (leaf, leaf.servers[position])
            for leaf in leaves
            if position < len(leaf.servers) and leaf.servers[position].node in slots
        ]
        for position in range(width)
    ]
    columns.sort(key=lambda column: -len(column))
    rows = max(map(len, columns), default=0)
    logical = [
        [column[row] for column in columns if len(column) > row] for row in range(rows)
    ]
    if len(numbers) == 1 and numbers[0] < width:
        fitting = [some for some in logical if len(some) >= numbers[0]]
        return [_ranked(fitting[-1][: numbers[0]])] if fitting else None
    if len(logical) < len(numbers):
        return None
    pairs = list(zip(logical, numbers, strict=False))
    if any(len(some) < number for some, number in pairs):
        return None
    return [_ranked(some[:number]) for some, number in pairs]


def _ranked(ports: list[_Port]) -> list[str]:
    return [server.node for _, server in sorted(ports, key=lambda p: p[1].slice_id)]


def _any(leaves: list[Leaf], slots: Mapping[str, tuple[str, int]], pods: int) -> Answer:
    found: list[list[str]] = []
    for leaf in leaves:
        some = _some(leaf, slots, pods - sum(map(len, found)))
        if some:
            found.append(some)
    return found if sum(map(len, found)) == pods else None
