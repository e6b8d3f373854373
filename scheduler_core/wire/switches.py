"""ConfigMaps of leaf switches: the nodes under each leaf, and its use by jobs.

`basic-tor-node-cm` is read, from the operator:

    tor_info    {"version": "1.0", "tor_count": 4, "server_list": [
                  {"tor_id": 0, "tor_ip": "1.0.0.0", "server": [
                    {"server_ip": "1.1.0.0", "npu_count": 8, "slice_id": 0}, …]}, …]}
    tor_level   "single_layer", or nothing

`tor_count` is not read, since programs disagree on its meaning and the lists suffice.
A server is the node that has its address among its InternalIPs, however it is written.
A server whose address no node has keeps its position, so that all positions are right.
So does one whose node has a place already, by this or another of its addresses.

`tor-share-cm` is written, under `nslb-version` 2.0, for clusterd and for people:

    global-tor-info  {"1.0.0.0": {"IsHealthy": 0, "IsSharedTor": 2, "nodes": [
                       {"NodeIp": "1.1.0.0", "NodeName": "node-1",
                        "JobName": ["train"]}, …]}, …}
"""

import ipaddress
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from scheduler_core.node.decision import LeafUse
from scheduler_core.topology.leaves import Leaf, Network, Server, Version
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.typed import (
    as_array,
    as_integer,
    as_object,
    as_string,
    parse_json,
)

#: the ConfigMap, in `kube-system`
NAME = "basic-tor-node-cm"
TOR_INFO_KEY = "tor_info"
TOR_LEVEL_KEY = "tor_level"

#: ConfigMap with the use of the leaves by jobs
SHARE_NAME = "tor-share-cm"
SHARE_KEY = "global-tor-info"


def parse(
    tor_info: str,
    nodes: Mapping[str, Sequence[str]],
    *,
    tor_level: str = "",
    version: Version = Version.ONE,
    shared_leaves: int = 2,
) -> Network:
    """Parse the network that the ConfigMap describes, without jobs.

    Args:
        tor_info: Text of the key `tor_info`.
        nodes: {name of the node: its InternalIPs}. An address of several nodes names
            none of them.
        tor_level: Text of the key `tor_level`; "" when it is missing.
        version: Version of the settings; a single layer overrides it.
        shared_leaves: As in `Network`.

    Raises:
        WireError: The text breaks the format.
    """
    root = as_object(parse_json(tor_info, TOR_INFO_KEY), TOR_INFO_KEY)
    path = f"{TOR_INFO_KEY}.server_list"
    node_at = _node_at(nodes)
    leaves = tuple(
        _leaf(item, node_at, f"{path}[{index}]")
        for index, item in enumerate(as_array(root.get("server_list"), path))
    )
    names: set[str] = set()
    for leaf in leaves:
        if leaf.name in names:
            raise WireError(path, expected="each tor_id once", found=leaf.name)
        names.add(leaf.name)
    is_single = tor_level == Version.SINGLE_LAYER.value
    return Network(
        leaves=tuple(_place_once(leaves)),
        version=Version.SINGLE_LAYER if is_single else version,
        shared_leaves=shared_leaves,
    )


def render_share(network: Network, jobs: Mapping[str, Collection[str]]) -> str:
    """Render the text of `global-tor-info`.

    Args:
        network: Leaves, with their present use.
        jobs: {node: names of the jobs on it}.

    Source:
        MindCluster ascend-for-volcano, `tor-share-cm`: order of keys; leaves by
        address, as Go writes a map. Its order of jobs is random; ours is by name.
    """
    document = {
        leaf.address: {
            "IsHealthy": 0 if leaf.healthy else 1,
            "IsSharedTor": int(leaf.use),
            "nodes": [
                {
                    "NodeIp": server.address,
                    "NodeName": server.node,
                    "JobName": sorted(jobs.get(server.node, ())),
                }
                for server in leaf.servers
            ],
        }
        for leaf in sorted(network.leaves, key=lambda leaf: leaf.address)
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _node_at(nodes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return {address: node}; "" for an address that several nodes have."""
    node_at: dict[str, str] = {}
    for node, addresses in nodes.items():
        for address in {*map(_canonical, addresses)}:
            node_at[address] = "" if address in node_at else node
    return node_at


def _canonical(address: str) -> str:
    """Return the one spelling of an IP address; a text that is none stays as it is."""
    try:
        parsed = ipaddress.ip_address(address.strip().strip("[]"))
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _leaf(item: object, node_at: Mapping[str, str], path: str) -> Leaf:
    fields = as_object(item, path)
    servers = as_array(fields.get("server"), f"{path}.server")
    use = as_integer(fields.get("IsSharedTor", 0), f"{path}.IsSharedTor")
    if use not in tuple(LeafUse):
        raise WireError(f"{path}.IsSharedTor", expected="0, 1 or 2", found=use)
    return Leaf(
        name=str(as_integer(fields.get("tor_id"), f"{path}.tor_id")),
        servers=tuple(
            _server(server, node_at, f"{path}.server[{index}]")
            for index, server in enumerate(servers)
        ),
        use=LeafUse(use),
        healthy=as_integer(fields.get("IsHealthy", 0), f"{path}.IsHealthy") == 0,
        address=as_string(fields.get("tor_ip", ""), f"{path}.tor_ip"),
    )


def _place_once(leaves: Iterable[Leaf]) -> Iterator[Leaf]:
    """Yield the leaves, with each node at the first of its places only."""
    placed: set[str] = set()
    for leaf in leaves:
        servers: list[Server] = []
        for server in leaf.servers:
            is_placed = server.node in placed
            servers.append(replace(server, node="") if is_placed else server)
            placed.add(server.node)
        yield replace(leaf, servers=tuple(servers))


def _server(item: object, node_at: Mapping[str, str], path: str) -> Server:
    fields = as_object(item, path)
    address = as_string(fields.get("server_ip"), f"{path}.server_ip")
    return Server(
        node=node_at.get(_canonical(address), ""),
        slice_id=as_integer(fields.get("slice_id"), f"{path}.slice_id"),
        address=address,
    )
