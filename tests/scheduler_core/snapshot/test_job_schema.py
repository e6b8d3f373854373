"""The reader and the JSON Schema of a job say the same."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from scheduler_core.products.table import PRODUCTS
from scheduler_core.snapshot import job
from tests.scheduler_core.snapshot.documents import problems_of

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs/job.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)

#: everything that a file can have, once
FULL: dict[str, Any] = {
    "version": 1,
    "resource": "huawei.com/Ascend910",
    "chips": 8,
    "pods": 4,
    "labels": {"tor-affinity": "normal-schema", "super-pod-affinity": "soft"},
    "annotations": {"sp-block": "16", "note": ""},
    "node_selector": {"accelerator-type": "module"},
    "priority": -3,
}
#: what may stand in the place of something else
OTHERS: tuple[object, ...] = (
    *(None, True, -1, 0, 1, 2, 0.5, "", "x", "7", "-7", "null", "hard", [], {}, [1]),
    *({"x": 1}, {"x": "y"}, {"tor-affinity": "x"}, {"sp-block": ""}),
    *("huawei.com/npu", "huawei.com/Ascend910-4c", "huawei.com/Ascend310P-2c.1cpu"),
    *("huawei.com/Ascend911", "huawei.com/Ascend910-4", "huawei.com/Ascend310-2c"),
)
#: keys whose own values are read, and the others of an object
KEYS = [(key,) for key in FULL] + [
    ("labels", "tor-affinity"),
    ("labels", "super-pod-affinity"),
    ("labels", "other"),
    ("annotations", "sp-block"),
    ("node_selector", "other"),
    ("other",),
]


def check(document: object) -> None:
    expected = [error.message for error in VALIDATOR.iter_errors(document)]
    problems = problems_of(job.parse, document)

    assert bool(problems) == bool(expected), (problems, expected)


def test_the_schema_is_one_and_everything_is_allowed_once() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    check(FULL)
    assert not list(VALIDATOR.iter_errors(FULL))


@pytest.mark.parametrize("path", KEYS)
def test_reader_and_schema_agree_on_every_value(path: tuple[str, ...]) -> None:
    *steps, last = path
    for other in OTHERS:
        document = deepcopy(FULL)
        inside = document
        for step in steps:
            inside = inside[step]
        inside[last] = other
        check(document)
    document = deepcopy(FULL)
    if not steps:
        document.pop(last, None)
        check(document)


def test_the_schema_knows_every_resource() -> None:
    known = SCHEMA["properties"]["resource"]["anyOf"][0]["enum"]

    assert set(known) == {row.resource for row in PRODUCTS}


@pytest.mark.parametrize("name", ["job-1", "job-2", "job-4", "job-8"])
def test_the_examples_are_jobs(name: str) -> None:
    text = (ROOT / f"docs/examples/{name}.json").read_text(encoding="utf-8")

    check(json.loads(text))
    assert job.parse(text).pods == 1
