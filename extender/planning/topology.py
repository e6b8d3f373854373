"""Leaf switches and SuperPoDs at the time when a job is planned.

The ConfigMap `basic-tor-node-cm` lists the leaf switches, and for each switch the
addresses of its servers. The address of a server identifies its node. The nodes, labels
and annotations of running and planned pods say how jobs use each leaf switch. The
report of a node's agent says which SuperPoD the node belongs to. For a node without an
agent, the Node object says so.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.cache.cache import Cache
from extender.gang.gang import Gang
from extender.planning.plan_input import TopologySnapshot
from scheduler_core.node.decision import LeafUse
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job_rules import Profile
from scheduler_core.topology import leaves
from scheduler_core.topology.leaves import (
    TOR_AFFINITY,
    Leaf,
    Network,
    Schema,
    Tenant,
    Version,
)
from scheduler_core.wire import switches
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.job_annotations import IS_HEALTHY, IS_SHARED_TOR

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of the cluster for leaf switches, SuperPoDs and job rules.

    Job rules restrict all pods of a job together, such as how many chips each may ask
    for (`scheduler_core.placement.job_rules`).
    """

    profile: Profile = Profile.SEED
    superpod_size: int = 48
    superpod_reserve: int = 2
    switches: Version = Version.ONE
    shared_leaves: int = 2


#: What the leaf switches are parsed from: (tor_info, tor_level); {node: InternalIPs};
#: version of switch affinity; leaf switches of a job that others may share.
_Source = tuple[tuple[str, str], Mapping[str, Sequence[str]], Version, int]


class NetworkTopology:
    """Source of the leaf switches, SuperPoDs and job rules that a plan reads.

    It parses the leaf switches again only if the ConfigMap `basic-tor-node-cm`, a
    node's address or a setting for leaf switches changed.
    """

    def __init__(self, cache: Cache, rules: Rules) -> None:
        self._cache = cache
        self._rules = rules
        self._superpod_nodes = SuperPods()
        self._superpods_version = -1
        #: inputs of the last parse, and its result
        self._source: _Source | None = None
        #: result of that parse
        self._leaves: Network | None = None

    @property
    def rules(self) -> Rules:
        """Return the settings that new plans follow."""
        return self._rules

    def set_rules(self, rules: Rules) -> None:
        """Replace the settings that new plans follow. Existing plans stay."""
        self._rules = rules
        self._superpods_version = -1

    def snapshot(self, gang: Gang) -> TopologySnapshot:
        """Return the leaf switches, SuperPoDs and job rules for a plan of this job.

        Leaf switches are included only if the job asks for them with the pod label
        `tor-affinity`.
        """
        rules = self._rules
        asks_leaves = schema_of(gang) is not None
        return TopologySnapshot(
            profile=rules.profile,
            superpod_size=rules.superpod_size,
            network=self.network(gang) if asks_leaves else None,
            superpods=self._superpods(),
            leaf_uses=self._leaf_uses([gang]) if asks_leaves else {},
        )

    def _superpods(self) -> SuperPods:
        if self._superpods_version != self._cache.superpods_version:
            self._superpods_version = self._cache.superpods_version
            self._superpod_nodes = SuperPods(
                of_node={
                    node_info.name: resource_state.report.superpod
                    for node_info in self._cache.nodes.values()
                    for resource_state in node_info.resources
                    if resource_state.report is not None
                },
                reserve=self._rules.superpod_reserve,
            )
        return self._superpod_nodes

    def network(self, gang: Gang | None) -> Network | None:
        """Return all leaf switches, and how jobs other than `gang` use them.

        None if the ConfigMap `basic-tor-node-cm` is absent or malformed.

        Args:
            gang: The job that is planned. If None, the use by every job counts.
        """
        network = self._read_leaves()
        if network is None:
            return None
        other_gangs = [job for job in self._cache.gangs.values() if job is not gang]
        tenants = tuple(self._list_tenants(other_gangs))
        leaf_uses = self._leaf_uses(other_gangs)
        leaves_in_use = tuple(_apply_uses(leaf, leaf_uses) for leaf in network.leaves)
        return replace(network, leaves=leaves_in_use, tenants=tenants)

    def _read_leaves(self) -> Network | None:
        """Return the leaf switches, without their use by jobs.

        None if the ConfigMap `basic-tor-node-cm` is absent or malformed.
        """
        texts, rules = self._cache.switch_texts, self._rules
        nodes = {
            node_info.name: node_info.internal_ips
            for node_info in self._cache.nodes.values()
            if node_info.internal_ips
        }
        source = texts, nodes, rules.switches, rules.shared_leaves
        if source != self._source:
            self._source, self._leaves = source, _parse(*source)
        return self._leaves

    def _list_tenants(self, gangs: list[Gang]) -> Iterator[Tenant]:
        for gang in gangs:
            schema = schema_of(gang)
            nodes = frozenset(self._node_of(uid) for uid in gang.members) - {""}
            if schema is not None and nodes:
                yield Tenant(schema=schema, nodes=nodes)

    def _node_of(self, uid: str) -> str:
        """Return the node that a pod is bound to or has a reservation on; "" if none.

        A pod that has ended counts as not bound.
        """
        reservation, pod = self._cache.reservation(uid), self._cache.pods.get(uid)
        if reservation is not None:
            return reservation.node
        return "" if pod is None or pod.terminal else pod.node

    def _leaf_uses(self, gangs: list[Gang]) -> dict[str, tuple[LeafUse, bool]]:
        """Return how these jobs use the leaf switch above each of their nodes.

        The result is {node: (use, whether the leaf switch is healthy)}. Both are read
        from annotations of the pods. For a pod with a reservation, they are read from
        the annotations that its bind will write.
        """
        uses: dict[str, tuple[LeafUse, bool]] = {}
        for gang in gangs:
            for uid, member in gang.members.items():
                reservation = self._cache.reservation(uid)
                annotations = (
                    reservation.claim.annotations
                    if reservation is not None and reservation.claim is not None
                    else member.traits.annotations
                )
                node = self._node_of(uid)
                use = annotations.get(IS_SHARED_TOR, "")
                if node and use in {"1", "2"}:
                    is_sound = annotations.get(IS_HEALTHY, "0") == "0"
                    uses[node] = LeafUse(int(use)), is_sound
        return uses


