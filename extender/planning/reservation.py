"""Nodes reserved for a large job that small jobs would otherwise delay forever.

Chips become free one by one and go to pods that need few. So a job that needs many
whole nodes may wait forever. If a job has waited for `reserve_after_s` seconds, nodes
are reserved for it. The nodes with the fewest chips in use are chosen, as many as the
job needs. Only one job for each resource has reserved nodes at a time. Pods of other
jobs get no chips on these nodes, unless the pods have a higher priority than the job. A
node reservation lasts at most `reserve_for_s` seconds. For `reserve_for_s` seconds
after its end, the job gets no new one. Both times are fields of `gang.events.Limits`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from extender.cache.cache import Cache
from extender.cache.overlay import overlay_cache
from extender.gang.gangs import Gang
from extender.planning import plan
from extender.planning.plan import TopologySnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReservation:
    """Nodes with chips of one resource, reserved for one job until a deadline."""

    job: str
    #: highest of its pods; pods with a higher one may use the nodes
    priority: int
    nodes: frozenset[str]
    until_s: float


def choose_nodes(
    cache: Cache, gang: Gang, names: Sequence[str], topology: TopologySnapshot
) -> frozenset[str]:
    """Return nodes on which a job would fit if all their healthy chips were free.

    Takes the nodes with the fewest chips in use, and no more of them than the job
    needs. So few chips are reserved, and the nodes become free soon.

    Args:
        cache: Read only.
        gang: A job that does not fit now.
        names: Candidate nodes of the job.
        topology: Leaf switches, SuperPoDs and job rules for this job.

    Returns:
        Empty if the job would not fit on all candidate nodes together.
    """
    states_by_name = cache.cluster.nodes(plan.resource_of(cache, gang))
    states = [
        state for name in names if (state := states_by_name.get(name)) is not None
    ]
    states = [state for state in states if not state.barred]
    states.sort(key=lambda s: ((s.healthy & ~s.free).bit_count(), s.name))
    freed_states = {state.name: replace(state, free=state.healthy) for state in states}
    order = list(freed_states)

    def fits(count: int) -> bool:
        first_names = order[:count]
        view = overlay_cache(cache, [freed_states[name] for name in first_names])
        outcome = plan.plan(cache, gang, first_names, 0, topology, view)
        return not isinstance(outcome, str)

    if not fits(len(order)):
        return frozenset()
    low, high = 1, len(order)
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return frozenset(order[:high])


class NodeReservations:
    """Node reservations of all jobs, at most one for each resource.

    Nothing else writes `reserved_nodes` of the cache.
    """

    def __init__(
        self, cache: Cache, topology: Callable[[Gang], TopologySnapshot]
    ) -> None:
        """Start without node reservations.

        Args:
            cache: Nodes are chosen from it. All reserved nodes are written into its
                attribute `reserved_nodes`.
            topology: Returns leaf switches, SuperPoDs and job rules for a job. Called
                before each choice of nodes.
        """
        self._cache = cache
        self._topology = topology
        #: {resource: its node reservation}
        self._by_resource: dict[str, NodeReservation] = {}
        #: {job: earliest time of its next reservation}
        self._next_allowed_s: dict[str, float] = {}

    def consider(self, gang: Gang, names: Sequence[str], now_s: float) -> None:
        """Reserve nodes for a job that does not fit and has waited `reserve_after_s`.

        No nodes are reserved for a one-pod job, or if the job's resource already has a
        node reservation. After the end of its node reservation, a job gets no new one
        for `reserve_for_s` seconds.

        Args:
            gang: The job.
            names: Candidate nodes of the job.
            now_s: Seconds since the epoch.
        """
        limits = self._cache.limits
        since_s = now_s if gang.waits_s is None else gang.waits_s
        resource = plan.resource_of(self._cache, gang)
        if (
            gang.is_one
            or resource in self._by_resource
            or now_s - since_s < limits.reserve_after_s
            or now_s < self._next_allowed_s.get(gang.job, 0.0)
        ):
            return
        nodes = choose_nodes(self._cache, gang, names, self._topology(gang))
        if nodes:
            self._by_resource[resource] = NodeReservation(
                job=gang.job,
                priority=max(member.priority for member in gang.members.values()),
                nodes=nodes,
                until_s=now_s + limits.reserve_for_s,
            )
            self._publish()

    def review(self, now_s: float) -> bool:
        """Remove node reservations that expired or whose job no longer waits for nodes.

        Returns whether any was removed. A job that loses its node reservation gets no
        new one for `reserve_for_s` seconds.
        """
        ended = [
            resource
            for resource, node_reservation in self._by_resource.items()
            if now_s >= node_reservation.until_s
            or not self._waits(node_reservation.job)
        ]
        for resource in ended:
            node_reservation = self._by_resource.pop(resource)
            self._next_allowed_s[node_reservation.job] = (
                now_s + self._cache.limits.reserve_for_s
            )
        gangs = self._cache.gangs.jobs
        self._next_allowed_s = {
            job: s for job, s in self._next_allowed_s.items() if job in gangs
        }
        if ended:
            self._publish()
        return bool(ended)

    def _waits(self, job: str) -> bool:
        gang = self._cache.gangs.jobs.get(job)
        return gang is not None and gang.waits_s is not None and gang.unbound_count > 0

    def _publish(self) -> None:
        self._cache.reserved_nodes = {
            resource: dict.fromkeys(
                node_reservation.nodes,
                (node_reservation.job, node_reservation.priority),
            )
            for resource, node_reservation in self._by_resource.items()
        }
