"""Many jobs at one gate, in any order of what can happen.

The machine is the scheduler, the API server and the world at once: it asks for places,
sends binds, gives calls up, refuses binds, deletes pods and lets time pass. Whatever it
does: no chip is promised twice, nobody is bound before all have come, and once all is
quiet no job is bound in part by us and no plan is left. An extender may be followed by
another, at any moment: it knows what is bound, and nothing of what was planned.
"""

import asyncio
from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.reservations import Owner
from extender.gang import events as gang_events
from extender.gang.events import Caller
from extender.gang.job_plan import Phase
from extender.refusals import Refusal
from scheduler_core.node import chips
from tests.extender.looped import Looped
from tests.support.caches import (
    apply,
    cluster,
    known_pod,
    reservations,
)
from tests.support.clock import Time
from tests.support.extender import World
from tests.support.watched import member, report

NODES = ("n1", "n2", "n3", "n4")
#: {job: its pods}
JOBS = {
    "j": ("j0", "j1"),
    "k": ("k0", "k1", "k2"),
    "l": ("l0", "l1"),
    "m": ("m0", "m1"),
}
PODS = tuple(name for names in JOBS.values() for name in names)

pods = st.sampled_from(PODS)
lists = st.lists(st.sampled_from(NODES), unique=True, min_size=1).map(tuple)


