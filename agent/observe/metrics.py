"""Prometheus metrics of the agent: their names, labels and units.

Labels have few possible values, and none names a process of the host: whoever reaches
the pod network can read metrics. The metric of processes on releasing chips is cleared
before each update, so that it shows only chips that are releasing.
"""

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from service.metrics import make_counter

#: Allocate takes about 1 ms; 20 s is how long a stopping agent waits for it.
_ALLOCATE_S: Final = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.05,
    0.2,
    1.0,
    2.0,
    5.0,
    20.0,
)
#: A simulated driver's file takes 0.1 ms, 16 real chips 50 ms; after 5 s (a setting)
#: the agent stops waiting.
_DRIVER_S: Final = (0.0005, 0.002, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 10.0)
#: One write takes about 0.1 ms; after 200 ms the agent goes on without it.
_JOURNAL_S: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.01, 0.05, 0.2, 1.0)
#: A rollout may leave a node without a plugin for 15 s.
_GAP_S: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0)
#: The goal from a fault to the ConfigMap is 1 s.
_PUBLISH_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0)


class Metrics:
    """Prometheus metrics of one agent, as attributes for the code that sets them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create all metrics and register them.

        Args:
            registry: Prometheus registry that `/metrics` exposes. It accepts each
                metric name only once, so it must not have the agent's metrics yet.
        """
        self._registry = registry
        self._rollout()
        self._claims_and_holds()
        self._chips()
        self._outside()

    def _rollout(self) -> None:
        self.ready = self._gauge("ready", "1 while /readyz says ok.")
        self.device_list_watched = self._gauge(
            "device_list_watched", "1 while the kubelet watches our device list."
        )
        self.pod_resources_unanswered = self._gauge(
            "pod_resources_unanswered",
            "1 while the kubelet does not say which pod has which chips.",
        )
        self.registrations = self._counter(
            "registrations", "Registrations that the kubelet accepted."
        )
        self.registration_gap_s = self._histogram(
            "registration_gap_seconds",
            "From the start, or the end of a registration, to the next one.",
            _GAP_S,
        )

    def _claims_and_holds(self) -> None:
        self.claims = self._gauge("claims", "Claims of pods on this node.", "state")
        self.holds = self._gauge("holds", "Holds of chips on this node.", "state")
        self.identity = self._counter(
            "allocate_identity",
            "How the pod of an Allocate was identified.",
            identity=("steered", "oldest", "corrected", "rechosen"),
        )
        self.allocate_s = self._histogram(
            "allocate_duration_seconds",
            "From Allocate's request to its answer.",
            _ALLOCATE_S,
        )
        self.allocate_refused = self._counter(
            "allocate_refused", "Allocates that were refused."
        )
        self.journal_s = self._histogram(
            "journal_write_duration_seconds", "One write of the journal.", _JOURNAL_S
        )
        self.journal_failures = self._counter(
            "journal_failures", "Writes of the journal that failed or took too long."
        )
        self.journal_old = self._gauge(
            "journal_old", "1 while the journal on disk lacks holds."
        )

    def _chips(self) -> None:
        self.chips = self._gauge("chips", "Chips of this node.", "condition")
        self.releasing = self._gauge(
            "releasing_chip_processes",
            "Processes that keep a chip without a pod from being free.",
            "chip",
        )
        self.health_transitions = self._counter(
            "health_transitions",
            "Changes of chips into a condition.",
            condition=("healthy", "unhealthy", "network-unhealthy", "recovering"),
        )
        self.fault_config_unusable = self._gauge(
            "fault_config_unusable",
            "1 while a part of the cluster's fault configuration is not understood.",
        )
        self.driver_read_s = self._histogram(
            "driver_read_duration_seconds", "One reading of the hardware.", _DRIVER_S
        )
        self.driver_failures = self._counter(
            "driver_failures",
            "Readings of the hardware that failed or took too long.",
        )
        self.driver_stale = self._gauge(
            "driver_stale", "1 while the hardware cannot be read."
        )
        self.driver_last_read_s = self._gauge(
            "driver_last_read_timestamp_seconds",
            "When the hardware was read last, in Unix time.",
        )

    def _outside(self) -> None:
        self.events_dropped = self._counter(
            "events_dropped", "Events that the API server did not get."
        )
        self.watch_restarts = self._counter(
            "watch_restarts",
            "Watches that ended and were begun again.",
            resource=("pods", "nodes", "reports", "fault-config"),
        )
        self.watch_event_age_s = self._gauge(
            "watch_event_age_seconds",
            "Time since the last data of a watch, bookmarks included.",
            "resource",
        )
        self.api_server_unanswered = self._gauge(
            "api_server_unanswered", "1 while the API server does not answer."
        )
        self.api_server_refused = self._gauge(
            "api_server_refused", "1 while the API server refuses what we need."
        )
        self.api_requests = self._counter(
            "api_requests",
            "Requests to the API server; code 0: no answer.",
            verb=(),
            resource=(),
            code=(),
        )
        self.published_s = self._histogram(
            "report_publish_duration_seconds",
            "From a change on the node to its ConfigMap.",
            _PUBLISH_S,
        )
        self.report_writes = self._counter(
            "report_writes",
            "Writes of the node's ConfigMap.",
            result=("written", "failed"),
        )
        self.report_restored = self._counter(
            "report_restored", "ConfigMaps restored after another writer's change."
        )
        self.rival = self._gauge(
            "rival", "1 while another program does this agent's work.", "kind"
        )

    def count_request(self, verb: str, resource: str, code: int) -> None:
        """Count one request to the API server by verb, resource and HTTP status code.

        `kube.client.Client` calls it after each request. Code 0 means that there was no
        answer.
        """
        self.api_requests.labels(verb, resource, str(code)).inc()

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"ascend_agent_{name}", text, labels, registry=self._registry)

    def _counter(self, name: str, text: str, **labels: Iterable[str]) -> Counter:
        name = f"ascend_agent_{name}_total"
        return make_counter(self._registry, name, text, **labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"ascend_agent_{name}", text, buckets=buckets, registry=self._registry
        )
