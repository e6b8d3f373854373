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
from extender.cache.reservations import Owner
from extender.dispatch import Dispatcher
from extender.preemption.attempt import Outcome, Victim
from extender.preemption.preemptor import Preemptor
from extender.scheduling import node_filter
from extender.scheduling.reserve import Choice
from scheduler_core.node import chips
from scheduler_core.wire.pods import NpuPod
from tests.support.caches import (
    all_reservations,
    choose,
    cluster,
    masks_on,
    nominations,
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
        clock = clock_of(self.time)
        self.dispatcher = Dispatcher(self.cache, clock)
        apply = self.dispatcher.apply
        self.preemptor = Preemptor(self.cache, apply, self, clock=clock)
        self.dispatcher.connect(self.preemptor.carry_out)
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
        asking = [self.cache.priority(owner) for owner in nominations(self.cache)]
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
            assert self.dispatcher.apply(each) is None, each

    def wait_again(self, name: str) -> None:
        count, important = WANTING[name]
        self.learn(high(count, name, important))

    @rule(name=wanting)
    def filter_and_bind(self, name: str) -> None:
        pod = self.cache.pods.get(f"uid-{name}")
        if pod is None or pod.node:
            return
        self.preemptor.reserve_freed_chips(pod, NODES)
        result = node_filter.filter_nodes(self.cache, pod, NODES, self.time.now_s)
        if not result.fitting:
            self.preemptor.refused(pod, NODES)
            return
        now_ns = self.time.now_ns()
        node, now_s = result.fitting[0], self.time.now_s
        made = choose(self.cache, pod, node, now_s=now_s, now_ns=now_ns)
        if isinstance(made, Choice):
            state = state_of(self.cache, node, pod.shape.resource)
            nominated = masks_on(self.cache, state, freed=True)
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
            for uid, mask in masks_on(self.cache, resource_state, freed=False).items():
                taken[uid] |= mask
            assert _are_apart(taken.values()), taken
            nominated = masks_on(self.cache, resource_state, freed=True)
            assert _are_apart(nominated.values()), nominated

    @invariant()
    def nobody_goes_who_should_not(self) -> None:
        assert self.wrong == []

    @invariant()
    def what_is_kept_is_a_room_on_its_way(self) -> None:
        running = self.preemptor._attempts.running
        assert set(nominations(self.cache)) == set(running)
        for kept in all_reservations(self.cache):
            assert kept.until_s > self.time.now_s - 1, "it has no end"

    def teardown(self) -> None:
        for _ in range(8):
            self.tick(301)  # nobody asks any more
        assert nominations(self.cache) == {}
        owners = {kept.owner for kept in reservations(self.cache).values()}
        assert owners <= {Owner.BIND}
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
