"""Which pods a job still needs before it may run, and which may join it later.

An elastic job runs with its least number of pods (`size.Size.least`). If roles have
least numbers as well, such as the tasks of a Volcano Job, each role needs its own.
"""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from extender.gang.size import Size


class Needed(NamedTuple):
    """Unbound members of a job, those that it needs first, and how many these are."""

    uids: list[str]
    least: int


def count_short(size: Size, roles: Collection[str], others: int) -> int:
    """Return how many more pods a job needs besides these.

    Args:
        size: Numbers of pods of the job.
        roles: Role of each pod with NPUs.
        others: Number of pods without NPUs; not used if `size` does not count them.
    """
    of_all = size.least - len(roles) - (others if size.counts_all else 0)
    if not size.roles:
        return max(of_all, 0)
    counts = Counter(roles)
    of_roles = sum(max(least - counts[role], 0) for role, least in size.roles)
    return max(of_all, of_roles, 0)


def order_by_need(
    size: Size,
    unbound: Collection[tuple[str, str]],
    roles: Collection[str],
    others: int,
) -> Needed:
    """Return the unbound members of a job in the order in which it needs them.

    The least number of each role comes first, then the others by rank.

    Args:
        size: Numbers of pods of the job.
        unbound: (UID, role) of the members without a node, by rank.
        roles: Role of each member that has a node or has succeeded.
        others: Number of pods without NPUs.

    Returns:
        At least one of the members is needed, if there are any.
    """
    lacking = dict(size.roles)
    for role in roles:
        lacking[role] = lacking.get(role, 0) - 1
    first: list[str] = []
    rest: list[str] = []
    for uid, role in unbound:
        lacking[role] = lacking.get(role, 0) - 1
        (first if lacking[role] >= 0 else rest).append(uid)
    of_all = size.least - len(roles) - (others if size.counts_all else 0)
    least = min(max(of_all, len(first), 1), len(unbound))
    return Needed([*first, *rest], least)
