"""Requests that are refused, though a ConfigMap `a` and a pod `p` exist."""

import pytest

from tests.contract.apiserver.client import MERGE, Api, binding, config, pod, problem

pytestmark = pytest.mark.contract

_NODE = {"kind": "Node", "name": "n"}
_TWO = {
    "name": "m",
    "image": "i",
    "resources": {"limits": {"huawei.com/Ascend910": "two"}},
}
_COLOR = "field label not supported: spec.color"
#: (method, path, body)
Request = tuple[str, str, object]
#: code, reason, message
Refusal = tuple[int, str, str]


async def refusal_of(api: Api, request: Request) -> Refusal:
    await api.create("configmaps", config("a"))
    await api.create("pods", pod("p"))
    media_type = MERGE if request[0] == "PATCH" else "application/json"
    _, status = await api.call(*request, media_type=media_type)
    return problem(status)


#: {what is wrong: (request, whole refusal)}
REFUSED: dict[str, tuple[Request, Refusal]] = {
    "create: a body of another namespace": (
        ("POST", "configmaps", config("b", metadata={"namespace": "default"})),
        (
            400,
            "BadRequest",
            (
                "the namespace of the provided object does not match "
                "the namespace sent on the request"
            ),
        ),
    ),
    "create: with a resource version": (
        ("POST", "configmaps", config("b", metadata={"resourceVersion": "7"})),
        (500, "", "resourceVersion should not be set on objects to be created"),
    ),
    "create: an event outside its object's namespace": (
        ("POST", "events", {"metadata": {"name": "e"}, "involvedObject": _NODE}),
        (
            422,
            "Invalid",
            (
                'Event "e" is invalid: involvedObject.namespace: Invalid value: "": '
                "does not match event.namespace"
            ),
        ),
    ),
    "get: of a resource that does not exist": (
        ("GET", "/api/v1/unicorns", None),
        (404, "NotFound", "the server could not find the requested resource"),
    ),
    "patch: of what is gone": (
        ("PATCH", "configmaps/gone", {"metadata": {"uid": "any"}}),
        (404, "NotFound", 'configmaps "gone" not found'),
    ),
    "update: of what is gone": (
        ("PUT", "configmaps/gone", config("gone")),
        (404, "NotFound", 'configmaps "gone" not found'),
    ),
    "update: of the name": (
        ("PUT", "configmaps/a", config("b")),
        (
            400,
            "BadRequest",
            "the name of the object (b) does not match the name on the URL (a)",
        ),
    ),
    "delete: the default namespace": (
        ("DELETE", "/api/v1/namespaces/default", None),
        (
            403,
            "Forbidden",
            'namespaces "default" is forbidden: this namespace may not be deleted',
        ),
    ),
    "bind: a pod that is gone": (
        ("POST", "pods/gone/binding", binding("gone", "n")),
        (404, "NotFound", 'pods "gone" not found'),
    ),
}
#: {what is wrong: (request, code, reason, what the message says among others)}
REFUSED_SAYING: dict[str, tuple[Request, Refusal]] = {
    "create: a label value with a blank": (
        ("POST", "configmaps", config("b", metadata={"labels": {"k": "a b"}})),
        (422, "Invalid", 'metadata.labels: Invalid value: "a b": a valid label'),
    ),
    "create: an annotation that is no text": (
        ("POST", "configmaps", config("b", metadata={"annotations": {"k": 1}})),
        (400, "BadRequest", "cannot unmarshal number into Go struct field"),
    ),
    "create: broken JSON": (
        ("POST", "configmaps", "no object"),
        (400, "BadRequest", ""),
    ),
    "create: another kind": (
        ("POST", "pods", {"apiVersion": "v1", "kind": "ConfigMap", **config("b")}),
        (400, "BadRequest", ""),
    ),
    "create: what is no quantity": (
        ("POST", "pods", pod("q", spec={"containers": [_TWO]})),
        (400, "BadRequest", "quantities must match the regular expression"),
    ),
    "update: of a collection": (
        ("PUT", "configmaps", config("a")),
        (405, "MethodNotAllowed", ""),
    ),
    "patch: an annotation that is no text": (
        ("PATCH", "configmaps/a", {"metadata": {"annotations": {"k": 1}}}),
        (422, "Invalid", "cannot unmarshal number into Go struct field"),
    ),
    "patch: no object": (
        ("PATCH", "configmaps/a", "text"),
        (400, "BadRequest", ""),
    ),
    "patch: the node of a pod": (
        ("PATCH", "pods/p", {"spec": {"nodeName": "here"}}),
        (422, "Invalid", "pod updates may not change fields other than"),
    ),
    "bind: by another name": (
        ("POST", "pods/p/binding", binding("q", "n")),
        (400, "BadRequest", ""),
    ),
    **{
        f"list: {query}": (
            ("GET", f"{plural}?{query}", None),
            (400, "BadRequest", said),
        )
        for plural, query, said in (
            ("configmaps", "labelSelector=app in one", ""),
            ("configmaps", "labelSelector==x", ""),
            ("configmaps", "labelSelector=a=b=c", ""),
            ("configmaps", "labelSelector=a in (b", ""),
            ("configmaps", "limit=1&continue=x", "continue key is not valid"),
            ("pods", "fieldSelector=spec.color=red", _COLOR),
            ("pods", "watch=1&fieldSelector=spec.color=red", _COLOR),
        )
    },
}


@pytest.mark.parametrize(
    ("asked", "refusal"), list(REFUSED.values()), ids=list(REFUSED)
)
async def test_what_cannot_be_done_is_refused_with_the_reason(
    api: Api, asked: Request, refusal: Refusal
) -> None:
    assert await refusal_of(api, asked) == refusal


@pytest.mark.parametrize(
    ("asked", "refusal"), list(REFUSED_SAYING.values()), ids=list(REFUSED_SAYING)
)
async def test_what_cannot_be_done_is_refused_and_the_message_names_the_place(
    api: Api, asked: Request, refusal: Refusal
) -> None:
    *found, message = await refusal_of(api, asked)

    *expected, part = refusal
    assert found == expected
    assert part in message
