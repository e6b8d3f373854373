"""Observers of a plugin's registration with the kubelet: counted, or only logged."""

import logging
from collections.abc import Callable

from agent.observe import log as keys
from agent.observe.metrics import Metrics

log = logging.getLogger(__name__)


class Registration:
    """Metrics of the registration of one product line, and of the gaps between two."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        on_rival: Callable[[str], None],
    ) -> None:
        """Begin as unregistered.

        Args:
            metrics: Of the agent.
            clock: Monotonic. Unit: seconds.
            on_rival: Called with a sentence about the rival; with "" without one.
        """
        self._metrics = metrics
        self._clock = clock
        self._unregistered_at: float | None = clock()
        self.rival = on_rival

    def registered(self) -> None:
        """Count a registration that the kubelet took, and the gap before it."""
        self._metrics.registrations.inc()
        if self._unregistered_at is not None:
            gap_s = self._clock() - self._unregistered_at
            self._metrics.registration_gap_s.observe(gap_s)
        self._unregistered_at = None

    def unregistered(self) -> None:
        """Start measuring the gap until the next registration."""
        if self._unregistered_at is None:
            self._unregistered_at = self._clock()


class NoObserver:
    """Observer of a plugin for virtual devices: logs rivals and counts nothing.

    The metrics of registration are those of the plugins for whole chips.
    """

    def registered(self) -> None:
        """Do nothing: the plugin's server has logged it."""

    def unregistered(self) -> None:
        """Do nothing: the plugin's server has logged why."""

    @property
    def rival(self) -> Callable[[str], None]:
        """Callback for a sentence about the rival; "" without one."""
        return self._rival

    @staticmethod
    def _rival(text: str) -> None:
        if text:
            log.error("rival", extra={keys.REASON: text})
