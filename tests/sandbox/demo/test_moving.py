import io
from functools import partial

import pytest

from sandbox.demo import story
from sandbox.demo.steps import moving
from sandbox.inspect.terminal import Terminal
from sandbox.world import rescheduling, running

MOVING = story.Step(title="A move", play=partial(moving.play, moved_s=3.0))


@pytest.mark.long
async def test_an_extender_that_evicts_nobody_is_found_out() -> None:
    out = io.StringIO()

    async with running(story.NODES, rescheduling("report")) as world:
        failed = await story.tell(world, Terminal(out, {}), (MOVING,))

    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert failed == MOVING
    assert "train-0 is told NpuUnhealthy:" in lines
    (wrong,) = (line for line in lines if line.startswith("✗ "))
    assert wrong.startswith("✗ AscendFaultEvicted on train-0-")
    assert wrong.endswith(": not seen within 3 s")
