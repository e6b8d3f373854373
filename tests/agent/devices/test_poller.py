"""Asking a driver that answers, fails, hangs and comes back."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.devices.driver import DriverError
from agent.devices.poller import Observation, Poller
from agent.devices.reading import Reading, Unread
from agent.devices.simulated import file
from service.clock import loop_s, wall_ns
from tests.support.tasks import in_background

READING = file.parse("product: atlas-800-training\n")
OTHER = file.parse("product: atlas-800-training\nvanished: [1]\n")


class FakeDriver:
    """Answers what it is told to, when it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.answer: Reading | Exception = READING
        self.takes_s = 0.0
        self.has_news = True
        #: when it has begun to look at the chips; None: it rests
        self.looks_s: float | None = None

    @property
    def known_s(self) -> float:
        return loop_s() if self.looks_s is None else self.looks_s

    async def wait_for_news(self, within_s: float) -> bool:
        await asyncio.sleep(within_s)
        return self.has_news

    def look_now(self) -> None:
        self.has_news = True

    def change_rows(self) -> None:
        raise AssertionError("whoever has made a driver changes its rows")

    def expect(self, inventory: Mapping[str, int]) -> None:
        raise AssertionError("whoever has made a driver tells it what to expect")

    async def close(self) -> None:
        raise AssertionError("whoever has made a driver closes it")

    async def read(self) -> Reading:
        self.calls += 1
        await asyncio.sleep(self.takes_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def poller_of(driver: FakeDriver, poll_s: float = 0.2) -> Poller:
    return Poller(driver, poll_s=poll_s, deadline_s=1.0)


def read_s(seen: Observation) -> float:
    """Return the date of an observation's reading."""
    assert seen.reading is not None
    return seen.reading.read_s


@pytest.mark.looptime
async def test_a_good_answer_is_fresh() -> None:
    poller = poller_of(FakeDriver())

    seen = await poller.poll()

    assert seen == Observation(reading=READING)
    assert read_s(seen) == loop_s()


@pytest.mark.looptime
async def test_after_an_error_the_last_good_reading_stays_and_is_stale() -> None:
    driver = FakeDriver()
    poller = poller_of(driver)
    good = await poller.poll()
    driver.answer = DriverError("npu.yaml: torn")
    await asyncio.sleep(5)

    seen = await poller.poll()

    assert seen == Observation(reading=READING, problem="npu.yaml: torn", is_stale=True)
    assert read_s(seen) == read_s(good) == loop_s() - 5


async def test_single_chips_that_cannot_be_read_are_said_and_the_rest_is_fresh() -> (
    None
):
    driver = FakeDriver()
    unread = (Unread(chip=3, reason="timed out"), Unread(chip=5, reason="busy"))
    driver.answer = replace(READING, unread=unread)

    seen = await poller_of(driver).poll()

    assert (seen.problem, seen.is_stale) == ("chip 3: timed out; chip 5: busy", False)


async def test_chips_that_are_slow_are_no_problem() -> None:
    driver = FakeDriver()
    slow = tuple(Unread(chip=c, reason="any", is_slow=True) for c in READING.chips)
    driver.answer = replace(READING, unread=slow)

    seen = await poller_of(driver).poll()

    assert (seen.problem, seen.is_stale) == ("", False)


async def test_an_error_at_the_very_beginning_leaves_nothing_known() -> None:
    driver = FakeDriver()
    driver.answer = DriverError("no file")

    seen = await poller_of(driver).poll()

    assert seen == Observation(problem="no file", is_stale=True)


@pytest.mark.looptime
async def test_a_call_that_hangs_is_marked_stale_and_not_called_again() -> None:
    driver = FakeDriver()
    poller = poller_of(driver)
    good = await poller.poll()
    driver.takes_s = 2.5
    driver.answer = OTHER

    seen = [await poller.poll() for _ in range(2)]

    problem = "no answer within 1 s"
    stale = Observation(reading=READING, problem=problem, is_stale=True)
    assert seen == [stale, stale]
    assert [read_s(each) for each in seen] == [read_s(good)] * 2
    assert driver.calls == 2
    again = await poller.poll()
    assert again == Observation(reading=OTHER)
    assert read_s(again) == loop_s()


@pytest.mark.looptime
async def test_an_unknown_failure_is_not_swallowed() -> None:
    driver = FakeDriver()
    driver.answer = ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        await poller_of(driver).poll()


async def collected(
    poller: Poller,
    for_s: float,
    seen: list[Observation] | None = None,
    *,
    is_wanted: bool = False,
) -> list[float]:
    moments: list[float] = []

    def deliver(each: Observation) -> bool:
        moments.append(loop_s())
        if seen is not None:
            seen.append(each)
        return is_wanted

    async with in_background(poller.run(deliver)):
        await asyncio.sleep(for_s)
    return moments


@pytest.mark.looptime
async def test_run_looks_each_period_whether_or_not_something_changed() -> None:
    started = loop_s()
    poller = poller_of(FakeDriver())

    moments = await collected(poller, 0.5, is_wanted=True)

    assert [round(moment - started, 3) for moment in moments] == [0.0, 0.2, 0.4]


@pytest.mark.parametrize(
    ("poll_s", "calm"), [(0.2, [0.0, 1.0, 2.0]), (1.5, [0.0, 1.5])]
)
@pytest.mark.looptime
async def test_run_looks_less_often_while_nothing_is_to_be_expected(
    poll_s: float, calm: list[float]
) -> None:
    started = loop_s()
    poller = poller_of(FakeDriver(), poll_s)

    moments = await collected(poller, 2.5)

    assert [round(moment - started, 3) for moment in moments] == calm


@pytest.mark.looptime
async def test_a_driver_without_news_is_not_asked_and_all_is_as_it_was() -> None:
    driver, seen = FakeDriver(), list[Observation]()
    driver.has_news = False

    await collected(poller_of(driver), 3.5, seen)

    assert [each.reading for each in seen] == [READING] * 4
    assert read_s(seen[-1]) == pytest.approx(loop_s() - 0.5)
    assert driver.calls == 1


@pytest.mark.looptime
async def test_a_reading_is_no_newer_than_the_look_that_is_under_way() -> None:
    """A look of many slow calls was taken for the chips' state of now."""
    driver, seen = FakeDriver(), list[Observation]()
    driver.has_news = False
    began_s = loop_s()
    driver.looks_s = began_s

    await collected(poller_of(driver), 8.5, seen)

    assert [read_s(each) for each in seen] == [began_s] * 9
    assert seen[-1].reading is not None
    assert wall_ns() / 1e6 - seen[-1].reading.read_ms >= 8000


@pytest.mark.looptime
async def test_a_driver_that_could_not_be_read_is_asked_again_without_news() -> None:
    driver = FakeDriver()
    driver.has_news, driver.answer = False, DriverError("torn")

    await collected(poller_of(driver), 3.5)

    assert driver.calls == 4


@pytest.mark.looptime
@pytest.mark.parametrize("after_s", [0.5, 2.0])
async def test_no_call_is_left_behind_at_the_end(after_s: float) -> None:
    driver = FakeDriver()
    driver.takes_s = 1000.0

    await collected(poller_of(driver), after_s)

    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
