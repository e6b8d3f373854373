"""Pass each result of reading the driver to the metrics and to each product line."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.devices.poller import Observation
from agent.health.conditions import UNREAD_S
from agent.monitor.chips import ChipMonitor
from agent.monitor.parts import PartMonitor
from agent.observe.metrics import Metrics
from agent.observe.problems import Problems, Subject
from service import clock

#: Why a reading is old that the driver gave: what it has asked since is not known yet.
_SLOW = f"the look at the chips lasts for more than {UNREAD_S:g} s"


class DriverMonitor:
    """Receiver of the results of reading the driver, for all product lines of the node.

    While no chip can be read, the conditions of all chips stay, and `stale_since_ms`
    says from when they are. Its attribute `changed_row` says what shows that the node
    has to be served by other rows of the product table. Its event `begins_anew` is set
    when all is read on which those rows depend.
    """

    def __init__(
        self,
        chip_monitors: Sequence[ChipMonitor | PartMonitor],
        *,
        problems: Problems,
        metrics: Metrics,
        loop_s: Callable[[], float],
    ) -> None:
        self._chip_monitors = chip_monitors
        self._problems = problems
        self._metrics = metrics
        self._loop_s = loop_s
        self._last = Observation()
        #: What contradicts the rows that are served; "" when nothing does.
        self.changed_row = ""
        self.begins_anew = asyncio.Event()

    def observe(self, observation: Observation) -> bool:
        """Pass one result of reading the driver to the metrics and the chip monitors.

        Each chip monitor gets the whole observation, and takes the chips of its product
        line from it. Monitors of parts come after them, and ask them.

        Returns:
            Whether a chip monitor needs another result soon, even if the driver reports
            no change.
        """
        if self._age_s(observation) >= UNREAD_S and not observation.is_stale:
            problem = observation.problem or _SLOW
            observation = replace(observation, problem=problem, is_stale=True)
        self._announce(observation)
        if observation.took_s is not None:
            self._metrics.driver_read_s.observe(observation.took_s)
        if observation.is_stale:
            self._metrics.driver_failures.inc()
        reading = observation.reading
        if reading is not None and not observation.is_stale:
            self._problems.tell(Subject.PRODUCT_ROW, reading.changed_row)
            self.changed_row = reading.changed_row
            if reading.begins_anew:
                self.begins_anew.set()
        if self._is_old():
            for monitor in self._chip_monitors:
                monitor.lose_driver()
        needs_more = [monitor.observe(observation) for monitor in self._chip_monitors]
        return any(needs_more)

    @property
    def stale_since_ms(self) -> int | None:
        """Unix milliseconds of the last reading, if it is old; None if it is not."""
        reading = self._last.reading
        return reading.read_ms if reading and self._last.is_stale else None

    def _is_old(self) -> bool:
        """Whether no chip can be read for UNREAD_S."""
        return self._last.is_stale and self._age_s(self._last) >= UNREAD_S

    def _age_s(self, observation: Observation) -> float:
        reading = observation.reading
        return 0.0 if reading is None else self._loop_s() - reading.read_s

    def _announce(self, observation: Observation) -> None:
        """Store the observation, and tell what cannot be read and since when."""
        self._last, problem = observation, observation.problem
        tell, reading = self._problems.tell, observation.reading
        tell(Subject.DRIVER, problem if observation.is_stale else "")
        if not observation.is_stale:
            tell(Subject.CHIPS, problem)
        text = ""
        if reading is not None:
            self._metrics.driver_last_read_s.set(reading.read_ms / 1000)
        if reading is not None and self._is_old():
            text = (
                f"no chip can be read since {clock.rfc3339(reading.read_ms / 1000)}, "
                f"and the chips' conditions are from then: {problem}"
            )
        tell(Subject.READINGS, text)
