import asyncio

import pytest

from extender import clocks
from service import clock


@pytest.mark.looptime
async def test_a_clock_on_the_wall_that_stands_still_stops_no_time() -> None:
    ours = clocks.of_this_machine()
    began_s, wall_s = ours.now_s(), ours.wall_s()

    await asyncio.sleep(3600)

    assert ours.now_s() - began_s == pytest.approx(3600)
    assert [wall_s, ours.wall_s(), clock.wall_s()] == pytest.approx(
        [began_s] * 3, abs=1800
    )
