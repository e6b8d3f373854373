"""Formula of the free chips of a node, as masks of physical ids (bit i is chip i).

The formula is a module of its own so that the extender and snapshots subtract in the
same place. Two copies would drift apart and give one chip to two pods.
"""


def free_chips(
    *,
    healthy: int,
    claimed: int,
    held: int,
    releasing: int,
    listed: int | None = None,
) -> int:
    """Return the mask of the chips of a node that may be given to a pod.

    Without `listed` the scheduler keeps the books: healthy chips without a claim are
    free. With `listed` the node keeps them: only claims newer than the list count.
    Held and releasing chips are never free in either case.

    Args:
        healthy: Chips that are present and healthy.
        claimed: Chips named by either annotation on pods of this node that are
            neither Failed nor Succeeded; with `listed`, only claims newer than it.
        held: Chips that Allocate has given out.
        releasing: Chips whose pod is gone while its processes still run.
        listed: Free chips in the node's ConfigMap; None when the scheduler keeps
            the books.

    Source:
        Scheduling Process of the Ascend AI processor, processes 1 and 2.
    """
    offered = healthy if listed is None else healthy & listed
    return offered & ~(claimed | held | releasing)
