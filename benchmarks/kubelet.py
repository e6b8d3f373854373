"""What our plugin costs a pod on a real node: the cluster of `make e2e-up`.

In turn, a pod that asks for no chip and a pod with one: from its creation until the
API server shows its container running. Allocate is timed by the kubelet itself.
"""

import re
import ssl
import urllib.request
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import kubernetes.watch

from benchmarks.table import Row
from tests.e2e.cluster import Cluster
from tests.e2e.configurations import RESOURCE
from tests.e2e.pods import pod

NAMESPACE = "default"
ROUNDS = 50
WARM_UP = 3
GOAL_MS = 10
_LONGEST_S = 120
#: The kubelet's own histogram of Allocate calls.
_HISTOGRAM = "kubelet_device_plugin_alloc_duration_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocates:
    """Allocate calls by the kubelet's count."""

    count: int
    #: no longer than the goal
    fast_count: int
    sum_s: float


def rows() -> list[Row]:
    """Measure on the cluster that is up. Takes about five minutes."""
    cluster = Cluster.attach()
    plain_s: list[float] = []
    npu_s: list[float] = []
    before = _allocates(cluster)
    for number in range(-WARM_UP, ROUNDS):
        for chips, seconds in ((0, plain_s), (1, npu_s)):
            took = _run(cluster, chips)
            if number >= 0:
                seconds.append(took)
    after = _allocates(cluster)
    return [_start_row(plain_s, npu_s), _allocate_row(before, after)]


def _start_row(plain_s: list[float], npu_s: list[float]) -> Row:
    ratio = median(npu_s) / median(plain_s)
    return Row(
        figure="pod created to container running, with a chip over without, medians",
        goal="≤ 1.1",
        value=f"{ratio:.2f} ({median(npu_s):.2f} s over {median(plain_s):.2f} s)",
        passed=ratio <= 1.1,
    )


def _allocate_row(before: Allocates, after: Allocates) -> Row:
    count = after.count - before.count
    fast_count = after.fast_count - before.fast_count
    mean_ms = 1000 * (after.sum_s - before.sum_s) / count
    return Row(
        figure="Allocate as the kubelet sees it, p99",
        goal=f"≤ {GOAL_MS} ms",
        value=f"{fast_count} of {count} within {GOAL_MS} ms, mean {mean_ms:.1f} ms",
        passed=fast_count >= 0.99 * count,
    )


def _run(cluster: Cluster, chips: int) -> float:
    """Have a pod run once; seconds from its creation until it was seen running."""
    name = f"bench-{chips}"
    version = cluster.core.list_namespaced_pod(NAMESPACE).metadata.resource_version
    begun = perf_counter()
    cluster.core.create_namespaced_pod(NAMESPACE, pod(name, chips))
    _wait(cluster, name, version, lambda event: _is_running(event["object"]))
    took = perf_counter() - begun
    version = cluster.core.list_namespaced_pod(NAMESPACE).metadata.resource_version
    cluster.core.delete_namespaced_pod(name, NAMESPACE)
    _wait(cluster, name, version, lambda event: event["type"] == "DELETED")
    return took


def _wait(cluster: Cluster, name: str, version: str, is_there: Any) -> None:
    watch: Any = kubernetes.watch.Watch()  # type: ignore[no-untyped-call]
    for event in watch.stream(
        cluster.core.list_namespaced_pod,
        NAMESPACE,
        field_selector=f"metadata.name={name}",
        resource_version=version,
        timeout_seconds=_LONGEST_S,
    ):
        if is_there(event):
            watch.stop()
            return
    raise TimeoutError(f"{name}: nothing seen within {_LONGEST_S} s")


def _is_running(found: Any) -> bool:
    if found.status.phase in {"Failed", "Succeeded"}:
        raise RuntimeError(f"{found.metadata.name} has ended: {found.status.message}")
    statuses = found.status.container_statuses or []
    return bool(statuses) and all(each.state.running for each in statuses)


def _allocates(cluster: Cluster) -> Allocates:
    """Read the kubelet's histogram; it is absent before the first Allocate."""
    request = urllib.request.Request(f"{cluster.kubelet_url}/metrics")  # noqa: S310  # https
    request.add_header("Authorization", f"Bearer {cluster.token}")
    # The kubelet makes its own certificate.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with urllib.request.urlopen(request, context=context) as answer:  # noqa: S310  # https
        text = answer.read().decode()
    label = f'resource_name="{re.escape(RESOURCE)}"'

    def value(suffix: str, labels: str) -> float:
        line = rf"^{_HISTOGRAM}_{suffix}{{{labels}}} (\S+)$"
        found = re.search(line, text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    bound = GOAL_MS / 1000
    return Allocates(
        count=int(value("count", label)),
        fast_count=int(value("bucket", f'{label},le="{bound:g}"')),
        sum_s=value("sum", label),
    )
