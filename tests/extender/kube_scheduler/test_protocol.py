import json
from collections.abc import Callable
from pathlib import Path

import pytest

from extender.http.body import BodyError
from extender.kube_scheduler import protocol
from extender.kube_scheduler.protocol import BindArgs, Victims

BODIES = Path(__file__).parents[1] / "bodies"


def recorded(name: str) -> bytes:
    return (BODIES / name).read_bytes()


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_a_recorded_body_with_names_gives_pod_and_names_in_their_order(
    verb: str,
) -> None:
    args = protocol.nodes_args(recorded(f"kube-scheduler-{verb}-names.json"))

    assert args.pod.metadata.name == "a1"
    assert args.candidates.names == ("node2", "node3", "node1")
    assert args.candidates.nodes is None


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_a_recorded_body_with_nodes_gives_their_names(verb: str) -> None:
    body = recorded(f"kube-scheduler-{verb}-nodes.json")

    args = protocol.nodes_args(body)

    assert args.pod.metadata.name == "b1"
    sent = [item["metadata"]["name"] for item in json.loads(body)["Nodes"]["items"]]
    assert args.candidates.names == tuple(sent)


def test_a_recorded_bind_is_read() -> None:
    assert protocol.bind_args(recorded("kube-scheduler-bind.json")) == BindArgs(
        namespace="default",
        name="a1",
        uid="c78e0561-99a0-4e27-8949-ed66fcfd913d",
        node="node2",
    )


def test_keys_are_read_in_any_case() -> None:
    body = b'{"podnamespace":"d","PODNAME":"p","podUID":"u","node":"n"}'

    assert protocol.bind_args(body) == BindArgs(
        namespace="d", name="p", uid="u", node="n"
    )
    args = protocol.nodes_args(b'{"pod":{"metadata":{"name":"x"}},"nodeNAMES":["n"]}')
    assert (args.pod.metadata.name, args.candidates.names) == ("x", ("n",))


def test_nodes_are_answered_as_nodes_word_for_word() -> None:
    body = recorded("kube-scheduler-filter-nodes.json")
    args = protocol.nodes_args(body)

    answer = protocol.filter_answer(
        args.candidates, ["node2"], failed={"node1": "no"}, unresolvable={"node3": "x"}
    )

    sent = {
        item["metadata"]["name"]: item for item in json.loads(body)["Nodes"]["items"]
    }
    assert json.loads(answer) == {
        "Nodes": {"items": [sent["node2"]]},
        "FailedNodes": {"node1": "no"},
        "FailedAndUnresolvableNodes": {"node3": "x"},
        "Error": "",
    }


def test_names_are_answered_as_names_even_if_there_are_none_left() -> None:
    args = protocol.nodes_args(recorded("kube-scheduler-filter-names.json"))

    answer = protocol.filter_answer(args.candidates, [], failed={}, unresolvable={})

    assert json.loads(answer)["NodeNames"] == []


def test_a_recorded_preempt_gives_the_victims_of_each_node() -> None:
    body = recorded("kube-scheduler-preempt-meta-victims.json")

    args = protocol.preempt_args(body)

    assert args.pod.metadata.name == "hi1"
    assert {node: len(found.uids) for node, found in args.victims.items()} == {
        "node1": 1,
        "node2": 2,
        "node3": 1,
    }
    left = json.loads(protocol.preempt_answer(args.victims))["NodeNameToMetaVictims"]
    assert left == json.loads(body)["NodeNameToMetaVictims"]


def test_victims_as_whole_pods_are_read_by_their_uid() -> None:
    pods = [{"metadata": {"name": "a", "uid": "u1"}, "spec": {}}]
    victims = {"n1": {"Pods": pods, "NumPDBViolations": 1}}
    body = {"Pod": {}, "NodeNameToVictims": victims, "NodeNameToMetaVictims": None}

    args = protocol.preempt_args(json.dumps(body).encode())

    assert args.victims == {"n1": Victims(uids=("u1",), violations=1)}


@pytest.mark.parametrize(
    ("read", "body", "where"),
    [
        (protocol.nodes_args, b"", "body"),
        (protocol.nodes_args, b"[]", "body"),
        (protocol.nodes_args, b"\xff", "body"),
        (protocol.nodes_args, b'{"NodeNames":[]}', "Pod"),
        (protocol.nodes_args, b'{"Pod":7}', "Pod"),
        (protocol.nodes_args, b'{"Pod":{},"NodeNames":[1]}', "NodeNames"),
        (protocol.nodes_args, b'{"Pod":{},"Nodes":{"items":[{}]}}', "Nodes.items[0]"),
        (protocol.preempt_args, b"{}", "Pod"),
        (
            protocol.preempt_args,
            b'{"Pod":{},"NodeNameToVictims":[]}',
            "NodeNameToVictims",
        ),
        (
            protocol.preempt_args,
            b'{"Pod":{},"NodeNameToMetaVictims":{"n":7}}',
            "NodeNameToMetaVictims",
        ),
    ],
)
def test_a_body_that_is_none_says_which_key_is_wrong(
    read: Callable[[bytes], object], body: bytes, where: str
) -> None:
    with pytest.raises(BodyError) as caught:
        read(body)

    assert str(caught.value).startswith(where)


def test_a_bind_without_a_uid_is_refused() -> None:
    with pytest.raises(BodyError) as caught:
        protocol.bind_args(b'{"PodName":"p","PodNamespace":"d","Node":"n"}')

    assert str(caught.value) == "PodUID: expected a text, found nothing"
