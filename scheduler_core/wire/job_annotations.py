"""Annotations that bind writes about a pod's place in its job.

How a job is recognised is in `extender.gang.membership`.
Names and values are those of MindCluster's ascend-for-volcano.
Its device plugin, clusterd and operators that number pods read them.
"""

from dataclasses import dataclass

from scheduler_core.node.decision import LeafUse

#: whether the pod's job has several pods with chips: "true" or "false"
DISTRIBUTED_JOB = "distributed-job"
#: number of the pod in its job, from 0, for pods that no operator numbers
RANK_INDEX = "hccl/rankIndex"
#: number of the logical SuperPoD in the job, from 0
SUPER_POD_RANK = "super-pod-rank"
#: id of the physical SuperPoD of the pod's node
SUPER_POD_ID = "super-pod-id"
#: use of the leaf switch by the pod's job, as `LeafUse`
IS_SHARED_TOR = "isSharedTor"
#: "1" if more jobs share the leaf than should, else "0"
IS_HEALTHY = "isHealthy"
#: address of a leaf that the job shares with other jobs
SHARED_TOR_IP = "sharedTorIp"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafMark:
    """Use of a pod's leaf switch by the pod's job."""

    use: LeafUse = LeafUse.IDLE
    is_healthy: bool = True
    #: address of the switch
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Values of the annotations about a pod's place in its job."""

    is_distributed: bool = False
    #: "" when an operator numbers the pod
    rank: str = ""
    #: -1 when the job asks for no SuperPoDs
    superpod_rank: int = -1
    superpod: int = -1
    #: None when the job asks for no switch affinity
    leaf: LeafMark | None = None


def render(marks: Marks) -> dict[str, str]:
    """Return {annotation: value}, without annotations that do not apply."""
    annotations = {DISTRIBUTED_JOB: "true" if marks.is_distributed else "false"}
    if marks.rank:
        annotations[RANK_INDEX] = marks.rank
    if marks.superpod_rank >= 0:
        annotations[SUPER_POD_RANK] = str(marks.superpod_rank)
        annotations[SUPER_POD_ID] = str(marks.superpod)
    if marks.leaf is not None:
        annotations[IS_SHARED_TOR] = str(int(marks.leaf.use))
        annotations[IS_HEALTHY] = "0" if marks.leaf.is_healthy else "1"
        if marks.leaf.use is LeafUse.SHARED and marks.leaf.address:
            annotations[SHARED_TOR_IP] = marks.leaf.address
    return annotations
