"""Clocks of nodes that differ from ours: no agent is silent, and people are told."""

import dataclasses
import logging
import re
from collections.abc import Iterable

import pytest

from extender.announcer import Announcer
from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.events import ClockJudged, ReportUpdated, Ticked
from extender.clocks import Clock
from extender.dispatch import Dispatcher
from extender.refusals import describe_clock
from extender.scheduling.decisions import LastDecisions
from kube.client import Client
from kube.credentials import from_url
from kube.events import Recorder, Regarding
from scheduler_core.node.reasons import Reason
from tests.support.caches import apply, barred, cluster, empty, lined
from tests.support.clock import NOW_S, Time
from tests.support.extender import World, clock_of
from tests.support.watched import BOTH, node, pod_update, report

HOUR_S = 3600.0
#: An agent writes its report at least each five minutes.
HEARTBEAT_S = 300.0
SILENT_S = 900.0


def written(at_s: float, *, ahead_s: float = 0.0, name: str = "n1") -> ReportUpdated:
    """Return a report that was written by a clock that is ahead of ours, or behind."""
    return report(name, update_time=int(at_s + ahead_s))


def clocks(effects: Iterable[events.Effect]) -> list[str]:
    """Return what people are told of clocks; "" where one agrees again."""
    return [
        describe_clock(effect.node, effect.ahead_s) if effect.ahead_s else ""
        for effect in effects
        if isinstance(effect, ClockJudged)
    ]


def begun(found: ReportUpdated, **settings: float) -> Cache:
    """Return the cache of an extender that finds this report as it begins."""
    cache = empty(**settings)
    apply(cache, node("n1"), found)
    return cache


def differs(minutes: int, order: str) -> str:
    return f"the clock of n1 is {minutes} min {order} the extender's"


BEHIND, AHEAD = differs(60, "behind"), differs(60, "ahead of")


@pytest.mark.parametrize("age_s", [0, 299, 100_000])
@pytest.mark.parametrize("ahead_s", [-10_000, -HOUR_S, 0, HOUR_S, 10_000])
def test_d13_no_agent_is_silent_before_its_heartbeats_are_due(
    ahead_s: float, age_s: float
) -> None:
    cache = begun(written(NOW_S - age_s, ahead_s=ahead_s))

    for passed_s in (0, HEARTBEAT_S, SILENT_S):
        apply(cache, Ticked(), now_s=NOW_S + passed_s)
        assert barred(cache) is None

    apply(cache, Ticked(), now_s=NOW_S + SILENT_S + 1)
    assert barred(cache) is Reason.AGENT_SILENT


@pytest.mark.parametrize("ahead_s", [-HOUR_S, 0, HOUR_S])
def test_d13_a_heartbeat_by_any_clock_keeps_an_agent_alive(ahead_s: float) -> None:
    cache, now_s = begun(written(NOW_S - 100, ahead_s=ahead_s)), NOW_S

    for _ in range(9):
        now_s += HEARTBEAT_S
        apply(cache, Ticked(), now_s=now_s)
        assert barred(cache) is None
        apply(cache, written(now_s, ahead_s=ahead_s), now_s=now_s)
    apply(cache, Ticked(), now_s=now_s + SILENT_S + 1)
    assert barred(cache) is Reason.AGENT_SILENT


@pytest.mark.parametrize(
    ("ahead_s", "at_start", "at_heartbeat"),
    [
        (-HOUR_S, [], [BEHIND]),  # the first report may just be old
        (-61, [], [differs(1, "behind")]),
        (-60, [], []),
        (0, [], []),
        (60, [], []),
        (61, [differs(1, "ahead of")], []),
        (HOUR_S, [AHEAD], []),
    ],
)
def test_d13_a_clock_that_differs_by_more_than_a_minute_is_told_once(
    ahead_s: float, at_start: list[str], at_heartbeat: list[str]
) -> None:
    cache = empty()

    found = clocks(apply(cache, written(NOW_S, ahead_s=ahead_s), node("n1")))
    assert found == at_start
    for beat, told in ((1, at_heartbeat), (2, []), (3, [])):
        now_s = NOW_S + beat * HEARTBEAT_S
        found = clocks(apply(cache, written(now_s, ahead_s=ahead_s), now_s=now_s))
        assert found == told


def test_d13_a_clock_that_jumps_while_its_node_is_followed_is_told_each_time() -> None:
    cache, now_s, told = begun(written(NOW_S)), NOW_S, []

    for ahead_s in (0, -HOUR_S, -HOUR_S, HOUR_S, 2 * HOUR_S, 0, 0):
        now_s += HEARTBEAT_S
        apply(cache, Ticked(), now_s=now_s)
        assert barred(cache) is None
        told += clocks(apply(cache, written(now_s, ahead_s=ahead_s), now_s=now_s))

    assert told == [BEHIND, AHEAD, differs(120, "ahead of"), ""]


