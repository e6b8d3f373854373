"""Cases with known answers, as `tests/corpus` has them for the Atlas 800."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from scheduler_core import chips
from scheduler_core.cluster import Cluster, NodeState
from scheduler_core.occupancy import free_chips
from scheduler_core.products import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.reasons import Reason
from scheduler_core.wire.annotations import parse_chip_names
from tests.machines import EIGHT, atlas, mask

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "corpus" / "atlas_800_training.json").read_text(
        encoding="utf-8"
    )
)


def cases(area: str) -> pytest.MarkDecorator:
    chosen = [case for case in CASES if case["area"] == area]
    return pytest.mark.parametrize(
        ("given", "expect"),
        [
            pytest.param(case["input"], case["expect"], id=case["id"])
            for case in chosen
            # Pods of one job that talk over the network come with whole jobs.
            if not case["input"].get("distributed")
        ],
    )


@cases("chip_select")
def test_chips_are_chosen_as_recorded(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    answer = chips.choose(PRODUCT, mask(given["free"]), given["request"])

    assert list(chips.ids_of(answer)) == expect["chips"]


@cases("node_predicate")
def test_nodes_are_refused_as_recorded(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    reason = chips.why_not(PRODUCT, mask(given["free"]), 0xFF, given["request"])

    assert (reason is None) == expect["ok"]


@cases("priority_array")
def test_the_preference_is_as_recorded(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    preference = PRODUCT.group_preference[given["request"]]

    assert list(preference) == expect["priority"]


@cases("job_valid")
def test_counts_are_legal_as_recorded(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    reasons = {
        chips.why_not(PRODUCT, 0xFF, 0xFF, task["chips"]) for task in given["tasks"]
    }

    assert (Reason.ILLEGAL_COUNT not in reasons) == expect["valid"]


@pytest.mark.seed("004-14")
@cases("node_rank")
def test_nodes_are_ordered_as_recorded(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    def node_of(recorded: dict[str, Any]) -> NodeState:
        spare = sorted(set(EIGHT) - set(recorded["free"]), reverse=True)
        bad = spare[: 8 - recorded["allocatable"]]
        return atlas(recorded["name"], recorded["free"], healthy=set(EIGHT) - set(bad))

    cluster = Cluster(node_of(recorded) for recorded in given["nodes"])

    order = []
    while found := cluster.best(PRODUCT.resource, given["request"]):
        order.append([found.node.name])
        cluster.drop(found.node.name)

    assert order == expect["order"]


@pytest.mark.seed("004-12")
@cases("allocation_sequence")
def test_pods_fill_a_node_as_recorded(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    free = mask(given["free"])
    answers = []
    for _, _, count in given["ops"]:
        chosen = chips.choose(PRODUCT, free, count)
        answers.append(list(chips.ids_of(chosen)))
        free &= ~chosen

    assert answers == expect["chips"]
    assert list(chips.ids_of(free)) == expect["free_after"]


def names_mask(names: Iterable[str]) -> int:
    return mask(parse_chip_names(names, PRODUCT, path="corpus"))


@cases("available_cards")
def test_free_chips_are_as_recorded(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    own = given["self_maintain"]
    pods = [
        pod if isinstance(pod, dict) else {"cards": pod, "phase": "Running"}
        for pod in given["pods"]
    ]
    claimed = [
        name
        for pod in pods
        if own and pod["phase"] not in {"Failed", "Succeeded"}
        for name in pod["cards"]
    ]
    inventory = names_mask(given["base_devices"])

    answer = free_chips(
        healthy=inventory & ~names_mask(given["unhealthy"]),
        claimed=mask(parse_chip_names(claimed, PRODUCT, path="corpus")),
        held=0,
        releasing=0,
        listed=None if own else names_mask(given["configmap_list"]),
    )

    assert answer == names_mask(expect["available"])


def test_every_recorded_area_is_run() -> None:
    assert {case["area"] for case in CASES} == {
        "allocation_sequence",
        "available_cards",
        "chip_select",
        "job_valid",
        "node_predicate",
        "node_rank",
        "priority_array",
    }
