"""Metrics of the registrations of the device plugins for whole chips."""

from collections.abc import Callable

from agent.observe.metrics import Metrics


class Registration:
    """Observer that counts the registrations of a device plugin and times the gaps.

    A gap is the time during which the plugin is not registered with the kubelet.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        """Start as not registered with the kubelet, so a first gap begins now.

        Args:
            metrics: Metrics of the agent.
            clock: Monotonic. Unit: seconds.
        """
        self._metrics = metrics
        self._clock = clock
        self._unregistered_at: float | None = clock()

    def registered(self) -> None:
        """Count a registration that the kubelet accepted, and end the gap before it.

        A gap is the time without a registration. Its length goes to the metric
        `registration_gap_seconds`.
        """
        self._metrics.registrations.inc()
        if self._unregistered_at is not None:
            gap_s = self._clock() - self._unregistered_at
            self._metrics.registration_gap_s.observe(gap_s)
        self._unregistered_at = None

    def unregistered(self) -> None:
        """Begin a gap (time without a registration), unless one has begun already."""
        if self._unregistered_at is None:
            self._unregistered_at = self._clock()
