"""A job whose size is edited while its pods come, are gated, bound, end and succeed.

The machine is the scheduler, the controller and the API server of one job of whole
nodes. Whatever it does: no bind goes on before the job has its least number, or beside
a pod that stays; no plan keeps chips longer than its bound; and once all is quiet, as
many pods are bound as there are nodes, if these are enough.
"""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extender.cache import events
from extender.cache.reservations import Owner
from extender.gang import events as gang_events
from extender.gang.events import Caller
from extender.gang.gang import Gang
from extender.gang.size import Size
from extender.refusals import Refusal
from tests.extender.looped import Looped
from tests.support.caches import apply, cluster, known_pod, reservations
from tests.support.clock import Time
from tests.support.examples import examples
from tests.support.extender import World
from tests.support.watched import JOB_PATH, report, task

NODES = ("n1", "n2", "n3", "n4")
PODS = tuple(f"w{number}" for number in range(5))
#: No plan keeps chips for one pod longer, in seconds: it ends by itself, or the gate
#: closes, or the job is given up. One more second is a tick's.
LIMITS = gang_events.Limits()
LONGEST_S = LIMITS.plan_s + LIMITS.permit_s + LIMITS.complete_s + 1.0

pods = st.sampled_from(PODS)
sizes = st.tuples(st.integers(1, 5), st.integers(1, 5), st.booleans()).map(
    lambda drawn: Size(count=None if drawn[2] else max(drawn[:2]), least=min(drawn[:2]))
)


