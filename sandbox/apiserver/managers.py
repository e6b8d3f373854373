"""Who has set each label of a Node: its `managedFields`.

Only labels, and only of Nodes: nothing here reads more of them.

Source: Kubernetes v1.36.3, apimachinery `util/managedfields`, for updates: whoever
changes a field has it alone; a value that stays, stays whose it was.
"""

from collections.abc import Mapping
from typing import Any

from sandbox.apiserver.objects import Object, metadata_of

_LONGEST_NAME = 128


def name_of(user_agent: str) -> str:
    """Return the name of a manager that gives none: that of its program."""
    return user_agent.partition("/")[0][:_LONGEST_NAME]


def note(new: Object, old: Mapping[str, Any], *, manager: str, timestamp: str) -> None:
    """Write into a Node who has set its labels.

    Args:
        new: The Node as it is about to be stored; changed in place.
        old: The Node before; empty for one that is created.
        manager: Who writes.
        timestamp: When.
    """
    before, after = metadata_of(old), metadata_of(new)
    entries = {entry["manager"]: entry for entry in before.get("managedFields") or ()}
    labels = after.get("labels") or {}
    changed = {
        key
        for key, text in labels.items()
        if (before.get("labels") or {}).get(key) != text
    }
    owned = {
        name: _keys(entry) & labels.keys() - changed for name, entry in entries.items()
    }
    if changed:
        owned[manager] = owned.get(manager, set()) | changed
        entries[manager] = {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": timestamp,
            "fieldsType": "FieldsV1",
        }
    noted = [
        entries[name] | {"fieldsV1": _fields(keys)}
        for name, keys in owned.items()
        if keys
    ]
    after.pop("managedFields", None)
    if noted:
        after["managedFields"] = noted


def _keys(entry: Mapping[str, Any]) -> set[str]:
    return {
        key.removeprefix("f:") for key in entry["fieldsV1"]["f:metadata"]["f:labels"]
    }


def _fields(keys: set[str]) -> Object:
    return {"f:metadata": {"f:labels": {f"f:{key}": {} for key in sorted(keys)}}}
