"""Which chips of a node are free: the one place that subtracts.

Chips are masks of physical ids, bit i is chip i.
"""


def free_chips(
    *,
    healthy: int,
    claimed: int,
    held: int,
    releasing: int,
    listed: int | None = None,
) -> int:
    """The chips of a node that may be given out.

    Two ways to know them. The scheduler keeps them itself: healthy chips that no pod
    claims. Or the node lists them: then only claims that the list cannot know yet
    are taken off. Held and releasing chips are never free, whoever keeps the books.

    Args:
        healthy: Chips that are there and healthy.
        claimed: Chips named on pods of this node that are neither Failed nor
            Succeeded, by either annotation; with `listed`, only of claims that are
            newer than the list.
        held: Chips that Allocate has given out.
        releasing: Chips whose pod is gone but whose processes are not.
        listed: The node's own list; None when the scheduler keeps its own.

    Source:
        Scheduling Process of the Ascend AI processor, processes 1 and 2.
    """
    offered = healthy if listed is None else healthy & listed
    return offered & ~(claimed | held | releasing)
