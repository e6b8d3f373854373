"""Decisions on files: placement, advice, victims and explanation for a job file.

This module alone takes the arguments of each decision from a snapshot.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from scheduler_core.explain import advice
from scheduler_core.explain import node as node_explanation
from scheduler_core.explain.node import NodeExplanation
from scheduler_core.index.buckets import NO_SUCH_NPU
from scheduler_core.index.cluster import Cluster
from scheduler_core.index.queries import sort_reasons
from scheduler_core.node.chips import mask_of
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.node.state import NodeState
from scheduler_core.placement import job as job_placement
from scheduler_core.placement import one_kind
from scheduler_core.placement.job import Terms
from scheduler_core.placement.job_rules import Job, pods_alike
from scheduler_core.placement.one_kind import Kind
from scheduler_core.placement.pod import place
from scheduler_core.preemption import victims
from scheduler_core.preemption.relaxations import AddNode, Advice
from scheduler_core.preemption.victims import Eviction, Limits, Preemptor, RunningPod
from scheduler_core.products import lookup
from scheduler_core.products.columns import JobRule, Product
from scheduler_core.products.lookup import ACCELERATOR_TYPE
from scheduler_core.snapshot import job as job_document
from scheduler_core.snapshot.values import (
    Snapshot,
    SnapshotPod,
    cluster_of,
    network_of,
    pods_of,
    superpods_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Job, and the snapshot of the cluster for it."""

    snapshot: Snapshot
    job: job_document.Job

    @property
    def cluster(self) -> Cluster:
        """Nodes that the job's selector allows; built at each access."""
        selector = dict(self.job.node_selector)
        server = selector.pop(ACCELERATOR_TYPE, None)
        nodes = self.snapshot.nodes
        allowed = {n.name for n in nodes if selector.items() <= n.labels.items()}
        return Cluster(
            node
            for node in cluster_of(self.snapshot)
            if node.name in allowed
            and (server is None or lookup.may_have_type(node.product, server))
        )

    @property
    def wanted(self) -> Product | str | None:
        """Row that the job asks for, or its resource; None if no row serves the job."""
        return lookup.resolve_job(self.job.resource, self.job)

    @property
    def is_one_pod(self) -> bool:
        """Whether the job is one pod without rules over jobs or networks."""
        wanted = self.wanted
        if self.job.pods > 1 or self.job.schema is not None:
            return False
        return isinstance(wanted, str | None) or wanted.job_rule is not JobRule.SUPERPOD

    def find_kinds(self, cluster: Cluster) -> list[Kind]:
        """Return the kinds of server that the job may have, as they are tried."""
        return one_kind.kinds_of(self.wanted, {node.product for node in cluster})

    def whole_job(self, kind: Kind) -> Job:
        """Return the job with all its pods, on servers of one kind."""
        return Job(
            row=kind.row,
            pods=pods_alike(self.job.pods, self.job.chips),
            sp_block=self.job.sp_block,
            superpod_size=self.snapshot.superpod_size,
            soft_superpods=self.job.soft_superpods,
        )

    @property
    def terms(self) -> Terms:
        """Network that the job asks for and the snapshot has."""
        return Terms(
            schema=self.job.schema,
            network=network_of(self.snapshot),
            superpods=superpods_of(self.snapshot),
            profile=self.snapshot.profile,
        )


def decide(case: Case) -> Placement | JobPlacement | Rejection:
    """Place the job, or return why it does not fit."""
    wanted, cluster = case.wanted, case.cluster
    problem = _problem(case, cluster)
    if problem:
        return Rejection(job=problem, reasons=())
    kinds = case.find_kinds(cluster)
    answer: Placement | JobPlacement | Rejection
    if case.is_one_pod and wanted is not None:
        answer = place(wanted, case.job.chips, _only(cluster, kinds))
    else:
        answer = one_kind.place_on_one(
            kinds,
            {node.product for node in cluster},
            lambda kind: job_placement.place_job(
                case.whole_job(kind), _only(cluster, [kind]), terms=case.terms
            ),
        )
    if isinstance(answer, Rejection) and (case.is_one_pod or answer.reasons):
        others = len(cluster) - len(_only(cluster, kinds))
        counts = Counter({NO_SUCH_NPU.text: others}) + Counter(dict(answer.reasons))
        return replace(answer, reasons=sort_reasons(counts.items()))
    return answer


