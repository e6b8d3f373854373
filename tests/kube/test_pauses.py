import asyncio
from collections.abc import Mapping, Sequence
from math import inf

import pytest

from kube.client import Client
from kube.credentials import Credentials
from kube.errors import (
    TooManyRequestsError,
)
from tests.kube.server import (
    Answer,
    Script,
    Watch,
    line,
    page,
    pod,
    refusal,
    status,
)
from tests.kube.watches import steps, watch_of
from tests.support.rows import rows

WORKED = Watch(chunks=(line("ADDED", pod("a", 6)),), end="cut")
DOWN = refusal(503, "ServiceUnavailable")
GONE = line("ERROR", status(410, "Expired"))


async def test_overload_asks_us_to_wait_and_we_do(script: Script) -> None:
    busy = refusal(429, "TooManyRequests", **{"Retry-After": "17"})
    script.will(busy, page(5), busy, Watch())
    watch = watch_of(script)

    assert await watch.attempt(lambda _: None) == 17.0
    with pytest.raises(TooManyRequestsError):
        await steps(watch)
    assert await steps(watch) == [], "it goes on watching, without another list"
    assert watch.relists == 2


@pytest.mark.parametrize(
    ("given", "ceilings"),
    [({}, [1, 2, 4, 8, 16, 30, 30]), ({"pause_s": 5.0}, [1, 2, 4, 5, 5])],
    ids=["to thirty seconds", "no further than they may"],
)
async def test_pauses_grow_while_the_server_is_away(
    given: dict[str, float], ceilings: list[float]
) -> None:
    async with Client(Credentials("http://127.0.0.1:1")) as client:
        watch = watch_of(client, **given)

        pauses = [await watch.attempt(lambda _: None) for _ in ceilings]

    assert all(c / 2 <= p <= c for p, c in zip(pauses, ceilings, strict=True)), pauses


async def test_it_is_known_for_how_long_nothing_was_followed(script: Script) -> None:
    later = Watch(chunks=(line("ADDED", pod("b", 7)),))
    script.will(page(5), WORKED, DOWN, later)
    watch = watch_of(script)
    loop = asyncio.get_running_loop()
    seen_s: list[float] = []

    assert watch.disconnected_s() == 0.0
    await watch.attempt(lambda _: None)
    cut_s = loop.time()
    await watch.attempt(lambda _: None)
    while loop.time() == cut_s:  # a clock has steps
        await asyncio.sleep(0)
    assert 0.0 < loop.time() - cut_s <= watch.disconnected_s()

    await watch.attempt(lambda _: seen_s.append(watch.disconnected_s()))
    assert seen_s == [0.0]


async def test_a_watch_that_brings_nothing_but_a_refusal_has_shown_nothing(
    script: Script,
) -> None:
    script.will(page(5), WORKED, Watch(chunks=(GONE,)))
    watch = watch_of(script)
    clock_s = asyncio.get_running_loop().time

    await watch.attempt(lambda _: None)
    heard_s = watch.last_event_s
    first = (clock_s(), watch.disconnected_s(), clock_s())
    await watch.attempt(lambda _: None)
    then = (clock_s(), watch.disconnected_s(), clock_s())

    assert watch.last_event_s == heard_s
    # no watch has been open since a time between these
    assert first[0] - first[1] <= then[2] - then[1]
    assert then[0] - then[1] <= first[2] - first[1]


@rows(
    ("answers", "bounds"),
    {
        "a server that says expired works again": (
            (page(5), Watch(end="cut"), *[DOWN] * 3, Watch(chunks=(GONE,)), page(9)),
            {3: (4.0, inf), 4: (0.5, 1.0)},
        ),
        "a watch that worked starts the pauses anew": (
            (DOWN, DOWN, DOWN, page(5), WORKED, DOWN),
            {2: (2.0, inf), 3: (0.0, 1.0), 4: (0.0, 2.0)},
        ),
        "watches that end at once do not spin": (
            (page(5), *[Watch()] * 4),
            {0: (0.5, inf), 3: (4.0, inf)},
        ),
        "a server that always expires does not spin": (
            (page(5), refusal(410, "Expired")) * 4,
            {3: (4.0, inf)},
        ),
        "a server that brings one event and expires does not spin": (
            [
                answer
                for version in range(5, 50, 10)
                for answer in (
                    page(version),
                    Watch(chunks=(line("ADDED", pod("a", version + 1)) + GONE,)),
                )
            ],
            {0: (0.0, 0.0), 4: (4.0, inf)},
        ),
    },
)
async def test_pauses_grow_until_a_watch_works(
    script: Script,
    answers: Sequence[Answer | Watch],
    bounds: Mapping[int, tuple[float, float]],
) -> None:
    script.will(*answers)
    watch = watch_of(script)

    pauses = [await watch.attempt(lambda _: None) for _ in range(max(bounds) + 1)]

    assert all(low <= pauses[n] <= high for n, (low, high) in bounds.items()), pauses
