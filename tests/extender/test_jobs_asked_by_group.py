"""Jobs in PodGroups of Kubernetes, whose scheduler asks group by group.

It counts each pod that is let through on its node, stops at the first that is refused
while the group needs all, and sends binds only once enough were let through.

Source:
    kubernetes v1.37.2 `podGroupSchedulingDefaultAlgorithm`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from extender.gang.events import Caller
from sandbox.apiclient import Object
from tests.extender import scheduler_rules as rules
from tests.extender.gangworld import GangWorld, sim_node, sim_pod

KEY = "Job of pods/default/j"


class GroupWorld(GangWorld):
    """A scheduler that takes the pods of a group together."""

    def pass_group_s(self) -> None:
        """One cycle for the waiting pods, in their order; then a second passes."""
        for name, node in self._ask_all().items():
            uid = self.pods[name]["metadata"]["uid"]
            caller = Caller(uid=uid, node=node, is_there=lambda: True)
            self.assumed[name] = node
            self.calls[name] = self.loop.create_task(self.world.permits.wait(caller))
        self._settle()
        self.world.pass_s(1)
        self._settle()

    def _ask_all(self) -> Mapping[str, str]:
        """{name: node} of all waiting pods; empty if one of them has none."""
        places: dict[str, str] = {}
        for name in self.waiting:
            pod = self.pods[name]
            counted = {each: (self.pods[each], places[each]) for each in places}
            names = rules.offered(pod, self.nodes, {**self.placed, **counted})
            wanting = self.cache.pods[pod["metadata"]["uid"]]
            result = self.world.planner.filter_nodes(wanting, names) if names else None
            if result is None or not result.fitting:
                return {}
            places[name] = result.fitting[0]
        return places

    def run_group(self, seconds: int) -> int | None:
        """Let time pass until all are bound; return how long it took, None if not."""
        for passed in range(seconds):
            if not self.waiting:
                return passed
            self.pass_group_s()
        return None


@pytest.fixture
def world() -> Iterator[GroupWorld]:
    nodes = [sim_node("n1", pool="a"), sim_node("n2", pool="b"), sim_node("n3")]
    found = GroupWorld(nodes)
    yield found
    found.close()


def of_group(name: str, size: int, **spec: Any) -> Object:
    group = {"podGroupName": "g"}
    return sim_pod(name, size=size, npus=8, schedulingGroup=group, **spec)


def of_pool(pool: str, size: int = 2) -> Object:
    return of_group(pool, size, nodeSelector={"pool": pool})


@pytest.mark.parametrize("pools", ["ab", "ba"])
def test_a_group_of_two_pools_is_bound_although_one_refusal_ends_a_cycle(
    world: GroupWorld, pools: str
) -> None:
    world.add(*map(of_pool, pools))

    assert world.run_group(9) is not None

    assert world.bound == {"a": "n1", "b": "n2"}


def test_a_kind_that_may_go_anywhere_leaves_the_other_its_node(
    world: GroupWorld,
) -> None:
    world.add(of_group("any", 3), of_pool("a", 3), of_pool("b", 3))

    assert world.run_group(60) is not None

    assert world.bound == {"any": "n3", "a": "n1", "b": "n2"}


def test_a_pod_without_a_node_keeps_its_group_from_holding_chips(
    world: GroupWorld,
) -> None:
    world.add(of_pool("a"), of_pool("c"))

    assert world.run_group(300) is None

    assert world.bound == {}
    assert world.held_s(KEY) == 0


def test_pods_of_a_group_under_a_scheduler_that_takes_them_one_by_one(
    world: GroupWorld,
) -> None:
    world.add(*map(of_pool, "ab"))

    assert world.run(9, "a", "b") is not None

    assert world.bound == {"a": "n1", "b": "n2"}
