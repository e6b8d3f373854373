"""Who really has which chips: asked of everybody who knows, and compared.

A container's environment and devices are looked up in its process and in what
containerd was told to make, the kubelet's ids in pod-resources (`Get` only: `List`
makes a kubelet forget ids that are in flight), claims and mounts in the pod's
annotations, the node's state in the agent's ConfigMap.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.configurations import RESOURCE
from tests.e2e.images import ctr
from tests.e2e.stages import CannotError

#: What predicate-time says once somebody has been served.
SERVED = str(2**64 - 1)
_VISIBLE = "ASCEND_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """What one container has, or had when it ran."""

    name: str
    #: how many chips its limits say
    wanted_count: int
    #: ASCEND_VISIBLE_DEVICES of its first process
    environment: tuple[int, ...]
    #: N of each /dev/davinciN that it sees
    devices: tuple[int, ...]
    #: whether it still runs
    is_running: bool = True
    #: both as containerd was told to make them; None: it was not asked
    told: tuple[tuple[int, ...], tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is known of one pod that asks for chips."""

    name: str
    #: those that ask for chips, ordinary init containers that have ended too
    containers: tuple[Mounted, ...]
    #: pod-resources, which omits ordinary init containers
    kubelet_ids: tuple[int, ...]
    #: annotation huawei.com/Ascend910
    claimed: tuple[int, ...]
    #: annotation huawei.com/AscendReal
    real: tuple[int, ...]
    #: annotation huawei.com/kltDev
    kltdev: tuple[int, ...]
    predicate_time: str

    @property
    def chips(self) -> tuple[int, ...]:
        """What its containers have together."""
        found = {chip for each in self.containers for chip in each.environment}
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What the agent's ConfigMap says."""

    available: tuple[int, ...]
    unhealthy: tuple[int, ...]
    held: tuple[int, ...]
    releasing: tuple[int, ...]


class MovingError(CannotError):
    """A pod began or ended while it was looked at; look again."""


