"""OpenAPI 3.1 description of the endpoints in `routes`, all under `/v1`.

`docs/openapi.json` is a copy of the description.
"""

from extender.queries.job_state import State
from scheduler_core.wire.chip_faults import Effect
from service.openapi import (
    Schema,
    answer,
    array,
    closed_object,
    content,
    document,
    parameter,
    reference,
    text,
    whole,
)


def _failures(*statuses: tuple[str, str]) -> Schema:
    return {status: answer(why, reference("Error")) for status, why in statuses}


_NOT_READY = ("503", "The cache is not complete yet, or another replica leads.")
_BUSY = ("429", "Too many questions at once.")
_CHIPS = array({"type": "integer"}, "Physical ids, ascending.")

_FAULT = closed_object(
    "chip",
    "network",
    "effect",
    "codes",
    chip=whole("Physical id."),
    network={
        "type": "boolean",
        "description": "Whether it is a fault of the chip's network only.",
    },
    effect={
        "enum": [effect.value for effect in Effect],
        "description": "What the report's lists of chips say of the chip.",
    },
    codes=array({"type": "string"}, "Fault codes, hexadecimal."),
    level=text("Worst level of the codes; absent if unknown."),
    since=text("Since when it has that level, RFC 3339; absent if unknown."),
)

_MOVE = closed_object(
    "text",
    assessment=text("unknown, stays, moves, shrinks or no spare."),
    text=text("The same for a person."),
    leaving=array(
        {"type": "string"}, "Names of the pods that would go, in that order."
    ),
    places={
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "{pod: node and chips}, of those that would get other ones.",
    },
    move=text("Stage of the move of its job, while pods go and come back."),
    since=text("Since when it is in that stage, RFC 3339."),
)

_REASON = closed_object("nodes", "text", nodes=whole("How many."), text=text("Why."))

_NODES = closed_object(
    "nodes",
    "text",
    "names",
    nodes=whole("How many."),
    text=text("Fits, or why not, in the words of the pod's event."),
    names=array({"type": "string"}, "Up to three of them, the first by name."),
    details=array({"type": "string"}, "What these say besides, each with its name."),
)

_PLACE: dict[str, Schema] = {
    "pod": text("Name of the pod, in a job with several pods."),
    "rank": whole("Rank of that pod, from 0."),
    "node": text("Node where it would go."),
    "chips": _CHIPS,
    "reason": text("Why this node and these chips."),
    "leaf": text("Leaf switch, where the job asks for switch affinity."),
    "leaf_use": {"enum": ["idle", "shared", "exclusive"]},
    "leaf_healthy": {"type": "boolean"},
    "superpod": whole("Physical SuperPoD."),
    "superpod_rank": whole("Logical SuperPoD, from 0."),
}

