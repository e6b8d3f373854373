"""A cluster in which jobs move: API server, controllers, scheduler and judge at once.

Small and by itself: each pod has one chip. It answers what the machine orders, now or
later, well or badly, and checks each order when it comes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from extender.gang.fault_policy import Switch
from extender.preemption.attempt import Outcome
from extender.rescheduling import departures, machine
from extender.rescheduling.assessment import Assessment, Word
from extender.rescheduling.ends import Reach
from extender.rescheduling.judge import Evicted, Reached, evicted_of, reach_of
from extender.rescheduling.moves import (
    Answered,
    Bound,
    DeleteRecord,
    EndPod,
    EndsRead,
    JobGone,
    KeepPlaces,
    KeptPlace,
    Limits,
    MoveFacts,
    MoveRecord,
    PlaceLost,
    PlacesEnded,
    PlacesKept,
    PodEnded,
    PodLeaving,
    ReadEnds,
    Recovered,
    ReleasePlaces,
    Tell,
    TellJob,
    WriteRecord,
    Written,
)
from extender.rescheduling.state import (
    Effect,
    Event,
    Judge,
    Judged,
    Seen,
    Sighting,
    State,
    Ticked,
)
from scheduler_core.rescheduling import ladder
from scheduler_core.rescheduling.ladder import FaultJob, Loss, Move, Place
from tests.extender.rescheduling.movejobs import (
    CHIPS,
    FAULT,
    LIMITS,
    NODES,
    RESOURCE,
    Job,
    Pod,
)


@dataclass(slots=True)
class World:
    jobs: Mapping[str, Job]
    limits: Limits = LIMITS
    now_s: float = 10_000.0
    state: State = field(default_factory=State)
    pods: dict[str, Pod] = field(default_factory=dict)
    broken: set[tuple[str, int]] = field(default_factory=set)
    #: chips that pods have which are none of our jobs'
    foreign: set[tuple[str, int]] = field(default_factory=set)
    #: {key of a job: what is reserved for it}
    kept: dict[str, tuple[KeptPlace, ...]] = field(default_factory=dict)
    #: {key of a job: what its ConfigMap says}
    records: dict[str, MoveRecord] = field(default_factory=dict)
    #: chips with processes of pods that have ended, and since when
    stuck_s: dict[tuple[str, int], float] = field(default_factory=dict)
    #: jobs whose controllers are being deleted, or are over
    over: set[str] = field(default_factory=set)
    #: what is ordered and not answered
    open: list[Effect] = field(default_factory=list)
    #: {UID: when it was asked first}, since the last restart
    asked_s: dict[str, float] = field(default_factory=dict)
    #: what pods and jobs were told
    events: list[Tell | TellJob] = field(default_factory=list)
    #: jobs that ever had a fault, and UIDs of pods that were evicted
    struck: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)
    count: int = 0

    def __post_init__(self) -> None:
        for job in self.jobs.values():
            for number in range(job.count):
                self.make(job.name, number)
        self.schedule()

    # -- the machine -----------------------------------------------------------------

    def apply(self, event: Event) -> None:
        before = self.state
        self.state, effects = machine.step(before, event, self.now_s, self.limits)
        self._check_releases(before, event, effects)
        for effect in effects:
            self._carry_out(effect)

    def _check_releases(
        self, before: State, event: Event, effects: Collection[Effect]
    ) -> None:
        """No place is given back in silence, but to its successor or with its job."""
        begun = {key for key, move in before.moves.items() if move.has_begun}
        told = {
            effect.reason for effect in effects if isinstance(effect, Tell | TellJob)
        }
        for effect in effects:
            if not isinstance(effect, ReleasePlaces) or isinstance(event, JobGone):
                continue
            if isinstance(event, Written) and effect.job not in begun:
                continue  # it was told when it could not be written first
            ended = event.ends if isinstance(event, PlacesEnded) else ()
            bound = {end.uid for end in ended if isinstance(end, Bound)}
            for place in self.kept.get(effect.job, ()):
                is_released = effect.uids is None or place.uid in effect.uids
                if is_released and place.uid not in bound:
                    assert told & {departures.LOST, departures.WAITS}, "nobody is told"

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Judge():
                assert effect.facts is not None
                found = self.judge(effect.job, effect.faulty, effect.facts)
                self.apply(
                    Judged(job=effect.job, faulty=effect.faulty, assessment=found)
                )
            case KeepPlaces():
                self._keep(effect)
            case ReleasePlaces(job=key, uids=uids):
                rest = () if uids is None else self.kept.get(key, ())
                self.kept[key] = tuple(p for p in rest if p.uid not in (uids or ()))
            case EndPod():
                self._check_end(effect)
                self.asked_s.setdefault(effect.uid, self.now_s)
                self.open.append(effect)
            case Tell() | TellJob():
                self.events.append(effect)
            case ReadEnds(job=key, uids=uids):
                ending = {uid for uid in uids & self.pods.keys() if self.ends(uid)}
                assert not (self.state.moves[key].is_late and ending), "it ends already"
                self.open.append(effect)
            case _:
                self.open.append(effect)

    def ends(self, uid: str) -> bool:
        return self.pods[uid].is_ending

    def _check_end(self, effect: EndPod) -> None:
        """Nobody is asked to go but who may be."""
        key, uid = effect.job, effect.uid
        job = self.job_of(key)
        places = {place.uid: place for place in self.records[key].places}
        assert uid in places, "it is in no record"
        if places[uid].is_kept:
            assert uid in {place.uid for place in self.kept.get(key, ())}
        else:
            assert job.least is not None, "only an elastic job loses a pod"
        assert job.survives, "its job would end"
        assert job.name in self.struck, "its job never had a fault"
        assert not self.state.held.is_all
        assert key not in self.state.held.jobs
        assert not self.state.is_braked(self.limits)
        unanswered = [each for each in self.open if isinstance(each, EndPod)]
        assert len(unanswered) < self.limits.most_asks
        assert uid not in {each.uid for each in unanswered}, "it is asked twice at once"
        is_late = self.now_s >= self.asked_s.get(uid, self.now_s) + self.limits.grace_s
        is_late = is_late or bool(self.state.moves[key].overdue_s and effect.is_forced)
        assert effect.is_forced is (job.switch is Switch.FORCE or is_late)

    def _keep(self, effect: KeepPlaces) -> None:
        """Reserve chips: all, or after a restart those that can be."""
        chips = [(place.node, place.chips) for place in effect.places]
        assert len(set(chips)) == len(chips), "two pods get one chip"
        others = {
            (place.node, place.chips)
            for key, places in self.kept.items()
            if key != effect.job
            for place in places
        }
        taken = [
            place
            for place in effect.places
            if (place.node, place.chips) in others | self.foreign
            or (effect.is_partial and self._is_taken(effect.job, place))
        ]
        if effect.is_partial:
            self.kept[effect.job] = tuple(p for p in effect.places if p not in taken)
            self.end_places(
                *(PlaceLost(job=effect.job, uid=p.uid, why="taken") for p in taken)
            )
        elif not taken:
            self.kept[effect.job] = effect.places
        is_kept = effect.is_partial or not taken
        self.apply(PlacesKept(job=effect.job, is_kept=is_kept))

    def _is_taken(self, key: str, place: KeptPlace) -> bool:
        """Whether a pod has a kept chip that does not leave it."""
        move = self.state.moves.get(key)
        leaving = {place.uid} if move is None else {*move.departures, place.uid}
        return any(
            (pod.node, pod.chip) == (place.node, place.chips)
            for pod in self.pods.values()
            if pod.uid not in leaving and not pod.is_ending
        )

    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.apply(Ticked(npu_nodes=len(NODES)))
        self.look()

    def end_places(self, *ends: Bound | PlaceLost) -> None:
        """Tell the machine what has become of places of a job."""
        for end in ends:
            if isinstance(end, PlaceLost):
                self.asked_s.pop(end.uid, None)  # with another place all begins anew
        if ends:
            self.apply(PlacesEnded(job=ends[0].job, ends=ends))

    def look(self) -> None:
        """Tell the machine what is to be seen: faults, ends, binds and lost places."""
        for node in NODES:
            self.see(node)
        for key, move in list(self.state.moves.items()):
            ends: list[Bound | PlaceLost] = []
            for uid, departure in list(move.departures.items()):
                place, bound = departure.place, list[Bound]()
                if uid not in self.pods:
                    self.apply(PodEnded(job=key, uid=uid))
                    bound = self._successors(key, place)
                elif self.ends(uid):
                    self.asked_s.setdefault(uid, self.now_s)
                    self.apply(PodLeaving(job=key, uid=uid))
                if not bound and place.is_kept and self._is_useless(key, place):
                    ends.append(PlaceLost(job=key, uid=uid, why="its chip broke"))
                ends += bound
            self.end_places(*ends)

    def _is_useless(self, key: str, place: KeptPlace) -> bool:
        """Whether a kept chip broke, others have it, or it does not come free."""
        chip = place.node, place.chips
        is_late = self.now_s >= self.stuck_s.get(chip, self.now_s) + 60
        is_stuck = is_late and place.uid not in self.pods
        is_bad = chip in self.broken | self.foreign or is_stuck
        return is_bad or self._is_taken(key, place)

    def _successors(self, key: str, place: KeptPlace) -> list[Bound]:
        """The binds of pods that have come for a place."""
        return [
            Bound(job=key, uid=place.uid, successor=pod.uid, node=pod.node)
            for pod in self.pods.values()
            if pod.job == self.job_name(key)
            and pod.is_running
            and pod.number == place.slot[1][0]
            and pod.uid != place.uid
        ]

    def see(self, node: str) -> None:
        sightings = {
            pod.uid: Sighting(
                job=self.key_of(pod), fault=FAULT, chips=pod.chip, settle_s=0.0
            )
            for pod in self.pods.values()
            if pod.node == node and pod.is_running and (node, pod.chip) in self.broken
        }
        self.struck |= {self.pods[uid].job for uid in sightings}
        self.apply(Seen(place=(node, RESOURCE), pods=sightings))

    # -- jobs ------------------------------------------------------------------------

    def key_of(self, pod: Pod) -> str:
        return pod.uid if self.jobs[pod.job].is_alone else pod.job

    def job_name(self, key: str) -> str:
        """The name of a job; the UID of a pod by itself begins with it."""
        return key.partition("-")[0]

    def job_of(self, key: str) -> Job:
        return self.jobs[self.job_name(key)]

    def make(self, name: str, number: int) -> None:
        """Make a pod that waits for a node."""
        self.count += 1
        uid = f"{name}-{number}-{self.count}"
        self.pods[uid] = Pod(uid=uid, job=name, number=number)

    def make_again(self, name: str, *, early: bool, double: bool) -> None:
        """Let the controller of a job make the pods that it lacks."""
        for number in range(self.jobs[name].count):
            pods = [
                pod
                for pod in self.pods.values()
                if (pod.job, pod.number) == (name, number)
                and not (early and pod.is_ending)
            ]
            if len(pods) < 1 + (double and not any(pod.node for pod in pods)):
                self.make(name, number)

    def end_others(self, name: str) -> None:
        """Let a controller that ends all pods with one do so."""
        mine = [pod for pod in self.pods.values() if pod.job == name]
        running = {pod.number for pod in mine if pod.is_running}
        if self.jobs[name].reach is Reach.JOB and len(running) < self.jobs[name].count:
            move = self.state.moves.get(name)
            for pod in mine:
                if move is not None and pod.uid in move.departures:
                    pod.is_ending = True

    def end(self, uid: str, *, is_stuck: bool = False) -> None:
        """Let a pod that ends be gone, its processes too unless they are stuck."""
        if uid in self.pods and self.pods[uid].is_ending:
            pod = self.pods.pop(uid)
            if is_stuck:
                self.stuck_s[pod.node, pod.chip] = self.now_s

    def delete(self, name: str) -> None:
        """Delete a job and all its pods."""
        keys = {key for key in self.state.moves if self.job_name(key) == name}
        self.pods = {uid: pod for uid, pod in self.pods.items() if pod.job != name}
        self.look()
        for key in keys:
            self.apply(JobGone(job=key))

    # -- the scheduler ---------------------------------------------------------------

    def schedule(self) -> None:
        """Bind waiting pods: to their kept place, or if they have none anywhere."""
        for pod in sorted(self.pods.values(), key=lambda pod: pod.uid):
            others = [
                other
                for other in self.pods.values()
                if (other.job, other.number) == (pod.job, pod.number) and other.node
            ]
            if pod.node or others:
                continue  # its predecessor has not ended
            keys = [key for key in self.kept if self.job_name(key) == pod.job]
            places = [
                (key, place)
                for key in keys
                for place in self.kept[key]
                if place.slot[1][0] == pod.number
            ]
            chip = self._chip_for(places)
            if chip is not None:
                pod.node, pod.chip = chip

    def _chip_for(self, places: list[tuple[str, KeptPlace]]) -> tuple[str, int] | None:
        free = self.free((), ())
        if places:
            ((key, place),) = places
            move = self.state.moves.get(key)
            assert move is not None
            assert place.uid in move.departures, "a place is kept for nobody"
            assert chips_of(move.departures[place.uid].place) == chips_of(place)
            chip = place.node, place.chips
            is_clear = chip not in self.broken and chip not in self._occupied(())
            return chip if is_clear else None
        return free[0] if free else None

    def _occupied(self, gone: Collection[str]) -> set[tuple[str, int]]:
        pods = (pod for pod in self.pods.values() if pod.uid not in gone)
        others = self.foreign | self.stuck_s.keys()
        return {(pod.node, pod.chip) for pod in pods} | others

    def free(
        self, gone: Collection[str], own: Collection[KeptPlace]
    ) -> list[tuple[str, int]]:
        """Chips that nobody has or keeps, once pods have gone."""
        freed = {place.uid for place in own}
        kept = {
            (place.node, place.chips)
            for places in self.kept.values()
            for place in places
            if place.uid not in freed
        }
        taken = self._occupied(gone) | kept | self.broken
        chips = [(node, chip) for node in NODES for chip in CHIPS]
        return [each for each in chips if each not in taken]

    # -- the judge -------------------------------------------------------------------

    def judge(  # noqa: PLR0911  # an answer a line
        self, key: str, faulty: Mapping[str, int], facts: MoveFacts
    ) -> Assessment:
        job = self.job_of(key)
        pods = {
            pod.uid: pod
            for pod in sorted(self.pods.values(), key=lambda pod: pod.number)
            if self.key_of(pod) == key and pod.is_running and pod.uid not in facts.asked
        }
        if not faulty.keys() <= pods.keys():
            return Assessment(word=Word.UNASKED)
        reach = reach_of(facts, faulty.keys(), job.rungs)
        if not isinstance(reach, Reached):
            return Assessment(word=Word.STAYS, why=reach, is_evicting=True)
        rest = len(pods) - len(faulty)

        def fit(avoids: bool, uids: frozenset[str]) -> Mapping[str, Place] | str:
            free = self.free({*uids, *facts.asked}, facts.kept_places)
            bad = {pods[uid].node for uid in faulty} | facts.avoid
            may = [chip for chip in free if not (avoids and chip[0] in bad)]
            order = [uid for uid in pods if uid in uids]
            if len(may) < len(order):
                return f"{len(order) - len(may)} chips are missing"
            return {u: Place(*chip) for u, chip in zip(order, may, strict=False)}

        choice = ladder.choose(
            FaultJob(
                homes={uid: Place(pod.node, pod.chip) for uid, pod in pods.items()},
                faulty=frozenset(faulty),
                rungs=reach.rungs,
                followers=reach.followers,
                can_lose=job.least is not None
                and rest >= job.least
                and reach.is_of_pods,
            ),
            fit,
        )
        if not isinstance(choice, Move | Loss):
            return Assessment(word=Word.NO_SPARE, why="no chip", is_evicting=True)
        evicted = evicted_of(facts, faulty.keys(), choice.leaving)
        if not isinstance(evicted, Evicted):
            return Assessment(word=Word.STAYS, why=evicted, is_evicting=True)
        is_move = isinstance(choice, Move)
        found = Assessment(
            word=Word.MOVES if is_move else Word.SHRINKS,
            rung=choice.rung if isinstance(choice, Move) else None,
            leaving=choice.leaving,
            is_evicting=True,
            switch=job.switch,
            owner=f"ReplicaSet/default/{job.name}" if job.is_alone else "",
            unread=evicted.unread,
        )
        if evicted.unread:
            return found
        places = choice.places if isinstance(choice, Move) else {}
        return replace(
            found,
            kept_places=tuple(
                self._place(pods[uid], places.get(uid), is_evicted=uid in evicted.uids)
                for uid in choice.leaving
            ),
        )

    def _place(self, pod: Pod, place: Place | None, *, is_evicted: bool) -> KeptPlace:
        return KeptPlace(
            uid=pod.uid,
            name=pod.uid,
            namespace="default",
            slot=("", (pod.number, 0)),
            resource=RESOURCE,
            node="" if place is None else place.node,
            chips=0 if place is None else place.chips,
            home=pod.node,
            is_evicted=is_evicted,
        )

    # -- the API server --------------------------------------------------------------

    def answer(self, number: int, outcome: Outcome, *, is_heard: bool = True) -> None:
        """Answer one of the orders; records of one job in their order.

        Args:
            is_heard: Whether a failure is one: else only its answer is lost.
        """
        if not self.open:
            return
        effect = self.open[number % len(self.open)]
        if isinstance(effect, WriteRecord | DeleteRecord):
            effect = next(
                each
                for each in self.open
                if isinstance(each, WriteRecord | DeleteRecord)
                and each.job == effect.job
            )
        self.open.remove(effect)
        match effect:
            case ReadEnds():
                self._answer_ends(effect, outcome)
            case WriteRecord():
                is_written = outcome in (Outcome.YES, Outcome.GONE)
                if is_written or not is_heard:
                    self.records[effect.job] = effect.record
                self.apply(
                    Written(job=effect.job, number=effect.number, is_written=is_written)
                )
            case DeleteRecord():
                self.records.pop(effect.job, None)
            case EndPod():
                self._answer_end(effect, outcome, is_heard=is_heard)
            case _:
                raise AssertionError(effect)
        self.look()

    def _answer_ends(self, effect: ReadEnds, outcome: Outcome) -> None:
        if outcome is Outcome.BUDGET and effect.asks_budgets:
            event = EndsRead(
                job=effect.job, uids=effect.uids, problem="budget b", is_refused=True
            )
        elif outcome not in (Outcome.YES, Outcome.GONE):
            event = EndsRead(job=effect.job, uids=effect.uids, problem="no answer")
        else:
            is_over = self.job_name(effect.job) in self.over
            end = self.job_of(effect.job).end(is_over=is_over)
            ends = dict.fromkeys(effect.uids, end)
            event = EndsRead(job=effect.job, uids=effect.uids, ends=ends)
        self.apply(event)

    def _answer_end(self, effect: EndPod, outcome: Outcome, *, is_heard: bool) -> None:
        pod = self.pods.get(effect.uid)
        is_done = outcome in (Outcome.YES, Outcome.GONE)
        if is_done or not is_heard:
            outcome = outcome if pod is not None else Outcome.GONE
            if pod is not None:
                pod.is_ending = True
                self.evicted.add(pod.uid)
                outcome = Outcome.YES if is_done else Outcome.FAILED
        elif effect.is_forced:
            outcome = Outcome.FAILED  # budgets are not asked
        self.apply(
            Answered(job=effect.job, uid=effect.uid, outcome=outcome, text="busy")
        )

    # -- the extender ----------------------------------------------------------------

    def restart(self, *, is_sent: bool, after_s: float) -> None:
        """Begin without any state but the records, before anything else is seen.

        Args:
            is_sent: Whether what was ordered still happens.
            after_s: How long no extender runs.
        """
        for effect in self.open:
            match effect:
                case WriteRecord() if is_sent:
                    self.records[effect.job] = effect.record
                case DeleteRecord() if is_sent:
                    self.records.pop(effect.job, None)
                case EndPod(uid=uid) if is_sent and uid in self.pods:
                    self.pods[uid].is_ending = True
                    self.evicted.add(uid)
                case _:
                    pass
        held = self.state.held
        self.state, self.open, self.asked_s = State(), [], {}
        self.kept = {}
        self.now_s += after_s
        self.apply(held)
        for record in list(self.records.values()):
            pods = [self.pods[p.uid] for p in record.places if p.uid in self.pods]
            for pod in pods:
                if pod.is_ending:  # asked when its move began, if it is not known
                    begun_s = max((past.at_s for past in record.history), default=0)
                    self.asked_s[pod.uid] = record.asked_s.get(pod.uid, begun_s)
            self.apply(
                Recovered(
                    record=record,
                    running=frozenset(pod.uid for pod in pods if pod.is_running),
                    ending=frozenset(pod.uid for pod in pods if pod.is_ending),
                )
            )
        self.look()


def chips_of(place: KeptPlace) -> KeptPlace:
    """What is reserved of a place: all but who ends its pod, which may change."""
    return replace(place, is_evicted=True)