def _parse(
    texts: tuple[str, str],
    nodes: Mapping[str, Sequence[str]],
    version: Version,
    shared_leaves: int,
) -> Network | None:
    """Return the leaf switches of the ConfigMap, without their use by jobs.

    None if it is absent or malformed. A malformed one is logged.
    """
    info, level = texts
    if not info:
        return None
    try:
        return switches.parse(
            info,
            nodes,
            tor_level=level,
            version=version,
            shared_leaves=shared_leaves,
        )
    except WireError as error:
        log.warning("leaf switches not read", extra={"error": str(error)})
        return None


def schema_of(gang: Gang) -> Schema | None:
    """Return the schema in a job's label `tor-affinity`; None if there is none.

    The schema says how the job may be spread over leaf switches. A malformed label
    counts as none here, but `plan` refuses the job.
    """
    for member in gang.members.values():
        try:
            return leaves.schema_of(member.traits.labels.get(TOR_AFFINITY, ""))
        except ValueError:
            return None
    return None


def _apply_uses(leaf: Leaf, leaf_uses: dict[str, tuple[LeafUse, bool]]) -> Leaf:
    """Return `leaf`, with the health and the use that the pods on its nodes say.

    The result is healthy only if `leaf` and the entries of all its nodes are healthy.

    Args:
        leaf_uses: {node: (use, whether healthy)}, read from the pods on the node.
    """
    uses = [leaf_uses[node] for node in leaf.nodes if node in leaf_uses]
    if not uses:
        return leaf
    return replace(
        leaf,
        use=next((use for use, _ in uses), leaf.use),
        healthy=leaf.healthy and all(is_sound for _, is_sound in uses),
    )
