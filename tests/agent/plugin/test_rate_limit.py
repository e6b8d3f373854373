"""A hundred questions a second, whoever asks."""

import asyncio

import pytest

from agent.plugin.pod_resources import RateLimit
from service import clock


@pytest.mark.looptime
async def test_callers_take_turns_and_the_first_of_them_need_not_wait() -> None:
    rate_limit, asked = RateLimit(0.5), list[float]()
    begun_s = clock.loop_s()

    async def ask() -> None:
        await rate_limit.wait_for_turn()
        asked.append(round(clock.loop_s() - begun_s, 1))

    await asyncio.gather(ask(), ask(), ask())
    await asyncio.sleep(2)
    await ask()

    assert asked == [0.0, 0.5, 1.0, 3.0]
