"""Room for many pods, in any order of what can happen.

The machine is scheduler, Eviction API, kubelets and time at once: it asks for places,
binds, lets evictions succeed, fail or be refused, lets pods end, and waits. Whatever it
does: no chip is anybody's twice, nobody goes for a pod that is not more important, and
nobody before the API server has said of all that they may; once all is quiet, nothing
is kept.
"""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from extender.cache import events
from extender.cache.reservations import Owner
from extender.preemption.attempt import Outcome, Victim
from scheduler_core.node import chips
from scheduler_core.wire.pods import NpuPod
from tests.extender.looped import Looped
from tests.extender.preemption.evictionworld import check_apart, check_chips
from tests.support.caches import (
    all_reservations,
    cluster,
    masks_on,
    nominations,
    reservations,
    state_of,
)
from tests.support.extender import NAMES, World
from tests.support.watched import high, low, report

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


class Rooms(Looped):
    """Everything runs on a loop that is turned until it is idle after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = cluster(nodes=NAMES)
        self.world = World(self.cache, evictions=self, preempts=True)
        self.learn = self.world.learn
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

    def wait_again(self, name: str) -> None:
        count, important = WANTING[name]
        self.learn(high(count, name, important))

    @rule(name=wanting)
    def filter_and_bind(self, name: str) -> None:
        pod = self.cache.pods.get(f"uid-{name}")
        if pod is None or pod.node:
            return
        fitting = self.world.filter(name)
        ids = self.world.reserve(name, fitting[0]) if fitting else ()
        if not fitting or isinstance(ids, str):
            return
        (node, *_) = fitting
        freed = masks_on(self.cache, state_of(self.cache, node), freed=True)
        check_apart(freed | {pod.uid: chips.mask_of(ids)})
        self.learn(low(name, node, ids, priority=WANTING[name][1]))

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
        time = self.world.time
        time.pass_s(by_s)
        self.learn(*(report(name, update_time=time.now_s) for name in NAMES))
        self.loop.run_until_complete(self._turn())

    async def _turn(self) -> None:
        self.world.pass_s(0)
        for _ in range(4):
            await asyncio.sleep(0)

    # -- what always holds ------------------------------------------------------------

    @invariant()
    def no_chip_is_anybodys_twice(self) -> None:
        check_chips(self.cache)

    @invariant()
    def nobody_goes_who_should_not(self) -> None:
        assert self.wrong == []

    @invariant()
    def what_is_kept_is_a_room_on_its_way(self) -> None:
        running = self.world.preemptor._attempts.running
        assert set(nominations(self.cache)) == set(running)
        for kept in all_reservations(self.cache):
            assert kept.until_s > self.world.time.now_s - 1, "it has no end"

    def come_to_rest(self) -> None:
        for _ in range(8):
            self.tick(301)  # nobody asks any more
        assert nominations(self.cache) == {}
        owners = {kept.owner for kept in reservations(self.cache).values()}
        assert owners <= {Owner.BIND}


TestRooms = Rooms.TestCase
TestRooms.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