def test_d13_a_clock_at_the_limit_is_told_once() -> None:
    """Ways through the watch, and whole seconds, differ by more than it does."""
    cache, now_s, told = begun(written(NOW_S)), NOW_S, []

    for ahead_s in (61, 59, 62, 31, 61, 100, 29, 59, 0, -61, -61, -40, -61, -29, 0):
        now_s += HEARTBEAT_S
        told += clocks(apply(cache, written(now_s, ahead_s=ahead_s), now_s=now_s))

    assert told == [differs(1, "ahead of"), "", differs(1, "behind"), ""]


def test_d13_a_clock_that_is_set_right_step_by_step_agrees_at_last() -> None:
    cache, now_s, told = begun(written(NOW_S)), NOW_S, []

    for ahead_s in (95, 34, 0):
        now_s += HEARTBEAT_S
        told += clocks(apply(cache, written(now_s, ahead_s=ahead_s), now_s=now_s))

    assert told == [differs(2, "ahead of"), differs(1, "ahead of"), ""]


def test_d13_reports_after_a_sleep_of_our_machine_are_no_word_of_a_clock() -> None:
    """Monotonic time stands meanwhile; what watches bring may come before a tick."""
    time, slept_s = Time(), 0.0
    cache = begun(written(NOW_S))
    clock = Clock(now_s=time, now_ns=lambda: int((time() + slept_s) * 1e9))
    told: list[str] = []
    dispatcher = Dispatcher(cache, clock)
    dispatcher.connect(lambda effect: told.extend(clocks([effect])))

    time.pass_s(1.0)
    slept_s = HOUR_S
    dispatcher.apply(written(time(), ahead_s=HOUR_S))

    assert told == []
    assert barred(cache) is None


@pytest.mark.parametrize("age_s", [HEARTBEAT_S, 100_000])
def test_d13_an_old_report_is_no_word_of_a_clock(age_s: float) -> None:
    """The agent died before the extender began, or is started again."""
    cache = empty()

    assert clocks(apply(cache, node("n1"), written(NOW_S - age_s))) == []
    now_s = NOW_S + SILENT_S + 1
    apply(cache, Ticked(), now_s=now_s)
    assert barred(cache) is Reason.AGENT_SILENT

    assert clocks(apply(cache, written(now_s), now_s=now_s)) == []
    assert barred(cache) is None


def test_d13_reports_that_a_slow_watch_brings_late_are_no_word_of_a_clock() -> None:
    cache = begun(written(NOW_S))

    late = [written(NOW_S + at_s) for at_s in (10, 20, 30)]
    assert clocks(apply(cache, *late, now_s=NOW_S + 200)) == []
    for at_s, late_s in ((300, 0), (600, 90), (900, 0), (1200, 90)):
        found = written(NOW_S + at_s)
        assert clocks(apply(cache, found, now_s=NOW_S + at_s + late_s)) == []


def test_d13_a_list_that_brings_the_same_report_is_no_sign_of_life() -> None:
    """A watch lists again, and so does the sweep; neither is the agent's doing."""
    found = written(NOW_S, ahead_s=-HOUR_S)
    cache = begun(found)

    for passed_s in (HEARTBEAT_S, 2 * HEARTBEAT_S):
        assert clocks(apply(cache, found, node("n1"), now_s=NOW_S + passed_s)) == []
    apply(cache, Ticked(), now_s=NOW_S + SILENT_S + 1)
    assert barred(cache) is Reason.AGENT_SILENT


def test_d13_a_report_has_its_age_when_its_node_is_seen_long_after_it() -> None:
    cache = empty()
    apply(cache, written(NOW_S))
    apply(cache, written(NOW_S), now_s=NOW_S + 500)

    apply(cache, node("n1"), now_s=NOW_S + 800)
    assert barred(cache) is None
    apply(cache, Ticked(), now_s=NOW_S + SILENT_S + 1)
    assert barred(cache) is Reason.AGENT_SILENT


def spoilt(found: ReportUpdated) -> ReportUpdated:
    text = found.device_info.replace('"UpdateTime":', '"UpdateTime":"soon","Was":')
    return dataclasses.replace(found, device_info=text)


def test_d13_a_report_without_a_readable_time_is_unreadable_and_no_silence() -> None:
    cache, now_s = begun(written(NOW_S)), NOW_S

    for _ in range(5):
        now_s += HEARTBEAT_S
        apply(cache, Ticked(), spoilt(written(now_s)), now_s=now_s)
        assert barred(cache) is Reason.BAD_NODE_REPORT

    apply(cache, written(now_s), now_s=now_s)
    assert barred(cache) is None


def test_d13_lines_that_are_unreadable_say_nothing_of_the_clock() -> None:
    """The lines of a node have one time, and each keeps its last readable report."""
    cache, now_s = lined(), NOW_S

    for wrong in ("8", "08", "08", "08"):
        now_s += HEARTBEAT_S
        found = report("n1", *BOTH, update_time=now_s)
        text = re.sub(f"(Ascend910|Ascend310P)-([{wrong}])", "x", found.device_info)
        found = dataclasses.replace(found, device_info=text)
        assert clocks(apply(cache, found, node("n1", *BOTH), now_s=now_s)) == []

    resources = [line.product.resource for line in BOTH]
    reasons = [barred(cache, resource=resource) for resource in resources]
    assert reasons == [Reason.BAD_NODE_REPORT] * 2


