"""Index of unconfirmed claims, to find nodes where Allocate could mix up two pods.

A claim is unconfirmed until the agent has given out its chips. An Allocate call does
not name its pod, so the agent tells unconfirmed claims apart by chip count only.
"""

from scheduler_core.wire import shapes
from scheduler_core.wire.shapes import Shape

_NONE: frozenset[Shape] = frozenset()


class UnconfirmedClaims:
    """Shapes of pods whose chips Allocate has not given out yet, and their nodes.

    A shape has the chip counts of a pod's containers, for example. It decides which
    pods Allocate could mix up. Reservations count like claims. Invariant: `_nodes` and
    `_at` contain the same pairs of node and shape.
    """

    def __init__(self) -> None:
        #: {shape: nodes with such a claim}
        self._nodes: dict[Shape, set[str]] = {}
        #: {(node, resource): shapes of its claims}
        self._at: dict[tuple[str, str], frozenset[Shape]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: str, resource: str, now: frozenset[Shape]) -> bool:
        """Set the shapes of pods with an unconfirmed claim on one resource of a node.

        Return whether a shape was removed, since more pods may then fit the node.

        Args:
            node: Name of the node.
            resource: Resource that the claims are for.
            now: All these shapes; replaces those set before. May be empty.
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
        """Return the nodes where Allocate could mix up a claim there with a new pod.

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
