"""What the extender counts, for Prometheus; labels from closed sets only."""

import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.cache.cache import Cache
from extender.election.lease import Phase
from kube.events import Recorder
from scheduler_core.explain import fragmentation

#: Seconds; a filter over 5,000 nodes takes milliseconds, a bind waits for the API.
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30)
#: Seconds; a gate is open as soon as the scheduler has sent all binds, or shut.
_WAITS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60)
#: By kind of server, which is a closed set: {name: what it says}.
_POOLS = {
    "pool_nodes": "Nodes, by kind of server.",
    "pool_healthy_chips": "Healthy chips.",
    "pool_free_chips": "Free chips of nodes that take pods.",
    "pool_fragmentation": "Pieces of free room too small for what they could serve.",
}


class Metrics(Collector):
    """All metrics of one extender."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them; whose sizes are shown follows with `watch_cache`."""
        self._registry = registry
        self._cache = Cache()
        #: {name: what shows a value}
        self._gauges: dict[str, Gauge] = {}
        self.request_s = Histogram(
            "ascend_extender_request_seconds",
            "Time from a request's body to its answer.",
            ["verb"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.errors = self._counter(
            "requests_failed", "Requests answered with an error of ours.", "verb"
        )
        self.decisions = self._counter(
            "filter_decisions", "Pods filtered: some node fits, or none.", "result"
        )
        self.refused_nodes = self._counter(
            "refused_nodes", "Nodes that filter refused, by reason.", "reason"
        )
        self.conflicts = self._counter(
            "conflicts", "Nodes avoided or refused for an unlike pod.", "verb"
        )
        self.bind_refused = self._counter(
            "binds_refused", "Binds refused, by reason.", "reason"
        )
        self.evictions = self._counter(
            "evictions", "Pods to be evicted for others, by what came of it.", "outcome"
        )
        self.shadow = self._counter(
            "shadow",
            "Decisions of another scheduler, by what we say of them.",
            "rule",
        )
        self.bound = self._counter("pods_bound", "Pods bound.")
        self.binds_failed = self._counter(
            "binds_failed", "Binds that the API server did not do, or not say.", "why"
        )
        self.plans = self._counter(
            "plans", "Jobs planned, without room, and plans given back.", "result"
        )
        self.gate_wait_s = Histogram(
            "ascend_extender_gate_wait_seconds",
            "Time for which a bind waited for the other pods of its job.",
            ["result"],
            buckets=_WAITS,
            registry=registry,
        )
        self.allocated = self._counter(
            "volcano_allocations", "Pods that Volcano has allocated."
        )
        self.given_back = self._counter(
            "volcano_returns", "Pods that Volcano has taken back."
        )
        self.api_requests = self._counter(
            "api_requests", "Requests to the API server.", "verb", "resource", "code"
        )
        self.sweeps = self._counter(
            "sweeps", "Comparisons of a watch with the API server.", "result"
        )
        self.repairs = self._counter(
            "cache_repairs", "Objects of which something wrong was known.", "resource"
        )
        self.watch_cache(self._cache)
        registry.register(self)

    def watch_cache(self, cache: Cache) -> None:
        """Show the sizes of this cache from now on, whenever someone asks."""
        self._cache = cache
        self._show(
            "assumed_binds",
            "Binds that no watch shows yet.",
            lambda: float(sum(not p.planned for p in cache.assumed.values())),
        )
        self._show(
            "planned_pods",
            "Pods of planned jobs whose chips are kept.",
            lambda: float(sum(p.planned for p in cache.assumed.values())),
        )
        self._gauge(
            "rooms", "Pods and jobs for which chips are being freed.", cache.rooms
        )
        self._gauge("cached_nodes", "Nodes with NPUs.", cache.cluster)
        self._gauge("cached_pods", "Pods that ask for NPUs.", cache.pods)
        self._gauge("waiting_shapes", "Shapes with unserved claims.", cache.waiting)
        self._gauge("rejected_owners", "Owners with rejected pods.", cache.storms)

    def watch_events(self, recorder: Recorder) -> None:
        """Show how many events on pods this recorder has lost."""
        self._show("events_dropped", "Events lost.", lambda: float(recorder.dropped))

    def watch_election(self, phase: Callable[[], Phase]) -> None:
        """Show how far this extender is in the election of the one that decides."""
        self._show(
            "leading",
            "1: this extender decides; 0: another does.",
            lambda: float(phase() is Phase.LEADING),
        )

    def collect(self) -> Iterator[Metric]:
        """Count what is there by kind, in one pass over all nodes and jobs."""
        jobs = GaugeMetricFamily(
            "ascend_extender_jobs",
            "Jobs of several pods, by how far they are.",
            labels=["phase"],
        )
        for far, count in self._cache.gangs.counts().items():
            jobs.add_metric([far.name.lower()], count)
        pools = {
            name: GaugeMetricFamily(f"ascend_extender_{name}", text, labels=["pool"])
            for name, text in _POOLS.items()
        }
        for pool, sums in self._pools().items():
            for family, value in zip(pools.values(), sums, strict=True):
                family.add_metric([pool], value)
        yield jobs
        yield from pools.values()

    def _pools(self) -> dict[str, list[int]]:
        """{kind of server: values in the order of `_POOLS`}."""
        found: dict[str, list[int]] = {}
        for node in self._cache.cluster:
            sums = found.setdefault(node.product.key, [0] * len(_POOLS))
            sums[0] += 1
            sums[1] += node.healthy.bit_count()
            sums[2] += node.free.bit_count() * (not node.barred)
            sums[3] += fragmentation.of_node(node)
        return found

    def watch_settings(self, is_unusable: Callable[[], bool]) -> None:
        """Show whether the ConfigMap of settings could be read."""
        self._show(
            "settings_unusable",
            "1 while the ConfigMap of settings is there and takes no effect.",
            lambda: float(is_unusable()),
        )

    @contextmanager
    def waiting_at_gate(self) -> Iterator[Callable[[str | None], str | None]]:
        """Measure a wait; yields what is to be told its end, and says the same."""
        start_s = time.perf_counter()
        result = "left"

        def ended(said: str | None) -> str | None:
            nonlocal result
            result = "opened" if said is None else "refused"
            return said

        try:
            yield ended
        finally:
            waited_s = time.perf_counter() - start_s
            self.gate_wait_s.labels(result).observe(waited_s)

    def count_request(self, verb: str, resource: str, code: int) -> None:
        """Count a request to the API server; code 0: no answer."""
        self.api_requests.labels(verb, resource, str(code)).inc()

    def _show(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a value from now on, instead of an earlier term's of that name."""
        found = self._gauges.get(name)
        if found is None:
            found = Gauge(f"ascend_extender_{name}", text, registry=self._registry)
            self._gauges[name] = found
        found.set_function(value)

    def _gauge(self, name: str, text: str, sized: Sized) -> None:
        self._show(name, text, lambda: float(len(sized)))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(
            f"ascend_extender_{name}_total", text, labels, registry=self._registry
        )
