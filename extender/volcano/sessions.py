"""Filter nodes for pods within one of Volcano's scheduling sessions.

In a session Volcano sends at most one predicate for each pod and node, pod after pod.
Once a node is refused for one pod, Volcano skips the node for all pods with the same
task spec. So a pod of a planned job may go to any node that the plan has for a pod of
the same shape and role. Prioritize prefers the node planned for the pod itself. If
Volcano picks the planned node of another such pod, the two pods swap their
reservations.

No request lists the nodes that Volcano offers to a job. They are collected from the
predicates for the job's first pod. A plan uses the nodes collected in the job's last
complete session, or all nodes during the job's first session.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.reservations import Owner
from extender.clocks import Clock
from extender.dispatch import Apply
from extender.gang import events as gang_events
from extender.gang.gang import Gang
from extender.gang.job_plan import Phase
from extender.planning import elastic
from extender.planning.planner import Planner
from extender.planning.units import UnitsOfJobs
from extender.refusals import ELSEWHERE, ExtenderReason, Refusal, kept_for_others
from extender.scheduling import node_filter, reserve
from extender.scheduling.reserve import Choice, Ownership
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

#: Score between two classes of nodes; more than all other plugins of Volcano give.
SCORE_STEP = 10_000
#: Number of classes of nodes.
_CLASSES = 10
#: Longest time in seconds that Volcano waits for a pod's volumes before its bind.
UNBOUND_S = 660.0


@dataclass(slots=True)
class _Session:
    """Volcano session of a job: its first pod, and the nodes of that pod's predicates.

    The first pod is the one that the session's first predicate for the job names.
    """

    #: UID of the first pod with a predicate: Volcano remembers no refusal for it yet
    leader: str
    #: nodes of its predicates
    nodes_asked: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _JobState:
    """Facts about one job from its current and its last complete Volcano session."""

    session: _Session
    #: nodes of the last whole session; None before the first
    offered: tuple[str, ...] | None = None
    #: whether a plan was tried in this session
    is_plan_tried: bool = False
    #: whether an earlier process allocated some of its pods
    has_old_allocation: bool = False


class Sessions:
    """Filters and scores nodes, and reserves chips, for the pods of Volcano's sessions.

    Protects: a job is offered to the planner at most once in a session. A second plan
    could accept nodes that Volcano has already recorded as refused.
    """

    def __init__(
        self, cache: Cache, apply: Apply, planner: Planner, clock: Clock
    ) -> None:
        """Start without a recorded session of any job.

        Args:
            cache: Read to filter nodes.
            apply: Applies an event to the cache. Chosen chips are reserved by it.
            planner: Plans jobs of several pods.
            clock: Gives the times of decisions and reservations.
        """
        self._cache = cache
        self._apply = apply
        self._planner = planner
        self._clock = clock
        self._units = UnitsOfJobs()
        #: {job: facts from its sessions}
        self._states: dict[str, _JobState] = {}
        #: {job: (version of the cache, {kind: planned nodes, not yet allocated})}
        self._planned_by_kind: dict[
            str, tuple[tuple[int, int], dict[tuple[Shape, str], set[str]]]
        ] = {}

    # -- predicate -------------------------------------------------------------

    def refusal(self, pod: NpuPod, node: str) -> Refusal | None:
        """Return the reason why a pod may not go to a node; None if the pod may.

        If the pod's job has no plan, the first call in a session tries to plan the job.
        """
        gang = self._cache.gang_of(pod.uid)
        if gang is None or self._cache.is_bind_open(pod.uid):
            return _refuse_pod(self._cache, pod, node, self._clock.now_s())
        if gang.plan.is_gated:
            self._apply(gang_events.SeenInVolcano(job=gang.job))
        now_s = self._clock.now_s()
        has_old_allocation = self._record_question(gang, pod.uid, node)
        refusal = node_filter.pod_refusal(self._cache, pod, now_s)
        refusal = refusal or (
            ALLOCATED_EARLIER if has_old_allocation else self._planner.why_wait(gang)
        )
        if refusal is not None:
            return refusal
        planned_nodes = self._planned_nodes(gang, pod)
        if pod.uid not in gang.plan.places and not planned_nodes:
            return self._refuse_unplanned(gang, pod, node)
        return None if node in planned_nodes else ELSEWHERE

    def _record_question(self, gang: Gang, uid: str, node: str) -> bool:
        """Record that Volcano asked for a pod on a node; plan the job once a session.

        Returns:
            True if the job has no plan, but one of its pods had allocated chips when
            the job was to be planned. For example, an earlier extender process
            allocated them. Such a job gets no plan in this session.
        """
        state = self._states.get(gang.job)
        if state is None:
            state = self._states[gang.job] = _JobState(_Session(uid))
        elif self._is_new(state.session, uid, node):
            state.offered = tuple(state.session.nodes_asked)
            state.session, state.is_plan_tried = _Session(uid), False
            self._drop_unoffered_plan(gang, state.offered)
        if state.session.leader == uid:
            state.session.nodes_asked.add(node)
        if gang.plan.phase is not Phase.GATHERING:
            return False
        if not state.is_plan_tried:
            state.is_plan_tried = True
            state.has_old_allocation = any(map(self._cache.is_bind_open, gang.members))
            if not state.has_old_allocation:
                self._planner.offer(gang, state.offered or self._cache.index.names)
        return state.has_old_allocation and gang.plan.phase is Phase.GATHERING

    def _is_new(self, session: _Session, uid: str, node: str) -> bool:
        """Return whether a predicate for a job's pod and node begins a new session.

        Volcano asks about each pair of pod and node at most once in a session. So a
        second predicate for the first pod of `session` and the same node begins a new
        session. So does a predicate for another pod, once the first pod is bound or
        deleted.

        Args:
            session: The job's newest recorded session.
            uid: UID of the predicate's pod.
            node: Name of the predicate's node.
        """
        if session.leader == uid:
            return node in session.nodes_asked
        leader = self._cache.pods.get(session.leader)
        return leader is None or bool(leader.node)

    def _drop_unoffered_plan(self, gang: Gang, offered: Collection[str]) -> None:
        """Drop a job's plan if it uses nodes that Volcano did not offer to the job.

        Args:
            gang: The job.
            offered: Nodes that Volcano offered in the session that just ended.
        """
        if gang.plan.phase is not Phase.RESERVED:
            return
        for uid, node in list(gang.plan.places.items()):
            if node not in offered and uid in gang.plan.places:
                self._apply(gang_events.NodeNotOffered(uid=uid))

    def _planned_nodes(self, gang: Gang, pod: NpuPod) -> set[str]:
        """Return the nodes planned for the job's unallocated pods of the same kind.

        These have the shape and the role of `pod`, which may itself have no plan.
        """
        version, nodes_by_kind = self._planned_by_kind.get(gang.job, ((-1, -1), {}))
        if version != self._cache.version:
            nodes_by_kind = {}
            for uid, node in gang.plan.places.items():
                kind = self._planned_kind(gang, uid)
                if kind is not None:
                    nodes_by_kind.setdefault(kind, set()).add(node)
            self._planned_by_kind[gang.job] = self._cache.version, nodes_by_kind
        role = gang.members[pod.uid].membership.role
        return nodes_by_kind.get((pod.shape, role), set())

    def _refuse_unplanned(self, gang: Gang, pod: NpuPod, node: str) -> Refusal:
        """Return the refusal of a node for a pod whose job has no plan.

        If the node would refuse the pod even without a job, that refusal is returned,
        because an eviction may help against it.
        """
        pod_refusal = _refuse_pod(self._cache, pod, node, self._clock.now_s())
        text = elastic.why_unplanned(gang, pod.uid, self._units.read(gang))
        return pod_refusal or Refusal(reason=ExtenderReason.JOB, text=text)

    # -- prioritize ------------------------------------------------------------

    def scores(self, pod: NpuPod, names: Sequence[str]) -> dict[str, float]:
        """Return {node: score} for prioritize; the highest score is the best.

        If the pod's job is planned, only the pod's planned node has a score above 0.
        """
        gang = self._cache.gang_of(pod.uid)
        own_node = gang.plan.places.get(pod.uid) if gang is not None else None
        if own_node is not None:
            return {name: SCORE_STEP * float(name == own_node) for name in names}
        scores = node_filter.score_nodes(self._cache, pod, names, _CLASSES)
        return {name: float(SCORE_STEP * score) for name, score in scores.items()}

    # -- jobEnqueueable --------------------------------------------------------

    def job_refusal(self, uids: Collection[str]) -> Refusal | None:
        """Return why a PodGroup's pods do not fit the cluster now; None if they fit.

        The result is None also if their job has a plan already, or if the job waits,
        for example for missing pods. But if the job waits because its size is still
        being read, the result says so. If each pod is a job by itself, the result is
        None if one of the pods fits.

        Args:
            uids: UIDs of the PodGroup's pods. Bound and ended pods are skipped.
        """
        first: Refusal | None = None
        for pod in map(self._cache.pods.get, uids):
            if pod is None or pod.node or pod.terminal:
                continue
            gang = self._cache.gang_of(pod.uid)
            if gang is not None:
                return self._gang_refusal(gang)
            refusal = self._pod_refusal(pod)
            if refusal is None:
                return None
            first = first or refusal
        return first

    def _gang_refusal(self, gang: Gang) -> Refusal | None:
        waits = self._planner.why_wait(gang)
        if waits is not None:
            # Volcano asks again once the size is read. Predicate tells the others.
            return waits if gang.size is None and not gang.problem else None
        if gang.plan.phase is not Phase.GATHERING or not gang.unbound_count:
            return None
        return self._planner.job_refusal(gang, self._cache.index.names)

    def _pod_refusal(self, pod: NpuPod) -> Refusal | None:
        result = node_filter.filter_nodes(
            self._cache, pod, self._cache.index.names, self._clock.now_s()
        )
        if result.fitting or not result.counts:
            return None
        text = ", ".join(f"{count} {text}" for text, count in result.counts)
        return Refusal(reason=ExtenderReason.UNSCHEDULABLE, text=text)

    # -- allocateFunc and deallocateFunc -----------------------------------------

    def choose(self, pod: NpuPod, node: str) -> Choice | Refusal:
        """Choose and reserve chips for a pod on the node to which Volcano allocated it.

        If a planned pod cannot get chips there, the plan of its job is dropped.

        Returns:
            The chosen chips with their claim, or why the pod gets no chips on the node.
        """
        gang = self._cache.gang_of(pod.uid)
        now_s = self._clock.now_s()
        is_planned = gang is not None and not self._cache.is_bind_open(pod.uid)
        if gang is not None and is_planned:
            if gang.plan.places.get(pod.uid) != node:
                self._swap_reservations(gang, pod, node)
            if pod.uid not in gang.plan.places:
                return NO_PLAN
        choice = reserve.choose_chips(
            self._cache,
            pod,
            node,
            ownership=Ownership(owner=Owner.VOLCANO, until_s=now_s + UNBOUND_S),
            now_s=now_s,
            now_ns=self._clock.now_ns(),
        )
        if isinstance(choice, Choice) and self._apply(choice.reservation) is not None:
            choice = kept_for_others(node)
        if isinstance(choice, Choice):
            self._apply(gang_events.Allocated(uid=pod.uid))
        elif gang is not None and is_planned:
            self._apply(gang_events.PlanBroken(job=gang.job, text=choice.text))
        return choice

    def unreserve(self, uid: str) -> None:
        """Undo the allocation of the pod with this UID.

        The chips of a pod without a plan become free. For a pod of a job with a plan,

        - if another pod of the job is allocated or bound, the plan keeps the chips,
        - if not, the plan is dropped, and all chips of the plan become free.
        """
        self._apply(events.BindVoided(uid=uid))
        self._apply(gang_events.Returned(uid=uid))

    def _swap_reservations(self, gang: Gang, pod: NpuPod, node: str) -> None:
        """Swap the reservations of `pod` and of a pod of its kind planned on `node`.

        A pod without a plan takes the other's, which then has none: of an elastic job
        Volcano may pick other pods than the plan has. Nothing changes if the job has no
        such pod.
        """
        own_kind = pod.shape, gang.members[pod.uid].membership.role
        for uid, place in gang.plan.places.items():
            if place == node and self._planned_kind(gang, uid) == own_kind:
                self._apply(events.ReservationsSwapped(uid=pod.uid, other_uid=uid))
                return

    def _planned_kind(self, gang: Gang, uid: str) -> tuple[Shape, str] | None:
        """Return shape and role of a planned, unallocated pod; None for any other."""
        planned = self._cache.reservation(uid)
        if planned is None or planned.claim is None or planned.owner is not Owner.PLAN:
            return None
        return planned.claim.shape, gang.members[uid].membership.role

    def forget(self) -> None:
        """Forget sessions and planned nodes of jobs that the cache no longer has."""
        jobs = self._cache.gangs
        self._units.retain(jobs)
        self._states = {
            job: state for job, state in self._states.items() if job in jobs
        }
        self._planned_by_kind = {
            job: nodes for job, nodes in self._planned_by_kind.items() if job in jobs
        }


ALLOCATED_EARLIER = Refusal(
    reason=ExtenderReason.OPEN_BIND, text="pods of its job have been allocated before"
)
NO_PLAN = Refusal(
    reason=ExtenderReason.JOB, text="its job has no plan now: it is tried again"
)


def _refuse_pod(cache: Cache, pod: NpuPod, node: str, now_s: float) -> Refusal | None:
    """Return why a node refuses a pod taken alone, without its job; None if it fits."""
    result = node_filter.filter_nodes(cache, pod, (node,), now_s)
    return None if result.fitting else result.refused[0][0]
