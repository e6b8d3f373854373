"""What is seen of the hardware: counted, told, and given to each product line."""

from collections.abc import Sequence
from dataclasses import replace

from agent.devices.poller import Observation
from agent.devices.reading import Reading
from agent.monitor.chips import Diagnosis
from agent.observe.announcer import News
from agent.observe.metrics import Metrics


class Sight:
    """Protects why the hardware cannot be read now."""

    def __init__(
        self, lines: Sequence[Diagnosis], *, news: News, metrics: Metrics
    ) -> None:
        """Have seen nothing yet.

        Args:
            lines: Of each product line.
            news: Who is told.
            metrics: What is counted.
        """
        self._lines = lines
        self._news = news
        self._metrics = metrics
        #: Why the hardware cannot be read; "" when it can.
        self.problem = ""

    def observed(self, seen: Observation) -> bool:
        """Take in a look at the hardware.

        Returns:
            Whether the next is wanted soon, though the hardware has no news.
        """
        self._metrics.driver_stale.set(seen.is_stale)
        if seen.took_s is not None:
            self._metrics.driver_read_s.observe(seen.took_s)
        if seen.is_stale:
            self._metrics.driver_failures.inc()
        self._news.driver(seen.problem)
        self.problem = seen.problem
        found = {each.product.resource: each for each in _lines(seen)}
        wanted = [
            line.observed(replace(seen, reading=found.get(line.product.resource)))
            for line in self._lines
        ]
        return any(wanted)


def _lines(seen: Observation) -> Sequence[Reading]:
    return seen.reading.lines if seen.reading is not None else ()
