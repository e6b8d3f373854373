"""What Volcano tells an extender of tasks, nodes and jobs.

Its structs as Go writes them, key by key; sizes and nesting are part of what an
extender has to bear. `tests/sandbox/scheduler/` compares them with recorded ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag

from sandbox.apiclient import Object
from sandbox.pods import Pod

GROUP_NAME = "scheduling.k8s.io/group-name"
_TASK_SPEC = "volcano.sh/task-spec"


class Status(IntFlag):
    """How far Volcano is with a task (`pkg/scheduler/api/types.go`)."""

    PENDING = 1
    ALLOCATED = 2
    PIPELINED = 4
    BINDING = 8
    BOUND = 16
    RUNNING = 32
    RELEASING = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A pod as a session sees it."""

    pod: Pod
    job: str
    status: Status
    node: str = ""


def group_of(pod: Pod) -> str:
    """The pod's PodGroup as `namespace/name`; "" is none."""
    annotations = pod.source["metadata"].get("annotations") or {}
    name = annotations.get(GROUP_NAME, "")
    return f"{pod.namespace}/{name}" if name else ""


def task_info(task: Task, *, before: Task | None = None) -> Object:
    """Render a `TaskInfo`.

    Args:
        task: The task.
        before: As it was before it was given back.
    """
    pod = task.pod
    source = bare(pod.source)
    annotations = source["metadata"].get("annotations") or {}
    asked = _resource(pod.requests, pods=1)
    return {
        "UID": pod.uid,
        "Job": task.job,
        "Name": pod.name,
        "Namespace": pod.namespace,
        "TaskRole": annotations.get(_TASK_SPEC, ""),
        "Resreq": asked,
        "InitResreq": asked,
        "DRAResreq": None,
        "ResourceClaimKeys": None,
        "ResourceClaimDRAResreq": None,
        **_transaction(task),
        "LastTransaction": None if before is None else _transaction(before),
        "Priority": source["spec"].get("priority") or 0,
        "VolumeReady": False,
        "Preemptable": True,
        "BestEffort": False,
        "HasRestartableInitContainer": False,
        "SchGated": False,
        "RevocableZone": "",
        "NumaInfo": {"Policy": "", "ResMap": {}},
        "Pod": _put(source, task.node),
        "PodAnnotations": annotations,
        "CustomBindErrHandlerSucceeded": False,
    }


def node_info(node: Object, tasks: Sequence[Task]) -> Object:
    """Render a `NodeInfo`: the whole node, and whole pods of all its tasks."""
    status = node.get("status") or {}
    offered = status.get("allocatable") or {}
    most = int(offered.get("pods", 0))
    total = {key: int(value) for key, value in offered.items() if "/" in key}
    used: dict[str, int] = {}
    for task in tasks:
        for key, count in task.pod.requests.items():
            used[key] = used.get(key, 0) + count
    idle = {key: count - used.get(key, 0) for key, count in total.items()}
    nothing = _resource({})
    return {
        "Name": node["metadata"]["name"],
        "Node": bare(node),
        "State": {"Phase": 1, "Reason": ""},
        "Releasing": nothing,
        "Pipelined": nothing,
        "Idle": _resource(idle, pods=most - len(tasks), most=most),
        "Used": _resource(used, pods=len(tasks)) if tasks else nothing,
        "Allocatable": _resource(total, pods=most, most=most),
        "Capacity": _resource(total, pods=most, most=most),
        "ResourceUsage": {
            "MetricsTime": "0001-01-01T00:00:00Z",
            "CPUUsageAvg": {},
            "MEMUsageAvg": {},
        },
        "Tasks": {
            f"{task.pod.namespace}/{task.pod.name}": task_info(task) for task in tasks
        },
        "NumaInfo": None,
        "UnassignedNumaPods": None,
        "NumaSchedulerInfo": None,
        "RevocableZone": "",
        "Others": {},
        "OversubscriptionNode": False,
        "OfflineJobEvicting": False,
        "OversubscriptionResource": nothing,
        "ImageStates": {},
        "Generation": 0,
        "BindGeneration": 0,
    }


def job_info(group: Object, tasks: Sequence[Task]) -> Object:
    """Render a `JobInfo`; each task stands in it four times."""
    meta, spec = group["metadata"], group.get("spec") or {}
    uid = f"{meta['namespace']}/{meta['name']}"
    least = int(spec.get("minMember") or 1)
    infos = {task.pod.uid: task_info(task) for task in tasks}
    by_status: dict[str, dict[str, Object]] = {}
    asked: dict[str, int] = {}
    for task in tasks:
        at = by_status.setdefault(str(int(task.status)), {})
        at[task.pod.uid] = infos[task.pod.uid]
        for key, count in task.pod.requests.items():
            asked[key] = asked.get(key, 0) + count
    part = {
        "GID": uid,
        "UID": uid,
        "Job": uid,
        "MinAvailable": least,
        "Priority": 0,
        "MatchIndex": 0,
        "Tasks": infos,
        "TaskStatusIndex": by_status,
        "AllocatedHyperNode": "",
        "NominatedHyperNode": "",
        "NetworkTopology": None,
    }
    created = meta.get("creationTimestamp")
    return {
        "UID": uid,
        "PgUID": meta["uid"],
        "Name": meta["name"],
        "Namespace": meta["namespace"],
        "Queue": spec.get("queue") or "default",
        "Priority": 0,
        "MinAvailable": least,
        "WaitingTime": None,
        "JobFitErrors": "",
        "NodesFitErrors": {},
        "AllocatedHyperNode": "",
        "NetworkTopology": None,
        "SubJobs": {uid: part},
        "TaskToSubJob": dict.fromkeys(infos, uid),
        "MinSubJobs": {},
        "TaskStatusIndex": by_status,
        "Tasks": infos,
        "TaskMinAvailable": {},
        "TaskMinAvailableTotal": 0,
        "Allocated": _resource({}),
        "TotalRequest": _resource(asked, pods=len(tasks)),
        "CreationTimestamp": created,
        "PodGroup": {**bare(group), "Version": "v1beta1"},
        "ScheduleStartTimestamp": created,
        "Preemptable": False,
        "RevocableZone": "",
        "Budget": {"MinAvailable": "", "MaxUnavailable": ""},
    }


def bare(source: Object) -> Object:
    """An object as Go's informers keep it: without kind and version."""
    return {
        key: value for key, value in source.items() if key not in {"kind", "apiVersion"}
    }


def _put(source: Object, node: str) -> Object:
    """The pod with the node that the session has given it."""
    if not node:
        return source
    return {**source, "spec": {**source["spec"], "nodeName": node}}


def _transaction(task: Task) -> Object:
    return {
        "NodeName": task.node,
        "EvictionOccurred": False,
        "JobAllocatedHyperNode": "",
        "Status": int(task.status),
    }


def _resource(counts: Mapping[str, int], *, pods: int = 0, most: int = 0) -> Object:
    """A `Resource`; extended resources are counted in thousandths."""
    scalars = {key: 1000 * count for key, count in counts.items()}
    if pods or most:
        scalars["pods"] = pods
    return {
        "MilliCPU": 0,
        "Memory": 0,
        "ScalarResources": scalars or None,
        "MaxTaskNum": most,
    }
