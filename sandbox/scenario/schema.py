"""The scenario file as a JSON schema, for editors: made from the same table.

`python -m sandbox.scenario.schema > docs/scenario.schema.json`
"""

import json
import sys
from typing import Any

from sandbox.faults.kinds import FAULTS, FaultKind, Kind
from sandbox.scenario.parse import (
    FAULT_SCHEDULING,
    NODES_MOST,
    PHASES,
    PODS_MOST,
    RESCHEDULING,
)
from service.openapi import DIALECT, closed_object

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_DURATION: dict[str, Any] = {
    "type": "string",
    "pattern": r"^\s*[0-9]+(\.[0-9]+)? *(ms|s|m|h)\s*$",
}
_NAME: dict[str, Any] = {
    "type": "string",
    "pattern": "^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$",
}
_CHIPS: dict[str, Any] = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 7},
}
_VALUES: dict[Kind, dict[str, Any]] = {
    Kind.NODE: _NAME,
    Kind.CHIPS: {"anyOf": [_CHIPS, {"type": ["string", "integer"]}]},
    Kind.DURATION: _DURATION,
    Kind.STEP: {
        "type": "string",
        "pattern": r"^\s*-?[0-9]+(\.[0-9]+)? *(ms|s|m|h)\s*$",
    },
    Kind.COUNT: {"type": ["integer", "string"], "minimum": 1},
    Kind.PATTERN: _TEXT,
    Kind.MOMENT: {"enum": ["now", "asked", "answered", "write"]},
    Kind.OUTCOME: {"enum": ["refused", "done"]},
}


def document() -> dict[str, Any]:
    """Return the schema."""
    steps = {
        "pods": closed_object(
            *("name", "chips"),
            name=_NAME,
            chips=_whole(1, 64),
            count=_whole(1, PODS_MOST),
            node=_NAME,
        ),
        "job": closed_object(
            *("name", "pods", "chips"),
            name=_NAME,
            pods=_whole(1, PODS_MOST),
            chips=_whole(1, 64),
            **{"fault-scheduling": {"enum": list(FAULT_SCHEDULING)}},
        ),
        "delete": {
            "anyOf": [
                _TEXT,
                closed_object("pods", pods=_TEXT, force={"type": "boolean"}),
                closed_object("jobs", jobs=_TEXT),
            ]
        },
        "fault": {"anyOf": [_TEXT, *map(_fault, FAULTS)]},
        "end": {"enum": [kind.name for kind in FAULTS]},
        "wait": _DURATION,
        "expect": closed_object(
            pods=_TEXT,
            phase={"enum": list(PHASES)},
            count=_whole(0, PODS_MOST),
            message=_TEXT,
            agreed={"const": True},
            node=_NAME,
            allocatable=_whole(0, 8),
            free=_whole(0, 8),
            unhealthy=_CHIPS,
            within=_DURATION,
        ),
    }
    nodes = {
        "type": "array",
        "items": _NAME,
        "minItems": 1,
        "maxItems": NODES_MOST,
        "uniqueItems": True,
    }
    items = [closed_object(word, **{word: value}) for word, value in steps.items()]
    return {
        "$schema": DIALECT,
        "title": "Scenario for ascend-sandbox run",
        **closed_object(
            "steps",
            title=_TEXT,
            nodes={"anyOf": [_whole(1, NODES_MOST), nodes]},
            rescheduling={"enum": list(RESCHEDULING)},
            steps={"type": "array", "minItems": 1, "items": {"anyOf": items}},
        ),
    }


def _fault(kind: FaultKind) -> dict[str, Any]:
    lasting = {} if kind.is_momentary else {"for": _DURATION}
    told = {
        parameter.name: {**_VALUES[parameter.kind], "description": parameter.does}
        for parameter in kind.parameters
    }
    needed = [p.name for p in kind.parameters if p.default is None]
    fields = {"name": {"const": kind.name}, **told, **lasting}
    return {
        "description": kind.does,
        **closed_object("name", *needed, **fields),
    }


def _whole(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(document(), indent=2) + "\n")