class OneJob(Looped):
    """Everything runs on a loop that is turned until it is idle after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.world = World(cluster(nodes=NODES), time=self.time)
        self.cache = self.world.cache
        self.world.calls.sizes[JOB_PATH] = Size(count=3, least=2)
        #: {pod: what it is}: gated, pending, bound, succeeded; with "ending" or not
        self.pods: dict[str, str] = {}
        self.ending: set[str] = set()
        #: {pod: node} that the gate let through and the API server has not answered
        self.open: dict[str, str] = {}
        self.nodes: dict[str, str] = {}
        self.calls: dict[str, asyncio.Task[Refusal | None]] = {}
        #: {(pod, node): since when a plan keeps chips for it}
        self.kept_s: dict[tuple[str, str], float] = {}

    def run(self, act: Callable[..., object], *values: object) -> None:
        """Act on the loop, where requests to the API server can begin."""

        async def acted() -> None:
            act(*values)

        self.loop.run_until_complete(acted())

    def learn(self, *changes: events.Change) -> None:
        self.run(self.world.learn, *changes)

    # -- what happens ---------------------------------------------------------------

    @rule(name=pods, gated=st.booleans())
    def make(self, name: str, *, gated: bool) -> None:
        if name not in self.pods:
            self.pods[name] = "gated" if gated else "pending"
            self.show(name)

    @rule(some=st.sampled_from((PODS[:3], PODS[3:], PODS)))
    def make_some(self, some: tuple[str, ...]) -> None:
        for name in some:
            self.make(name, gated=False)
        self.pass_time(3)

    @rule()
    def begin_to_end_all(self) -> None:
        for name in list(self.pods):
            self.begin_to_end(name)

    @rule()
    def schedule_all(self) -> None:
        for name in PODS:
            self.schedule(name)

    @rule(failing=st.sets(pods, max_size=1))
    def end_all_binds(self, failing: set[str]) -> None:
        for name in list(self.open):
            self.end_bind(name, is_bound=name not in failing)

    @rule(name=pods)
    def lift_the_gate(self, name: str) -> None:
        if self.pods.get(name) == "gated":
            self.pods[name] = "pending"
            self.show(name)

    @rule(size=sizes)
    def edit(self, size: Size) -> None:
        self.world.calls.sizes[JOB_PATH] = size

    @rule(name=pods)
    def begin_to_end(self, name: str) -> None:
        if name in self.pods and name not in self.open:
            self.ending.add(name)
            self.show(name)

    @rule(name=pods)
    def remove(self, name: str) -> None:
        if name in self.pods and name not in self.open:
            self.learn(events.PodDeleted(uid=f"uid-{name}"))
            del self.pods[name]
            self.ending.discard(name)
            self.nodes.pop(name, None)
            self.settle()

    @rule(name=pods)
    def succeed(self, name: str) -> None:
        if self.pods.get(name) == "bound":
            self.pods[name] = "succeeded"
            self.show(name)

    @rule(name=pods)
    def schedule(self, name: str) -> None:
        waits = self.pods.get(name) == "pending" and name not in self.ending
        if not waits or name in self.calls or name in self.open:
            return
        uid = f"uid-{name}"
        result = self.world.planner.filter_nodes(known_pod(self.cache, name), NODES)
        node = self.alone(name) if result is None else next(iter(result.fitting), "")
        if node:
            caller = Caller(uid=uid, node=node, is_there=lambda: True)
            self.calls[name] = self.loop.create_task(self.world.permits.wait(caller))
        self.settle()

    def alone(self, name: str) -> str:
        """The node of a pod that is a job by itself; its chips are reserved at once."""
        for node in NODES:
            if not isinstance(self.world.reserve(name, node), str):
                return node
        return ""

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_bound=st.booleans())
    def end_a_bind(self, data: st.DataObject, *, is_bound: bool) -> None:
        self.end_bind(data.draw(st.sampled_from(sorted(self.open))), is_bound=is_bound)

    def end_bind(self, name: str, *, is_bound: bool) -> None:
        node = self.open.pop(name)
        if is_bound:
            self.pods[name] = "bound"
            self.nodes[name] = node
            self.learn(gang_events.Bound(uid=f"uid-{name}"))
            self.show(name)
        else:
            self.learn(
                events.BindVoided(uid=f"uid-{name}"),
                gang_events.BindFailed(uid=f"uid-{name}"),
            )
            self.settle()

    @rule(seconds=st.sampled_from((1, 3, 12, 25, 70, 650)))
    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.time.pass_s(1)
            for name in NODES if not self.time.now_s % 60 else ():
                alive = report(name, update_time=self.time.now_s)
                apply(self.cache, alive, now_s=self.time.now_s)
            self.run(self.world.pass_s, 0)
            self.note_kept()
        self.settle()

    # -- what is seen ---------------------------------------------------------------

    def show(self, name: str) -> None:
        what = self.pods[name]
        phase = {"bound": "Running", "succeeded": "Succeeded"}.get(what, "Pending")
        seen = task(
            int(name[1:]),
            node=self.nodes.get(name, ""),
            phase=phase,
            deleting=name in self.ending,
            is_gated=what == "gated",
        )
        self.learn(seen)
        self.settle()

    def settle(self) -> None:
        for _ in range(6):
            self.loop.run_until_complete(asyncio.sleep(0))
        let: set[str] = set()
        for name, call in list(self.calls.items()):
            if call.done():
                del self.calls[name]
                if call.result() is None:
                    let.add(name)
        gang = self.gang
        if let and gang is not None and gang.is_several:
            self.check_gate(gang, let)
        for name in let:
            reservation = reservations(self.cache)[f"uid-{name}"]
            until_s = self.time.now_s + 65
            self.learn(reservation._replace(owner=Owner.BIND, until_s=until_s))
            self.open[name] = reservation.node
        self.note_kept()

    def check_gate(self, gang: Gang, let: set[str]) -> None:
        """Who is let through comes with enough others, or beside one that stays."""
        assert gang.size is not None
        stays = {
            name
            for name, what in self.pods.items()
            if what in {"bound", "succeeded"} and name not in self.ending
        }
        assert stays or self.open or len(let) >= gang.size.least

    @property
    def gang(self) -> Gang | None:
        return next(iter(self.cache.gangs.values()), None)

    def note_kept(self) -> None:
        gang = self.gang
        places = {} if gang is None else gang.plan.places
        kept = {
            place: self.kept_s.get(place, self.time.now_s) for place in places.items()
        }
        self.kept_s = {
            place: since_s
            for place, since_s in kept.items()
            if place[0].removeprefix("uid-") not in self.open
        }

    # -- laws -----------------------------------------------------------------------

    @invariant()
    def no_node_is_given_twice(self) -> None:
        bound = [n for name, n in self.nodes.items() if self.pods[name] == "bound"]
        given = [*bound, *self.open.values()]
        assert len(given) == len(set(given))
        assert len({r.node for r in reservations(self.cache).values()}) == len(
            reservations(self.cache)
        )

    @invariant()
    def what_is_planned_has_its_promise(self) -> None:
        gang = self.gang
        for uid, node in gang.plan.places.items() if gang is not None else ():
            assert reservations(self.cache)[uid].node == node

    @invariant()
    def nothing_is_half_bound_longer_than_its_bound(self) -> None:
        for place, since_s in self.kept_s.items():
            assert self.time.now_s - since_s <= LONGEST_S, place

    def come_to_rest(self) -> None:
        """Once all is quiet, as many run as can."""
        for name in list(self.open):
            self.pods[name], self.nodes[name] = "bound", self.open.pop(name)
            self.learn(gang_events.Bound(uid=f"uid-{name}"))
            self.show(name)
        for name in [*self.ending, *(n for n, w in self.pods.items() if w != "bound")]:
            self.remove(name)
        count = len(PODS)
        self.edit(Size(count=count, least=3))
        for name in PODS:
            self.make(name, gated=False)
        for _ in range(60):
            self.pass_time(12)
            for name in PODS:
                self.schedule(name)
            for name in list(self.open):
                self.pods[name], self.nodes[name] = "bound", self.open.pop(name)
                self.learn(gang_events.Bound(uid=f"uid-{name}"))
                self.show(name)
            if len(self.nodes) == len(NODES):
                break
        assert sorted(self.nodes.values()) == list(NODES)


@examples(10, pytest.param(30, marks=pytest.mark.long), variable="GANG_EXAMPLES")
def test_one_job_of_each_size_is_bound_in_the_end(examples: int) -> None:
    run_state_machine_as_test(
        OneJob, settings=settings(max_examples=examples, stateful_step_count=40)
    )
