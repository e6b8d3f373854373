"""Faults that grow worse by returning or by staying, and how they ease."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.devices.reading import Level
from agent.health import escalation
from agent.health.code_history import CodeHistory, Presence
from agent.health.escalation import FaultsRead, LevelChanged, State
from agent.health.rules import DEFAULT, Duration, Frequency
from agent.health.upgrades import Kind, Upgrade

LINK = "81078603"
HBM = "80E01801"
FLAPPING = "80E18005"
KEY = (3, HBM)
OFTEN = Frequency(window_s=100, times=3, level=Level.MANUALLY_SEPARATE, release_s=200)
ALL = frozenset(range(8))
CONFIG = replace(
    DEFAULT,
    frequency={
        HBM: Frequency(window_s=100, times=2, level=Level.MANUALLY_SEPARATE),
        LINK: OFTEN,
        FLAPPING: OFTEN,
    },
    duration={LINK: Duration(timeout_s=20, recover_s=60, level=Level.PRE_SEPARATE)},
)


def looked(*codes: str, chips: frozenset[int] = ALL, now: float = 0) -> FaultsRead:
    return FaultsRead(
        chips=chips,
        present={(3, code): Presence() for code in codes},
        config=CONFIG,
        now_ms=int(now * 1000),
    )


def told(*looks: tuple[float, str]) -> list[tuple[float, LevelChanged]]:
    """What was told when, as chip 3 showed these codes ("" for none)."""
    state, found = State(), list[tuple[float, LevelChanged]]()
    for now, code in looks:
        look = looked(*[code] if code else [], now=now)
        state, effects = escalation.step(state, look, now)
        found += [(now, effect) for effect in effects]
    return found


def upgrade(code: str, kind: Kind, at: float, level: Level | None = None) -> Upgrade:
    return Upgrade(
        chip=3,
        code=code,
        level=level or Level.MANUALLY_SEPARATE,
        kind=kind,
        at_ms=int(at * 1000),
    )


def started(of: Upgrade) -> LevelChanged:
    return LevelChanged(upgrade=of, is_over=False)


def ended(of: Upgrade) -> LevelChanged:
    return LevelChanged(upgrade=of, is_over=True)


TWICE = upgrade(HBM, Kind.FREQUENCY, 20)
LONG = upgrade(LINK, Kind.DURATION, 21, Level.PRE_SEPARATE)


def test_a_code_without_a_rule_is_not_followed() -> None:
    state, effects = escalation.step(State(), looked("80E3A201"), 0.0)

    assert (state, effects) == (State(), ())


def test_a_code_that_returns_within_its_window_separates_the_chip() -> None:
    assert told((0, HBM), (10, ""), (20, HBM), (21, HBM)) == [(20, started(TWICE))]


def test_a_code_that_stays_has_come_once() -> None:
    assert told((0, HBM), (10, HBM), (20, HBM)) == []


def test_a_code_that_returns_after_its_window_has_come_once() -> None:
    assert told((0, HBM), (10, ""), (100.1, HBM)) == []


def test_without_a_release_window_time_does_not_release() -> None:
    assert told((0, HBM), (10, ""), (20, HBM), (30, ""), (1e6, "")) == [
        (20, started(TWICE))
    ]


def test_with_one_a_code_that_stays_away_for_longer_releases() -> None:
    often = upgrade(FLAPPING, Kind.FREQUENCY, 40)

    assert told(
        *((0, FLAPPING), (10, ""), (20, FLAPPING), (30, ""), (40, FLAPPING), (50, "")),
        *((250, ""), (250.1, "")),
    ) == [(40, started(often)), (250.1, ended(often))]


def test_a_code_that_stays_longer_than_its_time_out_grows_worse() -> None:
    assert told((0, LINK), (20, LINK), (21, LINK), (30, LINK)) == [(21, started(LONG))]


def test_it_eases_when_the_code_is_gone_for_longer_than_its_way_back() -> None:
    assert told((0, LINK), (21, LINK), (30, ""), (90, ""), (91, "")) == [
        (21, started(LONG)),
        (91, ended(LONG)),
    ]


def test_a_code_that_comes_back_starts_its_way_back_anew() -> None:
    assert told(
        (0, LINK), (21, LINK), (30, ""), (80, LINK), (85, ""), (100, ""), (146, "")
    ) == [(21, started(LONG)), (146, ended(LONG))]


def test_of_a_chip_that_is_silent_nothing_is_learnt() -> None:
    state, _ = escalation.step(State(), looked(HBM), 0.0)
    state, _ = escalation.step(state, looked(chips=ALL - {3}), 10.0)

    state, effects = escalation.step(state, looked(HBM), 20.0)

    assert effects == ()
    assert state.histories[KEY] == CodeHistory(
        presence=Presence(),
        since=0.0,
        shown_s=20.0,
        occurrences_s=(0.0,),
        listed_s=0.0,
    )


def unread(*codes: str, count: int = 0, since_ms: int = 0) -> FaultsRead:
    """A reading without the codes of chip 3, of which these are known otherwise."""
    presence = Presence(count=count, since_ms=since_ms)
    look = looked(chips=ALL - {3})
    return replace(look, present={(3, code): presence for code in codes})


def raised_after(*looks: tuple[float, FaultsRead]) -> list[tuple[float, Kind]]:
    """(seconds, kind) of the levels that are raised at the end."""
    state = State()
    for now, look in looks:
        state, _ = escalation.step(state, replace(look, now_ms=int(now * 1000)), now)
    return [(each.at_ms / 1000, each.kind) for each in state.upgrades]


@pytest.mark.parametrize("until", [2.0, 20.0, 30.0, 1000.0])
def test_a_fault_is_not_overdue_while_its_chip_is_not_read(until: float) -> None:
    assert (
        raised_after((0, looked(LINK)), (1, looked(LINK)), (until, unread(LINK))) == []
    )


def test_one_that_is_there_before_and_after_such_a_time_is_overdue() -> None:
    looks = ((0, looked(LINK)), (10, unread(LINK)), (20, unread(LINK)))

    assert raised_after(*looks, (21, looked(LINK))) == [(21, Kind.DURATION)]


def test_one_that_began_again_in_such_a_time_is_not() -> None:
    again = replace(looked(), present={(3, LINK): Presence(since_ms=9000)})

    assert raised_after((0, looked(LINK)), (10, unread(LINK)), (21, again)) == []


def test_a_level_does_not_ease_while_its_chip_is_not_read() -> None:
    looks = ((0, looked(LINK)), (21, looked(LINK)), (30, looked()))

    assert raised_after(*looks, (1000, unread())) == [(21, Kind.DURATION)]
    assert raised_after(*looks, (1000, unread()), (1001, looked())) == []


def test_events_of_a_chip_that_is_not_read_count() -> None:
    looks = [(10.0 * n, unread(HBM, count=n, since_ms=n)) for n in (1, 2)]

    assert raised_after(*looks) == [(20, Kind.FREQUENCY)]


def test_a_person_who_releases_the_chip_forgives_what_was() -> None:
    state, _ = escalation.step(State(), looked(HBM), 0.0)
    state, _ = escalation.step(state, looked(), 10.0)
    state, _ = escalation.step(state, looked(HBM, now=20), 20.0)

    state = escalation.lift_separation(state, 3)

    assert state.upgrades == ()
    # the code that is still there is forgiven, its next coming is the first
    state, effects = escalation.step(state, looked(HBM), 22.0)
    assert effects == ()
    state, _ = escalation.step(state, looked(), 23.0)
    state, effects = escalation.step(state, looked(HBM), 24.0)
    assert effects == ()
    state, _ = escalation.step(state, looked(), 25.0)
    _, effects = escalation.step(state, looked(HBM, now=26), 26.0)
    assert effects == (started(replace(TWICE, at_ms=26000)),)


def test_a_pardon_is_for_one_chip_and_for_separation_only() -> None:
    upgrades = (LONG, replace(TWICE, chip=4), TWICE)
    state = escalation.restore(State(), upgrades, 0.0)

    state = escalation.lift_separation(state, 3)

    assert state.upgrades == (LONG, replace(TWICE, chip=4))


def test_what_was_in_force_before_a_restart_eases_as_if_its_code_had_just_gone() -> (
    None
):
    state = escalation.restore(State(), (LONG,), 100.0)

    state, effects = escalation.step(state, looked(), 160.0)
    assert (state.upgrades, effects) == ((LONG,), ())
    state, effects = escalation.step(state, looked(), 160.1)
    assert (state.upgrades, effects) == ((), (ended(LONG),))


def test_an_overdue_fault_that_a_restart_finds_has_occurred_once() -> None:
    state = escalation.restore(State(), (LONG,), 0.0)
    state, _ = escalation.step(state, looked(LINK), 1.0)
    state, _ = escalation.step(state, looked(LINK), 50.0)

    assert state.upgrades == (LONG,)
    assert state.histories[3, LINK].occurrences_s == (0.0,)


def test_a_rule_that_is_taken_away_takes_its_level_with_it_but_releases_nobody() -> (
    None
):
    often = upgrade(LINK, Kind.FREQUENCY, 1, Level.SEPARATE)
    state = escalation.restore(State(), (LONG, often, TWICE), 0.0)
    bare = replace(looked(), config=replace(CONFIG, frequency={}, duration={}))

    state, effects = escalation.step(state, bare, 1.0)

    assert state.upgrades == (TWICE,)
    assert effects == (ended(LONG), ended(often))


def test_nothing_is_remembered_of_a_code_from_which_nothing_can_follow() -> None:
    state, _ = escalation.step(State(), looked(HBM), 0.0)
    state, _ = escalation.step(state, looked(), 10.0)
    assert KEY in state.histories

    state, _ = escalation.step(state, looked(), 100.1)

    assert state == State()


@pytest.mark.property
@given(
    st.lists(
        st.tuples(st.floats(0.1, 60), st.sampled_from(["", LINK, HBM])), max_size=40
    )
)
def test_a_flapping_chip(steps: list[tuple[float, str]]) -> None:
    """Levels alternate with their ends; nothing is kept that has no use."""
    state, now = State(), 0.0
    in_force = set[Upgrade]()
    for pause, code in steps:
        now += pause
        look = looked(*[code] if code else [], now=now)
        state, effects = escalation.step(state, look, now)
        for effect in effects:
            if not effect.is_over:
                assert effect.upgrade not in in_force
                in_force.add(effect.upgrade)
            else:
                in_force.remove(effect.upgrade)
        assert in_force == set(state.upgrades)
        assert len(state.histories) <= 2
        assert all(
            at >= now - 100
            for history in state.histories.values()
            for at in history.occurrences_s
        )
    # left alone, all that has a way back walks it
    for quiet in (1000.0, 2000.0):
        state, _ = escalation.step(state, looked(), now + quiet)
    assert {each.code for each in state.upgrades} <= {HBM}
