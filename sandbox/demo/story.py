"""The story: its steps in order, until the end or the first that does not check out."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sandbox.apiclient import FAILURES
from sandbox.demo.kubectl import KubectlError
from sandbox.demo.stage import Stage, Tally
from sandbox.demo.steps import killing, moving, overview, pending, race
from sandbox.inspect.checks import Problems
from sandbox.inspect.observer import NotSeenError, watch_choices
from sandbox.inspect.terminal import Style, Terminal
from sandbox.world import World

NODES = ("node-1", "node-2", "node-3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its title, and what happens in it."""

    title: str
    play: Callable[[Stage], Awaitable[Problems]]


STEPS = (
    Step(title="The nodes register", play=overview.register),
    Step(title="Pods of 1, 2, 4 and 8 chips are placed", play=overview.place),
    Step(
        title="A race: eight pods of one chip and two of two, at the same moment",
        play=race.play,
    ),
    Step(
        title="A chip breaks under a job of two pods: it moves, and goes on",
        play=moving.play,
    ),
    Step(title="An agent is killed in the middle of an Allocate", play=killing.play),
    Step(title="A pod that fits nowhere is told why", play=pending.play),
    Step(title="The sum", play=overview.add_up),
)


async def tell(
    world: World, terminal: Terminal, steps: Sequence[Step] = STEPS
) -> Step | None:
    """Play the steps; return the one that failed, after saying what was wrong.

    Args:
        world: Fresh.
        terminal: Where to.
        steps: Which; later ones expect what earlier ones leave behind.
    """
    stage = Stage(world=world, terminal=terminal, tally=Tally(), choices={})
    notes = asyncio.create_task(watch_choices(world, stage.choices))
    try:
        for number, step in enumerate(steps, start=1):
            terminal.title(f"{number}  {step.title}")
            problems = await _play(step, stage)
            if problems:
                for problem in problems:
                    terminal.bad(problem)
                terminal.say(f"Step {number} failed: {step.title}", Style.BAD)
                return step
    finally:
        notes.cancel()
        with suppress(asyncio.CancelledError):
            await notes
    return None


async def _play(step: Step, stage: Stage) -> Problems:
    try:
        return await step.play(stage)
    except (NotSeenError, KubectlError, *FAILURES) as error:
        return (str(error) or repr(error),)
