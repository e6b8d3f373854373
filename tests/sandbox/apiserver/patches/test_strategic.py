"""Strategic merge patches against what Kubernetes' own library makes of them.

The golden file is its word; `python -m tests.e2e.strategic` writes it anew.
"""

import json
from http import HTTPStatus
from typing import Any

import pytest

from sandbox.apiserver import resources, statuses
from sandbox.apiserver.objects import without_nulls
from sandbox.apiserver.openapi import types
from sandbox.apiserver.patches import strategic
from tests.sandbox.apiserver.patches import cases

_KINDS = {row.kind: row for row in resources.RESOURCES}
_GOLDEN: list[dict[str, Any]] = json.loads(cases.GOLDEN.read_text(encoding="utf-8"))


def _cases_with(*keys: str) -> pytest.MarkDecorator:
    """Give a test the cases of the golden file that have these keys."""
    return pytest.mark.parametrize(
        "case",
        [case for case in _GOLDEN if case.keys() >= {*keys}],
        ids=lambda case: case["name"].replace(" ", "-"),
    )


def _applied(case: dict[str, Any]) -> Any:
    schema = types.of_kind(_KINDS[case["kind"]])
    original = json.loads(json.dumps(case["original"]))
    return strategic.apply(original, case["patch"], schema)


@_cases_with("result")
def test_a_patch_makes_what_kubernetes_makes_of_it(case: dict[str, Any]) -> None:
    # What is not known to the type is dropped by whoever stores the object.
    assert _typed(_applied(case)) == _typed(case["result"])


def _typed(document: Any) -> Any:
    """Drop directives that were left where nothing was merged, and nulls."""
    if isinstance(document, dict):
        kept = {k: v for k, v in document.items() if not k.startswith("$")}
        return without_nulls({key: _typed(value) for key, value in kept.items()})
    if isinstance(document, list):
        return [_typed(member) for member in document]
    return document


@_cases_with("error")
def test_a_patch_is_refused_where_kubernetes_refuses_it(case: dict[str, Any]) -> None:
    with pytest.raises(statuses.StatusError) as refused:
        _applied(case)

    first = case["error"].partition(":")[0].splitlines()[0]
    assert str(refused.value).startswith(first)


def test_every_written_case_is_in_the_golden_file() -> None:
    written = [(case["name"], case["patch"]) for case in cases.WRITTEN]

    assert written == [(c["name"], c["patch"]) for c in _GOLDEN[: len(written)]]


@_cases_with("modified", "result")
def test_a_computed_patch_leads_from_one_object_to_the_other(
    case: dict[str, Any],
) -> None:
    reached, wanted = _filled(_applied(case)), _filled(case["modified"])
    # Of plain values Kubernetes' own patch does not always restore the order.
    for document in (reached, wanted):
        document.get("metadata", {}).get("finalizers", []).sort()

    assert reached == wanted


def _filled(value: Any) -> Any:
    """Drop what is empty: an empty list and none are one to Kubernetes."""
    if isinstance(value, dict):
        filled = {key: _filled(member) for key, member in value.items()}
        return {key: member for key, member in filled.items() if member}
    return [_filled(member) for member in value] if isinstance(value, list) else value


def test_lists_of_lists_are_not_merged() -> None:
    schema = types.of_kind(resources.PODS)
    original = {"spec": {"containers": [["a"]]}}

    with pytest.raises(statuses.StatusError) as refused:
        strategic.apply(original, {"spec": {"containers": [["b"]]}}, schema)

    assert refused.value.code == HTTPStatus.UNPROCESSABLE_ENTITY


@pytest.mark.parametrize("patch", ["text", 1, None, ["a"]])
def test_a_patch_that_is_no_object_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(statuses.StatusError) as refused:
        strategic.apply({}, patch, {})

    assert refused.value.code == HTTPStatus.BAD_REQUEST
