"""Nodes that a pod's selector, affinity and tolerations admit."""

from typing import Any

import pytest

from extender.gang.demands import read_demands
from extender.scheduling import node_demands
from kube.objects import UNSCHEDULABLE, Pod, Taint, convert

LABELS = {"zone": "a", "cores": "32", "empty": ""}
KEEPS = Taint(key="k", value="v", effect="NoSchedule")
EVICTS = Taint(key="k", value="v", effect="NoExecute")


def admits(*taints: Taint, **spec: Any) -> bool:
    """Whether a pod with this spec may be on n1, by the demands that are read of it."""
    pod = convert({"metadata": {"name": "a"}, "spec": spec}, Pod)
    on_nodes = read_demands(pod).on_nodes
    return node_demands.admits(on_nodes, "n1", LABELS, taints)


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {key: {"nodeSelectorTerms": list(terms)}}}


def labels(key: str, operator: str, *values: str) -> dict[str, Any]:
    part = {"key": key, "operator": operator, "values": list(values)}
    return {"matchExpressions": [part]}


def test_a_pod_without_demands_may_be_on_any_open_node() -> None:
    assert admits()
    assert not admits(KEEPS)
    assert not admits(EVICTS)
    assert not admits(UNSCHEDULABLE)
    assert admits(Taint(key="k", effect="PreferNoSchedule"))


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "x", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_keeps_off_pods_that_do_not_tolerate_it(
    toleration: dict[str, str], *, is_tolerated: bool
) -> None:
    assert admits(KEEPS, tolerations=[toleration]) is is_tolerated


def test_each_taint_needs_its_toleration() -> None:
    one = {"key": "k", "operator": "Exists"}
    other = {"key": UNSCHEDULABLE.key, "operator": "Exists"}

    assert not admits(KEEPS, UNSCHEDULABLE, tolerations=[one])
    assert admits(KEEPS, UNSCHEDULABLE, tolerations=[one, other])


@pytest.mark.parametrize(
    ("selector", "is_admitted"),
    [({"zone": "a"}, True), ({"zone": "b"}, False), ({"zone": "a", "x": ""}, False)],
)
def test_a_selector_needs_all_its_labels(
    selector: dict[str, str], *, is_admitted: bool
) -> None:
    assert admits(nodeSelector=selector) is is_admitted


@pytest.mark.parametrize(
    ("term", "is_admitted"),
    [
        (labels("zone", "In", "a", "b"), True),
        (labels("zone", "In", "b"), False),
        (labels("x", "In", "b"), False),
        (labels("zone", "NotIn", "a"), False),
        (labels("zone", "NotIn", "b"), True),
        (labels("x", "NotIn", "b"), True),
        (labels("empty", "Exists"), True),
        (labels("x", "Exists"), False),
        (labels("zone", "DoesNotExist"), False),
        (labels("x", "DoesNotExist"), True),
        (labels("cores", "Gt", "31"), True),
        (labels("cores", "Gt", "32"), False),
        (labels("cores", "Lt", "33"), True),
        (labels("cores", "Lt", "many"), False),
        (labels("zone", "Gt", "1"), False),
        (labels("x", "Lt", "1"), False),
        (labels("zone", "Near", "a"), False),
        ({}, False),
    ],
)
def test_each_operator_of_an_affinity(
    term: dict[str, Any], *, is_admitted: bool
) -> None:
    assert admits(affinity=required(term)) is is_admitted


def test_one_term_of_an_affinity_suffices_and_all_parts_of_it_are_needed() -> None:
    good, bad = labels("zone", "In", "a"), labels("zone", "In", "b")
    both = {"matchExpressions": good["matchExpressions"] + bad["matchExpressions"]}

    assert admits(affinity=required(bad, good))
    assert not admits(affinity=required(both))
    assert not admits(affinity=required())


@pytest.mark.parametrize(("name", "is_admitted"), [("n1", True), ("n2", False)])
def test_an_affinity_may_name_the_node(name: str, *, is_admitted: bool) -> None:
    part = {"key": "metadata.name", "operator": "In", "values": [name]}

    assert admits(affinity=required({"matchFields": [part]})) is is_admitted
