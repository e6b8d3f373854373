"""Parsers of a snapshot and its parts: nodes, pods, jobs, budgets and switches."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from scheduler_core.documents.parsers import (
    boolean,
    chips,
    converted,
    distinct,
    listing,
    name,
    once,
    optional,
    record,
    reference,
    required,
    text,
    texts,
    whole,
    word,
)
from scheduler_core.documents.reader import Fields, Parser, Part
from scheduler_core.node.decision import LeafUse
from scheduler_core.node.reasons import Reason
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products import lookup, table
from scheduler_core.snapshot.values import (
    Snapshot,
    SnapshotBudget,
    SnapshotJob,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
)
from scheduler_core.topology.leaves import Leaf, Schema, Server, Version

_PHASE = word(
    {phase: phase for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")}
)
_PROFILE = word({profile.value: profile for profile in Profile})
_SCHEMA = word({schema.value: schema for schema in Schema})
_VERSION = word({version.value: version for version in Version})
_LEAF_USE = word({use.name.lower(): use for use in LeafUse})
#: reasons that bar a node for every pod
_BAR = word(
    {
        reason.value: reason
        for reason in (
            Reason.NO_ALLOCATABLE,
            Reason.AGENT_SILENT,
            Reason.BAD_NODE_REPORT,
            Reason.IDS_LOST,
        )
    }
)
_SERVERS = {row.key: row for row in table.PRODUCTS}
_KINDS_OF_PARTS = {
    row.key: row
    for row in filter(None, map(lookup.find_virtual_row, lookup.STATIC_PARTS))
}
# of 19 kinds of parts, the sentence would be too long
_PRODUCT = converted(
    lambda key: (_SERVERS | _KINDS_OF_PARTS).get(key) if isinstance(key, str) else None,
    f"one of {', '.join(_SERVERS)}",
)
_INTEGER, _COUNT, _TEXTS = whole(), whole(0), texts({})

#: default values; the file omits them
DEFAULTS = Snapshot()
#: largest number of leaves that a job may share with others
_MOST_SHARED = 2


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


@dataclass(frozen=True, slots=True, kw_only=True)
class _References:
    """Names that a pod of the snapshot may refer to."""

    #: {node name: {resource: node}}
    nodes: Mapping[str, Mapping[str, SnapshotNode]]
    jobs: frozenset[str]
    budgets: frozenset[str]


def read_snapshot(part: Part) -> Snapshot:
    """Read a whole snapshot, but for its version."""
    fields = part.fields(
        *("version", "nodes", "pods", "jobs", "budgets"),
        *("switches", "superpods", "profile"),
    )
    found = fields.need("nodes", NODES, ())
    by_name: dict[str, dict[str, SnapshotNode]] = {}
    for node in found:
        by_name.setdefault(node.name, {})[node.product.resource] = node
    jobs = fields.get("jobs", _distinct(_JOB), ())
    budgets = fields.get("budgets", _distinct(_BUDGET), ())
    pod = partial(
        _read_pod,
        references=_References(
            nodes=by_name,
            jobs=frozenset(job.name for job in jobs),
            budgets=frozenset(budget.name for budget in budgets),
        ),
    )
    size, reserve = DEFAULTS.superpod_size, DEFAULTS.superpod_reserve
    superpods = record(
        lambda **sizes: (sizes["size"], sizes["reserve"]),
        size=optional(whole(1), size),
        reserve=optional(whole(0), reserve),
    )
    pods = fields.get("pods", _distinct(pod), ())
    switches = fields.get("switches", _switches(by_name), None)
    size, reserve = fields.get("superpods", superpods, (size, reserve))
    return Snapshot(
        nodes=found,
        pods=pods,
        jobs=jobs,
        budgets=budgets,
        switches=switches,
        superpod_size=size,
        superpod_reserve=reserve,
        profile=fields.get("profile", _PROFILE, DEFAULTS.profile),
    )


def _read_node(part: Part) -> SnapshotNode:
    fields = part.fields(
        *("name", "product", "chips", "unhealthy", "network_unhealthy", "held"),
        *("releasing", "listed", "barred", "superpod", "labels", "annotations"),
    )
    # Any product if it is unknown, so that pods may refer to the node.
    product = fields.need("product", _PRODUCT, table.PRODUCTS[0])
    every = tuple(range(product.chip_count))
    inventory = fields.get("chips", chips(every), every)
    some = chips(inventory)
    return SnapshotNode(
        product=product,
        chips=inventory,
        unhealthy=fields.get("unhealthy", some, ()),
        network_unhealthy=fields.get("network_unhealthy", some, ()),
        held=fields.get("held", some, ()),
        releasing=fields.get("releasing", some, ()),
        listed=fields.get("listed", some, None),
        barred=fields.get("barred", _BAR, None),
        superpod=fields.get("superpod", _COUNT, -1),
        labels=fields.get("labels", _TEXTS, {}),
        annotations=fields.get("annotations", _TEXTS, {}),
        name=fields.need("name", name),
    )


def _read_pod(part: Part, references: _References) -> SnapshotPod:
    fields = part.fields(
        *("name", "node", "chips", "phase", "terminating", "priority", "started_s"),
        *("job", "rank", "budgets", "resource"),
    )
    node_name = fields.need("node", _one_of(references.nodes, "node"), "")
    by_resource = references.nodes.get(node_name, {})
    node = _node_of_resource(fields, by_resource)
    within = range(node.product.chip_count) if node else None
    budgets = distinct(_one_of(references.budgets, "budget"), "budget")
    return SnapshotPod(
        node=node_name,
        chips=fields.need("chips", chips(within), ()),
        resource=node.product.resource if node and len(by_resource) > 1 else "",
        phase=fields.get("phase", _PHASE, "Running"),
        terminating=fields.get("terminating", boolean, default=False),
        priority=fields.get("priority", _INTEGER, 0),
        started_s=fields.get("started_s", _COUNT, None),
        job=fields.get("job", _one_of(references.jobs, "job"), ""),
        rank=fields.get("rank", _COUNT, None),
        budgets=fields.get("budgets", budgets, ()),
        name=fields.need("name", name),
    )


def _node_of_resource(
    fields: Fields, by_resource: Mapping[str, SnapshotNode]
) -> SnapshotNode | None:
    """Return the pod's node for the resource of its chips, or None if it is unknown.

    A pod must name the resource only on a node that has several.
    """
    resource = fields.get("resource", text, None)
    if resource is None and len(by_resource) == 1:
        return next(iter(by_resource.values()))
    if by_resource and resource not in by_resource:
        expected = f"a resource of its node: {', '.join(by_resource)}"
        fields.at("resource").wrong(expected)
    return by_resource.get(resource or "")


def _one_of(names: Container[str], kind: str) -> Parser[str]:
    return reference(names, f"the name of a {kind} of this snapshot")


_JOB = record(
    SnapshotJob,
    name=required(name),
    min_available=optional(whole(1)),
    schema=optional(_SCHEMA),
)
_BUDGET = record(SnapshotBudget, name=required(name), allowed=required(whole(0), 0))


def _distinct(item: Parser[N]) -> Parser[tuple[N, ...]]:
    """Return the parser of a list of parts with different names."""
    return distinct(item, "name", lambda part: part.name)


def _switches(nodes: Container[str]) -> Parser[SnapshotSwitches]:
    node = once(_one_of(nodes, "node"), "node")

    def read_server(part: Part) -> Server:
        fields = part.fields("node", "slice")
        return Server(
            node=fields.get("node", node, ""),
            slice_id=fields.get("slice", _COUNT, int(part.keys[-1])),
        )

    leaf = record(
        Leaf,
        name=required(name),
        servers=required(listing(read_server)),
        use=optional(_LEAF_USE, LeafUse.IDLE),
        healthy=optional(boolean, default=True),
    )
    return record(
        SnapshotSwitches,
        leaves=required(_distinct(leaf)),
        version=optional(_VERSION, Version.ONE),
        shared_leaves=optional(whole(1, _MOST_SHARED), _MOST_SHARED),
    )


#: parser of a list of nodes, each with its chips of one resource
NODES = distinct(
    _read_node, "name and resource", lambda node: (node.name, node.product.resource)
)
