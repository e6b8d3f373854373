"""Faults over time, the ConfigMap's separated chips, and what comes of both."""

from dataclasses import replace

import pytest

from agent.devices.poller import Observation
from agent.devices.reading import ChipFault, Level, Process, Reading, Unread
from agent.devices.simulated import file
from agent.health import fault_config
from agent.health.findings import Findings, SeparatedNames
from agent.health.rules import DEFAULT
from agent.monitor.chips import ChipMonitor
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire.faults import UpgradeReason
from tests.agent.announcing import Announced
from tests.agent.node import TRAIN, current, ids, pod
from tests.agent.two_lines import reading_of_node

GOOD = file.parse("product: atlas-800-training\n")
HBM = "80E01801"


class World(Announced):
    """A monitor of chips at work, at times that the test gives."""

    def __init__(self, *, is_second: bool) -> None:
        super().__init__()
        self._is_second = is_second
        self.now = 1000.0
        self.store = current()
        self.chip_monitor = ChipMonitor(
            self.store,
            reading=GOOD,
            recover_s=1.0,
            announcer=self.announcer,
            wall_ms=lambda: int(self.now * 1000),
        )

    def see(self, reading: Reading) -> bool:
        self.now += 10.0
        return self._observe(reading, read_at=self.now)

    def look(self, reading: Reading, *, read_at: float, took_s: float) -> bool:
        """Take in a reading that ended at `read_at`, after so many seconds."""
        reading = replace(reading, looked_s=read_at - took_s)
        return self._observe(reading, read_at=read_at, took_s=took_s)

    def _observe(
        self, reading: Reading, *, read_at: float, took_s: float | None = None
    ) -> bool:
        reading = replace(reading, read_s=read_at, read_ms=int(read_at * 1000))
        reading = reading_of_node(reading, is_second=self._is_second)
        seen = Observation(reading=reading, took_s=took_s)
        return self.chip_monitor.observe(seen)

    def hbm(self, *chips: int) -> bool:
        """Look, and find this code on these chips."""
        faults = tuple(ChipFault(chip=chip, code=HBM) for chip in chips)
        return self.see(replace(GOOD, faults=faults))

    def report(self, separated: str, reasons: str = "{}") -> None:
        self.chip_monitor.apply_configmap(
            {"ManuallySeparateNPU": separated, "UpgradeFaultReason": reasons}
        )

    @property
    def out(self) -> tuple[int, ...]:
        """The chips that the kubelet is told not to give out."""
        return chip_sets.ids_of(self.store.ledger.unhealthy)

    @property
    def reasons(self) -> list[str]:
        """Of what people were told, apart from the conditions of chips."""
        conditions = {"NpuUnhealthy", "NpuHealthy"}
        return [reason for reason, _ in self.events if reason not in conditions]


@pytest.fixture
def world(*, is_second: bool) -> World:
    return World(is_second=is_second)


def test_the_next_look_is_wanted_soon_while_something_may_come_of_time(
    world: World,
) -> None:
    unruled = (ChipFault(chip=1, code="80E18402", level=Level.SEPARATE),)
    broken = replace(GOOD, faults=unruled)

    assert [world.see(GOOD), world.see(broken)] == [False, False]
    assert [world.see(GOOD), world.see(GOOD)] == [True, False]
    # a code that is counted, and the driver cannot be read
    assert [world.hbm(3), world.see(GOOD), world.see(GOOD)] == [True, True, True]
    assert world.chip_monitor.observe(
        Observation(reading=GOOD, problem="away", is_stale=True)
    )


def test_a_chip_goes_out_with_its_name_and_comes_back_without(world: World) -> None:
    world.report("")
    world.report("Ascend910-3")
    assert (world.out, world.reasons) == ((3,), ["NpuSeparated"])

    world.report("")
    world.see(GOOD)
    world.see(GOOD)

    assert (world.out, world.reasons) == ((), ["NpuSeparated", "NpuReleased"])


def test_the_names_that_stood_there_at_the_start_are_no_news(world: World) -> None:
    world.report("Ascend910-3")

    assert (world.out, world.reasons) == ((3,), [])


def test_a_code_that_returns_is_named_and_a_person_lets_the_chip_back(
    world: World,
) -> None:
    world.report("")
    for chips in ((3,), (), (3,), ()):
        world.hbm(*chips)

    assert (world.out, world.reasons) == ((3,), ["NpuSeparated"])
    assert world.chip_monitor.findings == Findings(
        separated=SeparatedNames(text="Ascend910-3", read=""),
        upgrades=(
            UpgradeReason(
                chip=3,
                code=HBM,
                level="ManuallySeparateNPU",
                type="FaultFrequency",
                time_ms=1_030_000,
            ),
        ),
    )

    world.report("Ascend910-3")
    world.report("")
    world.hbm()
    world.hbm()
    assert (world.out, world.chip_monitor.findings) == ((), Findings())


