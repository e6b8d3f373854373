"""What is the matter with the chips: each reading, judged, and what follows from it.

driver -> judged by the fault configuration -> health -> ledger
"""

from collections.abc import Callable

from agent.claims import values
from agent.claims.events import ChipsRead
from agent.current import Current
from agent.devices.reading import Reading
from agent.devices.source import Observation
from agent.faults import rules
from agent.faults.judging import judged
from agent.faults.rules import FaultConfig
from agent.health import Health, Look, step
from agent.observe.metrics import Metrics
from agent.observe.news import News
from scheduler_core import chips as chip_sets


class Diagnosis:
    """Protects the health of the chips, and what the cluster says about faults."""

    def __init__(
        self,
        current: Current,
        *,
        reading: Reading,
        recover_s: float,
        news: News,
        metrics: Metrics,
        loop_s: Callable[[], float],
    ) -> None:
        """Take a first look.

        Args:
            current: The ledger, which is told of chips that cannot be given out.
            reading: The first look at the hardware.
            recover_s: The hold-off. Unit: seconds.
            news: Who is told of changes.
            metrics: What is counted.
            loop_s: The event loop's clock.
        """
        self._current = current
        self._recover_s = recover_s
        self._news = news
        self._metrics = metrics
        self._loop_s = loop_s
        self._config: FaultConfig = rules.DEFAULT
        #: As the driver gave it.
        self._raw = reading
        #: With the levels of all faults.
        self.reading = reading
        self.health = Health()

    def observed(self, seen: Observation) -> None:
        """Take in a look at the hardware."""
        self._metrics.driver_stale.set(seen.is_stale)
        self._news.driver(seen.problem)
        if seen.reading is None or seen.is_stale:
            return
        self._raw = seen.reading
        self.look()

    def configured(self, config: FaultConfig) -> None:
        """Judge by another fault configuration from now on."""
        self._config = config
        self.look()

    def look(self) -> None:
        """Judge what was read last, and tell the ledger what it has to know."""
        before = self.reading
        self.reading = judged(self._raw, self._config.table)
        look = Look(
            reading=self.reading,
            in_use=frozenset(chip_sets.ids_of(values.held(self._current.ledger))),
            recover_s=self._recover_s,
        )
        self.health, transitions = step(self.health, look, self._loop_s())
        self._news.transitions(transitions, self.health)
        event = ChipsRead(
            unhealthy=chip_sets.mask_of(
                set(self.health.chips) - set(self.health.in_service)
            ),
            busy=chip_sets.mask_of(use.chip for use in self.reading.processes),
        )
        ledger = self._current.ledger
        if (event.unhealthy, event.busy) != (ledger.unhealthy, ledger.busy):
            self._current.apply(event)
        elif transitions or before != self.reading:
            self._current.wake()  # the report says more than the ledger
