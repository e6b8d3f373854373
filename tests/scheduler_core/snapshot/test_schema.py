"""The reader and the JSON Schema of a snapshot say the same."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from scheduler_core.snapshot import document as snapshot_document
from scheduler_core.snapshot.values import Snapshot
from tests.scheduler_core.snapshot.documents import ROWS, problems_of, snapshots

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs/snapshot.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)

#: what a schema cannot say: it sees one value at a time
BEYOND = (
    "expected each name once",
    "expected each name and resource once",
    "expected a chip from 0 to",
    "expected each node once",
    "expected one of the chips",
    "expected the name of a ",
    "expected a resource of its node",
)
#: everything that a file can have, once
FULL: dict[str, Any] = {
    "version": 1,
    "nodes": [
        {
            "name": "node-1",
            "product": "atlas-800-training",
            "chips": [0, 1, 2, 3, 4, 5, 6, 7],
            "unhealthy": [3],
            "network_unhealthy": [2],
            "held": [0],
            "releasing": [1],
            "listed": [4, 5],
            "barred": "agent-silent",
            "superpod": 0,
            "labels": {"zone": "a"},
            "annotations": {"note": ""},
        },
        {"name": "node-2", "product": "flat-2"},
        {"name": "node-2", "product": "atlas-310p", "chips": [8, 9]},
    ],
    "pods": [
        {
            "name": "default/train-0",
            "node": "node-1",
            "chips": [0, 1],
            "phase": "Pending",
            "terminating": False,
            "priority": -5,
            "started_s": 1790000000,
            "job": "default/train",
            "rank": 0,
            "budgets": ["default/slow"],
        },
        {
            "name": "default/serve-0",
            "node": "node-2",
            "chips": [9],
            "resource": "huawei.com/Ascend310P",
        },
    ],
    "jobs": [{"name": "default/train", "min_available": 1, "schema": "normal-schema"}],
    "budgets": [{"name": "default/slow", "allowed": 1}],
    "switches": {
        "version": "2.0",
        "shared_leaves": 1,
        "leaves": [
            {
                "name": "0",
                "use": "idle",
                "healthy": True,
                "servers": [{"node": "node-1", "slice": 3}, {}],
            }
        ],
    },
    "superpods": {"size": 48, "reserve": 0},
    "profile": "per-pod",
}
#: what may stand in the place of something else
OTHERS: tuple[object, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, 0.5, "", "x", "idle", "node-1", [], {}),
    *([0], [0, 0], ["x"], [{}], {"x": 1}, {"x": "y"}, {"name": "x"}),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document, its own first."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def said(document: object) -> tuple[str, ...]:
    return problems_of(snapshot_document.parse, document)


def check(document: object) -> None:
    problems = said(document)
    wrong = [problem for problem in problems if not any(b in problem for b in BEYOND)]
    expected = [error.message for error in VALIDATOR.iter_errors(document)]

    assert bool(problems if expected else wrong) == bool(expected), (wrong, expected)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_every_key_is_in_the_example() -> None:
    """So that the tests below see each of them."""
    described = {
        key
        for part in (SCHEMA, *SCHEMA["$defs"].values())
        for key in part.get("properties", ())
    } | set(SCHEMA["properties"]["superpods"]["properties"])

    keys = {step for path in places(FULL) for step in path if isinstance(step, str)}
    assert keys - {"zone", "note"} == described


def test_what_has_everything_is_valid_for_both() -> None:
    assert said(FULL) == ()
    assert list(VALIDATOR.iter_errors(FULL)) == []


def test_the_example_of_the_documentation_is_valid_for_both() -> None:
    text = (ROOT / "docs/examples/cluster.json").read_text(encoding="utf-8")

    assert said(json.loads(text)) == ()
    assert list(VALIDATOR.iter_errors(json.loads(text))) == []


def test_the_schema_knows_every_product() -> None:
    known = SCHEMA["$defs"]["node"]["properties"]["product"]["enum"]

    assert known == [product.key for product in ROWS]


@pytest.mark.parametrize("path", list(places(FULL))[1:], ids=str)
def test_without_this_both_say_the_same(path: tuple[Any, ...]) -> None:
    document = deepcopy(FULL)
    del at(document, path[:-1])[path[-1]]

    check(document)


@pytest.mark.long
@pytest.mark.parametrize("path", list(places(FULL)), ids=str)
def test_with_something_else_here_both_say_the_same(path: tuple[Any, ...]) -> None:
    for other in OTHERS:
        if not path:
            check(other)
            continue
        document = deepcopy(FULL)
        at(document, path[:-1])[path[-1]] = other
        check(document)


@pytest.mark.parametrize(
    "path",
    [path for path in places(FULL) if isinstance(at(FULL, path), dict)],
    ids=str,
)
def test_with_a_key_more_both_say_the_same(path: tuple[Any, ...]) -> None:
    for key in ("name", "nodes", "slice", "x"):
        document = deepcopy(FULL)
        at(document, path).setdefault(key, 0)
        check(document)


@pytest.mark.property
@given(snapshots())
def test_what_is_written_is_valid(some: Snapshot) -> None:
    document = json.loads(snapshot_document.render(some))

    assert list(VALIDATOR.iter_errors(document)) == []


@pytest.mark.property
@given(snapshots(), st.data())
def test_whatever_is_changed_in_a_file_both_say_the_same(
    some: Snapshot, data: st.DataObject
) -> None:
    document = json.loads(snapshot_document.render(some))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(document))[1:]))
        other = data.draw(st.sampled_from(OTHERS) | st.text(max_size=2))
        at(document, path[:-1])[path[-1]] = deepcopy(other)

    check(document)


def test_a_whole_number_has_no_fraction() -> None:
    """The one difference that is wanted: to a schema, 1.0 is a whole number."""
    document = {**FULL, "version": 1.0}

    assert said(document) == ("version: expected 1, found 1.0",)
    assert list(VALIDATOR.iter_errors(document)) == []
    assert re.search("without a fraction", SCHEMA["description"])
