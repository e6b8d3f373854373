"""The parts of a snapshot, each read from its own object of the document."""

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

#: words of the file, and what they mean
PHASES = {
    phase: phase for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")
}
PROFILES = {profile.value: profile for profile in Profile}
SCHEMAS: Mapping[str, Schema | None] = {schema.value: schema for schema in Schema}
VERSIONS = {version.value: version for version in Version}
LEAF_USES = {use.name.lower(): use for use in LeafUse}
#: reasons that hold for a node whatever is asked of it
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
class Known:
    """What a pod may refer to."""

    #: {name: {resource: the node}}
    nodes: Mapping[str, Mapping[str, SnapshotNode]]
    jobs: frozenset[str]
    budgets: frozenset[str]


#: leaves that a job may share with others, at most
_MOST_SHARED = 2
_A_NODE = "the name of a node of this snapshot"


def _name(part: _Named) -> Hashable:
    return part.name


def node_key(node: SnapshotNode) -> Hashable:
    """What no two nodes have in common: name and resource."""
    return node.name, node.product.resource


def each(
    reader: Reader,
    root: Fields,
    name: str,
    parse: Callable[[Reader, object, str], N],
    path: str = "",
    *,
    name_of: Callable[[N], Hashable] = _name,
) -> tuple[N, ...]:
    """The items of the list `name`; no two may have the same name."""
    where = f"{path}.{name}" if path else name
    found = []
    seen = set()
    for index, item in enumerate(reader.items(root.get(name, []), where)):
        path = f"{where}[{index}]"
        part = parse(reader, item, path)
        if name_of(part) in seen:
            reader.say(f"{path}.name", "each name once", part.name)
        if part.name:
            seen.add(name_of(part))
        found.append(part)
    return tuple(found)


def word(
    reader: Reader,
    fields: Fields,
    key: str,
    known: Mapping[str, T],
    usual: T,
    path: str = "",
) -> T:
    """What one of several words means; `usual` when it is absent or another."""
    said = reader.get(fields, key, as_string, path=path, default=None)
    if said is None:
        return usual
    if said not in known:
        where = f"{path}.{key}" if path else key
        reader.say(where, f"one of {', '.join(known)}", said)
        return usual
    return known[said]


def node(reader: Reader, item: object, path: str) -> SnapshotNode:
    """One of `nodes`."""
    optional = (
        *("chips", "unhealthy", "network_unhealthy", "held", "releasing", "listed"),
        *("barred", "superpod", "labels", "annotations"),
    )
    fields = reader.fields(item, path, required=("name", "product"), optional=optional)
    product = _product(reader, fields, path)
    name = reader.get(fields, "name", as_name, path=path, default="")
    every = tuple(range(product.chip_count))

    def chips(key: str, within: tuple[int, ...]) -> tuple[int, ...]:
        return reader.chips(fields.get(key, []), within, f"{path}.{key}")

    inventory = chips("chips", every) if "chips" in fields else every
    unhealthy, network, held, releasing = (
        chips(key, inventory)
        for key in ("unhealthy", "network_unhealthy", "held", "releasing")
    )
    return SnapshotNode(
        name=name,
        product=product,
        chips=inventory,
        unhealthy=unhealthy,
        network_unhealthy=network,
        held=held,
        releasing=releasing,
        listed=chips("listed", inventory) if "listed" in fields else None,
        barred=word(reader, fields, "barred", BARS, None, path),
        superpod=reader.number(fields, "superpod", path=path, least=0, default=-1),
        labels=reader.texts(fields, "labels", path),
        annotations=reader.texts(fields, "annotations", path),
    )


def _product(reader: Reader, fields: Fields, path: str) -> Product:
    """The product; when it is unknown, any, so that the rest can be read."""
    key = reader.get(fields, "product", as_string, path=path, default=None)
    if key is not None:
        try:
            return table.by_key(key)
        except UnknownProductError as error:
            reader.say(f"{path}.product", f"one of {', '.join(error.known)}", key)
    return table.PRODUCTS[0]


def pod(reader: Reader, item: object, path: str, *, known: Known) -> SnapshotPod:
    """One of `pods`."""
    optional = (
        *("phase", "terminating", "priority", "started_s", "job", "rank", "budgets"),
        "resource",
    )
    fields = reader.fields(
        item, path, required=("name", "node", "chips"), optional=optional
    )
    name = reader.get(fields, "name", as_name, path=path, default="")
    where = _reference(reader, fields, "node", known.nodes, path)
    lines = known.nodes.get(where, {})
    on = _line(reader, fields, lines, path)
    within = range(on.product.chip_count) if on else None
    return SnapshotPod(
        name=name,
        node=where,
        chips=reader.chips(fields.get("chips", []), within, f"{path}.chips"),
        resource=on.product.resource if on and len(lines) > 1 else "",
        phase=word(reader, fields, "phase", PHASES, "Running", path),
        terminating=reader.get(
            fields, "terminating", as_boolean, path=path, default=False
        ),
        priority=reader.number(fields, "priority", path=path, least=None, default=0),
        started_s=reader.number(fields, "started_s", path=path, least=0, default=None),
        job=_reference(reader, fields, "job", known.jobs, path),
        rank=reader.number(fields, "rank", path=path, least=0, default=None),
        budgets=_budgets(reader, fields, known.budgets, path),
    )


