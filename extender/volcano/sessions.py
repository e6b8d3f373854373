"""May a pod go to a node, in the middle of one of Volcano's sessions?

Volcano asks once for each pod and node, pod after pod, and remembers a node's refusal
for all pods of the same task. So a node is refused only for what holds for every pod
of the job that is alike: all nodes of the job's plan are open to each of its pods, and
prioritize says which of them is the pod's own. If Volcano picks that of another, the
two change places.

Which nodes Volcano offers to a job, nobody says: they are those that it asks for. What
it asked for in a whole session is what the next plan is made on, and until then a
plan is made on all nodes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from extender.cache import events
from extender.cache.cache import Cache, step
from extender.clocks import Clock
from extender.gang import events as gang_events
from extender.gang.gangs import Gang, Phase
from extender.planning.planner import Planner
from extender.scheduling import node_filter, reserve
from extender.scheduling.node_filter import Label, Verdict
from extender.scheduling.reserve import Choice
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

#: Between two classes of nodes: more than all of Volcano's other plugins give together.
SCORE_STEP = 10_000
#: Classes of nodes that are told apart.
_CLASSES = 10


@dataclass(slots=True)
class _Round:
    """One session, as far as it concerns one job."""

    #: the pod that was asked for first: for it, no refusal is remembered yet
    leader: str
    #: nodes that it was asked for
    asked: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Seen:
    """What is known of a job from session to session."""

    round: _Round
    #: nodes of the last whole session; None: there was none yet
    offered: tuple[str, ...] | None = None
    #: whether it was planned, or tried to be, in this session
    is_tried: bool = False
    #: whether some of its pods were allocated before we came
    is_before: bool = False


class Sessions:
    """Judges pods in Volcano's sessions.

    Protects: within one session the answer for a pod and a node only turns worse,
    and a job is planned once.
    """

    def __init__(self, cache: Cache, planner: Planner, clock: Clock) -> None:
        """Know of no session.

        Args:
            cache: what is known.
            planner: plans jobs of several pods.
            clock: for what depends on time.
        """
        self._cache = cache
        self._planner = planner
        self._clock = clock
        #: {job: what is known of it}
        self._seen: dict[str, _Seen] = {}
        #: {job: (version of the cache, {shape: nodes that its plan has for such pods})}
        self._open: dict[str, tuple[int, dict[Shape, set[str]]]] = {}

    # -- predicate -------------------------------------------------------------

    def refusal(self, pod: NpuPod, node: str) -> Verdict | None:
        """Why a pod does not go to a node; None: it may."""
        gang = self._cache.gangs.of(pod.uid)
        if gang is None or self._planner.is_under_way(pod.uid):
            return _single(self._cache, pod, node, self._clock.now_s())
        gang.is_gated = False
        now_s = self._clock.now_s()
        is_before = self._follow(gang, pod.uid, node)
        stops = node_filter.pod_refusal(self._cache, pod, now_s)
        stops = stops or (BEFORE if is_before else self._planner.why_wait(gang))
        if stops is not None:
            return stops
        if pod.uid not in gang.places:
            return self._without(gang, pod, node)
        return None if node in self._places(gang, pod) else node_filter.ELSEWHERE

    def _follow(self, gang: Gang, uid: str, node: str) -> bool:
        """Note what Volcano asks, and plan the job, once in a session.

        Returns:
            Whether pods of the job have chips that no plan of ours has given them.
        """
        seen = self._seen.get(gang.job)
        if seen is None:
            seen = self._seen[gang.job] = _Seen(_Round(uid))
        elif self._is_new(seen.round, uid, node):
            seen.offered = tuple(seen.round.asked)
            seen.round, seen.is_tried = _Round(uid), False
            self._look_again(gang, seen.offered)
        if seen.round.leader == uid:
            seen.round.asked.add(node)
        if gang.phase is not Phase.IDLE:
            return False
        if not seen.is_tried:
            seen.is_tried = True
            seen.is_before = any(map(self._planner.is_under_way, gang.seats))
            if not seen.is_before:
                self._planner.offer(gang, seen.offered or every(self._cache))
        return seen.is_before and gang.phase is Phase.IDLE

    def _is_new(self, now: _Round, uid: str, node: str) -> bool:
        """Whether a question belongs to another session than the last one."""
        if now.leader == uid:
            return node in now.asked
        leader = self._cache.pods.get(now.leader)
        return leader is None or bool(leader.node)

    def _look_again(self, gang: Gang, offered: Collection[str]) -> None:
        """Give up a plan with nodes that Volcano does not offer."""
        if gang.phase is not Phase.HELD:
            return
        for uid, node in list(gang.places.items()):
            if node not in offered and uid in gang.places:
                self._planner.note(gang_events.Missed(uid=uid))

    def _places(self, gang: Gang, pod: NpuPod) -> set[str]:
        """Nodes that the plan has for pods like this one, and that none has yet."""
        version, found = self._open.get(gang.job, (-1, {}))
        if version != self._cache.version:
            found = {}
            for uid, node in gang.places.items():
                promise = self._cache.assumed.get(uid)
                if promise is not None and promise.planned:
                    found.setdefault(promise.shape, set()).add(node)
            self._open[gang.job] = self._cache.version, found
        return found.get(pod.shape, set())

    def _without(self, gang: Gang, pod: NpuPod, node: str) -> Verdict:
        """Why a pod of a job without a plan does not go there: of itself, or its job.

        What the node says of the pod alone comes first: only that can be such that
        evicting others helps.
        """
        alone = _single(self._cache, pod, node, self._clock.now_s())
        text = f"its job does not fit: {gang.said}" if gang.said else "its job waits"
        return alone or Verdict(label=Label.JOB, text=text)

    # -- prioritize ------------------------------------------------------------

    def scores(self, pod: NpuPod, names: Sequence[str]) -> dict[str, float]:
        """Score nodes, the best the highest; those of the plan before all others."""
        gang = self._cache.gangs.of(pod.uid)
        own = gang.places.get(pod.uid) if gang is not None else None
        if own is not None:
            return {name: SCORE_STEP * float(name == own) for name in names}
        found = node_filter.scores(self._cache, pod, names, _CLASSES)
        return {name: float(SCORE_STEP * score) for name, score in found.items()}

    # -- jobEnqueueable --------------------------------------------------------

    def no_room(self, uids: Collection[str]) -> str:
        """Why none of these pods has room now; "" if one has, or that is not known."""
        said = ""
        for pod in (self._cache.pods.get(uid) for uid in uids):
            if pod is None or pod.node or pod.terminal:
                continue
            gang = self._cache.gangs.of(pod.uid)
            if gang is None:
                found = self._nowhere(pod)
            elif (waits := self._planner.why_wait(gang)) is not None:
                # Once it is read we are asked again; all else predicate says.
                return waits.text if gang.is_being_read else ""
            elif gang.phase is not Phase.IDLE:
                return ""
            else:
                found = self._planner.no_room(gang, every(self._cache))
            if not found or gang is not None:
                return found
            said = said or found
        return said

    def _nowhere(self, pod: NpuPod) -> str:
        judged = node_filter.judge(
            self._cache, pod, every(self._cache), self._clock.now_s()
        )
        if judged.fitting:
            return ""
        return ", ".join(f"{count} {text}" for text, count in judged.counts)

    # -- allocateFunc and deallocateFunc -----------------------------------------

    def choose(self, pod: NpuPod, node: str) -> Choice | Verdict:
        """The chips of a pod on the node that Volcano has picked; they are promised."""
        gang = self._cache.gangs.of(pod.uid)
        now_s = self._clock.now_s()
        is_planned = gang is not None and not self._planner.is_under_way(pod.uid)
        if gang is not None and is_planned:
            if pod.uid not in gang.places:
                return NO_PLAN
            if gang.places[pod.uid] != node:
                self._change_places(gang, pod, node)
        made = reserve.choose(
            self._cache, pod, node, now_s=now_s, now_ns=self._clock.now_ns()
        )
        if isinstance(made, Choice):
            step(self._cache, made.promise, now_s)
            self._planner.note(gang_events.Allocated(uid=pod.uid))
        elif gang is not None and is_planned:
            self._planner.note(gang_events.Broken(job=gang.job, said=made.text))
        return made

    def give_back(self, uid: str) -> None:
        """Note that Volcano has taken a pod back: its chips are its job's, or free."""
        self._planner.voided(uid)
        self._planner.note(gang_events.Returned(uid=uid))

    def _change_places(self, gang: Gang, pod: NpuPod, node: str) -> None:
        """Give a pod the place of one that is like it, and that one its own."""
        mine = self._cache.assumed.get(pod.uid)
        for uid, place in gang.places.items():
            other = self._cache.assumed.get(uid)
            if mine is None or other is None or place != node:
                continue
            if other.planned and other.shape == mine.shape:
                break
        else:
            return
        now_s = self._clock.now_s()
        for each in (mine, other):
            step(self._cache, events.Dropped(uid=each.uid), now_s)
        step(self._cache, other._replace(uid=mine.uid), now_s)
        step(self._cache, mine._replace(uid=other.uid), now_s)
        gang.places[mine.uid], gang.places[other.uid] = other.node, mine.node

    def forget(self) -> None:
        """Drop what is known of jobs that are no more."""
        known = self._cache.gangs.jobs
        self._seen = {job: seen for job, seen in self._seen.items() if job in known}
        self._open = {job: nodes for job, nodes in self._open.items() if job in known}


BEFORE = Verdict(
    label=Label.OPEN_BIND, text="pods of its job have been allocated before"
)
NO_PLAN = Verdict(label=Label.JOB, text="its job has no plan now: it is tried again")


def every(cache: Cache) -> list[str]:
    """All nodes with NPUs."""
    return cache.cluster.names


def _single(cache: Cache, pod: NpuPod, node: str, now_s: float) -> Verdict | None:
    """Why a pod, by itself, does not go to a node."""
    judged = node_filter.judge(cache, pod, (node,), now_s)
    return None if judged.fitting else judged.refused[0][0]
