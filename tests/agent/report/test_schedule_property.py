"""Several agents for one node, under every order of writes, looks and deletions.

The API server is a value here: one ConfigMap, a version, and for each agent the
part of the history that it has not seen yet.
"""

from dataclasses import replace

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent.report import schedule
from agent.report.content import NodeReport
from agent.report.schedule import (
    ConfigMapDeleted,
    Event,
    ReportChanged,
    State,
    StoredConfigMap,
    Tick,
    WriteFailed,
    WriteSucceeded,
)
from scheduler_core.wire.deviceinfo import LABELS
from tests.agent.reporting import drawn
from tests.support.examples import examples

HEARTBEAT_S = 10.0
AGENTS = ("first", "second")
agents = st.sampled_from(AGENTS)


REPORTS = [drawn(sequence) for sequence in range(3)]


class Agents(RuleBasedStateMachine):
    """Whatever happens, once it is quiet one agent writes, and what it says stands."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.version = 1
        self.stored: StoredConfigMap | None = None
        self.states: dict[str, State] = {}
        self.unseen: dict[str, list[Event]] = {name: [] for name in AGENTS}

    @initialize()
    def start(self) -> None:
        for name in AGENTS:
            self.states[name] = State(me=name, heartbeat_s=HEARTBEAT_S)

    # The API server

    def store(self, stored: StoredConfigMap | None) -> None:
        self.version += 1
        if stored is not None:
            stored = replace(stored, version=self.version)
        self.stored = stored
        news: Event = (
            ConfigMapDeleted() if stored is None else schedule.ConfigMapSeen(stored)
        )
        for unseen in self.unseen.values():
            unseen.append(news)

    def write(self, name: str, write: schedule.Write) -> WriteSucceeded:
        data = {"DeviceInfoCfg": f"{name} {write.report.affinity.sequence} {self.now}"}
        kept = dict(self.stored.data) if self.stored else {"ManuallySeparateNPU": ""}
        if write.manual_at:
            kept["ManuallySeparateNPU"] = ""
        stored = StoredConfigMap(
            data={**kept, **data}, labels=LABELS, writer=name, version=0
        )
        self.store(stored)
        assert self.stored is not None
        return WriteSucceeded(write.report, data, self.stored)

    # The agents

    def feed(self, name: str, what: Event, *, outage: bool = False) -> None:
        self.states[name], effects = schedule.step(self.states[name], what, self.now)
        for effect in effects:
            if isinstance(effect, schedule.Write):
                self.feed(
                    name, WriteFailed(2.0) if outage else self.write(name, effect)
                )

    @rule(name=agents, shown=st.sampled_from(REPORTS), outage=st.booleans())
    def draw(self, name: str, shown: NodeReport, *, outage: bool) -> None:
        self.feed(name, ReportChanged(shown), outage=outage)

    @rule(name=agents)
    def look(self, name: str) -> None:
        if self.unseen[name]:
            self.feed(name, self.unseen[name].pop(0))

    @rule(name=agents, pause_s=st.sampled_from([0.1, 1.0, HEARTBEAT_S]))
    def wait(self, name: str, pause_s: float) -> None:
        self.now += pause_s
        self.feed(name, Tick())

    # An administrator

    @precondition(lambda self: self.stored is not None)
    @rule(key=st.sampled_from(["DeviceInfoCfg", "ManuallySeparateNPU", "Note"]))
    def edit(self, key: str) -> None:
        assert self.stored is not None
        self.store(replace(self.stored, data={**self.stored.data, key: "edited"}))

    @precondition(lambda self: self.stored is not None)
    @rule()
    def delete(self) -> None:
        self.store(None)

    def teardown(self) -> None:
        if not any(state.report for state in self.states.values()):
            return
        for _ in range(100):
            self.now += HEARTBEAT_S / 2
            for name in AGENTS:
                while self.unseen[name]:
                    self.feed(name, self.unseen[name].pop(0))
                self.feed(name, Tick())
        self.settled()

    def settled(self) -> None:
        """One agent writes; what it says stands; every other one knows of it."""
        stored = self.stored
        assert stored is not None
        active = [
            name
            for name, state in self.states.items()
            if state.report and not state.rival
        ]
        event(f"{len([s for s in self.states.values() if s.report])} agents")
        assert active == [stored.writer]
        state = self.states[stored.writer]
        assert state.published == state.report
        assert state.written is not None
        assert state.written.items() <= stored.data.items()
        assert "ManuallySeparateNPU" in stored.data


@examples(50, pytest.param(200, marks=pytest.mark.long))
def test_one_agent_writes_and_its_report_stands(examples: int) -> None:
    run_state_machine_as_test(
        Agents, settings=settings(max_examples=examples, stateful_step_count=25)
    )
