"""Clusters with leaf switches and SuperPoDs, and jobs planned on them."""

import json
from collections.abc import Mapping

from extender.cache import events
from extender.cache.cache import Cache
from extender.planning import plan
from extender.planning.topology import NetworkTopology, Rules
from scheduler_core.products import table
from scheduler_core.products.lookup import Traits
from scheduler_core.products.table import ATLAS_800_TRAINING, Product
from scheduler_core.wire import deviceinfo, inventory
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from tests.extender.clusters import NOW_NS, NOW_S, apply

A3 = table.by_key("atlas-a3-16-superpod")
LARGE = Traits(labels={"tor-affinity": "large-model-schema"})


def add_node(
    cache: Cache,
    name: str,
    product: Product = ATLAS_800_TRAINING,
    *,
    address: str = "",
    superpod: int = -2,
    addresses: Addresses | None = None,
) -> None:
    every = range(product.chip_count)
    texts = deviceinfo.render(
        DeviceInfo(
            available=tuple(every), update_time=int(NOW_S), super_pod_id=superpod
        ),
        Affinity(sequence=1),
        product,
    )
    apply(
        cache,
        events.NodeUpdated(
            name=name,
            product=product,
            inventory=inventory.render(every, product, addresses),
            allocatable=product.chip_count,
            address=address,
        ),
        events.ReportUpdated(
            node=name,
            device_info=texts[deviceinfo.DEVICE_INFO_KEY],
            affinity=texts[deviceinfo.AFFINITY_KEY],
        ),
    )


def leaves(*servers: tuple[str, ...]) -> events.SwitchesUpdated:
    """The ConfigMap of leaves with these addresses."""
    listed = [
        {
            "tor_id": number,
            "tor_ip": f"1.0.0.{number}",
            "server": [
                {"server_ip": ip, "npu_count": 8, "slice_id": at}
                for at, ip in enumerate(ips)
            ],
        }
        for number, ips in enumerate(servers)
    ]
    info = {"version": "1.0", "tor_count": 2, "server_list": listed}
    return events.SwitchesUpdated(tor_info=json.dumps(info))


def switched(*names: str) -> Cache:
    """Nodes with the addresses 10.0.0.1 and so on, two to a leaf."""
    cache = Cache()
    for number, name in enumerate(names, start=1):
        add_node(cache, name, ATLAS_800_TRAINING, address=f"10.0.0.{number}")
    ips = [f"10.0.0.{number}" for number in range(1, len(names) + 1)]
    pairs = [tuple(ips[at : at + 2]) for at in range(0, len(ips), 2)]
    apply(cache, leaves(*pairs))
    return cache


def planned(
    cache: Cache, names: tuple[str, ...], rules: Rules, job: str = "j"
) -> dict[str, tuple[str, Mapping[str, str]]] | str:
    """{pod: its node, and what is written on it}, or why there is no room."""
    gang = cache.gangs.jobs[f"Job of pods/default/{job}"]
    topology = NetworkTopology(cache, rules).snapshot(gang)
    found = plan.plan(cache, gang, names, NOW_NS, topology)
    if isinstance(found, str):
        return found
    for reservation in found:
        apply(cache, reservation)
    return {cache.pods[p.uid].name: (p.node, p.extra) for p in found}
