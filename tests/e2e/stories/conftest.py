"""One world for all stories; each begins with no job."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.e2e.stories.history import History
from tests.e2e.stories.story import Story
from tests.e2e.stories.world import World, running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world() -> AsyncIterator[World]:
    """Controllers, scheduler and our extender."""
    async with running() as world:
        yield world


@pytest_asyncio.fixture(loop_scope="session")
async def story(world: World) -> AsyncIterator[Story]:
    """A story of a test's own, with nothing but nodes."""
    history = History(world.api, world.kinds)
    story = Story(world, history)
    await history.begun()
    try:
        yield story
    finally:
        await story.clear()
