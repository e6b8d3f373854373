"""What the extender counts, for Prometheus; labels from closed sets only."""

from collections.abc import Callable, Sized
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from extender import gangs
from extender.cache import Cache
from extender.leading import Phase
from kube.events import Recorder

#: Seconds; a filter over 5,000 nodes takes milliseconds, a bind waits for the API.
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30)


class Metrics:
    """All metrics of one extender."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them; whose sizes are shown follows with `watch_cache`."""
        self._registry = registry
        self._cache = Cache()
        self._recorder: Recorder | None = None
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
        self.allocated = self._counter(
            "volcano_allocations", "Pods that Volcano has allocated."
        )
        self.given_back = self._counter(
            "volcano_returns", "Pods that Volcano has taken back."
        )
        self.api_requests = self._counter(
            "api_requests", "Requests to the API server.", "verb", "resource", "code"
        )
        self._show_sizes()

    def watch_cache(self, cache: Cache) -> None:
        """Show the sizes of this cache from now on, whenever someone asks."""
        self._cache = cache

    def watch_events(self, recorder: Recorder) -> None:
        """Show how many events on pods this recorder has lost."""
        self._recorder = recorder

    def watch_election(self, phase: Callable[[], Phase]) -> None:
        """Show how far this extender is in the election of the one that decides."""
        self._show(
            "leading",
            "1: this extender decides; 0: another does.",
            lambda: float(phase() is Phase.LEADING),
        )

    def _show_sizes(self) -> None:
        self._show(
            "assumed_binds",
            "Binds that no watch shows yet.",
            lambda: float(sum(not p.planned for p in self._cache.assumed.values())),
        )
        self._show(
            "planned_pods",
            "Pods of planned jobs whose chips are kept.",
            lambda: float(sum(p.planned for p in self._cache.assumed.values())),
        )
        jobs = Gauge(
            "ascend_extender_jobs",
            "Jobs of several pods, by how far they are.",
            ["phase"],
            registry=self._registry,
        )
        for far in gangs.Phase:
            jobs.labels(far.name.lower()).set_function(partial(self._jobs, far))
        self._gauge(
            "rooms",
            "Pods and jobs for which chips are being freed.",
            lambda: self._cache.rooms,
        )
        self._gauge("cached_nodes", "Nodes with NPUs.", lambda: self._cache.cluster)
        self._gauge("cached_pods", "Pods that ask for NPUs.", lambda: self._cache.pods)
        self._gauge(
            "waiting_shapes",
            "Shapes with unserved claims.",
            lambda: self._cache.waiting,
        )
        self._gauge(
            "rejected_owners", "Owners with rejected pods.", lambda: self._cache.storms
        )
        self._show(
            "events_dropped",
            "Events lost.",
            lambda: float(self._recorder.dropped if self._recorder else 0),
        )

    def _jobs(self, far: gangs.Phase) -> float:
        return float(self._cache.gangs.counts()[far])

    def watch_settings(self, is_unusable: Callable[[], bool]) -> None:
        """Show whether the ConfigMap of settings could be read."""
        self._show(
            "settings_unusable",
            "1 while the ConfigMap of settings is there and takes no effect.",
            lambda: float(is_unusable()),
        )

    def count_request(self, verb: str, resource: str, code: int) -> None:
        """Count a request to the API server; code 0: no answer."""
        self.api_requests.labels(verb, resource, str(code)).inc()

    def _show(self, name: str, text: str, value: Callable[[], float]) -> None:
        found = Gauge(f"ascend_extender_{name}", text, registry=self._registry)
        found.set_function(value)

    def _gauge(self, name: str, text: str, sized: Callable[[], Sized]) -> None:
        self._show(name, text, lambda: float(len(sized())))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(
            f"ascend_extender_{name}_total", text, labels, registry=self._registry
        )
