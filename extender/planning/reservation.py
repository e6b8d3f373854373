"""Which nodes are kept for a large job that keeps losing to small ones?

Chips that become free one by one go to whoever needs few, and a job of many whole nodes
may wait for ever. So the first job that has waited long enough gets the nodes that
need the fewest chips freed until it fits: nobody who comes after it gets chips there.
One job for each resource, for a bounded time, and then a pause as long.

Pure, but for the index, which is as before afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from extender.cache.cache import Cache
from extender.gang.gangs import Gang
from extender.planning import plan
from extender.planning.plan import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that are kept for a job."""

    job: str
    #: of its first pod: pods with a higher one pass by
    priority: int
    nodes: frozenset[str]
    until_s: float


def nodes_for(
    cache: Cache, gang: Gang, names: Sequence[str], world: World
) -> frozenset[str]:
    """The nodes on which a job would fit if all their healthy chips were free.

    The fewest of those that are freest, so that what is kept is little and comes soon.

    Returns:
        Empty when the job would not fit on all of them.
    """
    line = cache.cluster.line(plan.resource_of(cache, gang))
    states = [state for name in names if (state := line.get(name)) is not None]
    states = [state for state in states if not state.barred]
    states.sort(key=lambda s: ((s.healthy & ~s.free).bit_count(), s.name))
    freed = {state.name: replace(state, free=state.healthy) for state in states}
    order = list(freed)

    def fits(count: int) -> bool:
        some = order[:count]
        with plan.laid_over(cache, [freed[name] for name in some]):
            found = plan.plan(cache, gang, some, 0, world)
        return not isinstance(found, str)

    if not fits(len(order)):
        return frozenset()
    least, most = 1, len(order)
    while least < most:
        middle = (least + most) // 2
        if fits(middle):
            most = middle
        else:
            least = middle + 1
    return frozenset(order[:most])


class Keeper:
    """Keeps nodes for jobs. Owner of `kept` in the cache."""

    def __init__(self, cache: Cache, world: Callable[[Gang], World]) -> None:
        """Keep nothing yet.

        Args:
            cache: Asked, and told which nodes are kept.
            world: What planning a job depends on besides.
        """
        self._cache = cache
        self._world = world
        #: {resource: what is kept}
        self._kept: dict[str, Reservation] = {}
        #: {job: when nodes may be kept for it again}
        self._again_s: dict[str, float] = {}

    def consider(self, gang: Gang, names: Sequence[str], now_s: float) -> None:
        """Keep nodes for a job that has no room, if it has waited long enough.

        Never for one pod: there is one such job for each resource, and pods that ask
        for leaf switches may be many.

        Args:
            gang: Nothing is kept for it yet, or its nodes are, and do not suffice yet.
            names: The nodes that it was offered.
            now_s: Seconds since the epoch.
        """
        limits = self._cache.limits
        since_s = now_s if gang.waits_s is None else gang.waits_s
        resource = plan.resource_of(self._cache, gang)
        if (
            gang.is_one
            or resource in self._kept
            or now_s - since_s < limits.reserve_after_s
            or now_s < self._again_s.get(gang.job, 0.0)
        ):
            return
        nodes = nodes_for(self._cache, gang, names, self._world(gang))
        if nodes:
            self._kept[resource] = Reservation(
                job=gang.job,
                priority=max(seat.priority for seat in gang.seats.values()),
                nodes=nodes,
                until_s=now_s + limits.reserve_for_s,
            )
            self._show()

    def review(self, now_s: float) -> bool:
        """Let go of what is kept for too long, or no longer needed; whether any was."""
        over = [
            resource
            for resource, kept in self._kept.items()
            if now_s >= kept.until_s or not self._waits(kept.job)
        ]
        for resource in over:
            kept = self._kept.pop(resource)
            self._again_s[kept.job] = now_s + self._cache.limits.reserve_for_s
        known = self._cache.gangs.jobs
        self._again_s = {job: s for job, s in self._again_s.items() if job in known}
        if over:
            self._show()
        return bool(over)

    def _waits(self, job: str) -> bool:
        gang = self._cache.gangs.jobs.get(job)
        return gang is not None and gang.waits_s is not None and gang.unseated_count > 0

    def _show(self) -> None:
        self._cache.kept = {
            resource: dict.fromkeys(kept.nodes, (kept.job, kept.priority))
            for resource, kept in self._kept.items()
        }
