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

from scheduler_core.documents.parsers import read_json, versioned
from scheduler_core.snapshot import parts
from scheduler_core.snapshot.values import (
    VERSION,
    Snapshot,
    SnapshotJob,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
)


def parse(text: str) -> Snapshot:
    """Parse a snapshot from the text of its file.

    Raises:
        DocumentError: The text breaks the format; has all problems.
    """
    return read_json(text, versioned(VERSION, parts.read_snapshot))


def render(snapshot: Snapshot) -> str:
    """Return the text of a snapshot's file, in the given order, without defaults."""
    document = {
        "version": VERSION,
        "nodes": [_render_node(node) for node in snapshot.nodes],
        **_drop_empty(
            pods=[_render_pod(pod) for pod in snapshot.pods],
            jobs=[_render_job(job) for job in snapshot.jobs],
            budgets=[
                {"name": budget.name, "allowed": budget.allowed}
                for budget in snapshot.budgets
            ],
        ),
        **({} if snapshot.switches is None else _render_switches(snapshot.switches)),
        "superpods": {
            "size": snapshot.superpod_size,
            "reserve": snapshot.superpod_reserve,
        },
        "profile": snapshot.profile.value,
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _drop_empty(**fields: object) -> dict[str, object]:
    """Return the fields whose values are not empty."""
    return {name: value for name, value in fields.items() if value not in ((), [], {})}


def _drop_unset(**fields: object) -> dict[str, object]:
    """Return the fields whose values are neither None nor ""."""
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _render_node(node: SnapshotNode) -> Mapping[str, object]:
    return {
        "name": node.name,
        "product": node.product.key,
        "chips": node.chips,
        **_drop_empty(
            unhealthy=node.unhealthy,
            network_unhealthy=node.network_unhealthy,
            held=node.held,
            releasing=node.releasing,
        ),
        **({} if node.listed is None else {"listed": node.listed}),
        **_drop_unset(
            barred=node.barred and node.barred.value,
            superpod=node.superpod if node.superpod >= 0 else None,
        ),
        **_drop_empty(labels=dict(node.labels), annotations=dict(node.annotations)),
    }


def _render_pod(pod: SnapshotPod) -> Mapping[str, object]:
    return {
        "name": pod.name,
        "node": pod.node,
        "chips": pod.chips,
        **_drop_unset(resource=pod.resource),
        "phase": pod.phase,
        **({"terminating": True} if pod.terminating else {}),
        **({"priority": pod.priority} if pod.priority else {}),
        **_drop_unset(started_s=pod.started_s, job=pod.job, rank=pod.rank),
        **_drop_empty(budgets=pod.budgets),
    }


def _render_job(job: SnapshotJob) -> Mapping[str, object]:
    return {
        "name": job.name,
        **_drop_unset(
            min_available=job.min_available, schema=job.schema and job.schema.value
        ),
    }


def _render_switches(switches: SnapshotSwitches) -> Mapping[str, object]:
    return {
        "switches": {
            "version": switches.version.value,
            "shared_leaves": switches.shared_leaves,
            "leaves": [
                {
                    "name": leaf.name,
                    "use": leaf.use.name.lower(),
                    "healthy": leaf.healthy,
                    "servers": [
                        {
                            **_drop_unset(node=server.node),
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
    }
