"""Who really has which chips: asked of everybody who knows, and compared.

A container's environment and devices are looked up in its process, the kubelet's ids
in pod-resources (`Get` only: `List` makes a kubelet forget ids that are in flight),
claims and mounts in the pod's annotations, the node's state in the agent's ConfigMap.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.configurations import RESOURCE
from tests.e2e.stages import CannotError

#: What predicate-time says once somebody has been served.
SERVED = str(2**64 - 1)
_CONFIGMAP = "mindx-dl-deviceinfo-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """What one running container has."""

    name: str
    #: ASCEND_VISIBLE_DEVICES of its first process
    environment: tuple[int, ...]
    #: N of each /dev/davinciN that it sees
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is known of one pod that asks for chips."""

    name: str
    containers: tuple[Mounted, ...]
    #: pod-resources
    kubelet_ids: tuple[int, ...]
    #: annotation huawei.com/Ascend910
    claimed: tuple[int, ...]
    #: annotation huawei.com/AscendReal
    real: tuple[int, ...]
    #: annotation huawei.com/kltDev
    kltdev: tuple[int, ...]
    predicate_time: str
    wanted_count: int
    has_init_chips: bool

    @property
    def chips(self) -> tuple[int, ...]:
        """What its running containers have together."""
        found = {chip for each in self.containers for chip in each.environment}
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What the agent's ConfigMap says."""

    available: tuple[int, ...]
    unhealthy: tuple[int, ...]
    held: tuple[int, ...]
    releasing: tuple[int, ...]


def look(cluster: Cluster, namespace: str | None = None) -> list[Served]:
    """Look at all running pods with chips, of a namespace or of all."""
    if namespace is None:
        found = cluster.core.list_pod_for_all_namespaces().items
    else:
        found = cluster.core.list_namespaced_pod(namespace).items
    ours = [pod for pod in found if _wanted(pod) and pod.status.phase == "Running"]
    pids = cluster.container_pids()
    with grpc.insecure_channel(
        f"unix:{cluster.pod_resources_socket}",
        options=[("grpc.default_authority", "localhost")],
    ) as channel:
        kubelet = api_pb2_grpc.PodResourcesListerStub(channel)
        return [_served(pod, pids, kubelet) for pod in ours]


