"""Nodes that the scheduler offers to each kind of member of a job, for one plan of it.

kube-scheduler asks about pods that exist. A job without a pod of some kind yet, or with
pods that it can do without, is planned all the same (`OfferedNodes.leave_out`,
`OfferedNodes.with_followers`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from extender.cache.cache import Cache
from extender.gang.gang import Gang
from extender.gang.membership import Member
from extender.scheduling.node_demands import admits
from scheduler_core.node.decision import Placement
from scheduler_core.placement.siblings import (
    NOTHING_LEARNT,
    Learnt,
    Sibling,
    Siblings,
    group_siblings,
)
from scheduler_core.wire.pods import NpuPod

#: Pairs of demands and nodes that are remembered, at most.
_ADMISSIONS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedNodes:
    """The nodes on which a job may be planned, and what its refusals have shown."""

    #: nodes that are offered to any kind
    names: Sequence[str]
    #: {kind: nodes that are offered to it}; empty: each kind has all of `names`
    lists: Mapping[str, frozenset[str]] = field(default_factory=dict)
    learnt: Learnt = NOTHING_LEARNT

    def leave_out(self, gang: Gang) -> frozenset[str]:
        """Return the unbound members that have no nodes: their kind was offered none.

        The planner waits for the kinds that the job needs, so it can do without these.
        """
        if not self.lists or self.lists.keys() >= gang.kinds.keys():
            return frozenset()
        return frozenset(
            uid
            for kind, uids in gang.kinds.items()
            if kind not in self.lists
            for uid in uids
            if uid not in gang.bound
        )

    def with_followers(self, members: Iterable[Member]) -> "OfferedNodes":
        """Return these with the nodes of members without a pod.

        Nobody has asked about a kind of which there is no pod: it may have each node
        that is offered to any kind.
        """
        kinds = {member.demands.kind for member in members} - self.lists.keys()
        if not self.lists or not kinds:
            return self
        first, *others = dict.fromkeys(self.lists.values())
        every_name = first.union(*others) if others else first
        lists = dict(self.lists) | dict.fromkeys(kinds, every_name)
        return replace(self, lists=lists)

    def names_of(self, kinds: Collection[str]) -> Sequence[str]:
        """Return the nodes that members of these kinds may have, in the same order."""
        names = self.names
        if self.learnt.refused:
            refused = [self.learnt.refused.get(kind, frozenset()) for kind in kinds]
            excluded = frozenset.intersection(*refused)
            names = [name for name in names if name not in excluded]
        if len(self.lists) > len(kinds):
            offered = [self.lists[kind] for kind in kinds if kind in self.lists]
            if len(offered) == len(kinds):
                wanted = frozenset[str]().union(*offered)
                names = [name for name in names if name in wanted]
        return names

    def group(
        self,
        pods: Sequence[NpuPod],
        kinds: Collection[str],
        members: Mapping[str, Member],
        places: Mapping[str, Placement],
        reserved: Sequence[Sibling] = (),
    ) -> Siblings | None:
        """Return the pods of a job in cohorts; None if nothing sets them apart.

        Args:
            kinds: Kinds of these pods.
            members: {UID of each of these pods: member}.
            places: {name of a bound pod: its node and chips}.
            reserved: Members without a pod whose nodes are kept.
        """
        if len(pods) + len(reserved) == 1:
            return None
        if (
            len(kinds) == 1
            and not reserved
            and not self.learnt.apart
            and not self.learnt.caps
            and not self.learnt.levels
        ):
            demands = members[pods[0].uid].demands
            if not demands.concern_siblings:
                return None  # the common case: no step for each pod
        return group_siblings(
            [
                Sibling(
                    pod.name,
                    member.demands,
                    member.traits.labels,
                    places[pod.name].node if pod.name in places else "",
                )
                for pod in pods
                for member in [members[pod.uid]]
            ]
            + list(reserved),
            self.lists,
            self.learnt,
        )


def complete_lists(
    gang: Gang, lists: Mapping[str, frozenset[str]]
) -> Mapping[str, frozenset[str]]:
    """Return {kind: nodes offered to it} of a job, with kinds that wait for others.

    Members with a required affinity to another kind are offered nodes only once one of
    that kind has a node. Until then they may have the nodes of that kind, too.
    """
    members = {
        kind: gang.members[next(iter(uids))] for kind, uids in gang.kinds.items()
    }
    waiting = {
        kind: [
            other
            for other, leader in members.items()
            if member.demands.awaits_pod(leader.traits.labels)
        ]
        for kind, member in members.items()
        if member.demands.awaits
    }
    if not waiting:
        return lists  # the common case
    completed = dict(lists)
    for _ in waiting:  # one may wait for another that waits
        for kind, leaders in waiting.items():
            if kind in leaders or any(
                uid in gang.nodes for leader in leaders for uid in gang.kinds[leader]
            ):
                continue  # the scheduler offers nodes to it
            offered = [completed[leader] for leader in leaders if leader in completed]
            if offered:
                own = completed.get(kind, frozenset())
                completed[kind] = own.union(*offered)
    return completed


def waiting_kinds(gang: Gang) -> dict[str, str]:
    """Return {kind: name of one of its members without a node}, without other kinds."""
    examples: dict[str, str] = {}
    for kind, uids in gang.kinds.items():
        waiting = (u for u in uids if u not in gang.bound and u not in gang.absent)
        uid = next(waiting, None)
        if uid is not None:
            examples[kind] = gang.members[uid].name
    return examples


def find_unoffered(gang: Gang, offered: Collection[str]) -> str:
    """Return the name of a member for whose kind a plan waits; "" if none does.

    A kind of members that the job can do without is not awaited, unless all members
    without a node are of such kinds.

    Args:
        offered: Kinds to which the scheduler has offered nodes.
    """
    waiting = waiting_kinds(gang)
    kinds = waiting.keys() - offered
    if kinds and kinds < waiting.keys():
        kinds &= _needed_kinds(gang)
    return min((waiting[kind] for kind in kinds), default="")


def _needed_kinds(gang: Gang) -> set[str]:
    """Return the kinds of the unbound members without which the job cannot run."""
    if not gang.lacks_successors:
        return set()
    need = gang.order_by_need([("", absent.role) for absent in gang.awaited])
    return {gang.kind_of(uid) for uid in need.uids[: need.least] if uid}


class NodesLeft:
    """Nodes that predecessors leave, and that their successors may have.

    Answers are kept while nothing changes: a job may have thousands of predecessors,
    and each of its pods is asked about at each event.
    """

    def __init__(self, cache: Cache) -> None:
        """Start without answers.

        Args:
            cache: Read only.
        """
        self._cache = cache
        #: version of the cache with which `_nodes` were found
        self._version = (-1, -1)
        #: {(job, number of its changes, kind of a pod and of the one before it): nodes}
        self._nodes: dict[tuple[str, int, str, str], Collection[str]] = {}
        #: {(demands of a pod, node): labels and taints of the node, whether they admit}
        self._admits: dict[tuple[str, str], tuple[int, bool]] = {}

    def find(self, gang: Gang, uid: str) -> Collection[str]:
        """Return the nodes that predecessors leave and that a pod may have.

        They are of the kind of the pod or of the one before it: a template may have
        been edited. A node that was cordoned since, as by a drain, is not offered
        again.
        """
        if self._version != self._cache.version:
            self._version = self._cache.version
            self._nodes.clear()
        kind = gang.kind_of(uid)
        before = gang.kind_of(gang.predecessors.get(uid, uid))
        key = gang.job, gang.changes, kind, before
        nodes = self._nodes.get(key)
        if nodes is None:
            on_nodes, kinds = gang.members[uid].demands.on_nodes, {kind, before}
            left = {
                gang.nodes[predecessor]: None
                for predecessor in gang.predecessors.values()
                if gang.kind_of(predecessor) in kinds
            }
            nodes = [name for name in left if self._may_have(on_nodes, name)]
            self._nodes[key] = nodes
        return nodes

    def _may_have(self, on_nodes: str, name: str) -> bool:
        """Return whether a pod with these demands may be on a node."""
        node = self._cache.nodes.get(name)
        if node is None:
            return False
        marks, is_admitted = self._admits.get((on_nodes, name), (None, False))
        if marks != node.marks:
            is_admitted = admits(on_nodes, name, node.labels, node.taints)
            if len(self._admits) >= _ADMISSIONS:
                self._admits.clear()
            self._admits[on_nodes, name] = node.marks, is_admitted
        return is_admitted


def kinds_of(
    gang: Gang, pods: Iterable[NpuPod], members: Mapping[str, Member]
) -> Collection[str]:
    """Return the kinds of these pods of a job, among them pods of followers.

    Args:
        members: {UID of each of these pods: member}.
    """
    if len(gang.kinds) == 1 and members is gang.members:
        return gang.kinds.keys()  # the common case: no step for each pod
    return {members[pod.uid].demands.kind for pod in pods}
