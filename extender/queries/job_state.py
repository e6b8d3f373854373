"""What is told of a job: its state, since when, what it lacks, and who is ahead of it.

Nothing is decided: the planner says why its pods wait, in the words of their events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from extender.cache.cache import Cache
from extender.clocks import Clock
from extender.gang.gang import Gang
from extender.gang.job_plan import Phase
from extender.planning.plan_input import resource_of
from extender.planning.planner import Planner
from extender.planning.topology import NetworkTopology
from extender.queries.job_fit import CORRECT, find_fits
from extender.refusals import ExtenderReason
from extender.scheduling import node_filter
from extender.scheduling.decisions import LastDecisions
from extender.scheduling.node_filter import FilterResult
from scheduler_core.wire.pods import NpuPod
from service import clock

#: Most jobs that are named of those ahead.
_NAMED = 3


class State(StrEnum):
    """State of a job, as `docs/asking.md` explains each."""

    RUNNING = "running"
    STARTING = "starting"
    PLANNED = "planned"
    MOVING = "moving"
    WAITS = "waits"
    NEVER = "never"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Parts of the extender that an explanation reads; it changes none of them."""

    cache: Cache
    notes: LastDecisions
    planner: Planner
    networks: NetworkTopology
    clock: Clock
    #: whether pods are evicted after faults, if their job asks for it
    is_evicting: bool = False

    def judge(self, pod: NpuPod) -> FilterResult:
        """Return the answer of filter to a pod by the present plan; plan nothing."""
        cache, gang = self.cache, self.cache.gang_of(pod.uid)
        now_s, names = self.clock.now_s(), self.list_offered(gang, pod.uid)
        obstacle = self.planner.find_obstacle(gang) if gang else None
        if refused := node_filter.pod_refusal(cache, pod, now_s) or obstacle:
            return node_filter.refuse_all(refused, names)
        if gang is None or cache.reservation(pod.uid) is not None:
            return node_filter.judge_nodes(cache, pod, names, now_s)
        return self.planner.refuse_unplanned(gang, pod, names)

    def list_offered(self, gang: Gang | None, uid: str) -> Sequence[str]:
        """Return the nodes offered last to a member's kind; all nodes if none were."""
        offered: frozenset[str] | None = None
        if gang is not None:
            offered = self.planner.offered_lists(gang).get(gang.kind_of(uid))
        return tuple(offered) if offered else self.cache.index.names


def describe_job(
    sources: Sources,
    pod: NpuPod,
    result: FilterResult | None,
    move: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the JSON fields of a pod's job; {} if it is not planned as a whole.

    Args:
        result: What filter would answer to the pod; None if it has a node.
        move: What is done about faults of the job; empty for nothing.
    """
    gang = sources.cache.gang_of(pod.uid)
    if gang is None:
        return {}
    state, lacking = _find_state(gang), dict[str, Any]()
    if "move" in move:
        reservations = sources.cache.kept_for(gang.job)
        texts = sorted(one.text for one in reservations if one.is_of_move)
        state, lacking = State.MOVING, {"kept_places": texts}
    elif state is State.WAITS:
        state, lacking = _describe_waiting(sources, gang, pod, result)
    answer: dict[str, Any] = {"job": gang.title, "job_state": state.value}
    if since := _find_since(sources, gang, state, move):
        answer["job_since"] = since
    answer |= {"job_pods": gang.counts} | lacking
    if gang.plan.places:
        plan = {gang.members[uid].name: node for uid, node in gang.plan.places.items()}
        answer["job_plan"] = dict(sorted(plan.items()))
    return answer


def _find_state(gang: Gang) -> State:
    """Return the state of a job; `WAITS` also for one that never fits."""
    if gang.size is None and gang.is_running and not gang.has_waiting:
        return State.RUNNING  # its size is read only while a pod waits
    if not gang.lacks_members:
        return State.RUNNING if gang.is_running else State.ENDED
    states = {Phase.BINDING: State.STARTING, Phase.RESERVED: State.PLANNED}
    return states.get(gang.plan.phase, State.WAITS)


def _find_since(
    sources: Sources, gang: Gang, state: State, move: Mapping[str, Any]
) -> str:
    """Return since when a job is in its state, RFC 3339; "" if that is not known."""
    plan, pods = gang.plan, sources.cache.pods
    if state is State.MOVING:
        return str(move["since"])
    if state in (State.PLANNED, State.STARTING):
        is_planned = state is State.PLANNED
        return sources.clock.format(plan.planned_s if is_planned else plan.open_s)
    if state is State.RUNNING:  # when its last pod was bound, if this process knows
        notes = [sources.notes.get(uid) for uid in gang.placed]
        at_s = [note.at_s for note in notes if note is not None and not note.counts]
        return clock.rfc3339(max(at_s)) if at_s and len(at_s) == len(notes) else ""
    waiting = gang.members.keys() - gang.placed - gang.ending
    created = (pods[uid].created for uid in waiting if uid in pods)
    return min(filter(None, created), default="")


def _describe_waiting(
    sources: Sources, gang: Gang, pod: NpuPod, result: FilterResult | None
) -> tuple[State, dict[str, Any]]:
    """Return whether a job waits or never fits, and JSON fields with the reason."""
    cache, planner, plan = sources.cache, sources.planner, gang.plan
    answer: dict[str, Any] = {"why": _find_why(planner, gang, result)}
    if gang.size is None or gang.missing:
        if (unfit := gang.unfit) is None:
            return State.WAITS, answer
        correct = f"correct pod {unfit[0]}: {unfit[1]}"
        return State.NEVER, answer | {"advice": [correct]}
    offered = sources.list_offered(gang, pod.uid)
    rules = sources.networks.rules
    fits = list(find_fits(cache, gang, offered, rules))
    fits.sort(key=lambda fit: fit.pods - fit.exist)
    if fits:
        answer["needs"] = [fit.text for fit in fits]
    advice = [fit.advise(rules.profile) for fit in fits]
    if advice and all(advice):
        return State.NEVER, answer | {"advice": advice[0]}
    if planner.count_too_many(gang) or (not fits and plan.text):
        return State.NEVER, answer | {"advice": [CORRECT]}
    if plan.again_s > sources.clock.now_s():
        again = sources.clock.format(plan.again_s)
        answer["advice"] = [f"nothing to do: it is planned again by itself at {again}"]
    resource = resource_of(cache, gang)
    ahead = [
        other.title
        for other in planner.find_ahead(gang)
        if resource_of(cache, other) == resource
    ]
    more = [f"{len(ahead) - _NAMED} more"] if len(ahead) > _NAMED else []
    return State.WAITS, answer | ({"ahead": ahead[:_NAMED] + more} if ahead else {})


def _find_why(planner: Planner, gang: Gang, result: FilterResult | None) -> str:
    """Return why a job has no plan, in the words of its pods' events."""
    refusals = [planner.find_obstacle(gang)]
    if result is not None:
        refusals = [refusal for refusal, _ in result.refused]
    ours = (
        one.text for one in refusals if one and isinstance(one.reason, ExtenderReason)
    )
    return next(ours, gang.plan.text or "its job waits")
