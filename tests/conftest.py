"""What all tests share."""

import asyncio
import gc
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import process_state

# Before Python 3.12 the first look at "the current loop" makes one that nobody
# closes; its warning would then fail whichever test runs when it is collected.
asyncio.set_event_loop(None)

# How long an example takes is the machine's business; benchmarks/ measures.
settings.register_profile(
    "no-clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("no-clock")

_STATE = pytest.StashKey[process_state.State]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Golden files: texts that other programs read, kept as they were reviewed."""
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Remember the process as the test finds it."""
    item.stash[_STATE] = process_state.state()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail a test that leaves its process in another state than it found."""
    yield
    left = process_state.left(item.stash[_STATE])
    if left:
        lines = (f"{kind}: {change}" for kind, change in left.items())
        sentence = f"{item.nodeid} has changed its process and not put it back:"
        pytest.fail("\n  ".join((sentence, *lines)), pytrace=False)


@pytest.fixture
def collector() -> Iterator[tuple[int, int, int]]:
    """Return the collector's thresholds; put back what an extender makes of it."""
    before = gc.get_threshold()
    yield before
    gc.unfreeze()
    gc.set_threshold(*before)
