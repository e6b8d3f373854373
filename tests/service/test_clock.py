import asyncio

import pytest

from service import clock


def test_a_wall_time_is_written_as_kubernetes_writes_it() -> None:
    assert clock.rfc3339(1_000_000_000.9) == "2001-09-09T01:46:40Z"


def test_both_clocks_tell_the_same_time() -> None:
    before_s, now_ns, after_s = clock.wall_s(), clock.wall_ns(), clock.wall_s()

    assert before_s - 0.001 <= now_ns / 1e9 <= after_s + 0.001


@pytest.mark.looptime
async def test_who_looks_at_the_beat_looks_when_others_do_and_once_each() -> None:
    beats = []
    await asyncio.sleep(0.25)

    for _ in range(3):
        await asyncio.sleep(clock.next_beat_delay_s(0.5))
        beats.append(round(clock.loop_s() / 0.5, 2))

    assert beats == [int(beats[0]), int(beats[0]) + 1, int(beats[0]) + 2]
