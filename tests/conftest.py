"""What all tests share."""

import asyncio
import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import process_state

# Before Python 3.12 the first look at "the current loop" makes one that nobody
# closes; its warning would then fail whichever test runs when it is collected.
asyncio.set_event_loop(None)

# How long an example takes is the machine's business; benchmarks/ measures. `make
# properties` takes more examples of each test that names no number of its own.
settings.register_profile(
    "no-clock",
    deadline=None,
    max_examples=int(os.environ.get("PROPERTY_EXAMPLES", "25")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("no-clock")

_STATE = pytest.StashKey[process_state.State]()
#: One cluster for all of them: each test finds it as the one before has left it.
_IN_WRITTEN_ORDER = str(Path(__file__).parent / "e2e") + "/"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Golden files: texts that other programs read, kept as they were reviewed."""
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while a million objects come that stay: modules and tests.

    They are not frozen: each check of a test's process counts what is, one by one.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Put tests of the real cluster back into their order, after the shuffle."""
    written = [item for item in items if _is_on_cluster(item)]
    yield
    ranks = {item: rank for rank, item in enumerate(written)}
    items.sort(key=lambda item: ranks.get(item, -1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to repeat the run; with `-q` nobody else does."""
    seed = terminalreporter.config.getoption("randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"To repeat this order: make test SEED={seed}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Remember the process as the test finds it.

    Not on the real cluster: its fixtures of a whole file start programs and threads.
    """
    if not _is_on_cluster(item):
        item.stash[_STATE] = process_state.state()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail a test that leaves its process in another state than it found."""
    yield
    before = item.stash.get(_STATE, None)
    if before is not None and (left := process_state.left(before)):
        lines = (f"{kind}: {change}" for kind, change in left.items())
        sentence = f"{item.nodeid} has changed its process and not put it back:"
        pytest.fail("\n  ".join((sentence, *lines)), pytrace=False)


def _is_on_cluster(item: pytest.Item) -> bool:
    return str(item.path).startswith(_IN_WRITTEN_ORDER)


@pytest.fixture
def collector() -> Iterator[tuple[int, int, int]]:
    """Return the collector's thresholds; put back what an extender makes of it."""
    before = gc.get_threshold()
    yield before
    gc.unfreeze()
    gc.set_threshold(*before)
