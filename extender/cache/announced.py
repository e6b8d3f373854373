"""What nodes report, compared with the last effects about it: only news are told.

The last effects are remembered in `NodeInfo` and `ResourceState`.
"""

from collections.abc import Iterator

from extender.cache import events
from extender.cache.facts import Facts
from extender.cache.node_state import CLOCK_MOST_S
from scheduler_core.index.cluster import Cluster
from scheduler_core.node.reasons import Reason


def judge_report(
    facts: Facts, index: Cluster, name: str, resource: str
) -> Iterator[events.Effect]:
    """Yield the effects of other faults than before, and of what cannot be read."""
    resource_state = facts.resource_state(name, resource)
    if resource_state is None:
        return
    faults = resource_state.faults()
    if faults != resource_state.announced_faults:
        resource_state.announced_faults = faults
        yield events.FaultsChanged(node=name, resource=resource)
    node_state = index.nodes(resource).get(name)
    if node_state is None or node_state.barred in {
        Reason.NO_ALLOCATABLE,
        Reason.AGENT_SILENT,
    }:
        return  # its report may be on the way
    is_read = node_state.barred is not Reason.BAD_NODE_REPORT
    unreadable = None if is_read else resource_state.find_unreadable()
    problem = unreadable.text if unreadable else ""
    if problem != resource_state.announced_problem:
        resource_state.announced_problem = problem
        yield events.ReportJudged(node=name, resource=resource, problem=problem)


def judge_clock(facts: Facts, name: str) -> Iterator[events.Effect]:
    """Yield an effect where a node's clock ceases or begins to agree with ours."""
    node_info = facts.nodes[name]
    ahead_s, before_s = node_info.clock_ahead_s, node_info.announced_ahead_s
    if bool(ahead_s) != bool(before_s) or abs(ahead_s - before_s) > CLOCK_MOST_S:
        node_info.announced_ahead_s = ahead_s
        yield events.ClockJudged(node=name, ahead_s=ahead_s)