def test_d13_a_text_edited_by_hand_says_nothing_of_the_clock() -> None:
    cache = begun(written(NOW_S))

    edited = report("n1", held=(0,))
    assert clocks(apply(cache, edited, now_s=NOW_S + 800)) == []
    apply(cache, Ticked(), now_s=NOW_S + SILENT_S + 1)
    assert barred(cache) is Reason.AGENT_SILENT


def test_d13_a_step_of_our_own_clock_is_no_matter_where_the_nodes_follow_it() -> None:
    """Time servers have set all clocks back by an hour, ours as well."""
    cache, now_s = begun(written(NOW_S)), NOW_S
    cache.see_clock(-HOUR_S)

    for _ in range(4):
        now_s += HEARTBEAT_S
        apply(cache, Ticked(), now_s=now_s)
        assert barred(cache) is None
        found = apply(cache, written(now_s, ahead_s=-HOUR_S), now_s=now_s)
        assert clocks(found) == []


def test_d13_a_step_of_our_clock_alone_is_told_of_each_node() -> None:
    cache = begun(written(NOW_S))

    cache.see_clock(-HOUR_S)
    apply(cache, Ticked(), now_s=NOW_S + 1)
    assert barred(cache) is None
    now_s = NOW_S + HEARTBEAT_S
    assert clocks(apply(cache, written(now_s), now_s=now_s)) == [AHEAD]
    cache.see_clock(0.0)
    now_s += HEARTBEAT_S
    assert clocks(apply(cache, written(now_s), now_s=now_s)) == [""]


def test_d13_of_several_nodes_one_alone_is_wrong_and_none_is_silent() -> None:
    """Each replica that begins to lead, or restarts, begins so."""
    names = ("n1", "n2", "n3")
    cache, now_s, told = empty(), NOW_S, []

    for _ in range(4):
        for name in names:
            ahead_s = -HOUR_S if name == "n1" else 0.0
            found = written(now_s, ahead_s=ahead_s, name=name)
            told += clocks(apply(cache, node(name), found, now_s=now_s))
            assert barred(cache, name) is None
        now_s += HEARTBEAT_S

    assert told == [BEHIND]


def test_d13_a_bare_node_has_no_clock() -> None:
    cache = empty(bare_nodes=True)

    assert clocks(apply(cache, node("n1"))) == []
    apply(cache, Ticked(), now_s=NOW_S + HOUR_S)
    assert barred(cache) is None

    late = written(NOW_S + HOUR_S - 200)
    assert clocks(apply(cache, late, now_s=NOW_S + HOUR_S)) == []


def test_d13_explain_has_the_clock_behind_what_the_node_answers() -> None:
    cache = cluster(written(NOW_S, ahead_s=HOUR_S), pod_update("p", 8))

    def explained() -> object:
        return World(cache).explain("p")["nodes"]

    assert explained() == {"n1": "fits"}
    broken = report("n1", update_time=NOW_S + HOUR_S, unhealthy=(1,))
    apply(cache, broken)
    assert explained() == {"n1": f"chip unhealthy; {AHEAD}"}


class Events(Recorder):
    """Events that are kept instead of sent."""

    def __init__(self) -> None:
        super().__init__(Client(from_url("http://127.0.0.1:1")), component="x")
        #: (object, reason, message, type)
        self.kept: list[tuple[Regarding, str, str, str]] = []

    def record(
        self,
        regarding: Regarding,
        *,
        reason: str,
        message: str,
        type: str = "Normal",  # noqa: A002  # the event's own word for it
    ) -> None:
        self.kept.append((regarding, reason, message, type))


@pytest.mark.parametrize("is_mute", [False, True])
def test_d13_the_node_has_an_event_and_the_log_a_line(
    caplog: pytest.LogCaptureFixture, *, is_mute: bool
) -> None:
    recorder = Events()
    announcer = Announcer(recorder, LastDecisions(), clock_of(Time()), is_mute=is_mute)

    with caplog.at_level(logging.INFO):
        for ahead_s in (-HOUR_S, 0.0):
            announcer.carry_out(ClockJudged(node="n1", ahead_s=ahead_s))

    agrees = "the clock of n1 agrees with the extender's"
    on_node = Regarding(kind="Node", name="n1", uid="n1")
    expected = [
        (on_node, "NpuClockDiffers", BEHIND, "Warning"),
        (on_node, "NpuClockAgrees", agrees, "Normal"),
    ]
    assert recorder.kept == ([] if is_mute else expected)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "clock of a node differs"),
        ("INFO", "clock of a node agrees again"),
    ]
