"""Moves of jobs in any order of what can happen, in simulated time.

The machine is chips, API server, controllers, scheduler, people and time at once. It
breaks and mends chips, answers orders well, badly or not at all, makes pods early, late
or double, deletes jobs, and restarts the extender. What is ordered is checked when it
comes (`moveworld`). In the end all moves are over, and nothing is kept for any of them.
"""

from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extender.gang.fault_policy import Switch
from extender.preemption.attempt import Outcome
from extender.rescheduling.ends import Reach
from extender.rescheduling.moves import Held
from scheduler_core.rescheduling.ladder import Rung
from tests.extender.rescheduling.movejobs import CHIPS, NODES, Job, Pod
from tests.extender.rescheduling.moveworld import World, chips_of
from tests.support.examples import examples

BY_POD = (Rung.PODS, Rung.JOB)
switches = st.sampled_from([Switch.GRACE, Switch.FORCE])
outcomes = st.sampled_from([Outcome.YES, Outcome.YES, Outcome.BUDGET, Outcome.FAILED])
nodes, chips, names = map(st.sampled_from, (NODES, CHIPS, "abcde"))


class Moves(RuleBasedStateMachine):
    """`a` goes whole, `b` by pod, `c` is elastic, `d` is one pod, `e` never goes."""

    world: World

    @initialize(
        switch=switches,
        whole=st.sampled_from([Reach.POD, Reach.JOB]),
        by_pod=st.sampled_from([Reach.POD, Reach.JOB]),
    )
    def begin(self, switch: Switch, whole: Reach, by_pod: Reach) -> None:
        jobs = (
            Job(name="a", count=3, switch=switch, reach=whole),
            Job(name="b", count=2, rungs=BY_POD, reach=by_pod),
            Job(name="c", count=3, least=2, rungs=(Rung.PODS,), switch=switch),
            Job(name="d", count=1, is_alone=True),
            Job(name="e", count=1, survives=False),
        )
        self.world = World({job.name: job for job in jobs})

    @rule(node=nodes, chip=chips)
    def breaks(self, node: str, chip: int) -> None:
        self.world.broken.add((node, chip))
        self.world.look()

    @rule(name=names)
    def breaks_under_a_pod(self, name: str) -> None:
        pods = [pod for pod in self.world.pods.values() if pod.job == name and pod.node]
        self.world.broken |= {(pod.node, pod.chip) for pod in pods[:1]}
        self.world.look()

    @rule(node=nodes, chip=chips)
    def recovers(self, node: str, chip: int) -> None:
        self.world.broken.discard((node, chip))
        self.world.look()

    @rule(node=nodes, chip=chips)
    def another_comes(self, node: str, chip: int) -> None:
        if (node, chip) in self.world.free((), ()):
            self.world.foreign.add((node, chip))

    @rule(node=nodes, chip=chips)
    def another_goes(self, node: str, chip: int) -> None:
        self.world.foreign.discard((node, chip))

    @rule(number=st.integers(0, 20), outcome=outcomes, is_heard=st.booleans())
    def answers(self, number: int, outcome: Outcome, *, is_heard: bool) -> None:
        self.world.answer(number, outcome, is_heard=is_heard)

    @rule()
    def answers_all(self) -> None:
        for _ in range(20):
            self.world.answer(0, Outcome.YES)

    @rule(seconds=st.sampled_from([1, 1, 5, 30, 65, 300, 905]))
    def passes(self, seconds: int) -> None:
        self.world.tick(seconds)

    @rule(name=names, early=st.booleans(), double=st.booleans())
    def makes_again(self, name: str, *, early: bool, double: bool) -> None:
        if name in self.world.jobs and self.world.jobs[name].survives:
            self.world.make_again(name, early=early, double=double)

    @rule(name=names)
    def ends_others(self, name: str) -> None:
        self.world.end_others(name)
        self.world.look()

    @rule(name=names, is_all=st.booleans())
    def ends(self, name: str, *, is_all: bool) -> None:
        uids = [uid for uid, pod in self.world.pods.items() if pod.job == name]
        ending = [uid for uid in uids if self.world.pods[uid].is_ending]
        for uid in ending if is_all else ending[:1]:
            self.world.end(uid)
        self.world.look()

    @rule(name=names)
    def ends_with_stuck_processes(self, name: str) -> None:
        uids = [uid for uid, pod in self.world.pods.items() if pod.job == name]
        for uid in [uid for uid in uids if self.world.ends(uid)][:1]:
            self.world.end(uid, is_stuck=True)
        self.world.look()

    @rule()
    def stuck_processes_go(self) -> None:
        self.world.stuck_s.clear()

    @rule(name=st.sampled_from("ab"), is_over=st.booleans())
    def controllers_are_over(self, name: str, *, is_over: bool) -> None:
        (self.world.over.add if is_over else self.world.over.discard)(name)

    @rule(name=names, number=st.integers(0, 2))
    def a_person_deletes_a_pod(self, name: str, number: int) -> None:
        for pod in self.world.pods.values():
            if (pod.job, pod.number) == (name, number) and pod.is_running:
                pod.is_ending = True
        self.world.look()

    @rule()
    def schedules(self) -> None:
        self.world.schedule()
        self.world.look()

    @rule(name=st.sampled_from("abc"), is_all=st.booleans())
    def holds(self, name: str, *, is_all: bool) -> None:
        self.world.apply(Held(jobs=frozenset(name), is_all=is_all))

    @rule()
    def lets_go(self) -> None:
        self.world.apply(Held())
        self.world.look()

    @rule(is_sent=st.booleans(), after_s=st.sampled_from([0, 1, 20, 3000]))
    def restarts(self, *, is_sent: bool, after_s: int) -> None:
        self.world.restart(is_sent=is_sent, after_s=after_s)

    @precondition(lambda self: self.world.state.moves)
    @rule(name=st.sampled_from("ab"))
    def a_person_deletes_a_job(self, name: str) -> None:
        self.world.delete(name)

    # -- what always holds -----------------------------------------------------------

    @invariant()
    def what_is_kept_is_the_moves(self) -> None:
        moves = self.world.state.moves
        for key, places in self.world.kept.items():
            move = moves.get(key)
            expected: Mapping[str, object] = {}
            if move is not None:
                going = [d.place for d in move.departures.values()]
                places_of = (p for p in (*going, *move.addition) if p.is_kept)
                expected = {place.uid: chips_of(place) for place in places_of}
            assert {place.uid: chips_of(place) for place in places} == expected
        for key, move in moves.items():
            going = [d.place for d in move.departures.values()]
            kept = {place.uid for place in self.world.kept.get(key, ())}
            assert {place.uid for place in going if place.is_kept} <= kept

    @invariant()
    def no_chip_is_two_pods(self) -> None:
        pods = [pod for pod in self.world.pods.values() if pod.node]
        pairs = combinations(pods, 2)
        assert all((p.node, p.chip) != (q.node, q.chip) for p, q in pairs)
        kept = [
            (place.node, place.chips)
            for places in self.world.kept.values()
            for place in places
        ]
        assert len({*kept}) == len(kept)

    @invariant()
    def no_rank_is_bound_twice(self) -> None:
        places = [(p.job, p.number) for p in self.world.pods.values() if p.node]
        assert len({*places}) == len(places)

    @invariant()
    def nobody_is_touched_whose_job_was_well(self) -> None:
        jobs = {uid.partition("-")[0] for uid in self.world.evicted}
        assert jobs <= self.world.struck - {"e"}

    # -- the end ---------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if len(self.world.events) % 2:
            self.nobody_does_anything()
        else:
            self.all_goes_well()
        assert (self.world.state.moves, self.world.state.jobs) == ({}, {})
        assert [key for key, places in self.world.kept.items() if places] == []

    def nobody_does_anything(self) -> None:
        """No answer, no new pod, and what ends does not end: places come back."""
        self.world.open.clear()
        for _ in range(200):
            self.world.tick(60)
            self.world.open.clear()
        self.world.broken.clear()
        for _ in range(60):
            self.world.tick(60)

    def all_goes_well(self) -> None:
        self.world.broken.clear()
        self.world.foreign.clear()
        self.world.stuck_s.clear()
        self.world.over.clear()
        self.world.apply(Held())
        for _ in range(120):
            self.world.tick(30)
            self.answers_all()
            for name, job in self.world.jobs.items():
                self.ends_others(name)
                self.ends(name, is_all=True)
                if job.survives and any(p.job == name for p in self.pods()):
                    self.makes_again(name, early=False, double=False)
            self.schedules()
        self.answers_all()
        assert self.world.records == {}

    def pods(self) -> list[Pod]:
        return [*self.world.pods.values()]


@examples(25, pytest.param(500, marks=pytest.mark.long))
def test_every_move_ends_and_nobody_goes_without_a_place(examples: int) -> None:
    run_state_machine_as_test(
        Moves,
        settings=settings(max_examples=examples, stateful_step_count=60, deadline=None),
    )
