"""The description of the read endpoints, as OpenAPI 3.1; `docs/openapi.json` is it."""

from typing import Any

Schema = dict[str, Any]

#: Where the files are described that this speaks of.
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


_NOT_READY = ("503", "The cluster is not known yet, or another replica leads.")
_BUSY = ("429", "Too many questions at once.")
_CHIPS = _list({"type": "integer"}, "Physical ids, ascending.")

_PLACE: dict[str, Schema] = {
    "pod": _text("Of a job with several pods."),
    "rank": _whole("Of that pod, from 0."),
    "node": _text("Where it would go."),
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
        drain=_list({"type": "string"}, "Nodes that go, with all that runs there."),
        add=_list(
            {"type": "object"}, "Nodes that come, as in docs/snapshot.schema.json."
        ),
    ),
    "Place": _object(("node", "chips", "reason"), **_PLACE),
    "Plan": _object(
        ("fits", "text"),
        **_PLACE,
        fits={"type": "boolean", "description": "Whether all pods have a place."},
        text=_text("The same for a person, in lines."),
        pods=_list(_ref("Place"), "Places, by rank, of a job with several pods."),
        job=_text("Why the job as a whole has no place."),
        reasons=_list(
            _object(("nodes", "text"), nodes=_whole("How many."), text=_text("Why.")),
            "Why nodes do not serve, the most frequent first.",
        ),
        advice={
            "type": "object",
            "description": "What would give it a place; of up to 100 pods.",
        },
        eviction={"type": "object", "description": "Who would have to go for it."},
    ),
    "Explanation": _object(
        ("pod", "state", "text"),
        pod=_text("namespace/name"),
        state=_text("pending, planned, being bound, bound, ended; or unknown."),
        text=_text("The same for a person, in lines."),
        uid=_text("Of the pod."),
        resource=_text("What it asks for."),
        count=_whole("How many chips."),
        job=_text("The job that it is one pod of."),
        job_state=_text("How far that is."),
        job_plan={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "{pod: node} of the plan.",
        },
        node=_text("Where it is, or is to be."),
        chips=_CHIPS,
        confirmed={
            "type": "boolean",
            "description": "Whether the agent has said that they are mounted.",
        },
        problem=_text("Why it can never be served."),
        reason=_text("Why it was decided so."),
        at=_text("When, RFC 3339."),
        counts=_list(
            _object(("nodes", "text"), nodes=_whole("How many."), text=_text("Why.")),
            "Why nodes did not serve, when it was decided.",
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
        "description": "What can be asked about decisions. Nothing of this decides.",
    },
    "jsonSchemaDialect": _DOCS,
    "paths": {
        "/v1/explain/{namespace}/{name}": {
            "get": {
                "summary": "Why a pod is where it is, or is nowhere.",
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
                    "200": _answer("What is known.", _ref("Explanation")),
                    "404": _answer(
                        "No such pod, or it asks for no NPU.", _ref("Explanation")
                    ),
                },
            }
        },
        "/v1/plan": {
            "post": {
                "summary": "Where a job would go, also after nodes have gone or come.",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _ref("Question")}},
                },
                "responses": {
                    "200": _answer("Its places, or why it has none.", _ref("Plan")),
                    **_failures(
                        ("400", "The question cannot be read; all that is wrong."),
                        ("413", "The question has more than 1 MiB."),
                        _BUSY,
                        _NOT_READY,
                    ),
                },
            }
        },
        "/v1/snapshot": {
            "get": {
                "summary": "All that decisions depend on, as scheduler_core reads it.",
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
                    **_failures(("400", "pod-names is neither."), _BUSY, _NOT_READY),
                },
            }
        },
        "/v1/openapi.json": {
            "get": {
                "summary": "This.",
                "responses": {"200": _answer("OpenAPI 3.1.", {"type": "object"})},
            }
        },
    },
    "components": {"schemas": _SCHEMAS},
}
