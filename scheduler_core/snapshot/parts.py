"""Parsers for the parts of a snapshot: nodes, pods, jobs, budgets and switches."""

from collections.abc import Callable, Container, Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from scheduler_core.errors import UnknownProductError
from scheduler_core.node.decision import LeafUse
from scheduler_core.node.reasons import Reason
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products import table
from scheduler_core.products.table import Product
from scheduler_core.snapshot.reader import Reader
from scheduler_core.snapshot.values import (
    SnapshotBudget,
    SnapshotJob,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
)
from scheduler_core.topology.leaves import Leaf, Schema, Server, Version
from scheduler_core.wire.typed import as_boolean, as_name, as_string

T = TypeVar("T")
Fields = Mapping[str, object]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)

#: {word of the file: its meaning}
PHASES = {
    phase: phase for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")
}
PROFILES = {profile.value: profile for profile in Profile}
SCHEMAS: Mapping[str, Schema | None] = {schema.value: schema for schema in Schema}
VERSIONS = {version.value: version for version in Version}
LEAF_USES = {use.name.lower(): use for use in LeafUse}
#: {word of the file: reason that bars a node for every pod}
BARS: Mapping[str, Reason | None] = {
    reason.value: reason
    for reason in (
        Reason.NO_ALLOCATABLE,
        Reason.AGENT_SILENT,
        Reason.BAD_NODE_REPORT,
        Reason.IDS_LOST,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Names that a pod of the snapshot may refer to."""

    #: {node name: {resource: node}}
    nodes: Mapping[str, Mapping[str, SnapshotNode]]
    jobs: frozenset[str]
    budgets: frozenset[str]


#: largest number of leaves that a job may share with others
_MOST_SHARED = 2
_A_NODE = "the name of a node of this snapshot"


def _name_of(part: _Named) -> Hashable:
    return part.name


def key_of_node(node: SnapshotNode) -> Hashable:
    """Return the unique key of a node: name and resource."""
    return node.name, node.product.resource


def parse_list(
    reader: Reader,
    root: Fields,
    name: str,
    parse: Callable[[Reader, object, str], N],
    path: str = "",
    *,
    name_of: Callable[[N], Hashable] = _name_of,
) -> tuple[N, ...]:
    """Parse the items of the list `name`; two of the same name are a problem."""
    list_path = f"{path}.{name}" if path else name
    items = []
    names = set()
    for index, item in enumerate(reader.items(root.get(name, []), list_path)):
        path = f"{list_path}[{index}]"
        part = parse(reader, item, path)
        if name_of(part) in names:
            reader.report(f"{path}.name", "each name once", part.name)
        if part.name:
            names.add(name_of(part))
        items.append(part)
    return tuple(items)


def parse_word(
    reader: Reader,
    fields: Fields,
    key: str,
    meanings: Mapping[str, T],
    default: T,
    path: str = "",
) -> T:
    """Return the meaning of a word, or `default` when it is absent or unknown."""
    text = reader.get(fields, key, as_string, path=path, default=None)
    if text is None:
        return default
    if text not in meanings:
        word_path = f"{path}.{key}" if path else key
        reader.report(word_path, f"one of {', '.join(meanings)}", text)
        return default
    return meanings[text]


def parse_node(reader: Reader, item: object, path: str) -> SnapshotNode:
    """Parse one item of `nodes`."""
    optional = (
        *("chips", "unhealthy", "network_unhealthy", "held", "releasing", "listed"),
        *("barred", "superpod", "labels", "annotations"),
    )
    fields = reader.fields(item, path, required=("name", "product"), optional=optional)
    product = _parse_product(reader, fields, path)
    name = reader.get(fields, "name", as_name, path=path, default="")
    all_chips = tuple(range(product.chip_count))

    def chips(key: str, within: tuple[int, ...]) -> tuple[int, ...]:
        return reader.chips(fields.get(key, []), within, f"{path}.{key}")

    inventory = chips("chips", all_chips) if "chips" in fields else all_chips
    unhealthy, network_unhealthy, held, releasing = (
        chips(key, inventory)
        for key in ("unhealthy", "network_unhealthy", "held", "releasing")
    )
    return SnapshotNode(
        name=name,
        product=product,
        chips=inventory,
        unhealthy=unhealthy,
        network_unhealthy=network_unhealthy,
        held=held,
        releasing=releasing,
        listed=chips("listed", inventory) if "listed" in fields else None,
        barred=parse_word(reader, fields, "barred", BARS, None, path),
        superpod=reader.number(fields, "superpod", path=path, least=0, default=-1),
        labels=reader.texts(fields, "labels", path),
        annotations=reader.texts(fields, "annotations", path),
    )


def _parse_product(reader: Reader, fields: Fields, path: str) -> Product:
    """Return the node's product; any if unknown, so that the rest can be read."""
    key = reader.get(fields, "product", as_string, path=path, default=None)
    if key is not None:
        try:
            return table.by_key(key)
        except UnknownProductError as error:
            reader.report(
                f"{path}.product", f"one of {', '.join(error.known_keys)}", key
            )
    return table.PRODUCTS[0]


def parse_pod(
    reader: Reader, item: object, path: str, *, references: References
) -> SnapshotPod:
    """Parse one item of `pods`."""
    optional = (
        *("phase", "terminating", "priority", "started_s", "job", "rank", "budgets"),
        "resource",
    )
    fields = reader.fields(
        item, path, required=("name", "node", "chips"), optional=optional
    )
    name = reader.get(fields, "name", as_name, path=path, default="")
    node_name = _parse_reference(reader, fields, "node", references.nodes, path)
    by_resource = references.nodes.get(node_name, {})
    node = _node_of_resource(reader, fields, by_resource, path)
    within = range(node.product.chip_count) if node else None
    return SnapshotPod(
        name=name,
        node=node_name,
        chips=reader.chips(fields.get("chips", []), within, f"{path}.chips"),
        resource=node.product.resource if node and len(by_resource) > 1 else "",
        phase=parse_word(reader, fields, "phase", PHASES, "Running", path),
        terminating=reader.get(
            fields, "terminating", as_boolean, path=path, default=False
        ),
        priority=reader.number(fields, "priority", path=path, least=None, default=0),
        started_s=reader.number(fields, "started_s", path=path, least=0, default=None),
        job=_parse_reference(reader, fields, "job", references.jobs, path),
        rank=reader.number(fields, "rank", path=path, least=0, default=None),
        budgets=_parse_budget_names(reader, fields, references.budgets, path),
    )


def _node_of_resource(
    reader: Reader, fields: Fields, by_resource: Mapping[str, SnapshotNode], path: str
) -> SnapshotNode | None:
    """Return the pod's node for the resource of its chips, or None if it is unknown.

    A pod must name the resource only on a node that has several.
    """
    resource = reader.get(fields, "resource", as_string, path=path, default=None)
    if resource is None and len(by_resource) == 1:
        return next(iter(by_resource.values()))
    if by_resource and resource not in by_resource:
        expected = f"a resource of its node: {', '.join(by_resource)}"
        reader.report(f"{path}.resource", expected, resource)
    return by_resource.get(resource or "")


def parse_job(reader: Reader, item: object, path: str) -> SnapshotJob:
    """Parse one item of `jobs`."""
    optional = ("min_available", "schema")
    fields = reader.fields(item, path, required=("name",), optional=optional)
    return SnapshotJob(
        name=reader.get(fields, "name", as_name, path=path, default=""),
        min_available=reader.number(
            fields, "min_available", path=path, least=1, default=None
        ),
        schema=parse_word(reader, fields, "schema", SCHEMAS, None, path),
    )


def parse_budget(reader: Reader, item: object, path: str) -> SnapshotBudget:
    """Parse one item of `budgets`."""
    fields = reader.fields(item, path, required=("name", "allowed"), optional=())
    return SnapshotBudget(
        name=reader.get(fields, "name", as_name, path=path, default=""),
        allowed=reader.number(fields, "allowed", path=path, least=0, default=0),
    )


def parse_superpods(
    reader: Reader, root: Fields, defaults: tuple[int, int]
) -> tuple[int, int]:
    """Return size and reserve of a SuperPoD, in nodes, from the object `superpods`."""
    if "superpods" not in root:
        return defaults
    path = "superpods"
    fields = reader.fields(root[path], path, required=(), optional=("size", "reserve"))
    size = reader.number(fields, "size", path=path, least=1, default=defaults[0])
    reserve = reader.number(fields, "reserve", path=path, least=0, default=defaults[1])
    return size, reserve


def parse_switches(
    reader: Reader, root: Fields, nodes: Container[str]
) -> SnapshotSwitches | None:
    """Parse the object `switches`; None when it is absent."""
    if "switches" not in root:
        return None
    path = "switches"
    fields = reader.fields(
        root[path], path, required=("leaves",), optional=("version", "shared_leaves")
    )
    shared_leaves = reader.number(
        fields, "shared_leaves", path=path, least=1, default=2
    )
    if shared_leaves > _MOST_SHARED:
        reader.report(f"{path}.shared_leaves", "1 or 2", shared_leaves)
    leaves = parse_list(reader, fields, "leaves", _parse_leaf, path)
    ports = [
        (f"{path}.leaves[{at}].servers[{position}].node", server.node)
        for at, leaf in enumerate(leaves)
        for position, server in enumerate(leaf.servers)
        if server.node
    ]
    names = set()
    for node_path, name in ports:
        if name not in nodes:
            reader.report(node_path, _A_NODE, name)
        elif name in names:
            reader.report(node_path, "each node once", name)
        names.add(name)
    return SnapshotSwitches(
        leaves=leaves,
        version=parse_word(reader, fields, "version", VERSIONS, Version.ONE, path),
        shared_leaves=shared_leaves,
    )


def _parse_leaf(reader: Reader, item: object, path: str) -> Leaf:
    fields = reader.fields(
        item, path, required=("name", "servers"), optional=("use", "healthy")
    )
    servers_path = f"{path}.servers"
    return Leaf(
        name=reader.get(fields, "name", as_name, path=path, default=""),
        servers=tuple(
            _parse_server(reader, server, f"{servers_path}[{position}]", position)
            for position, server in enumerate(
                reader.items(fields.get("servers", []), servers_path)
            )
        ),
        use=parse_word(reader, fields, "use", LEAF_USES, LeafUse.IDLE, path),
        healthy=reader.get(fields, "healthy", as_boolean, path=path, default=True),
    )


def _parse_server(reader: Reader, item: object, path: str, position: int) -> Server:
    fields = reader.fields(item, path, required=(), optional=("node", "slice"))
    return Server(
        node=reader.get(fields, "node", as_name, path=path, default=""),
        slice_id=reader.number(fields, "slice", path=path, least=0, default=position),
    )


def _parse_reference(
    reader: Reader, fields: Fields, key: str, names: Container[str], path: str
) -> str:
    """Return the name of a part of the snapshot; "" when it is absent."""
    name = reader.get(fields, key, as_string, path=path, default=None)
    if name is not None and name not in names:
        reader.report(f"{path}.{key}", f"the name of a {key} of this snapshot", name)
    return name or ""


def _parse_budget_names(
    reader: Reader, fields: Fields, budgets: Container[str], path: str
) -> tuple[str, ...]:
    names: list[str] = []
    items = reader.items(fields.get("budgets", []), f"{path}.budgets")
    for index, item in enumerate(items):
        item_path = f"{path}.budgets[{index}]"
        name = reader.read(as_string, item, item_path, default=None)
        if name is None:
            continue
        if name not in budgets:
            reader.report(item_path, "the name of a budget of this snapshot", name)
        elif name in names:
            reader.report(item_path, "each budget once", name)
        names.append(name)
    return tuple(names)
