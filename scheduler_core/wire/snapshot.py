"""The snapshot file: all that a decision needs, in JSON.

For what-if questions, bug reports and recorded clusters. The version stands in the
file; a key that we do not know is refused, because whoever wrote it expects it to
matter. Everything that is wrong with a file is said at once, each with its path.

    {"version": 1,
     "nodes": [{"name": "node-1", "product": "atlas-800-training",
                "chips": [0, 1, 2, 3, 4, 5, 6, 7], "unhealthy": [3],
                "held": [], "releasing": [], "barred": "agent-silent"}],
     "pods": [{"name": "default/train-0", "node": "node-1",
               "chips": [0, 1], "phase": "Running"}]}

Of a node only name and product must be there: the chips are then all of the product.
Of a pod only name, node and chips. A job: `{"version": 1, "resource":
"huawei.com/Ascend910", "chips": 2}`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from scheduler_core import occupancy, products
from scheduler_core.chips import mask_of
from scheduler_core.cluster import Cluster, NodeState
from scheduler_core.errors import UnknownProductError
from scheduler_core.products import Product
from scheduler_core.reasons import Reason
from scheduler_core.wire.reader import Reader
from scheduler_core.wire.typed import as_integer, as_name, as_string

VERSION = 1

_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
#: reasons that hold for a node whatever is asked of it
_BARS = (
    Reason.NO_ALLOCATABLE,
    Reason.AGENT_SILENT,
    Reason.BAD_NODE_REPORT,
    Reason.IDS_LOST,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNode:
    """One node. Chips are physical ids, ascending."""

    name: str
    product: Product
    chips: tuple[int, ...]
    unhealthy: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    releasing: tuple[int, ...] = ()
    #: why nothing goes there whatever is free, or None
    barred: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPod:
    """One pod that is bound."""

    #: "namespace/name"
    name: str
    node: str
    #: all that its annotations name, physical ids, ascending
    chips: tuple[int, ...]
    phase: str = "Running"

    @property
    def terminal(self) -> bool:
        """Whether it has ended for good, so that its chips are free."""
        return self.phase in {"Failed", "Succeeded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A cluster at one moment."""

    nodes: tuple[SnapshotNode, ...] = ()
    pods: tuple[SnapshotPod, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One pod that wants chips."""

    resource: str
    #: 1 or more
    chips: int


def cluster_of(snapshot: Snapshot) -> Cluster:
    """The index of a snapshot's nodes."""
    claimed: dict[str, int] = {}
    for pod in snapshot.pods:
        if not pod.terminal:
            claimed[pod.node] = claimed.get(pod.node, 0) | mask_of(pod.chips)
    return Cluster(_state(node, claimed.get(node.name, 0)) for node in snapshot.nodes)


def render(snapshot: Snapshot) -> str:
    """The file's text: every key, nodes and pods in the order given."""
    document = {
        "version": VERSION,
        "nodes": [
            {
                "name": node.name,
                "product": node.product.key,
                "chips": node.chips,
                "unhealthy": node.unhealthy,
                "held": node.held,
                "releasing": node.releasing,
                **({"barred": node.barred.value} if node.barred else {}),
            }
            for node in snapshot.nodes
        ],
        "pods": [
            {
                "name": pod.name,
                "node": pod.node,
                "chips": pod.chips,
                "phase": pod.phase,
            }
            for pod in snapshot.pods
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def parse(text: str) -> Snapshot:
    """The snapshot that a file's text gives.

    Raises:
        SnapshotError: Anything that is not as the format demands, all at once.
    """
    reader = Reader()
    root = reader.document(text, VERSION, required=("nodes",), optional=("pods",))
    nodes = tuple(
        _parse_node(reader, item, f"nodes[{index}]")
        for index, item in enumerate(reader.items(root.get("nodes", []), "nodes"))
    )
    by_name: dict[str, SnapshotNode] = {}
    for index, node in enumerate(nodes):
        if node.name and node.name in by_name:
            reader.say(f"nodes[{index}].name", "each node once", node.name)
        by_name[node.name] = node
    pods = tuple(
        _parse_pod(reader, item, by_name, f"pods[{index}]")
        for index, item in enumerate(reader.items(root.get("pods", []), "pods"))
    )
    reader.finish()
    return Snapshot(nodes=nodes, pods=pods)


def parse_job(text: str) -> Job:
    """The job that a file's text gives.

    Raises:
        SnapshotError: Anything that is not as the format demands, all at once.
    """
    reader = Reader()
    root = reader.document(text, VERSION, required=("resource", "chips"), optional=())
    job = Job(
        resource=reader.get(root, "resource", as_string, default=""),
        chips=reader.get(root, "chips", as_integer, default=1),
    )
    if job.chips < 1:
        reader.say("chips", "1 or more", job.chips)
    known = sorted({product.resource for product in products.PRODUCTS})
    if "resource" in root and job.resource not in known:
        reader.say("resource", f"one of {', '.join(known)}", job.resource)
    reader.finish()
    return job


def _state(node: SnapshotNode, claimed: int) -> NodeState:
    inventory = mask_of(node.chips)
    healthy = inventory & ~mask_of(node.unhealthy)
    return NodeState(
        name=node.name,
        product=node.product,
        inventory=inventory,
        healthy=healthy,
        free=occupancy.free_chips(
            healthy=healthy,
            claimed=claimed,
            held=mask_of(node.held),
            releasing=mask_of(node.releasing),
        ),
        barred=node.barred,
    )


def _parse_node(reader: Reader, item: object, path: str) -> SnapshotNode:
    fields = reader.fields(
        item,
        path,
        required=("name", "product"),
        optional=("chips", "unhealthy", "held", "releasing", "barred"),
    )
    product = _parse_product(reader, fields, path)
    every = tuple(range(product.chip_count))

    def chips(name: str, within: tuple[int, ...]) -> tuple[int, ...]:
        return reader.chips(fields.get(name, []), within, f"{path}.{name}")

    inventory = chips("chips", every) if "chips" in fields else every
    return SnapshotNode(
        name=reader.get(fields, "name", as_name, path=path, default=""),
        product=product,
        chips=inventory,
        unhealthy=chips("unhealthy", inventory),
        held=chips("held", inventory),
        releasing=chips("releasing", inventory),
        barred=_parse_barred(reader, fields, path),
    )


def _parse_product(reader: Reader, fields: Mapping[str, object], path: str) -> Product:
    """The product; when it is unknown, any, so that the rest can be read."""
    key = reader.get(fields, "product", as_string, path=path, default=None)
    if key is not None:
        try:
            return products.by_key(key)
        except UnknownProductError as error:
            reader.say(f"{path}.product", f"one of {', '.join(error.known)}", key)
    return products.PRODUCTS[0]


def _parse_barred(
    reader: Reader, fields: Mapping[str, object], path: str
) -> Reason | None:
    value = reader.get(fields, "barred", as_string, path=path, default=None)
    if value is None:
        return None
    if value not in _BARS:
        reader.say(f"{path}.barred", f"one of {', '.join(_BARS)}", value)
        return None
    return Reason(value)


def _parse_pod(
    reader: Reader, item: object, nodes: Mapping[str, SnapshotNode], path: str
) -> SnapshotPod:
    fields = reader.fields(
        item, path, required=("name", "node", "chips"), optional=("phase",)
    )
    name = reader.get(fields, "node", as_string, path=path, default=None)
    node = nodes.get(name or "")
    if name is not None and node is None:
        reader.say(f"{path}.node", "the name of a node of this snapshot", name)
    phase = reader.get(fields, "phase", as_string, path=path, default="Running")
    if phase not in _PHASES:
        reader.say(f"{path}.phase", f"one of {', '.join(_PHASES)}", phase)
    return SnapshotPod(
        name=reader.get(fields, "name", as_name, path=path, default=""),
        node=name or "",
        chips=reader.chips(
            fields.get("chips", []), range(node.product.chip_count), f"{path}.chips"
        )
        if node
        else (),
        phase=phase,
    )
