"""A node whose chip has faults: libdcmi's events and codes, up to the raised levels."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.library import Library
from agent.devices.dcmi.reader import ChipReader
from agent.devices.dcmi.values import Code
from agent.devices.poller import Observation
from agent.devices.reading import Reading
from agent.health import fault_config
from agent.monitor.chips import ChipMonitor
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.agent.announcing import Announced
from tests.agent.devices.scripted_library import ScriptedLibrary
from tests.agent.node import current
from tests.agent.two_lines import reading_of_node

CHIP = 3


class FaultyNode(Announced):
    """Worker and agent in one, at times that the test gives."""

    def __init__(
        self, config: dict[str, str] | None = None, *, is_second: bool = False
    ) -> None:
        super().__init__()
        self._is_second = is_second
        self.now = 1000.0
        self.library = ScriptedLibrary()
        self.chip_reader = ChipReader(
            cast("Library", self.library), now_s=lambda: self.now, nodes=Path("/none")
        )
        self.conversion = Conversion(PRODUCT.key)
        self.store = current()
        self.chip_monitor = ChipMonitor(
            self.store,
            reading=self._read(),
            recover_s=1.0,
            announcer=self.announcer,
            wall_ms=lambda: self.now_ms,
        )
        if config is not None:
            self.chip_monitor.apply_fault_config(fault_config.parse(config).config)
        self.chip_monitor.apply_configmap({"ManuallySeparateNPU": ""})

    @property
    def now_ms(self) -> int:
        return round(self.now * 1000)

    def list_code(self, code: str, *, is_listed: bool) -> None:
        """Let the driver list one code of the chip, or none."""
        self.library.codes_of[CHIP] = (int(code, 16),) if is_listed else ()

    def send(self, code: str, *, is_over: bool = False) -> None:
        """Let the driver send an event of the chip."""
        event = Code(code=int(code, 16), severity=2, at_ms=self.now_ms)
        self.chip_reader.add_event(CHIP, event, is_over=is_over)

    def look(self) -> None:
        reading = reading_of_node(self._read(), is_second=self._is_second)
        self.chip_monitor.observe(Observation(reading=reading))

    def _read(self) -> Reading:
        survey = self.chip_reader.read_chips()
        reading = self.conversion.reading(survey, self.now_ms, self.now)
        return replace(reading, read_s=self.now, read_ms=self.now_ms)

    @property
    def raised(self) -> set[str]:
        """Kinds of raised levels that are in force."""
        return {upgrade.type for upgrade in self.chip_monitor.findings.upgrades}

    @property
    def out(self) -> tuple[int, ...]:
        return chip_sets.ids_of(self.store.ledger.unhealthy)

    def play(
        self,
        code: str,
        events: Iterable[tuple[float, str]],
        *,
        until_s: float,
        **how: Any,
    ) -> list[tuple[float, str]]:
        """Play events of one code; return when a kind of level was raised or ended.

        Args:
            code: Fault code.
            events: (seconds, "+" begin, "-" end, "!" one-off), ascending.
            until_s: When to stop.
            how: `is_woken`: whether each event brings a look, besides that of each
                second.
        """
        start, pending = self.now, list(events)
        seconds = range(int(until_s) + 1)
        times = {*map(float, seconds), *(at for at, _ in pending if how["is_woken"])}
        changes: list[tuple[float, str]] = []
        raised = self.raised
        for at in sorted(times):
            while pending and pending[0][0] <= at:
                began, sign = pending.pop(0)
                self.now = start + began
                if sign != "!":
                    self.list_code(code, is_listed=sign == "+")
                self.send(code, is_over=sign == "-")
            self.now = start + at
            self.look()
            changes += [(at, f"+{kind}") for kind in sorted(self.raised - raised)]
            changes += [(at, f"-{kind}") for kind in sorted(raised - self.raised)]
            raised = self.raised
        return changes
