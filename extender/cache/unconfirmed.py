"""Index of unconfirmed claims, to find nodes where Allocate could mix up two pods.

An Allocate call has the device ids for one container, but names no pod. Suppose that
two pods with unconfirmed claims are on one node, and a container of each gets equally
many chips. Then the agent may give one pod the chips of the other. Whether two pods may
be on one node in spite of this depends on their shapes (`shapes.conflict`).
"""

from scheduler_core.wire import shapes
from scheduler_core.wire.shapes import Shape

_NONE: frozenset[Shape] = frozenset()


class UnconfirmedClaims:
    """For each node, the shapes of pods with an unconfirmed claim or a reservation."""

    def __init__(self) -> None:
        #: {shape: nodes with such a claim}
        self._nodes: dict[Shape, set[str]] = {}
        #: {(node, resource): shapes of its claims}
        self._at: dict[tuple[str, str], frozenset[Shape]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: str, resource: str, now: frozenset[Shape]) -> bool:
        """Replace the stored shapes of a node's pods for one resource.

        Args:
            now: Shapes of all pods of the node that ask for the resource, and have a
                reservation or an unconfirmed claim.

        Returns:
            Whether an earlier shape is not in `now`. If so, more pods may fit the node.
        """
        at = node, resource
        before = self._at.get(at, _NONE)
        if now == before:
            return False
        if now:
            self._at[at] = now
        else:
            del self._at[at]
        for shape in now:
            if shape not in before:
                self._nodes.setdefault(shape, set()).add(node)
        ended = before - now
        for shape in ended:
            self._nodes[shape].discard(node)
            if not self._nodes[shape]:
                del self._nodes[shape]
        return bool(ended)

    def conflicts(self, shape: Shape) -> frozenset[str]:
        """Return the nodes that a new pod of this shape must not go to.

        On each of them, Allocate could mix up the new pod with a pod stored by `put`.
        """
        return frozenset().union(
            *(
                nodes
                for other, nodes in self._nodes.items()
                if shapes.conflict(shape, other)
            )
        )