def look(cluster: Cluster) -> list[Served]:
    """Look at the node's running pods with chips.

    Raises:
        MovingError: A pod began or ended meanwhile.
    """
    here = f"spec.nodeName={cluster.node}"
    found = cluster.core.list_pod_for_all_namespaces(field_selector=here).items
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
    texts = cluster.report().data
    chips = json.loads(texts["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    affinity = json.loads(texts["AscendAffinity"])
    return Node(
        available=numbers(chips[RESOURCE]),
        unhealthy=numbers(chips[f"{RESOURCE}-Unhealthy"]),
        held=numbers(",".join(affinity["held"])),
        releasing=numbers(",".join(affinity["releasing"])),
    )


def wait_node(
    cluster: Cluster, *, within_s: float = 60, **wanted: tuple[int, ...]
) -> None:
    """Wait until the node's ConfigMap says this.

    Args:
        cluster: Whose node.
        within_s: How long.
        wanted: Fields of `Node`, each with all chips that it is to have.
    """

    def says() -> dict[str, tuple[int, ...]]:
        found = node(cluster)
        return {name: getattr(found, name) for name in wanted}

    until(
        lambda: says() == wanted,
        lambda: f"{wanted}; it is {node(cluster)}",
        within_s=within_s,
    )


def claimed_by_waiting(cluster: Cluster) -> tuple[int, ...]:
    """Chips that are claimed by pods which are bound and do not run yet."""
    pods = cluster.core.list_pod_for_all_namespaces(
        field_selector=f"status.phase=Pending,spec.nodeName={cluster.node}"
    ).items
    texts = [(pod.metadata.annotations or {}).get(RESOURCE, "") for pod in pods]
    return numbers(",".join(text for text in texts if text))


def disagreements(
    pods: Sequence[Served], node: Node, waiting: Sequence[int]
) -> list[str]:
    """Say where those who know contradict each other; nothing if they do not.

    Args:
        pods: All that run.
        node: What the agent says of the node.
        waiting: Chips claimed by pods that do not run yet.
    """
    found = [text for pod in pods for text in _contradictions(pod)]
    owners = Counter(chip for pod in pods for chip in pod.chips)
    found += [
        f"chip {chip} is in {count} pods" for chip, count in owners.items() if count > 1
    ]
    ids = Counter(each for pod in pods for each in pod.kubelet_ids)
    found += [
        f"id {each} is in {count} pods" for each, count in ids.items() if count > 1
    ]
    return [*found, *_misreported(node, set(owners), set(waiting))]


def until_agreed(
    cluster: Cluster,
    within_s: float = 60,
    *,
    tell: Callable[[list[str]], object] | None = None,
    since: Callable[[], float] | None = None,
) -> list[Served]:
    """Wait until everybody says the same of all pods of the cluster; returns them.

    Args:
        cluster: Whom to ask.
        within_s: How long they have.
        tell: Gets the contradictions of each look that finds some.
        since: Monotonic time from which `within_s` counts; by default, from now.

    Raises:
        CannotError: They do not in time; the text has the contradictions.
    """
    last: list[str] = []
    pods: list[Served] = []

    def agreed() -> bool:
        try:
            pods[:] = look(cluster)
        except MovingError as error:
            last[:] = [str(error)]
        else:
            waiting = claimed_by_waiting(cluster)
            last[:] = disagreements(pods, node(cluster), waiting)
        if last and tell is not None:
            tell(list(last))
        return not last

    until(
        agreed,
        lambda: "\n".join(["everybody agrees", *last]),
        within_s=within_s,
        since=since,
    )
    return pods


def _misreported(node: Node, owned: set[int], waiting: set[int]) -> Iterator[str]:
    held = set(node.held)
    if held - owned:
        yield f"leaked: the node holds {sorted(held - owned)}, which no pod has"
    if owned - held:
        yield f"the node does not hold {sorted(owned - held)}, which pods have"
    if node.releasing:
        yield f"the node still releases {node.releasing}"
    free = set(range(8)) - held - waiting - set(node.unhealthy)
    if set(node.available) != free:
        yield f"the node offers {node.available}, free are {sorted(free)}"


def _contradictions(pod: Served) -> Iterable[str]:
    for each in pod.containers:
        yield from _container_contradictions(f"{pod.name}/{each.name}", each)
    if pod.claimed != pod.chips or pod.real != pod.chips:
        yield (
            f"{pod.name} has {pod.chips}, claimed are {pod.claimed}, "
            f"AscendReal says {pod.real}"
        )
    if not set(pod.kubelet_ids) <= set(pod.kltdev):
        yield f"{pod.name}: kltDev {pod.kltdev}, pod-resources {pod.kubelet_ids}"
    shown = sum(each.wanted_count for each in pod.containers if each.is_running)
    if len(pod.kubelet_ids) != shown:
        yield f"{pod.name}: {shown} ids expected, pod-resources has {pod.kubelet_ids}"
    if pod.predicate_time != SERVED:
        yield f"{pod.name} is not confirmed: predicate-time {pod.predicate_time}"


def _container_contradictions(name: str, each: Mounted) -> Iterator[str]:
    if each.environment != each.devices:
        yield (
            f"{name} sees devices {each.devices}, its environment says "
            f"{each.environment}"
        )
    if len(each.environment) != each.wanted_count:
        yield f"{name} asked for {each.wanted_count} chips, has {each.environment}"
    if each.told not in {None, (each.environment, each.devices)}:
        yield f"{name} has {each.environment}, containerd was told {each.told}"


def _served(
    pod: Any, pids: dict[str, int], kubelet: api_pb2_grpc.PodResourcesListerStub
) -> Served:
    notes = pod.metadata.annotations or {}
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    request = api_pb2.GetPodResourcesRequest(
        pod_name=pod.metadata.name, pod_namespace=pod.metadata.namespace
    )
    try:
        answer = kubelet.Get(request, timeout=5)
        containers = tuple(_containers(pod, pids))
    except (OSError, KeyError, CannotError, grpc.RpcError) as error:
        raise MovingError(f"{name} cannot be looked at: {error}") from error
    ids = [
        each
        for shown in answer.pod_resources.containers
        for entry in shown.devices
        if entry.resource_name == RESOURCE
        for each in entry.device_ids
    ]
    return Served(
        name=name,
        containers=containers,
        kubelet_ids=numbers(",".join(ids)),
        claimed=numbers(notes.get(RESOURCE, "")),
        real=numbers(notes.get("huawei.com/AscendReal", "")),
        kltdev=numbers(notes.get("huawei.com/kltDev", "")),
        predicate_time=notes.get("predicate-time", ""),
    )


def _containers(pod: Any, pids: dict[str, int]) -> Iterator[Mounted]:
    wanted = _wanted(pod)
    for status in [
        *(pod.status.init_container_statuses or []),
        *(pod.status.container_statuses or []),
    ]:
        if status.name not in wanted:
            continue
        if not status.container_id:
            raise KeyError(status.name)
        uid = status.container_id.removeprefix("containerd://")
        told = _told(uid)
        seen = mounted(pids[uid]) if status.state.running else told
        yield Mounted(
            name=status.name,
            wanted_count=wanted[status.name],
            environment=seen[0],
            devices=seen[1],
            is_running=bool(status.state.running),
            told=told,
        )


def mounted(pid: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Environment and devices of a container, through its first process."""
    process = Path("/proc") / str(pid)
    text = (process / "environ").read_bytes().decode()
    devices = [each.name for each in (process / "root" / "dev").glob("davinci*")]
    return _visible(text.split("\0")), numbers(",".join(devices))


@functools.lru_cache(maxsize=256)  # it is told once and for all
def _told(container_id: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    spec = json.loads(ctr("containers", "info", container_id))["Spec"]
    paths = [each["path"] for each in spec["linux"].get("devices") or []]
    devices = [path for path in paths if path.startswith("/dev/davinci")]
    return _visible(spec["process"]["env"]), numbers(",".join(devices))


def _visible(lines: Iterable[str]) -> tuple[int, ...]:
    environment = dict(line.split("=", 1) for line in lines if "=" in line)
    return numbers(environment.get(_VISIBLE, ""))


def _wanted(pod: Any) -> dict[str, int]:
    every = [*(pod.spec.init_containers or []), *pod.spec.containers]
    counts = {
        each.name: int((each.resources.limits or {}).get(RESOURCE, 0)) for each in every
    }
    return {name: count for name, count in counts.items() if count}


def numbers(text: str) -> tuple[int, ...]:
    """Chips, in whatever notation: "Ascend910-2,Ascend910-0", "2,0", "davinci2"."""
    return tuple(sorted(int(found) for found in re.findall(r"(\d+)(?:,|$)", text)))