def test_a_name_that_is_no_chip_changes_nothing_and_is_told(world: World) -> None:
    world.report("Ascend910-3")

    world.report("Ascend910-4,Ascend910-O")

    assert (world.out, world.reasons) == ((3,), ["NpuSeparationUnreadable"])
    # as it was read last, so that nothing is written over the mistake
    assert world.chip_monitor.findings.separated == SeparatedNames(
        text="Ascend910-3", read="Ascend910-3"
    )
    assert world.chip_monitor.findings.separated.read == "Ascend910-3"


def test_without_a_configmap_nobody_is_released(world: World) -> None:
    world.report("Ascend910-3, Ascend910-1")

    world.chip_monitor.apply_configmap(None)

    assert world.out == (1, 3)
    assert world.chip_monitor.findings.separated.text == "Ascend910-1,Ascend910-3"


def test_a_list_that_is_right_stays_as_it_was_written(world: World) -> None:
    world.report("Ascend910-3, Ascend910-1")

    assert world.chip_monitor.findings.separated.text == "Ascend910-3, Ascend910-1"


BEFORE = (
    '{"Ascend910-3":[{"upgrade_time":5,"fault_code":"80E01801",'
    '"fault_level":"ManuallySeparateNPU","upgrade_type":"FaultFrequency"}],'
    '"Ascend910-5":[{"upgrade_time":6,"fault_code":"",'
    '"fault_level":"ManuallySeparateNPU","upgrade_type":"FaultAutofill"}]}'
)


def test_reasons_outlive_a_restart(world: World) -> None:
    world.report("Ascend910-3,Ascend910-5", BEFORE)

    manual = "ManuallySeparateNPU"
    assert world.chip_monitor.findings.upgrades == (
        UpgradeReason(chip=3, code=HBM, level=manual, type="FaultFrequency", time_ms=5),
        UpgradeReason(chip=5, code="", level=manual, type="FaultAutofill", time_ms=6),
    )


def test_who_was_released_while_no_agent_was_there_is_released(world: World) -> None:
    world.report("", BEFORE)

    assert (world.out, world.chip_monitor.findings) == ((), Findings())


def test_what_a_rule_separated_stays_so_if_the_names_cannot_be_read(
    world: World,
) -> None:
    world.report("Ascend910-O", BEFORE)

    assert world.out == (3,)


def test_chips_named_beside_one_of_a_line_that_has_gone_stay_out_over_a_restart(
    world: World,
) -> None:
    gone = BEFORE.replace("Ascend910-5", "Ascend310P-8")

    world.report("Ascend910-3,Ascend910-5,Ascend310P-8", gone)

    assert (world.out, world.reasons) == ((3, 5), ["NpuSeparationUnreadable"])
    assert [each.chip for each in world.chip_monitor.findings.upgrades] == [3, 5]

    world.report("Ascend910-3")
    world.see(GOOD)
    world.see(GOOD)

    assert world.out == (3,)


def test_reasons_that_nobody_writes_are_left_behind(world: World) -> None:
    world.report("Ascend910-3", "[]")

    assert world.out == (3,)


def test_another_configuration_counts_at_once(world: World) -> None:
    world.hbm(3)
    assert 3 in world.out

    mild = {"faultCode.json": '{"NotHandleFaultCodes": ["80E01801"]}'}
    world.chip_monitor.apply_fault_config(fault_config.parse(mild).config)
    world.hbm(3)
    world.hbm(3)

    assert world.out == ()


def test_a_reading_that_is_stale_changes_nothing(world: World) -> None:
    world.hbm(3)
    stale = Observation(reading=GOOD, problem="no answer", is_stale=True)

    world.chip_monitor.observe(stale)

    assert world.out == (3,)


def test_people_are_told_when_a_chip_goes_and_when_it_is_back(world: World) -> None:
    link = ChipFault(chip=1, code="81078603", level=Level.PRE_SEPARATE)
    world.see(replace(GOOD, faults=(link,)))
    world.hbm(3)
    world.hbm()
    world.hbm()

    assert world.events == [
        (
            "NpuNetworkUnhealthy",
            "the network of chip 1 is faulty: PreSeparateNPU 81078603",
        ),
        ("NpuUnhealthy", "chip 3 is out of service: RestartBusiness 80E01801"),
        ("NpuHealthy", "chip 1 is healthy again"),
        ("NpuHealthy", "chip 3 is healthy again"),
    ]


