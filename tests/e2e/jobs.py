"""Jobs as people and controllers make them, for control planes without controllers.

Objects and pods have the fields and labels that the controllers give them.
"""

from collections.abc import Mapping
from typing import Any

from sandbox.apiclient import ApiClient, Object
from tests.e2e import npu_nodes

JOBS = "/apis/batch/v1/namespaces/default/jobs"
WORKER_SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
GROUPS = "/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LWS = "leaderworkerset.sigs.k8s.io"
_JOBSET = "jobset.sigs.k8s.io"
_BATCH = "batch.kubernetes.io"


async def define(api: ApiClient, path: str, kind: str) -> None:
    """Make the API server serve a kind of others at the path of its collection."""
    _, _, group, version, _, _, plural = path.split("/")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Groups below k8s.io are Kubernetes' own, unless somebody approved them.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [served],
        },
    }
    await api.create(_DEFINITIONS, body)


def member(name: str, job: str, size: int, chips: int = 8, **spec: Any) -> Object:
    """A pod of a job that a person has marked."""
    pod = npu_nodes.pod(name, chips)
    marks = {"ascend-affinity/job": job, "ascend-affinity/job-size": str(size)}
    pod["metadata"] |= {"annotations": marks, "labels": {"job": job}}
    pod["spec"] |= spec
    return pod


def indexed_job(name: str, pods: int) -> Object:
    """An Indexed Job whose pods all run at once."""
    spec = {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
    template = _template()
    template["spec"]["restartPolicy"] = "Never"
    return {"metadata": {"name": name}, "spec": spec | {"template": template}}


def of_indexed_job(name: str, job: str, index: int) -> Object:
    """A pod as the Job controller makes it."""
    numbered = str(index)
    pod = _labelled(
        name,
        {
            f"{_BATCH}/job-name": job,
            f"{_BATCH}/job-completion-index": numbered,
            "job-name": job,
        },
    )
    pod["metadata"]["annotations"] = {f"{_BATCH}/job-completion-index": numbered}
    return pod


def worker_set(name: str, size: int) -> Object:
    """A LeaderWorkerSet of one group; its workers are made when the leader is ready."""
    group = {"size": size, "workerTemplate": _template()}
    spec = {
        "replicas": 1,
        "startupPolicy": "LeaderReady",
        "leaderWorkerTemplate": group,
    }
    return _custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, spec)


def of_worker_set(name: str, group: str, size: int, index: int) -> Object:
    """A pod as the controller of LeaderWorkerSets makes it; its leader has index 0."""
    labels = {
        f"{_LWS}/name": group,
        f"{_LWS}/group-index": "0",
        f"{_LWS}/worker-index": str(index),
    }
    pod = _labelled(name, labels)
    pod["metadata"]["annotations"] = {f"{_LWS}/size": str(size)}
    return pod


def job_set(name: str, **pods: int) -> Object:
    """A JobSet whose replicated jobs start in this order; {replicated job: pods}."""
    replicated = [
        {
            "name": job,
            "replicas": 1,
            "template": {"spec": indexed_job(job, count)["spec"]},
        }
        for job, count in pods.items()
    ]
    spec = {
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "replicatedJobs": replicated,
    }
    return _custom("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec)


def of_job_set(name: str, job_set: str, job: str, index: int) -> Object:
    """A pod of a replicated job, as JobSet and Job controller make it."""
    pod = of_indexed_job(name, f"{job_set}-{job}-0", index)
    pod["metadata"]["labels"] |= {
        f"{_JOBSET}/jobset-name": job_set,
        f"{_JOBSET}/replicatedjob-name": job,
        f"{_JOBSET}/replicatedjob-replicas": "1",
        f"{_JOBSET}/job-index": "0",
        f"{_JOBSET}/restart-attempt": "0",
    }
    return pod


def pod_group(name: str, least: int) -> Object:
    """A PodGroup of Kubernetes of which so many pods must run together."""
    policy = {"gang": {"minCount": least}}
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}


def of_pod_group(name: str, group: str, chips: int = 8) -> Object:
    """A pod of a PodGroup of Kubernetes."""
    pod = npu_nodes.pod(name, chips)
    pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    return pod


def _template() -> Object:
    return {"spec": npu_nodes.pod("x", 8)["spec"]}


def _labelled(name: str, labels: Mapping[str, str]) -> Object:
    pod = npu_nodes.pod(name, 8)
    pod["metadata"]["labels"] = dict(labels)
    return pod


def _custom(version: str, kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
