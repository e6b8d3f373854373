"""Prometheus metrics of the extender; each label has a closed set of values."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.cache.cache import Cache
from extender.gang.job_plan import Phase
from extender.refusals import ExtenderReason
from scheduler_core.explain import fragmentation
from scheduler_core.node.reasons import Reason
from service.metrics import make_counter

#: Seconds; a filter over 5,000 nodes takes milliseconds, a bind waits for the server.
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30)
#: Seconds; a permit ends once the scheduler has sent all binds of a job, or expires.
_WAITS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60)
#: Value of the label `resource` of reservations without a bind or a plan.
RESERVATIONS = "reservations"
#: Values of the label `reason` of refused nodes and binds.
_REASONS = (*Reason, *ExtenderReason)
#: Values of the label `rule`; `extender.shadow.compare.Rule` has their meaning.
_SHADOW_RULES = (
    *("agrees", "job-agrees", "unknown", "node-refused", "node-worse"),
    *("chips-taken", "chips-apart", "chips-worse"),
    *("job-unschedulable", "job-nodes", "job-leaves"),
)
#: Gauges of the cache: {name, a key of `Cache.counts`: help text}.
_CACHE = {
    "sent_binds": "Binds that the pod watch does not show yet.",
    "planned_pods": "Pods of planned jobs with reserved chips.",
    "nominations": "Pods and jobs for which chips are being freed.",
    "moving_jobs": "Jobs with chips that are kept for successors of their pods.",
    "cached_nodes": "Nodes with NPUs.",
    "cached_pods": "Pods that ask for NPUs.",
    "unconfirmed_shapes": "Shapes of pods with unconfirmed claims.",
    "backoff_owners": "Owners that back off, because the kubelet rejects their pods.",
}
#: Gauges whose values other parts give: {name: help text}.
WATCHED = {
    "leading": "1: this extender decides; 0: another does.",
    "evictions_braked": "1 while faults on very many nodes stop evictions for faults.",
    "settings_unusable": "1 while the ConfigMap of settings is wrong and takes no "
    "effect.",
}
#: Gauges by product, which is a closed set: {name: help text}.
_PRODUCTS = {
    "nodes": "Nodes with chips of the product.",
    "healthy_chips": "Healthy chips.",
    "free_chips": "Free chips of nodes that take pods.",
    "fragmentation": "Free chips in pieces too small for requests.",
}


class Metrics(Collector):
    """All metrics of one extender process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics, except those that `watch` adds.

        Metrics of the cache show an empty cache until `watch_cache` is called.
        """
        self._registry = registry
        self._cache = Cache()
        #: {name without prefix: gauge} of gauges that `watch` has made
        self._gauges: dict[str, Gauge] = {}
        self.request_s = Histogram(
            "ascend_extender_request_duration_seconds",
            "Time from the body of a request to its response.",
            ["verb"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.errors = self._counter(
            "requests_failed",
            "Requests that the extender answered with an error.",
            verb=(),
        )
        self.decisions = self._counter(
            "filter_decisions",
            "Filter requests, by whether any node fits.",
            result=("fits", "unschedulable"),
        )
        self.nodes_refused = self._counter(
            "nodes_refused",
            "Nodes that filter refused, by reason, of the calls in which none fits.",
            reason=_REASONS,
        )
        self.conflicts = self._counter(
            "conflicts",
            "Nodes refused for an unlike pod; by filter only if no node fits.",
            verb=("filter", "bind"),
        )
        self.bind_refused = self._counter(
            "binds_refused", "Binds refused, by reason.", reason=_REASONS
        )
        self.evictions = self._counter(
            "evictions",
            "Evictions for pods of higher priority, by result.",
            result=("evicted", "gone", "budget", "failed"),
        )
        self.fault_evictions = self._counter(
            "fault_evictions",
            "Evictions and deletions of pods after faults, by result.",
            result=("evicted", "gone", "budget", "failed"),
        )
        self.shadow = self._counter(
            "shadow_comparisons",
            "Decisions of another scheduler, by rule of the comparison with ours.",
            rule=_SHADOW_RULES,
        )
        self.bound = self._counter("pods_bound", "Pods bound.")
        self.binds_failed = self._counter(
            "binds_failed",
            "Binds that the API server refused or did not answer.",
            reason=("conflict", "gone", "refused", "unclear"),
        )
        self.plans = self._counter(
            "plans",
            "Plans of jobs: made, without a place, and given up.",
            result=("made", "unschedulable", "unreserved"),
        )
        self.permit_wait_s = Histogram(
            "ascend_extender_permit_wait_duration_seconds",
            "Time for which a bind waited for the other pods of its job.",
            ["result"],
            buckets=_WAITS,
            registry=registry,
        )
        self.allocated = self._counter(
            "volcano_allocations", "Pods that Volcano has allocated."
        )
        self.deallocated = self._counter(
            "volcano_deallocations", "Pods whose allocation Volcano has revoked."
        )
        self.api_requests = self._counter(
            "api_requests",
            "Requests to the API server.",
            verb=(),
            resource=(),
            code=(),
        )
        self.resyncs = self._counter(
            "resyncs",
            "Comparisons of a watch with the API server.",
            result=("done", "inconclusive"),
        )
        self.repairs = self._counter(
            "cache_repairs",
            "Objects that were wrong in the cache and are repaired.",
            resource=(
                *("nodes", "pods", "reports", "switches", "settings"),
                RESERVATIONS,
            ),
        )
        self.events_dropped = self._counter(
            "events_dropped", "Events dropped before they were sent."
        )
        for result in ("permitted", "refused", "abandoned"):
            self.permit_wait_s.labels(result)
        registry.register(self)

    def watch_cache(self, cache: Cache) -> None:
        """Let the gauges of the cache count the contents of `cache` from now on."""
        self._cache = cache

    def watch(self, name: str, value: Callable[[], float]) -> None:
        """Let a gauge of `WATCHED` show what `value` returns, from now on."""
        gauge = self._gauges.get(name)
        if gauge is None:
            gauge = self._gauges[name] = Gauge(
                f"ascend_extender_{name}", WATCHED[name], registry=self._registry
            )
        gauge.set_function(value)

    def collect(self) -> Iterator[Metric]:
        """Yield gauges of the cache, jobs by phase, nodes and chips by product.

        Cost:
            One pass over all nodes, jobs and reservations.
        """
        jobs = GaugeMetricFamily(
            "ascend_extender_jobs",
            "Jobs of several pods, by phase.",
            labels=["phase"],
        )
        phases = [
            gang.plan.phase for gang in self._cache.gangs.values() if gang.is_several
        ]
        for phase in Phase:
            jobs.add_metric([phase.name.lower()], phases.count(phase))
        counts = self._cache.counts()
        for name, text in _CACHE.items():
            yield GaugeMetricFamily(
                f"ascend_extender_{name}", text, value=float(counts[name])
            )
        families = {
            name: GaugeMetricFamily(f"ascend_extender_{name}", text, labels=["product"])
            for name, text in _PRODUCTS.items()
        }
        for product, sums in self._products().items():
            for family, value in zip(families.values(), sums, strict=True):
                family.add_metric([product], value)
        yield jobs
        yield from families.values()

    def _products(self) -> dict[str, list[int]]:
        """Return {product: values of its metrics, in the order of `_PRODUCTS`}."""
        products: dict[str, list[int]] = {}
        for node in self._cache.index:
            sums = products.setdefault(node.product.key, [0] * len(_PRODUCTS))
            sums[0] += 1
            sums[1] += node.healthy.bit_count()
            sums[2] += node.free.bit_count() * (not node.barred)
            sums[3] += fragmentation.measure_node(node)
        return products

    def count_request(self, verb: str, resource: str, code: int) -> None:
        """Count a request to the API server.

        Args:
            verb: HTTP method, or WATCH.
            resource: Plural name of the Kubernetes resource.
            code: HTTP status; 0 if there was no answer.
        """
        self.api_requests.labels(verb, resource, str(code)).inc()

    def _counter(self, name: str, text: str, **labels: Iterable[str]) -> Counter:
        name = f"ascend_extender_{name}_total"
        return make_counter(self._registry, name, text, **labels)