class ManyJobs(Looped):
    """Everything runs on a loop that is turned until it is idle after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.start()
        #: {pod: its call that waits}
        self.calls: dict[str, asyncio.Task[Refusal | None]] = {}
        #: pods whose callers have gone
        self.gone: set[str] = set()
        #: {pod: node} as the API server has it
        self.bound: dict[str, str] = {}
        #: pods of jobs that were bound whole and have ended
        self.done: set[str] = set()
        #: {pod: node} that the gate let through, and that nobody has bound yet
        self.open: dict[str, str] = {}
        for job, names in JOBS.items():
            for name in names:
                self.world.learn(member(name, job=job, size=len(names)))
        self.settle()

    def start(self) -> None:
        """Begin with an extender that has read the nodes, and no pods yet."""
        self.cache = cluster(nodes=NODES)
        self.let_agents_report(self.cache)
        self.world = World(self.cache, time=self.time)
        self.planner = self.world.planner

    def let_agents_report(self, cache: Cache) -> None:
        for name in NODES:
            alive = report(name, update_time=self.time.now_s)
            apply(cache, alive, now_s=self.time.now_s)

    def settle(self) -> None:
        for _ in range(4):
            self.loop.run_until_complete(asyncio.sleep(0))
        let: set[str] = set()
        for name, task in list(self.calls.items()):
            if task.done():
                del self.calls[name]
                self.gone.discard(name)
                if task.result() is None:
                    let.add(name)
        for names in JOBS.values():
            if let & {*names} and not {*self.open, *self.bound} & {*names}:
                assert let & {*names} == {*names}  # the first come all at once
        for name in let:
            self.go_on(name)

    def go_on(self, name: str) -> None:
        """The gate let a bind through: it is promised for good, as binding does."""
        reservation = reservations(self.cache)[f"uid-{name}"]
        until_s = self.time.now_s + 65
        self.world.learn(reservation._replace(owner=Owner.BIND, until_s=until_s))
        self.open[name] = reservation.node

    def idle(self, name: str) -> bool:
        return (
            name not in self.bound
            and name not in self.calls
            and name not in self.open
            and f"uid-{name}" in self.cache.pods
        )

    @rule(name=pods, offered=lists)
    def filter_and_bind(self, name: str, offered: tuple[str, ...]) -> None:
        if not self.idle(name):
            return
        filter_result = self.planner.filter_nodes(known_pod(self.cache, name), offered)
        assert filter_result is not None
        assert set(filter_result.fitting) <= set(offered)
        if filter_result.fitting:
            self.send_bind(name, filter_result.fitting[0])
        self.settle()

    def send_bind(self, name: str, node: str) -> None:
        caller = Caller(
            uid=f"uid-{name}", node=node, is_there=lambda: name not in self.gone
        )
        self.gone.discard(name)
        self.calls[name] = self.loop.create_task(self.world.permits.wait(caller))

    @rule(name=pods)
    def give_a_call_up(self, name: str) -> None:
        if name in self.calls:
            self.gone.add(name)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_bound=st.booleans())
    def end_a_bind(self, data: st.DataObject, *, is_bound: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        if is_bound:
            self.bind(name)
        else:
            del self.open[name]
            self.world.learn(
                events.BindVoided(uid=f"uid-{name}"),
                gang_events.BindFailed(uid=f"uid-{name}"),
            )
        self.settle()

    def bind(self, name: str) -> None:
        """The API server binds a pod that the gate let through."""
        self.bound[name] = self.open.pop(name)
        self.world.learn(gang_events.Bound(uid=f"uid-{name}"))
        self.show(name)

    def show(self, name: str) -> None:
        job = next(job for job, names in JOBS.items() if name in names)
        node = self.bound.get(name, "")
        seen = member(name, job=job, size=len(JOBS[job]), node=node)
        self.world.learn(seen)

    @rule(name=pods)
    def delete(self, name: str) -> None:
        if name in self.open:
            return  # what becomes of a bind under way is binding's own business
        self.world.learn(events.PodDeleted(uid=f"uid-{name}"))
        self.bound.pop(name, None)
        self.settle()

    @rule(data=st.data())
    def fail_over(self, data: st.DataObject) -> None:
        """Another takes over, when all binds have been carried out or never will be."""
        for name, node in self.open.items():
            if data.draw(st.booleans()):
                self.bound[name] = node
        self.open.clear()
        there = [name for name in PODS if f"uid-{name}" in self.cache.pods]
        self.loop.run_until_complete(self.world.stop())
        for task in self.calls.values():
            assert self.loop.run_until_complete(task) is not None  # nobody is let go on
        self.calls.clear()
        self.gone.clear()
        self.start()
        for name in there:
            self.show(name)
        self.settle()

    @rule(job=st.sampled_from(sorted(JOBS)))
    def make_again(self, job: str) -> None:
        for name in JOBS[job]:
            if f"uid-{name}" not in self.cache.pods and name not in self.calls:
                seen = member(name, job=job, size=len(JOBS[job]))
                self.world.learn(seen)
        self.settle()

    @rule(seconds=st.sampled_from((1, 5, 25, 70, 700)))
    def pass_time(self, seconds: int) -> None:
        self.time.pass_s(seconds)
        self.let_agents_report(self.cache)
        self.world.pass_s(0)
        self.settle()

    @invariant()
    def no_chip_is_promised_twice(self) -> None:
        taken: defaultdict[str, int] = defaultdict(int)
        for reservation in reservations(self.cache).values():
            assert not taken[reservation.node] & reservation.chips, chips.ids_of(
                reservation.chips
            )
            taken[reservation.node] |= reservation.chips

    @invariant()
    def what_is_planned_has_its_promise(self) -> None:
        for gang in self.cache.gangs.values():
            for uid, node in gang.plan.places.items():
                assert reservations(self.cache)[uid].node == node
        owners = {u: kept.owner for u, kept in reservations(self.cache).items()}
        planned = {uid for uid, owner in owners.items() if owner is Owner.PLAN}
        places = {u for g in self.cache.gangs.values() for u in g.plan.places}
        assert planned <= places
        assert set(owners.values()) <= {Owner.PLAN, Owner.BIND}
        for kept in reservations(self.cache).values():
            assert kept.until_s > self.time.now_s - 1, "it has no end"

    @invariant()
    def no_chip_is_given_twice(self) -> None:
        """Each pod has a whole node."""
        given = [*self.bound.values(), *self.open.values()]
        assert len(given) == len(set(given))

    def everybody_tries(self) -> None:
        """What a scheduler does all the time; whole jobs end and make room."""
        for name in PODS:
            self.filter_and_bind(name, NODES)
        for name in list(self.open):
            self.bind(name)
        for names in JOBS.values():
            if all(name in self.bound for name in names):
                self.done.update(names)
                for name in names:
                    self.delete(name)
        self.pass_time(1)

    def none_is_bound_in_part(self) -> bool:
        return all(
            not {*names} & self.bound.keys() or {*names} <= self.bound.keys()
            for names in JOBS.values()
        )

    def come_to_rest(self) -> None:
        """Nothing of ours is left in between, even after the longest pause, an hour."""
        for name in list(self.open):
            self.bind(name)
        self.gone.update(self.calls)
        for _ in range(6):
            self.pass_time(700)
        assert not self.calls
        owners = {kept.owner for kept in reservations(self.cache).values()}
        assert owners <= {Owner.BIND}
        assert {g.plan.phase for g in self.cache.gangs.values()} <= {Phase.GATHERING}
        for job in JOBS:
            self.make_again(job)
        for _ in range(400):
            if self.none_is_bound_in_part():
                break
            self.everybody_tries()
        assert self.none_is_bound_in_part()


ManyJobs.TestCase.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None
)
TestManyJobs = ManyJobs.TestCase


def test_jobs_that_are_left_alone_all_get_through() -> None:
    """No livelock: with a scheduler that goes on trying, each job is bound in turn."""
    machine = ManyJobs()
    for _ in range(200):
        machine.everybody_tries()
        if machine.done == set(PODS):
            break

    assert machine.done == set(PODS)
    machine.teardown()


def test_a_step_that_comes_late_pauses_no_job_for_an_hour() -> None:
    """A plan counts as held in vain until its end, not until somebody looked."""
    machine = ManyJobs()
    machine.filter_and_bind("m0", NODES)

    machine.pass_time(700)

    for _ in range(60):
        machine.everybody_tries()
    assert machine.done >= {"m0", "m1"}
    machine.teardown()
