import asyncio
from dataclasses import replace

from tests.agent.node import current


async def test_a_reader_that_was_busy_sees_the_newest() -> None:
    now = current()
    since = now.version
    now.read_chips(unhealthy=1)
    now.read_chips(unhealthy=3)

    version = await now.changed(since)

    assert (version, now.ledger.unhealthy) == (now.version, 3)


async def test_all_readers_are_woken() -> None:
    now = current()
    readers = [asyncio.create_task(now.changed(now.version)) for _ in range(3)]
    await asyncio.sleep(0)

    now.read_chips(unhealthy=1)

    assert await asyncio.gather(*readers) == [now.version] * 3


async def test_an_event_that_changes_nothing_wakes_nobody() -> None:
    now = current()
    since = now.version

    now.replace(now.ledger)

    assert now.version == since


def test_a_ledger_that_says_the_same_wakes_nobody() -> None:
    now = current()

    now.replace(replace(now.ledger))

    assert now.version == 0
