"""Nodes with claims that Allocate could mix up with another pod."""

from scheduler_core.wire import shapes
from scheduler_core.wire.shapes import Shape

_NONE: frozenset[Shape] = frozenset()


class UnconfirmedClaims:
    """Shapes of claims without a confirmed Allocate, and the nodes that have them.

    Invariant: both tables have the same pairs.
    """

    def __init__(self) -> None:
        #: {shape: nodes with such a claim}
        self._nodes: dict[Shape, set[str]] = {}
        #: {(node, resource): shapes of its claims}
        self._at: dict[tuple[str, str], frozenset[Shape]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: str, resource: str, now: frozenset[Shape]) -> bool:
        """Set the shapes that wait for chips of a node; return whether one was removed.

        Args:
            node: Name of the node.
            resource: Resource whose chips the claims want.
            now: All shapes that wait now; may be empty.
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
        """Return the nodes with a claim that conflicts with a pod of this shape."""
        return frozenset().union(
            *(
                nodes
                for other, nodes in self._nodes.items()
                if shapes.conflict(shape, other)
            )
        )
