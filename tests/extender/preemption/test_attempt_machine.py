"""Room for many pods, in any order of what can happen.

The machine is scheduler, Eviction API, kubelets and time at once: it asks for places,
binds, lets evictions succeed, fail or be refused, lets pods end, and waits. Whatever it
does: no chip is anybody's twice, nobody goes for a pod that is not more important, and
nobody before the API server has said of all that they may; once all is quiet, nothing
is kept.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.cache import events
from extender.cache.cache import Cache
from extender.preemption.attempt import Outcome, Victim
from extender.preemption.preemptor import Preemptor
from extender.scheduling import node_filter, reserve
from extender.scheduling.reserve import Choice
from scheduler_core.node import chips
from scheduler_core.wire.pods import NpuPod
from tests.support.caches import (
    apply,
    cluster,
    known_pods,
    nominations,
    priority,
    reservations,
    resource_states,
    state_of,
)
from tests.support.clock import Time
from tests.support.extender import clock_of
from tests.support.watched import high, low, report

NODES = ("n1", "n2")
#: {pod that wants room: (chips, priority)}
WANTING = {"w1": (4, 10), "w2": (8, 10), "w3": (2, 5), "w4": (4, 20)}
#: {pod that runs: (node, chips, priority)}
RUNNING = {
    "a": ("n1", (0, 1), 0),
    "b": ("n1", (4,), 5),
    "c": ("n1", (5, 6), 1),
    "d": ("n2", (0, 1, 2, 3), 1),
    "e": ("n2", (4,), 10),
}

wanting = st.sampled_from(sorted(WANTING))
running = st.sampled_from(sorted(RUNNING))
outcomes = st.sampled_from([Outcome.YES, Outcome.BUDGET, Outcome.FAILED])
seconds = st.sampled_from([1, 6, 61, 301])


class Rooms(RuleBasedStateMachine):
    """Everything runs on a loop that is turned until it is idle after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.time = Time()
        self.cache: Cache = cluster(nodes=NODES)
        self.preemptor = Preemptor(self.cache, self, clock=clock_of(self.time))
        #: {name of a running pod: what the API server says of it}
        self.says: dict[str, Outcome] = {}
        #: pods that were evicted and should not have been
        self.wrong: list[str] = []
        #: UIDs that may go, by the last rehearsal
        self.allowed: set[str] = set()
        for name, (node, ids, important) in RUNNING.items():
            self.learn(low(name, node, ids, priority=important))
        for name in WANTING:
            self.wait_again(name)

    # -- the world, as the evictor sees it ---------------------------------------

    async def evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        outcome = self.says.get(victim.name, Outcome.YES)
        if rehearse:
            (self.allowed.add if outcome is Outcome.YES else self.allowed.discard)(
                victim.uid
            )
            return outcome
        mine = RUNNING.get(victim.name, WANTING.get(victim.name, ("", 0, 0)))[-1]
        asking = [priority(self.cache, owner) for owner in nominations(self.cache)]
        if victim.uid not in self.allowed or all(mine >= each for each in asking):
            self.wrong.append(victim.name)  # here it would be a task's own affair
        return outcome

    def tell(self, pod: NpuPod, reason: str, text: str) -> None:
        """Nobody reads here."""

    def wake(self) -> None:
        """The machine tries when it likes."""

    # -- what can happen -----------------------------------------------------------

    def learn(self, *found: events.Change) -> None:
        for each in found:
            apply(self.cache, each, now_s=self.time.now_s)

    def wait_again(self, name: str) -> None:
        count, important = WANTING[name]
        self.learn(high(count, name, important))

    @rule(name=wanting)
    def filter_and_bind(self, name: str) -> None:
        pod = known_pods(self.cache).get(f"uid-{name}")
        if pod is None or pod.node:
            return
        self.preemptor.reserve_freed_chips(pod, NODES)
        result = node_filter.filter_nodes(self.cache, pod, NODES, self.time.now_s)
        if not result.fitting:
            self.preemptor.refused(pod, NODES)
            return
        now_ns = self.time.now_ns()
        made = reserve.choose_chips(
            self.cache, pod, result.fitting[0], now_s=self.time.now_s, now_ns=now_ns
        )
        if isinstance(made, Choice):
            nominated = state_of(
                self.cache, made.reservation.node, pod.shape.resource
            ).nominated
            others = [mask for owner, mask in nominated.items() if owner != pod.uid]
            assert _are_apart([made.reservation.chips, *others])
            ids = chips.ids_of(made.reservation.chips)
            self.learn(made.reservation)
            bound = low(name, made.reservation.node, ids, priority=WANTING[name][1])
            self.learn(bound)

    @rule(name=wanting)
    def end_a_pod_that_was_placed(self, name: str) -> None:
        self.learn(events.PodDeleted(uid=f"uid-{name}"))
        self.wait_again(name)

    @rule(name=running)
    def end(self, name: str) -> None:
        self.learn(events.PodDeleted(uid=f"uid-{name}"))

    @rule(name=running, outcome=outcomes)
    def say(self, name: str, outcome: Outcome) -> None:
        self.says[name] = outcome

    @rule(by_s=seconds)
    def tick(self, by_s: int) -> None:
        self.time.pass_s(by_s)
        self.learn(*(report(name, update_time=self.time.now_s) for name in NODES))
        self.learn(events.Ticked())
        self.loop.run_until_complete(self._turn())

    async def _turn(self) -> None:
        self.preemptor.tick()
        for _ in range(4):
            await asyncio.sleep(0)

    # -- what always holds ------------------------------------------------------------

    @invariant()
    def no_chip_is_anybodys_twice(self) -> None:
        for resource_state in resource_states(self.cache):
            taken: defaultdict[str, int] = defaultdict(int)
            for uid, tenant in resource_state.tenants.items():
                taken[uid] |= tenant.chips
            for uid, reservation in resource_state.reservations.items():
                taken[uid] |= reservation.chips
            assert _are_apart(taken.values()), taken
            assert _are_apart(resource_state.nominated.values()), (
                resource_state.nominated
            )

    @invariant()
    def nobody_goes_who_should_not(self) -> None:
        assert self.wrong == []

    @invariant()
    def what_is_kept_is_a_room_on_its_way(self) -> None:
        nominated = {
            owner for r in resource_states(self.cache) for owner in r.nominated
        }
        assert nominated == set(nominations(self.cache))

    def teardown(self) -> None:
        for _ in range(8):
            self.tick(301)  # nobody asks any more
        assert nominations(self.cache) == {}
        assert not any(p.planned for p in reservations(self.cache).values())
        self.loop.run_until_complete(self.preemptor.stop())
        self.loop.close()


def _are_apart(masks: Iterable[int]) -> bool:
    together = 0
    for mask in masks:
        if together & mask:
            return False
        together |= mask
    return True


TestRooms = Rooms.TestCase
TestRooms.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
