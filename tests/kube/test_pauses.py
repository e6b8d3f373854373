import asyncio

import pytest

from kube.client import Client
from kube.credentials import Credentials
from kube.errors import (
    TooManyRequestsError,
)
from tests.kube.server import (
    Script,
    Watch,
    line,
    page,
    pod,
    refusal,
    status,
)
from tests.kube.watches import steps, watch_of


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
    first = Watch(chunks=(line("ADDED", pod("a", 6)),), end="cut")
    later = Watch(chunks=(line("ADDED", pod("b", 7)),))
    script.will(page(5), first, refusal(503, "ServiceUnavailable"), later)
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
    first = Watch(chunks=(line("ADDED", pod("a", 6)),), end="cut")
    expired = Watch(chunks=(line("ERROR", status(410, "Expired")),))
    script.will(page(5), first, expired)
    watch = watch_of(script)
    loop = asyncio.get_running_loop()

    await watch.attempt(lambda _: None)
    heard_s = watch.last_event_s
    lost_s = loop.time() - watch.disconnected_s()
    await watch.attempt(lambda _: None)

    assert watch.last_event_s == heard_s
    assert loop.time() - watch.disconnected_s() == pytest.approx(lost_s, abs=1e-3)


async def test_a_server_that_says_expired_works_again_so_the_pauses_start_anew(
    script: Script,
) -> None:
    down = refusal(503, "ServiceUnavailable")
    expired = Watch(chunks=(line("ERROR", status(410, "Expired")),))
    script.will(page(5), Watch(end="cut"), down, down, down, expired, page(9))
    watch = watch_of(script)

    pauses = [await watch.attempt(lambda _: None) for _ in range(5)]

    assert pauses[3] >= 4.0
    assert 0.5 <= pauses[4] <= 1.0


async def test_a_watch_that_worked_starts_the_pauses_anew(script: Script) -> None:
    down = refusal(503, "ServiceUnavailable")
    worked = Watch(chunks=(line("ADDED", pod("a", 6)),), end="cut")
    script.will(down, down, down, page(5), worked, down)
    watch = watch_of(script)

    pauses = [await watch.attempt(lambda _: None) for _ in range(5)]

    assert pauses[2] >= 2.0
    assert pauses[3] <= 1.0
    assert pauses[4] <= 2.0


async def test_watches_that_end_at_once_do_not_spin(script: Script) -> None:
    script.will(page(5), *[Watch()] * 4)
    watch = watch_of(script)

    pauses = [await watch.attempt(lambda _: None) for _ in range(4)]

    assert pauses[0] >= 0.5
    assert pauses[3] >= 4.0


async def test_a_server_that_always_expires_does_not_spin(script: Script) -> None:
    for _ in range(4):
        script.will(page(5), refusal(410, "Expired"))
    watch = watch_of(script)

    pauses = [await watch.attempt(lambda _: None) for _ in range(4)]

    assert pauses[3] >= 4.0


async def test_a_server_that_brings_one_event_and_expires_does_not_spin(
    script: Script,
) -> None:
    gone = line("ERROR", status(410, "Expired"))
    for version in range(5, 50, 10):
        event = line("ADDED", pod("a", version + 1))
        script.will(page(version), Watch(chunks=(event + gone,)))
    watch = watch_of(script)

    pauses = [await watch.attempt(lambda _: None) for _ in range(5)]

    assert pauses[0] == 0.0
    assert pauses[4] >= 4.0
