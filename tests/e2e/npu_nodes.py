"""Nodes that consist of what the API server has of them: no kubelet, no agent."""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from sandbox.apiclient import ApiClient, Object
from scheduler_core.products import lookup
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products.table import Product
from scheduler_core.wire import deviceinfo, inventory
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from service import clock
from tests.support import objects


async def create(api: ApiClient, name: str, product: Product = PRODUCT) -> None:
    """Make a node whose chips are free, and the ConfigMap that an agent writes."""
    base = inventory.render(range(product.chip_count), product)
    await _create(
        api,
        name,
        product,
        labels=kind_of(product),
        annotations={inventory.BASE_DEVICE_INFOS: base},
    )
    data = report(product=product)
    await api.create(objects.CONFIGMAPS, objects.report(name, data))


def kind_of(product: Product) -> dict[str, str]:
    """The label by which nodes of a kind are told; {} where they need none."""
    types = product.accelerator_types
    return {lookup.ACCELERATOR_TYPE: types[-1]} if types and "" not in types else {}


async def remove(api: ApiClient, name: str) -> None:
    """Delete such a node, with what its agent would have written."""
    await api.delete(f"{objects.NODES}/{name}", grace_s=0)
    await api.delete(_path(name), grace_s=0)


async def create_bare(
    api: ApiClient, name: str, product: Product, *, address: str, superpod: int
) -> None:
    """Make a node of which nothing is known but what its own object says."""
    await _create(
        api,
        name,
        product,
        labels={"accelerator-type": product.accelerator_types[-1]},
        annotations={"superPodID": str(superpod)},
        addresses=[{"type": "InternalIP", "address": address}],
    )


async def _create(
    api: ApiClient,
    name: str,
    product: Product,
    *,
    annotations: Mapping[str, str],
    labels: Mapping[str, str] = MappingProxyType({}),
    addresses: Sequence[Object] = (),
) -> None:
    has = {"pods": "110", "cpu": "192", "memory": "791621632Ki"}
    has[product.resource] = str(product.chip_count)
    marks = {"kubernetes.io/hostname": name, **labels}
    body = objects.node(name, labels=marks, annotations=annotations)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = objects.offered(**has)["status"]
    body["status"] = status | {"conditions": [ready], "addresses": addresses}
    await api.create(objects.NODES, body)
    # The API server taints what nobody has called ready yet, and a controller,
    # which may not run here, takes the taint away.
    await api.patch(f"{objects.NODES}/{name}", {"spec": {"taints": None}})


async def set_report(
    api: ApiClient,
    name: str,
    product: Product = PRODUCT,
    *,
    held: Iterable[int] = (),
    broken: Iterable[int] = (),
) -> None:
    """Say, as the node's agent would, which chips are held and which are broken."""
    data = report(held=held, broken=broken, product=product)
    await api.patch(_path(name), {"data": data})


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
    product: Product = PRODUCT,
) -> dict[str, str]:
    """The ConfigMap's texts; by default it lists what is neither held nor broken."""
    taken, leaving, unfit = tuple(held), tuple(releasing), tuple(broken)
    used = {*taken, *leaving, *unfit}
    free = tuple(i for i in range(product.chip_count) if i not in used)
    info = DeviceInfo(
        available=free if listed is None else tuple(listed),
        unhealthy=unfit,
        update_time=int(clock.wall_s()),
    )
    affinity = Affinity(held=taken, releasing=leaving, sequence=1)
    return deviceinfo.render(info, affinity, product)


def _path(name: str) -> str:
    return f"{objects.CONFIGMAPS}/{deviceinfo.configmap_name(name)}"


def pod(name: str, count: int = 0) -> Object:
    """A pod that asks for so many chips; 0: for none, as most pods."""
    return objects.pod(name, count, resource=PRODUCT.resource)


def whole(name: str, product: Product = PRODUCT) -> Object:
    """A pod that takes all chips of a node of a kind, and says which kind it means."""
    found = objects.pod(name, product.chip_count, resource=product.resource)
    if kind := kind_of(product):
        found["spec"]["nodeSelector"] = kind
    return found


async def taken(api: ApiClient) -> set[tuple[str, str]]:
    """{(node, chip)} of the pods, all of them bound; fails if two have one."""
    found = [
        (pod["spec"]["nodeName"], chip)
        for pod in await api.items(objects.PODS)
        for chip in pod["metadata"]["annotations"][PRODUCT.resource].split(",")
    ]
    assert len(found) == len(set(found)), sorted(found)
    return set(found)
