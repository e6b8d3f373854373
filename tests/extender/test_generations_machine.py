"""Groups of a LeaderWorkerSet whose pods are deleted and made again in any order.

Each controller and the garbage collector work when they like. Whatever happens: no pod
is bound before all pods with its leader are, or nodes are kept for them, unless another
pod with that leader runs; and once all is quiet, each group runs.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.extender.gangworld import GangWorld, sim_node, sim_pod
from tests.extender.worker_sets import WorkerSet
from tests.support.examples import examples

NODES = ("n1", "n2", "n3", "n4")
QUIET_S = 720


class Groups(RuleBasedStateMachine):
    """One or two groups on four nodes, and another job that comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GangWorld(map(sim_node, NODES))
        self.world.on_let = self.check_gate
        self.group = WorkerSet(self.world)

    @initialize(
        shape=st.sampled_from(((2, 2, 8), (1, 3, 8), (1, 4, 8), (1, 3, 0), (1, 4, 0))),
        is_leader_first=st.booleans(),
    )
    def install(self, shape: tuple[int, int, int], *, is_leader_first: bool) -> None:
        """Groups, pods of each, and chips of a leader."""
        groups, size, leader = shape
        self.group = WorkerSet(
            self.world,
            size=size,
            leader=leader,
            groups=groups,
            is_leader_first=is_leader_first,
        )
        self.group.reconcile()
        self.schedule(4)

    @rule(
        work=st.sampled_from(
            (
                WorkerSet.make_leaders,
                WorkerSet.make_sets,
                WorkerSet.make_workers,
                WorkerSet.reconcile,
                WorkerSet.collect_sets,
                WorkerSet.collect_workers,
            )
        )
    )
    def let_a_controller_work(self, work: Callable[[WorkerSet], None]) -> None:
        work(self.group)

    @rule(seconds=st.sampled_from((1, 1, 4, 30)))
    def schedule(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.report()
            self.world.pass_s()

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), is_at_once=st.booleans())
    def delete_a_pod(self, data: st.DataObject, *, is_at_once: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.pods)))
        self.group.delete(name)
        if is_at_once and name in self.world.pods:
            self.group.end(name)

    @precondition(lambda self: self.world.pods)
    @rule()
    def delete_a_leader(self) -> None:
        """It goes, and its successor is there before anything else happens."""
        names = [name for name in self.world.pods if name in ("vllm-0", "vllm-1")]
        for name in names[:1]:
            self.group.delete(name)
            if name in self.world.pods:
                self.group.end(name)
            self.group.make_leaders()

    @rule(number=st.sampled_from((0, 1)))
    def delete_a_group_at_once(self, number: int) -> None:
        name = f"vllm-{number}"
        pods = [n for n in self.world.pods if n == name or n.startswith(f"{name}-")]
        for pod in pods:
            self.group.delete(pod)
            if pod in self.world.pods:
                self.group.end(pod)

    @rule()
    def end_all_that_are_deleted(self) -> None:
        self.group.end()

    @rule()
    def let_a_rival_come_or_go(self) -> None:
        names = [name for name in self.world.pods if name.startswith("rival")]
        for name in names:
            self.world.remove(name)
        if not names:
            pods = [sim_pod(f"rival-{n}", job="rival", npus=8) for n in range(2)]
            self.world.add(*pods)

    # -- laws -----------------------------------------------------------------------

    def check_gate(self, let: set[str]) -> None:
        by_leader: dict[str, set[str]] = {}
        for name in let:
            leader = self.leader_of(name)
            if leader:
                by_leader.setdefault(leader, set()).add(name)
        for leader, names in by_leader.items():
            beside = {
                name
                for name in self.world.bound
                if self.leader_of(name) == leader and self.asks(name)
            } - {*self.group.ending}
            (number,) = {name.split("-")[1] for name in names}
            gang = self.world.cache.gangs[f"LeaderWorkerSet/default/vllm/{number}"]
            count = self.group.size if self.group.leader else self.group.size - 1
            assert beside or len(names) + len(gang.plan.followers) == count

    def leader_of(self, name: str) -> str:
        uid = self.world.pods[name]["metadata"]["uid"]
        return self.group.leader_of.get(uid, "")

    def asks(self, name: str) -> bool:
        return self.world.pods[name]["metadata"]["uid"] in self.world.cache.pods

    @invariant()
    def no_node_is_given_twice(self) -> None:
        nodes = [node for name, node in self.world.bound.items() if self.asks(name)]
        assert len(nodes) == len({*nodes})

    def teardown(self) -> None:
        """All groups run once nothing changes any more."""
        for name in [name for name in self.world.pods if name.startswith("rival")]:
            self.world.remove(name)
        for _ in range(QUIET_S):
            self.group.collect_sets()
            self.group.collect_workers()
            self.group.end()
            self.group.reconcile()
            if len(self.world.bound) == self.group.groups * self.group.size:
                break
            self.schedule(1)
        assert len(self.world.bound) == self.group.groups * self.group.size
        self.world.close()


@examples(10, pytest.param(30, marks=pytest.mark.long), variable="GANG_EXAMPLES")
def test_each_group_is_bound_in_the_end(examples: int) -> None:
    run_state_machine_as_test(
        Groups,
        settings=settings(
            print_blob=False,
            max_examples=examples,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )
