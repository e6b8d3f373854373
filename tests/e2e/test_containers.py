"""Pods with more than one container that asks for chips, and pods that read them."""

from typing import Any

import pytest

from tests.e2e import truth
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import READS, container, first_container, pod


def _run(namespace: Namespace, body: dict[str, Any]) -> truth.Served:
    namespace.run(body)
    [served] = truth.until_agreed(namespace.cluster)
    return served


@pytest.mark.core("owners")
def test_each_container_gets_chips_of_its_own(namespace: Namespace) -> None:
    containers = [
        container("a", 2),
        container("b", 1),
        container("none"),
        container("c", 1),
    ]

    served = _run(namespace, pod("several", containers=containers))

    assert {each.name: len(each.environment) for each in served.containers} == {
        "a": 2,
        "b": 1,
        "c": 1,
    }
    assert len(served.chips) == 4


@pytest.mark.parametrize(("first", "then"), [(1, 1), (2, 1), (1, 2)])
def test_what_an_init_container_had_goes_to_its_own_pod(
    namespace: Namespace, first: int, then: int
) -> None:
    body = pod("initial", then, initContainers=[first_container(first)])

    served = _run(namespace, body)

    had = {each.name: set(each.environment) for each in served.containers}
    assert had["init"] <= had["main"] or had["main"] <= had["init"]
    assert len(served.chips) == max(first, then)


def test_a_sidecar_keeps_its_chips_beside_the_others(namespace: Namespace) -> None:
    sidecar = container("sidecar", 1, restartPolicy="Always")
    body = pod("accompanied", 1, initContainers=[sidecar, first_container()])

    served = _run(namespace, body)

    had = {each.name: set(each.environment) for each in served.containers}
    assert not had["sidecar"] & had["main"]
    assert len(had["sidecar"] | had["main"]) == 2


def test_a_pod_that_reads_its_annotation_has_what_that_says(
    namespace: Namespace,
) -> None:
    reader = container("main", 2, env=[READS])

    served = _run(namespace, pod("reader", containers=[reader]))

    [main] = served.containers
    assert main.environment == main.devices == served.real


def test_pods_that_read_their_annotation_are_not_mixed_up(namespace: Namespace) -> None:
    readers = [
        pod(f"reader-{number}", containers=[container("main", 1, env=[READS])])
        for number in range(4)
    ]
    others = [pod(f"other-{number}", 1) for number in range(4)]
    pairs = zip(readers, others, strict=True)
    namespace.run(*(body for pair in pairs for body in pair))

    served = truth.until_agreed(namespace.cluster)

    assert sorted(each.chips for each in served) == [(chip,) for chip in range(8)]
