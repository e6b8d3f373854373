"""Every fault of an API server against our list-watch, in simulated time."""

import asyncio
import itertools
import random  # noqa: TID251  # seeded: the same faults each time
from typing import Any, NamedTuple

import pytest

from sandbox.apiserver.outages import Trouble, What
from tests.kube.fire import burning, settled
from tests.support.rows import rows

pytestmark = pytest.mark.looptime

WATCH, LIST = frozenset({"watch"}), frozenset({"list"})


class Row(NamedTuple):
    """What befalls the client, for how long, and what it may cost."""

    troubles: tuple[Trouble, ...]
    #: lists besides the first
    lists: int
    watches: int = 9
    lasts_s: float = 60.0


CUT_ONCE = Trouble(what=What.CUT, verbs=WATCH, count=1)


def refused(status: int, **more: Any) -> Trouble:
    return Trouble(what=What.REFUSED, status=status, **more)


def error(status: int, **more: Any) -> Trouble:
    """An error as an event of a watch."""
    return Trouble(what=What.ERROR_EVENT, status=status, **more)


ROWS = {
    "slow": Row((Trouble(what=What.SLOW, delay_s=3),), 0, 3),
    "409 to all reads": Row((refused(409, verbs=WATCH | LIST),), 1),
    "410 to the next watch": Row((CUT_ONCE, refused(410, verbs=WATCH, count=1)), 1, 4),
    "410 as an event": Row((error(410, count=1),), 1, 2),
    # a watch each 4 s, or it would not have caught up 5 s after the end
    "410 as an event, each time": Row((error(410),), 9, 18),
    "500 as an event": Row((error(500, count=1),), 1, 2),
    "429 with Retry-After": Row((CUT_ONCE, refused(429, retry_after_s=10)), 0),
    "429 without": Row((CUT_ONCE, refused(429)), 0),
    "500 to everything": Row((CUT_ONCE, refused(500)), 1),
    "503 to everything": Row((CUT_ONCE, refused(503, retry_after_s=5)), 1),
    "cut in the middle of a line": Row((CUT_ONCE,), 0, 2),
    "cut in the middle of each line": Row((Trouble(what=What.CUT, verbs=WATCH),), 0),
    "silent for minutes": Row((Trouble(what=What.SILENT),), 0, 5, lasts_s=200),
    "no bookmarks": Row((Trouble(what=What.NO_BOOKMARKS),), 0, 3, lasts_s=700),
    "doubled": Row((Trouble(what=What.DOUBLED),), 0, 2),
    # one list after each pause
    "a stale list": Row(
        (Trouble(what=What.STALE), error(410, spared=9, count=1)), lists=9, watches=2
    ),
}


@rows("row", ROWS)
async def test_after_a_fault_the_cache_is_what_the_server_has(row: Row) -> None:
    async with burning(first_s=20) as bed:
        lists, watches = bed.count("list"), bed.count("watch")
        ends = [bed.troubles.begin(trouble) for trouble in row.troubles]
        await asyncio.sleep(row.lasts_s)
        for end in ends:
            end()

        await settled(bed)

        assert bed.count("list") - lists <= row.lists
        assert bed.count("watch") - watches <= row.watches


async def test_a_server_that_is_down_is_asked_seldom_and_listed_never() -> None:
    async with burning(first_s=20) as bed:
        bed.pipes.go_down()
        await asyncio.sleep(60)
        bed.pipes.is_down = False

        await settled(bed)

        assert bed.count("list") == 1
        assert bed.pipes.refused <= 9


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "trouble", [error(410), refused(410, verbs=WATCH)], ids=["event", "answer"]
)
async def test_d29_after_watches_that_expired_it_has_caught_up_within_5_s(
    seed: int, trouble: Trouble
) -> None:
    """A pause of up to 30 s stood behind them."""
    async with burning(seed, first_s=20) as bed:
        bed.troubles.begin(CUT_ONCE)
        end = bed.troubles.begin(trouble)
        await asyncio.sleep(30)
        end()

        await settled(bed, within_s=5.0)

        assert bed.count("list", 20) <= 6
        assert bed.count("watch", 20) <= 12


async def test_d29_a_server_whose_watches_always_expire_is_listed_seldom() -> None:
    async with burning(first_s=20) as bed:
        bed.troubles.begin(error(410))
        await asyncio.sleep(600)

        # 30 s of pause, and two lists in a row after a watch that brought a change
        assert bed.count("list", 20) <= 40
        assert bed.count("watch", 20) <= 180


