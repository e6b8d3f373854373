"""Pods that have our chips through another device plugin: who counts, and what follows.

The kubelet's pod-resources is a fake, spoken to over gRPC.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.claims.events import ForeignRead
from agent.devices.poller import Observation
from agent.devices.simulated import file
from agent.monitor.chips import ChipMonitor
from agent.plugin import foreign
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.foreign import Foreign, ForeignPods
from agent.plugin.pod_resources import PodResourcesClient
from agent.pods.reconciler import ResourcesError
from kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from tests.agent.announcing import Announced
from tests.agent.node import NodeLedger, current, pod
from tests.agent.plugin.conftest import grpc_server
from tests.agent.plugin.test_pod_resources import FakePodResources
from tests.support.tasks import in_background
from tests.support.until import until

#: Two lines, and a chip that is cut: the parts are a resource of ours.
MACHINE = """
product: atlas-800-training
virtual: [{chip: 7, number: 100, kind: 2c}]
beside: [{product: atlas-310p, chips: [8, 9]}]
"""
EVERY = tuple(range(10))
NONE: tuple[int, ...] = ()
NO_IDS: tuple[str, ...] = ()
CLOUD = "huawei.com/Ascend910B4"
UUID = "2F9A13D0-80A02130-5C1B3A4E-1D0C8A6F-05103003-0"


class Kubelet(FakePodResources):
    """What other plugins offer, and which pods have what of it."""

    def __init__(self) -> None:
        super().__init__()
        self.pods.clear()
        self.offers: list[tuple[str, str]] = []

    def run(self, name: str, *devices: tuple[str, str]) -> None:
        """Have a pod run with these: (resource, id)."""
        container = api_pb2.ContainerResources(name="main", devices=_messages(devices))
        self.pods[name] = api_pb2.PodResources(
            name=name, namespace="other", containers=[container]
        )

    async def GetAllocatableResources(
        self, request: api_pb2.AllocatableResourcesRequest, context: object
    ) -> api_pb2.AllocatableResourcesResponse:
        return api_pb2.AllocatableResourcesResponse(devices=_messages(self.offers))


def _messages(
    devices: "list[tuple[str, str]] | tuple[tuple[str, str], ...]",
) -> list[api_pb2.ContainerDevices]:
    return [
        api_pb2.ContainerDevices(resource_name=resource, device_ids=[name])
        for resource, name in devices
    ]


@dataclass
class World(Announced):
    """A node with two lines that asks a kubelet."""

    kubelet: Kubelet
    folder: Path
    stores: list[NodeLedger] = field(default_factory=list)
    monitors: list[ChipMonitor] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.foreign = ForeignPods(self.problems)
        for reading in file.parse(MACHINE).lines:
            store = NodeLedger(reading.product)
            monitor = ChipMonitor(
                store,
                reading=reading,
                recover_s=1.0,
                announcer=self.announcer,
                wall_ms=int,
            )
            monitor.judge_again()
            self.foreign.add_line(store, monitor)
            self.stores.append(store)
            self.monitors.append(monitor)
        self.resources = PodResourcesClient(
            self.folder / "r.sock",
            resource="huawei.com/Ascend910",
            activity=AllocateActivity(float),
            foreign=self.foreign,
            list_call_s=10.0,
        )

    async def look(self) -> tuple[int, ...]:
        """Ask once for both; return the chips that are given to nobody for it."""
        await self.resources.allocatable_ids()
        await self.resources.forget_ended_pods()
        return self.withheld

    @property
    def withheld(self) -> tuple[int, ...]:
        return tuple(c for store in self.stores for c in store.affinity.releasing)

    @property
    def who(self) -> Mapping[int, str]:
        return {c: who for s in self.stores for c, who in s.ledger.foreign.items()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    kubelet = Kubelet()
    add = api_pb2_grpc.add_PodResourcesListerServicer_to_server
    async with grpc_server(add, kubelet, tmp_path / "r.sock"):
        made = World(kubelet, tmp_path)
        yield made
        await made.resources.close()


#: (resource, ids of a pod, chips that are withheld for it)
INPUTS = [
    (CLOUD, "Ascend910B4-3", (3,)),
    (CLOUD, "Ascend910-0 Ascend910-5", (0, 5)),
    (CLOUD, "3", (3,)),
    (CLOUD, UUID, EVERY),
    (CLOUD, f"Ascend910B4-3 {UUID}", EVERY),
    # the name of a product is no number of a chip
    (CLOUD, "Ascend910B4", EVERY),
    # no such chip is known, and who numbers so is not known either
    (CLOUD, "Ascend910B4-12", EVERY),
    (CLOUD, "Ascend910-12", EVERY),
    (CLOUD, "99999999999999999999", EVERY),
    # card and chip of it, or part of a shared chip
    (CLOUD, "3-1", EVERY),
    ("huawei.com/Ascend310P-V", "Ascend310P-9-4", (9,)),
    # MindCluster's, where cards of several models are mixed
    ("huawei.com/Ascend310P-V", "Ascend310P-V-9", (9,)),
    ("huawei.com/Ascend310P-VPro", "Ascend310P-VPro-9", (9,)),
    ("huawei.com/Ascend310P-IPro", "Ascend310P-IPro-9", (9,)),
    ("huawei.com/Ascend910-4c", "Ascend910-4c-100-3", (3,)),
    ("huawei.com/Ascend910-4c", "Ascend910-4c-100-3_1", (3,)),
    ("huawei.com/Ascend910-4c.3cpu", "Ascend910-4c.3cpu-100-0", (0,)),
    ("huawei.com/npu", "npu-8", (8,)),
    ("huawei.com/npu", "davinci2", (2,)),
    ("huawei.com/npu", "/dev/davinci2", (2,)),
    # cores, of any chip
    ("huawei.com/npu-core", "npu-core-3", EVERY),
    ("huawei.com/ascend-1980", "1", (1,)),
    ("huawei.com/910B4", "1", (1,)),
    # the name of a resource says nothing, and its ids do
    ("huawei.com/card", "Ascend910-1", (1,)),
    ("example.com/ascend", "1", (1,)),
    ("rdma.example.net/ascend", "1", (1,)),
    # our own: whole chips of both lines, and parts
    ("huawei.com/Ascend910", "Ascend910-3", NONE),
    ("huawei.com/Ascend310P", "Ascend310P-8", NONE),
    ("huawei.com/Ascend910-2c", "Ascend910-2c-100-7", NONE),
    # cards of a third line, which somebody else serves
    ("huawei.com/Ascend310", "Ascend310-16", NONE),
    ("huawei.com/Ascend310-1c", "Ascend310-1c-100-17", NONE),
    # no NPUs
    ("huawei.com/roce", "3", NONE),
    ("huawei.com/rdma", "npu-3", NONE),
    ("huawei.com/ascend-roce", "3", NONE),
    ("huawei.com/hccn", "hccn3", NONE),
    ("openshift.io/ascend_nic_0", "0000:3b:00.2", NONE),
    ("huawei.com/npu_net", "eth1", NONE),
    ("huawei.com/ascend-hca", "mlx5_0", NONE),
    ("huawei.com/ub_rdma", "0", NONE),
    # the driver's own device, which people who watch chips are given
    ("smarter-devices/davinci_manager", "davinci_manager3", NONE),
    ("squat.ai/davinci-manager", "3", NONE),
    ("huawei.com/input", "3", NONE),
    ("example.com/npu", "npu-3", NONE),
    ("example.com/gpu", "3", NONE),
]
each_input = pytest.mark.parametrize(("resource", "ids", "chips"), INPUTS)


@each_input
async def test_chips_of_a_pod_of_another_plugin_are_withheld(
    world: World, resource: str, ids: str, chips: tuple[int, ...]
) -> None:
    world.kubelet.run("theirs", *((resource, name) for name in ids.split()))

    assert await world.look() == chips
    told = [text for reason, text in world.events if reason == "NpuRival"]
    assert [resource in text for text in told] == [True] * bool(chips)
    assert bool(world.problems.why_not_ready()) is bool(chips)


@each_input
async def test_another_plugin_is_told_before_a_pod_has_chips_of_it(
    world: World, resource: str, ids: str, chips: tuple[int, ...]
) -> None:
    world.kubelet.offers = [(resource, name) for name in ids.split()]

    assert await world.look() == NONE
    told = [text for reason, text in world.events if reason == "NpuRival"]
    assert [resource in text for text in told] == [True] * bool(chips)
    assert bool(world.problems.why_not_ready()) is bool(chips)


async def test_a_resource_of_ours_stays_ours_when_its_devices_have_gone(
    world: World,
) -> None:
    """Its pod may be there for as long as it likes."""
    world.kubelet.run("ours", ("huawei.com/Ascend910-2c", "Ascend910-2c-100-7"))
    uncut = file.parse(MACHINE.replace("virtual:", "#"))
    world.monitors[0].observe(Observation(reading=uncut, took_s=0.1))

    assert await world.look() == NONE
    assert world.problems.why_not_ready() is None


async def test_what_is_told_of_another_plugin_ends_with_it(world: World) -> None:
    world.kubelet.offers = [(CLOUD, f"Ascend910B4-{chip}") for chip in range(8)]

    assert await world.look() == NONE
    assert world.problems.why_not_ready() == (
        "another device plugin gives out chips of this node as "
        "huawei.com/Ascend910B4: what its pods have is not given out; waiting until "
        "it has gone"
    )
    assert world.metric("rival", kind="device-plugin") == 1.0
    world.kubelet.offers.clear()
    await world.look()
    assert world.problems.why_not_ready() is None
    assert world.metric("rival", kind="device-plugin") == 0.0
    assert [reason for reason, _ in world.events] == ["NpuRival", "NpuRivalGone"]


async def test_ids_that_tell_no_chip_are_said(world: World) -> None:
    world.kubelet.run("theirs", (CLOUD, UUID))

    await world.look()

    assert f"ids like {UUID} do not tell which: while a pod has one, no chip" in (
        world.problems.why_not_ready() or ""
    )
    assert world.who == dict.fromkeys(EVERY, f"perhaps other/theirs ({CLOUD})")


async def test_pods_of_several_resources_are_all_named(world: World) -> None:
    world.kubelet.run("one", (CLOUD, "Ascend910B4-3"), ("huawei.com/npu", "8"))
    world.kubelet.run("two", (CLOUD, "Ascend910B4-3"))

    assert await world.look() == (3, 8)
    assert world.who == {
        3: f"other/one ({CLOUD}), other/two ({CLOUD})",
        8: "other/one (huawei.com/npu)",
    }
    assert [text.split(" as ")[1] for _, text in world.events] == [
        f"{CLOUD}: what its pods have is not given out",
        "huawei.com/npu: what its pods have is not given out",
    ]


async def test_without_an_answer_all_stays(world: World) -> None:
    world.kubelet.run("theirs", (CLOUD, "Ascend910B4-3"))
    await world.look()
    world.kubelet.is_ending = True

    with pytest.raises(ResourcesError):
        await world.look()

    assert world.withheld == (3,)
    assert world.problems.why_not_ready()


async def test_chips_are_free_some_time_after_their_pod_has_gone(
    world: World,
) -> None:
    world.kubelet.run("theirs", (CLOUD, "Ascend910B4-3"))
    async with in_background(world.foreign.run(world.resources.forget_ended_pods)):
        await until(lambda: world.withheld == (3,), within_s=10.0)
        world.kubelet.pods.clear()
        await until(lambda: not world.withheld, within_s=30.0)
        asked = len(world.kubelet.calls)

    assert asked >= foreign.GONE_S / foreign.LIST_EACH_S
    assert world.problems.why_not_ready() is None


@pytest.mark.parametrize("is_listed", [False, True])
async def test_pods_are_listed_once_where_there_is_no_other_plugin(
    world: World, *, is_listed: bool
) -> None:
    """An agent that begins has listed them itself, before it serves."""
    if is_listed:
        await world.resources.forget_ended_pods()
    async with in_background(world.foreign.run(world.resources.forget_ended_pods)):
        await until(lambda: bool(world.kubelet.calls), within_s=10.0)
        await asyncio.sleep(1.5 * foreign.LIST_EACH_S)
        world.kubelet.run("theirs", (CLOUD, "Ascend910B4-3"))
        world.kubelet.offers = [(CLOUD, "Ascend910B4-3")]
        before = list(world.kubelet.calls), world.withheld
        await world.resources.allocatable_ids()
        await until(lambda: world.withheld == (3,), within_s=10.0)

    assert before == (["List"], ())


async def test_until_the_first_answer_pods_are_asked_for_again(world: World) -> None:
    world.kubelet.is_ending = True
    world.kubelet.run("theirs", (CLOUD, "Ascend910B4-3"))
    async with in_background(world.foreign.run(world.resources.forget_ended_pods)):
        await until(lambda: bool(world.kubelet.calls), within_s=10.0)
        world.kubelet.is_ending = False
        await until(lambda: world.withheld == (3,), within_s=10.0)


@pytest.mark.parametrize(
    ("seconds", "is_known"), [((0,), True), ((0, 2.9), True), ((0, 3), False)]
)
def test_a_pod_has_gone_when_lists_have_lacked_it_long_enough(
    seconds: tuple[float, ...], is_known: bool
) -> None:
    devices = {CLOUD: frozenset({"3"})}
    state = foreign.take_in_list(Foreign(), {"other/theirs": devices}, 100.0)

    for second in seconds:
        # long after the last answer that has shown it
        state = foreign.take_in_list(state, {}, 500.0 + second)

    assert bool(state.pods) is is_known


def test_a_pod_that_is_shown_again_has_not_gone() -> None:
    shown = {"other/theirs": {CLOUD: frozenset({"3"})}}
    state = Foreign()
    for second, pods in enumerate([shown, {}, {}, shown, {}]):
        state = foreign.take_in_list(state, pods, 2.0 * second)

    assert state.pods == shown
    assert state.missed_s == {"other/theirs": 8.0}


# what a ledger makes of it


def foreign_event(*chips: int) -> ForeignRead:
    return ForeignRead(dict.fromkeys(chips, f"other/theirs ({CLOUD})"))


def test_a_claim_on_a_foreign_chip_gets_other_chips_or_is_refused() -> None:
    now = current(pod("ours", [0, 1]))
    now.apply(foreign_event(0))
    elsewhere = now.mounts(0, 1)
    full = current(pod("ours", [0, 1]))
    full.apply(foreign_event(*range(7)))

    assert elsewhere == (4, 5)
    assert "Ascend910-0,Ascend910-1 used through another device plugin" in (
        full.refusal(0, 1)
    )


def test_a_foreign_chip_is_in_use_and_not_broken() -> None:
    now = current()
    now.apply(foreign_event(3))

    assert now.ledger.unhealthy == 0
    assert now.affinity.releasing == (3,)
    assert now.unhealthy_ids() == ("Ascend910-3",)
    now.apply(foreign_event())
    assert now.unhealthy_ids() == NO_IDS


def test_a_pod_whose_chips_another_one_got_is_told_once_and_keeps_them() -> None:
    now = current(pod("ours", [0, 1]))
    now.mounts(0, 1)
    now.shows("ours", main=(0, 1))
    for chips in ((0, 3), (0, 3), (0,)):
        now.apply(foreign_event(*chips))

    before = now.affinity
    (note,) = [each for each in now.notes() if each.reason == "NpuShared"]
    assert note.text == (
        "Ascend910-0 of this pod may be used by others too, through another device "
        f"plugin: other/theirs ({CLOUD})"
    )
    # and afterwards the chip is the other one's
    now.delete("ours")
    now.knows_not("ours")
    now.looks_again()
    now.passes()
    after = now.affinity
    assert (before.held, before.releasing) == ((0, 1), NONE)
    assert (after.held, after.releasing) == (NONE, (0,))


def test_a_foreign_chip_comes_back_when_no_process_is_left() -> None:
    now = current()
    now.apply(foreign_event(3))
    now.read_chips(busy=1 << 3)
    now.apply(foreign_event())
    left = now.affinity.releasing
    now.read_chips(busy=0)

    assert (left, now.affinity.releasing) == ((3,), ())
