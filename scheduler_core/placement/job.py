"""Where a whole job goes: the order in which its rules are asked.

First whether the job can be at all, then what it asks of the network, then the common
choice of nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler_core.index.cluster import Cluster
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement import gang, gang_on_leaves, gang_on_superpods, job_rules
from scheduler_core.placement.gang import Member, Question
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job_rules import Job, Profile
from scheduler_core.products.columns import JobRule
from scheduler_core.topology.leaves import Network, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is asked and known of the network, and how strict the rules are."""

    #: what the job asks of the leaf switches; None is nothing
    schema: Schema | None = None
    #: the leaf switches; None when the cluster has not described them
    network: Network | None = None
    #: which node is in which SuperPoD; None when that is not known
    joined: SuperPods | None = None
    profile: Profile = Profile.SEED


#: nothing is asked of the network
COMMON = Terms()


def place_job(
    job: Job,
    cluster: Cluster,
    *,
    terms: Terms = COMMON,
    names: Iterable[str] | None = None,
    places: Mapping[str, Placement] | None = None,
) -> JobPlacement | Rejection:
    """Place all pods of a job that ask for chips, or say why not all can be.

    Args:
        job: The pods that exist, and the row by which they are served.
        cluster: The nodes; not changed.
        terms: What is asked and known of the network.
        names: Only these nodes, each once, in any order; None is all.
        places: {pod: where it is already}; those that are good are kept, where no
            switch affinity is asked for.

    Source:
        Node Scoring, "Implementation Details".
    """
    found = job_rules.problems(job, terms.profile)
    if found or job.row is None:
        return Rejection(job="; ".join(problem.text for problem in found), reasons=())
    members = [
        Member(name=pod.name, chips=pod.chips, place=(places or {}).get(pod.name))
        for pod in job.npu_pods
    ]
    if not members:
        return JobPlacement(pods=())
    question = Question(
        wanted=job.row,
        cluster=cluster,
        names=None if names is None else tuple(names),
        in_network=len(members) > 1,
    )
    if question.in_network and job.row.job_rule is JobRule.SUPERPOD:
        return _in_superpods(job, members, question, terms.joined)
    if terms.schema is not None:
        return _under_leaves(members, question, terms.schema, terms.network)
    return gang.plan(job.row, members, cluster, names=question.names)


def _in_superpods(
    job: Job, members: Sequence[Member], question: Question, joined: SuperPods | None
) -> JobPlacement | Rejection:
    if joined is None:
        text = "which SuperPoD each node belongs to is not known"
        return Rejection(job=text, reasons=())
    block = job.chips if job.sp_block is None else job.sp_block
    nodes = max(block // members[0].chips, 1)
    return gang_on_superpods.plan(
        question, members, joined, nodes, soft=job.soft_superpods
    )


def _under_leaves(
    members: Sequence[Member],
    question: Question,
    schema: Schema,
    network: Network | None,
) -> JobPlacement | Rejection:
    if network is None:
        text = "switch affinity is asked for, but basic-tor-node-cm is not imported"
        return Rejection(job=text, reasons=())
    return gang_on_leaves.plan(question, members, network, schema)
