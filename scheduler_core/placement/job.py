"""Placement of a whole job, with its rules applied in a fixed order.

The rules over the job's pods come first, then its network, then the common choice of
nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler_core.index.queries import NodeIndex
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement import (
    gang,
    gang_on_leaves,
    gang_on_superpods,
    job_rules,
)
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.gang_query import Member, NodeQuery
from scheduler_core.placement.job_rules import Job, Profile
from scheduler_core.placement.siblings import Siblings
from scheduler_core.products.columns import JobRule
from scheduler_core.topology.leaves import Network, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Network that a job asks for and the cluster has, and the strictness of rules."""

    #: switch affinity of the job; None asks for none
    schema: Schema | None = None
    #: leaf switches; None when the cluster has not described them
    network: Network | None = None
    #: nodes by SuperPoD; None when no node's SuperPoD is known
    superpods: SuperPods | None = None
    profile: Profile = Profile.SEED


#: a job that asks nothing of the network
COMMON = Terms()


def place_job(
    job: Job,
    cluster: NodeIndex,
    *,
    terms: Terms = COMMON,
    names: Iterable[str] | None = None,
    places: Mapping[str, Placement] | None = None,
    siblings: Siblings | None = None,
) -> JobPlacement | Rejection:
    """Place all pods of a job that ask for chips, or return why not all of them fit.

    Args:
        job: Pods that exist, and the row by which they are served.
        cluster: Nodes; not changed.
        terms: Network that the job asks for and the cluster has.
        names: Candidate nodes, each once, in any order; None is all.
        places: {pod: its present place}; good ones stay unless the job asks for
            switch affinity.
        siblings: Which nodes the pods may have and share; None is all. Under leaf
            switches and in SuperPoDs each pod has a node by itself, and all pods get
            nodes that any of them may have.

    Source:
        Node Scoring, "Implementation Details".
    """
    problems = job_rules.problems(job, terms.profile)
    if problems or job.row is None:
        return Rejection(
            job="; ".join(problem.text for problem in problems), reasons=()
        )
    present = places or {}
    members = [
        Member(pod.name, pod.chips, None, present.get(pod.name)) for pod in job.npu_pods
    ]
    if not members:
        return JobPlacement(pods=())
    is_in_superpods = len(members) > 1 and job.row.job_rule is JobRule.SUPERPOD
    if siblings is not None and (is_in_superpods or terms.schema is not None):
        every_name = cluster.nodes(job.row) if names is None else names
        names = siblings.common_names(every_name)
    query = NodeQuery(
        wanted=job.row,
        cluster=cluster,
        names=None if names is None else tuple(names),
        in_network=len(members) > 1,
    )
    if is_in_superpods:
        return _in_superpods(job, members, query, terms.superpods)
    if terms.schema is not None:
        return _under_leaves(members, query, terms.schema, terms.network)
    return gang.plan(job.row, members, cluster, names=query.names, siblings=siblings)


def _in_superpods(
    job: Job, members: Sequence[Member], query: NodeQuery, superpods: SuperPods | None
) -> JobPlacement | Rejection:
    if superpods is None:
        text = "which SuperPoD each node belongs to is not known"
        return Rejection(job=text, reasons=())
    block = job.chips if job.sp_block is None else job.sp_block
    nodes = max(block // members[0].chips, 1)
    return gang_on_superpods.plan(
        query, members, superpods, nodes, soft=job.soft_superpods
    )


def _under_leaves(
    members: Sequence[Member],
    query: NodeQuery,
    schema: Schema,
    network: Network | None,
) -> JobPlacement | Rejection:
    if network is None:
        text = (
            "switch affinity is asked for, but basic-tor-node-cm is missing or cannot "
            "be read"
        )
        return Rejection(job=text, reasons=())
    return gang_on_leaves.plan(query, members, network, schema)
