"""The load that most faults meet, and the table of what came of them."""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.e2e import truth
from tests.e2e.cluster import Cluster
from tests.e2e.faults.trial import Load, Outcome, Table, Trial, trial
from tests.e2e.namespaces import Namespace

_KEY = pytest.StashKey[Table]()
_LOAD = pytest.StashKey[Load]()
_HERE = Path(__file__).parent
Try = Callable[..., AbstractContextManager[Trial]]


@pytest.fixture(scope="session")
def load(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Load]:
    """Pods that stay and pods that come and go, for all faults together."""
    namespace = Namespace.new(cluster, "faults")
    # Those who stay fill one ring, if nobody else has chips yet.
    truth.wait_node(cluster, held=(), within_s=120)
    with Load(namespace) as load:
        request.config.stash[_LOAD] = load
        yield load


def _is_under_load(item: pytest.Item) -> bool:
    return item.path.is_relative_to(_HERE) and "load" in item.fixturenames  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the faults that want all chips for themselves behind those during churn."""
    items.sort(
        key=lambda item: item.path.is_relative_to(_HERE) and not _is_under_load(item)
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None]:
    """After the last fault during churn, leave all chips to the tests that follow."""
    yield
    is_last = _is_under_load(item) and not (nextitem and _is_under_load(nextitem))
    if is_last and _LOAD in item.config.stash:
        item.config.stash[_LOAD].leave()


@pytest.fixture(scope="session")
def table(cluster: Cluster, request: pytest.FixtureRequest) -> Table:
    """What came of each fault."""
    table = Table(cluster.places.run / "faults.jsonl")
    request.config.stash[_KEY] = table
    return table


@pytest.fixture
def attempt(load: Load, table: Table) -> Try:
    """Run a fault: `with attempt("name", "what is done") as this`."""

    def begin(fault: str, done: str, **rest: bool) -> AbstractContextManager[Trial]:
        return trial(load, table, fault, done, **rest)

    return begin


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    table = terminalreporter.config.stash.get(_KEY, None)
    if table is None:
        return
    terminalreporter.section("faults")
    for row in table.rows:
        terminalreporter.write_line(_line(row))


def _line(row: Outcome) -> str:
    rejected = ", ".join(f"{count} {name}" for name, count in row.rejected.items())
    return (
        f"| {row.fault} | {row.done} | {row.succeeded} | {rejected or '0'} "
        f"| {len(row.disturbed)} | {len(row.wrong)} | {len(row.doubles)} "
        f"| {row.unconfirmed} | {row.settled_s:g} | {row.remark or row.problem} |"
    )
