"""A part of a chip is given out, unless another plugin's pod has the chip."""

from pathlib import Path

import pytest

from agent.claims.events import ForeignRead
from agent.devices.simulated import file
from agent.monitor.chips import ChipMonitor
from agent.plugin import vnpu
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.mounts import MountMethod, Mounts
from agent.plugin.vnpu import VirtualServicer
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from service.clock import loop_s
from tests.agent.announcing import Announced
from tests.agent.node import current

READING = file.parse(
    "product: atlas-800-training\nvirtual:\n  - {chip: 7, number: 100, kind: 4c.3cpu}\n"
)


class WatchingMounts(Mounts):
    """Notes, while an Allocate runs, whether all pods may be listed."""

    def __init__(self, activity: AllocateActivity) -> None:
        super().__init__(
            MountMethod.RUNTIME, last_reading=lambda: READING, cdi_dir=Path()
        )
        self._activity = activity
        self.was_quiet: list[bool] = []

    def problem(self) -> str | None:
        self.was_quiet.append(self._activity.is_quiet)
        return super().problem()


class Call:
    """The context of one RPC; the text with which it was refused."""

    async def abort(self, _code: object, text: str) -> None:
        raise PermissionError(text)


class World(Announced):
    """A node with one part, and its plugin."""

    def __init__(self) -> None:
        super().__init__()
        self.activity, self.store = AllocateActivity(loop_s), current()
        self.mounts = WatchingMounts(self.activity)
        (row,) = vnpu.rows_of(READING)
        monitor = ChipMonitor(
            self.store,
            reading=READING,
            recover_s=0.0,
            announcer=self.announcer,
            wall_ms=lambda: 0,
        )
        monitor.judge_again()
        self.servicer = VirtualServicer(
            self.store,
            row,
            activity=self.activity,
            monitor=monitor,
            mounts=self.mounts,
        )

    async def allocate(self) -> None:
        (device,) = READING.virtual
        name = vnpu.name_of(device, READING.product)
        asked = api_pb2.ContainerAllocateRequest(devices_ids=[name])
        await self.servicer.Allocate(
            api_pb2.AllocateRequest(container_requests=[asked]),
            Call(),  # type: ignore[arg-type]  # nothing else of it is used
        )


async def test_while_a_part_is_given_out_no_reading_is_quiet() -> None:
    world = World()
    mark = world.activity.mark()

    await world.allocate()

    assert world.mounts.was_quiet == [False]
    assert not world.activity.was_quiet_since(mark)
    assert world.activity.is_quiet


async def test_a_part_of_a_chip_that_another_plugins_pod_has_is_not_given_out() -> None:
    world = World()
    world.store.apply(ForeignRead({7: "default/theirs (huawei.com/Ascend910B4)"}))

    with pytest.raises(PermissionError) as refused:
        await world.allocate()

    assert str(refused.value) == (
        "Ascend910-4c.3cpu-100-7 is a part of chip 7, which is used by "
        "default/theirs (huawei.com/Ascend910B4)"
    )
    world.store.apply(ForeignRead({6: "default/theirs (huawei.com/Ascend910B4)"}))
    await world.allocate()