_SCHEMAS: dict[str, Schema] = {
    "Error": closed_object("error", error=text("What is wrong, for a person.")),
    "Question": closed_object(
        "version",
        "job",
        version={"const": 1},
        job={
            "type": "object",
            "description": "As in docs/job.schema.json, without its version; at most "
            "10,000 pods; of node_selector accelerator-type only.",
        },
        drain=array({"type": "string"}, "Nodes to remove, with the pods on them."),
        add=array({"type": "object"}, "Nodes to add, as in docs/snapshot.schema.json."),
    ),
    "Place": closed_object("node", "chips", "reason", **_PLACE),
    "Plan": closed_object(
        "fits",
        "text",
        **_PLACE,
        fits={"type": "boolean", "description": "Whether all pods have a place."},
        text=text("The same for a person, in lines."),
        pods=array(reference("Place"), "Places, by rank, of a job with several pods."),
        job_reason=text("Why the whole job has no place."),
        reasons=array(_REASON, "Why nodes do not serve, the most frequent first."),
        advice={
            "type": "object",
            "description": "What would give the job a place; up to 100 pods.",
        },
        eviction={"type": "object", "description": "Pods to evict for the job."},
    ),
    "Explanation": closed_object(
        "pod",
        "state",
        "text",
        pod=text("namespace/name"),
        state=text("pending, planned, being bound, bound, ended; or unknown."),
        text=text("The same for a person, in lines."),
        uid=text("UID of the pod."),
        resource=text("Resource that it requests."),
        count=whole("Number of chips that it requests."),
        job=text("Job of the pod."),
        job_state={
            "enum": [state.value for state in State],
            "description": "State of that job.",
        },
        job_since=text("Since when, RFC 3339; absent if unknown."),
        job_pods=text("How many pods it has, and how many of them have a node."),
        why=text("Why it has no plan."),
        needs=array(
            {"type": "string"}, "What its pods need, and what is there, by server."
        ),
        ahead=array({"type": "string"}, "Waiting jobs that are planned before it."),
        kept_places=array({"type": "string"}, "Places that its move keeps."),
        job_plan={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "{pod: node} of the plan.",
        },
        node=text("Node of the pod, or the one reserved for it."),
        chips=_CHIPS,
        confirmed={
            "type": "boolean",
            "description": "Whether the agent has confirmed these chips.",
        },
        part=text("Name of its part of a chip, if it asks for one."),
        faults=array(_FAULT, "Faults of its chips, the worst first."),
        rescheduling=_MOVE
        | {"description": "What is done, or would be done with --rescheduling report."},
        advice=array({"type": "string"}, "What to do, the best first."),
        report_problem=text("Why faults may be missing or old: its node's report."),
        problem=text("Why no node can ever serve it."),
        reason=text("Reason of the last decision."),
        at=text("Time of the last decision, RFC 3339."),
        counts=array(_REASON, "Why nodes did not serve at the last decision."),
        reasons=array(_NODES, "What nodes answer now, the most frequent first."),
        nodes={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "{node: fits, or why not}, now; with ?nodes=true.",
        },
    ),
}

_PATHS: dict[str, Schema] = {
    "/v1/explain/{namespace}/{name}": {
        "get": {
            "summary": "Why a pod is on its node, or pending.",
            "parameters": [
                *(
                    parameter(name, "path", {"type": "string"})
                    for name in ("namespace", "name")
                ),
                parameter(
                    "nodes",
                    "query",
                    {"enum": ["true", "false"], "default": "false"},
                    "true: each node by itself as well.",
                ),
            ],
            "responses": {
                "200": answer("The explanation.", reference("Explanation")),
                "404": answer(
                    "No such pod, or it asks for no NPU.", reference("Explanation")
                ),
                **_failures(("400", "nodes is neither true nor false."), _BUSY),
            },
        }
    },
    "/v1/plan": {
        "post": {
            "summary": "Where a job would go, also with nodes removed or added.",
            "requestBody": {
                "required": True,
                "content": content(reference("Question")),
            },
            "responses": {
                "200": answer("Its places, or why it has none.", reference("Plan")),
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
                parameter(
                    "pod-names",
                    "query",
                    {"enum": ["true", "false"], "default": "true"},
                    "false: numbers for names of pods and jobs.",
                )
            ],
            "responses": {
                "200": answer(
                    "As in docs/snapshot.schema.json. The same state gives the same "
                    "bytes.",
                    {"type": "object"},
                ),
                **_failures(
                    ("400", "pod-names is neither true nor false."), _BUSY, _NOT_READY
                ),
            },
        }
    },
    "/v1/openapi.json": {
        "get": {
            "summary": "This description.",
            "responses": {"200": answer("OpenAPI 3.1.", {"type": "object"})},
        }
    },
}

DOCUMENT = document(
    "3.1.0",
    {
        "title": "Ascend extender",
        "version": "1",
        "description": "Questions about decisions; none of them decides.",
    },
    _PATHS,
    _SCHEMAS,
)
