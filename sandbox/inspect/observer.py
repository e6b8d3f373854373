"""Reads what is from where it is true: API server, kubelets, plugins.

The few wire formats are read here by ourselves: whoever checks a codec with the
same codec checks nothing.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

import grpc.aio

from kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from sandbox.apiclient import Changed, Listed, Object
from sandbox.inspect.facts import Chips, Choice, Cluster, Mount, NodeFacts, PodFacts
from sandbox.world import RESOURCE, World

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
REAL = "huawei.com/AscendReal"
PREDICATE_TIME = "predicate-time"
CONFIGURATION = "ascend.kubectl.kubernetes.io/ascend-910-configuration"

#: What predicate-time says of a pod that has been served: 2^64 - 1.
_SERVED = str(2**64 - 1)
_LOOK_S = 0.02
T = TypeVar("T")


class NotSeenError(Exception):
    """What should have come did not come in time."""


def config_map_path(node: str) -> str:
    """Return the path of a node's ConfigMap."""
    return f"{CONFIG_MAPS}/mindx-dl-deviceinfo-{node}"


async def cluster(world: World) -> Cluster:
    """Read everything as it is now."""
    nodes = [await node(world, name) for name in world.nodes]
    return Cluster(
        nodes=tuple(nodes), pods=await pods(world), mounts=tuple(mounts(world))
    )


async def pods(world: World) -> tuple[PodFacts, ...]:
    """Read all pods, in the order of their names."""
    items = await world.api.items(PODS)
    return tuple(sorted(map(pod_facts, items), key=lambda pod: pod.name))


def pod_facts(item: Object) -> PodFacts:
    """Return the facts that a pod object tells."""
    meta, spec, status = item["metadata"], item["spec"], item.get("status", {})
    annotations = meta.get("annotations") or {}
    limits = [c.get("resources", {}).get("limits", {}) for c in spec["containers"]]
    configuration = json.loads(annotations.get(CONFIGURATION, "{}"))
    return PodFacts(
        uid=meta["uid"],
        name=meta["name"],
        node=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        count=sum(int(limit.get(RESOURCE, 0)) for limit in limits),
        claimed=_chips(annotations, RESOURCE),
        real=_chips(annotations, REAL),
        is_confirmed=annotations.get(PREDICATE_TIME) == _SERVED,
        configured=_sorted(
            device["device_id"] for device in configuration.get("devices", ())
        ),
        host_ip=configuration.get("host_ip", ""),
        message=status.get("message", ""),
    )


def mounts(world: World) -> list[Mount]:
    """Read what running containers really have, in the order of starting."""
    return [
        Mount(
            node=name,
            pod_uid=record.pod_uid,
            pod=record.pod,
            ids=chips_of(record.ids),
            chips=_sorted(record.env.get("ASCEND_VISIBLE_DEVICES", "").split(",")),
        )
        for name, kubelet in world.kubelets.items()
        for record in kubelet.containers()
        if record.running
    ]


async def node(world: World, name: str) -> NodeFacts:
    """Read a node from the API server, its ConfigMap and its kubelet."""
    status = (await world.api.get(f"/api/v1/nodes/{name}"))["status"]
    published = (await world.api.get(config_map_path(name)))["data"]
    device_list = json.loads(published["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    affinity = json.loads(published.get("AscendAffinity", "{}"))
    addresses = {each["type"]: each["address"] for each in status["addresses"]}
    return NodeFacts(
        name=name,
        address=addresses["InternalIP"],
        capacity=int(status["capacity"].get(RESOURCE, 0)),
        allocatable=int(status["allocatable"].get(RESOURCE, 0)),
        listed=await listed(world, name),
        available=_chips(device_list, RESOURCE),
        unhealthy=_chips(device_list, f"{RESOURCE}-Unhealthy"),
        recovering=_chips(device_list, f"{RESOURCE}-Recovering"),
        held=chips_of(affinity.get("held", ())),
    )


async def allocatable(world: World, name: str) -> int:
    """Return how many chips a Node object offers."""
    status = (await world.api.get(f"/api/v1/nodes/{name}"))["status"]
    return int(status["allocatable"].get(RESOURCE, 0))


async def out_of_service(world: World, name: str) -> Chips:
    """Return the chips that a ConfigMap calls unhealthy or recovering."""
    published = (await world.api.get(config_map_path(name)))["data"]
    device_list = json.loads(published["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    unhealthy = _chips(device_list, f"{RESOURCE}-Unhealthy")
    recovering = _chips(device_list, f"{RESOURCE}-Recovering")
    return tuple(sorted({*unhealthy, *recovering}))


async def listed(world: World, name: str) -> Chips:
    """Ask a kubelet which device ids are healthy."""
    socket = world.nodes[name].pod_resources_socket
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stub = api_pb2_grpc.PodResourcesListerStub(channel)
        answer = await stub.GetAllocatableResources(
            api_pb2.AllocatableResourcesRequest()
        )
    return chips_of(
        device
        for devices in answer.devices
        if devices.resource_name == RESOURCE
        for device in devices.device_ids
    )


async def event(world: World, pod: PodFacts, reason: str) -> str:
    """Return the message of a pod's newest event with that reason, or ""."""
    items = await world.api.items(
        f"/api/v1/namespaces/{NAMESPACE}/events",
        fieldSelector=f"involvedObject.uid={pod.uid},reason={reason}",
    )
    return str(items[-1]["message"]) if items else ""


async def until(
    probe: Callable[[], Awaitable[T | None]],
    *,
    what: str,
    within_s: float = 10.0,
    pause_s: float = _LOOK_S,
) -> T:
    """Call `probe` again and again until it gives something true; return that.

    Args:
        probe: Reads something.
        what: What is waited for, for the error.
        within_s: How long to wait.
        pause_s: Between two calls.

    Raises:
        NotSeenError: it did not come.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not (found := await probe()):
        if loop.time() > deadline:
            raise NotSeenError(f"{what}: not seen within {within_s:g} s")
        await asyncio.sleep(pause_s)
    return found


async def watch_choices(world: World, choices: dict[str, Choice]) -> None:
    """Note for ever what bind writes on each pod, before anybody can change it.

    Args:
        world: The cluster.
        choices: Filled by pod uid; the first annotations of a pod stay.
    """
    async for change in world.api.follow(PODS):
        match change:
            case Changed(item=item):
                _note(item, choices)
            case Listed(items=items):
                for item in items:
                    _note(item, choices)


def chips_of(names: Iterable[str]) -> Chips:
    """Return the numbers behind names such as `Ascend910-3`, ascending."""
    return _sorted(name.rpartition("-")[2] for name in names)


def _note(item: Object, choices: dict[str, Choice]) -> None:
    meta = item["metadata"]
    annotations = meta.get("annotations") or {}
    node_name = item["spec"].get("nodeName", "")
    if meta["uid"] in choices or not node_name or RESOURCE not in annotations:
        return
    choices[meta["uid"]] = Choice(
        pod=meta["name"],
        node=node_name,
        chips=_chips(annotations, RESOURCE),
        predicate_time=int(annotations[PREDICATE_TIME]),
    )


def _chips(texts: Mapping[str, str], key: str) -> Chips:
    return chips_of(filter(None, texts.get(key, "").split(",")))


def _sorted(numbers: Iterable[str]) -> Chips:
    return tuple(sorted(int(n) for n in numbers if re.fullmatch(r"\d+", n)))
