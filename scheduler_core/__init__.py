"""Choice of nodes and chips for pods: the affinity rules, and nothing else.

Belongs here: products, choices of chips, the order over nodes, the index that
makes decisions cheap, shapes of pods, and the formats that other programs read.
Does not belong here: anything that asks a clock, a file, a socket or chance. Every
answer is a function of its arguments; `scheduler_core.wire` may use json and
hashlib, `scheduler_core.__main__` may read files. `README.md` shows the way through.

Only the names in `__all__` are stable, with their arguments and the fields of what
they return. Names of modules, and all names in them, change without notice.

Each name is imported when it is first asked for. The agent and kube read formats
only, and an import of everything takes them twice as long.

Decisions: `docs/adr/0006-chips-are-chosen-at-bind.md`,
`docs/adr/0015-slots-of-leaves-are-followed.md`. The README has those on orders.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler_core.documents.reader import DocumentError
    from scheduler_core.errors import SchedulerCoreError
    from scheduler_core.explain.advice import advise_pod
    from scheduler_core.explain.node import explain as explain_pod
    from scheduler_core.index.cluster import Cluster
    from scheduler_core.node.decision import JobPlacement, Placement, Rejection
    from scheduler_core.node.reasons import Reason
    from scheduler_core.node.state import NodeState
    from scheduler_core.placement.job import place_job
    from scheduler_core.placement.job_rules import Job, Pod
    from scheduler_core.placement.pod import place
    from scheduler_core.preemption.victims import Preemptor, RunningPod, preempt
    from scheduler_core.products.columns import Product
    from scheduler_core.products.table import by_key as find_product
    from scheduler_core.snapshot.document import parse as read_snapshot
    from scheduler_core.snapshot.values import cluster_of

__all__ = [  # noqa: RUF022  # by subject, as README.md has them
    # a cluster
    "Cluster",
    "NodeState",
    "Product",
    "find_product",
    # a place for a pod
    "place",
    "Placement",
    "Rejection",
    # places for a job
    "place_job",
    "Job",
    "Pod",
    "JobPlacement",
    # why not
    "Reason",
    "explain_pod",
    "advise_pod",
    "preempt",
    "Preemptor",
    "RunningPod",
    # a file
    "read_snapshot",
    "cluster_of",
    # what can be wrong
    "SchedulerCoreError",
    "DocumentError",
]

#: {exported name: (its module, its name there)}
_HOMES = {
    "Cluster": ("index.cluster", "Cluster"),
    "Job": ("placement.job_rules", "Job"),
    "JobPlacement": ("node.decision", "JobPlacement"),
    "NodeState": ("node.state", "NodeState"),
    "Placement": ("node.decision", "Placement"),
    "Pod": ("placement.job_rules", "Pod"),
    "Preemptor": ("preemption.victims", "Preemptor"),
    "Product": ("products.columns", "Product"),
    "Reason": ("node.reasons", "Reason"),
    "Rejection": ("node.decision", "Rejection"),
    "RunningPod": ("preemption.victims", "RunningPod"),
    "SchedulerCoreError": ("errors", "SchedulerCoreError"),
    "DocumentError": ("documents.reader", "DocumentError"),
    "advise_pod": ("explain.advice", "advise_pod"),
    "cluster_of": ("snapshot.values", "cluster_of"),
    "explain_pod": ("explain.node", "explain"),
    "find_product": ("products.table", "by_key"),
    "place": ("placement.pod", "place"),
    "place_job": ("placement.job", "place_job"),
    "preempt": ("preemption.victims", "preempt"),
    "read_snapshot": ("snapshot.document", "parse"),
}

if not TYPE_CHECKING:  # mypy would take any name for an export

    def __getattr__(name: str) -> object:
        """Import an exported name, and keep it for the next time."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, attribute = _HOMES[name]
        exported = getattr(import_module(f"{__name__}.{module}"), attribute)
        globals()[name] = exported
        return exported
