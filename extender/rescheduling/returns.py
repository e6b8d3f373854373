"""Keep places for successors of pods that a fault sent away, and give them to these.

The chips of a place are reserved for the job before its pod is evicted. A successor is
refused until nothing occupies them. Then filter gives the kept places: as the plan of a
job of several pods, or as the reservation of a pod that is a job by itself. From there
on all goes its ordinary way. If a plan or a bind comes to nothing, the chips are kept
for the job again.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from extender.cache.cache import Cache
from extender.cache.events import (
    Effect,
    JobReserved,
    PlaceCleared,
    Released,
    ReservationEnded,
    SizeRead,
)
from extender.cache.reservations import REVIEW_S, Claim, Owner, Reservation
from extender.clocks import Clock
from extender.dispatch import Apply
from extender.gang import events as gang_events
from extender.gang.gang import Gang
from extender.gang.job_plan import Phase
from extender.planning import plan
from extender.planning.plan_input import TopologySnapshot
from extender.refusals import ExtenderReason, Refusal, kept_for_others
from extender.rescheduling import successors
from extender.rescheduling.moves import Bound, KeptPlace, PlaceLost, PlacesEnded
from extender.rescheduling.successors import Awaited, PlacesOfMove
from extender.scheduling import node_filter
from scheduler_core.node import chips
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

#: Seconds for which a place must be of no use before it is given up.
LOST_S = 30.0
#: Why a pod got a node and chips, for people.
_REASON = "kept when a fault sent its predecessor away"
#: Why a place is of no use.
_UNOFFERED = "the scheduler does not offer its node to the successor"
_CLOSED = "its node takes no pods"
_USED = "pods of others have its chips"
_STUCK = "processes of a pod that has ended have its chips"


class Returns:
    """Keeper of the places of all moves; it owns their reservations.

    A move is known by the key of its job, or by the UID of a pod that was a job by
    itself.
    """

    def __init__(
        self,
        cache: Cache,
        apply: Apply,
        *,
        clock: Clock,
        topology: Callable[[Gang], TopologySnapshot],
        wake: Callable[[], None],
        report: Callable[[PlacesEnded], None],
    ) -> None:
        """Start without moves.

        Args:
            cache: Read only.
            apply: Applies an event to the cache. Chips are reserved by it.
            clock: Source of all times.
            topology: Returns leaf switches, SuperPoDs and job rules for a job.
            wake: Makes schedulers try all refused pods again.
            report: Learns what has become of places of a job, of all at once. It may
                call `release`.
        """
        self._cache = cache
        self._apply = apply
        self._clock = clock
        self._topology = topology
        self._wake = wake
        self._report = report
        #: {job: its places}
        self._moves: dict[str, PlacesOfMove] = {}

    # -- what moves decide -------------------------------------------------------

    def keep(
        self,
        job: str,
        places: Sequence[KeptPlace],
        *,
        owner: str = "",
        is_partial: bool = False,
    ) -> str:
        """Keep these places for a job in place of those of before, or change nothing.

        Args:
            places: They may be occupied yet by the pods that leave.
            owner: As `Record.owner`.
            is_partial: Whether places that others have are reported as lost, and the
                rest is kept.

        Returns:
            Why a place cannot be kept; "" if they are kept.
        """
        before, gang = self._moves.get(job), self._cache.gangs.get(job)
        move = PlacesOfMove(
            job=job,
            owner=owner,
            leaving=frozenset(place.uid for place in places),
            size=(gang.size if gang else None) or (before.size if before else None),
        )
        for place in places:
            known = before.awaited.get(place.uid) if before is not None else None
            if known is None or known.place != place:
                sitter = successors.find_sitter(self._cache, move, place)
                known = Awaited(place=place, successor=sitter)
            if place.is_kept:
                move.awaited[place.uid] = known
        problems = {
            uid: why
            for uid, awaited in move.awaited.items()
            if not successors.holds(self._cache, awaited)
            and (why := successors.find_conflict(self._cache, move, awaited.place))
        }
        if problems and not is_partial:
            return next(iter(problems.values()))
        self._moves[job] = move
        for uid in problems:
            del move.awaited[uid]
        self._end_places(move, _lost(job, problems))
        self._reserve_or_forget(move)
        return ""

    def release(self, job: str, uids: frozenset[str] | None = None) -> None:
        """End what is reserved for a job.

        What successors have as a plan, bind or reservation of theirs stays.

        Args:
            uids: Pods that go, whose places are released; None: all.
        """
        move = self._moves.get(job)
        if move is None:
            return
        for uid in list(move.awaited) if uids is None else uids:
            move.awaited.pop(uid, None)
        self._reserve_or_forget(move)

    def _reserve_or_forget(self, move: PlacesOfMove) -> None:
        """Reserve the places of a move, or forget it if it has none."""
        self._reserve(move)
        if not move.awaited and self._moves.get(move.job) is move:
            del self._moves[move.job]

    # -- calls of filter -----------------------------------------------------------

    def give(
        self,
        pod: NpuPod,
        names: Sequence[str],
        find_obstacle: Callable[[Gang], Refusal | None],
    ) -> Refusal | None:
        """Let a pod, or the whole job that it is of, take its kept places.

        Nothing changes unless all chips of these places are free. Of a job with members
        without a kept place, the others are planned beside them.

        Args:
            names: Nodes that the scheduler offers to the pod.
            find_obstacle: Returns why a job must not be planned now; None if it may.

        Returns:
            Why a pod that is a job by itself must wait for its place; None if it need
            not. Of a job of several pods `why_held` says it.
        """
        if not self._moves:
            return None
        self._recall_size(pod)
        gang = self._cache.gang_of(pod.uid)
        if gang is None:
            return self._give_alone(pod, names)
        move = self._moves.get(gang.job)
        if move is not None and self._may_give(move, gang, pod, names, find_obstacle):
            self._plan(move, gang, names)
        return None

    def _recall_size(self, pod: NpuPod) -> None:
        """Let a job whose pods had all gone have its size until that is read again.

        Refused for that alone, its first pod would wait for a second. A job with more
        pods has been made larger.
        """
        job = self._cache.job_of(pod.uid)
        move, gang = self._moves.get(job), self._cache.gangs.get(job)
        size = None if move is None else move.size
        if size is None or gang is None or gang.size is not None:
            return
        if size.count is None or gang.staying_count <= size.count:
            self._apply(SizeRead(job=job, size=size))

    def has_place(self, pod: NpuPod) -> bool:
        """Return whether a place is kept for a pod without a node, or for its job."""
        if not self._moves:
            return False
        gang = self._cache.gang_of(pod.uid)
        if gang is None:
            moves = self._moves.values()
            return successors.find_alone(self._cache, moves, pod) is not None
        return gang.job in self._moves

    def successors_of(self, job: str) -> list[str]:
        """Return the UIDs of the pods that have come for the places of a job."""
        move = self._moves.get(job)
        awaited = move.awaited.values() if move is not None else ()
        return [a.successor for a in awaited if a.successor]

    def job_of_successor(self, uid: str) -> str:
        """Return the key of the move for whose place a pod has come; "" if none."""
        for job, move in self._moves.items():
            if any(uid == a.successor for a in move.awaited.values()):
                return job
        return ""

    def why_held(self, gang: Gang) -> str:
        """Return why the planner must leave a job alone; "" if it may be planned."""
        move = self._moves.get(gang.job)
        if move is None or gang.plan.phase is not Phase.GATHERING:
            return ""
        unclear = self._find_unclear(move)
        if unclear is not None:
            return successors.describe_unclear(unclear)
        assigned, waiting = successors.assign(self._cache, move, gang)
        move.blocking |= {a.place.uid: a.place for a in waiting.values()}
        if waiting and not (assigned and gang.is_running):
            return successors.describe_living(self._cache, next(iter(waiting.values())))
        if not assigned:
            return ""
        pods = self._cache.pods
        whys = (self._why_not_taken(a, pods[uid]) for uid, a in assigned.items())
        free = move.text or "its places are kept after a fault, and are free"
        return next(filter(None, whys), free)

    # -- effects of the cache, ticks -------------------------------------------------

    def carry_out(self, effect: Effect) -> None:
        """Keep places again whose plan or bind has ended; wake schedulers once clear.

        Other effects are ignored.
        """
        match effect:
            case gang_events.Unreserve(kept_for=ended):
                self._keep_again({uid for uid in ended if isinstance(uid, str)})
            case ReservationEnded(reservation=reservation):
                if isinstance(reservation.kept_for, str):
                    self._keep_again({reservation.kept_for})
            case PlaceCleared(kept_for=job):
                move = self._moves.get(str(job))
                if move is not None:
                    self._wake_once(move)
            case _:
                pass

    def tick(self) -> None:
        """Report successors that are bound, and lost places; renew reservations."""
        now_s = self._clock.now_s()
        for move in list(self._moves.values()):
            self._end_places(move, self._find_ends(move, now_s))
            if self._moves.get(move.job) is move:
                self._reserve(move)
                self._wake_once(move)

    def _wake_once(self, move: PlacesOfMove) -> None:
        """Wake schedulers if nothing keeps a refused successor from its place now."""
        before, cache = move.blocking, self._cache
        move.blocking = {
            u: p for u, p in before.items() if successors.is_living(cache, p)
        }
        is_clear = not move.is_woken and self._find_unclear(move) is None
        if is_clear or len(move.blocking) < len(before):
            move.is_woken = True
            self._wake()

    def _end_places(
        self, move: PlacesOfMove, ends: Iterator[Bound | PlaceLost]
    ) -> None:
        """Report places that have come to their end, all at once."""
        found = tuple(ends)
        if found:
            self._report(PlacesEnded(job=move.job, ends=found))

    def _find_ends(
        self, move: PlacesOfMove, now_s: float
    ) -> Iterator[Bound | PlaceLost]:
        job, sitting = move.job, successors.bound_by_key(self._cache, move)
        for uid, awaited in move.awaited.items():
            if not successors.has_come(self._cache, awaited):
                key = successors.key_of(awaited.place)
                awaited.successor = sitting.get(key) or successors.find_sitter(
                    self._cache, move, awaited.place
                )
            pod = self._cache.pods.get(awaited.successor)
            if pod is not None and pod.node:
                yield Bound(job=job, uid=uid, successor=pod.uid, node=pod.node)
            elif not successors.holds(self._cache, awaited):
                why = self._why_useless(move, awaited, now_s)
                if why:
                    yield PlaceLost(job=job, uid=uid, why=why)

    def _why_useless(self, move: PlacesOfMove, awaited: Awaited, now_s: float) -> str:
        """Return why a place has been of no use for too long; "" if it has not."""
        place = awaited.place
        state = self._cache.index.nodes(place.resource).get(place.node)
        is_closed = state is None or state.barred is not None
        has_user = successors.has_user(self._cache, move, place)
        awaited.note(_CLOSED, now_s, is_so=is_closed)
        awaited.note(_USED, now_s, is_so=has_user)
        is_left = successors.is_left(self._cache, place)
        is_stuck = is_left and not self._is_cleared(move, place)
        awaited.note(_STUCK, now_s + LOST_S, is_so=is_stuck)  # twice as long
        broken = 0 if state is None or is_closed else place.chips & ~state.healthy
        if broken:
            return f"its chip {chips.ids_of(broken)[0]} broke"
        lacks = awaited.lacks.items()
        return next((why for why, at_s in lacks if now_s - at_s >= LOST_S), "")

    def _find_unclear(self, move: PlacesOfMove) -> KeptPlace | None:
        """Return a place that no successor has and something occupies; None if none.

        Those whose pods stay do not count. That of the last answer is looked at first:
        a job may have thousands.
        """
        last = [move.unclear] if move.unclear in move.awaited else []
        for uid in (*last, *move.awaited):
            awaited = move.awaited[uid]
            if not (
                successors.holds(self._cache, awaited)
                or successors.is_staying(self._cache, awaited.place)
                or self._is_cleared(move, awaited.place)
            ):
                move.unclear, move.is_woken = uid, False
                return awaited.place
        return None

    def _is_cleared(self, move: PlacesOfMove, place: KeptPlace) -> bool:
        return self._cache.is_cleared(
            _reservation(move.job, place.node, place.resource, place.chips, 0.0)
        )

    def _why_not_taken(self, awaited: Awaited, pod: NpuPod) -> str:
        """Return why a successor cannot take its clear place now; "" if it can."""
        place = awaited.place
        state = self._cache.index.nodes(place.resource).get(place.node)
        is_closed = state is None or state.barred is not None
        if is_closed or place.node in self._cache.conflicts(pod):
            return f"waits until {place.node} takes pods, where chips are kept for it"
        if _UNOFFERED in awaited.lacks:
            return f"the scheduler does not offer {place.node}, where chips are kept"
        return ""

    # -- jobs of several pods --------------------------------------------------------

    def _may_give(
        self,
        move: PlacesOfMove,
        gang: Gang,
        pod: NpuPod,
        names: Sequence[str],
        find_obstacle: Callable[[Gang], Refusal | None],
    ) -> bool:
        """Whether all members of a job can take their places in this filter call."""
        cache = self._cache
        is_planned = gang.plan.phase is not Phase.GATHERING
        if is_planned:
            taken = (a for a in move.awaited.values() if a.successor == pod.uid)
            for awaited in taken:
                self._note_offer(awaited, names)
        if (
            is_planned
            or node_filter.pod_refusal(cache, pod, self._clock.now_s()) is not None
            or find_obstacle(gang) is not None
            or self._find_unclear(move) is not None
            or any(map(cache.is_bind_open, gang.unbound))
        ):
            return False
        assigned, waiting = successors.assign(cache, move, gang)
        if pod.uid in assigned:
            self._note_offer(assigned[pod.uid], names)
        is_open = bool(assigned) and (gang.is_running or not waiting)
        return is_open and not any(
            self._why_not_taken(awaited, cache.pods[uid])
            for uid, awaited in assigned.items()
        )

    def _note_offer(self, awaited: Awaited, names: Sequence[str]) -> None:
        """Record whether the scheduler offers a kept node to its successor.

        A list of one node may be that of a nominated node.
        """
        is_offered = awaited.place.node in names
        if is_offered or len(names) > 1:
            now_s = self._clock.now_s()
            awaited.note(_UNOFFERED, now_s, is_so=not is_offered)

    def _plan(self, move: PlacesOfMove, gang: Gang, names: Sequence[str]) -> None:
        """Make the kept places the plan of a job, with plans for all other members."""
        assigned, waiting = successors.assign(self._cache, move, gang)
        shapes = {uid: self._cache.pods[uid].shape for uid in assigned}
        reservations = tuple(self._plan_reservations(assigned, shapes))
        self._hand_over(move, assigned)
        planned = JobReserved(job=gang.job, reservations=reservations)
        if self._apply(planned) is not None:
            self._reserve(move)  # others have a chip: it is found out in the next tick
            return
        if assigned.keys() | waiting.keys() < set(gang.unbound):
            others = replace(gang, absent=gang.absent | waiting.keys())
            self._plan_others(move, others, names, reservations)

    def _plan_others(
        self,
        move: PlacesOfMove,
        gang: Gang,
        names: Sequence[str],
        reservations: tuple[Reservation, ...],
    ) -> None:
        """Plan the members without a kept place beside those that have one."""
        nodes = {str(made.kept_for): made.node for made in reservations}
        others = replace(
            gang, bound=gang.bound | nodes.keys(), nodes=gang.nodes | nodes
        )
        closed = self._cache.closed_nodes(next(iter(nodes)))
        made = plan.plan(
            self._cache,
            others,
            [name for name in names if name not in closed],
            self._clock.now_ns(),
            self._topology(gang),
            until_s=self._clock.now_s() + REVIEW_S,
        )
        if not isinstance(made, Refusal):
            whole = JobReserved(job=gang.job, reservations=(*reservations, *made))
            if self._apply(whole) is None:
                return
            made = kept_for_others(made[0].node)
        move.text = f"pods beside its kept places do not fit: {made.text}"
        if gang.is_plan_short:
            broken = gang_events.PlanBroken(job=gang.job, text=move.text)
            self._apply(broken)

    def _plan_reservations(
        self, assigned: Mapping[str, Awaited], shapes: Mapping[str, Shape]
    ) -> Iterator[Reservation]:
        """Yield what keeps places for the pods that are to be bound there."""
        times: dict[tuple[str, str], int] = {}
        until_s = self._clock.now_s() + REVIEW_S
        for uid, awaited in assigned.items():
            place = awaited.place
            key = place.node, place.resource
            time = times.get(key, self._next_time(place))
            times[key] = time + 1
            yield _reservation(
                uid, place.node, place.resource, place.chips, until_s
            )._replace(
                owner=Owner.PLAN,
                claim=Claim(time, shapes[uid], place.annotations),
                text=_REASON,
                freed_by=Owner.RESCHEDULING,
            )

    def _next_time(self, place: KeptPlace) -> int:
        resource_state = self._cache.resource_state(place.node, place.resource)
        now_ns = self._clock.now_ns()
        return now_ns if resource_state is None else resource_state.next_time(now_ns)

    def _hand_over(self, move: PlacesOfMove, assigned: Mapping[str, Awaited]) -> None:
        """End what is reserved for a job where its successors get reservations."""
        for uid, awaited in assigned.items():
            awaited.successor = uid
            awaited.lacks.clear()
        self._reserve(move, given=assigned.keys())

    # -- pods that are jobs by themselves ------------------------------------------

    def _give_alone(self, pod: NpuPod, names: Sequence[str]) -> Refusal | None:
        found = successors.find_alone(self._cache, self._moves.values(), pod)
        if found is None:
            return None
        move, awaited = found
        awaited.successor = pod.uid
        self._note_offer(awaited, names)
        now_s, cache = self._clock.now_s(), self._cache
        if (
            cache.reservation(pod.uid) is not None
            or node_filter.pod_refusal(cache, pod, now_s) is not None
        ):
            return None
        place = awaited.place
        if not self._is_cleared(move, place):
            move.is_woken = False
            why = successors.describe_unclear(place)
        elif cache.job_of(pod.uid) and successors.is_living(cache, place):
            move.blocking[place.uid] = place
            why = successors.describe_living(cache, awaited)
        else:
            why = self._why_not_taken(awaited, pod)
        if why:
            return Refusal(reason=ExtenderReason.NOMINATED, text=why)
        own = {pod.uid: awaited}
        (planned,) = self._plan_reservations(own, {pod.uid: pod.shape})
        self._hand_over(move, own)
        until_s = now_s + REVIEW_S
        self._apply(planned._replace(owner=Owner.RESCHEDULING, freed_until_s=until_s))
        return None

    # -- reservations --------------------------------------------------------------

    def _keep_again(self, uids: set[str]) -> None:
        """Keep the places of these successors for their jobs, unless they have them."""
        for move in list(self._moves.values()):
            successors = {awaited.successor for awaited in move.awaited.values()}
            if not successors.isdisjoint(uids):
                self._reserve(move)

    def _reserve(self, move: PlacesOfMove, given: Collection[str] = ()) -> None:
        """Reserve the places of a move that no successor has, and nothing besides.

        A place whose chips others have meanwhile is reported as lost.

        Args:
            given: UIDs of successors that are about to get reservations of their own.
        """
        now_s = self._clock.now_s()
        groups: defaultdict[tuple[str, str], list[KeptPlace]] = defaultdict(list)
        for awaited in move.awaited.values():
            if awaited.successor in given or successors.holds(self._cache, awaited):
                continue
            groups[awaited.place.node, awaited.place.resource].append(awaited.place)
        wanted = {key: _mask(places) for key, places in groups.items()}
        existing = [r for r in self._cache.kept_for(move.job) if r.is_of_move]
        is_same = {(r.node, r.resource): r.chips for r in existing} == wanted
        if is_same and all(r.until_s - now_s > REVIEW_S / 2 for r in existing):
            return
        if not is_same:
            move.is_woken = False
            self._apply(Released(kept_for=move.job, owner=Owner.RESCHEDULING))
        lost = {
            place.uid: kept_for_others(place.node).text
            for (node, resource), places in groups.items()
            for place in self._reserve_on(move, node, resource, places)
        }
        self._end_places(move, _lost(move.job, lost))

    def _reserve_on(
        self, move: PlacesOfMove, node: str, resource: str, places: list[KeptPlace]
    ) -> list[KeptPlace]:
        """Reserve places on one node; return those whose chips others have."""
        until_s = self._clock.now_s() + REVIEW_S
        lost: list[KeptPlace] = []
        while places:
            mask = _mask(places)
            wanted = _reservation(move.job, node, resource, mask, until_s)
            conflict = self._apply(wanted)
            if conflict is None:
                break
            taken = conflict.existing.chips
            lost += [place for place in places if place.chips & taken]
            places = [place for place in places if not place.chips & taken]
        return lost


def _reservation(
    kept_for: str, node: str, resource: str, mask: int, until_s: float
) -> Reservation:
    ids = ",".join(map(str, chips.ids_of(mask)))
    return Reservation(
        kept_for=kept_for,
        owner=Owner.RESCHEDULING,
        node=node,
        resource=resource,
        chips=mask,
        until_s=until_s,
        text=f"chips {ids} of {node} are kept for its job, which moves after a fault",
    )


def _lost(job: str, problems: Mapping[str, str]) -> Iterator[PlaceLost]:
    return (PlaceLost(job=job, uid=uid, why=why) for uid, why in problems.items())


def _mask(places: Sequence[KeptPlace]) -> int:
    return chips.union(place.chips for place in places)
