"""Pass each result of reading the driver to the metrics and to each product line."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agent.devices.poller import Observation
from agent.monitor.chips import ChipMonitor
from agent.observe.announcer import Announcer
from agent.observe.metrics import Metrics


class DriverMonitor:
    """Receiver of the results of reading the driver, for all product lines of the node.

    Its attribute `problem` says why the driver, or a single chip, cannot be read. It is
    "" if all chips can be read. Its attribute `changed_row` says what shows that the
    node has to be served by other rows of the product table. Its event `begins_anew` is
    set when all is read on which those rows depend.
    """

    def __init__(
        self,
        chip_monitors: Sequence[ChipMonitor],
        *,
        announcer: Announcer,
        metrics: Metrics,
    ) -> None:
        self._chip_monitors = chip_monitors
        self._announcer = announcer
        self._metrics = metrics
        #: Why the driver cannot be read; "" when it can.
        self.problem = ""
        #: What contradicts the rows that are served; "" when nothing does.
        self.changed_row = ""
        self.begins_anew = asyncio.Event()

    def observe(self, observation: Observation) -> bool:
        """Pass one result of reading the driver to the metrics and the chip monitors.

        Each chip monitor gets only the chips of the product line that it monitors.

        Returns:
            Whether a chip monitor needs another result soon, even if the driver reports
            no change.
        """
        self._metrics.driver_stale.set(observation.is_stale)
        if observation.took_s is not None:
            self._metrics.driver_read_s.observe(observation.took_s)
        if observation.is_stale:
            self._metrics.driver_failures.inc()
        self._announcer.driver_problem(observation.problem)
        self.problem = observation.problem
        reading = observation.reading
        if reading is not None and not observation.is_stale:
            self._announcer.changed_row(reading.changed_row)
            self.changed_row = reading.changed_row
            if reading.begins_anew:
                self.begins_anew.set()
        lines = reading.lines if reading is not None else ()
        readings = {line.product.resource: line for line in lines}
        needs_more = [
            monitor.observe(
                replace(observation, reading=readings.get(monitor.product.resource))
            )
            for monitor in self._chip_monitors
        ]
        return any(needs_more)

    def wrong_row(self) -> str | None:
        """Return why the node is not served by the right rows; None if it is."""
        if not self.changed_row:
            return None
        return (
            f"the node is served by the wrong product row: {self.changed_row}; the "
            "agent begins anew when all chips are read"
        )
