"""Nodes, pods and their requests as the API server has them.

Only facts are here: a restart of the extender reads all of them again, and the resync
(`verify`) repairs a missed one. What the extender has decided is in `reservations`, in
the plans of `gang.gangs` and in `rejections`.
"""

from collections.abc import Iterator

from extender.cache import events
from extender.cache.node_state import NodeInfo, ResourceState
from extender.cache.requests import RequestedResources
from extender.gang.fault_policy import FaultWishes
from scheduler_core.products.table import Product
from scheduler_core.wire.pods import NpuPod


class Facts:
    """The nodes with their agents' reports, and the living and ended pods.

    Only `step` of this package changes them.
    """

    def __init__(self, *, agent_silent_s: float, bare_nodes: bool) -> None:
        """Start without nodes and pods. Arguments as for `Cache`."""
        self._agent_silent_s = agent_silent_s
        self._bare_nodes = bare_nodes
        #: {node: its entry}
        self.nodes: dict[str, NodeInfo] = {}
        #: {uid: pod} of pods that ask for NPUs, until they are deleted
        self.pods: dict[str, NpuPod] = {}
        #: {(namespace, name): uid} of the newest pod of that name
        self.uids: dict[tuple[str, str], str] = {}
        #: {uid: priority} of pods that ask for NPUs; without those of priority 0
        self.priorities: dict[str, int] = {}
        #: {uid: product row that a pod's metadata names}
        self.rows: dict[str, Product] = {}
        #: {uid: what a pod says about faults of its chips}; without those that do not
        self.wishes: dict[str, FaultWishes] = {}
        #: CPU and memory that living pods request
        self.requests = RequestedResources()
        #: (tor_info, tor_level) of the leaf switches' ConfigMap; "" if absent
        self.switch_texts = ("", "")
        #: grows when the SuperPoD of a node changes
        self.superpods_version = 0
        #: seconds by which the wall clock was set ahead since the clock of events began
        self.stepped_s = 0.0

    # -- nodes and reports ---------------------------------------------------------

    def resource_state(self, name: str, resource: str) -> ResourceState | None:
        """Return the state of one resource of a node; None if there is none."""
        node_info = self.nodes.get(name)
        return None if node_info is None else node_info.find_resource(resource)

    def ensure_resource(self, name: str, resource: str) -> ResourceState:
        """Return the state of one resource of a node; add an empty one if missing."""
        node_info = self._ensure_node(name)
        resource_state = node_info.find_resource(resource)
        if resource_state is None:
            resource_state = ResourceState(node_info=node_info, resource=resource)
            node_info.resources = *node_info.resources, resource_state
        return resource_state

    def resource_states(self) -> list[ResourceState]:
        """Return the states of all resources of all nodes, grouped by node."""
        return [
            resource_state
            for node_info in self.nodes.values()
            for resource_state in node_info.resources
        ]

    def is_node_changed(self, change: events.NodeUpdated) -> bool:
        """Whether a Node differs in what schedulers look at."""
        node_info = self.nodes.get(change.name)
        return node_info is None or (change.marks, change.allocatable_resources) != (
            node_info.marks,
            node_info.allocatable_resources,
        )

    def put_node(
        self, change: events.NodeUpdated, now_s: float
    ) -> tuple[ResourceState, ...]:
        """Add, change or empty a node; return its resources, to be computed again."""
        node_info = self._ensure_node(change.name)
        node_info.inventory_text = change.inventory
        node_info.allocatable_resources = change.allocatable_resources
        node_info.internal_ips = change.internal_ips
        node_info.superpod = change.superpod
        node_info.labels, node_info.taints = change.labels, change.taints
        node_info.marks = change.marks
        node_info.offers = change.offers
        self._follow(node_info, now_s)  # its report may have come first
        return node_info.resources

    def put_report(
        self, change: events.ReportUpdated, now_s: float
    ) -> tuple[ResourceState, ...]:
        """Store a report; return the node's resources, to be computed again."""
        node_info = self._ensure_node(change.node)
        texts = (change.device_info, change.affinity)
        if texts != node_info.report_texts:
            node_info.report_seen_s = now_s
        node_info.put_report(*texts)
        self._follow(node_info, now_s)
        return node_info.resources

    def _follow(self, node_info: NodeInfo, now_s: float) -> None:
        """Set the resources of a node by what its Node and its agent's report say."""
        offers = {offer.resource: offer for offer in node_info.offers}
        for resource in offers:
            self.ensure_resource(node_info.name, resource)
        for resource_state in node_info.resources:
            offer = offers.get(resource_state.resource)
            resource_state.allocatable = offer.allocatable if offer else 0
            resource_state.put_product(node_info.row_of(offer) if offer else None)
            if resource_state.apply_report(now_s, self._agent_silent_s, self.stepped_s):
                self.superpods_version += 1

    def expire(self, now_s: float) -> Iterator[ResourceState]:
        """Yield the resources whose agent has fallen silent, or with expired chips.

        Expired are chips of removed pods that the agent has not held for so long.
        """
        heard_s = now_s - self._agent_silent_s
        for resource_state in self.resource_states():
            if resource_state.has_nothing_to_expire(heard_s):
                continue  # true for nearly all, and every second all are checked
            silent = resource_state.is_agent_silent(now_s, self._agent_silent_s)
            is_expired = resource_state.expire_unshown(now_s)
            if is_expired or silent != resource_state.is_silent:
                resource_state.is_silent = silent
                yield resource_state

    def drop_resource(self, resource_state: ResourceState) -> None:
        """Remove the empty state of a resource, and its node if that is empty too."""
        node_info = resource_state.node_info
        node_info.resources = tuple(
            other for other in node_info.resources if other is not resource_state
        )
        self.forget_if_empty(node_info.name)

    def forget_if_empty(self, name: str) -> None:
        """Remove a node's entry if it has no resources and no agent's report."""
        node_info = self.nodes.get(name)
        if node_info is not None and node_info.is_empty:
            del self.nodes[name]

    def _ensure_node(self, name: str) -> NodeInfo:
        node_info = self.nodes.get(name)
        if node_info is None:
            node_info = self.nodes[name] = NodeInfo(
                name=name, takes_bare=self._bare_nodes
            )
        return node_info

    # -- pods ------------------------------------------------------------------------

    def is_stale(self, pod: NpuPod) -> bool:
        """Whether an event about a pod is older than what is known of it.

        An ended pod stays ended, and a bound one stays bound.
        """
        before = self.pods.get(pod.uid)
        return before is not None and (
            (before.terminal and not pod.terminal)
            or (bool(before.node) and not pod.node)
        )

    def put_pod(self, change: events.PodUpdated) -> None:
        """Add a pod that asks for NPUs, or replace what is known of it."""
        pod = change.pod
        self.pods[pod.uid] = pod
        self.uids[pod.namespace, pod.name] = pod.uid
        if change.priority:
            self.priorities[pod.uid] = change.priority
        self.rows.pop(pod.uid, None)
        if change.row is not None:
            self.rows[pod.uid] = change.row
        self.wishes.pop(pod.uid, None)
        if change.wishes is not None:
            self.wishes[pod.uid] = change.wishes
        if pod.terminal:
            self.requests.drop(pod.uid)
        else:
            self.requests.put(pod.uid, pod.node, change.ask)

    def place_pod(self, pod: NpuPod, now_s: float) -> ResourceState | None:
        """Put a pod onto its node, or off it if it has ended.

        Returns the resource of the node, to be computed again; None without a node.
        """
        if not pod.node:
            return None
        resource_state = self.ensure_resource(pod.node, pod.shape.resource)
        if pod.terminal:
            resource_state.remove_tenant(pod.uid, now_s)
        else:
            resource_state.put_tenant(pod)
        return resource_state

    def delete_pod(self, uid: str, now_s: float) -> ResourceState | None:
        """Remove a pod; return the resource of its node that is to be computed again.

        None if the pod is not known, or was on no node.
        """
        self.requests.drop(uid)
        self.priorities.pop(uid, None)
        self.rows.pop(uid, None)
        self.wishes.pop(uid, None)
        pod = self.pods.pop(uid, None)
        if pod is None:
            return None
        if self.uids.get((pod.namespace, pod.name)) == uid:
            del self.uids[pod.namespace, pod.name]
        resource_state = self.resource_state(pod.node, pod.shape.resource)
        if resource_state is not None:
            resource_state.remove_tenant(uid, now_s)
        return resource_state
