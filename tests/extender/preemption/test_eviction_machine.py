"""Jobs and pods that push each other out, in any order of what can happen.

Whatever happens (`evictionrules`): no chip is anybody's twice, what is promised has
somebody who answers for it, what is kept has a room on its way, and nobody goes for
whom nobody waits, nor for somebody who is not more important. Once all is quiet nothing
is kept, and with a scheduler that goes on trying all have their turn.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Collection

from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from extender.cache.reservations import Owner
from extender.gang.job_plan import Phase
from extender.preemption.attempt import Attempt, Victim
from tests.extender.preemption.evictionrules import PODS, Pushing, happened
from tests.extender.preemption.evictionworld import NODES, check_chips
from tests.support.caches import (
    masks_on,
    nominations,
    reservations,
    resource_states,
)


class Evictions(Pushing):
    """What always holds, and what holds at rest."""

    def __init__(self) -> None:
        super().__init__()
        #: evictions that should not have been sent
        self.wrong: list[str] = []
        self.api.look = self.look

    # -- the Eviction API ---------------------------------------------------------

    def look(self, victim: Victim, rehearse: bool) -> None:
        """Each eviction that is sent is for somebody who waits and may."""
        if rehearse:
            return
        running = self.extender.preemptor._attempts.running.values()
        nominations = [m.attempt for m in running if victim in m.attempt.victims]
        why = [self.why_wrong(victim, attempt) for attempt in nominations]
        if all(why):
            self.wrong.append(f"{victim.title} goes for nobody: {why}")
        for attempt in nominations:
            happened[
                "evicted for a " + ("job" if "/" in attempt.beneficiary else "pod")
            ] += 1

    def why_wrong(self, victim: Victim, attempt: Attempt) -> str:
        """Why a pod should not go for that, as far as the extender can know."""
        cache, preemptor = self.extender.cache, self.extender.preemptor
        least = cache.priority(victim.uid)
        if victim.uid in cache.pods and least >= attempt.priority:
            return "it is as important"
        gang = cache.gangs.get(attempt.beneficiary)
        waiting = [attempt.beneficiary] if gang is None else gang.unbound
        for uid in waiting:
            pod = cache.pods.get(uid)
            if pod is None or pod.node or pod.deleting or pod.terminal:
                return "a pod that it is for waits no more"
            if uid in reservations(cache):
                return "a pod that it is for has a place"
            if preemptor.beneficiary(uid) != attempt.beneficiary:
                return "a pod that it is for is of another job"
        return "" if waiting else "it is for no pod"

    @invariant()
    def nobody_goes_for_nobody(self) -> None:
        assert self.wrong == []

    # -- what always holds --------------------------------------------------------

    @invariant()
    def no_chip_is_anybodys_twice(self) -> None:
        for where in NODES:
            self.truth.check(where)
        check_chips(self.extender.cache)

    @invariant()
    def each_promise_is_somebodys(self) -> None:
        cache, sent = self.extender.cache, self.extender.sent_binds
        by_node = {
            uid: r.node_info.name
            for r in resource_states(cache)
            for uid in masks_on(cache, r, freed=False)
        }
        assert by_node == {uid: p.node for uid, p in reservations(cache).items()}
        places = {u: n for g in cache.gangs.values() for u, n in g.plan.places.items()}
        for uid, node in places.items():
            assert reservations(cache)[uid].node == node
        by_owner: defaultdict[Owner, set[str]] = defaultdict(set)
        for uid, kept in reservations(cache).items():
            by_owner[kept.owner].add(uid)
            assert kept.until_s > self.extender.time.now_s - 1, "it has no end"
        assert by_owner[Owner.PLAN] <= places.keys()
        under_way = self.extender.binder._under_way
        known = {*under_way, *sent._open_binds, *sent._unconfirmed}
        assert by_owner[Owner.BIND] <= known
        assert by_owner.keys() <= {Owner.PLAN, Owner.BIND, Owner.PREEMPTION}

    @invariant()
    def what_is_kept_is_a_room_on_its_way(self) -> None:
        cache = self.extender.cache
        nominated = {
            owner
            for r in resource_states(cache)
            for owner in masks_on(cache, r, freed=True)
        }
        assert (
            nominated
            == set(nominations(cache))
            == set(self.extender.preemptor._attempts.running)
        )
        happened["room made for a job"] += any("/" in owner for owner in nominated)
        happened["room made for a pod"] += any("/" not in owner for owner in nominated)

    # -- at rest ---------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self.come_to_rest()
        finally:
            self.loop.run_until_complete(self.extender.stop())
            self.loop.close()

    def come_to_rest(self) -> None:
        self.truth.held.clear()
        self.truth.failing.clear()
        self.answer_slowly(is_slow=False)
        self.listen(is_deaf=False)
        while self.api.binds:
            self.finish(self.api.binds.pop(0), "done")
        self.gone.update(self.calls)
        for _ in range(6):
            self.pass_time(301)
        cache = self.extender.cache
        assert not self.calls
        assert nominations(cache) == {}
        assert reservations(cache) == {}
        assert {g.plan.phase for g in cache.gangs.values()} <= {Phase.GATHERING}
        self.get_all_through()

    def get_all_through(self) -> None:
        """Who is more important gets his place, and then all the others theirs."""
        for name in list(self.truth.pods):
            self.remove(name)
        self.pass_time(301)
        for important in ("c", "g"):
            for each in ("a", "d", "e", important):
                self.make_all(each)
                self.let_through(each)
            self.end_all("ade" + important)
        left = {name[0] for name in PODS}
        for _ in range(60):
            self.make_all(left)
            self.round()
            done = {each for each in left if self.is_through(each)}
            self.end_all("".join(done))
            left -= done
            if not left:
                return
            self.pass_time(25)
        raise AssertionError(left)

    def let_through(self, one: str) -> None:
        for _ in range(12):
            self.round()
            self.pass_time(25)
            if self.is_through(one):
                return
        raise AssertionError(one)

    def is_through(self, one: str) -> bool:
        """Whether a job, or a pod that is none, runs."""
        return all(self.truth.is_bound(name) for name in PODS if name[0] == one)

    def make_all(self, some: Collection[str]) -> None:
        for name in PODS:
            if name[0] in some:
                self.make(name)

    def end_all(self, some: str) -> None:
        for name in [name for name in self.truth.pods if name[0] in some]:
            self.end(name)


EXAMPLES = int(os.environ.get("EVICTION_EXAMPLES", "5"))
#: How often a thousand examples must reach what they are there for.
LEAST_PER_THOUSAND = {
    "bind carried out late": 10,
    "bind cut": 100,
    "bind of a pod that went": 30,
    "bind refused": 100,
    "evicted by others while its job is being bound": 8,
    "evicted by others while its job is planned": 2,
    "evicted by others while its job is waiting": 500,
    "evicted by others while room is made for it": 30,
    "failover while room is made": 50,
    "relabelled while room is made for it": 50,
    "slow answer: budget": 1,
    "slow answer: evicted": 20,
    "slow answer: gone": 1,
}
#: Each example ends with these.
IN_EACH = (
    "evicted for a job",
    "evicted for a pod",
    "room taken by a job",
    "room taken by a pod",
)


def test_whatever_happens_while_pods_push_each_other_out() -> None:
    happened.clear()
    run_state_machine_as_test(
        Evictions,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            derandomize=EXAMPLES < 1000,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
    sys.stderr.write(f"{sorted(happened.items())}\n")
    assert {what: happened[what] for what in IN_EACH if happened[what] < EXAMPLES} == {}
    if EXAMPLES >= 1000:  # of few, chance decides which
        assert {
            what: happened[what]
            for what, least in LEAST_PER_THOUSAND.items()
            if happened[what] < least * EXAMPLES / 1000
        } == {}
