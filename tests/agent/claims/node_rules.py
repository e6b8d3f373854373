"""The rules of the ledger's state machine: kubelet, chips, agent and API server."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from agent.claims.events import Registering
from tests.agent.claims.admission_model import Manner
from tests.agent.claims.cluster_model import INIT
from tests.agent.claims.pod_rules import Pods, equals, ignore, indexes, manners, seldom

#: How often what happened, in all examples since it was cleared.
seen: Counter[str] = Counter()


class Node(Pods):
    """What can happen to one node, in any order."""

    # watch

    @precondition(lambda self: self.world.agent.is_up and self.world.cluster.is_up)
    @rule(count=st.integers(1, 20))
    def deliver(self, count: int) -> None:
        agent = self.world.agent
        agent.survives(lambda: agent.deliver(count))

    @precondition(lambda self: self.world.agent.is_up and self.world.cluster.is_up)
    @rule()
    def relist(self) -> None:
        self.world.agent.survives(self.world.agent.relist)

    # the kubelet

    @rule()
    def kubelet_sync(self) -> None:
        if self.world.cluster.is_up:
            self.world.kubelet.sync()

    @precondition(lambda self: self.world.cluster.is_up)
    @rule(lose=st.booleans(), rejects=seldom)
    def kubelet_restart(self, lose: bool, rejects: bool) -> None:
        self.world.is_plain = False
        self.world.kubelet.restart(lose=lose, rejects=rejects)
        self.world.agent.forget_preference()
        agent = self.world.agent
        if agent.is_up:  # it registers again, but looks first
            agent.survives(lambda: agent.pass_(thorough=True))
        if agent.is_up:
            agent.survives(lambda: agent.take(Registering(agent.kubelet.lives)))
        if agent.is_up:
            agent.stream()

    @precondition(lambda self: self.world.kubelet.running and self.world.agent.is_up)
    @rule(index=indexes, manner=manners)
    def restart_container(self, index: int, manner: Manner) -> None:
        self.world.is_plain = False
        kubelet = self.world.kubelet
        lasting = sorted(
            key
            for key, c in kubelet.containers.items()
            if key[0] in kubelet.running.keys() & self.world.cluster.pods.keys()
            and c.kind is not INIT
        )
        if lasting:
            kubelet.restart_container(lasting[index % len(lasting)], manner)

    @precondition(Pods.can_race)
    @rule(shape=equals, seed=indexes, manner=manners)
    def equals_race_and_the_kubelet_loses_them(
        self, shape: int, seed: int, manner: Manner
    ) -> None:
        self.equals_race(shape, seed, obeys=True)
        self.kubelet_restart(lose=True, rejects=False)
        if self.world.kubelet.running and self.world.agent.is_up:
            self.restart_container(seed, manner)

    # chips

    @rule(chip=indexes)
    def chip_breaks(self, chip: int) -> None:
        self.world.is_plain = False
        self.world.broken |= 1 << chip

    @precondition(lambda self: self.world.broken)
    @rule()
    def chips_recover(self) -> None:
        self.world.broken = 0

    # the agent

    @precondition(lambda self: self.world.agent.is_up)
    @rule()
    def look(self) -> None:
        self.world.agent.survives(self.world.agent.look)

    @precondition(lambda self: self.world.agent.is_up)
    @rule()
    def begin_look(self) -> None:
        self.world.agent.begin_look()

    @precondition(lambda self: self.world.agent.is_up and self.world.agent.looking)
    @rule()
    def end_look(self) -> None:
        self.world.agent.survives(self.world.agent.end_look)

    @rule()
    def driver_goes_or_comes(self) -> None:
        self.world.is_plain = False
        self.world.agent.is_read = not self.world.agent.is_read

    @precondition(lambda self: self.world.agent.is_up)
    @rule()
    def stream(self) -> None:
        self.world.agent.stream()
        self.world.agent.publish()

    @precondition(lambda self: self.world.agent.is_up)
    @rule(thorough=st.booleans(), looks=st.booleans())
    def correction_pass(self, thorough: bool, looks: bool) -> None:
        agent = self.world.agent
        agent.survives(lambda: agent.pass_(thorough=thorough, looks=looks))

    @precondition(lambda self: self.world.agent.is_up)
    @rule(position=indexes)
    def begin_reading(self, position: int) -> None:
        self.world.agent.begin_reading(position)

    @precondition(lambda self: self.world.agent.is_up and self.world.agent.reading)
    @rule()
    def end_reading(self) -> None:
        self.world.agent.survives(self.world.agent.end_reading)

    @precondition(
        lambda self: (
            self.world.agent.is_up
            and (self.world.agent.batch or self.world.agent.wanted())
        )
    )
    @rule(
        last=st.booleans(),
        lands=seldom.map(lambda no: not no),
        told=seldom.map(lambda no: not no),
        count=st.integers(1, 3),
    )
    def send(self, last: bool, lands: bool, told: bool, count: int) -> None:
        agent = self.world.agent
        for _ in range(count):
            agent.survives(
                lambda: ignore(agent.send(last=last, lands=lands, told=told))
            )
            if not agent.is_up:
                return

    @precondition(lambda self: self.world.agent.is_up and self.pods)
    @rule(effects=st.integers(0, 12))
    def agent_will_die(self, effects: int) -> None:
        self.world.agent.fuse = effects

    @precondition(lambda self: self.world.agent.is_in_a_swap())
    @rule()
    def agent_dies_in_the_middle_of_a_swap(self) -> None:
        self.world.agent.die()

    @precondition(lambda self: not self.world.agent.is_up and self.world.cluster.is_up)
    @rule()
    def agent_starts(self) -> None:
        agent = self.world.agent
        agent.survives(agent.start)

    # the API server

    @rule()
    def api_server_goes_or_comes(self) -> None:
        self.world.cluster.is_up = not self.world.cluster.is_up

    @rule()
    def everything_comes_to_rest(self) -> None:
        self.world.rest()

    @invariant()
    def holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if not self.world.has_failed:
            self.world.rest()
        seen.update(self.world.seen)
