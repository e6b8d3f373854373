"""Comparison of another scheduler's decisions with those of the extender.

It is for operators who consider a change of scheduler. The other scheduler, such as an
Ascend plugin of Volcano, binds the pods; the extender only observes. The node and chips
of each bound pod are compared with those that the extender would have chosen just
before the bind. A job of several pods is also compared as a whole, once all its pods
have nodes. Would the extender have found room for the job? Would it have used fewer
nodes or leaf switches?

A difference may be due to facts that only the other scheduler knows: taints, node
selectors, volumes, queues. The extender does compare a pod's requests for CPU and
memory with what a node has free, and a node's number of pods with its maximum.

Pure, but for the counts, differences and jobs that `Shadow` stores.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from extender.cache.cache import Cache
from extender.cache.events import Change, PodUpdated
from extender.cache.node_state import tenant_of
from extender.gang.gang import Gang
from extender.planning import plan, plan_input
from extender.planning.plan_input import TopologySnapshot
from extender.refusals import Refusal
from extender.scheduling import capacity
from scheduler_core.node import chips
from scheduler_core.node.state import NodeState
from scheduler_core.wire.pods import NpuPod
from service import clock

#: Most differences in the report; the oldest are dropped.
REMEMBERED = 500


class Rule(StrEnum):
    """Outcome of comparing a pod or job with the extender's choice; a metric label."""

    AGREES = "agrees"
    JOB_AGREES = "job-agrees"
    #: no annotation has the chips, or the node is not in the cache
    UNKNOWN = "unknown"
    NODE_REFUSED = "node-refused"
    NODE_WORSE = "node-worse"
    CHIPS_TAKEN = "chips-taken"
    CHIPS_APART = "chips-apart"
    CHIPS_WORSE = "chips-worse"
    JOB_UNSCHEDULABLE = "job-unschedulable"
    JOB_NODES = "job-nodes"
    JOB_LEAVES = "job-leaves"


