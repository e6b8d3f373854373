"""Places for a few pods that ask for unlike CPU and memory and share nodes.

The core plans by chips. Where nodes cannot take all pods that it gives them, a plan
with fewer chips there may give them the wrong pods again. This search looks at chips,
CPU, memory and pod places of each pod at once, the largest pods first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from extender.cache.overlay import ClusterView
from extender.cache.requests import Resources
from extender.scheduling import capacity
from scheduler_core.node import chips
from scheduler_core.node.decision import Placement
from scheduler_core.node.state import NodeState
from scheduler_core.placement.pod import placement
from scheduler_core.products.columns import Product
from scheduler_core.wire import shapes
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

#: most nodes that are tried for pods; each takes some microseconds
BOUND = 20_000


class UnlikePod(NamedTuple):
    """A pod to place."""

    pod: NpuPod
    ask: Resources
    #: its number in the job, from 0
    rank: int


@dataclass(slots=True)
class _Node:
    """A node with what the pods placed so far have left."""

    state: NodeState
    free: int
    left: Resources
    #: shapes of the pods placed there
    shapes: tuple[Shape, ...] = ()

    def fits(self, one: UnlikePod) -> bool:
        """Return whether a pod has CPU, memory and a place, and is told from others."""
        return min(self.left.minus(one.ask)) >= 0 and not any(
            shapes.conflict(one.pod.shape, other) for other in self.shapes
        )


def place(
    view: ClusterView, row: Product, names: Sequence[str], pods: Sequence[UnlikePod]
) -> tuple[Placement, ...] | None:
    """Return a place for each pod, ordered by rank; None if none was found.

    Args:
        view: Read only.
        row: Product by which the nodes serve the pods.
        names: Candidate nodes, the best first.
        pods: Pods without a node.

    Cost:
        Ends at `BOUND` nodes tried. Up to that, the search is complete.
    """
    states = view.index.nodes(row)
    nodes = [
        _Node(states[name], states[name].free_for(row), capacity.free_on(view, name))
        for name in names
    ]
    order = sorted(pods, key=lambda one: (-one.pod.total, -one.ask.cpu, one.rank))
    found = _Search(row, nodes, order).found()
    return None if found is None else tuple(sorted(found, key=lambda p: p.rank))


class _Search:
    """Search in depth for places of pods, in a fixed order of pods and of nodes."""

    def __init__(
        self, row: Product, nodes: Sequence[_Node], pods: Sequence[UnlikePod]
    ) -> None:
        self._row = row
        self._nodes = nodes
        self._pods = pods
        self._steps = 0

    def found(self) -> list[Placement] | None:
        """Return the places of the pods; None if there are none within the bound."""
        return self._place_from(0)

    def _place_from(self, number: int) -> list[Placement] | None:
        if number == len(self._pods):
            return []
        one = self._pods[number]
        tried: set[tuple[object, ...]] = set()
        for node in self._nodes:
            self._steps += 1
            if self._steps > BOUND:
                return None
            key = node.free, node.left, node.shapes
            if key in tried or not node.fits(one):
                continue
            tried.add(key)
            mask = chips.choose(self._row, node.free, one.pod.total)
            if not mask:
                continue
            made = placement(
                self._row, node.state, node.free, mask, pod=one.pod.name, rank=one.rank
            )
            node.free, node.left = node.free & ~mask, node.left.minus(one.ask)
            node.shapes = (*node.shapes, one.pod.shape)
            rest = self._place_from(number + 1)
            if rest is not None:
                return [made, *rest]
            node.free, node.left, node.shapes = key
        return None
