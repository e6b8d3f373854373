"""The extender's copy of the cluster, changed by `step` for one event at a time.

The cache does no I/O and reads no clock: the caller of `step` passes the time of each
event. Free chips are computed again only for the nodes that an event changes.
Nodes, pods and reports come from the API server, through its watches. The extender
itself makes reservations, plans of jobs and nominations. A nomination names chips that
preemption frees for a pod or job. A restart drops what the extender made, and reads the
rest again.

Invariant: a free chip is neither reserved nor claimed by a living pod, and the agent
neither holds nor releases it. This is true in whatever order events arrive. A late
event never makes a bound pod unbound, or an ended pod living.
"""

from typing import assert_never

from extender.cache import events, node_state
from extender.cache.events import Change, Reservation
from extender.cache.node_state import NodeInfo, ResourceState, offers_more
from extender.cache.rejections import OwnerBackoff
from extender.cache.requests import RequestedResources
from extender.cache.unconfirmed import UnconfirmedClaims
from extender.gang import events as gang_events
from extender.gang import permit
from extender.gang.gangs import Gangs
from scheduler_core.index.cluster import Cluster
from scheduler_core.wire.pods import NpuPod

#: An agent writes its ConfigMap at least every five minutes; three are missed.
AGENT_SILENT_S = 900.0


