"""The rules of the ledger's state machine: pods come, are admitted, run and end."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from scheduler_core.wire.pods import NpuPod
from tests.agent.claims.admission_model import Manner
from tests.agent.claims.cluster_model import APP, INIT, SIDECAR, Needs
from tests.agent.claims.world_model import World

#: (containers, whether they read the annotation themselves)
SHAPES: tuple[tuple[Needs, bool], ...] = (
    (((APP, 1),), False),
    (((APP, 2),), False),
    (((APP, 1), (APP, 1)), False),
    (((INIT, 1), (APP, 1)), False),
    (((INIT, 2), (APP, 1)), False),
    (((INIT, 2), (APP, 1), (APP, 1)), False),
    (((INIT, 1), (INIT, 1), (APP, 1)), False),
    (((SIDECAR, 1), (APP, 1)), False),
    (((INIT, 1), (SIDECAR, 1), (APP, 1)), False),
    (((APP, 4),), False),
    (((APP, 8),), False),
    (((APP, 1),), True),
)

indexes = st.integers(0, 7)
#: Of these four have room on the node.
equals = st.integers(0, 8)
#: These have one container each.
plain = st.sampled_from([0, 1, 9])
manners = st.builds(
    Manner, obeys=st.booleans(), seed=st.integers(0, 20), rejects=st.just(value=False)
)
seldom = st.integers(0, 3).map(lambda number: number == 0)


class Pods(RuleBasedStateMachine):
    """What can happen to the pods of one node, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(Counter())

    # helpers of the rules

    @property
    def pods(self) -> list[NpuPod]:
        return list(self.world.cluster.pods.values())

    def pick(self, index: int) -> NpuPod:
        return self.pods[index % len(self.pods)]

    def has_pods(self) -> bool:
        return bool(self.world.cluster.pods) and self.world.cluster.is_up

    # scheduling

    @precondition(lambda self: self.world.cluster.is_up)
    @rule(shape=st.integers(0, len(SHAPES) - 1), first=indexes, count=st.integers(1, 4))
    def bind(self, shape: int, first: int, count: int) -> None:
        needs, reads = SHAPES[shape]
        if reads and self.world.agent.is_up:
            # It mounts what is chosen here. Others the agent would keep from chips that
            # its last report does not show yet; this one only the scheduler can.
            self.world.agent.publish()
        for index in range(count):
            name = f"p{(first + index) % 8}"
            uid = self.world.cluster.bind(needs, name=name, reads_annotation=reads)
            if uid is not None:
                self.world.fresh.append(uid)

    @precondition(lambda self: self.world.cluster.is_up)
    @rule(shape=plain, name=indexes)
    def bind_without_the_scheduler(self, shape: int, name: int) -> None:
        needs, _ = SHAPES[shape]
        if self.world.cluster.bind_directly(needs, name=f"p{name}"):
            self.world.is_plain = False

    # admission

    def can_admit(self) -> bool:
        world = self.world
        return (
            world.agent.is_up
            and world.cluster.is_up
            and world.kubelet.admission is None
            and bool(world.kubelet.waiting())
        )

    @precondition(can_admit)
    @rule(index=indexes, manner=manners, count=st.integers(1, 4))
    def admit(self, index: int, manner: Manner, count: int) -> None:
        kubelet = self.world.kubelet
        for each in range(count):
            if not self.can_admit():
                return
            self.begin_admission(index + each, manner)
            while kubelet.admission is not None:
                kubelet.advance()
            self.world.check()

    def can_race(self) -> bool:
        world = self.world
        return world.agent.is_up and world.cluster.is_up and not world.kubelet.admission

    @precondition(can_race)
    @rule(shape=equals, seed=indexes, obeys=st.booleans())
    def equals_race(self, shape: int, seed: int, obeys: bool) -> None:
        """Several equal pods at once, admitted in another order."""
        self.bind(shape, seed, 4)
        self.admit(seed, Manner(obeys=obeys, seed=seed), 3)
        self.start(report=True)
        agent = self.world.agent
        if agent.is_up:  # it hears that they run, else a reading would tell it nothing
            agent.survives(lambda: agent.deliver(len(self.world.cluster.watch)))
        if agent.is_up:
            agent.survives(lambda: agent.pass_(thorough=False))

    @precondition(can_race)
    @rule(shape=equals, seed=indexes, sent=st.integers(1, 4))
    def equals_race_and_the_agent_dies(self, shape: int, seed: int, sent: int) -> None:
        self.equals_race(shape, seed, obeys=False)
        agent = self.world.agent
        for _ in range(sent):
            if agent.is_up:
                agent.survives(lambda: ignore(agent.send()))
                self.world.check()
        if agent.is_up:
            agent.die()

    @precondition(can_admit)
    @rule(index=indexes, manner=manners)
    def begin_admission(self, index: int, manner: Manner) -> None:
        waiting = self.world.kubelet.waiting()
        self.world.kubelet.begin(waiting[index % len(waiting)], manner)

    @precondition(can_admit)
    @rule(index=indexes, obeys=st.booleans(), seed=indexes, at_once=st.booleans())
    def begin_admission_that_ends_badly(
        self, index: int, obeys: bool, seed: int, *, at_once: bool
    ) -> None:
        self.world.is_plain = False
        self.begin_admission(index, Manner(obeys=obeys, seed=seed, rejects=True))
        while at_once and self.world.kubelet.admission is not None:
            self.world.kubelet.advance()

    @precondition(can_race)
    @rule(shape=equals, obeys=st.booleans(), seed=indexes)
    def equals_race_and_one_is_rejected(
        self, shape: int, obeys: bool, seed: int
    ) -> None:
        self.equals_race(shape, seed, obeys=obeys)
        if self.can_admit():
            self.begin_admission_that_ends_badly(seed, obeys, seed, at_once=True)

    def confirmed(self) -> list[str]:
        # two pods that are not confirmed and have one id cannot be told apart; whoever
        # has lost his devices may have been given others that are not confirmed
        holds = self.world.agent.ledger.holds.values()
        lost = {hold.owner.uid for hold in holds if hold.owner and hold.lost}
        return sorted({hold.owner.uid for hold in holds if hold.owner} - lost)

    @precondition(lambda self: self.can_admit() and self.confirmed())
    @rule(index=indexes, victim=indexes, seed=indexes)
    def begin_admission_with_an_id_forgotten(
        self, index: int, victim: int, seed: int
    ) -> None:
        self.world.is_plain = False
        victims = self.confirmed()
        forgets = victims[victim % len(victims)]
        self.begin_admission(index, Manner(obeys=False, seed=seed, forgets=forgets))

    @precondition(can_race)
    @rule(shape=equals, seed=indexes)
    def equals_race_and_one_gets_an_id_again(self, shape: int, seed: int) -> None:
        self.equals_race(shape, seed, obeys=True)
        if self.can_admit() and self.confirmed():
            self.begin_admission_with_an_id_forgotten(seed, seed, seed)
            while self.world.kubelet.admission is not None:
                self.world.kubelet.advance()

    @precondition(
        lambda self: (
            self.world.kubelet.admission is not None and self.world.cluster.is_up
        )
    )
    @rule(count=st.integers(1, 3))
    def advance(self, count: int) -> None:
        for _ in range(count):
            if self.world.kubelet.admission is not None:
                self.world.kubelet.advance()
                self.world.check()

    def startable(self) -> list[str]:
        kubelet = self.world.kubelet
        alive = kubelet.admitted - kubelet.ended - kubelet.running.keys()
        return sorted(alive & self.world.cluster.pods.keys())

    @precondition(lambda self: bool(self.startable()))
    @rule(report=st.booleans())
    def start(self, report: bool) -> None:
        for uid in self.startable():
            self.world.kubelet.start(uid)
            if report and self.world.cluster.is_up:
                self.world.kubelet.report(uid)

    @precondition(lambda self: self.world.kubelet.admitted and self.world.cluster.is_up)
    @rule()
    def acknowledge(self) -> None:
        kubelet = self.world.kubelet
        for uid in sorted(kubelet.admitted - kubelet.ended):
            kubelet.acknowledge(uid)

    @precondition(lambda self: self.world.kubelet.running and self.world.cluster.is_up)
    @rule()
    def report(self) -> None:
        for uid in tuple(self.world.kubelet.running):
            self.world.kubelet.report(uid)

    def simple(self) -> list[NpuPod]:
        waiting = self.world.kubelet.waiting() if self.can_admit() else []
        return [
            p for p in waiting if len(p.needs) == 1 and not p.shape.reads_annotation
        ]

    @precondition(can_race)
    @rule(shape=plain, index=indexes)
    def start_without_devices(self, shape: int, index: int) -> None:
        self.bind(shape, index, 1)
        simple = self.simple()
        if simple:
            self.world.is_plain = False
            self.world.kubelet.start_bare(simple[index % len(simple)].uid)

    # the end of pods

    @precondition(lambda self: self.world.kubelet.running and self.has_pods())
    @rule(
        index=indexes, phase=st.sampled_from(["Failed", "Succeeded"]), leftover=seldom
    )
    def finish(self, index: int, phase: str, leftover: bool) -> None:
        self.world.is_plain = False
        running = sorted(
            self.world.kubelet.running.keys() & self.world.cluster.pods.keys()
        )
        if running:
            uid = running[index % len(running)]
            self.world.kubelet.finish(uid, phase, leftover=leftover)

    @precondition(lambda self: self.can_race() and self.world.kubelet.running)
    @rule(index=indexes, leftover=st.booleans())
    def a_pod_ends_and_another_is_bound_to_its_chips(
        self, index: int, *, leftover: bool
    ) -> None:
        """As by a scheduler that reads no report of ours."""
        self.finish(index, "Succeeded", leftover=leftover)
        agent, cluster = self.world.agent, self.world.cluster
        ended = [pod for pod in self.pods if pod.phase == "Succeeded"]
        if not ended or ended[-1].shape.reads_annotation:
            return
        needs = ended[-1].shape.needs
        name = f"s{cluster.moment}"
        cluster.bind(needs, name=name, reads_annotation=False, heeds_report=False)
        agent.survives(lambda: agent.deliver(len(cluster.watch)))
        self.admit(index, Manner(seed=index), 1)

    @precondition(has_pods)
    @rule(index=indexes)
    def delete(self, index: int) -> None:
        self.world.is_plain = False
        self.world.delete(self.pick(index).uid)

    @precondition(lambda self: self.has_pods() and any(p.deleting for p in self.pods))
    @rule(leftover=seldom)
    def terminate(self, leftover: bool) -> None:
        for pod in self.pods:
            admission = self.world.kubelet.admission
            if pod.deleting and (admission is None or admission.pod.uid != pod.uid):
                self.world.kubelet.terminate(pod.uid, leftover=leftover)

    @precondition(has_pods)
    @rule(index=indexes)
    def force_delete(self, index: int) -> None:
        self.world.is_plain = False
        self.world.force_delete(self.pick(index).uid)

    @precondition(has_pods)
    @rule(index=indexes)
    def replace_under_the_same_name(self, index: int) -> None:
        self.world.is_plain = False
        old = self.pick(index)
        self.world.force_delete(old.uid)
        needs = old.shape.needs
        reads = old.shape.reads_annotation
        uid = self.world.cluster.bind(needs, name=old.name, reads_annotation=reads)
        if uid is not None:
            self.world.seen["name used again"] += 1

    @precondition(lambda self: self.world.kubelet.orphans())
    @rule(leftover=seldom)
    def reap(self, leftover: bool) -> None:
        self.world.is_plain &= not leftover
        for uid in self.world.kubelet.orphans():
            self.world.kubelet.reap(uid, leftover=leftover)

    @precondition(lambda self: self.world.kubelet.leftovers)
    @rule()
    def last_process_ends(self) -> None:
        self.world.kubelet.leftovers = 0


def ignore(_: object) -> None:
    """Drop a value."""
