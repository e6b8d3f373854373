"""Plan jobs of several pods at filter, the most important waiting job first.

`plan` chooses nodes and chips. A filter call for a pod of a job without a plan
*reserves* chips for the whole job, if it can be planned now. No await stands between a
plan and its reservations, so no other plan can take the same chips.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

from extender.cache.cache import Cache
from extender.cache.events import (
    Effect,
    Ended,
    JobReserved,
    ReservationEnded,
    ReservationsSwapped,
)
from extender.cache.reservations import REVIEW_S, Reservation
from extender.clocks import Clock
from extender.dispatch import Apply
from extender.gang import events as gang_events
from extender.gang import learning
from extender.gang.gang import SETTLED_S, Gang
from extender.gang.job_plan import Phase
from extender.gang.size import Size
from extender.metrics import RESERVATIONS, Metrics
from extender.planning import elastic, offered_nodes, plan, plan_input, reservation
from extender.planning.candidates import (
    CandidateNodes,
    Question,
    exclude_names,
    make_question,
    queue_key,
)
from extender.planning.plan_input import TopologySnapshot
from extender.refusals import READING, Refusal, kept_for_others, refuse_for_job
from extender.scheduling import node_filter
from extender.scheduling.node_filter import FilterResult
from scheduler_core.placement.siblings import Learnt
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.topology.leaves import asks_leaves
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: Files that the extender needs besides the connections of binds that wait.
SPARE_FILES = 100
#: Pods that kube-scheduler sends to bind in 1 s, at least. A larger job would not be
#: permitted before the scheduler gives up.
PODS_PER_S = 100


class Planner:
    """Jobs that wait for a plan: the nodes offered to them, and why they do not fit.

    Protects: a waiting job is planned before the jobs behind it.
    """

    def __init__(  # noqa: PLR0913  # its collaborators, each passed in
        self,
        cache: Cache,
        apply: Apply,
        *,
        clock: Clock,
        request_size: Callable[[Gang], None],
        topology: Callable[[Gang], TopologySnapshot] = lambda _gang: plan_input.PLAIN,
        why_held: Callable[[Gang], str] | None = None,
        metrics: Metrics,
        open_files: int,
    ) -> None:
        """Start without waiting jobs.

        Args:
            open_files: How many files and connections the extender may have open.
            request_size: Starts to read the size of a job from the API server.
            topology: Returns leaf switches, SuperPoDs and job rules for a job. Called
                each time a job is planned, or nodes are to be reserved for a job.
            why_held: Returns why a job must be left alone, because places are kept for
                it; "" if it may be planned. None: no places are kept.
        """
        self._cache = cache
        self._apply = apply
        self._clock = clock
        self._request_size = request_size
        self._topology = topology
        self._why_held = why_held
        self._metrics = metrics
        self._open_files = open_files
        self._candidates = CandidateNodes()
        self._nodes_left = offered_nodes.NodesLeft(cache)
        #: jobs not planned while a member has a bind without an outcome
        self._postponed: set[str] = set()
        #: {job: {kind: node of its last question, if that was about one node}}
        self._singles: dict[str, dict[str, str]] = {}

    @property
    def largest(self) -> int:
        """Return the largest number of pods whose bind calls may be held for one job.

        A bind call is held for at most `--permit-s` seconds. In a larger job, the first
        call would time out before kube-scheduler has sent the last call. Each held call
        also keeps a connection open.
        """
        by_time = int(self._cache.limits.permit_s * PODS_PER_S)
        return min(by_time, self._open_files - SPARE_FILES)

    # -- filter --------------------------------------------------------------

    def filter_nodes(self, pod: NpuPod, names: Sequence[str]) -> FilterResult | None:
        """Return which nodes a pod may go to by the plan of its job.

        Reserves: if no node among `names` is planned for the pod, the pod's job may be
        planned first (`offer`). Returns None for a one-pod job that asks for no leaf
        switches. Such a pod needs no plan.
        """
        gang = self._cache.gang_of(pod.uid)
        if gang is None:
            return None
        now_s = self._clock.now_s()
        refused = node_filter.pod_refusal(self._cache, pod, now_s) or self.why_wait(
            gang
        )
        if refused is not None:
            self._prepare(gang, pod.uid, names)
            return node_filter.refuse_all(refused, names)
        if self._cache.is_bind_open(pod.uid):
            return node_filter.filter_nodes(self._cache, pod, names, now_s)
        self._find_place(gang, pod, names)
        planned = self._cache.reservation(pod.uid)
        if planned is None:
            return self.refuse_unplanned(gang, pod, names)
        result = node_filter.accept_only(planned.node, names)
        if result.fitting and pod.uid not in gang.plan.accepted:
            self._apply(gang_events.NodeAccepted(uid=pod.uid))
        return result

    def _prepare(self, gang: Gang, uid: str, names: Sequence[str]) -> None:
        """Store the nodes that are offered to a refused pod, for the plan after it.

        A job whose pods wait for predecessors is planned in its turn once these have
        ended. Their nodes are offered then: jobs behind it must not come first there.
        """
        if gang.size is None or gang.missing > len(gang.predecessors):
            return
        if gang.predecessors:
            left = self._nodes_left.find(gang, uid)
            names = [*dict.fromkeys((*names, *left))]
            self._candidates.wait(gang.job)
        self._put_lists(gang, names, uid)

    def refuse_unplanned(
        self, gang: Gang, pod: NpuPod, names: Sequence[str]
    ) -> FilterResult:
        """Return why a pod of a job goes to no node, since no plan has one for it."""
        unasked = self._why_unasked(gang)
        if unasked is not None and gang.members[pod.uid].is_in_group:
            # Refused, it would be the last pod of its group that is asked about. A
            # bind without a plan is refused.
            now_s = self._clock.now_s()
            return node_filter.filter_nodes(self._cache, pod, names, now_s)
        if unasked is not None:
            return node_filter.refuse_all(unasked, names)
        why = elastic.why_unplanned(gang, pod.uid, self._candidates.units.read(gang))
        return node_filter.refuse_unplanned(self._cache, pod, names, why)

    def _find_place(self, gang: Gang, pod: NpuPod, names: Sequence[str]) -> None:
        """Plan the job of `pod` unless its plan gives `pod` one of the nodes `names`.

        If the plan gives `pod` a different node, another member may take it (`_swap`).
        Else the event `NodeNotOffered` is first applied to the job, unless the list has
        one node only: kube-scheduler asks about a nominated node alone. If this event
        does not end the plan, no new plan is made.
        """
        planned = self._cache.reservation(pod.uid)
        if planned is not None and planned.node not in names:
            if not planned.is_of_successor and self._swap(gang, pod, names):
                return
            kind, offered = gang.kind_of(pod.uid), frozenset(names)
            before = self._candidates.of_kinds(gang.job).get(kind, offered)
            may_be_part = gang.plan.phase is not Phase.BINDING or not self._is_all(
                gang, kind, names
            )
            self._apply(
                gang_events.NodeNotOffered(
                    uid=pod.uid,
                    of_one=len(names) == 1 and may_be_part,
                    offered=offered,
                )
            )
            if not offered <= before:
                self._candidates.put(gang.job, kind, tuple(before | offered))
            if pod.uid not in gang.plan.places:
                self._plan_if_asked(gang)
        elif pod.uid not in gang.plan.places:
            self.offer(gang, names, pod.uid)

    def _swap(self, gang: Gang, pod: NpuPod, names: Sequence[str]) -> bool:
        """Give a pod the planned node of a member that has not come; return whether so.

        The member is of the same kind and shape, and gets the node of the pod. Where a
        spread is demanded, over zones perhaps, the order in which the scheduler asks
        decides which node it offers. Under leaf switches and in SuperPoDs, the rank of
        a pod decides; of the successor of a pod, that pod.
        """
        member = gang.members[pod.uid]
        if gang.plan.phase is not Phase.RESERVED or (
            len(names) > 1
            and not member.demands.spreads
            and not (member.demands.has_unread and gang.plan.caps)
        ):
            return False
        if SP_BLOCK in member.traits.annotations or asks_leaves(member.traits.labels):
            return False
        offered = set(names)
        ask = self._cache.requests.ask
        for uid, node in gang.plan.places.items():
            reservation = self._cache.reservation(uid)
            is_kept = reservation is not None and reservation.is_of_successor
            if (
                node in offered
                and not is_kept
                and uid not in gang.plan.accepted
                and uid not in gang.plan.waiting_calls
                and gang.kind_of(uid) == member.demands.kind
                and self._cache.pods[uid].shape == pod.shape
                and ask(uid) == ask(pod.uid)
            ):
                self._apply(ReservationsSwapped(uid=pod.uid, other_uid=uid))
                return True
        return False

    def offer(self, gang: Gang, names: Sequence[str], uid: str = "") -> None:
        """Plan a job, but first the waiting jobs that are ahead of it.

        Reserves the chips of each plan. A job is ahead if it has a higher priority, or
        the same priority and is older. No job is planned if one of these is true:

        - The size of the job `gang` is unknown, or a pod of it is missing.
        - All pods of `gang` are bound, or `gang` has a plan.
        - `gang` is in back-off.
        - `gang` needs more pods than `largest` and none of them is bound, and its
          scheduler is not Volcano.
        - `gang` runs with the pods that it needs, and nothing has changed since more of
          them did not fit these nodes.
        - The scheduler has offered no nodes yet to a kind of members that `gang` needs.

        Args:
            uid: Member to which the nodes are offered; "" for all members.
        """
        if not self._is_due(gang):
            return
        before = dict(self._candidates.of_kinds(gang.job))
        self._put_lists(gang, names, uid)
        is_known = before == self._candidates.of_kinds(gang.job) and (
            self._candidates.was_tried(gang, self._cache.version)
        )
        is_firm = self._is_all(gang, gang.kind_of(uid) if uid else "", names)
        if len(names) == 1 or not is_known or gang.lacks_members:
            self._plan_if_asked(gang, is_firm=is_firm)

    def _is_all(self, gang: Gang, kind: str, names: Sequence[str]) -> bool:
        """Return whether a list has all nodes that the scheduler has for a kind.

        A first list of one node may be that of a nominated node.
        """
        singles = self._singles.setdefault(gang.job, {})
        single = names[0] if names else ""
        is_all = len(names) > 1 or singles.get(kind) == single
        singles[kind] = single if len(names) == 1 else ""
        return is_all

    def _put_lists(self, gang: Gang, names: Sequence[str], uid: str) -> None:
        """Store the nodes offered to the kind of a member, or with "" to all kinds.

        A list of one node says nothing of the other nodes.
        """
        if gang.plan.phase is not Phase.GATHERING:
            return
        lists = self._candidates.of_kinds(gang.job)
        for kind in (gang.kind_of(uid),) if uid else tuple(gang.kinds):
            if len(names) > 1 or not lists.get(kind, frozenset()).issuperset(names):
                self._candidates.put(gang.job, kind, names)

    def _plan_if_asked(self, gang: Gang, *, is_firm: bool = True) -> None:
        """Plan a job in its turn if each kind was offered nodes.

        Args:
            is_firm: Whether the list of the present question may be all that there is.
                A first list of one node may be that of a nominated node. Then the job
                is not planned against what it has learnt, nor with fewer pods than
                it has.
        """
        if self._is_due(gang):
            self._candidates.wait(gang.job)
            if self._why_unasked(gang) is None:
                self._plan_in_order(gang, is_firm=is_firm)

    def _why_unasked(self, gang: Gang) -> Refusal | None:
        """Return that a kind that a job needs has no nodes; None if each has."""
        lists = self.offered_lists(gang)
        if lists.keys() >= gang.kinds.keys():
            return None
        name = offered_nodes.find_unoffered(gang, lists.keys())
        if not name:
            return None
        text = f"its job waits until the scheduler finds nodes for {name} as well"
        return refuse_for_job(text)

    def offered_lists(self, gang: Gang) -> Mapping[str, frozenset[str]]:
        """Return {kind: nodes on which a job's members of this kind are planned}."""
        lists = self._candidates.of_kinds(gang.job)
        return offered_nodes.complete_lists(gang, lists)

    def job_refusal(self, gang: Gang, names: Sequence[str]) -> Refusal | None:
        """Return why a job's unbound pods do not fit the nodes; None if they fit.

        Nodes that are closed to the job (`Cache.closed_nodes`) are left out. The call
        reserves nothing.
        """
        closed_names = self._cache.closed_nodes(next(iter(gang.members), ""))
        free_names = [name for name in names if name not in closed_names]
        topology, first = self._topology(gang), None
        for learnt in learning.read_learnt(gang):
            outcome = plan.plan(
                self._cache, gang, free_names, 0, topology, learnt=learnt
            )
            if not isinstance(outcome, Refusal):
                return None
            first = first or outcome
        return first

    def why_wait(self, gang: Gang) -> Refusal | None:
        """Return why a job must not be planned now; None if it may be.

        The reasons are an unknown size, missing pods, pods that may come yet, too many
        pods, and back-off. If the size is unknown and no task reads it yet, a task is
        started that does so.
        """
        if gang.size is None:
            self._request_size(gang)
        return self.find_obstacle(gang)

    def find_obstacle(self, gang: Gang, *, has_places: bool = False) -> Refusal | None:
        """Return why a job, or one with places, must not be planned now; or None."""
        if gang.size is None:
            text = gang.problem or READING
        elif gang.missing:
            text = _describe_missing(gang, gang.size)
        elif gang.is_growing(self._clock.now_s()):
            text = (
                f"waits {SETTLED_S:g} s for more pods of its job: "
                f"{gang.existing_count} of {gang.size.text} exist"
            )
        elif together := self.count_too_many(gang):
            text = (
                f"its job needs {together} pods at once, more than the {self.largest} "
                f"that can be bound together{self._why_no_more()}"
            )
        elif self._clock.now_s() < gang.plan.again_s:
            text = gang.plan.text
        elif not has_places and self._why_held and (held := self._why_held(gang)):
            text = held
        else:
            return None
        return refuse_for_job(text)

    def count_too_many(self, gang: Gang) -> int:
        """Return how many binds of a job must wait for each other; 0 if so many may.

        Of an elastic job only those of the pods that it needs must.
        """
        has_gate = gang.plan.is_gated and not gang.is_running
        if gang.unbound_count <= self.largest or not has_gate:
            return 0
        if not gang.has_optional:
            return gang.unbound_count
        least = gang.order_by_need().least
        return least if least > self.largest else 0

    def _why_no_more(self) -> str:
        if self.largest < self._open_files - SPARE_FILES:
            return ""
        return f": the extender may have {self._open_files} open files (ulimit -Hn)"

    def _plan_in_order(self, gang: Gang, *, is_firm: bool) -> None:
        """Plan a job, but first the waiting jobs with a lower `queue_key`.

        A waiting job is skipped if it was refused and the cache has not changed since.
        """
        is_alone = len(self._candidates.jobs) == 1  # the common case
        for gang_ahead in () if is_alone else self.find_ahead(gang):
            was_tried = self._candidates.was_tried(gang_ahead, self._cache.version)
            if (
                not was_tried
                and self._is_due(gang_ahead)
                and self._why_unasked(gang_ahead) is None
            ):
                self._plan(gang_ahead)
        if gang.plan.phase is not Phase.RESERVED:
            self._plan(gang, is_firm=is_firm)

    def find_ahead(self, gang: Gang) -> list[Gang]:
        """Return the waiting jobs that are planned before a job, the first first."""
        pods, gangs, own = self._cache.pods, self._cache.gangs, gang.job
        others = [gangs[j] for j in self._candidates.jobs if j in gangs and j != own]
        own_key = queue_key(gang, pods) if others else ()
        ahead = [(turn, o) for o in others if (turn := queue_key(o, pods)) < own_key]
        return [other for _, other in sorted(ahead, key=itemgetter(0))]

    def _is_due(self, gang: Gang) -> bool:
        return (
            gang.plan.phase is Phase.GATHERING
            and gang.unbound_count > 0
            and self.find_obstacle(gang) is None
        )

    def _plan(self, gang: Gang, *, is_firm: bool = True) -> None:
        """Plan a job on its candidate nodes, and reserve the chips of the plan."""
        if self._has_open_bind(gang):
            self._postponed.add(gang.job)
            return
        uid = next(iter(gang.members), "")
        closed_names = self._cache.closed_nodes(uid)
        names = exclude_names(self._candidates.get(gang.job), closed_names)
        question = make_question(self._cache, gang, names)
        outcome = self._plan_or_refusal(gang, names, question, is_firm=is_firm)
        refusal = (
            outcome if isinstance(outcome, Refusal) else self._reserve(gang, outcome)
        )
        self._metrics.plans.labels("made" if refusal is None else "unschedulable").inc()
        if refusal is not None:
            if is_firm:
                self._keep_refusal(gang, question, refusal)
            self._apply(gang_events.PlanFailed(job=gang.job, text=refusal.text))
            self._reserve_nodes(gang, names)

    def _reserve(
        self, gang: Gang, reservations: tuple[Reservation, ...]
    ) -> Refusal | None:
        """Reserve all chips of a plan, or none; return why they are not reserved."""
        conflict = self._apply(
            JobReserved(
                job=gang.job,
                reservations=reservations,
                lists=self.offered_lists(gang),
            )
        )
        if conflict is not None:
            return kept_for_others(conflict.wanted.node)
        self._candidates.drop(gang.job)
        self._singles.pop(gang.job, None)
        return None

    def _keep_refusal(
        self, gang: Gang, question: Question | None, refusal: Refusal
    ) -> None:
        """Store that a job does not fit until the cache changes."""
        if gang.format_names(gang.members) in refusal.text:
            question = None  # the refusal names the pod, so no other pod can reuse it
        version = self._cache.version
        self._candidates.record_refusal(gang, question, refusal, version)

    def _reserve_nodes(self, gang: Gang, names: tuple[str, ...]) -> None:
        node_reservation = reservation.reserve_nodes(
            self._cache,
            gang,
            names,
            self._topology,
            self._clock.now_s(),
            self.offered_lists(gang),
        )
        if node_reservation is not None:
            self._apply(node_reservation)

    def _plan_or_refusal(
        self,
        gang: Gang,
        names: tuple[str, ...],
        question: Question | None,
        *,
        is_firm: bool,
    ) -> tuple[Reservation, ...] | Refusal:
        """Return the reservations of a plan for a job, or why the job does not fit.

        A refusal stored for the same question and version of the cache is returned
        without a new plan. What the job has learnt (`_views`) counts as long as the job
        fits so.
        """
        if question is not None:
            known = self._candidates.known_refusal(question, self._cache.version)
            if known is not None:
                return known
        topology, now_ns = self._topology(gang), self._clock.now_ns()
        lists = self.offered_lists(gang)
        plan_by = partial(
            plan.plan,
            self._cache,
            gang,
            names,
            now_ns,
            topology,
            until_s=self._clock.now_s() + REVIEW_S,
            lists=lists,
            may_be_smaller=is_firm,
            most=self.largest if gang.plan.is_gated and not gang.is_running else None,
        )
        everything, *less = _views(gang, is_firm=is_firm)
        outcome = plan_by(learnt=everything)
        for learnt in less:
            if not isinstance(outcome, Refusal):
                break
            outcome = plan_by(learnt=learnt)
        return outcome

    def _has_open_bind(self, gang: Gang) -> bool:
        """Return whether an unbound member has a bind whose outcome is not known yet.

        The member may still be bound to a node that a new plan would not give it.
        """
        return any(map(self._cache.is_bind_open, gang.members.keys() - gang.bound))

    # -- effects, ticks -------------------------------------------------------

    def carry_out(self, effect: Effect) -> None:
        """Count plans that were given back, and forgotten ones; ignore other effects.

        A forgotten reservation belongs to no plan any more. That is a defect, and it
        has just been repaired.
        """
        match effect:
            case gang_events.Unreserve():
                self._metrics.plans.labels("unreserved").inc()
            case ReservationEnded(reservation=forgotten, why=Ended.EXPIRED):
                self._metrics.repairs.labels(RESERVATIONS).inc()
                log.warning(
                    "reservation without a plan has ended",
                    extra={"uid": str(forgotten.kept_for), "node": forgotten.node},
                )
            case _:
                pass

    def tick(self) -> bool:
        """Forget jobs that no longer exist; return whether a job may be planned now.

        That is so if a job was not planned because a bind had no outcome yet, and now
        all have one, or the job is gone.
        """
        gangs = self._cache.gangs
        postponed = {
            job
            for job in self._postponed
            if job in gangs and self._has_open_bind(gangs[job])
        }
        may_plan = postponed < self._postponed
        self._postponed = postponed
        self._candidates.retain(
            {
                job
                for job in self._candidates.all_jobs
                if job in gangs and gangs[job].has_waiting
            }
        )
        self._singles = {
            job: nodes for job, nodes in self._singles.items() if job in gangs
        }
        return may_plan


def _describe_missing(gang: Gang, size: Size) -> str:
    """Return how many pods a job waits for, and why those that exist do not count."""
    text = f"waits for {gang.missing} of the {size.least_text} pods of its job"
    if gang.gated:
        text += f"; {len(gang.gated)} behind a scheduling gate"
    if unfit := gang.unfit:
        text += f"; {unfit[0]} fits no node: {unfit[1]}"
    if names := gang.succession:
        text += f"; {names[0]} waits until pod {names[1]} has ended"
    return text


def _views(gang: Gang, *, is_firm: bool) -> list[Learnt]:
    """Return what plans of a job are to respect: the first that makes one counts.

    A spread that holds on nodes that are not offered, too, comes first if the list may
    be a part, and after a plan in vain of an elastic job: rather with fewer pods.
    """
    views = list(learning.read_learnt(gang))
    is_cautious = gang.plan.vain and gang.has_optional
    if is_firm and not is_cautious:
        return views
    strict = [replace(learnt, has_whole_lists=False) for learnt in views]
    if not is_firm:
        return strict[:1]
    return [one for pair in zip(strict, views, strict=True) for one in pair]