class Cache:
    """The nodes, pods, jobs and reservations that the extender knows.

    Only `step` changes nodes, pods and reservations. Jobs are also changed by
    `step_gang`.
    """

    def __init__(
        self,
        *,
        self_maintain: bool = True,
        agent_silent_s: float = AGENT_SILENT_S,
        limits: gang_events.Limits = gang_events.Limits(),  # noqa: B008  # a frozen value
        bare_nodes: bool = False,
    ) -> None:
        """Start with an empty cluster.

        Args:
            self_maintain: True: free chips are computed from the chips of each node,
                their health and the pods. False: a free chip must be in the agent's
                list of available chips as well.
            agent_silent_s: An agent counts as silent if it published nothing for this
                many seconds. Its node then gets no pods.
            limits: Time limits for jobs of several pods, and whether incomplete jobs
                are evicted.
            bare_nodes: Whether a node without an agent may serve pods. Its chips are
                then derived from its Node.
        """
        self.limits = limits
        self._self_maintain = self_maintain
        self._bare_nodes = bare_nodes
        self.agent_silent_s = agent_silent_s
        #: {node: its entry}
        self.nodes: dict[str, NodeInfo] = {}
        #: claims without a confirmed Allocate
        self.unconfirmed_claims = UnconfirmedClaims()
        #: {uid: pod} of pods that ask for NPUs, until they are deleted
        self.pods: dict[str, NpuPod] = {}
        #: {(namespace, name): uid} of the newest pod of that name
        self.uids: dict[tuple[str, str], str] = {}
        #: {uid: reservation}
        self.reservations: dict[str, Reservation] = {}
        self.cluster = Cluster()
        #: names of nodes that offer more than before; the waker clears it
        self.improved_nodes: set[str] = set()
        self.owner_backoff = OwnerBackoff()
        #: jobs of several pods
        self.gangs = Gangs()
        #: effects for jobs of several pods; the planner carries them out and clears it
        self.effects: list[gang_events.Effect] = []
        #: CPU and memory that living pods request
        self.requested_resources = RequestedResources()
        #: {uid: priority} of pods that ask for NPUs; without those of priority 0
        self.priorities: dict[str, int] = {}
        #: {UID of a pod, or job: chips that preemption frees for it}
        self.nominations: dict[str, events.Nominated] = {}
        #: {resource: {node: (job that the node is reserved for, its priority)}}
        self.reserved_nodes: dict[str, dict[str, tuple[str, int]]] = {}
        #: (tor_info, tor_level) of the leaf switches' ConfigMap; "" if absent
        self.switch_texts = ("", "")
        #: grows when the SuperPoD of a node changes
        self.superpods_version = 0
        #: grows with every change that may change a plan
        self.version = 0
        #: age of the newest report when the first list was complete; None before that
        self.ahead_s: float | None = None
        #: kinds of objects whose watch is down, for sentences; "" if none is
        self.lost = ""
        #: seconds since the epoch, of the last `Ticked`
        self.ticked_s = 0.0

    def ensure_node(self, name: str) -> NodeInfo:
        """Return the cache's entry for a node; add an empty entry if there is none."""
        node_info = self.nodes.get(name)
        if node_info is None:
            node_info = self.nodes[name] = NodeInfo(
                name=name, takes_bare=self._bare_nodes
            )
        return node_info

    def ensure_resource(self, name: str, resource: str) -> ResourceState:
        """Return the state of one resource of a node.

        An empty state, and an empty entry for the node, are added if there are none.

        Args:
            name: Name of the node.
            resource: Resource name, such as `huawei.com/Ascend910`.
        """
        node_info = self.ensure_node(name)
        resource_state = node_info.find_resource(resource)
        if resource_state is None:
            resource_state = ResourceState(node_info=node_info, resource=resource)
            node_info.resources = *node_info.resources, resource_state
        return resource_state

    def resource_state(self, name: str, resource: str) -> ResourceState | None:
        """Return the state of one resource of a node; None if the cache has none.

        Args:
            name: Name of the node.
            resource: Resource name, such as `huawei.com/Ascend910`.
        """
        node_info = self.nodes.get(name)
        return None if node_info is None else node_info.find_resource(resource)

    def pod(self, namespace: str, name: str) -> NpuPod | None:
        """Return the newest pod with this namespace and name.

        None if the cache does not know the pod, or the pod asks for no NPU.
        """
        return self.pods.get(self.uids.get((namespace, name), ""))

    def conflicts(self, pod: NpuPod) -> frozenset[str]:
        """Return the nodes where Allocate could mix up `pod` with another pod.

        An Allocate call does not name its pod. The other pod has a reservation or an
        unconfirmed claim on the node, and `shapes.conflict` is True for both shapes.
        """
        return self.unconfirmed_claims.conflicts(pod.shape)

    def nodes_reserved_from(self, uid: str) -> frozenset[str]:
        """Return the nodes that are set aside for a job and therefore closed to a pod.

        Such a node is closed to each pod that is not of this job, unless the pod's
        priority is higher than the job's.

        Args:
            uid: UID of the pod.
        """
        if not self.reserved_nodes:
            return frozenset()
        job, own_priority = self.gangs.job_of.get(uid, ""), self.priorities.get(uid, 0)
        pod = self.pods.get(uid)
        resources = self.reserved_nodes if pod is None else (pod.shape.resource,)
        return frozenset(
            node
            for resource in resources
            for node, (owner, priority) in self.reserved_nodes.get(resource, {}).items()
            if owner != job and own_priority <= priority
        )

    def step_gang(self, event: gang_events.Event, now_s: float) -> None:
        """Apply an event about a job of several pods to the jobs in this cache.

        The resulting effects are appended to the attribute `effects`. The planner
        carries them out.
        """
        self.effects += permit.step(self.gangs, event, now_s, self.limits)

    def recompute(self, resource_state: ResourceState) -> None:
        """Compute the free chips of one resource of a node again, and update the index.

        If the node may take more pods than before, its name is added to
        `improved_nodes`. A state or node entry that became empty is removed from the
        cache.
        """
        self.version += 1
        node_info, resource = resource_state.node_info, resource_state.resource
        if resource_state.is_empty:
            node_info.resources = tuple(
                state_of_resource
                for state_of_resource in node_info.resources
                if state_of_resource is not resource_state
            )
            self.forget_if_empty(node_info)
        has_gone_on = self.unconfirmed_claims.put(
            node_info.name, resource, resource_state.unconfirmed()
        )
        before = self.cluster.nodes(resource).get(node_info.name)
        state = resource_state.state(self_maintain=self._self_maintain)
        if has_gone_on or offers_more(before, state):
            self.improved_nodes.add(node_info.name)
        if state is not None:
            self.cluster.put(state)
        else:
            self.cluster.drop(node_info.name, resource)

    def forget_if_empty(self, node_info: NodeInfo) -> None:
        """Remove a node's entry if it has no resources and no agent's report."""
        if node_info.is_empty:
            self.nodes.pop(node_info.name, None)

    @property
    def self_maintains(self) -> bool:
        """Present value of the setting `self-maintain-available-card`.

        False: a free chip must also be in the agent's list of available chips.
        """
        return self._self_maintain

    def set_self_maintain(self, *, itself: bool) -> None:
        """Set how free chips are computed, and compute the chips of all nodes again.

        Args:
            itself: True: from the chips of each node, their health and the pods. False:
                a free chip must be in the agent's list of available chips as well.
        """
        self._self_maintain = itself
        for resource_state in self.resource_states():
            self.recompute(resource_state)

    def resource_states(self) -> list[ResourceState]:
        """Return the states of all resources of all nodes, grouped by node."""
        return [
            resource_state
            for node_info in self.nodes.values()
            for resource_state in node_info.resources
        ]

    def apply_report(self, resource_state: ResourceState, now_s: float) -> None:
        """Update the state of one resource from the node's newest device ConfigMap.

        The ConfigMap is the agent's `mindx-dl-deviceinfo-<node>`, stored with the node.
        `superpods_version` grows by 1 if the SuperPoD of the node changed.
        """
        if resource_state.apply_report(now_s, self.agent_silent_s, self.ahead_s or 0.0):
            self.superpods_version += 1


