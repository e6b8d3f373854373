"""The cluster that is up; `python -m tests.e2e run` brings one up and comes here."""

from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e import bare, product, releases, truth
from tests.e2e.cluster import Cluster
from tests.e2e.faults import witness
from tests.e2e.faults.chronicle import Chronicle, Story
from tests.e2e.namespaces import Namespace
from tests.e2e.places import POD_LOGS
from tests.e2e.stages import CannotError

#: Python's own leak: `SSLContext.wrap_socket` leaves its socket open when the server
#: reset the connection before the handshake, as one that is killed does. Such a socket
#: has no `raddr`; any other that is left open still fails its test.
_RESET_BEFORE_HANDSHAKE = (
    r"ignore:unclosed <ssl\.SSLSocket fd=\d+, [^()]*laddr=\([^()]*\)>:ResourceWarning"
)
#: Of each log so many lines.
_LINES = {"agent": 120, "extender": 50}
_PROGRAM_LINES = 40
_EVENT_LINES = 50


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let API servers be killed while the official client connects to them."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(_RESET_BEFORE_HANDSHAKE))


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The real cluster of this run."""
    return Cluster.attach()


@pytest.fixture(scope="session")
def mine(cluster: Cluster) -> str:
    """The tag of the image that is installed."""
    return product.build(cluster.places)


@pytest.fixture
def theirs(cluster: Cluster) -> Iterator[str]:
    """The tag of another release's image; afterwards everything is ours again."""
    tag = releases.build_other(cluster.places)
    cluster.load_image(product.archive(cluster.places, tag))
    yield tag
    product.install(cluster)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A namespace of the test's own; pods and chips are back when the test ends."""
    namespace = Namespace.new(cluster, "test")
    yield namespace
    cluster.heal()
    cluster.core.delete_collection_namespaced_pod(namespace.name)
    namespace.wait_empty()
    cluster.core.delete_namespace(namespace.name)
    truth.until_agreed(cluster)


@pytest.fixture
def chronicle(namespace: Namespace) -> Iterator[Chronicle]:
    """What becomes of the namespace's pods, and a new record of their containers.

    Patient containers are told when their pod has been confirmed.
    """
    witness.begin()
    chronicle = Chronicle(namespace)
    chronicle.told.append(_tell_served)
    with chronicle:
        yield chronicle


def _tell_served(story: Story) -> None:
    if story.annotations.get("predicate-time") == truth.SERVED:
        witness.served(story.uid)


@pytest.fixture(autouse=True)
def _healed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed in the middle of a fault does not spoil the next."""
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").heal()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a failure tell all: often nobody can look at the machine any more."""
    report = yield
    if report.failed and "cluster" in getattr(item, "fixturenames", ()):
        with suppress(CannotError):
            report.sections += _sections(Cluster.attach())
    if report.failed:
        for plane in bare.running:
            paths = sorted(plane.places.logs.glob("*.log"))
            report.sections += [(p.stem, _log_end(p, _PROGRAM_LINES)) for p in paths]
    return report


def _sections(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield (title, text): objects, events, and the ends of the logs.

    Whoever cannot be asked is left out: this is called in the middle of a fault.
    """
    yield "pods", _asked(cluster, "get", "pods", "-A", "-o", "wide")
    order = "--sort-by=.metadata.creationTimestamp"
    events = _asked(cluster, "get", "events", "-A", order)
    yield "events", _end(events, _EVENT_LINES)
    report = f"mindx-dl-deviceinfo-{cluster.node}"
    yield "report", _asked(cluster, "describe", "cm", report, "-n", "kube-system")
    for name, count in _LINES.items():
        yield name, _container_logs(name, count)
    for program in (cluster.programs.kubelet, cluster.programs.scheduler):
        yield program.name, program.last_words(_PROGRAM_LINES)


def _asked(cluster: Cluster, *arguments: str) -> str:
    try:
        return cluster.kubectl(*arguments, "--request-timeout=10s")
    except CannotError as error:
        return str(error)


def _container_logs(name: str, count: int) -> str:
    """The last words of the two last containers of a name: it may have been killed."""
    logs = POD_LOGS.glob(f"kube-system_ascend-{name}-*/{name}/*.log")
    found = [path for path in logs if path.is_file()]
    newest = sorted(found, key=lambda path: path.stat().st_mtime)[-2:]
    return "\n".join(f"{path}:\n{_log_end(path, count)}" for path in newest)


def _log_end(path: Path, count: int) -> str:
    return _end(path.read_text(encoding="utf-8", errors="replace"), count)


def _end(text: str, count: int) -> str:
    return "\n".join(text.splitlines()[-count:])