def _line(
    reader: Reader, fields: Fields, lines: Mapping[str, SnapshotNode], path: str
) -> SnapshotNode | None:
    """Of which of its node's resources a pod's chips are; of one that need not be said.

    None if that cannot be told.
    """
    said = reader.get(fields, "resource", as_string, path=path, default=None)
    if said is None and len(lines) == 1:
        return next(iter(lines.values()))
    if lines and said not in lines:
        expected = f"a resource of its node: {', '.join(lines)}"
        reader.say(f"{path}.resource", expected, said)
    return lines.get(said or "")


def job(reader: Reader, item: object, path: str) -> SnapshotJob:
    """One of `jobs`."""
    optional = ("min_available", "schema")
    fields = reader.fields(item, path, required=("name",), optional=optional)
    return SnapshotJob(
        name=reader.get(fields, "name", as_name, path=path, default=""),
        min_available=reader.number(
            fields, "min_available", path=path, least=1, default=None
        ),
        schema=word(reader, fields, "schema", SCHEMAS, None, path),
    )


def budget(reader: Reader, item: object, path: str) -> SnapshotBudget:
    """One of `budgets`."""
    fields = reader.fields(item, path, required=("name", "allowed"), optional=())
    return SnapshotBudget(
        name=reader.get(fields, "name", as_name, path=path, default=""),
        allowed=reader.number(fields, "allowed", path=path, least=0, default=0),
    )


def superpods(reader: Reader, root: Fields, usual: tuple[int, int]) -> tuple[int, int]:
    """Size and reserve of a SuperPoD, from the object `superpods`."""
    if "superpods" not in root:
        return usual
    path = "superpods"
    fields = reader.fields(root[path], path, required=(), optional=("size", "reserve"))
    size = reader.number(fields, "size", path=path, least=1, default=usual[0])
    reserve = reader.number(fields, "reserve", path=path, least=0, default=usual[1])
    return size, reserve


def switches(
    reader: Reader, root: Fields, nodes: Container[str]
) -> SnapshotSwitches | None:
    """The object `switches`, or None."""
    if "switches" not in root:
        return None
    path = "switches"
    fields = reader.fields(
        root[path], path, required=("leaves",), optional=("version", "shared_leaves")
    )
    shared = reader.number(fields, "shared_leaves", path=path, least=1, default=2)
    if shared > _MOST_SHARED:
        reader.say(f"{path}.shared_leaves", "1 or 2", shared)
    leaves = each(reader, fields, "leaves", _leaf, path)
    ports = [
        (f"{path}.leaves[{at}].servers[{position}].node", server.node)
        for at, leaf in enumerate(leaves)
        for position, server in enumerate(leaf.servers)
        if server.node
    ]
    seen = set()
    for where, name in ports:
        if name not in nodes:
            reader.say(where, _A_NODE, name)
        elif name in seen:
            reader.say(where, "each node once", name)
        seen.add(name)
    return SnapshotSwitches(
        leaves=leaves,
        version=word(reader, fields, "version", VERSIONS, Version.ONE, path),
        shared_leaves=shared,
    )


def _leaf(reader: Reader, item: object, path: str) -> Leaf:
    fields = reader.fields(
        item, path, required=("name", "servers"), optional=("use", "healthy")
    )
    where = f"{path}.servers"
    return Leaf(
        name=reader.get(fields, "name", as_name, path=path, default=""),
        servers=tuple(
            _server(reader, server, f"{where}[{position}]", position)
            for position, server in enumerate(
                reader.items(fields.get("servers", []), where)
            )
        ),
        use=word(reader, fields, "use", LEAF_USES, LeafUse.IDLE, path),
        healthy=reader.get(fields, "healthy", as_boolean, path=path, default=True),
    )


def _server(reader: Reader, item: object, path: str, position: int) -> Server:
    fields = reader.fields(item, path, required=(), optional=("node", "slice"))
    return Server(
        node=reader.get(fields, "node", as_name, path=path, default=""),
        slice_id=reader.number(fields, "slice", path=path, least=0, default=position),
    )


def _reference(
    reader: Reader, fields: Fields, key: str, known: Container[str], path: str
) -> str:
    """The name of something in the snapshot; "" when it is absent."""
    name = reader.get(fields, key, as_string, path=path, default=None)
    if name is not None and name not in known:
        reader.say(f"{path}.{key}", f"the name of a {key} of this snapshot", name)
    return name or ""


def _budgets(
    reader: Reader, fields: Fields, known: Container[str], path: str
) -> tuple[str, ...]:
    found: list[str] = []
    items = reader.items(fields.get("budgets", []), f"{path}.budgets")
    for index, item in enumerate(items):
        where = f"{path}.budgets[{index}]"
        name = reader.read(as_string, item, where, default=None)
        if name is None:
            continue
        if name not in known:
            reader.say(where, "the name of a budget of this snapshot", name)
        elif name in found:
            reader.say(where, "each budget once", name)
        found.append(name)
    return tuple(found)
