"""When the ConfigMap is written: each event in each situation, with time as a value."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from agent.health.findings import SeparatedNames
from agent.report import content, schedule
from agent.report.content import NodeReport
from agent.report.schedule import (
    ConfigMapDeleted,
    ConfigMapSeen,
    Effect,
    Event,
    ReportChanged,
    Restoring,
    RivalChanged,
    SilenceChanged,
    State,
    StoredConfigMap,
    Tick,
    Write,
    WriteFailed,
    WriteSucceeded,
)
from scheduler_core.wire import deviceinfo
from scheduler_core.wire.deviceinfo import LABELS
from tests.agent.reporting import ONE, TWO, drawn

HEARTBEAT_S = 300.0


OURS: Mapping[str, str] = {"DeviceInfoCfg": "a", "AscendAffinity": "b"}
SEALED: Mapping[str, str] = content.configmap_data(ONE, update_time=1000)
STANDING: Mapping[str, str] = {**OURS, "ManuallySeparateNPU": "Ascend910-3"}

START = State(me="me", heartbeat_s=HEARTBEAT_S)


def seen(version: int, *, writer: str = "me", **data: str) -> StoredConfigMap:
    return StoredConfigMap(
        data={**STANDING, **data}, labels=LABELS, writer=writer, version=version
    )


def steps(
    state: State, *events: tuple[float, Event]
) -> tuple[State, list[tuple[Effect, ...]]]:
    """Where these events lead, and what follows from each."""
    found = []
    for at, event in events:
        state, effects = schedule.step(state, event, at)
        found.append(effects)
    return state, found


def published() -> State:
    """ONE was written at version 10."""
    written = WriteSucceeded(ONE, OURS, seen(10))
    state, effects = steps(START, (0.0, ReportChanged(ONE)), (0.0, written))
    assert effects[-1] == ()
    return state


def test_nothing_is_written_before_there_is_something_to_say() -> None:
    assert schedule.step(START, Tick(), 0.0) == (START, ())
    assert schedule.due_at(START) is None


def test_the_first_picture_is_written_at_once() -> None:
    _, effects = schedule.step(START, ReportChanged(ONE), 5.0)

    assert effects == (Write(ONE),)


def test_a_predecessors_configmap_is_taken_over_without_ado() -> None:
    theirs = ConfigMapSeen(seen(7, writer="predecessor"))

    _, effects = steps(START, (0.0, theirs), (0.0, ReportChanged(ONE)))

    assert effects == [(), (Write(ONE),)]


def test_the_first_change_after_a_quiet_while_is_written_at_once() -> None:
    _, effects = schedule.step(published(), ReportChanged(TWO), 1.0)

    assert effects == (Write(TWO),)


def test_changes_within_a_second_are_written_together() -> None:
    changes = (0.3, ReportChanged(drawn(3))), (0.6, ReportChanged(TWO))
    state, early = steps(published(), *changes)
    assert (early, schedule.due_at(state)) == ([(), ()], 1.0)

    _, effects = schedule.step(state, Tick(), 1.0)

    assert effects == (Write(TWO),)


def test_a_chip_that_breaks_does_not_wait_for_the_second_to_be_over() -> None:
    broken = replace(TWO, info=replace(TWO.info, unhealthy=(3,)))

    state, effects = schedule.step(published(), ReportChanged(broken), 0.1)

    assert effects == ()
    assert schedule.due_at(state) == schedule.URGENT_SPACING_S


def test_a_change_that_is_taken_back_in_time_is_not_written() -> None:
    changes = (0.3, ReportChanged(TWO)), (0.6, ReportChanged(ONE))
    state, _ = steps(published(), *changes)

    assert schedule.due_at(state) == HEARTBEAT_S


def test_the_heartbeat_renews_what_stands_there() -> None:
    state = published()
    assert schedule.due_at(state) == HEARTBEAT_S

    _, effects = schedule.step(state, Tick(), HEARTBEAT_S)

    assert effects == (Write(ONE),)


def test_after_a_failure_nothing_is_written_before_the_pause_is_over() -> None:
    state, _ = schedule.step(START, ReportChanged(ONE), 0.0)
    state, early = steps(state, (0.0, WriteFailed(4.0)), (3.0, ReportChanged(TWO)))
    assert (early, schedule.due_at(state)) == ([(), ()], 4.0)

    _, effects = schedule.step(state, Tick(), 4.0)

    assert effects == (Write(TWO),)


def test_a_heartbeat_that_failed_is_tried_again_after_the_pause() -> None:
    state, _ = schedule.step(published(), Tick(), HEARTBEAT_S)

    state, _ = schedule.step(state, WriteFailed(2.0), HEARTBEAT_S + 10)

    assert schedule.due_at(state) == HEARTBEAT_S + 12


@pytest.mark.parametrize(
    ("there", "what"),
    [
        (seen(11, DeviceInfoCfg="edited"), "DeviceInfoCfg"),
        (replace(seen(11), data={**STANDING, "AscendAffinity": ""}), "AscendAffinity"),
        (replace(seen(11), labels={}), "mx-consumer-cim"),
        (replace(seen(11), writer=""), schedule.WRITER),
        (
            replace(seen(11), data={"ManuallySeparateNPU": ""}),
            "DeviceInfoCfg, AscendAffinity",
        ),
    ],
)
def test_what_was_edited_by_hand_is_restored(there: StoredConfigMap, what: str) -> None:
    _, effects = schedule.step(published(), ConfigMapSeen(there), 5.0)

    assert effects == (Restoring(what), Write(ONE))


def test_an_administrators_keys_are_no_reason_to_write() -> None:
    there = seen(11, ManuallySeparateNPU="", Note="do not touch")

    state, effects = schedule.step(published(), ConfigMapSeen(there), 5.0)

    assert effects == ()
    assert schedule.due_at(state) == HEARTBEAT_S


def test_the_administrators_key_comes_back_empty_unless_it_was_set_meanwhile() -> None:
    there = replace(seen(11), data=OURS)

    _, effects = schedule.step(published(), ConfigMapSeen(there), 5.0)

    assert effects == (Restoring("ManuallySeparateNPU"), Write(ONE, manual_at=11))


def test_a_deleted_configmap_is_made_again() -> None:
    _, effects = schedule.step(published(), ConfigMapDeleted(), 5.0)

    assert effects == (Restoring("deleted"), Write(ONE))


@pytest.mark.parametrize(
    "event", [ConfigMapDeleted(), ConfigMapSeen(seen(11, DeviceInfoCfg="theirs"))]
)
def test_nobody_is_told_of_a_repair_while_the_agent_must_not_write(
    event: schedule.Event,
) -> None:
    silence = SilenceChanged(is_silent=True)

    _, effects = steps(published(), (5.0, silence), (6.0, event))

    assert effects == [(), ()]


def test_two_deletions_within_a_second_are_answered_in_turn() -> None:
    written = WriteSucceeded(ONE, OURS, seen(20))
    deleted = (5.0, ConfigMapDeleted()), (5.0, written), (5.1, ConfigMapDeleted())

    state, effects = steps(published(), *deleted)

    assert effects[-1] == (Restoring("deleted"),)
    assert schedule.due_at(state) == 6.0


def test_a_deletion_before_the_first_write_is_nothing_to_mend() -> None:
    assert schedule.step(START, ConfigMapDeleted(), 0.0) == (START, ())


def test_an_old_event_is_not_mistaken_for_a_change() -> None:
    old = ConfigMapSeen(seen(9, writer="predecessor", DeviceInfoCfg="old"))

    assert schedule.step(published(), old, 5.0) == (published(), ())


def test_our_own_write_whose_answer_was_lost_is_no_edit() -> None:
    state, _ = schedule.step(published(), ReportChanged(TWO), 5.0)
    ours = ConfigMapSeen(seen(11, DeviceInfoCfg="c"))

    _, effects = steps(state, (5.0, WriteFailed(2.0)), (5.1, ours), (7.0, Tick()))

    assert effects == [(), (), (Write(TWO),)]


def yielding() -> State:
    """Another agent wrote at version 11."""
    rival = ConfigMapSeen(seen(11, writer="other", DeviceInfoCfg="theirs"))
    state, effects = schedule.step(published(), rival, 5.0)
    assert effects == (RivalChanged("other"),)
    return state


def test_a_second_agent_is_noticed_and_not_fought() -> None:
    state, effects = schedule.step(yielding(), ReportChanged(TWO), 100.0)

    assert effects == ()
    assert schedule.due_at(state) == 5.0 + 3 * HEARTBEAT_S


def test_each_sign_of_life_of_the_second_agent_extends_the_silence() -> None:
    again = ConfigMapSeen(seen(12, writer="other"))

    state, effects = schedule.step(yielding(), again, 305.0)

    assert effects == ()
    assert schedule.due_at(state) == 305.0 + 3 * HEARTBEAT_S


def test_a_third_agent_is_noticed_too() -> None:
    _, effects = schedule.step(yielding(), ConfigMapSeen(seen(12, writer="third")), 6.0)

    assert effects == (RivalChanged("third"),)


def test_a_second_agent_that_fell_silent_is_replaced() -> None:
    state, effects = schedule.step(yielding(), Tick(), 5.0 + 3 * HEARTBEAT_S)

    assert effects == (RivalChanged(""), Write(ONE))
    assert state.rival == ""


def test_a_second_agent_that_took_its_name_away_is_replaced_at_once() -> None:
    gone = ConfigMapSeen(seen(12, writer="", DeviceInfoCfg="theirs"))

    _, effects = schedule.step(yielding(), gone, 6.0)

    assert effects == (RivalChanged(""), Write(ONE))


def test_a_second_agent_whose_configmap_was_deleted_is_replaced_at_once() -> None:
    _, effects = schedule.step(yielding(), ConfigMapDeleted(), 6.0)

    assert effects == (RivalChanged(""), Write(ONE))


def test_of_two_agents_exactly_one_goes_on() -> None:
    """Both start together; whoever wrote last stays, in whichever order they look."""
    both = seen(10, writer="first"), seen(11, writer="second")
    rivals = []
    for at, ours in zip((0.0, 0.1), both, strict=True):
        state, _ = steps(
            replace(START, me=ours.writer),
            (0.0, ReportChanged(ONE)),
            (at, WriteSucceeded(ONE, OURS, ours)),
            *((0.2, ConfigMapSeen(each)) for each in both),
        )
        rivals.append(state.rival)

    assert rivals == ["second", ""]


def sealed(available: int, update_time: int) -> str:
    """A report as another make of device plugin writes it."""
    info = replace(ONE.info, available=(available,), update_time=update_time)
    return deviceinfo.render(info, ONE.affinity, ONE.product)["DeviceInfoCfg"]


def published_sealed() -> State:
    """ONE was written at version 10, with a CheckCode that is right."""
    found = StoredConfigMap(data=SEALED, labels=LABELS, writer="me", version=10)
    written = WriteSucceeded(ONE, SEALED, found)
    return steps(START, (0.0, ReportChanged(ONE)), (0.0, written))[0]


def changed(version: int, text: str, *, writer: str = "me") -> ConfigMapSeen:
    data = {**SEALED, "DeviceInfoCfg": text}
    return ConfigMapSeen(
        StoredConfigMap(data=data, labels=LABELS, writer=writer, version=version)
    )


@pytest.mark.parametrize("writer", ["me", ""])  # it patches, or it replaces
def test_a_right_check_code_is_a_programs(writer: str) -> None:
    rival = changed(11, sealed(3, 1001), writer=writer)

    state, effects = schedule.step(published_sealed(), rival, 5.0)

    assert effects == (RivalChanged(schedule.NAMELESS),)
    assert schedule.due_at(state) == 5.0 + 3 * HEARTBEAT_S


@pytest.mark.parametrize(
    "text",
    [
        SEALED["DeviceInfoCfg"].replace("Ascend910-7", ""),  # edited
        sealed(3, 999),  # an old one, put back
        "{}",
        "",
    ],
)
def test_what_a_hand_has_changed_is_restored(text: str) -> None:
    state, effects = schedule.step(published_sealed(), changed(11, text), 5.0)

    assert effects == (Restoring("DeviceInfoCfg"), Write(ONE))
    assert state.rival == ""


def restored(state: State, edited_s: float) -> tuple[State, float]:
    """The state after an edit and the write that restores the keys; when that is."""
    version = state.written_version + 1
    edit = (edited_s, changed(version, "edited"))
    state, [told] = steps(state, edit)
    assert told[0] == Restoring("DeviceInfoCfg")
    due_s = max(schedule.due_at(state) or 0.0, edited_s)
    found = StoredConfigMap(
        data=SEALED, labels=LABELS, writer="me", version=version + 1
    )
    written = told[1:]
    if not written:
        state, written = schedule.step(state, Tick(), due_s)
    assert written == (Write(ONE),)
    return schedule.step(state, WriteSucceeded(ONE, SEALED, found), due_s)[0], due_s


def test_no_number_of_edits_by_hand_silences_the_agent() -> None:
    state, waits = published_sealed(), []
    for n in range(12):
        state, due_s = restored(state, 60.0 * (n + 1))
        waits.append(due_s - 60.0 * (n + 1))

    assert (waits, state.rival) == ([0.0] * 12, "")


def test_a_controller_that_never_rests_is_answered_ever_more_rarely() -> None:
    state, restored_s = published_sealed(), [0.0]
    while restored_s[-1] < 86400.0:
        state, due_s = restored(state, restored_s[-1] + 0.01)
        restored_s.append(due_s)

    pauses = [round(b - a, 2) for a, b in pairwise(restored_s)]
    assert pauses[:8] == [1.0, 1.0, 1.0, 1.0, 1.0, 4.0, 9.0, 16.0]
    assert len(pauses) < 86400.0 / 50.0
    assert max(len(state.edits), *pauses) <= HEARTBEAT_S


def test_a_chip_that_breaks_does_not_wait_for_edits_to_end() -> None:
    state, now = published_sealed(), 0.0
    for _ in range(10):
        state, now = restored(state, now + 0.01)
    state, _ = steps(state, (now + 0.1, changed(99, "edited")))
    broken = replace(TWO, info=replace(TWO.info, unhealthy=(3,)))

    state, _ = schedule.step(state, ReportChanged(broken), now + 0.1)

    assert schedule.due_at(state) == now + schedule.URGENT_SPACING_S


def test_changes_between_two_writes_count_once() -> None:
    edits = ((5.0 + n / 1000, changed(11 + n, f"{n}")) for n in range(100))

    state, told = steps(replace(published_sealed(), not_before=9.0), *edits)

    assert told == [(Restoring("DeviceInfoCfg"),), *[()] * 99]
    assert schedule.due_at(state) == 9.0


def test_edits_of_long_ago_do_not_count() -> None:
    state, now = published_sealed(), 0.0
    for _ in range(10):
        state, now = restored(state, now + 0.01)

    _, due_s = restored(state, now + 1000.0)

    assert due_s == now + 1000.0


def test_a_nameless_program_that_has_gone_is_replaced() -> None:
    rival = changed(11, sealed(3, 1001), writer="")
    later = changed(12, sealed(4, 1002), writer="")
    again, _ = steps(published_sealed(), (5.0, rival), (305.0, later))

    assert schedule.due_at(again) == 305.0 + 3 * HEARTBEAT_S
    _, effects = schedule.step(again, Tick(), 305.0 + 3 * HEARTBEAT_S)
    assert effects == (RivalChanged(""), Write(ONE))
    _, effects = schedule.step(again, ConfigMapDeleted(), 306.0)
    assert effects == (RivalChanged(""), Write(ONE))


def test_a_node_that_is_anothers_is_not_reported() -> None:
    silence = SilenceChanged(is_silent=True)
    silent, said = steps(published(), (1.0, silence), (100.0, ReportChanged(TWO)))

    assert (schedule.due_at(silent), said) == (None, [(), ()])
    _, effects = schedule.step(silent, SilenceChanged(is_silent=False), 200.0)
    assert effects == (Write(TWO),)


def separating(text: str, read: str | None) -> NodeReport:
    return replace(ONE, separated=SeparatedNames(text=text, read=read))


def test_chips_are_named_over_the_text_that_was_read() -> None:
    wished = separating("Ascend910-3,Ascend910-4", "Ascend910-3")

    _, effects = schedule.step(published(), ReportChanged(wished), 10.0)

    assert effects == (Write(wished, manual_at=10),)


def test_chips_are_not_named_over_a_text_that_was_written_since() -> None:
    wished = separating("Ascend910-3,Ascend910-4", "Ascend910-3")
    edited = seen(11, ManuallySeparateNPU="Ascend910-7")
    state, _ = schedule.step(published(), ConfigMapSeen(edited), 9.0)

    _, effects = schedule.step(state, ReportChanged(wished), 10.0)

    # all else is, and the edit is in the next picture
    assert effects == (Write(wished),)


def test_a_text_that_stands_as_it_should_is_left_alone() -> None:
    read = separating("Ascend910-3", "Ascend910-3")
    state, effects = schedule.step(published(), ReportChanged(read), 10.0)
    assert effects == (Write(read),)

    state, _ = schedule.step(state, WriteSucceeded(read, OURS, seen(12)), 10.0)

    assert schedule.due_at(state) == 10.0 + HEARTBEAT_S
