"""What is asked of files: a snapshot's cluster, and a job for it.

The one place that takes from a snapshot what each question needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler_core.explain import advice
from scheduler_core.explain import node as node_explanation
from scheduler_core.explain.node import Step, Verdict
from scheduler_core.index.cluster import Cluster
from scheduler_core.node.chips import mask_of
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement import job as job_placement
from scheduler_core.placement.job import Terms
from scheduler_core.placement.job_rules import Job, Pod
from scheduler_core.placement.pod import place
from scheduler_core.preemption import victims
from scheduler_core.preemption.relaxations import Advice
from scheduler_core.preemption.victims import Eviction, Limits, Preemptor, Running
from scheduler_core.products import lookup
from scheduler_core.products.columns import JobRule, Product
from scheduler_core.products.lookup import ACCELERATOR_TYPE
from scheduler_core.snapshot import document
from scheduler_core.snapshot import job as job_document
from scheduler_core.snapshot.document import Snapshot, SnapshotPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job and the cluster for which it is asked."""

    snapshot: Snapshot
    job: job_document.Job

    @property
    def cluster(self) -> Cluster:
        """The nodes that the job's selector allows; made anew each time."""
        selector = dict(self.job.node_selector)
        selector.pop(ACCELERATOR_TYPE, None)
        nodes = self.snapshot.nodes
        allowed = {n.name for n in nodes if selector.items() <= n.labels.items()}
        every = document.cluster_of(self.snapshot)
        return Cluster(node for node in every if node.name in allowed)

    @property
    def wanted(self) -> Product | str | None:
        """The row that the job asks for, or the resource; None is no such row."""
        return lookup.wanted(self.job.resource, self.job.traits)

    @property
    def is_one_pod(self) -> bool:
        """Whether no rule over a whole job or a network can matter."""
        wanted = self.wanted
        in_superpods = (
            isinstance(wanted, Product) and wanted.job_rule is JobRule.SUPERPOD
        )
        return self.job.pods == 1 and self.job.schema is None and not in_superpods

    @property
    def rows(self) -> tuple[Product, ...]:
        """The rows by which the job could be served: its own, else those of nodes."""
        wanted = self.wanted
        if isinstance(wanted, str):
            there = {node.product for node in self.cluster}
            some = (row for row in there if row.resource == wanted)
            return tuple(sorted(some, key=lambda row: row.key))
        return () if wanted is None else (wanted,)

    @property
    def whole(self) -> Job:
        """All pods, and by which row; None where that cannot be told."""
        rows = self.rows
        return Job(
            row=rows[0] if len(rows) == 1 else None,
            pods=tuple(
                Pod(name=f"pod-{rank}", chips=self.job.chips)
                for rank in range(self.job.pods)
            ),
            sp_block=self.job.sp_block,
            superpod_size=self.snapshot.superpod_size,
            soft_superpods=self.job.soft_superpods,
        )

    @property
    def terms(self) -> Terms:
        """What is asked and known of the network."""
        return Terms(
            schema=self.job.schema,
            network=document.network_of(self.snapshot),
            joined=document.superpods_of(self.snapshot),
            profile=self.snapshot.profile,
        )


def decide(case: Case) -> Placement | JobPlacement | Rejection:
    """Where the job goes."""
    unclear = _unclear(case)
    if unclear:
        return Rejection(job=unclear, reasons=())
    wanted, cluster = case.wanted, case.cluster
    if case.is_one_pod and wanted is not None:
        return place(wanted, case.job.chips, cluster)
    return job_placement.place_job(case.whole, cluster, terms=case.terms)


def advise(case: Case) -> Advice | None:
    """What would unblock a job that has no place; None where nothing would."""
    wanted, cluster = case.wanted, case.cluster
    if _unclear(case) or wanted is None:
        return None
    if case.is_one_pod:
        return advice.for_pod(wanted, case.job.chips, cluster)
    return advice.for_job(case.whole, cluster, terms=case.terms)


def evict(case: Case) -> Eviction | None:
    """Who would have to go for a pod; None where nobody could, or of several pods."""
    wanted = case.wanted
    if wanted is None or not case.is_one_pod:
        return None
    pod = Preemptor(wanted=wanted, chips=case.job.chips, priority=case.job.priority)
    running: dict[str, list[Running]] = {}
    for each in document.pods_of(case.snapshot, case.job.resource):
        if not each.terminal and each.chips:
            running.setdefault(each.node, []).append(_running(each))
    limits = Limits(
        allowed={budget.name: budget.allowed for budget in case.snapshot.budgets},
        spare=dict(_spare(case.snapshot)),
    )
    return victims.preempt(pod, case.cluster, running, limits=limits)


def explain(case: Case, node: str) -> Verdict:
    """What one node can do for the job."""
    wanted, cluster = case.wanted, case.cluster
    there = node in {each.name for each in case.snapshot.nodes}
    if unclear := _unclear(case):
        return _failed(node, "job", unclear)
    if there and node not in cluster.names:
        return _failed(node, "selector", "the job's node selector does not allow it")
    if case.is_one_pod and wanted is not None:
        return node_explanation.explain(wanted, case.job.chips, cluster, node)
    return node_explanation.explain_job(case.whole, cluster, node, terms=case.terms)


def _failed(node: str, about: str, said: str) -> Verdict:
    return Verdict(node=node, steps=(Step(about=about, said=said, holds=False),))


def _unclear(case: Case) -> str:
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


def _running(pod: SnapshotPod) -> Running:
    return Running(
        name=pod.name,
        chips=mask_of(pod.chips),
        priority=pod.priority,
        started=float("inf") if pod.started_s is None else pod.started_s,
        gang=pod.job,
        budgets=pod.budgets,
    )


def _spare(found: Snapshot) -> Iterator[tuple[str, int]]:
    """How many of its pods each job can go on without."""
    for job in found.jobs:
        living = [p for p in found.pods if p.job == job.name and not p.terminal]
        needed = len(living) if job.min_available is None else job.min_available
        yield job.name, max(len(living) - needed, 0)
