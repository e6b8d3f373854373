"""Pass each result of reading the driver to the metrics and to each product line."""

import asyncio
from collections.abc import Sequence

from agent.devices.poller import Observation
from agent.health.conditions import UNREAD_S
from agent.monitor.chips import ChipMonitor, Clocks
from agent.observe.metrics import Metrics
from agent.observe.problems import Problems, Subject
from service import clock


class DriverMonitor:
    """Receiver of the results of reading the driver, for all product lines of the node.

    While no chip can be read, the conditions of all chips stay, and `stale_since_ms`
    says from when they are. Its attribute `changed_row` says what shows that the node
    has to be served by other rows of the product table. Its event `begins_anew` is set
    when all is read on which those rows depend.
    """

    def __init__(
        self,
        chip_monitors: Sequence[ChipMonitor],
        *,
        problems: Problems,
        metrics: Metrics,
        clocks: Clocks,
    ) -> None:
        self._chip_monitors = chip_monitors
        self._problems = problems
        self._metrics = metrics
        self._clocks = clocks
        #: Loop time and wall time of the last observation that was not stale. Units:
        #: seconds, Unix milliseconds.
        self._read_s = clocks.loop_s()
        self._read_ms = clocks.wall_ms()
        self._is_stale = False
        #: What contradicts the rows that are served; "" when nothing does.
        self.changed_row = ""
        self.begins_anew = asyncio.Event()

    def observe(self, observation: Observation) -> bool:
        """Pass one result of reading the driver to the metrics and the chip monitors.

        Each chip monitor gets the whole observation, and takes the chips of its product
        line from it: a part of an observation has no date.

        Returns:
            Whether a chip monitor needs another result soon, even if the driver reports
            no change.
        """
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
        return self._read_ms if self._is_stale else None

    def _is_old(self) -> bool:
        """Whether no chip can be read for UNREAD_S."""
        return self._is_stale and self._clocks.loop_s() - self._read_s >= UNREAD_S

    def _announce(self, observation: Observation) -> None:
        """Store since when readings are old, and announce it."""
        problem, self._is_stale = observation.problem, observation.is_stale
        tell = self._problems.tell
        tell(Subject.DRIVER, problem if self._is_stale else "")
        if not self._is_stale:
            self._read_s = self._clocks.loop_s()
            self._read_ms = self._clocks.wall_ms()
            tell(Subject.CHIPS, problem)
        self._metrics.driver_last_read_s.set(self._read_ms / 1000)
        text = (
            f"no chip can be read since {clock.rfc3339(self._read_ms / 1000)}, and "
            f"the chips' conditions are from then: {problem}"
        )
        tell(Subject.READINGS, text if self._is_old() else "")
