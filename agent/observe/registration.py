"""Observers that a device plugin notifies of registrations and of rival plugins.

A rival is another device plugin that serves the same resource on the node.
"""

from collections.abc import Callable

from agent.observe.metrics import Metrics


class Registration:
    """Observer that counts the registrations of a device plugin and times the gaps.

    A gap is the time during which the plugin is not registered with the kubelet.
    """

    def __init__(
        self,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        on_rival: Callable[[str], None],
    ) -> None:
        """Start as not registered with the kubelet, so a first gap begins now.

        Args:
            metrics: Metrics of the agent.
            clock: Monotonic. Unit: seconds.
            on_rival: Called with a sentence about another plugin that serves the same
                resource, and with "" if there is none.
        """
        self._metrics = metrics
        self._clock = clock
        self._unregistered_at: float | None = clock()
        self.rival = on_rival

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


class NoObserver:
    """Observer of a plugin for virtual devices (shares of a chip); it counts nothing.

    It only passes on rivals, other device plugins that serve the same resource. The
    metrics of registrations count only the plugins for whole chips.
    """

    def __init__(self, on_rival: Callable[[str], None]) -> None:
        self.rival = on_rival

    def registered(self) -> None:
        """Do nothing, because the plugin's gRPC server has logged the registration."""

    def unregistered(self) -> None:
        """Do nothing, because the plugin's gRPC server has logged the reason."""
