"""Snapshot file: the nodes, pods and networks that a decision needs, in JSON.

The file serves what-if questions, bug reports and recorded clusters.
It has a version. An unknown key is an error, because its author expects an effect.
All errors of a file are reported at once, each with its path.
`docs/snapshot.schema.json` describes every key, for editors and other programs.

    {"version": 1,
     "nodes": [{"name": "node-1", "product": "atlas-800-training",
                "chips": [0, 1, 2, 3, 4, 5, 6, 7], "unhealthy": [3],
                "network_unhealthy": [], "held": [], "releasing": [], "listed": [0],
                "barred": "agent-silent", "superpod": 0,
                "labels": {"zone": "a"}, "annotations": {}}],
     "pods": [{"name": "default/train-0", "node": "node-1",
               "chips": [0, 1], "phase": "Running", "terminating": false,
               "priority": 0, "started_s": 1790000000, "job": "default/train",
               "rank": 0, "budgets": ["default/slow"]}],
     "jobs": [{"name": "default/train", "min_available": 1,
               "schema": "large-model-schema"}],
     "budgets": [{"name": "default/slow", "allowed": 1}],
     "switches": {"version": "2.0", "shared_leaves": 2,
                  "leaves": [{"name": "0", "use": "idle", "healthy": true,
                              "servers": [{"node": "node-1", "slice": 0}, {}]}]},
     "superpods": {"size": 48, "reserve": 2},
     "profile": "seed"}

Required are, of a node, `name` and `product`; without `chips` it has all chips of the
product. A node with chips of several resources is listed once for each resource, and
its pods name theirs (`"resource": "huawei.com/Ascend310P"`).
Required are, of a pod, `name`, `node` and `chips`; of a job, `name`; of a leaf, `name`
and `servers`, by position, with `{}` for a position without a node.
Absent keys have their defaults.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields

from scheduler_core.documents.parsers import read_json, versioned
from scheduler_core.products.columns import Product
from scheduler_core.snapshot import parts
from scheduler_core.snapshot.values import (
    VERSION,
    Snapshot,
    SnapshotBudget,
    SnapshotJob,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
)

#: {key of the file: its value}
_Fields = dict[str, object]


def parse(text: str) -> Snapshot:
    """Parse a snapshot from the text of its file.

    Raises:
        DocumentError: The text breaks the format; has all problems.
    """
    return read_json(text, versioned(VERSION, parts.read_snapshot))


def render(snapshot: Snapshot) -> str:
    """Return the text of a snapshot's file, in the given order, without defaults."""
    optional: dict[str, list[_Fields]] = {
        "pods": [_render(pod, "phase") for pod in snapshot.pods],
        "jobs": [_render(job) for job in snapshot.jobs],
        "budgets": [_render(budget) for budget in snapshot.budgets],
    }
    switches = snapshot.switches
    document = {
        "version": VERSION,
        "nodes": [_render(node) for node in snapshot.nodes],
        **{name: rendered for name, rendered in optional.items() if rendered},
        **({} if switches is None else {"switches": _render_switches(switches)}),
        "superpods": {
            "size": snapshot.superpod_size,
            "reserve": snapshot.superpod_reserve,
        },
        "profile": snapshot.profile,
    }
    return json.dumps(document, ensure_ascii=False, indent=1, default=_plain) + "\n"


def _render(
    part: SnapshotNode | SnapshotPod | SnapshotJob | SnapshotBudget, *always: str
) -> _Fields:
    """Return the fields of a part that differ from their defaults, and `always`."""
    return {
        field.name: value
        for field in fields(part)
        if (value := getattr(part, field.name)) != _default(field)
        or field.name in always
    }


def _default(field: Field[object]) -> object:
    """Return the default of a field; for a required one a value that differs."""
    return (
        field.default if field.default_factory is MISSING else field.default_factory()
    )


def _plain(value: Product | Mapping[str, str]) -> str | dict[str, str]:
    """Return a value of a field as JSON has it."""
    return value.key if isinstance(value, Product) else dict(value)


def _render_switches(switches: SnapshotSwitches) -> _Fields:
    return {
        "version": switches.version,
        "shared_leaves": switches.shared_leaves,
        "leaves": [
            {
                "name": leaf.name,
                "use": leaf.use.name.lower(),
                "healthy": leaf.healthy,
                "servers": [
                    {
                        **({"node": server.node} if server.node else {}),
                        **(
                            {}
                            if server.slice_id == position
                            else {"slice": server.slice_id}
                        ),
                    }
                    for position, server in enumerate(leaf.servers)
                ],
            }
            for leaf in switches.leaves
        ],
    }
