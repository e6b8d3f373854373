"""The nodes as a picture: chips in their rings; free, whose, or unhealthy."""

from collections.abc import Callable, Iterator, Mapping

from sandbox.inspect.checks import RING_SIZE
from sandbox.inspect.facts import Cluster, Mount, NodeFacts
from sandbox.inspect.terminal import Line, Span, Style
from sandbox.world import CHIP_COUNT

_FREE = "·"
_UNHEALTHY = "✗"
_SHORTEST = 7
_LEGEND = f"{_FREE} free   {_UNHEALTHY} unhealthy   a name: the pod that has it mounted"


def _pod(mount: Mount) -> str:
    return mount.pod


def nodes(cluster: Cluster, name_of: Callable[[Mount], str] = _pod) -> tuple[Line, ...]:
    """Draw every node on one line, under the numbers of the chips.

    A chip's owner is the pod whose container sees it; a chip with two owners
    shows both.

    Args:
        cluster: What is to be seen.
        name_of: How a pod is called whose name is long.
    """
    names = [name_of(mount) for mount in cluster.mounts]
    width = max([_SHORTEST, *map(len, names)])
    margin = max(len(node.name) for node in cluster.nodes)
    head = " " * margin + _rings(str(i).center(width) for i in range(CHIP_COUNT))
    return (
        (Span(head, Style.DIM),),
        *(
            (
                Span(node.name.ljust(margin)),
                *_cells(node, _owners(node.name, cluster, name_of), width),
            )
            for node in cluster.nodes
        ),
        (Span(_LEGEND, Style.DIM),),
    )


def _rings(cells: Iterator[str]) -> str:
    parts = list(cells)
    rings = [
        " ".join(parts[first : first + RING_SIZE])
        for first in range(0, CHIP_COUNT, RING_SIZE)
    ]
    return "".join(f"   {ring} " for ring in rings)


def _cells(node: NodeFacts, owners: Mapping[int, str], width: int) -> Iterator[Span]:
    for chip in range(CHIP_COUNT):
        opening = "  [" if chip % RING_SIZE == 0 else " "
        yield Span(opening, Style.DIM)
        owner = owners.get(chip, "")
        if chip in node.broken:
            text = f"{_UNHEALTHY} {owner}".strip() if owner else _UNHEALTHY
            yield Span(text[:width].center(width), Style.BAD)
        elif owner:
            yield Span(owner.center(width), Style.NAME)
        else:
            yield Span(_FREE.center(width), Style.DIM)
        if chip % RING_SIZE == RING_SIZE - 1:
            yield Span("]", Style.DIM)


def _owners(
    node: str, cluster: Cluster, name_of: Callable[[Mount], str]
) -> Mapping[int, str]:
    owners: dict[int, str] = {}
    for mount in cluster.mounts:
        name = name_of(mount)
        for chip in mount.chips if mount.node == node else ():
            owners[chip] = f"{owners[chip]}+{name}" if chip in owners else name
    return owners
