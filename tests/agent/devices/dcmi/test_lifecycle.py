"""Each event in each phase of a worker, at times that the test gives."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.devices.dcmi.lifecycle import (
    FORGIVE_S,
    LEAVE_OUT_FACT_S,
    LEAVE_OUT_MOST_S,
    LEAVE_OUT_S,
    LOAD_S,
    MOST_PAUSE_S,
    RELOAD_EACH_S,
    TRANSITIONS,
    Blame,
    Checked,
    Event,
    Lifecycle,
    Phase,
    Replace,
    Showed,
    Sign,
    Started,
    step,
)
from agent.devices.dcmi.progress import Call
from agent.devices.dcmi.reader import LOOK_EACH_S
from agent.health.conditions import UNREAD_S

CALL_S = 5.0
CODES = Call(function="dcmi_get_device_errorcode_v2", card=2, device=0)
OTHER = Call(function="dcmi_get_device_errorcode_v2", card=3, device=0)
FACT = Call(function="dcmi_get_device_ip", card=2, device=0)
LOAD = Call(function="dcmi_init")
NOW = 1000.0
NEW = Lifecycle(call_s=CALL_S)


class Played:
    """A worker in simulated time, with all effects of its lifecycle."""

    def __init__(self, state: Lifecycle = NEW) -> None:
        self.state, self.now, self.beats = state, NOW, 0
        self.effects: list[Replace] = []

    def do(self, event: Event) -> tuple[Replace, ...]:
        self.state, effects = step(self.state, event, self.now)
        self.effects += effects
        return effects

    def stay(self, for_s: float, call: Call | None = None, *, beats: bool) -> None:
        """Look at the worker each quarter of a second, until it is replaced."""
        until_s = self.now + for_s
        while self.now < until_s and self.state.phase is not Phase.ABSENT:
            self.now += 0.25
            self.beats += beats
            self.do(Checked(beats=self.beats, call=call))

    def lose(self, call: Call, *, shown: bool = True) -> None:
        """Let a worker be killed in a call, at once or after a first look."""
        self.do(Started())
        if shown:
            self.do(Showed(sign=Sign.ALL_CHIPS))
        self.do(Checked(beats=1, call=call, end_reason="was ended by SIGKILL"))


#: How each sign is brought about, in a state that may have it.
EVENTS: dict[Sign, Event] = {
    Sign.STARTED: Started(),
    Sign.LOADS: Checked(beats=2, call=LOAD),
    Sign.WORKS: Checked(beats=2, call=CODES),
    Sign.NO_CHIP: Showed(sign=Sign.NO_CHIP),
    Sign.SOME_CHIPS: Showed(sign=Sign.SOME_CHIPS),
    Sign.ALL_CHIPS: Showed(sign=Sign.ALL_CHIPS),
    Sign.STUCK: Checked(beats=1, call=CODES),
    Sign.ENDED: Checked(beats=2, call=None, end_reason="has ended with exit code 1"),
    Sign.DUE: Checked(beats=2, call=None, is_freed=True),
}


@pytest.mark.parametrize(("phase", "sign"), list(TRANSITIONS))
def test_each_event_in_each_phase_does_what_the_table_says(
    phase: Phase, sign: Sign
) -> None:
    state = replace(NEW, phase=phase, beats=1, silent_s=CALL_S, checked_s=NOW)
    after, effects = step(state, EVENTS[sign], NOW)

    assert after.phase is TRANSITIONS[phase, sign]
    is_replaced = phase is not Phase.ABSENT and after.phase is Phase.ABSENT
    assert len(effects) == is_replaced
    if is_replaced:
        assert bool(effects[0].problem) == (sign is not Sign.DUE)


@pytest.mark.parametrize(
    ("call", "limit_s", "name"),
    [
        (CODES, CALL_S, str(CODES)),
        (None, CALL_S, "the driver worker"),
        (LOAD, LOAD_S, "dcmi_init"),
        (Call(function="dlopen"), LOAD_S, "dlopen"),
    ],
)
def test_each_call_has_its_time(call: Call | None, limit_s: float, name: str) -> None:
    """Findings F8, D23: loading has a minute, whatever else is counted."""
    played = Played()
    played.do(Started())
    played.beats = 1
    played.stay(2 * LOAD_S, call, beats=False)

    (effect,) = played.effects
    assert effect.problem == f"{name} has not come back for {limit_s:g} s"
    assert effect.call == (call if call is CODES else None)
    assert played.now - NOW == pytest.approx(limit_s, abs=0.5)


def test_the_agents_own_pause_is_no_silence_of_the_worker() -> None:
    played = Played()
    played.do(Started())
    played.stay(0.25, CODES, beats=True)
    played.now += 3600.0

    assert played.do(Checked(beats=played.beats, call=CODES)) == ()


def test_a_first_look_at_slow_chips_is_not_cut_short() -> None:
    played = Played()
    played.do(Started())
    played.stay(600.0, CODES, beats=True)

    assert played.effects == []


def test_a_driver_that_shows_no_chip_is_loaded_anew_each_half_minute() -> None:
    played, ages_s = Played(), []
    for _ in range(4):
        began_s = played.now
        played.do(Started())
        played.do(Showed(sign=Sign.NO_CHIP))
        played.stay(600.0, beats=True)
        ages_s.append(played.now - began_s)

    assert ages_s == [RELOAD_EACH_S] * 4
    assert played.effects == [Replace()] * 4


def test_a_driver_that_shows_some_chips_is_loaded_anew_less_and_less_often() -> None:
    played, ages_s = Played(), []
    for _ in range(3):
        began_s = played.now
        played.do(Started())
        played.do(Showed(sign=Sign.SOME_CHIPS))
        played.stay(3600.0, beats=True)
        ages_s.append(played.now - began_s)

    assert ages_s == [RELOAD_EACH_S, 2 * RELOAD_EACH_S, 4 * RELOAD_EACH_S]


def test_a_library_that_fails_to_load_and_then_loads_slowly_is_awaited() -> None:
    played = Played()
    played.do(Started())
    played.do(Showed(sign=Sign.NO_CHIP))
    played.stay(RELOAD_EACH_S - 1.0, beats=True)
    played.beats += 1
    played.stay(LOAD_S - 1.0, LOAD, beats=False)
    played.stay(10.0, CODES, beats=True)
    played.do(Showed(sign=Sign.ALL_CHIPS))

    assert (played.effects, played.state.phase) == ([], Phase.WHOLE)


def test_a_call_that_is_lost_again_and_again_is_left_out_for_longer() -> None:
    played, left_out_s = Played(), []
    for _ in range(15):
        played.lose(CODES, shown=False)
        left_out_s.append(played.state.left_out(played.now).get(CODES, 0.0))

    doubled = [min(LEAVE_OUT_S * 2**times, LEAVE_OUT_MOST_S) for times in range(14)]
    assert left_out_s == [0.0, *doubled]


def test_a_fact_that_hangs_for_all_chips_costs_one_worker_for_each_further() -> None:
    played = Played()
    for call in (FACT, FACT, replace(FACT, card=3)):
        played.lose(call, shown=False)

    assert played.state.left_out(played.now) == {
        FACT: LEAVE_OUT_FACT_S,
        replace(FACT, card=3): LEAVE_OUT_FACT_S,
    }


def test_codes_that_hang_once_are_asked_again_whatever_else_hangs() -> None:
    played = Played()
    for card in (0, 0, 1, 1, 2, 2, 3):
        played.lose(replace(CODES, card=card), shown=False)

    assert played.state.left_out(played.now) == {
        replace(CODES, card=card): LEAVE_OUT_FACT_S for card in range(3)
    }


def test_a_chip_whose_call_hung_twice_is_asked_again_before_it_is_unhealthy() -> None:
    assert LEAVE_OUT_S + LOOK_EACH_S + CALL_S < UNREAD_S


def test_the_time_of_a_call_left_out_begins_with_the_first_look_without_it() -> None:
    """While others hang, none of those that are left out has its turn again."""
    played = Played()
    played.lose(CODES)
    played.lose(CODES)
    played.now += 600.0
    played.lose(OTHER, shown=False)
    before = played.state.left_out(played.now)
    played.do(Started())
    played.do(Showed(sign=Sign.ALL_CHIPS))
    played.now += LEAVE_OUT_S / 2
    half = played.state.left_out(played.now)
    played.now += LEAVE_OUT_S

    left_s = [left_out[CODES] for left_out in (before, half)]
    assert left_s == [LEAVE_OUT_S, LEAVE_OUT_S / 2]
    assert played.state.left_out(played.now) == {}


def test_a_call_that_has_come_back_for_long_begins_anew() -> None:
    played = Played()
    for _ in range(3):
        played.lose(CODES)
    played.do(Started())
    played.do(Showed(sign=Sign.ALL_CHIPS))
    played.now += 2 * LEAVE_OUT_S + FORGIVE_S + 1.0
    played.lose(CODES)

    assert played.state.blames == {CODES: Blame()}


def test_workers_that_end_at_once_are_started_with_growing_pauses() -> None:
    played, pauses_s = Played(), []
    for _ in range(8):
        played.do(Started())
        played.do(Checked(beats=1, call=None, end_reason="has ended with exit code 1"))
        pauses_s.append(played.state.next_start_s - played.now)
    played.do(Started())
    played.stay(CALL_S, CODES, beats=True)
    played.do(Checked(beats=1, call=None, end_reason="was ended by SIGKILL"))

    assert pauses_s == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, MOST_PAUSE_S, MOST_PAUSE_S]
    assert played.state.next_start_s == played.now


def _are_alike(a: Call, b: Call) -> bool:
    return a.function == b.function or (a.card, a.device) == (b.card, b.device)


EACH = st.sampled_from([*EVENTS.values(), Checked(beats=1, call=OTHER)])


@given(st.lists(st.tuples(EACH, st.floats(0.0, 100.0)), max_size=60))
def test_no_call_is_left_out_in_which_no_two_workers_were_lost(
    course: list[tuple[Event, float]],
) -> None:
    played, lost = Played(), list[Call | None]()
    for event, pause_s in course:
        played.now += pause_s
        lost += [effect.call for effect in played.do(event)]

    for call, for_s in played.state.left_out(played.now).items():
        alike = [o for o in lost if o and _are_alike(o, call)]
        assert len(alike) >= 2
        assert 0 < for_s <= LEAVE_OUT_MOST_S
    assert played.state.next_start_s <= played.now + MOST_PAUSE_S
    is_blamed = {call for call in lost if call is not None}
    assert played.state.blames.keys() <= is_blamed
    assert all(b.until_s == inf or b.until_s > 0 for b in played.state.blames.values())
