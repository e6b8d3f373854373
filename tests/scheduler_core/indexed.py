"""An index of any nodes, and beside it the nodes that it must have."""

from collections.abc import Sequence

from hypothesis import strategies as st

from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node.reasons import Reason
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
