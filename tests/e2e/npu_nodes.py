"""Nodes that consist of what the API server has of them: no kubelet, no agent."""

import json
from collections.abc import Iterable

from sandbox.apiclient import ApiClient, Object
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products.table import Product
from scheduler_core.wire import deviceinfo, inventory
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from service import clock

_PODS = "/api/v1/namespaces/default/pods"


async def create(api: ApiClient, name: str) -> None:
    """Make a node with eight free chips, and the ConfigMap that an agent writes."""
    await api.create("/api/v1/nodes", _node(name))
    # The API server taints what nobody has called ready yet, and a controller,
    # which may not run here, takes the taint away.
    await api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    path = f"/api/v1/namespaces/{deviceinfo.CONFIGMAP_NAMESPACE}/configmaps"
    meta = {"name": deviceinfo.configmap_name(name), "labels": {**deviceinfo.LABELS}}
    await api.create(path, {"metadata": meta, "data": report()})


async def create_bare(
    api: ApiClient, name: str, product: Product, *, address: str, superpod: int
) -> None:
    """Make a node of which nothing is known but what its own object says."""
    offered = {"pods": "110", "cpu": "192", "memory": "791621632Ki"}
    offered[product.resource] = str(product.chip_count)
    labels = {"kubernetes.io/hostname": name}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    node = {
        "metadata": {
            "name": name,
            "labels": labels | {"accelerator-type": product.accelerator_types[-1]},
            "annotations": {"superPodID": str(superpod)},
        },
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [ready],
        },
    }
    await api.create("/api/v1/nodes", node)
    await api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})


async def set_report(
    api: ApiClient, name: str, *, held: Iterable[int] = (), broken: Iterable[int] = ()
) -> None:
    """Say, as the node's agent would, which chips are held and which are broken."""
    await api.patch(_path(name), {"data": report(held=held, broken=broken)})


async def set_affinity(api: ApiClient, name: str, document: Object) -> None:
    """Say what an agent of another release might, beside what it says already."""
    text = json.dumps(document)
    await api.patch(_path(name), {"data": {deviceinfo.AFFINITY_KEY: text}})


def report(
    held: Iterable[int] = (),
    broken: Iterable[int] = (),
    *,
    releasing: Iterable[int] = (),
    listed: Iterable[int] | None = None,
) -> dict[str, str]:
    """The ConfigMap's texts; by default it lists what is neither held nor broken."""
    taken, leaving, unfit = tuple(held), tuple(releasing), tuple(broken)
    used = {*taken, *leaving, *unfit}
    free = tuple(i for i in range(PRODUCT.chip_count) if i not in used)
    info = DeviceInfo(
        available=free if listed is None else tuple(listed),
        unhealthy=unfit,
        update_time=int(clock.wall_s()),
    )
    affinity = Affinity(held=taken, releasing=leaving, sequence=1)
    return deviceinfo.render(info, affinity, PRODUCT)


def _path(name: str) -> str:
    return (
        f"/api/v1/namespaces/{deviceinfo.CONFIGMAP_NAMESPACE}/configmaps/"
        f"{deviceinfo.configmap_name(name)}"
    )


def _node(name: str) -> Object:
    quantities = {
        "cpu": "192",
        "memory": "791621632Ki",
        "pods": "110",
        PRODUCT.resource: str(PRODUCT.chip_count),
    }
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {
                inventory.BASE_DEVICE_INFOS: inventory.render(
                    range(PRODUCT.chip_count), PRODUCT
                )
            },
        },
        "status": {
            "capacity": quantities,
            "allocatable": quantities,
            "conditions": [ready],
        },
    }


def pod(name: str, count: int = 0) -> Object:
    """A pod that asks for so many chips; 0: for none, as most pods."""
    limits = {PRODUCT.resource: str(count)} if count else {}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


async def taken(api: ApiClient) -> set[tuple[str, str]]:
    """{(node, chip)} of the pods, all of them bound; fails if two have one."""
    found = [
        (pod["spec"]["nodeName"], chip)
        for pod in await api.items(_PODS)
        for chip in pod["metadata"]["annotations"][PRODUCT.resource].split(",")
    ]
    assert len(found) == len(set(found)), sorted(found)
    return set(found)
