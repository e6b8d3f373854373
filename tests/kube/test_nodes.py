import pytest

from kube import nodes
from kube.errors import MalformedError
from kube.objects import Node, NodeAddress, NodeStatus
from tests.kube.server import Answer, Request, Script

RAW = {
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"unschedulable": True, "podCIDR": "10.0.0.0/24"},
    "status": {
        "capacity": {"huawei.com/Ascend910": "8"},
        "allocatable": {"huawei.com/Ascend910": "7", "cpu": "4"},
        "addresses": [
            {"type": "Hostname", "address": "n1"},
            {"type": "InternalIP", "address": "10.1.1.1"},
        ],
    },
}


async def test_a_node_is_read(script: Script) -> None:
    script.will(Answer(body=RAW))

    node = await nodes.get(script.client, "n1")

    assert script.requests[0].path == "/api/v1/nodes/n1"
    assert (node.labels, node.annotations) == ({"a": "b"}, {"c": "d"})
    assert node.allocatable == {"huawei.com/Ascend910": "7", "cpu": "4"}
    assert node.capacity == {"huawei.com/Ascend910": "8"}
    assert node.internal_ip == "10.1.1.1"


async def test_a_node_is_found_in_a_list_of_that_one(script: Script) -> None:
    script.will(Answer(body={"metadata": {"resourceVersion": "7"}, "items": [RAW]}))
    script.will(Answer(body={"metadata": {"resourceVersion": "8"}, "items": []}))

    node = await nodes.find(script.client, "n1")

    (request,) = script.requests
    assert request.path == "/api/v1/nodes"
    assert request.query["fieldSelector"] == "metadata.name=n1"
    assert node is not None
    assert node.annotations == {"c": "d"}
    assert await nodes.find(script.client, "n1") is None


def test_a_bare_node_has_empty_fields() -> None:
    node = Node()

    assert (node.labels, node.annotations, node.allocatable) == ({}, {}, {})
    assert (node.capacity, node.internal_ip) == ({}, "")


def test_d6_an_internal_ip_that_is_empty_is_none() -> None:
    addresses = [
        NodeAddress(type="InternalIP", address=text)
        for text in ("", "10.1.1.1", "fd00::1")
    ]

    node = Node(status=NodeStatus(addresses=addresses))

    assert node.internal_ips == ("10.1.1.1", "fd00::1")


async def test_only_what_is_given_is_patched(script: Script) -> None:
    script.will(Answer(body=RAW))

    await nodes.patch(script.client, "n1", annotations={"x": "1", "y": None})

    assert script.requests == [
        Request(
            method="PATCH",
            path="/api/v1/nodes/n1",
            query={},
            body={"metadata": {"annotations": {"x": "1", "y": None}}},
        )
    ]


async def test_a_strange_answer_is_malformed(script: Script) -> None:
    script.will(Answer(raw=b"[]"))

    with pytest.raises(MalformedError, match="/api/v1/nodes/n1"):
        await nodes.get(script.client, "n1")
