"""What a pod demands of its node and of the pods there, as it is written."""

from typing import Any

import msgspec
import pytest

from extender.gang.demands import read_demands
from kube import objects
from scheduler_core.placement.siblings import FREE, Demands, HostPort, Requirement
from tests.extender.scheduler_rules import spread, term
from tests.support.objects import container, pod

JOB = {"job": "j"}
OF_JOB = (Requirement("job", "In", frozenset({"j"})),)


def read(
    *containers: Any, labels: dict[str, str] | None = None, **spec: Any
) -> Demands:
    """The demands of a pod with these containers and fields of its spec."""
    found = pod("a", containers=containers, meta={"labels": labels or JOB}, **spec)
    return read_demands(msgspec.convert(found, objects.Pod))


def with_ports(*ports: dict[str, Any], **more: Any) -> Any:
    return {**container(), "ports": list(ports), **more}


def test_a_pod_without_demands_is_of_no_kind() -> None:
    assert read() == FREE
    assert read(with_ports({"containerPort": 80})) == FREE


def test_host_ports_are_those_of_all_containers_that_stay() -> None:
    demands = read(
        with_ports({"hostPort": 80, "protocol": "TCP"}, {"containerPort": 1}),
        with_ports({"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}),
        initContainers=[
            with_ports({"hostPort": 1, "protocol": "TCP"}),
            with_ports({"hostPort": 2, "protocol": "TCP"}, restartPolicy="Always"),
        ],
    )

    assert demands.ports == (
        HostPort(2),
        HostPort(80),
        HostPort(53, "UDP", "10.0.0.1"),
    )


def test_ports_of_a_template_on_the_network_of_the_node_are_those_of_its_pods() -> None:
    """The API server writes the host ports into pods, and into no template."""
    port = {"containerPort": 29500, "protocol": "TCP"}
    in_template = read(with_ports(port), hostNetwork=True)
    in_pod = read(with_ports({**port, "hostPort": 29500}), hostNetwork=True)

    assert in_template == in_pod
    assert in_pod.ports == (HostPort(29500),)


def test_required_affinity_on_the_host_name_is_read() -> None:
    demands = read(
        affinity={"podAffinity": term({"a": "b"}), "podAntiAffinity": term(JOB)}
    )

    assert demands.together == ((Requirement("a", "In", frozenset({"b"})),),)
    assert demands.apart == (OF_JOB,)


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        ({}, True),
        ({"topologyKey": "topology.kubernetes.io/zone"}, False),
        ({"namespaces": ["default"]}, True),
        ({"namespaces": ["other"]}, False),
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, False),
        ({"labelSelector": None}, False),
    ],
)
def test_a_term_about_other_pods_or_places_is_not(
    change: dict[str, Any], *, is_read: bool
) -> None:
    terms = term(JOB)
    terms = {key: [{**each[0], **change}] for key, each in terms.items()}

    assert bool(read(affinity={"podAntiAffinity": terms}).apart) is is_read


def test_what_is_preferred_only_is_not_read() -> None:
    soft = {**spread(JOB), "whenUnsatisfiable": "ScheduleAnyway"}

    demands = read(topologySpreadConstraints=[soft])

    assert demands.spreads == ()


def test_a_selector_without_labels_is_about_all_pods() -> None:
    assert read(affinity={"podAntiAffinity": term({})}).apart == ((),)


def test_a_spread_counts_pods_with_the_labels_that_it_names_by_key() -> None:
    constraint = {**spread(JOB, skew=2), "matchLabelKeys": ["hash"], "minDomains": 3}

    demands = read(labels={**JOB, "hash": "x"}, topologySpreadConstraints=[constraint])

    hashed = Requirement("hash", "In", frozenset({"x"}))
    assert demands.spreads == ((2, (*OF_JOB, hashed), 3),)


def test_expressions_are_requirements() -> None:
    selector = {
        "matchExpressions": [
            {"key": "a", "operator": "NotIn", "values": ["b", "c"]},
            {"key": "d", "operator": "Exists"},
        ]
    }
    terms = {
        key: [{**each[0], "labelSelector": selector}] for key, each in term(JOB).items()
    }

    assert read(affinity={"podAntiAffinity": terms}).apart == (
        (Requirement("a", "NotIn", frozenset({"b", "c"})), Requirement("d", "Exists")),
    )


DIFFERENT: dict[str, dict[str, Any]] = {
    "selector": {"nodeSelector": {"pool": "a"}},
    "another selector": {"nodeSelector": {"pool": "b"}},
    "tolerations": {"tolerations": [{"key": "k", "operator": "Exists"}]},
    "node affinity": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": []}]
                }
            }
        }
    },
    "anti-affinity in zones": {
        "affinity": {"podAntiAffinity": term(JOB, "topology.kubernetes.io/zone")}
    },
    "nothing": {},
}


def test_pods_with_equal_demands_are_one_kind_and_others_are_not() -> None:
    kinds = {name: read(**spec).kind for name, spec in DIFFERENT.items()}

    assert len(set(kinds.values())) == len(DIFFERENT)
    assert kinds == {
        name: read(labels={**JOB, "index": "1"}, **spec).kind
        for name, spec in DIFFERENT.items()
    }


def test_tolerations_that_admission_adds_to_each_pod_make_no_kind() -> None:
    """Templates lack them, so pods that come later would be of another kind."""
    added = [
        {
            "key": f"node.kubernetes.io/{name}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for name in ("not-ready", "unreachable")
    ]
    own = {"key": "k", "operator": "Exists"}

    assert read(tolerations=added) == FREE
    assert read(tolerations=[own, *added]) == read(tolerations=[own])
    assert read(tolerations=[{**added[0], "effect": "NoSchedule"}]) != FREE


def test_a_pod_near_others_awaits_them_in_any_domain() -> None:
    lead = {"role": "lead"}
    near = term(lead, "topology.kubernetes.io/zone")
    demands = read(affinity={"podAffinity": near})

    assert (demands.together, demands.concern_siblings) == ((), False)
    assert demands.awaits_pod(lead)
    assert not demands.awaits_pod(JOB)


@pytest.mark.parametrize(
    ("spec", "is_unread"),
    [
        ({"affinity": {"podAffinity": term(JOB)}}, False),
        ({"affinity": {"podAffinity": term(JOB, "zone")}}, True),
        ({"affinity": {"podAntiAffinity": term(JOB, "zone")}}, True),
        ({"topologySpreadConstraints": [spread(JOB)]}, False),
        ({"topologySpreadConstraints": [spread(JOB, key="zone")]}, True),
    ],
)
def test_demands_that_no_plan_looks_at_are_known_to_be_there(
    spec: dict[str, Any], is_unread: bool
) -> None:
    assert read(**spec).has_unread is is_unread


def test_demands_on_nodes_are_equal_whatever_the_pod_demands_of_others() -> None:
    assert read(nodeSelector={"a": "b"}).on_nodes
    assert read(affinity={"podAffinity": term(JOB)}).on_nodes == ""
    both = read(nodeSelector={"a": "b"}, affinity={"podAffinity": term(JOB)})
    assert both.on_nodes == read(nodeSelector={"a": "b"}).on_nodes
