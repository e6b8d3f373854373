"""A job with fault pods, planned as if some of its pods had gone.

It is pure. Places are planned on an overlay; nothing is reserved.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from extender.cache.cache import Cache
from extender.cache.node_state import Tenant
from extender.cache.overlay import CacheOverlay, overlay_cache
from extender.cache.reservations import Reservation
from extender.gang.gang import Gang
from extender.gang.job_plan import JobPlan
from extender.planning import plan
from extender.planning.plan_input import TopologySnapshot
from extender.refusals import Refusal
from extender.rescheduling.moves import MoveFacts
from extender.scheduling import node_demands
from scheduler_core.node import chips
from scheduler_core.node.decision import Placement
from scheduler_core.placement import job_rules
from scheduler_core.placement.pod import place
from scheduler_core.products.columns import JobRule
from scheduler_core.rescheduling.ladder import Place
from scheduler_core.wire import job_annotations
from scheduler_core.wire.job_annotations import RANK_INDEX, Marks
from scheduler_core.wire.pods import NpuPod

#: Reasons of nodes that a sentence lists.
_REASONS = 3
#: Pods that are few, and nodes that are tried first for each of them.
_FEW = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A job with fault pods, to be planned as if some of its pods had gone."""

    cache: Cache
    gang: Gang
    topology: TopologySnapshot
    #: {UID: pod and chips} of its running pods, by rank
    tenants: Mapping[str, Tenant]
    #: {UID of a fault pod: mask of its chips with faults}
    faulty: Mapping[str, int]
    #: what has to be known of its move
    facts: MoveFacts
    #: {UID: annotations for its place} of the last places that were found
    _annotations: dict[str, Mapping[str, str]] = field(default_factory=dict)
    #: {whether nodes with faults are left out: nodes that its pods may have}
    _names: dict[bool, list[str]] = field(default_factory=dict)

    def fit(self, avoids: bool, uids: frozenset[str]) -> Mapping[str, Place] | str:  # noqa: FBT001  # as `ladder.Fit`
        """Return places of pods once they have gone; or what is missing.

        All other running pods keep their chips. Pods without a node have plans of their
        own.
        """
        gang, gone = self.gang, uids | self.facts.asked
        waiting = gang.members.keys() - gang.bound
        trial = replace(
            gang,
            bound=gang.bound - gone,
            absent=gang.absent | waiting | (self.facts.asked & gang.members.keys()),
            nodes={uid: node for uid, node in gang.nodes.items() if uid not in gone},
            plan=JobPlan(),
        )
        view = self._without(uids)
        names = self._best_for(view, uids, avoids=avoids)
        planned = self._plan(trial, names, view) if names else None
        if planned is None or isinstance(planned, Refusal):
            names = self._names_for(avoids=avoids)
            planned = self._plan(trial, names, view)
        if isinstance(planned, Refusal):
            pod = self.tenants[min(uids)].pod
            return f"{planned.text}{self._describe_nodes(view, pod, names)}"
        places = dict[str, Place]()
        for made in planned:
            if isinstance(made.kept_for, str) and made.claim is not None:
                places[made.kept_for] = Place(made.node, made.chips)
                self._annotations[made.kept_for] = made.claim.annotations
        return places

    def _plan(
        self, trial: Gang, names: Sequence[str], view: CacheOverlay
    ) -> tuple[Reservation, ...] | Refusal:
        return plan.plan(
            self.cache, trial, names, 0, self.topology, view, may_be_smaller=False
        )

    def annotations_of(self, uid: str, *, returns: bool) -> Mapping[str, str]:
        """Return what bind writes on the successor of a pod, besides its chips.

        The number that this scheduler gave the pod is its successor's. Operators number
        pods themselves.
        """
        member, pod = self.gang.members[uid], self.tenants[uid].pod
        at_home = job_annotations.render(Marks(is_distributed=not self.gang.is_one))
        texts = at_home if returns else self._annotations[uid]
        is_ours = job_rules.choose_rank_annotation(
            0,
            annotation="",
            owner_kind=member.owner_kind or pod.owner.partition("/")[0],
            of_minimum=member.membership.job.startswith("Minimum/"),
        )
        rank = pod.annotations.get(RANK_INDEX, "")
        return {**texts, RANK_INDEX: rank} if is_ours and rank else texts

    def _names_for(self, *, avoids: bool) -> list[str]:
        """Return the nodes that pods of the job may have, as far as it is known."""
        names = self._names.get(avoids)
        if names is None:
            may_have = self._filter_for(avoids=avoids)
            names = [name for name in self.cache.index.names if may_have(name)]
            self._names[avoids] = names
        return names

    def _best_for(
        self, view: CacheOverlay, uids: Collection[str], *, avoids: bool
    ) -> list[str]:
        """Return the nodes to try first for few pods: the best for chips alone.

        Empty for many pods, and where leaf switches or SuperPoDs count as well.
        """
        pods = [self.tenants[uid].pod for uid in uids]
        first = max(pods, key=lambda pod: (pod.total, pod.uid))
        home = view.index.nodes(first.shape.resource).get(first.node)
        is_in_superpod = home is None or home.product.job_rule is JobRule.SUPERPOD
        if len(pods) > _FEW or self.topology.network is not None or is_in_superpod:
            return []
        may_have = self._filter_for(avoids=avoids)
        ranked = view.index.ranked(
            self.cache.row_asked_for(first.uid) or first.shape.resource,
            first.total,
            in_network=not self.gang.is_one,
        )
        able = (name for _, _, name in ranked if may_have(name))
        return list(islice(able, _FEW * len(pods)))

    def _filter_for(self, *, avoids: bool) -> Callable[[str], bool]:
        """Return whether pods of the job may have a node, as far as it is known."""
        closed = self.cache.closed_nodes(next(iter(self.tenants)))
        if avoids:
            closed |= {self.tenants[uid].pod.node for uid in self.faulty}
            closed |= self.facts.avoid
        kinds = {member.demands.on_nodes for member in self.gang.members.values()}
        return lambda name: (
            name not in closed and all(self._admits(name, kind) for kind in kinds)
        )

    def _admits(self, name: str, on_nodes: str) -> bool:
        node = self.cache.nodes[name]
        return node_demands.admits(on_nodes, name, node.labels, node.taints)

    def _without(self, uids: Collection[str]) -> CacheOverlay:
        """Return the cache as if pods had gone, and no chip with a fault served.

        What is kept for pods of the job that may still stay counts as free.
        """
        free: defaultdict[tuple[str, str], int] = defaultdict(int)
        broken: defaultdict[tuple[str, str], int] = defaultdict(int)
        gone = {uid: self.tenants[uid] for uid in uids} | dict(self._asked())
        for kept_place in self.facts.kept_places:
            free[kept_place.node, kept_place.resource] |= kept_place.chips
        for node, resource in list(free):
            free[node, resource] &= ~self._occupied(node, resource, gone)
        for tenant in gone.values():
            free[_place_of(tenant.pod)] |= tenant.chips & ~self._nominated(tenant.pod)
        for uid, mask in self.faulty.items():
            broken[_place_of(self.tenants[uid].pod)] |= mask
        states = []
        for node, resource in dict.fromkeys((*free, *broken)):
            state = self.cache.index.nodes(resource).get(node)
            if state is not None:
                healthy = state.healthy & ~broken[node, resource]
                now_free = (state.free | free[node, resource]) & healthy
                states.append(replace(state, healthy=healthy, free=now_free))
        return overlay_cache(self.cache, states, gone_uids=gone)

    def _asked(self) -> Iterator[tuple[str, Tenant]]:
        """Yield UID and chips of each pod that was asked to go and is still there."""
        for uid in self.facts.asked:
            pod = self.cache.pods.get(uid)
            if pod is not None:
                state = self.cache.resource_state(pod.node, pod.shape.resource)
                if state is not None and uid in state.tenants:
                    yield uid, state.tenants[uid]

    def _occupied(self, node: str, resource: str, gone: Collection[str]) -> int:
        """Return the mask of chips of a node that pods have which stay."""
        state = self.cache.resource_state(node, resource)
        tenants = {} if state is None else state.tenants
        return chips.union(t.chips for uid, t in tenants.items() if uid not in gone)

    def _nominated(self, pod: NpuPod) -> int:
        """Return the mask of chips of a pod's node that are freed for other pods."""
        home = _place_of(pod)
        nominated = chips.union(
            reservation.chips
            for reservation in self.cache.reserved.get(pod.node, ())
            if reservation.claim is None and reservation.resource == pod.shape.resource
        )
        own = (
            kept_place.chips
            for kept_place in self.facts.kept_places
            if (kept_place.node, kept_place.resource) == home
        )
        return nominated & ~chips.union(own)

    def _describe_nodes(
        self, view: CacheOverlay, pod: NpuPod, names: Collection[str]
    ) -> str:
        """Return why no node takes a pod; "" if one does, and too few for all pods."""
        wanted = self.cache.row_asked_for(pod.uid) or pod.shape.resource
        in_network = not self.gang.is_one
        answer = place(
            wanted, pod.total, view.index, names=names, in_network=in_network
        )
        if isinstance(answer, Placement):
            return ""
        first = answer.reasons[:_REASONS]
        listed = ", ".join(f"{count} {text}" for text, count in first)
        return f" ({listed})" if listed else ""


def _place_of(pod: NpuPod) -> tuple[str, str]:
    return pod.node, pod.shape.resource
