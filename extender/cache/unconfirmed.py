"""Index of unconfirmed claims, to find nodes where Allocate could mix up two pods.

An Allocate call says how many chips a container gets, but not of which pod. If two pods
of a node have unconfirmed claims for that number, the agent may give one pod the chips
of the other. `shapes.conflict` tells for which shapes this does harm.
"""

from scheduler_core.wire import shapes
from scheduler_core.wire.shapes import Shape

_NONE: frozenset[Shape] = frozenset()


class UnconfirmedClaims:
    """For each node, the shapes of pods with an unconfirmed claim or a reservation.

    Invariant: `_nodes` and `_at` contain the same pairs of node and shape.
    """

    def __init__(self) -> None:
        #: {shape: nodes with such a claim}
        self._nodes: dict[Shape, set[str]] = {}
        #: {(node, resource): shapes of its claims}
        self._at: dict[tuple[str, str], frozenset[Shape]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: str, resource: str, now: frozenset[Shape]) -> bool:
        """Store the shapes of one resource of a node, in place of the earlier ones.

        Args:
            node: Name of the node.
            resource: Name of the resource.
            now: Shapes of all pods of the node that ask for the resource, and have a
                reservation or an unconfirmed claim.

        Returns:
            Whether an earlier shape is not in `now`. Then more pods may fit the node.
        """
        at = node, resource
        before = self._at.get(at, _NONE)
        if now == before:
            return False
        if now:
            self._at[at] = now
        else:
            del self._at[at]
        for shape in now - before:
            self._nodes.setdefault(shape, set()).add(node)
        for shape in before - now:
            self._nodes[shape].discard(node)
            if not self._nodes[shape]:
                del self._nodes[shape]
        return bool(before - now)

    def conflicts(self, shape: Shape) -> frozenset[str]:
        """Return the nodes where Allocate could mix up a new pod with another pod.

        The other pod has an unconfirmed claim or a reservation on the node.

        Args:
            shape: Shape of the new pod.
        """
        return frozenset().union(
            *(
                nodes
                for other, nodes in self._nodes.items()
                if shapes.conflict(shape, other)
            )
        )
