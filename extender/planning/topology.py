"""What is known of leaf switches and SuperPoDs when a job is planned.

Switches stand in the ConfigMap `basic-tor-node-cm`, which servers of them are which
nodes follows from addresses; what runs under them, and what jobs have made of a leaf,
from the pods of jobs that run or are planned. SuperPoDs stand in the agents' reports.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from extender.cache.cache import Cache
from extender.gang.gangs import Gang
from extender.planning.plan import World
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
from scheduler_core.wire.job_kind_marks import IS_HEALTHY, IS_SHARED_TOR

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the operator has said of networks and jobs."""

    profile: Profile = Profile.SEED
    superpod_size: int = 48
    superpod_reserve: int = 2
    switches: Version = Version.ONE
    shared_leaves: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What the leaves are read from."""

    #: (tor_info, tor_level)
    texts: tuple[str, str]
    #: {InternalIP: name of the node}
    nodes: Mapping[str, str]
    version: Version
    shared_leaves: int


class Networks:
    """What plans need to know of the network, made when it is asked for."""

    def __init__(self, cache: Cache, rules: Rules) -> None:
        """Ask `cache`, by these rules."""
        self._cache = cache
        self._rules = rules
        self._joined = SuperPods()
        self._joined_version = -1
        #: what has been read, and from what
        self._source: _Source | None = None
        self._leaves: Network | None = None

    @property
    def rules(self) -> Rules:
        """The rules that are in force."""
        return self._rules

    def follow(self, rules: Rules) -> None:
        """Go by these rules from now on; what is planned stays."""
        self._rules = rules
        self._joined_version = -1

    def world(self, gang: Gang) -> World:
        """What planning this job depends on besides the cluster."""
        rules = self._rules
        return World(
            profile=rules.profile,
            superpod_size=rules.superpod_size,
            network=self.network(gang) if schema_of(gang) else None,
            joined=self._superpods(),
        )

    def _superpods(self) -> SuperPods:
        if self._joined_version != self._cache.superpods_version:
            self._joined_version = self._cache.superpods_version
            self._joined = SuperPods(
                of_node={
                    record.host.name: record.report.superpod
                    for record in self._cache.records()
                    if record.report is not None
                },
                reserve=self._rules.superpod_reserve,
            )
        return self._joined

    def network(self, gang: Gang | None) -> Network | None:
        """The leaves, and what jobs but this one do there; None if nobody has said."""
        found = self._read()
        if found is None:
            return None
        others = [each for each in self._cache.gangs.jobs.values() if each is not gang]
        tenants = tuple(self._tenants(others))
        made = self._made_of_leaves(others)
        known = tuple(_leaf(leaf, made) for leaf in found.leaves)
        return replace(found, leaves=known, tenants=tenants)

    def _read(self) -> Network | None:
        """The leaves as the ConfigMap has them; read anew only where it may differ."""
        hosts = self._cache.hosts.values()
        nodes = {each.address: each.name for each in hosts if each.address}
        source = _Source(
            texts=self._cache.switch_texts,
            nodes=nodes,
            version=self._rules.switches,
            shared_leaves=self._rules.shared_leaves,
        )
        if source != self._source:
            self._source, self._leaves = source, _parsed(source)
        return self._leaves

    def _tenants(self, gangs: list[Gang]) -> Iterator[Tenant]:
        for gang in gangs:
            schema = schema_of(gang)
            nodes = frozenset(self._node(uid) for uid in gang.seats) - {""}
            if schema is not None and nodes:
                yield Tenant(schema=schema, nodes=nodes)

    def _node(self, uid: str) -> str:
        """Where a pod runs or is to run; "" is nowhere."""
        promise, pod = self._cache.assumed.get(uid), self._cache.pods.get(uid)
        if promise is not None:
            return promise.node
        return "" if pod is None or pod.terminal else pod.node

    def _made_of_leaves(self, gangs: list[Gang]) -> dict[str, tuple[LeafUse, bool]]:
        """{node: what its job says that it makes of its leaf, and if that is sound}."""
        found: dict[str, tuple[LeafUse, bool]] = {}
        for gang in gangs:
            for uid, seat in gang.seats.items():
                promise = self._cache.assumed.get(uid)
                said = promise.extra if promise else seat.traits.annotations
                node = self._node(uid)
                use = said.get(IS_SHARED_TOR, "")
                if node and use in {"1", "2"}:
                    is_sound = said.get(IS_HEALTHY, "0") == "0"
                    found[node] = LeafUse(int(use)), is_sound
        return found


def _parsed(source: _Source) -> Network | None:
    """The leaves, with nothing running; None if nobody has said, or not readably."""
    info, level = source.texts
    if not info:
        return None
    try:
        return switches.parse(
            info,
            source.nodes,
            tor_level=level,
            version=source.version,
            shared_leaves=source.shared_leaves,
        )
    except WireError as error:
        log.warning("leaf switches not read", extra={"error": str(error)})
        return None


def schema_of(gang: Gang) -> Schema | None:
    """What a job asks of the switches; nonsense is refused when it is planned."""
    for seat in gang.seats.values():
        try:
            return leaves.schema_of(seat.traits.labels.get(TOR_AFFINITY, ""))
        except ValueError:
            return None
    return None


def _leaf(leaf: Leaf, made: dict[str, tuple[LeafUse, bool]]) -> Leaf:
    """A leaf as jobs have left it."""
    said = [made[node] for node in leaf.nodes if node in made]
    if not said:
        return leaf
    return replace(
        leaf,
        use=next((use for use, _ in said), leaf.use),
        healthy=leaf.healthy and all(is_sound for _, is_sound in said),
    )