def step(cache: Cache, change: Change, now_s: float) -> None:
    """Apply one event to the cache.

    Args:
        cache: Changed in place.
        now_s: When the extender learnt of the event, in seconds since the epoch.

    Cost:
        O(pods and chips of the nodes that the event changes). For SelfMaintainSet:
        O(nodes and pods). For Ticked: O(nodes and jobs).
    """
    match change:
        case events.NodeUpdated():
            _update_node(cache, change, now_s)
        case events.ReportUpdated():
            _report(cache, change, now_s)
        case events.PodUpdated():
            _update_pod(cache, change, now_s)
        case events.PodDeleted():
            _delete_pod(cache, change.uid, now_s)
        case events.Ticked():
            _tick(cache, change, now_s)
        case events.Nominated():
            _nominate(cache, change)
        case events.NominationCleared():
            _clear_nomination(cache, change.owner)
        case _:
            _step(cache, change)


def _step(
    cache: Cache,
    change: events.OtherPodUpdated
    | events.SizeRead
    | events.SwitchesUpdated
    | Reservation
    | events.Unreserved
    | events.SelfMaintainSet,
) -> None:
    """Apply an event whose handling does not need the time."""
    match change:
        case events.OtherPodUpdated():
            cache.requested_resources.put(change.uid, change.node, change.ask)
            cache.gangs.put_other(change.uid, change.job)
        case events.SwitchesUpdated():
            cache.switch_texts = (change.tor_info, change.tor_level)
            cache.version += 1
        case events.SizeRead():
            cache.gangs.set_size(change.job, change.size, change.problem)
        case events.Reservation():
            _drop(cache, change.uid, computed=change.node)
            cache.reservations[change.uid] = change
            resource_state = cache.ensure_resource(change.node, change.shape.resource)
            resource_state.reserve(change)
            cache.recompute(resource_state)
        case events.Unreserved():
            _drop(cache, change.uid)
        case events.SelfMaintainSet():
            cache.set_self_maintain(itself=change.self_maintain)
        case _:
            assert_never(change)


def _nominate(cache: Cache, nomination: events.Nominated) -> None:
    cache.nominations[nomination.owner] = nomination
    for node, mask in nomination.chips.items():
        resource_state = cache.ensure_resource(node, nomination.resource)
        resource_state.nominated[nomination.owner] = mask
        cache.recompute(resource_state)


def _clear_nomination(cache: Cache, owner: str) -> None:
    nomination = cache.nominations.pop(owner, None)
    if nomination is None:
        return
    for node in nomination.chips:
        resource_state = cache.ensure_resource(node, nomination.resource)
        del resource_state.nominated[owner]
        cache.recompute(resource_state)


def _update_node(cache: Cache, change: events.NodeUpdated, now_s: float) -> None:
    node_info = cache.ensure_node(change.name)
    node_info.inventory_text = change.inventory
    node_info.allocatable_resources = change.allocatable_resources
    node_info.address = change.address
    node_info.superpod = change.superpod
    offers = {offer.product.resource: offer for offer in change.offers}
    for resource in offers:
        cache.ensure_resource(change.name, resource)
    for resource_state in node_info.resources:
        offer = offers.get(resource_state.resource)
        resource_state.allocatable = offer.allocatable if offer else 0
        resource_state.put_product(offer.product if offer else None)
        cache.apply_report(resource_state, now_s)  # its report may have come first
        cache.recompute(resource_state)
    cache.forget_if_empty(node_info)


def _report(cache: Cache, change: events.ReportUpdated, now_s: float) -> None:
    node_info = cache.ensure_node(change.node)
    texts = (change.device_info, change.affinity)
    if cache.ahead_s is not None and texts != node_info.report_texts:
        node_info.report_seen_s = now_s
    node_info.report_texts = texts
    for resource_state in node_info.resources:
        cache.apply_report(resource_state, now_s)
        cache.recompute(resource_state)
    cache.forget_if_empty(node_info)


def _judge_reports(cache: Cache, now_s: float) -> None:
    cache.ahead_s = node_state.report_age_s(cache.resource_states(), now_s)
    for resource_state in cache.resource_states():
        if node_state.apply_report_age(
            resource_state, cache.ahead_s, now_s, cache.agent_silent_s
        ):
            cache.recompute(resource_state)


