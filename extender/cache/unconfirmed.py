"""On which nodes do pods wait that another pod could be taken for?"""

from scheduler_core.wire import shapes
from scheduler_core.wire.shapes import Shape

_NONE: frozenset[Shape] = frozenset()


class Waiting:
    """Shapes of claims that no Allocate has served yet, and where they are.

    Invariant: both tables say the same.
    """

    def __init__(self) -> None:
        """Know of no claim."""
        #: {shape: nodes with a claim of it}
        self._nodes: dict[Shape, set[str]] = {}
        #: {(node, resource): shapes of its claims}
        self._at: dict[tuple[str, str], frozenset[Shape]] = {}

    def __len__(self) -> int:
        """Count the shapes."""
        return len(self._nodes)

    def put(self, node: str, resource: str, now: frozenset[Shape]) -> bool:
        """Note all shapes that wait for chips of a node; whether one waits no more.

        Args:
            node: Its name.
            resource: Whose chips they wait for.
            now: Their shapes.
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
        """The nodes where a pod waits that one of this shape could be taken for."""
        return frozenset().union(
            *(
                nodes
                for other, nodes in self._nodes.items()
                if shapes.conflict(shape, other)
            )
        )
