import json
from collections.abc import Mapping

import pytest

from scheduler_core.node.decision import LeafUse
from scheduler_core.topology.leaves import Leaf, Network, Server, Version
from scheduler_core.wire import switches
from scheduler_core.wire.annotations import WireError


def server(address: str, slice_id: int) -> dict[str, object]:
    return {"server_ip": address, "npu_count": 8, "slice_id": slice_id}


TWO = {
    "version": "1.0",
    "tor_count": 2,
    "server_list": [
        {"tor_id": 0, "tor_ip": "1.0.0.0", "server": [server("1.1.0.0", 0)]},
        {
            "tor_id": 7,
            "tor_ip": "1.0.0.1",
            "server": [server("1.1.0.9", 1), server("1.1.0.1", 0)],
            "IsSharedTor": 1,
            "IsHealthy": 1,
        },
    ],
}
NODES = {"node-a": ("1.1.0.0",), "node-b": ("1.1.0.1",)}


@pytest.mark.seed("003-05")
def test_servers_keep_their_positions_also_those_without_a_node() -> None:
    found = switches.parse(json.dumps(TWO), NODES, version=Version.TWO)

    assert found == Network(
        leaves=(
            Leaf(
                name="0",
                servers=(Server(node="node-a", slice_id=0, address="1.1.0.0"),),
                address="1.0.0.0",
            ),
            Leaf(
                name="7",
                servers=(
                    Server(node="", slice_id=1, address="1.1.0.9"),
                    Server(node="node-b", slice_id=0, address="1.1.0.1"),
                ),
                use=LeafUse.SHARED,
                healthy=False,
                address="1.0.0.1",
            ),
        ),
        version=Version.TWO,
    )
    assert found.width == 2


def servers(addresses: list[str], nodes: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The node of each of these servers of one leaf."""
    leaf = {"tor_id": 0, "server": [server(each, 0) for each in addresses]}
    (found,) = switches.parse(json.dumps({"server_list": [leaf]}), nodes).leaves
    return [each.node for each in found.servers]


@pytest.mark.parametrize(
    "written",
    [
        *("10.0.0.1", " 10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1"),
        *("fd00::a", "FD00:0:0::000A", "[fd00::a]"),
    ],
)
def test_d6_a_server_is_named_by_any_internal_ip_of_its_node(written: str) -> None:
    nodes = {"node-a": ("192.168.0.1", "fd00::a", "10.0.0.1"), "node-b": ("fd00::b",)}

    assert servers([written, "fd00::b"], nodes) == ["node-a", "node-b"]


def test_d6_an_address_that_several_nodes_have_names_none_of_them() -> None:
    bridge = "192.168.122.1"
    nodes = {
        name: (bridge, own) for name, own in (("a", "10.0.0.1"), ("b", "10.0.0.2"))
    }

    assert servers([bridge, "10.0.0.2", "10.0.0.1"], nodes) == ["", "b", "a"]
    assert servers(["10.0.0.1"], {"a": ("10.0.0.1", "10.0.0.1")}) == ["a"]
    assert servers([bridge], dict.fromkeys("abc", (bridge,))) == [""]


def test_d6_a_node_that_is_listed_by_several_addresses_has_its_first_place() -> None:
    nodes = {"a": ("10.0.0.1", "fd00::a"), "b": ("10.0.0.2", "fd00::b")}
    leaves = [
        {"tor_id": tor, "server": [server(each, 0) for each in addresses]}
        for tor, addresses in enumerate(
            [("fd00::a", "10.0.0.1"), ("10.0.0.2", "FD00::A", "fd00::b")]
        )
    ]

    found = switches.parse(json.dumps({"server_list": leaves}), nodes)

    assert found.groups == (("a", ""), ("b", "", ""))


def test_d6_what_is_no_address_is_compared_as_a_text() -> None:
    assert servers(["rack-1"], {"node-a": ("rack-1",)}) == ["node-a"]
    assert servers(["rack-1"], {"node-a": ("rack-2",)}) == [""]


def test_a_single_layer_has_no_version() -> None:
    found = switches.parse(
        json.dumps(TWO), NODES, tor_level="single_layer", version=Version.TWO
    )

    assert found.version is Version.SINGLE_LAYER


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "tor_info: expected JSON"),
        ("{}", "tor_info.server_list: expected a list"),
        (
            '{"server_list": [{"tor_id": "x", "server": []}]}',
            "tor_info.server_list[0].tor_id: expected a whole number",
        ),
        (
            '{"server_list": [{"tor_id": 1, "server": [{"slice_id": 0}]}]}',
            "tor_info.server_list[0].server[0].server_ip: expected a text",
        ),
        (
            '{"server_list": [{"tor_id": 1, "server": [], "IsSharedTor": 3}]}',
            "tor_info.server_list[0].IsSharedTor: expected 0, 1 or 2, found 3",
        ),
        (
            json.dumps({"server_list": [{"tor_id": 1, "server": []}] * 2}),
            "tor_info.server_list: expected each tor_id once, found '1'",
        ),
    ],
)
def test_what_is_no_network_is_refused_with_its_path(text: str, error: str) -> None:
    with pytest.raises(WireError) as caught:
        switches.parse(text, NODES)

    assert str(caught.value).startswith(error)
