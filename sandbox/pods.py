"""What does the kubelet need to know of a pod?

A `Pod` is a reading of the API object that is made anew with every version of
it. A quantity that is no whole number counts as 0 of an extended resource.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.apiclient import Object
from scheduler_core.wire import quantities
from scheduler_core.wire.shapes import ContainerKind, total
from service import clock

#: Address of each node: all are on this machine.
HOST_IP = "127.0.0.1"
_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "metadata.uid": ("metadata", "uid"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container of a pod's specification."""

    name: str
    kind: ContainerKind
    image: str
    #: {resource: count}, extended resources only
    limits: Mapping[str, int]
    env: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as the kubelet reads it."""

    uid: str
    namespace: str
    name: str
    created: str
    phase: str
    #: by the API server's deletionTimestamp
    deleting: bool
    grace_s: float
    restart_policy: str
    #: in the order of admission: init containers and sidecars, then app containers
    containers: tuple[Container, ...]
    #: {(container, resource)} that a DRA driver serves
    dra: frozenset[tuple[str, str]]
    source: Object

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has ended for good, as the API server knows it."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def requests(self) -> dict[str, int]:
        """Extended resources that the scheduler counts for the pod."""
        needs: dict[str, list[tuple[ContainerKind, int]]] = {}
        for container in self.containers:
            for resource, count in container.limits.items():
                needs.setdefault(resource, []).append((container.kind, count))
        return {resource: total(counts) for resource, counts in needs.items()}


def pod_of(source: Object) -> Pod:
    """Read an API object."""
    meta, spec = source["metadata"], source["spec"]
    grace = meta.get("deletionGracePeriodSeconds")
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", 30)
    return Pod(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        created=str(meta.get("creationTimestamp", "")),
        phase=str(source.get("status", {}).get("phase", "")),
        deleting=bool(meta.get("deletionTimestamp")),
        grace_s=float(grace),
        restart_policy=spec.get("restartPolicy", "Always"),
        containers=tuple(_containers(spec)),
        dra=frozenset(_dra(source.get("status", {}))),
        source=source,
    )


def environment(pod: Pod, container: Container, *, pod_ip: str) -> dict[str, str]:
    """Return the variables that the pod's own specification sets.

    The downward API is read from the pod as it is now: a container that starts
    later sees later annotations.
    """
    values: dict[str, str] = {}
    for entry in container.env:
        field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        if field is None:
            values[entry["name"]] = str(entry.get("value", ""))
        else:
            ips = {"status.podIP": pod_ip, "status.hostIP": HOST_IP}
            values[entry["name"]] = ips.get(field) or _field(pod.source, field)
    return values


def event_of(pod: Pod, serial: int, kind: str, reason: str, message: str) -> Object:
    """Return a new event about a pod, without its source.

    Args:
        pod: The pod.
        serial: A number that no other event of this source has.
        kind: `Normal` or `Warning`.
        reason: For programs.
        message: For people.
    """
    now = clock.rfc3339(clock.wall_s())
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{pod.name}.{clock.wall_ns():x}.{serial}",
            "namespace": pod.namespace,
        },
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _containers(spec: Object) -> Iterator[Container]:
    for source in spec.get("initContainers") or ():
        always = source.get("restartPolicy") == "Always"
        yield _container(
            source, ContainerKind.SIDECAR if always else ContainerKind.INIT
        )
    for source in spec["containers"]:
        yield _container(source, ContainerKind.APP)


def _container(source: Object, kind: ContainerKind) -> Container:
    limits = source.get("resources", {}).get("limits") or {}
    return Container(
        name=source["name"],
        kind=kind,
        image=source.get("image", ""),
        limits={
            name: quantities.count(limit)
            for name, limit in limits.items()
            if "/" in name
        },
        env=tuple(source.get("env") or ()),
    )


def _dra(status: Object) -> Iterator[tuple[str, str]]:
    claimed = status.get("extendedResourceClaimStatus") or {}
    for mapping in claimed.get("requestMappings") or ():
        yield mapping["containerName"], mapping["resourceName"]


def _field(source: Object, path: str) -> str:
    kind, _, key = path.removesuffix("']").partition("['")
    if key:
        values = source["metadata"].get(kind.removeprefix("metadata.")) or {}
        return str(values.get(key, ""))
    section, name = _FIELDS.get(path, ("", ""))
    return str(source.get(section, {}).get(name, ""))
