"""Where a whole job goes: the order in which its rules are asked.

First whether the job can be at all, then what it asks of the network, then the common
choice of nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler_core import gangs, jobs, leafgangs
from scheduler_core.answers import JobPlacement, Placement, Rejection
from scheduler_core.cluster import Cluster
from scheduler_core.gangs import Member
from scheduler_core.jobs import Job, Profile
from scheduler_core.leaves import Network, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """What a job asks of the leaf switches."""

    schema: Schema
    #: the leaves; None when the cluster has not described them
    network: Network | None


def place_job(  # each says another thing
    job: Job,
    cluster: Cluster,
    *,
    affinity: Affinity | None = None,
    profile: Profile = Profile.SEED,
    names: Iterable[str] | None = None,
    places: Mapping[str, Placement] | None = None,
) -> JobPlacement | Rejection:
    """Place all pods of a job that ask for chips, or say why not all can be.

    Args:
        job: The pods that exist, and the row by which they are served.
        cluster: The nodes; not changed.
        affinity: What it asks of the leaf switches; None is nothing.
        profile: How strict the rules over whole jobs are.
        names: Only these nodes, each once, in any order; None is all.
        places: {pod: where it is already}; those that are good are kept, where no
            switch affinity is asked for.

    Source:
        Node Scoring, "Implementation Details".
    """
    found = jobs.problems(job, profile)
    if found or job.row is None:
        return Rejection(job="; ".join(problem.text for problem in found), reasons=())
    members = [
        Member(name=pod.name, chips=pod.chips, place=(places or {}).get(pod.name))
        for pod in job.npu_pods
    ]
    if not members:
        return JobPlacement(pods=())
    if affinity is None:
        return gangs.plan(job.row, members, cluster, names=names)
    if affinity.network is None:
        text = "switch affinity is asked for, but basic-tor-node-cm is not imported"
        return Rejection(job=text, reasons=())
    return leafgangs.plan(
        job.row, members, cluster, affinity.network, affinity.schema, names=names
    )
