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
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.cache import events
from extender.cache.cache import Cache
from extender.gang.events import Caller
from extender.gang.gangs import Phase
from extender.planning.planner import Planner
from scheduler_core.node import chips
from tests.support.caches import (
    apply,
    cluster,
    gangs,
    known_pod,
    known_pods,
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


class ManyJobs(RuleBasedStateMachine):
    """Everything runs on a loop that is turned until it is idle after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.time = Time()
        self.cache, self.planner = self.extender()
        #: {pod: its call that waits}
        self.calls: dict[str, asyncio.Task[str | None]] = {}
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
                apply(self.cache, member(name, job=job, size=len(names)))
        self.settle()

    def extender(self) -> tuple[Cache, Planner]:
        """One that has read the nodes, and no pods yet."""
        cache = cluster(nodes=NODES)
        self.let_agents_report(cache)
        return cache, World(cache, time=self.time).planner

    def let_agents_report(self, cache: Cache) -> None:
        for name in NODES:
            alive = report(name, update_time=self.time.now_s)
            apply(cache, alive, now_s=self.time.now_s)

    def settle(self) -> None:
        self.planner.carry_out_effects()
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
        now = events.Reservation(
            uid=reservation.uid,
            node=reservation.node,
            chips=reservation.chips,
            predicate_time=reservation.predicate_time,
            shape=reservation.shape,
        )
        apply(self.cache, now, now_s=self.time.now_s)
        self.open[name] = reservation.node

    def idle(self, name: str) -> bool:
        return (
            name not in self.bound
            and name not in self.calls
            and name not in self.open
            and f"uid-{name}" in known_pods(self.cache)
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
        self.calls[name] = self.loop.create_task(self.planner.wait(caller))

    @rule(name=pods)
    def give_a_call_up(self, name: str) -> None:
        if name in self.calls:
            self.gone.add(name)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_bound=st.booleans())
    def end_a_bind(self, data: st.DataObject, *, is_bound: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        node = self.open.pop(name)
        if is_bound:
            self.bound[name] = node
            self.planner.record_bind_outcome(f"uid-{name}", "")
            self.show(name)
        else:
            self.planner.unreserve(f"uid-{name}")
            self.planner.record_bind_outcome(
                f"uid-{name}", "the API server refused the bind"
            )
        self.settle()

    def show(self, name: str) -> None:
        job = next(job for job, names in JOBS.items() if name in names)
        node = self.bound.get(name, "")
        seen = member(name, job=job, size=len(JOBS[job]), node=node)
        apply(self.cache, seen, now_s=self.time.now_s)

    @rule(name=pods)
    def delete(self, name: str) -> None:
        if name in self.open:
            return  # what becomes of a bind under way is binding's own business
        apply(self.cache, events.PodDeleted(uid=f"uid-{name}"), now_s=self.time.now_s)
        self.bound.pop(name, None)
        self.settle()

    @rule(data=st.data())
    def fail_over(self, data: st.DataObject) -> None:
        """Another takes over, when all binds have been carried out or never will be."""
        for name, node in self.open.items():
            if data.draw(st.booleans()):
                self.bound[name] = node
        self.open.clear()
        there = [name for name in PODS if f"uid-{name}" in known_pods(self.cache)]
        self.loop.run_until_complete(self.planner.stop())
        for task in self.calls.values():
            assert self.loop.run_until_complete(task) is not None  # nobody is let go on
        self.calls.clear()
        self.gone.clear()
        self.cache, self.planner = self.extender()
        for name in there:
            self.show(name)
        self.settle()

    @rule(job=st.sampled_from(sorted(JOBS)))
    def make_again(self, job: str) -> None:
        for name in JOBS[job]:
            if f"uid-{name}" not in known_pods(self.cache) and name not in self.calls:
                seen = member(name, job=job, size=len(JOBS[job]))
                apply(self.cache, seen, now_s=self.time.now_s)
        self.settle()

    @rule(seconds=st.sampled_from((1, 5, 25, 70, 700)))
    def pass_time(self, seconds: int) -> None:
        self.time.pass_s(seconds)
        self.let_agents_report(self.cache)
        apply(self.cache, events.Ticked(), now_s=self.time.now_s)
        self.planner.carry_out_effects()
        self.planner.tick()
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
        for gang in gangs(self.cache).values():
            for uid, node in gang.places.items():
                assert reservations(self.cache)[uid].node == node
        planned = {u for u, p in reservations(self.cache).items() if p.planned}
        places = {u for g in gangs(self.cache).values() for u in g.places}
        assert planned <= places

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
            self.bound[name] = self.open.pop(name)
            self.planner.record_bind_outcome(f"uid-{name}", "")
            self.show(name)
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

    def teardown(self) -> None:
        """Let everything come to rest: nothing of ours is left in between."""
        for name in list(self.open):
            self.bound[name] = self.open.pop(name)
            self.planner.record_bind_outcome(f"uid-{name}", "")
            self.show(name)
        self.gone.update(self.calls)
        for _ in range(4):
            self.pass_time(700)
        assert not self.calls
        assert not [p for p in reservations(self.cache).values() if p.planned]
        assert {g.phase for g in gangs(self.cache).values()} <= {Phase.GATHERING}
        for job in JOBS:
            self.make_again(job)
        for _ in range(400):
            if self.none_is_bound_in_part():
                break
            self.everybody_tries()
        assert self.none_is_bound_in_part()
        self.loop.run_until_complete(self.planner.stop())
        self.loop.close()


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
