"""What a disruption controller would say of each budget."""

from itertools import count
from typing import Any

import pytest

from sandbox.apiserver import budgets
from sandbox.apiserver.paths import Target
from sandbox.apiserver.resources import BUDGETS, PODS
from sandbox.apiserver.statuses import StatusError
from sandbox.apiserver.store import Store
from tests.support import objects

ALL: dict[str, Any] = {}
#: The budgets' namespace has four pods, of which three are ready.
READY = {"a": True, "b": True, "c": True, "d": False}


def store() -> Store:
    numbers = count()
    made = Store(now_s=lambda: 1_800_000_000.0, new_uid=lambda: f"uid-{next(numbers)}")
    for name, is_ready in READY.items():
        add_pod(made, name, "default", is_ready=is_ready)
    add_pod(made, "e", "kube-system", is_ready=True)
    return made


def add_pod(made: Store, name: str, namespace: str, *, is_ready: bool) -> None:
    labels = {"app": "x", "name": name}
    pod = objects.pod(name, namespace=namespace, meta={"labels": labels})
    entry = made.create(Target(resource=PODS, namespace=namespace), pod)
    document = entry.fresh()
    ready = {"type": "Ready", "status": str(is_ready)}
    document["status"] |= {"phase": "Running", "conditions": [ready]}
    made.commit(PODS, document, entry)


def add_budget(made: Store, name: str = "budget", **spec: Any) -> None:
    budget = {"metadata": {"name": name}, "spec": {"selector": ALL} | spec}
    made.create(Target(resource=BUDGETS, namespace="default"), budget)
    budgets.refresh(made)


def counts(made: Store) -> tuple[int, int, int, int]:
    status = made.entries(BUDGETS)["default", "budget"].document["status"]
    keys = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")
    expected, healthy, desired, allowed = (status[key] for key in keys)
    return expected, healthy, desired, allowed


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"minAvailable": 2}, (4, 3, 2, 1)),
        ({"minAvailable": "50%"}, (4, 3, 2, 1)),
        ({"minAvailable": "51%"}, (4, 3, 3, 0)),
        ({"maxUnavailable": 1}, (4, 3, 3, 0)),
        ({"maxUnavailable": "50%"}, (4, 3, 2, 1)),
        ({}, (4, 3, 3, 0)),
        ({"minAvailable": 0, "selector": None}, (0, 0, 0, 0)),
        ({"minAvailable": 0, "selector": {"matchLabels": {"app": "y"}}}, (0, 0, 0, 0)),
        ({"minAvailable": 0, "selector": {"matchLabels": {"name": "a"}}}, (1, 1, 0, 1)),
    ],
)
def test_a_budget_counts_the_pods_that_it_selects(
    spec: dict[str, Any], found: tuple[int, int, int, int]
) -> None:
    made = store()

    add_budget(made, **spec)

    assert counts(made) == found


@pytest.mark.parametrize(
    ("rule", "number"),
    [
        ({"key": "name", "operator": "In", "values": ["a", "b"]}, 2),
        ({"key": "name", "operator": "NotIn", "values": ["a"]}, 3),
        ({"key": "name", "operator": "Exists"}, 4),
        ({"key": "name", "operator": "DoesNotExist"}, 0),
    ],
)
def test_a_budget_selects_by_expressions(rule: dict[str, Any], number: int) -> None:
    made = store()

    add_budget(made, minAvailable=0, selector={"matchExpressions": [rule]})

    assert counts(made)[0] == number


def test_what_holds_already_is_not_written_again() -> None:
    made = store()
    add_budget(made, minAvailable=1)
    revision = made.log.revision

    budgets.refresh(made)

    assert made.log.revision == revision


@pytest.mark.parametrize(
    ("pod", "spec", "is_refused"),
    [
        ("a", {"minAvailable": 2}, False),
        ("a", {"minAvailable": 3}, True),
        ("d", {"minAvailable": 3}, False),
        ("d", {"minAvailable": 4}, True),
        ("d", {"minAvailable": 4, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, False),
    ],
)
def test_pods_that_are_not_ready_may_go_while_enough_others_are(
    pod: str, spec: dict[str, Any], is_refused: bool
) -> None:
    made = store()
    add_budget(made, **spec)

    assert refusal(made, pod) == (429 if is_refused else 0)


def test_a_pod_of_two_budgets_is_not_evicted() -> None:
    made = store()
    add_budget(made, minAvailable=0)
    add_budget(made, "other", minAvailable=0)

    assert refusal(made, "a") == 500


def refusal(made: Store, name: str) -> int:
    try:
        budgets.check(made, made.entries(PODS)["default", name].document)
    except StatusError as error:
        return error.code
    return 0
