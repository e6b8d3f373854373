"""How do we stand with the kubelet: what the plugin's server tells, counted."""

import logging
from collections.abc import Callable

from agent.observe import log as keys
from agent.observe.metrics import Metrics

log = logging.getLogger(__name__)


class Standing:
    """Protects since when the kubelet has no registration of ours."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        on_rival: Callable[[str], None],
    ) -> None:
        """Be unregistered from now on.

        Args:
            metrics: Where it is counted.
            clock: Monotonic. Unit: seconds.
            on_rival: Told who else serves our resource, in a sentence; "" for nobody.
        """
        self._metrics = metrics
        self._clock = clock
        self._unregistered_at: float | None = clock()
        self.rival = on_rival

    def registered(self) -> None:
        """The kubelet has taken us."""
        self._metrics.registrations.inc()
        if self._unregistered_at is not None:
            gap_s = self._clock() - self._unregistered_at
            self._metrics.registration_gap_s.observe(gap_s)
        self._unregistered_at = None

    def unregistered(self) -> None:
        """We have given the registration up."""
        if self._unregistered_at is None:
            self._unregistered_at = self._clock()


class Quiet:
    """Who hears of a plugin beside the one for whole chips: the log alone.

    What is counted of registrations is that of the chips.
    """

    def registered(self) -> None:
        """The kubelet has taken the plugin; its server has logged it."""

    def unregistered(self) -> None:
        """The registration was given up; its server has logged why."""

    @property
    def rival(self) -> Callable[[str], None]:
        """Told who else serves the resource, in a sentence; "" for nobody."""
        return self._rival

    @staticmethod
    def _rival(text: str) -> None:
        if text:
            log.error("rival", extra={keys.REASON: text})
