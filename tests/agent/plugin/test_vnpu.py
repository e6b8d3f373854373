"""A part of a chip is given out: other product lines hear that an Allocate runs."""

from pathlib import Path

from agent.devices.simulated import file
from agent.monitor.chips import ChipMonitor, Clocks
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
    """The context of one RPC, which is not used."""


async def test_while_a_part_is_given_out_no_reading_is_quiet() -> None:
    activity, announced = AllocateActivity(loop_s), Announced()
    mounts, store = WatchingMounts(activity), current()
    (row,) = vnpu.rows_of(READING)
    monitor = ChipMonitor(
        store,
        reading=READING,
        recover_s=0.0,
        announcer=announced.announcer,
        clocks=Clocks(loop_s=loop_s, wall_ms=lambda: 0),
    )
    monitor.judge_again()
    servicer = VirtualServicer(
        store,
        row,
        activity=activity,
        monitor=monitor,
        mounts=mounts,
    )
    (device,) = READING.virtual
    name = vnpu.name_of(device, READING.product)
    asked = api_pb2.ContainerAllocateRequest(devices_ids=[name])
    mark = activity.mark()

    await servicer.Allocate(
        api_pb2.AllocateRequest(container_requests=[asked]),
        Call(),  # type: ignore[arg-type]  # it is not used
    )

    assert mounts.was_quiet == [False]
    assert not activity.was_quiet_since(mark)
    assert activity.is_quiet