async def test_a_history_that_was_forgotten_costs_one_list() -> None:
    async with burning(first_s=20) as bed:
        bed.pipes.go_down()
        await asyncio.sleep(20)
        bed.hub.expire()
        bed.pipes.is_down = False

        await settled(bed)

        assert bed.count("list") == 2


async def test_what_retry_after_asks_for_is_waited() -> None:
    async with burning(first_s=20) as bed:
        bed.troubles.begin(CUT_ONCE)
        bed.troubles.begin(refused(429, retry_after_s=17, count=3))
        await asyncio.sleep(80)

        await settled(bed)

        asked = [at for at, verb in bed.asked if at > 20]
        pauses = [b - a for a, b in itertools.pairwise(asked)]
        assert len(pauses) == 3
        assert min(pauses) > 16.9


async def test_who_needs_what_was_not_seen_ends_the_pause() -> None:
    async with burning(first_s=20) as bed:
        bed.pipes.go_down()
        await asyncio.sleep(60)
        bed.pipes.is_down = False
        back_s = asyncio.get_running_loop().time()

        bed.watch.retry_now()
        await asyncio.sleep(0.1)

        assert [at - back_s < 0.1 for at, _ in bed.asked if at >= back_s] == [True]
        assert bed.watch.disconnected_s() == 0.0


async def test_who_needs_what_was_never_seen_ends_the_pause_as_well() -> None:
    async with burning() as bed:
        bed.pipes.go_down()
        await asyncio.sleep(60)
        bed.pipes.is_down = False
        back_s = asyncio.get_running_loop().time()

        bed.watch.retry_now()
        await asyncio.sleep(0.1)

        assert [at - back_s < 0.1 for at, verb in bed.asked if verb == "list"] == [True]


async def test_hurry_skips_one_pause_and_none_while_a_watch_is_open() -> None:
    async with burning(first_s=20) as bed:
        bed.watch.retry_now()
        bed.troubles.begin(CUT_ONCE)
        bed.troubles.begin(refused(503, verbs=WATCH))
        await asyncio.sleep(40)
        before = bed.count("watch")

        bed.watch.retry_now()
        await asyncio.sleep(0.1)

        assert bed.count("watch") == before + 1
        pauses = [
            b - a
            for a, b in itertools.pairwise(at for at, _ in bed.asked if 20 < at < 60)
        ]
        assert min(pauses) > 0.4


async def test_no_pause_is_skipped_that_the_server_has_asked_for() -> None:
    async with burning(first_s=20) as bed:
        bed.troubles.begin(CUT_ONCE)
        bed.troubles.begin(refused(429, retry_after_s=17, count=1))
        await asyncio.sleep(10)
        asked = len(bed.asked)

        bed.watch.retry_now()
        await asyncio.sleep(1)

        assert len(bed.asked) == asked


async def test_a_watch_that_is_always_broken_is_followed_by_a_list_in_the_end() -> None:
    async with burning(first_s=20) as bed:
        bed.troubles.begin(CUT_ONCE)
        bed.troubles.begin(refused(500, verbs=WATCH))
        await asyncio.sleep(60)
        assert bed.count("list") == 1

        await asyncio.sleep(240)

        assert bed.count("list") == 2


async def test_a_history_that_stays_older_is_believed_after_a_minute() -> None:
    async with burning(first_s=20) as bed:
        was = bed.at_server()
        bed.troubles.begin(Trouble(what=What.STALE))
        await asyncio.sleep(20)
        bed.troubles.begin(error(410, count=1))
        await asyncio.sleep(40)
        assert bed.mirror.pods != was

        bed.mirror.pods.clear()  # a consumer that is told all over again
        bed.troubles.begin(refused(429, verbs=WATCH))
        await asyncio.sleep(80)

        known = {p.metadata.uid for p in bed.watch.objects()}
        assert known == set(was)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.long
async def test_faults_one_after_the_other_leave_nothing_behind(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # not a secret
    troubles = [trouble for row in ROWS.values() for trouble in row.troubles]
    async with burning(seed) as bed:
        for _ in range(12):
            await asyncio.sleep(chance.uniform(1, 60))
            end = bed.troubles.begin(chance.choice(troubles))
            if chance.random() < 0.2:
                bed.hub.expire()
            if chance.random() < 0.1:
                bed.pipes.go_down()
            await asyncio.sleep(chance.uniform(1, 59))
            bed.pipes.is_down = False
            end()

        await settled(bed, within_s=300)

        assert bed.mirror.synced_count <= bed.count("list") < 80