def ended(world: World, reading: Reading) -> None:
    """A pod that had chip 0 ends now, after the driver has shown this."""
    world.store.update(TRAIN)
    world.store.mounts_for("train", 0)
    world.see(reading)
    world.store.now_s = world.now
    world.store.delete("train")


def test_an_unchanged_reading_that_began_after_a_pods_end_is_told_as_well(
    world: World,
) -> None:
    busy = replace(GOOD, processes=(Process(chip=0, pid=4711),))
    ended(world, busy)

    during = world.store.unhealthy_ids()
    is_wanted_soon = world.look(busy, read_at=world.now + 0.5, took_s=2.0)
    before_its_end = world.store.unhealthy_ids()
    is_enough = not world.look(busy, read_at=world.now + 2.5, took_s=0.5)

    assert (during, before_its_end) == ((), ())
    assert (is_wanted_soon, is_enough) == (True, True)
    assert world.store.unhealthy_ids() == ids(0)


def test_a_chip_that_could_not_be_read_is_not_told_as_looked_at(world: World) -> None:
    ended(world, GOOD)
    unread = replace(GOOD, unread=(Unread(chip=0, reason="it hangs"),))

    world.look(unread, read_at=world.now + 5.0, took_s=0.1)
    during = dict(world.store.ledger.ended_s)
    world.look(GOOD, read_at=world.now + 7.0, took_s=0.1)

    assert set(during) == {0}
    assert world.store.ledger.ended_s == {}


def test_a_chip_that_has_vanished_is_not_told_as_looked_at_either(
    world: World,
) -> None:
    """Its processes may run on, and be on it when it is back."""
    mine = (Process(chip=0, pid=4711),)
    ended(world, replace(GOOD, processes=mine))
    vanished = replace(GOOD, chips=GOOD.chips[1:])

    world.look(vanished, read_at=world.now + 5.0, took_s=0.1)
    during = dict(world.store.ledger.ended_s)
    world.look(replace(GOOD, processes=mine), read_at=world.now + 7.0, took_s=0.1)

    assert set(during) == {0}
    assert world.store.unhealthy_ids() == ids(0)


@pytest.mark.parametrize("changed", ["names", "rules"])
def test_d26_what_changes_beside_the_chips_makes_no_reading_older(
    world: World, changed: str
) -> None:
    """While no chip can be read, no fault lasts longer and no chip recovers."""
    link = ChipFault(chip=1, code="81078603")
    world.see(replace(GOOD, faults=(link,)))
    world.hbm(3)
    world.see(replace(GOOD, faults=(link,)))
    before = (world.out, world.reasons)
    assert world.out == (3,)

    for _ in range(3):
        world.now += 30.0
        world.chip_monitor.observe(
            Observation(reading=GOOD, problem="away", is_stale=True)
        )
        if changed == "names":
            world.report("")
        else:
            world.chip_monitor.apply_fault_config(DEFAULT)

    assert (world.out, world.reasons) == before
    assert world.chip_monitor.findings.upgrades == ()


def test_d24_after_15_s_the_kernel_alone_tells_what_is_left_on_a_chip(
    world: World,
) -> None:
    """The driver tells a chip's faults, and for long not who works on it."""
    mine = (Process(chip=0, pid=4711),)
    silent = replace(
        GOOD,
        processes=mine,
        unread=(Unread(chip=0, reason="-8005", is_partial=True),),
    )
    ended(world, replace(GOOD, processes=mine))
    read_at = world.now

    def look(after_s: float) -> tuple[set[int], tuple[str, ...]]:
        world.now = read_at + after_s
        world.look(silent, read_at=world.now, took_s=0.1)
        return {*world.store.ledger.ended_s}, world.store.unhealthy_ids()

    assert look(5.0) == ({0}, ())  # waits for a look
    assert look(14.9) == ({0}, ())
    assert look(15.0) == (set(), ())  # and is free, whoever was there before

    world.store.update(pod("next", [0], predicate_time=2))
    assert world.store.mounts_for("next", 0) == (0,)  # a successor is served
    world.store.now_s = world.now
    world.store.delete("next")
    assert look(17.0) == (set(), ())

    left = replace(GOOD, processes=mine)
    world.look(left, read_at=world.now + 1.0, took_s=0.1)
    assert world.store.unhealthy_ids() == ids(0)  # the driver tells again


def test_a_chip_named_while_no_agent_ran_is_separated_since_the_start(
    world: World,
) -> None:
    world.report("Ascend910-2,Ascend910-3,Ascend910-5", BEFORE)

    times = {each.chip: each.time_ms for each in world.chip_monitor.findings.upgrades}
    assert times == {2: 1_000_000, 3: 5, 5: 6}
