"""What the scheduler writes on a pod besides its chips, for programs that read it.

Names and values are those of MindCluster's ascend-for-volcano: the device plugin, the
operators that number pods, and clusterd read them.
"""

from dataclasses import dataclass

from scheduler_core.node.decision import LeafUse

#: whether the pod's job has several pods with chips: "true" or "false"
DISTRIBUTED_JOB = "distributed-job"
#: the pod's number in its job, from 0, for pods that no operator numbers
RANK_INDEX = "hccl/rankIndex"
#: number of the logical SuperPoD in the job, from 0
SUPER_POD_RANK = "super-pod-rank"
#: id of the physical SuperPoD that the pod's node is of
SUPER_POD_ID = "super-pod-id"
#: what the pod's job makes of its leaf switch, as `LeafUse`
IS_SHARED_TOR = "isSharedTor"
#: "1" if more jobs share that leaf than should, else "0"
IS_HEALTHY = "isHealthy"
#: address of a leaf that the job shares with others
SHARED_TOR_IP = "sharedTorIp"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafMark:
    """What a job makes of the leaf that a pod of it lies under."""

    use: LeafUse = LeafUse.IDLE
    is_healthy: bool = True
    #: the switch's own
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What is to be said of a pod and its place in its job."""

    is_distributed: bool = False
    #: "": somebody else numbers the pod
    rank: str = ""
    #: -1: the job is none of SuperPoDs
    superpod_rank: int = -1
    superpod: int = -1
    #: None: nothing is said of leaves
    leaf: LeafMark | None = None


def render(marks: Marks) -> dict[str, str]:
    """The annotations that say so, by key."""
    found = {DISTRIBUTED_JOB: "true" if marks.is_distributed else "false"}
    if marks.rank:
        found[RANK_INDEX] = marks.rank
    if marks.superpod_rank >= 0:
        found[SUPER_POD_RANK] = str(marks.superpod_rank)
        found[SUPER_POD_ID] = str(marks.superpod)
    if marks.leaf is not None:
        found[IS_SHARED_TOR] = str(int(marks.leaf.use))
        found[IS_HEALTHY] = "0" if marks.leaf.is_healthy else "1"
        if marks.leaf.use is LeafUse.SHARED and marks.leaf.address:
            found[SHARED_TOR_IP] = marks.leaf.address
    return found