#: Outcomes that are no difference: the same decision, or not comparable.
_ALIKE = frozenset({Rule.AGREES, Rule.JOB_AGREES, Rule.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of comparing a pod's or job's placement with the extender's choice."""

    #: "namespace/name" of the pod or the job
    of: str
    rule: Rule
    #: the other scheduler's choice, and ours
    text: str = ""
    #: seconds since the epoch
    at_s: float = 0.0

    @property
    def is_different(self) -> bool:
        """Whether the extender's decision would differ from the other scheduler's."""
        return self.rule not in _ALIKE


@dataclass(slots=True, kw_only=True)
class _Watched:
    """A job to compare: the other scheduler has bound some of its pods, but not all."""

    #: UIDs of its pods without a node
    waiting_uids: set[str]
    #: nodes of its pods that have one
    nodes: set[str]
    #: nodes of our plan before the first pod had one; or why it did not fit
    ours: frozenset[str] | str


class Shadow:
    """Compares each pod that another scheduler binds with the extender's choice.

    It counts the outcomes since the start, and keeps the last `REMEMBERED` differences.
    No decision depends on these, and a restart clears them.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        wall_s: Callable[[], float],
        topology: Callable[[Gang], TopologySnapshot] = lambda _gang: plan_input.PLAIN,
        on_finding: Callable[[Finding], None] = lambda _finding: None,
    ) -> None:
        """Start without findings.

        Args:
            cache: The current cluster. Read only.
            wall_s: Returns seconds since the epoch.
            topology: Returns the leaf switches, SuperPoDs and operator's settings with
                which a job is planned.
            on_finding: Called with each finding, even if the two schedulers agree.
        """
        self._cache = cache
        self._wall_s = wall_s
        self._topology = topology
        self._on_finding = on_finding
        #: {rule: findings} since the start of the term
        self.counts: Counter[Rule] = Counter()
        #: the newest findings that differ, the oldest first
        self.latest: deque[Finding] = deque(maxlen=REMEMBERED)
        #: {job bound in part: our plan from before}; ends with the bind of the last pod
        self._jobs: dict[str, _Watched] = {}

    def compare_bound(self, change: Change) -> None:
        """Compare a newly bound pod's node and chips with the extender's choice.

        Call this before the cache applies `change`. If `change` does not bind a pod,
        nothing is compared.
        """
        if not isinstance(change, PodUpdated):
            return
        pod = change.pod
        cached = self._cache.pods.get(pod.uid)
        if cached is None or cached.node or not pod.node or pod.terminal:
            return
        gang = self._cache.gang_of(pod.uid)
        self._count(f"{pod.namespace}/{pod.name}", *compare(self._cache, pod))
        if gang is not None:
            self._compare_job(gang, pod)

    def report(self) -> dict[str, Any]:
        """Return the counts by outcome and the last differences as a JSON object."""
        return {
            "decisions": sum(self.counts.values()),
            "different": sum(
                n for rule, n in self.counts.items() if rule not in _ALIKE
            ),
            "by_rule": {rule.value: self.counts[rule] for rule in Rule},
            "latest": [
                {
                    "name": finding.of,
                    "rule": finding.rule.value,
                    "text": finding.text,
                    "at": clock.rfc3339(finding.at_s),
                }
                for finding in reversed(self.latest)
            ],
        }

    def text(self) -> str:
        """Return the counts and the last differences as lines of text, for people."""
        report = self.report()
        lines = [f"{report['different']} of {report['decisions']} decided otherwise"]
        lines += [f"  {number:6} {rule}" for rule, number in report["by_rule"].items()]
        lines += [
            f"{finding['at']} {finding['name']}: {finding['rule']}: {finding['text']}"
            for finding in report["latest"]
        ]
        return "\n".join(lines) + "\n"

    def _count(self, of: str, rule: Rule, text: str) -> None:
        finding = Finding(of=of, rule=rule, text=text, at_s=self._wall_s())
        self.counts[rule] += 1
        if finding.is_different:
            self.latest.append(finding)
        self._on_finding(finding)

    def _compare_job(self, gang: Gang, pod: NpuPod) -> None:
        """Record that a job's pod is bound; if it is the last one, compare the job.

        The job is compared with a plan that was made when its first pod was bound. No
        plan has a pod whose predecessor still ends.
        """
        refused = gang.predecessor_refusal(pod.uid)
        if refused is not None:
            self._count(gang.title, Rule.JOB_UNSCHEDULABLE, refused.text)
            return
        watched = self._jobs.get(gang.job)
        if watched is None:
            self._jobs = {
                job: watched
                for job, watched in self._jobs.items()
                if job in self._cache.gangs
            }
            uids = set(gang.unbound)
            watched = _Watched(waiting_uids=uids, nodes=set(), ours=self._plan(gang))
            self._jobs[gang.job] = watched
        watched.waiting_uids.discard(pod.uid)
        watched.nodes.add(pod.node)
        if not watched.waiting_uids & self._cache.pods.keys():
            del self._jobs[gang.job]
            topology = self._topology(gang)
            self._count(gang.title, *compare_job(topology, watched.nodes, watched.ours))

    def _plan(self, gang: Gang) -> frozenset[str] | str:
        names = self._cache.index.names
        reservations = plan.plan(self._cache, gang, names, 0, self._topology(gang))
        if isinstance(reservations, Refusal):
            return reservations.text
        return frozenset(reservation.node for reservation in reservations)


def compare(cache: Cache, pod: NpuPod) -> tuple[Rule, str]:
    """Compare the node and chips of a bound pod with the extender's choice.

    Args:
        cache: The cluster before the pod was bound.
        pod: The bound pod, with its node and its annotations.

    Returns:
        The outcome, and a text that explains it.
    """
    state = cache.index.nodes(pod.shape.resource).get(pod.node)
    row = state.row_for(pod.shape.resource) if state is not None else None
    if state is None or row is None:
        return Rule.UNKNOWN, f"{pod.node} is not known as a node with such NPUs"
    theirs = tenant_of(pod, state.product).chips
    if not theirs:
        return Rule.UNKNOWN, "no annotation says which chips"
    rule, why = _compare(cache, pod, state, theirs)
    where = f"chips {_join_ids(theirs)} of {pod.node}"
    return rule, f"{where}: {why}" if why else where


def _compare(
    cache: Cache, pod: NpuPod, state: NodeState, theirs: int
) -> tuple[Rule, str]:
    if taken := theirs & ~state.free:
        return Rule.CHIPS_TAKEN, f"{_join_ids(taken)} were not free"
    survey = cache.index.survey(
        pod.shape.resource,
        pod.total,
        tuple(dict.fromkeys([*_list_nodes_that_fit(cache, pod), pod.node])),
        avoid=cache.conflicts(pod),
    )
    if pod.node in survey.refused:
        return Rule.NODE_REFUSED, survey.refused[pod.node].text
    if not chips.is_legal(state.product, theirs):
        return Rule.CHIPS_APART, "such chips are not given together"
    if pod.node in survey.worse and cache.gang_of(pod.uid) is None:
        return Rule.NODE_WORSE, f"{survey.best[0]} fits better"
    return _compare_chips(state, pod.total, theirs)


def _compare_chips(state: NodeState, count: int, theirs: int) -> tuple[Rule, str]:
    """Compare a pod's chips with those that the extender would choose on the same node.

    Two choices count as equal if the free chips that they leave can serve the same
    requests equally well.
    """
    ours = chips.choose(state.product, state.free, count)
    if _shape_left(state, ours) != _shape_left(state, theirs):
        return Rule.CHIPS_WORSE, f"we would have given {_join_ids(ours)}"
    return Rule.AGREES, ""


def compare_job(
    topology: TopologySnapshot, theirs: Collection[str], ours: frozenset[str] | str
) -> tuple[Rule, str]:
    """Compare the nodes of a job with those of the extender's plan for the job.

    Args:
        topology: Says which leaf switch each node is on.
        theirs: Names of the nodes of the job's pods.
        ours: Names of the plan's nodes, or the reason why the job did not fit.

    Returns:
        The outcome, and a text that explains it.
    """
    if isinstance(ours, str):
        return Rule.JOB_UNSCHEDULABLE, ours
    if len(ours) < len(theirs):
        text = f"on {len(theirs)} nodes, {len(ours)} had been enough"
        return Rule.JOB_NODES, text
    their_count = _count_leaves(topology, theirs)
    our_count = _count_leaves(topology, ours)
    if our_count < their_count:
        text = f"under {their_count} leaf switches, {our_count} had been enough"
        return Rule.JOB_LEAVES, text
    return Rule.JOB_AGREES, f"on {len(theirs)} nodes"


def _count_leaves(topology: TopologySnapshot, nodes: Collection[str]) -> int:
    if topology.network is None:
        return 0
    return sum(
        not set(leaf.nodes).isdisjoint(nodes) for leaf in topology.network.leaves
    )


def _list_nodes_that_fit(cache: Cache, pod: NpuPod) -> Sequence[str]:
    """Return the names of the nodes with enough free CPU and memory for the pod.

    Nodes that already have their maximum number of pods are left out.
    """
    ask = cache.requests.ask(pod.uid)
    return [
        name
        for name in cache.index.names
        if min(capacity.free_on(cache, name).minus(ask)) >= 0
    ]


def _shape_left(state: NodeState, taken: int) -> tuple[int, ...] | int:
    """Return a key of the free chips that a node has left without the chips in `taken`.

    If two sets of free chips have equal keys, they serve requests equally well.

    Args:
        taken: Mask of chips.
    """
    return chips.shape(state.product, state.free & ~taken)


def _join_ids(mask: int) -> str:
    return ",".join(map(str, chips.ids_of(mask)))
