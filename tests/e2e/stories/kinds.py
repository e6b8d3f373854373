"""Jobs as people write them. Each pod takes all chips of a node."""

from typing import Any

from sandbox.apiclient import Object
from scheduler_core.products.table import ATLAS_800_TRAINING, Product
from tests.e2e import npu_nodes
from tests.e2e.stories.history import PATHS
from tests.e2e.stories.lives import JOBSET, LWS
from tests.e2e.stories.world import ZONE

PODS = PATHS["Pod"]
JOBS, JOB_SETS, WORKER_SETS = PATHS["Job"], PATHS["JobSet"], PATHS["LeaderWorkerSet"]
RAY_CLUSTERS, TORCH_JOBS = PATHS["RayCluster"], PATHS["PyTorchJob"]
DEPLOYMENTS, STATEFUL_SETS = PATHS["Deployment"], PATHS["StatefulSet"]


def job(
    name: str, pods: int, product: Product = ATLAS_800_TRAINING, **spec: Any
) -> Object:
    """An Indexed Job whose pods all run at once."""
    return {"metadata": {"name": name}, "spec": _job_spec(pods, product) | spec}


def suspended(is_suspended: bool) -> Object:  # a field's value
    """A patch of a Job, JobSet or RayCluster."""
    return {"spec": {"suspend": is_suspended}}


def job_set(
    name: str,
    jobs: int,
    pods: int,
    product: Product = ATLAS_800_TRAINING,
    *,
    exclusive: bool = False,
    **spec: Any,
) -> Object:
    """A JobSet of one replicated job.

    Args:
        name: Of the object.
        jobs: Replicas of the job.
        pods: Of each of these.
        product: The nodes that it means.
        exclusive: Each has a zone to itself.
        spec: Further fields of the job's `spec`.
    """
    replicated = {"name": "train", "replicas": jobs}
    template = {"spec": _job_spec(pods, product) | spec}
    notes = {f"alpha.{JOBSET}/exclusive-topology": ZONE} if exclusive else {}
    of_set = {
        "failurePolicy": {"maxRestarts": 3},
        "replicatedJobs": [replicated | {"template": template}],
    }
    return _job_set({"name": name, "annotations": notes}, of_set)


def ordered_set(name: str, **pods: int) -> Object:
    """A JobSet whose replicated jobs start in this order; {replicated job: pods}."""
    replicated = [
        {"name": job, "template": {"spec": _job_spec(count)}}
        for job, count in pods.items()
    ]
    of_set = {
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "replicatedJobs": replicated,
    }
    return _job_set({"name": name}, of_set)


def _job_set(meta: Object, spec: Object) -> Object:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta,
        "spec": spec,
    }


def worker_set(
    name: str,
    groups: int,
    size: int,
    product: Product = ATLAS_800_TRAINING,
    *,
    startup: str = "LeaderCreated",
    exclusive: bool = False,
    **template: Any,
) -> Object:
    """A LeaderWorkerSet.

    Args:
        name: Of the object.
        groups: How many.
        size: Pods of each, its leader among them.
        product: The nodes that it means.
        startup: When workers are made: its `startupPolicy`.
        exclusive: Each has a zone to itself.
        template: Further fields of its `leaderWorkerTemplate`.
    """
    notes = {f"{LWS}/exclusive-topology": ZONE} if exclusive else {}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "annotations": notes},
        "spec": {
            "replicas": groups,
            "startupPolicy": startup,
            "leaderWorkerTemplate": {
                "size": size,
                "workerTemplate": {"spec": _pod_spec(product)},
                **template,
            },
        },
    }


def ray_cluster(name: str, workers: int, hosts: int = 1, **spec: Any) -> Object:
    """A RayCluster of a head and one group of workers, each of which has some hosts."""
    group = {
        "groupName": "workers",
        "replicas": workers,
        "minReplicas": 0,
        "maxReplicas": workers + 2,
        "numOfHosts": hosts,
        "rayStartParams": {},
        "template": {"spec": _pod_spec()},
    }
    head = {"rayStartParams": {}, "template": {"spec": _pod_spec()}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {"headGroupSpec": head, "workerGroupSpecs": [group], **spec},
    }


def torch_job(name: str, workers: int, **policy: Any) -> Object:
    """A PyTorchJob of a master and some workers."""
    spec = _pod_spec()
    # The operator knows the container by its name.
    spec["containers"][0]["name"] = "pytorch"
    role = {"restartPolicy": "ExitCode", "template": {"spec": spec}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": policy,
            "pytorchReplicaSpecs": {
                "Master": role | {"replicas": 1},
                "Worker": role | {"replicas": workers},
            },
        },
    }


def deployment(name: str, pods: int, least: int) -> Object:
    """A Deployment of which some pods must run at once; an update adds a pod."""
    update = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {
        "metadata": {"name": name},
        "spec": _serving(name, pods, least) | {"strategy": update},
    }


def stateful_set(name: str, pods: int, least: int) -> Object:
    """A StatefulSet of which some pods must run at once; all are made at once."""
    return {
        "metadata": {"name": name},
        "spec": _serving(name, pods, least) | {"podManagementPolicy": "Parallel"},
    }


def updated() -> Object:
    """The template of pods, with another image than before."""
    return {"spec": _pod_spec(image="y")}


def _serving(name: str, pods: int, least: int) -> Object:
    labels = {"app": name}
    notes = {"huawei.com/schedule_minAvailable": str(least)}
    return {
        "replicas": pods,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": notes},
            "spec": _pod_spec(),
        },
    }


def _job_spec(pods: int, product: Product = ATLAS_800_TRAINING) -> Object:
    return {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "template": {"spec": _pod_spec(product) | {"restartPolicy": "Never"}},
    }


def _pod_spec(product: Product = ATLAS_800_TRAINING, image: str = "x") -> Object:
    spec: Object = npu_nodes.whole("x", product)["spec"]
    spec["containers"][0]["image"] = image
    return spec
