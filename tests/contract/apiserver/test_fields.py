"""Fields that a type does not have, and values that are not of its types."""

import json
from typing import Any

import pytest

from tests.contract.apiserver.client import (
    MERGE,
    STRATEGIC,
    Api,
    Object,
    config,
    pod,
    problem,
)

pytestmark = pytest.mark.contract

_ODD: Object = {
    "metadata": {"name": "p", "foo": 1},
    "spec": {
        "nodeNam": "n",
        "containers": [
            {"name": "m", "image": "i", "envv": [], "resources": {"lim": {}}}
        ],
    },
}
_FIELDS = (
    "metadata.foo",
    "spec.nodeNam",
    "spec.containers[0].envv",
    "spec.containers[0].resources.lim",
)


async def test_unknown_fields_are_refused_on_demand(api: Api) -> None:
    answer = await api.call("POST", "pods", _ODD, query={"fieldValidation": "Strict"})

    named = ", ".join(f'unknown field "{field}"' for field in _FIELDS)
    assert problem(answer[1]) == (
        400,
        "BadRequest",
        (
            'Pod in version "v1" cannot be handled as a Pod: '
            f"strict decoding error: {named}"
        ),
    )


@pytest.mark.parametrize("query", [{}, {"fieldValidation": "Warn"}])
async def test_unknown_fields_are_dropped_with_a_warning(
    api: Api, query: dict[str, str]
) -> None:
    code, made = await api.call("POST", "pods", _ODD, query=query)

    assert code == 201
    assert api.warnings == [
        '299 - "unknown field \\"' + field + '\\""' for field in _FIELDS
    ]
    assert "foo" not in made["metadata"]
    assert "nodeNam" not in made["spec"]
    assert "envv" not in made["spec"]["containers"][0]


async def test_unknown_fields_are_dropped_in_silence_on_demand(api: Api) -> None:
    query = {"fieldValidation": "Ignore"}

    code, made = await api.call("POST", "pods", _ODD, query=query)

    assert (code, api.warnings, "foo" in made["metadata"]) == (201, [], False)


async def test_another_wish_for_validation_is_refused(api: Api) -> None:
    _, status = await api.call(
        "POST", "pods", pod("p"), query={"fieldValidation": "Some"}
    )

    assert problem(status) == (
        422,
        "Invalid",
        (
            'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported '
            'value: "Some": supported values: "", "Ignore", "Strict", "Warn"'
        ),
    )


@pytest.mark.parametrize("media_type", [MERGE, STRATEGIC])
async def test_a_patch_with_unknown_fields_is_refused_on_demand(
    api: Api, media_type: str
) -> None:
    await api.create("configmaps", config("a"))

    code, status = await api.call(
        "PATCH",
        "configmaps/a",
        {"metadata": {"foo": "b"}, "dat": {}},
        query={"fieldValidation": "Strict"},
        media_type=media_type,
    )

    assert (code, status["reason"]) == (422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "patch"
    for field in ("metadata.foo", "dat"):
        assert f'unknown field "{field}"' in status["message"]


async def test_a_patch_with_unknown_fields_does_the_rest(api: Api) -> None:
    await api.create("configmaps", config("a"))

    code, patched = await api.patch(
        "configmaps/a", {"dat": {"k": "v"}, "data": {"k": "v"}}
    )

    assert (code, patched["data"], "dat" in patched) == (200, {"k": "v"}, False)
    assert api.warnings == ['299 - "unknown field \\"dat\\""']


async def test_what_stands_twice_is_refused_on_demand(api: Api) -> None:
    body = json.dumps(config("a")).replace('"name"', '"name": "b", "name"')

    code, status = await api.call(
        "POST",
        "configmaps",
        body.encode(),
        query={"fieldValidation": "Strict"},
    )

    assert (code, status["message"]) == (
        400,
        (
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
            'strict decoding error: duplicate field "metadata.name"'
        ),
    )


@pytest.mark.parametrize(
    ("field", "value", "found", "expected"),
    [
        ("PodSpec.spec.containers", "x", "string", "[]v1.Container"),
        ("PodSpec.spec.terminationGracePeriodSeconds", "1", "string", "int64"),
        ("Container.spec.containers.name", [{"name": 1}], "number", "string"),
        ("PodSpec.spec.hostNetwork", "yes", "string", "bool"),
        ("PodSpec.spec.nodeSelector", ["a"], "array", "map[string]string"),
    ],
)
async def test_a_value_of_the_wrong_type_is_a_bad_request(
    api: Api, field: str, value: object, found: str, expected: str
) -> None:
    spec = {field.split(".")[2]: value}

    code, status = await api.post("pods", {"metadata": {"name": "p"}, "spec": spec})

    assert (code, status["message"]) == (
        400,
        (
            'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal '
            f"{found} into Go struct field {field} of type {expected}"
        ),
    )


async def test_quantities_and_unstructured_values_are_of_any_kind(api: Api) -> None:
    limits: dict[str, Any] = {"cpu": 1, "memory": "1Gi"}
    containers = [{"name": "m", "image": "i", "resources": {"limits": limits}}]
    probe = {"httpGet": {"port": "named"}}
    containers[0]["livenessProbe"] = probe

    made = await api.create("pods", pod("p", spec={"containers": containers}))

    container = made["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
    assert container["livenessProbe"]["httpGet"]["port"] == "named"
