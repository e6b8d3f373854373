from typing import Any

import msgspec
import pytest

from extender.cache import requests as pod_requests
from extender.cache.requests import (
    NOTHING,
    ONE_POD,
    UNBOUNDED,
    RequestedResources,
    Resources,
)
from kube.objects import Pod


def container(restart: str = "", **requests: str) -> dict[str, Any]:
    return {
        "name": "c",
        "restartPolicy": restart,
        "resources": {"requests": requests},
    }


def pod(
    *app: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any
) -> Pod:
    made = {"spec": {"containers": app, "initContainers": init, **spec}}
    return msgspec.convert(made, Pod)


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        ("2", 2000),
        ("100m", 100),
        ("0.5", 500),
        (".5", 500),
        ("1e3", 1_000_000),
        ("1k", 1_000_000),
        ("1500u", 2),  # rounded up, as the scheduler does
        ("1n", 1),
        ("", 0),
        ("much", 0),
        ("1Zi", 0),
        ("-1", 0),
        ("1e300", 2**63 - 1),
    ],
)
def test_quantities_of_cpu(text: str, cpu: int) -> None:
    assert pod_requests.pod_requests(pod(container(cpu=text))) == Resources(cpu, 0)


def test_a_quantity_of_a_megabyte_is_the_most_there_is() -> None:
    sevens = "7" * 1_100_000

    assert pod_requests.pod_requests(pod(container(cpu=sevens))) == Resources(
        2**63 - 1, 0
    )


@pytest.mark.parametrize(
    ("text", "memory"),
    [("128Mi", 128 << 20), ("1G", 10**9), ("2Ti", 2 << 40), ("123", 123)],
)
def test_quantities_of_memory(text: str, memory: int) -> None:
    assert pod_requests.pod_requests(pod(container(memory=text))) == Resources(
        0, memory
    )


def test_containers_add_up_and_init_containers_come_before() -> None:
    found = pod(
        container(cpu="1"),
        container(cpu="2", memory="1Gi"),
        init=(
            container("Always", cpu="1"),
            container(cpu="3500m"),
        ),
        overhead={"cpu": "250m"},
    )

    assert pod_requests.pod_requests(found) == Resources(4500 + 250, 1 << 30)


def test_a_limit_is_a_request_where_there_is_no_other() -> None:
    limits = {
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    }

    assert pod_requests.pod_requests(pod(limits)) == Resources(1000, 1 << 30)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"cpu": "8", "memory": "1Gi"}}, Resources(8250, 1 << 30)),
        ({"requests": {"cpu": "1"}}, Resources(1250, 1 << 20)),
        ({"requests": {"memory": "2Gi"}}, Resources(2250, 2 << 30)),
        ({"limits": {"cpu": "8", "memory": "2Gi"}}, Resources(2250, 1 << 20)),
        ({"requests": {"hugepages-2Mi": "2Mi"}}, Resources(2250, 1 << 20)),
        ({}, Resources(2250, 1 << 20)),
    ],
)
def test_what_a_pod_requests_as_a_whole_counts_instead_of_its_containers(
    resources: dict[str, Any], expected: Resources
) -> None:
    """As kube-scheduler does since 1.34: component-helpers, resource/helpers.go."""
    found = pod(
        container(cpu="2", memory="1Mi"),
        overhead={"cpu": "250m"},
        resources=resources,
    )

    assert pod_requests.pod_requests(found) == expected


def test_limits_of_a_pod_count_where_nothing_requests() -> None:
    """The API server fills requests in, but not in templates."""
    found = pod(container(), resources={"limits": {"cpu": "8", "memory": "2Gi"}})

    assert pod_requests.pod_requests(found) == Resources(8000, 2 << 30)


def test_a_node_is_bounded_by_what_it_names() -> None:
    assert pod_requests.node_allocatable({"cpu": "4", "pods": "110"}) == Resources(
        4000, UNBOUNDED.memory, 110
    )
    assert pod_requests.node_allocatable({}) == UNBOUNDED


def test_how_many_pods_fit() -> None:
    left = Resources(1000, 1 << 30, 110)

    assert Resources(300, 1).times(left) == 3
    assert ONE_POD.times(left) == 110
    assert Resources(300, 1).times(Resources(-1, 1 << 30, 110)) == 0


def test_a_nodes_load_is_that_of_its_pods() -> None:
    found = RequestedResources()
    found.put("a", "", Resources(100, 1))
    assert found.of("n1") == NOTHING

    found.put("a", "n1", Resources(100, 1))
    found.put("b", "n1", Resources(200, 2))
    found.put("b", "n1", Resources(200, 2))
    found.drop("a")
    found.drop("a")

    assert (found.of("n1"), found.ask("b"), found.ask("a")) == (
        Resources(200, 2),
        Resources(200, 2),
        ONE_POD,
    )
    found.drop("b")
    assert (found.of("n1"), len(found.uids())) == (NOTHING, 0)
