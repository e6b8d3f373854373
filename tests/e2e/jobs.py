"""Jobs of pods that people make and mark, or put into a PodGroup."""

from typing import Any

from sandbox.apiclient import Object
from tests.e2e import npu_nodes

GROUPS = "/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"


def member(name: str, job: str, size: int, chips: int = 8, **spec: Any) -> Object:
    """A pod of a job that a person has marked."""
    pod = npu_nodes.pod(name, chips)
    marks = {"ascend-affinity/job": job, "ascend-affinity/job-size": str(size)}
    pod["metadata"] |= {"annotations": marks, "labels": {"job": job}}
    pod["spec"] |= spec
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
