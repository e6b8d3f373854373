"""Decisions on files: placement, advice, victims and explanation for a job file.

This module alone takes the arguments of each decision from a snapshot.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler_core.explain import advice
from scheduler_core.explain import node as node_explanation
from scheduler_core.explain.node import NodeExplanation
from scheduler_core.index.cluster import Cluster
from scheduler_core.node.chips import mask_of
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement import job as job_placement
from scheduler_core.placement.job import Terms
from scheduler_core.placement.job_rules import Job, pods_alike
from scheduler_core.placement.pod import place
from scheduler_core.preemption import victims
from scheduler_core.preemption.relaxations import Advice
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
        selector.pop(ACCELERATOR_TYPE, None)
        nodes = self.snapshot.nodes
        allowed = {n.name for n in nodes if selector.items() <= n.labels.items()}
        cluster = cluster_of(self.snapshot)
        return Cluster(node for node in cluster if node.name in allowed)

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

    @property
    def rows(self) -> tuple[Product, ...]:
        """Rows that could serve the job: the row of the job, or else those of nodes."""
        wanted = self.wanted
        if isinstance(wanted, str):
            present = {node.product for node in self.cluster}
            rows = (row for row in present if row.resource == wanted)
            return tuple(sorted(rows, key=lambda row: row.key))
        return () if wanted is None else (wanted,)

    @property
    def whole_job(self) -> Job:
        """The job with all its pods; its row is None if several rows could serve it."""
        rows = self.rows
        return Job(
            row=rows[0] if len(rows) == 1 else None,
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
    problem = _row_problem(case)
    if problem:
        return Rejection(job=problem, reasons=())
    wanted, cluster = case.wanted, case.cluster
    if case.is_one_pod and wanted is not None:
        return place(wanted, case.job.chips, cluster)
    return job_placement.place_job(case.whole_job, cluster, terms=case.terms)


def advise(case: Case) -> Advice | None:
    """Return relaxations with which the job fits, or None if nothing helps."""
    wanted, cluster = case.wanted, case.cluster
    if _row_problem(case) or wanted is None:
        return None
    if case.is_one_pod:
        return advice.advise_pod(wanted, case.job.chips, cluster)
    return advice.advise_job(case.whole_job, cluster, terms=case.terms)


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
    return victims.preempt(pod, case.cluster, pods_by_node, limits=limits)


def explain(case: Case, node: str) -> NodeExplanation:
    """Explain why one node can or cannot serve the job."""
    wanted, cluster = case.wanted, case.cluster
    exists = node in {state.name for state in case.snapshot.nodes}
    if problem := _row_problem(case):
        return node_explanation.refuse(node, "job", problem)
    if exists and node not in cluster.names:
        text = "the job's node selector does not allow it"
        return node_explanation.refuse(node, "selector", text)
    if case.is_one_pod and wanted is not None:
        return node_explanation.explain(wanted, case.job.chips, cluster, node)
    return node_explanation.explain_job(case.whole_job, cluster, node, terms=case.terms)


def _row_problem(case: Case) -> str:
    """Why it cannot be told by which row the job is served; "" when it can."""
    if case.wanted is None:
        return "no kind of server that we know serves such a job"
    if case.is_one_pod or len(case.rows) == 1:
        return ""
    if not case.rows:
        return f"no node offers {case.job.resource}"
    kinds = ", ".join(row.name for row in case.rows)
    return (
        f"a job of several pods must say by {ACCELERATOR_TYPE} which it means: {kinds}"
    )


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
