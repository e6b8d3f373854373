"""Nodes reserved for a large job that small jobs would otherwise delay forever.

Chips become free one by one and go to pods that need few. So a job that needs many
whole nodes may wait forever. If a job has waited for `reserve_after_s` seconds, nodes
are reserved for it. The nodes with the fewest chips in use are chosen, as many as the
job needs. Only one job for each resource has reserved nodes at a time. Pods of other
jobs get no chips on these nodes, unless the pods have a higher priority than the job. A
node reservation lasts at most `reserve_for_s` seconds. For `reserve_for_s` seconds
after its end, the job gets no new one. Both times are fields of `gang.events.Limits`.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from extender.cache.cache import Cache
from extender.cache.overlay import overlay_cache
from extender.cache.reservations import NodeReservation
from extender.gang.gang import Gang
from extender.planning import plan, plan_input
from extender.planning.plan_input import TopologySnapshot
from extender.refusals import Refusal
from scheduler_core.products.columns import Product


def choose_nodes(
    cache: Cache,
    gang: Gang,
    names: Sequence[str],
    topology: TopologySnapshot,
    lists: Mapping[str, frozenset[str]] | None = None,
) -> frozenset[str]:
    """Return nodes on which a job would fit if all their healthy chips were free.

    Takes the nodes with the fewest chips in use, and no more of them than the job
    needs. So few chips are reserved, and the nodes become free soon.

    Args:
        lists: {kind of its members: nodes that are offered to it}; None is all.

    Returns:
        Empty if the job would not fit on all candidate nodes together.
    """
    states_by_name = cache.index.nodes(plan_input.resource_of(cache, gang))
    states = [
        state for name in names if (state := states_by_name.get(name)) is not None
    ]
    states = [state for state in states if not state.barred]
    states.sort(key=lambda s: ((s.healthy & ~s.free).bit_count(), s.name))
    freed_states = {state.name: replace(state, free=state.healthy) for state in states}
    order = list(freed_states)

    def rows_of(count: int) -> set[Product]:
        """Return the rows of the nodes that the job gets of the first; none if none."""
        first_names = order[:count]
        view = overlay_cache(cache, [freed_states[name] for name in first_names])
        outcome = plan.plan(cache, gang, first_names, 0, topology, view, lists=lists)
        places = () if isinstance(outcome, Refusal) else outcome
        return {freed_states[place.node].product for place in places}

    if not rows_of(len(order)):
        return frozenset()
    least = 1 + bisect_left(
        range(1, len(order)), x=True, key=lambda count: bool(rows_of(count))
    )
    rows = rows_of(least)
    return frozenset(
        name for name in order[:least] if freed_states[name].product in rows
    )


def reserve_nodes(
    cache: Cache,
    gang: Gang,
    names: Sequence[str],
    topology: Callable[[Gang], TopologySnapshot],
    now_s: float,
    lists: Mapping[str, frozenset[str]] | None = None,
) -> NodeReservation | None:
    """Return the nodes to keep for a job that does not fit; None if there are none.

    A job gets nodes after it has waited `reserve_after_s`. It gets none if it has one
    pod, if it runs and only lacks pods that it can do without, or if the job's resource
    already has a node reservation. After the end of its
    node reservation, a job gets no new one for `reserve_for_s` seconds.
    """
    limits = cache.limits
    since_s = now_s if gang.plan.waits_s is None else gang.plan.waits_s
    resource = plan_input.resource_of(cache, gang)
    if (
        gang.is_one
        or not gang.lacks_members
        or cache.node_reservation(resource) is not None
        or now_s - since_s < limits.reserve_after_s
        or now_s < gang.plan.nodes_again_s
    ):
        return None
    nodes = choose_nodes(cache, gang, names, topology(gang), lists)
    if not nodes:
        return None
    return NodeReservation(
        job=gang.job,
        resource=resource,
        priority=max(member.priority for member in gang.members.values()),
        nodes=nodes,
        until_s=now_s + limits.reserve_for_s,
    )