def node(cluster: Cluster) -> Node:
    """Look at the node's ConfigMap."""
    name = f"{_CONFIGMAP}{cluster.node}"
    texts = cluster.core.read_namespaced_config_map(name, "kube-system").data
    chips = json.loads(texts["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    affinity = json.loads(texts["AscendAffinity"])
    return Node(
        available=_numbers(chips[RESOURCE]),
        unhealthy=_numbers(chips[f"{RESOURCE}-Unhealthy"]),
        held=_numbers(",".join(affinity["held"])),
        releasing=_numbers(",".join(affinity["releasing"])),
    )


def disagreements(pods: Sequence[Served], node: Node | None = None) -> list[str]:
    """Say where those who know contradict each other; nothing if they do not."""
    found = [text for pod in pods for text in _contradictions(pod)]
    owners = Counter(chip for pod in pods for chip in pod.chips)
    found += [
        f"chip {chip} is in {count} pods" for chip, count in owners.items() if count > 1
    ]
    ids = Counter(each for pod in pods for each in pod.kubelet_ids)
    found += [
        f"id {each} is in {count} pods" for each, count in ids.items() if count > 1
    ]
    if node is not None:
        held = tuple(sorted(owners))
        if node.held != held:
            found.append(f"the node holds {node.held}, its pods have {held}")
        if set(node.available) & set(node.held):
            found.append(f"available {node.available} although held {node.held}")
    return found


def until_agreed(cluster: Cluster, within_s: float = 10) -> list[Served]:
    """Wait until everybody says the same of all pods of the cluster; returns them.

    Raises:
        CannotError: They do not in time; the text has the contradictions.
    """
    last: list[str] = []
    pods: list[Served] = []

    def agreed() -> bool:
        pods[:] = look(cluster)
        last[:] = disagreements(pods, node(cluster))
        return not last

    try:
        until(agreed, "everybody agrees", within_s=within_s)
    except CannotError as error:
        raise CannotError(f"{error}\n" + "\n".join(last)) from None
    return pods


def _contradictions(pod: Served) -> Iterable[str]:
    for each in pod.containers:
        if each.environment != each.devices:
            yield (
                f"{pod.name}/{each.name} sees devices {each.devices}, its environment "
                f"says {each.environment}"
            )
    if len(pod.chips) != pod.wanted_count:
        yield f"{pod.name} asked for {pod.wanted_count} chips and has {pod.chips}"
    if not pod.has_init_chips:
        # An ordinary init container's ids are not shown, and it has ended.
        if pod.claimed != pod.chips or pod.real != pod.chips:
            yield (
                f"{pod.name} has {pod.chips}, claimed are {pod.claimed}, "
                f"AscendReal says {pod.real}"
            )
        if pod.kltdev != pod.kubelet_ids:
            yield f"{pod.name}: kltDev {pod.kltdev}, pod-resources {pod.kubelet_ids}"
    if pod.predicate_time != SERVED:
        yield f"{pod.name} is not confirmed: predicate-time {pod.predicate_time}"


def _served(
    pod: Any, pids: dict[str, int], kubelet: api_pb2_grpc.PodResourcesListerStub
) -> Served:
    notes = pod.metadata.annotations or {}
    answer = kubelet.Get(
        api_pb2.GetPodResourcesRequest(
            pod_name=pod.metadata.name, pod_namespace=pod.metadata.namespace
        )
    )
    ids = [
        each
        for shown in answer.pod_resources.containers
        for entry in shown.devices
        if entry.resource_name == RESOURCE
        for each in entry.device_ids
    ]
    statuses = [
        *(pod.status.container_statuses or []),
        *(pod.status.init_container_statuses or []),
    ]
    running = {
        status.name: pids[status.container_id.removeprefix("containerd://")]
        for status in statuses
        if status.state.running
    }
    return Served(
        name=f"{pod.metadata.namespace}/{pod.metadata.name}",
        containers=tuple(
            mounted(name, pid)
            for name, pid in sorted(running.items())
            if name in _wanted(pod)
        ),
        kubelet_ids=_numbers(",".join(ids)),
        claimed=_numbers(notes.get(RESOURCE, "")),
        real=_numbers(notes.get("huawei.com/AscendReal", "")),
        kltdev=_numbers(notes.get("huawei.com/kltDev", "")),
        predicate_time=notes.get("predicate-time", ""),
        wanted_count=sum(
            count for name, count in _wanted(pod).items() if name in running
        ),
        has_init_chips=any(
            name in _wanted(pod) and name not in running
            for name in (each.name for each in pod.spec.init_containers or [])
        ),
    )


def mounted(name: str, pid: int) -> Mounted:
    """Look into a container through its first process."""
    process = Path("/proc") / str(pid)
    text = (process / "environ").read_bytes().decode()
    environment = dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
    devices = [each.name for each in (process / "root" / "dev").glob("davinci*")]
    return Mounted(
        name=name,
        environment=_numbers(environment.get("ASCEND_VISIBLE_DEVICES", "")),
        devices=_numbers(",".join(devices)),
    )


def _wanted(pod: Any) -> dict[str, int]:
    every = [*(pod.spec.init_containers or []), *pod.spec.containers]
    counts = {
        each.name: int((each.resources.limits or {}).get(RESOURCE, 0)) for each in every
    }
    return {name: count for name, count in counts.items() if count}


def _numbers(text: str) -> tuple[int, ...]:
    """Chips, in whatever notation: "Ascend910-2,Ascend910-0", "2,0", "davinci2"."""
    return tuple(sorted(int(found) for found in re.findall(r"(\d+)(?:,|$)", text)))
