"""An index of any nodes, and beside it the nodes that it must have."""

from collections.abc import Iterable, Sequence
from operator import itemgetter

from hypothesis import strategies as st

from scheduler_core.index.cluster import BestNode, Cluster, NodeState
from scheduler_core.node import order
from scheduler_core.node.reasons import Reason
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import ATLAS_800_TRAINING, Product
from tests.machines import node_state

#: {(name, resource): node}
Model = dict[tuple[str, str], NodeState]


@st.composite
def node_states(
    draw: st.DrawFn, rows: Sequence[Product], names: st.SearchStrategy[str]
) -> NodeState:
    """Return a node of one of these rows, in any state."""
    row = draw(st.sampled_from(rows))
    masks = st.integers(0, row.all_chips)
    healthy = draw(st.just(row.all_chips) | masks)
    return node_state(
        draw(names),
        row,
        draw(st.just(healthy) | masks),
        inventory=draw(st.sampled_from([row.all_chips, healthy])),
        healthy=healthy,
        network_unhealthy=draw(st.just(0) | masks),
        barred=draw(st.sampled_from([None, None, Reason.AGENT_SILENT])),
    )


def follow(cluster: Cluster, model: Model, change: NodeState | str) -> None:
    """Put a node into both, or drop the Ascend 910 chips of a name."""
    if isinstance(change, str):
        cluster.drop(change, ATLAS_800_TRAINING)
        model.pop((change, ATLAS_800_TRAINING.resource), None)
    else:
        cluster.put(change)
        model[change.name, change.product.resource] = change


def best_by_hand(
    nodes: Iterable[NodeState],
    wanted: Product | str,
    count: int,
    *,
    in_network: bool = False,
) -> BestNode | None:
    """Return the best of these nodes by looking at all of them."""
    keyed = []
    for node in nodes:
        own = node.product
        if isinstance(wanted, str):
            row = own if own.resource == wanted else None
        else:
            row = wanted if node.serves(wanted) else None
        if row is None or node.barred:
            continue
        row = distributed(row) if in_network else row
        key = order.rank(row, node.healthy, node.free & node.usable(row), count)
        if key is not None:
            best = BestNode(node=node, row=row, rank=order.encode_rank(row, key))
            keyed.append(((row.key, key, node.name), best))
    return min(keyed, key=itemgetter(0), default=(None, None))[1]
