"""What is told while chips cannot be read: all of them, or single ones."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.devices.poller import Observation
from agent.devices.reading import Reading, Unread
from agent.devices.simulated import file
from agent.health.conditions import UNREAD_S
from agent.monitor.chips import ChipMonitor
from agent.monitor.driver import DriverMonitor
from tests.agent.announcing import Announced
from tests.agent.node import current

GOOD = file.parse("product: atlas-800-training\n")
#: Wall time of the loop's second 0. Unit: Unix seconds.
EPOCH_S = 1_700_000_000
THEN = "2023-11-14T22:13:21Z"
OLD = (
    f"no chip can be read since {THEN}, and the chips' conditions are from then: "
    "no answer within 5 s"
)


def read_at(reading: Reading, now_s: float) -> Reading:
    """Return a reading with its date."""
    return replace(reading, read_s=now_s, read_ms=round((EPOCH_S + now_s) * 1000))


class World(Announced):
    """A node whose driver was read at second 1 for the last time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1.0
        self.store = current()
        self.chips = ChipMonitor(
            self.store,
            reading=GOOD,
            recover_s=1.0,
            announcer=self.announcer,
            wall_ms=lambda: round((EPOCH_S + self.now_s) * 1000),
        )
        self.driver = DriverMonitor(
            [self.chips],
            problems=self.problems,
            metrics=self.metrics,
            loop_s=lambda: self.now_s,
        )
        self.reads()

    def reads(self, *unread: Unread) -> None:
        """Let the driver be read now, but for some chips."""
        problem = "; ".join(f"chip {each.chip}: {each.reason}" for each in unread)
        self._reading = read_at(replace(GOOD, unread=unread), self.now_s)
        self.driver.observe(Observation(reading=self._reading, problem=problem))

    def fails(self, problem: str = "no answer within 5 s") -> None:
        """Let the driver not be read now."""
        self.driver.observe(
            Observation(reading=self._reading, problem=problem, is_stale=True)
        )

    def looks(self) -> None:
        """Let a look that began after the last reading not be over yet."""
        self.driver.observe(Observation(reading=self._reading))

    def told(self) -> Mapping[str, object]:
        """What readiness, events, status and metrics say."""
        return {
            "ready": self.problems.why_not_ready(),
            "events": self.events,
            "status": self.driver.stale_since_ms,
            "stale": self.metric("driver_stale"),
            "read": self.metric("driver_last_read_timestamp_seconds"),
        }


def test_readiness_event_status_and_metric_say_since_when_readings_are_old() -> None:
    world = World()
    world.now_s = 1.0 + UNREAD_S
    world.fails()
    world.now_s += 100
    world.fails()

    assert world.told() == {
        "ready": OLD,
        "events": [("NpuUnreadable", OLD)],
        "status": (EPOCH_S + 1) * 1000,
        "stale": 1,
        "read": EPOCH_S + 1,
    }


def test_the_ledger_waits_for_no_look_while_readings_are_old() -> None:
    world, found = World(), []
    for at_s in (UNREAD_S, 1.0 + UNREAD_S):
        world.now_s = at_s
        world.fails()
        found.append(world.store.ledger.unreadable)
    world.reads()

    assert found == [False, True]
    assert not world.store.ledger.unreadable


def test_a_look_that_lasts_for_long_is_told_and_not_awaited() -> None:
    """Each call came back in time, and nobody heard of readings of 80 s ago."""
    world, found = World(), []
    for at_s in (UNREAD_S, 1.0 + UNREAD_S):
        world.now_s = at_s
        world.looks()
        ledger = world.store.ledger
        found.append((ledger.unreadable, world.problems.why_not_ready()))
    world.reads()

    slow = OLD.replace("no answer within 5 s", "the look at the chips lasts for more ")
    assert found == [(False, None), (True, f"{slow}than 15 s")]
    assert world.problems.why_not_ready() is None
    assert not world.store.ledger.unreadable


def test_a_driver_that_is_away_for_a_moment_makes_no_event() -> None:
    world = World()
    world.now_s = UNREAD_S
    world.fails()
    during = world.told()
    world.now_s = 1.0 + UNREAD_S
    world.reads()

    assert during == {
        "ready": None,
        "events": [],
        "status": (EPOCH_S + 1) * 1000,
        "stale": 1,
        "read": EPOCH_S + 1,
    }
    assert world.told() == {
        "ready": None,
        "events": [],
        "status": None,
        "stale": 0,
        "read": EPOCH_S + 1 + UNREAD_S,
    }


def test_the_end_and_the_next_time_are_told_once_each() -> None:
    world = World()
    for start_s in (100.0, 200.0):
        for problem in ("no answer within 5 s", "the driver worker has ended"):
            world.now_s = start_s
            world.fails(problem)
        for _ in range(2):
            world.now_s += 1
            world.reads()

    reasons = [reason for reason, _ in world.events]
    # equal events are one, with a count
    assert reasons == ["NpuUnreadable", "NpuReadable", "NpuUnreadable"]


def test_a_row_that_is_right_again_is_told_as_one_that_was_wrong() -> None:
    world = World()
    wrong = replace(GOOD, changed_row="chip 8 is none of it")
    for reading in (wrong, wrong, GOOD, GOOD):
        world.driver.observe(Observation(reading=read_at(reading, world.now_s)))

    assert world.events == [
        (
            "NpuProductChanged",
            "the node is served by the wrong product row: chip 8 is none of it",
        ),
        ("NpuServed", "the chips are those of the product row again"),
    ]


def test_conditions_stay_while_no_chip_can_be_read() -> None:
    world = World()
    world.now_s = 10_000.0
    world.fails()

    assert world.chips.health.in_service == tuple(range(8))


def test_one_chip_that_cannot_be_read_is_named_and_then_unhealthy() -> None:
    world = World()
    conditions = []
    for at_s in (2.0, 2.0 + UNREAD_S - 1, 2.0 + UNREAD_S):
        world.now_s = at_s
        world.reads(Unread(chip=3, reason="timed out (-8006)"))
        conditions.append(world.chips.health.in_service)

    everyone = tuple(range(8))
    assert conditions == [everyone, everyone, (0, 1, 2, 4, 5, 6, 7)]
    why = "chip 3 is out of service: cannot be read: timed out (-8006)"
    assert world.events == [("NpuUnhealthy", why)]
    assert world.problems.why_not_ready() is None
    assert world.problems.status()["driverProblem"] == "chip 3: timed out (-8006)"


def test_the_log_names_the_driver_or_the_chips(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    world = World()
    chip = Unread(chip=3, reason="timed out")
    world.reads(chip)
    world.reads(chip)
    world.fails("away")
    world.reads(chip)
    world.reads()

    assert [(one.getMessage(), vars(one).get("reason")) for one in caplog.records] == [
        ("chips cannot be read", "chip 3: timed out"),
        ("driver cannot be read", "away"),
        ("driver is read again", None),
        ("all chips are read again", None),
    ]
