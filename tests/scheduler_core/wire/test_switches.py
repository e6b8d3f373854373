import json

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
NODES = {"1.1.0.0": "node-a", "1.1.0.1": "node-b"}


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
