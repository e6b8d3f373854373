"""The snapshot file: all that a decision needs, in JSON.

For what-if questions, bug reports and recorded clusters. The version stands in the
file; a key that we do not know is refused, because whoever wrote it expects it to
matter. Everything that is wrong with a file is said at once, each with its path.
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

Of a node only name and product must be there: the chips are then all of the product.
A node with chips of several resources stands there once for each, and its pods say of
which theirs are (`"resource": "huawei.com/Ascend310P"`).
Of a pod only name, node and chips; of a job its name; of a leaf its servers, each at
its position, `{}` where no node hangs. What is left out is the usual.
"""

import json
from collections.abc import Mapping
from functools import partial

from scheduler_core.snapshot import parts
from scheduler_core.snapshot.reader import Reader
from scheduler_core.snapshot.values import (
    VERSION,
    Snapshot,
    SnapshotBudget,
    SnapshotJob,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
    cluster_of,
    network_of,
    pods_of,
    superpods_of,
)

__all__ = [
    "VERSION",
    "Snapshot",
    "SnapshotBudget",
    "SnapshotJob",
    "SnapshotNode",
    "SnapshotPod",
    "SnapshotSwitches",
    "cluster_of",
    "network_of",
    "parse",
    "pods_of",
    "render",
    "superpods_of",
]

#: what is usual: said only where it is otherwise
_USUAL = Snapshot()


def parse(text: str) -> Snapshot:
    """The snapshot that a file's text gives.

    Raises:
        SnapshotError: Anything that is not as the format demands, all at once.
    """
    reader = Reader()
    root = reader.document(
        text,
        VERSION,
        required=("nodes",),
        optional=("pods", "jobs", "budgets", "switches", "superpods", "profile"),
    )
    nodes = parts.each(reader, root, "nodes", parts.node, name_of=parts.node_key)
    by_name: dict[str, dict[str, SnapshotNode]] = {}
    for node in nodes:
        by_name.setdefault(node.name, {})[node.product.resource] = node
    jobs = parts.each(reader, root, "jobs", parts.job)
    budgets = parts.each(reader, root, "budgets", parts.budget)
    known = parts.Known(
        nodes=by_name,
        jobs=frozenset(job.name for job in jobs),
        budgets=frozenset(budget.name for budget in budgets),
    )
    pods = parts.each(reader, root, "pods", partial(parts.pod, known=known))
    switches = parts.switches(reader, root, by_name)
    size, reserve = parts.superpods(
        reader, root, (_USUAL.superpod_size, _USUAL.superpod_reserve)
    )
    profile = parts.word(reader, root, "profile", parts.PROFILES, _USUAL.profile)
    reader.finish()
    return Snapshot(
        nodes=nodes,
        pods=pods,
        jobs=jobs,
        budgets=budgets,
        switches=switches,
        superpod_size=size,
        superpod_reserve=reserve,
        profile=profile,
    )


def render(snapshot: Snapshot) -> str:
    """The file's text: everything in the order given, without what is usual."""
    document = {
        "version": VERSION,
        "nodes": [_node(node) for node in snapshot.nodes],
        **_unusual(
            pods=[_pod(pod) for pod in snapshot.pods],
            jobs=[_job(job) for job in snapshot.jobs],
            budgets=[
                {"name": budget.name, "allowed": budget.allowed}
                for budget in snapshot.budgets
            ],
        ),
        **({} if snapshot.switches is None else _switches(snapshot.switches)),
        "superpods": {
            "size": snapshot.superpod_size,
            "reserve": snapshot.superpod_reserve,
        },
        "profile": snapshot.profile.value,
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _unusual(**fields: object) -> dict[str, object]:
    """The fields without those that say nothing."""
    return {name: value for name, value in fields.items() if value not in ((), [], {})}


def _said(**fields: object) -> dict[str, object]:
    """The fields without those that are not set."""
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _node(node: SnapshotNode) -> Mapping[str, object]:
    return {
        "name": node.name,
        "product": node.product.key,
        "chips": node.chips,
        **_unusual(
            unhealthy=node.unhealthy,
            network_unhealthy=node.network_unhealthy,
            held=node.held,
            releasing=node.releasing,
        ),
        **({} if node.listed is None else {"listed": node.listed}),
        **_said(
            barred=node.barred and node.barred.value,
            superpod=node.superpod if node.superpod >= 0 else None,
        ),
        **_unusual(labels=dict(node.labels), annotations=dict(node.annotations)),
    }


def _pod(pod: SnapshotPod) -> Mapping[str, object]:
    return {
        "name": pod.name,
        "node": pod.node,
        "chips": pod.chips,
        **_said(resource=pod.resource),
        "phase": pod.phase,
        **({"terminating": True} if pod.terminating else {}),
        **({"priority": pod.priority} if pod.priority else {}),
        **_said(started_s=pod.started_s, job=pod.job, rank=pod.rank),
        **_unusual(budgets=pod.budgets),
    }


def _job(job: SnapshotJob) -> Mapping[str, object]:
    return {
        "name": job.name,
        **_said(
            min_available=job.min_available, schema=job.schema and job.schema.value
        ),
    }


def _switches(switches: SnapshotSwitches) -> Mapping[str, object]:
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
                            **_said(node=server.node),
                            **(
                                {}
                                if server.slice_id == at
                                else {"slice": server.slice_id}
                            ),
                        }
                        for at, server in enumerate(leaf.servers)
                    ],
                }
                for leaf in switches.leaves
            ],
        }
    }
