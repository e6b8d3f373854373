"""OpenAPI 3.1 description of the endpoints in `routes`, all under `/v1`.

`docs/openapi.json` is a copy of the description.
"""

from typing import Any

Schema = dict[str, Any]

#: Dialect of the JSON Schemas in this document.
_DOCS = "https://json-schema.org/draft/2020-12/schema"


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _whole(description: str) -> Schema:
    return {"type": "integer", "description": description}


def _list(items: Schema, description: str) -> Schema:
    return {"type": "array", "items": items, "description": description}


def _object(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(description: str, schema: Schema) -> Schema:
    return {
        "description": description,
        "content": {"application/json": {"schema": schema}},
    }


def _failures(*statuses: tuple[str, str]) -> Schema:
    return {status: _answer(text, _ref("Error")) for status, text in statuses}


_NOT_READY = ("503", "The cache is not complete yet, or another replica leads.")
_BUSY = ("429", "Too many questions at once.")
_CHIPS = _list({"type": "integer"}, "Physical ids, ascending.")

_PLACE: dict[str, Schema] = {
    "pod": _text("Name of the pod, in a job with several pods."),
    "rank": _whole("Rank of that pod, from 0."),
    "node": _text("Node where it would go."),
    "chips": _CHIPS,
    "reason": _text("Why this node and these chips."),
    "leaf": _text("Leaf switch, where the job asks for switch affinity."),
    "leaf_use": {"enum": ["idle", "shared", "exclusive"]},
    "leaf_healthy": {"type": "boolean"},
    "superpod": _whole("Physical SuperPoD."),
    "superpod_rank": _whole("Logical SuperPoD, from 0."),
}

_SCHEMAS: dict[str, Schema] = {
    "Error": _object(("error",), error=_text("What is wrong, for a person.")),
    "Question": _object(
        ("version", "job"),
        version={"const": 1},
        job={
            "type": "object",
            "description": "As in docs/job.schema.json, without its version; at most "
            "10,000 pods; of node_selector accelerator-type only.",
        },
        drain=_list({"type": "string"}, "Nodes to remove, with the pods on them."),
        add=_list({"type": "object"}, "Nodes to add, as in docs/snapshot.schema.json."),
    ),
    "Place": _object(("node", "chips", "reason"), **_PLACE),
    "Plan": _object(
        ("fits", "text"),
        **_PLACE,
        fits={"type": "boolean", "description": "Whether all pods have a place."},
        text=_text("The same for a person, in lines."),
        pods=_list(_ref("Place"), "Places, by rank, of a job with several pods."),
        job=_text("Why the whole job has no place."),
        reasons=_list(
            _object(("nodes", "text"), nodes=_whole("How many."), text=_text("Why.")),
            "Why nodes do not serve, the most frequent first.",
        ),
        advice={
            "type": "object",
            "description": "What would give the job a place; up to 100 pods.",
        },
        eviction={"type": "object", "description": "Pods to evict for the job."},
    ),
    "Explanation": _object(
        ("pod", "state", "text"),
        pod=_text("namespace/name"),
        state=_text("pending, planned, being bound, bound, ended; or unknown."),
        text=_text("The same for a person, in lines."),
        uid=_text("UID of the pod."),
        resource=_text("Resource that it requests."),
        count=_whole("Number of chips that it requests."),
        job=_text("Job of the pod."),
        job_state=_text("State of that job."),
        job_plan={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "{pod: node} of the plan.",
        },
        node=_text("Node of the pod, or the one reserved for it."),
        chips=_CHIPS,
        confirmed={
            "type": "boolean",
            "description": "Whether the agent has confirmed these chips.",
        },
        problem=_text("Why no node can ever serve it."),
        reason=_text("Reason of the last decision."),
        at=_text("Time of the last decision, RFC 3339."),
        counts=_list(
            _object(("nodes", "text"), nodes=_whole("How many."), text=_text("Why.")),
            "Why nodes did not serve at the last decision.",
        ),
        nodes={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "{node: fits, or why not}, now.",
        },
    ),
}

DOCUMENT: Schema = {
    "openapi": "3.1.0",
    "info": {
        "title": "Ascend extender",
        "version": "1",
        "description": "Questions about decisions; none of them decides.",
    },
    "jsonSchemaDialect": _DOCS,
    "paths": {
        "/v1/explain/{namespace}/{name}": {
            "get": {
                "summary": "Why a pod is on its node, or pending.",
                "parameters": [
                    {
                        "name": name,
                        "in": "path",
                        "required": True,
                        "schema": {"type": "string"},
                    }
                    for name in ("namespace", "name")
                ],
                "responses": {
                    "200": _answer("The explanation.", _ref("Explanation")),
                    "404": _answer(
                        "No such pod, or it asks for no NPU.", _ref("Explanation")
                    ),
                },
            }
        },
        "/v1/plan": {
            "post": {
                "summary": "Where a job would go, also with nodes removed or added.",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _ref("Question")}},
                },
                "responses": {
                    "200": _answer("Its places, or why it has none.", _ref("Plan")),
                    **_failures(
                        ("400", "The question is malformed; all errors."),
                        ("413", "The question has more than 1 MiB."),
                        _BUSY,
                        _NOT_READY,
                    ),
                },
            }
        },
        "/v1/snapshot": {
            "get": {
                "summary": "The cluster as a snapshot that scheduler_core reads.",
                "parameters": [
                    {
                        "name": "pod-names",
                        "in": "query",
                        "description": "false: numbers for names of pods and jobs.",
                        "schema": {"enum": ["true", "false"], "default": "true"},
                    }
                ],
                "responses": {
                    "200": _answer(
                        "As in docs/snapshot.schema.json. The same state gives the "
                        "same bytes.",
                        {"type": "object"},
                    ),
                    **_failures(
                        ("400", "pod-names is neither true nor false."),
                        _BUSY,
                        _NOT_READY,
                    ),
                },
            }
        },
        "/v1/openapi.json": {
            "get": {
                "summary": "This description.",
                "responses": {"200": _answer("OpenAPI 3.1.", {"type": "object"})},
            }
        },
    },
    "components": {"schemas": _SCHEMAS},
}
