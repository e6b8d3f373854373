import asyncio

from agent.plugin.allocate_activity import PREFERENCE_LASTS_S, AllocateActivity
from tests.support.clock import Time


async def prefer(activity: AllocateActivity) -> None:
    async with activity.preferring():
        pass


def test_it_is_quiet_when_nothing_was_asked() -> None:
    activity = AllocateActivity(Time())

    assert activity.was_quiet_since(activity.mark())


def test_an_allocate_disturbs_from_its_arrival_to_its_answer() -> None:
    activity = AllocateActivity(Time())
    mark = activity.mark()

    with activity.allocating():
        during = (activity.is_quiet, activity.was_quiet_since(mark), activity.mark())

    assert during == (False, False, -1)
    assert activity.is_quiet
    assert not activity.was_quiet_since(mark)


def test_a_mark_of_a_disturbed_moment_never_proves_quiet() -> None:
    activity = AllocateActivity(Time())
    with activity.allocating():
        mark = activity.mark()

    assert not activity.was_quiet_since(mark)


async def test_a_preference_disturbs_until_its_allocate_has_ended() -> None:
    activity = AllocateActivity(Time())

    await prefer(activity)
    pending = activity.is_quiet
    with activity.allocating():
        pass

    assert not pending
    assert activity.is_quiet


async def test_a_preference_without_an_allocate_stops_counting() -> None:
    clock = Time()
    activity = AllocateActivity(clock)

    await prefer(activity)
    clock.now_s += PREFERENCE_LASTS_S

    assert activity.is_quiet


async def test_no_listing_begins_while_a_preference_waits_for_another() -> None:
    activity = AllocateActivity(Time())
    with activity.listing():
        asking = asyncio.create_task(prefer(activity))
        await asyncio.sleep(0)
        may_another_begin = activity.is_quiet
    await asking

    assert not may_another_begin


async def test_a_preference_waits_for_every_listing_that_is_under_way() -> None:
    activity = AllocateActivity(Time())
    first, second = activity.listing(), activity.listing()
    with first:
        with second:
            pass
        asking = asyncio.create_task(prefer(activity))
        await asyncio.sleep(0)
        was_waiting = not asking.done()
    await asking

    assert was_waiting
