"""What the extender knows of the cluster and has decided, as questions and one `step`.

`Cache.step` applies one event and returns its effects. Nothing else changes the cache:
all other methods only read it. It does no I/O and reads no clock: the caller passes
the time of each event. A restart drops decisions, and reads the facts again.
"""

from collections import Counter
from collections.abc import Mapping

from extender.cache import step as steps
from extender.cache.events import Change
from extender.cache.facts import Facts
from extender.cache.node_state import NodeInfo, ResourceState
from extender.cache.requests import RequestedResources
from extender.cache.reservations import (
    Beneficiary,
    NodeReservation,
    Reservation,
)
from extender.cache.step import Outcome, State
from extender.gang import events as gang_events
from extender.gang.fault_policy import FaultWishes
from extender.gang.gang import Gang
from extender.gang.membership import Membership
from scheduler_core.index.cluster import Cluster
from scheduler_core.node.state import NodeState
from scheduler_core.products.table import Product
from scheduler_core.wire.pods import NpuPod

#: An agent writes its ConfigMap at least every five minutes; three are missed.
AGENT_SILENT_S = 900.0

_NO_NODES: frozenset[str] = frozenset()


class Cache:
    """The nodes, pods, jobs and reservations that the extender knows.

    What its methods return must not be changed.
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
        state = State(
            facts=Facts(agent_silent_s=agent_silent_s, bare_nodes=bare_nodes),
            limits=limits,
            self_maintain=self_maintain,
        )
        self._state = state
        #: time limits for jobs of several pods
        self.limits = limits
        # Views: read only, and always of the present.
        #: all nodes, by their free chips
        self.index: Cluster = state.index
        #: {name: node} of all nodes with NPUs or an agent's report
        self.nodes: Mapping[str, NodeInfo] = state.facts.nodes
        #: {UID: pod} of all pods that ask for NPUs
        self.pods: Mapping[str, NpuPod] = state.facts.pods
        #: CPU, memory and pod places that living pods request
        self.requests: RequestedResources = state.facts.requests
        #: {key: job} of all jobs
        self.gangs: Mapping[str, Gang] = state.gangs.jobs
        #: {node: reservations of its chips}; without nodes that have none
        self.reserved: Mapping[str, tuple[Reservation, ...]] = (
            state.reservations.by_node
        )

    def step(self, change: Change, now_s: float) -> Outcome:
        """Apply one event; return what follows from it. Costs: see `step.step`.

        Args:
            now_s: When the extender learnt of it, in seconds since the epoch.
        """
        return steps.step(self._state, change, now_s)

    def see_clock(self, stepped_s: float) -> None:
        """Store how far the wall clock is ahead of the time of events; seconds."""
        self._state.facts.stepped_s = stepped_s

    # -- nodes -----------------------------------------------------------------------

    def resource_state(self, name: str, resource: str) -> ResourceState | None:
        """Return the state of one resource of a node; None if the cache has none."""
        return self._state.facts.resource_state(name, resource)

    def computed(self, resource_state: ResourceState) -> NodeState | None:
        """Compute what the index must have for one resource of a node."""
        name, resource = resource_state.node_info.name, resource_state.resource
        return resource_state.state(
            reserved=self._state.reservations.chips_on(name, resource),
            self_maintain=self._state.self_maintain,
        )

    def conflicts(self, pod: NpuPod) -> frozenset[str]:
        """Return the nodes where Allocate could mix up `pod` with another pod.

        An Allocate call does not name its pod. The other pod has a reservation or an
        unconfirmed claim on the node, and `shapes.conflict` is True for both shapes.
        """
        return self._state.unconfirmed.conflicts(pod.shape)

    # -- pods ------------------------------------------------------------------------

    def pod_named(self, namespace: str, name: str) -> NpuPod | None:
        """Return the newest pod with this namespace and name; None if not known."""
        facts = self._state.facts
        return facts.pods.get(facts.uids.get((namespace, name), ""))

    def priority(self, uid: str) -> int:
        """Return the priority of a pod; 0 if it is not known."""
        return self._state.facts.priorities.get(uid, 0)

    def row_asked_for(self, uid: str) -> Product | None:
        """Return the product row that a pod's metadata names; None if it names none."""
        return self._state.facts.rows.get(uid)

    def wishes(self, uid: str) -> FaultWishes | None:
        """Return what a pod says about faults of its chips; None if nothing."""
        return self._state.facts.wishes.get(uid)

    def why_waits(self, pod: NpuPod, now_s: float) -> tuple[str, str]:
        """Return why no node may take a pod now: its owner's back-off; lost watches.

        Each is "" if it is no reason. The first is a sentence, the second the kinds of
        objects that the extender does not see.
        """
        back_off = self._state.backoff.refusal(pod.owner, now_s) or ""
        return back_off, self._state.lost

    # -- jobs ------------------------------------------------------------------------

    def gang_of(self, uid: str) -> Gang | None:
        """Return the job of a pod if the job is planned as a whole; None otherwise."""
        return self._state.gangs.gang_of(uid)

    def job_of(self, uid: str) -> str:
        """Return the key of a pod's job, planned as a whole or not; "" if none."""
        return self._state.gangs.job_of.get(uid, "")

    def stage_of(self, membership: Membership) -> str:
        """Return the job of a pod: that which it names, or a stage of that job."""
        return self._state.gangs.stages.job_of(membership)

    # -- reservations ----------------------------------------------------------------

    def reservation(self, uid: str) -> Reservation | None:
        """Return the chips with which a pod is to be bound; None if it has none yet."""
        return self._state.reservations.assigned(uid)

    def is_bind_open(self, uid: str) -> bool:
        """Whether a bind, or an allocation of Volcano, may have been sent for a pod."""
        reservation = self._state.reservations.assigned(uid)
        return reservation is not None and reservation.is_sent

    def kept_for(self, beneficiary: Beneficiary) -> tuple[Reservation, ...]:
        """Return all chips that are kept for a pod, a job or an absent member."""
        return self._state.reservations.kept_for(beneficiary)

    def is_cleared(self, reservation: Reservation) -> bool:
        """Whether nobody else occupies chips that are kept while they are freed."""
        name, resource = reservation.node, reservation.resource
        resource_state = self._state.facts.resource_state(name, resource)
        reserved = self._state.reservations.chips_on(
            name, resource, but=reservation.kept_for
        )
        return resource_state is not None and resource_state.are_released(
            reservation.chips, reserved=reserved
        )

    def node_reservation(self, resource: str) -> NodeReservation | None:
        """Return the nodes of one resource that are kept for a job; None if none."""
        return self._state.reservations.of_nodes.get(resource)

    def closed_nodes(self, uid: str) -> frozenset[str]:
        """Return the nodes that are kept for a job and therefore closed to a pod.

        Such a node is closed to each pod that is not of this job, unless the pod's
        priority is higher than the job's.
        """
        node_reservations = self._state.reservations.of_nodes.values()
        if not node_reservations:
            return _NO_NODES
        pod, priority = self.pods.get(uid), self.priority(uid)
        return _NO_NODES.union(
            *(
                reservation.nodes
                for reservation in node_reservations
                if (pod is None or pod.shape.resource == reservation.resource)
                and reservation.job != self.job_of(uid)
                and priority <= reservation.priority
            )
        )

    # -- the whole -------------------------------------------------------------------

    @property
    def version(self) -> tuple[int, int]:
        """Two numbers that grow with every change that may change a plan.

        The first grows with free chips and leaf switches, the second with requests for
        CPU and memory of bound pods.
        """
        return self._state.version, self._state.facts.requests.version

    @property
    def switch_texts(self) -> tuple[str, str]:
        """Texts (tor_info, tor_level) of the leaf switches' ConfigMap; "" if absent."""
        return self._state.facts.switch_texts

    @property
    def superpods_version(self) -> int:
        """A number that grows when the SuperPoD of a node changes."""
        return self._state.facts.superpods_version

    @property
    def self_maintains(self) -> bool:
        """Present value of the setting `self-maintain-available-card`."""
        return self._state.self_maintain

    def counts(self) -> Mapping[str, int]:
        """Return {name: number} for metrics: what the cache has of each kind.

        Cost:
            O(reservations).
        """
        state = self._state
        kinds = Counter(map(_kind, state.reservations))
        waiting = {
            (_kind(reservation), reservation.kept_for)
            for reservation in state.reservations
            if reservation.claim is None
        }
        beneficiaries = Counter(kind for kind, _ in waiting)
        return {
            "sent_binds": kinds["sent"],
            "planned_pods": kinds["planned"],
            "nominations": beneficiaries["freed"],
            "moving_jobs": beneficiaries["moving"],
            "cached_nodes": len(state.index),
            "cached_pods": len(state.facts.pods),
            "unconfirmed_shapes": len(state.unconfirmed),
            "backoff_owners": len(state.backoff),
        }


def _kind(reservation: Reservation) -> str:
    if reservation.claim is None:
        return "moving" if reservation.is_of_move else "freed"
    return "sent" if reservation.is_sent else "planned"
