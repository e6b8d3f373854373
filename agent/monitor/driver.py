"""Pass each result of reading the driver to the metrics and to each product line."""

import asyncio
from collections.abc import Sequence

from agent.devices.poller import Observation
from agent.health.conditions import UNREAD_S
from agent.monitor.chips import ChipMonitor, Clocks
from agent.observe.announcer import Announcer
from agent.observe.metrics import Metrics
from service import clock


class DriverMonitor:
    """Receiver of the results of reading the driver, for all product lines of the node.

    Its attribute `problem` says why the driver, or a single chip, cannot be read. It is
    "" if all chips can be read. While no chip can be read, the conditions of all chips
    stay, and `stale_since_ms` says from when they are. Its attribute `changed_row` says
    what shows that the node has to be served by other rows of the product table. Its
    event `begins_anew` is set when all is read on which those rows depend.
    """

    def __init__(
        self,
        chip_monitors: Sequence[ChipMonitor],
        *,
        announcer: Announcer,
        metrics: Metrics,
        clocks: Clocks,
    ) -> None:
        self._chip_monitors = chip_monitors
        self._announcer = announcer
        self._metrics = metrics
        self._clocks = clocks
        #: Loop time and wall time of the last observation that was not stale. Units:
        #: seconds, Unix milliseconds.
        self._read_s = clocks.loop_s()
        self._read_ms = clocks.wall_ms()
        self._is_stale = False
        #: Why the driver, or a chip, cannot be read; "" when all can.
        self.problem = ""
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
            self._announcer.changed_row(reading.changed_row)
            self.changed_row = reading.changed_row
            if reading.begins_anew:
                self.begins_anew.set()
        if self.why_not_ready() is not None:
            for monitor in self._chip_monitors:
                monitor.lose_driver()
        needs_more = [monitor.observe(observation) for monitor in self._chip_monitors]
        return any(needs_more)

    def wrong_row(self) -> str | None:
        """Return why the node is not served by the right rows; None if it is."""
        if not self.changed_row:
            return None
        return (
            f"the node is served by the wrong product row: {self.changed_row}; the "
            "agent begins anew when all chips are read, after --survey-wait-s at the "
            "latest"
        )

    @property
    def stale_since_ms(self) -> int | None:
        """Unix milliseconds of the last reading, if it is old; None if it is not."""
        return self._read_ms if self._is_stale else None

    def why_not_ready(self) -> str | None:
        """Return since when no chip can be read; None if that is under UNREAD_S."""
        if not self._is_stale or self._clocks.loop_s() - self._read_s < UNREAD_S:
            return None
        return (
            f"no chip can be read since {clock.rfc3339(self._read_ms / 1000)}, and "
            f"the chips' conditions are from then: {self.problem}"
        )

    def _announce(self, observation: Observation) -> None:
        """Store since when readings are old, and announce it."""
        self.problem = observation.problem
        self._is_stale = observation.is_stale
        self._metrics.driver_stale.set(observation.is_stale)
        self._announcer.driver_problem(self.problem if self._is_stale else "")
        if not self._is_stale:
            self._read_s = self._clocks.loop_s()
            self._read_ms = self._clocks.wall_ms()
            self._announcer.chips_problem(self.problem)
        self._metrics.driver_last_read_s.set(self._read_ms / 1000)
        self._announcer.readings_old(self.why_not_ready() or "", self.stale_since_ms)
