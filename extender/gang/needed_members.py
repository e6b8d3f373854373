"""Which pods a job still needs before it may run, and which may join it later.

An elastic job runs with its least number of pods (`size.Size.least`). If roles have
least numbers as well, such as the tasks of a Volcano Job, each role needs its own.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.gang.generations import Generation
from extender.gang.membership import Membership
from extender.gang.size import Size

#: Generation, role and index of a pod: equal for a pod and its successor.
IndexKey = tuple[Generation, str, str]


class Needed(NamedTuple):
    """Unbound members of a job, those that it needs first, and how many these are."""

    uids: list[str]
    least: int


@dataclass(slots=True, kw_only=True)
class Run:
    """The members that a job had when all that it needed were bound.

    Protects: a newcomer does not take the place of the successor of one of them.
    """

    #: what the job needed then
    size: Size
    #: {key of their index: number of these members}
    counts: Counter[IndexKey]
    #: how many more of them there were than the job needed
    spare: int
    #: keys of those that left, and that a job that is not elastic has again
    left: set[IndexKey] = field(default_factory=set)

    def leave(self, key: IndexKey, *, is_done: bool) -> None:
        """Forget a member that ends, if it needs no successor.

        Args:
            is_done: Whether it has succeeded.
        """
        _, _, index = key
        if self.counts[key] > 0 and (is_done or self.spare > 0):
            self.counts[key] -= 1
            self.spare -= 0 if is_done else 1
        elif self.counts[key] > 0 and index and not self.size.is_elastic:
            self.left.add(key)

    def put_first(
        self, unbound: Mapping[str, IndexKey], placed: Iterable[IndexKey]
    ) -> list[str]:
        """Return the UIDs of unbound members, successors before newcomers.

        Args:
            unbound: {UID: key}; otherwise they stay in this order.
            placed: Keys of the members that have a node.
        """
        lost = self.counts.copy()
        lost.subtract(placed)
        successors: list[str] = []
        newcomers: list[str] = []
        for uid, key in unbound.items():
            (successors if lost[key] > 0 else newcomers).append(uid)
            lost[key] -= 1
        return [*successors, *newcomers]


def has_number(membership: Membership) -> bool:
    """Return whether a member has a number that only its successor will have."""
    return bool(membership.index) or membership.rank is not None


def index_key(membership: Membership) -> IndexKey:
    """Return the key of a member's index; equal for all of a role that have none."""
    return membership.generation, membership.role, membership.index


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