def advise(case: Case) -> Advice | None:
    """Return relaxations with which the job fits, or None if nothing helps."""
    wanted, cluster = case.wanted, case.cluster
    if _problem(case, cluster) or wanted is None:
        return None
    kinds = case.find_kinds(cluster)
    if case.is_one_pod:
        return advice.advise_pod(wanted, case.job.chips, _only(cluster, kinds))
    if not isinstance(decide(case), Rejection):
        return None
    found = [
        advice.advise_job(
            case.whole_job(kind), _only(cluster, [kind]), terms=case.terms
        )
        for kind in kinds
    ]
    return min(filter(None, found), key=_effort, default=None)


def evict(case: Case) -> Eviction | None:
    """Choose the victims for a job of one pod; None for other jobs or if none help."""
    wanted = case.wanted
    if wanted is None or not case.is_one_pod:
        return None
    pod = Preemptor(wanted=wanted, chips=case.job.chips, priority=case.job.priority)
    pods_by_node: dict[str, list[RunningPod]] = {}
    for running in pods_of(case.snapshot, case.job.resource):
        if not running.terminal and running.chips:
            pods_by_node.setdefault(running.node, []).append(_running_pod(running))
    limits = Limits(
        allowed={budget.name: budget.allowed for budget in case.snapshot.budgets},
        spare=dict(_spare_pods(case.snapshot)),
    )
    cluster = _only(case.cluster, case.find_kinds(case.cluster))
    return victims.preempt(pod, cluster, pods_by_node, limits=limits)


def explain(case: Case, node: str) -> NodeExplanation:
    """Explain why one node can or cannot serve the job."""
    wanted, cluster = case.wanted, case.cluster
    exists = node in {state.name for state in case.snapshot.nodes}
    problem = _problem(case, cluster)
    if problem or wanted is None:
        return node_explanation.refuse(node, "job", problem)
    if exists and node not in cluster.names:
        text = "the job's node selector does not allow it"
        return node_explanation.refuse(node, "selector", text)
    states = cluster.nodes(wanted)
    kinds = case.find_kinds(cluster)
    own = next((k for k in kinds if node in states and _has(k, states[node])), None)
    if own is None:
        offers = [state for state in cluster if state.name == node]
        return node_explanation.refuse_unserved(node, wanted, offers)
    if case.is_one_pod:
        cluster = _only(cluster, kinds)
        return node_explanation.explain(wanted, case.job.chips, cluster, node)
    return _explain_job(case, cluster, node, own)


def _explain_job(case: Case, cluster: Cluster, node: str, own: Kind) -> NodeExplanation:
    """Explain why one node can or cannot serve a job that is planned as a whole.

    Args:
        own: Kind of this node.
    """
    answer = decide(case)
    if isinstance(answer, JobPlacement):
        place, states = answer.pods[0], cluster.nodes(own.row)
        if not _has(own, states[place.node]):
            name = states[place.node].product.name
            text = f"the job goes to servers of another kind: {name}"
            return node_explanation.refuse(node, "kind", text)
    cluster = _only(cluster, [own])
    return node_explanation.explain_job(
        case.whole_job(own), cluster, node, terms=case.terms
    )


def _problem(case: Case, cluster: Cluster) -> str:
    """Return why no server that is there serves the job; "" if some may."""
    if case.wanted is None:
        return "no kind of server that we know serves such a job"
    if case.is_one_pod or case.find_kinds(cluster):
        return ""
    return f"no node offers {case.job.resource}"


def _only(cluster: Cluster, kinds: Sequence[Kind]) -> Cluster:
    """Return the nodes of some kinds."""
    return Cluster(
        state for state in cluster if any(_has(kind, state) for kind in kinds)
    )


def _has(kind: Kind, state: NodeState) -> bool:
    return kind.hardware is state.product


def _effort(found: Advice) -> tuple[bool, int]:
    """Return the sort key of an advice: nodes to add come last, then by length."""
    return any(isinstance(part, AddNode) for part in found.parts), len(found.parts)


def _running_pod(pod: SnapshotPod) -> RunningPod:
    return RunningPod(
        name=pod.name,
        chips=mask_of(pod.chips),
        priority=pod.priority,
        start_time=float("inf") if pod.started_s is None else pod.started_s,
        gang=pod.job,
        budgets=pod.budgets,
    )


def _spare_pods(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """Yield (job, number of active pods beyond the job's minimum)."""
    for job in snapshot.jobs:
        active = [
            pod for pod in snapshot.pods if pod.job == job.name and not pod.terminal
        ]
        needed = len(active) if job.min_available is None else job.min_available
        yield job.name, max(len(active) - needed, 0)
