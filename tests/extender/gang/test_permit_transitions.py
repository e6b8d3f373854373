"""Every transition of a small job, with pods that end, fail, are gated and made again.

All states are visited that some order of events leads to. Times are the same state if
the same limits have passed. The job of three pods has 38,000 transitions; `make long`
takes those.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from extender.gang import permit
from extender.gang.events import (
    BindAbandoned,
    BindArrived,
    BindFailed,
    Bound,
    Effect,
    EmitEvent,
    Event,
    FollowerArrived,
    JobPlanned,
    Limits,
    MemberRemoved,
    NodeNotOffered,
    RefuseBind,
    ReleaseBinds,
    Ticked,
    Unreserve,
)
from extender.gang.gang import Gang
from extender.gang.gangs import Gangs
from extender.gang.job_plan import Phase
from extender.gang.membership import AbsentMember, Member, Membership, SizeSource
from extender.gang.size import Followers, Size, whole

JOB = "Job of pods/default/j"
LIMITS = Limits()
FOLLOWED = Size(
    count=2, least=2, followers=(Followers(numbers=((1, 0),), template={}),)
)
PODS = "abc"
LATER = AbsentMember(JOB, "", (1, 0))
#: {what a pod is: what it may be next}
Life = dict[str, tuple[str, ...]]
SHORT: Life = {
    "gone": ("pending",),
    "pending": ("bound",),
    "bound": ("gone",),
}
LONG: Life = {
    "gone": ("pending", "gated"),
    "gated": ("pending", "gone"),
    "pending": ("bound", "ending", "gone"),
    "ending": ("gone",),
    "bound": ("bound", "bound and ending", "succeeded", "gone"),
    "bound and ending": ("bound and ending", "gone"),
    "succeeded": ("gone",),
}
#: {name: size of the job, and the lives of its pods}
JOBS: dict[str, tuple[Size, dict[str, Life]]] = {
    "whole": (whole(2), {"a": LONG, "b": LONG}),
    "whole and one": (whole(2), {"a": LONG, "b": SHORT, "c": SHORT}),
    "elastic": (Size(count=2, least=1), {"a": LONG, "b": LONG}),
    "followed": (FOLLOWED, {"a": LONG, "b": LONG}),
}
BOUND = {"bound", "bound and ending", "succeeded"}
#: What may happen: its name, and a pod or seconds.
Step = tuple[str, str | int]


@dataclass(slots=True)
class State:
    """A job, what its pods are, and the bind calls that nobody has answered."""

    job: str
    pods: dict[str, str]
    gangs: Gangs = field(default_factory=Gangs)
    now_s: float = 1000.0
    #: {number of a call: pod}
    calls: dict[int, str] = field(default_factory=dict)
    numbers: int = 0

    @property
    def size(self) -> Size:
        return JOBS[self.job][0]

    @property
    def gang(self) -> Gang | None:
        return self.gangs.jobs.get(JOB)

    @property
    def key(self) -> object:
        """What tells two states apart."""
        gang = self.gang
        if gang is None:
            return (*self.pods.values(),)
        plan, now_s = gang.plan, self.now_s
        return (
            (*self.pods.values(),),
            (*sorted(gang.members), *sorted(gang.bound), *sorted(gang.absent)),
            (plan.phase, *plan.places, "|", *plan.followers),
            (*plan.waiting_calls, "|", *sorted(plan.open_binds)),
            (plan.is_reported, plan.is_part_reported, *sorted(plan.misses)),
            (plan.phase is Phase.RESERVED and plan.until_s > now_s),
            (plan.phase is Phase.BINDING and now_s - plan.open_s >= LIMITS.partial_s),
            (plan.failures > 0, plan.again_s > now_s),
            (bool(plan.followers) and plan.followers_until_s > now_s),
        )


def next_steps(state: State) -> Iterator[Step]:
    """All that may happen now."""
    lives = JOBS[state.job][1]
    for name, what in state.pods.items():
        yield from ((f"{name} is {after}", name) for after in lives[name][what])
        if what == "pending":
            yield "arrives", name
            yield "is not offered its node", name
    for name in set(state.calls.values()):
        yield "leaves", name
    gang = state.gang
    if gang is None:
        return
    for uid in gang.plan.open_binds:
        yield "fails", uid
    if gang.plan.phase is Phase.GATHERING and gang.unbound and not gang.missing:
        yield "all are planned", 0
        if gang.size is not None and gang.size.is_elastic:
            yield "one is planned", 0
    yield from (("time passes", seconds) for seconds in (25, 700))


def follow(state: State, step: Step) -> tuple[Effect, ...]:
    """Let something happen; return its effects."""
    kind, what = step
    name = str(what)
    if kind.startswith(f"{name} is "):
        return tuple(see(state, name, kind.removeprefix(f"{name} is ")))
    return permit.step(state.gangs, event_of(state, kind, what), state.now_s, LIMITS)


def event_of(state: State, kind: str, what: str | int) -> Event:
    name = str(what)
    gang = state.gang
    if kind == "time passes":
        state.now_s += float(what)
        return Ticked()
    if kind == "arrives":
        state.numbers += 1
        state.calls[state.numbers] = name
        return BindArrived(uid=name, node=f"n-{name}", call=state.numbers)
    if kind == "leaves":
        call = next(number for number, of in state.calls.items() if of == name)
        del state.calls[call]
        return BindAbandoned(uid=name, call=call)
    if kind == "fails":
        return BindFailed(uid=name)
    return NodeNotOffered(uid=name) if gang is None else planned(gang, kind, name)


def planned(gang: Gang, kind: str, name: str) -> Event:
    if kind == "is not offered its node":
        return NodeNotOffered(uid=name)
    uids = gang.unbound if kind == "all are planned" else gang.unbound[:1]
    is_later = LATER in gang.awaited and not gang.has_bound
    return JobPlanned(
        job=JOB,
        places={uid: f"n-{uid}" for uid in uids},
        followers={LATER: "n-b"} if is_later else {},
    )


def see(state: State, name: str, what: str) -> Iterator[Effect]:
    """Show a pod as the cache does."""
    before, state.pods[name] = state.pods[name], what
    gangs, now_s = state.gangs, state.now_s
    if what == "gone":
        yield from permit.step(gangs, MemberRemoved(uid=name), now_s, LIMITS)
        gangs.drop(name)
        return
    is_bound = what in BOUND
    ending = what in {"ending", "bound and ending"}
    gangs.put(
        name,
        member(name, what),
        bound=is_bound,
        succeeded=what == "succeeded",
        ending=ending,
        now_s=now_s,
    )
    gang = gangs.jobs[JOB]
    gang.size = gang.size or whole(2)
    if is_bound:
        yield from permit.step(gangs, Bound(uid=name), now_s, LIMITS)
    elif ending:
        yield from permit.step(gangs, MemberRemoved(uid=name), now_s, LIMITS)
    elif before == "gone":
        member_of = FollowerArrived(uid=name, member=AbsentMember(JOB, *place(name)))
        yield from permit.step(gangs, member_of, now_s, LIMITS)


def place(name: str) -> tuple[str, tuple[int, int]]:
    return "", (PODS.index(name), 0)


def member(name: str, what: str) -> Member:
    source = SizeSource(path="/", kind="Job")
    order = (9, *place(name)[:1], *place(name)[1])
    membership = Membership(job=JOB, size_source=source, order=order)
    return Member(name=name, membership=membership, is_gated=what == "gated")


#: Before, step, effects, after.
Transition = tuple[State, Step, tuple[Effect, ...], State]


def transitions(job: str) -> Iterator[Transition]:
    """Yield each transition of a job."""
    first = State(job=job, pods=dict.fromkeys(JOBS[job][1], "gone"))
    known = {first.key}
    queue = deque([first])
    while queue:
        before = queue.popleft()
        kept = pickle.dumps(
            before
        )  # to be copied: `deepcopy` takes three times as long
        for step in next_steps(before):
            after: State = pickle.loads(kept)  # noqa: S301  # the line above
            effects = follow(after, step)
            if after.gang is not None:
                after.gang.size = after.size
            answered = [number for e in effects for number in answers(e)]
            for number in answered:
                assert after.calls.pop(number, ""), "it is answered once"
            yield before, step, effects, after
            if after.key not in known:
                known.add(after.key)
                queue.append(after)


def answers(effect: Effect) -> list[int]:
    """The calls that an effect answers."""
    if isinstance(effect, ReleaseBinds):
        return list(effect.calls.values())
    return [effect.call] if isinstance(effect, RefuseBind) else []


def released(effects: tuple[Effect, ...]) -> set[str]:
    return {u for e in effects if isinstance(e, ReleaseBinds) for u in e.calls}


def holds(state: State) -> set[object]:
    """For whom a plan keeps chips."""
    gang = state.gang
    return set() if gang is None else {*gang.plan.places, *gang.plan.followers}


def a_pod_that_ends_lets_nobody_through(
    before: State, step: Step, effects: tuple[Effect, ...], after: State
) -> None:
    """G5: who is let through comes with enough others, or beside one that stays.

    One whose bind is under way stays. An open gate lets nobody through by itself: its
    only pod that was bound may have gone.
    """
    names = released(effects)
    if not names:
        return
    stays = {n for n, what in after.pods.items() if what in {"bound", "succeeded"}}
    gang = before.gang
    assert gang is not None
    is_under_way = bool(gang.plan.open_binds)
    enough = len(names) + len(gang.awaited) >= after.size.least
    assert stays or is_under_way or enough, step


def an_open_gate_was_opened_by_all_or_beside_one_that_stays(
    before: State, step: Step, effects: tuple[Effect, ...], after: State
) -> None:
    gang = after.gang
    was = before.gang.plan.phase if before.gang else None
    if gang is None or gang.plan.phase is not Phase.BINDING or was is Phase.BINDING:
        return
    assert released(effects) or gang.has_bound, step


def every_call_waits_or_is_answered(
    before: State, step: Step, effects: tuple[Effect, ...], after: State
) -> None:
    waiting = {} if after.gang is None else after.gang.plan.waiting_calls
    assert set(after.calls) == set(waiting.values()), step


def what_is_given_up_is_unreserved_and_nothing_else(
    before: State, step: Step, effects: tuple[Effect, ...], after: State
) -> None:
    given_up = {k for e in effects if isinstance(e, Unreserve) for k in e.kept_for}
    gone = holds(before) - holds(after)
    if LATER in gone and LATER not in given_up:  # handed over to its pod
        gone = gone - {LATER} | ({"b"} - holds(after))
    bound = {name for name, what in after.pods.items() if what in BOUND}
    assert given_up == gone - bound, step


def nothing_is_half_bound_longer_than_its_bound(
    before: State, step: Step, effects: tuple[Effect, ...], after: State
) -> None:
    """After 700 s no plan of a job that is bound in part keeps chips."""
    if step != ("time passes", 700) or before.gang is None:
        return
    assert holds(after) == set(), step
    if before.gang.plan.followers and before.gang.plan.phase is not Phase.RESERVED:
        reasons = [e.reason for e in effects if isinstance(e, EmitEvent)]
        assert not before.gang.placed or "AscendFollowersLate" in reasons


def a_planned_job_waits_for_all_its_places(
    before: State, step: Step, effects: tuple[Effect, ...], after: State
) -> None:
    gang = after.gang
    if gang is None:
        return
    plan = gang.plan
    assert plan.waiting_calls.keys() <= plan.places.keys(), step
    assert (plan.phase is Phase.GATHERING) <= (not plan.places), step
    assert plan.open_binds <= gang.members.keys(), step


PROMISES: tuple[Callable[[State, Step, tuple[Effect, ...], State], None], ...] = (
    a_pod_that_ends_lets_nobody_through,
    an_open_gate_was_opened_by_all_or_beside_one_that_stays,
    every_call_waits_or_is_answered,
    what_is_given_up_is_unreserved_and_nothing_else,
    nothing_is_half_bound_longer_than_its_bound,
    a_planned_job_waits_for_all_its_places,
)


@pytest.mark.parametrize(
    ("job", "least"),
    [
        pytest.param("whole", 5_000, marks=pytest.mark.long),
        ("elastic", 5_000),
        pytest.param("followed", 5_000, marks=pytest.mark.long),
        pytest.param("whole and one", 30_000, marks=pytest.mark.long),
    ],
)
def test_each_transition_keeps_every_promise(job: str, least: int) -> None:
    """One walk for all promises: to walk is what takes time."""
    count = 0
    for transition in transitions(job):
        for keeps in PROMISES:
            keeps(*transition)
        count += 1

    assert count > least
