import asyncio

from agent.plugin.allocate_activity import PREFERENCE_LASTS_S, Traffic


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_it_is_quiet_when_nothing_was_asked() -> None:
    traffic = Traffic(Clock())

    assert traffic.was_quiet_since(traffic.mark())


def test_an_allocate_disturbs_from_its_arrival_to_its_answer() -> None:
    traffic = Traffic(Clock())
    mark = traffic.mark()

    with traffic.allocating():
        during = (traffic.is_quiet, traffic.was_quiet_since(mark), traffic.mark())

    assert during == (False, False, -1)
    assert traffic.is_quiet
    assert not traffic.was_quiet_since(mark)


def test_a_mark_of_a_disturbed_moment_never_proves_quiet() -> None:
    traffic = Traffic(Clock())
    with traffic.allocating():
        mark = traffic.mark()

    assert not traffic.was_quiet_since(mark)


async def test_a_preference_disturbs_until_its_allocate_has_ended() -> None:
    traffic = Traffic(Clock())

    await traffic.prefer()
    pending = traffic.is_quiet
    with traffic.allocating():
        pass

    assert not pending
    assert traffic.is_quiet


async def test_a_preference_without_an_allocate_stops_counting() -> None:
    clock = Clock()
    traffic = Traffic(clock)

    await traffic.prefer()
    clock.now_s += PREFERENCE_LASTS_S

    assert traffic.is_quiet


async def test_no_listing_begins_while_a_preference_waits_for_another() -> None:
    traffic = Traffic(Clock())
    with traffic.listing():
        asking = asyncio.create_task(traffic.prefer())
        await asyncio.sleep(0)
        may_another_begin = traffic.is_quiet
    await asking

    assert not may_another_begin


async def test_a_preference_waits_for_every_listing_that_is_under_way() -> None:
    traffic = Traffic(Clock())
    first, second = traffic.listing(), traffic.listing()
    with first:
        with second:
            pass
        asking = asyncio.create_task(traffic.prefer())
        await asyncio.sleep(0)
        was_waiting = not asking.done()
    await asking

    assert was_waiting
