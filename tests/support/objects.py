"""Objects as people and controllers send them to an API server."""

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.apiclient import Object
from scheduler_core.wire import deviceinfo
from tests.support.watched import RESOURCE

PODS = "/api/v1/namespaces/default/pods"
CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"
NODES = "/api/v1/nodes"


def container(
    name: str = "main",
    npus: int = 0,
    *,
    resource: str = RESOURCE,
    limits: Mapping[str, str] | None = None,
    **more: Any,
) -> Object:
    """A container that asks for chips of one resource, or has these limits."""
    asked = dict(limits or {}) | ({resource: str(npus)} if npus else {})
    made = {"name": name, "image": "x", "resources": {"limits": asked}}
    return {**made, **more}


def pod(  # noqa: PLR0913  # the parts of a pod
    name: str,
    npus: int = 0,
    *,
    resource: str = RESOURCE,
    namespace: str = "default",
    containers: Iterable[Object] = (),
    meta: Mapping[str, Any] | None = None,
    limits: Mapping[str, str] | None = None,
    node: str = "",
    **spec: Any,
) -> Object:
    """A pod; one container asks for `npus` chips.

    Args:
        containers: In place of that container.
        meta: Further metadata: labels, annotations, owners.
        limits: What the container asks for besides.
        node: Where it is bound already.
        spec: Further fields of the spec.
    """
    one = container(npus=npus, resource=resource, limits=limits)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **(meta or {})},
        "spec": {
            "containers": list(containers) or [one],
            **({"nodeName": node} if node else {}),
            **spec,
        },
    }


def node(name: str, **meta: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **meta}}


def offered(**limits: str) -> Object:
    """A node's status: what it has, all of it allocatable."""
    return {"status": {"capacity": limits, "allocatable": limits}}


def configmap(
    name: str, data: Mapping[str, str], *, namespace: str = "kube-system", **meta: Any
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "data": dict(data),
    }


def report(node: str, data: Mapping[str, str]) -> Object:
    """The ConfigMap in which a node's agent reports this data."""
    name = deviceinfo.configmap_name(node)
    return configmap(name, data, labels=dict(deviceinfo.LABELS))


def bind_args(pod: Object, node: str) -> Object:
    """The body with which kube-scheduler asks an extender to bind a pod."""
    meta = pod["metadata"]
    named = {"PodNamespace": meta["namespace"], "PodName": meta["name"]}
    return {**named, "PodUID": meta["uid"], "Node": node}


def binding(name: str, node: str, **meta: Any) -> Object:
    """A Binding of a pod to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **meta},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
