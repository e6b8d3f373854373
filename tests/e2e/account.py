"""What had happened when a test failed: all that a reader of its output alone needs."""

from collections.abc import Iterator
from pathlib import Path

from tests.e2e.bare import BareCluster
from tests.e2e.cluster import Cluster
from tests.e2e.places import POD_LOGS
from tests.e2e.stages import CannotError

#: Of each log so many lines.
_LINES = {"agent": 120, "extender": 50}
_PROGRAM_LINES = 40
_EVENT_LINES = 50


def sections(cluster: Cluster) -> Iterator[tuple[str, str]]:
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


def logs(cluster: BareCluster) -> Iterator[tuple[str, str]]:
    """Yield (name, end of its log) of each program of a control plane."""
    for path in sorted(cluster.places.logs.glob("*.log")):
        yield path.stem, _log_end(path, _PROGRAM_LINES)


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
