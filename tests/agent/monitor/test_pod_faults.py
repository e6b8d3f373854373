"""Pods are told of the faults of their chips, each once, and of their end."""

import itertools
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from agent.health.conditions import ChipHealth, Condition, Health
from agent.monitor.pod_faults import PodFaults
from sandbox.world import World as Sandbox
from sandbox.world import running as world_of
from tests.agent.announcing import Announced
from tests.agent.node import TRAIN, NodeLedger, confirmed, current, pod, running
from tests.agent.site import NODE
from tests.support.objects import PODS
from tests.support.objects import pod as pod_object
from tests.support.until import until

HEALTHY, OUT = Condition.HEALTHY, Condition.UNHEALTHY
NETWORK, RECOVERING = Condition.NETWORK_UNHEALTHY, Condition.RECOVERING
WHY = "RestartBusiness 80E01801"
REASONS = {
    OUT: "NpuUnhealthy",
    NETWORK: "NpuNetworkUnhealthy",
    HEALTHY: "NpuRecovered",
}


class World(Announced):
    """A ledger, the conditions of its chips, and the pods that are told."""

    def __init__(self, store: NodeLedger) -> None:
        super().__init__()
        self.store = store
        self.health = Health()
        self.pod_faults = PodFaults(
            store, last_health=lambda: self.health, announcer=self.announcer
        )

    def become(self, *conditions: Condition) -> list[tuple[str, str, str]]:
        """What is told when the chips are in these conditions, the first one's first.

        Returns:
            (pod, reason, message) of each event.
        """
        self.health = Health(
            chips={
                chip: ChipHealth(
                    condition=condition, reason="" if condition is HEALTHY else WHY
                )
                for chip, condition in enumerate(conditions)
            }
        )
        return self.tell()

    def tell(self) -> list[tuple[str, str, str]]:
        self._recorder._pending.clear()
        self.pod_faults.tell()
        return [
            (fact.regarding.name, fact.reason, fact.message)
            for fact in self._recorder._pending
        ]


def expected(conditions: Sequence[Condition]) -> list[str]:
    """The reasons that a pod is told when a chip of it goes through these conditions.

    It comes to the pod as a healthy one; on its way back it is as it was.
    """
    states = [HEALTHY, *(each for each in conditions if each is not RECOVERING)]
    return [
        REASONS[after]
        for before, after in itertools.pairwise(states)
        if before != after
    ]


@pytest.mark.parametrize("first", Condition)
def test_each_way_of_a_chip_is_told_once(first: Condition) -> None:
    for rest in itertools.product(Condition, repeat=4):
        conditions = (first, *rest)
        world = World(confirmed())

        told = [reason for each in conditions for _, reason, _ in world.become(each)]

        assert told == expected(conditions), conditions


def test_the_pod_hears_chip_code_level_and_what_to_do() -> None:
    world = World(confirmed())

    [broken] = world.become(OUT)
    [linked] = world.become(NETWORK)
    [back] = world.become(HEALTHY)

    end = "delete the pod, and the one that replaces it gets other chips"
    first = (
        f"chip 0 of this pod is out of service: {WHY}. "
        f"The pod keeps the chip until it ends, also when its containers restart; {end}"
    )
    second = (
        f"the network of chip 0 of this pod is faulty: {WHY}. "
        f"The pod keeps the chip until it ends; if its job stands still, {end}"
    )
    assert broken == ("train", "NpuUnhealthy", first)
    assert linked == ("train", "NpuNetworkUnhealthy", second)
    assert back == ("train", "NpuRecovered", "chip 0 of this pod is healthy again")


def test_each_pod_hears_of_its_own_chips_alone() -> None:
    world = World(running(pod("one", [0, 1]), pod("two", [2], 2)))

    told = world.become(HEALTHY, OUT, NETWORK, OUT)

    assert [(name, reason) for name, reason, _ in told] == [
        ("one", "NpuUnhealthy"),
        ("two", "NpuNetworkUnhealthy"),
    ]


def test_a_pod_found_to_have_a_broken_chip_is_told_then() -> None:
    store = current(TRAIN)
    store.mounts(0)
    world = World(store)
    before = world.become(OUT)  # whose the chip is nobody knows yet

    store.shows("train", main=(0,))

    assert (before, [reason for _, reason, _ in world.tell()]) == ([], ["NpuUnhealthy"])
    assert world.tell() == []


@pytest.mark.parametrize("end", ["Failed", "Succeeded", "deleted"])
def test_an_ended_pod_hears_nothing_and_the_next_one_everything(end: str) -> None:
    store = confirmed()
    world = World(store)
    world.become(OUT)
    if end == "deleted":
        store.delete("train")
    else:
        store.becomes("train", end)

    assert world.become(HEALTHY) == []
    assert world.become(OUT) == []


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    with tempfile.TemporaryDirectory(prefix="pf-") as root:  # tmp_path is too long
        async with world_of([NODE], below=Path(root)) as world:
            yield world


@pytest.mark.timeout(120)
async def test_the_programs_tell_a_running_pod_and_name_it_to_the_node(
    sandbox: Sandbox,
) -> None:
    node = sandbox.nodes[NODE]
    await sandbox.api.create(PODS, pod_object("train", 2))
    await until(lambda: chips_of(sandbox, "train"))

    node.set_faults([0])
    await until(lambda: told(sandbox, "NpuUnhealthy"), lambda found: len(found) == 2)
    node.set_faults(())
    recovered = await until(lambda: told(sandbox, "NpuRecovered"))

    assert recovered == {"Pod": "chip 0 of this pod is healthy again"}
    broken = await told(sandbox, "NpuUnhealthy")
    assert broken["Node"] == (
        "chip 0 is out of service: SeparateNPU 80818C00; pod default/train has it"
    )
    assert "SeparateNPU 80818C00. The pod keeps the chip" in broken["Pod"]


async def chips_of(world: Sandbox, name: str) -> str:
    """The chips of a pod, once the agent knows that it has them."""
    found = await world.api.get(f"{PODS}/{name}")
    return str(
        found["metadata"].get("annotations", {}).get("huawei.com/AscendReal", "")
    )


async def told(world: Sandbox, reason: str) -> dict[str, str]:
    """{kind of the object: message} of the events of this reason."""
    events = await world.api.items("/api/v1/namespaces/default/events")
    return {
        each["involvedObject"]["kind"]: each["message"]
        for each in events
        if each["reason"] == reason
    }