def _update_pod(cache: Cache, change: events.PodUpdated, now_s: float) -> None:
    pod = change.pod
    before = cache.pods.get(pod.uid)
    if before is not None and (
        (before.terminal and not pod.terminal) or (before.node and not pod.node)
    ):
        return  # stale: an ended pod stays ended, a bound one stays bound
    if change.rejected and before is not None and not before.terminal:
        cache.owner_backoff.record_rejection(pod.owner, now_s)
    cache.pods[pod.uid] = pod
    cache.uids[pod.namespace, pod.name] = pod.uid
    _update_member(cache, change, now_s)
    if pod.node or pod.terminal:
        _drop(cache, pod.uid, computed=pod.node)
    if not pod.node:
        return
    resource_state = cache.ensure_resource(pod.node, pod.shape.resource)
    if pod.terminal:
        resource_state.remove_tenant(pod.uid, now_s)
    else:
        resource_state.put_tenant(pod)
    cache.recompute(resource_state)


def _update_member(cache: Cache, change: events.PodUpdated, now_s: float) -> None:
    """Update a pod's requests and priority, and its membership in a job.

    A pod that has failed leaves its job.
    """
    pod, member = change.pod, change.member
    if change.priority:
        cache.priorities[pod.uid] = change.priority
    if pod.terminal:
        cache.requested_resources.drop(pod.uid)
    else:
        cache.requested_resources.put(pod.uid, pod.node, change.ask)
    job = member.membership.job if member is not None else ""
    if cache.gangs.job_of.get(pod.uid, job) != job:
        _leave(cache, pod.uid, now_s)  # its labels changed
    if member is None:
        return
    if pod.phase == "Failed":
        _leave(cache, pod.uid, now_s)
        return
    bound = bool(pod.node) or pod.terminal
    cache.gangs.put(pod.uid, member, bound=bound, ending=pod.deleting)
    if bound:
        cache.step_gang(gang_events.Bound(uid=pod.uid), now_s)
    elif pod.deleting:
        cache.step_gang(gang_events.MemberRemoved(uid=pod.uid), now_s)


def _leave(cache: Cache, uid: str, now_s: float) -> None:
    """Remove a pod from its job."""
    cache.step_gang(gang_events.MemberRemoved(uid=uid), now_s)
    cache.gangs.drop(uid)


def _delete_pod(cache: Cache, uid: str, now_s: float) -> None:
    _drop(cache, uid)
    _leave(cache, uid, now_s)
    cache.requested_resources.drop(uid)
    cache.priorities.pop(uid, None)
    pod = cache.pods.pop(uid, None)
    if pod is None:
        return
    if cache.uids.get((pod.namespace, pod.name)) == uid:
        del cache.uids[pod.namespace, pod.name]
    resource_state = cache.resource_state(pod.node, pod.shape.resource)
    if resource_state is not None:
        resource_state.remove_tenant(uid, now_s)
        cache.recompute(resource_state)


def _drop(cache: Cache, uid: str, *, computed: str = "") -> None:
    """Delete the reservation of a pod, if any; compute free chips of its node again.

    Args:
        computed: Name of a node for which the caller computes the free chips itself;
            "" for none.
    """
    reservation = cache.reservations.pop(uid, None)
    if reservation is not None:
        resource_state = cache.ensure_resource(
            reservation.node, reservation.shape.resource
        )
        del resource_state.reservations[uid]
        if reservation.node != computed:
            cache.recompute(resource_state)


def _tick(cache: Cache, change: events.Ticked, now_s: float) -> None:
    if change.is_all_read and cache.ahead_s is None:
        _judge_reports(cache, now_s)
    is_seen_again = bool(cache.lost) and not change.lost
    if is_seen_again or cache.owner_backoff.has_ended(cache.ticked_s, now_s):
        # a back-off holds for all nodes; one improved node wakes the pods
        cache.improved_nodes.update(cache.cluster.names[:1])
    cache.lost = change.lost
    cache.ticked_s = now_s
    cache.step_gang(gang_events.Ticked(), now_s)
    cache.owner_backoff.forget(now_s)
    heard_s = now_s - cache.agent_silent_s
    for resource_state in cache.resource_states():
        if resource_state.has_nothing_to_expire(heard_s):
            continue  # true for nearly all, and every second all are checked
        silent = resource_state.is_agent_silent(now_s, cache.agent_silent_s)
        if resource_state.expire_unshown(now_s) or silent != resource_state.is_silent:
            resource_state.is_silent = silent
            cache.recompute(resource_state)
