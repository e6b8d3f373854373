"""Chips whose calls come back late, beside chips that answer at once.

The world is that of the machine of two lines: simulated time, real agent, its laws.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent.devices.board_size import UnknownMachineError
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.reader import LOOK_EACH_S, QUIET_LOOK_EACH_S, SLOW_S
from agent.devices.dcmi.values import SLOW as IS_SLOW
from agent.devices.dcmi.values import ChipState, Survey
from agent.devices.reading import Reading
from agent.health.conditions import Condition
from tests.agent.devices.dcmi import test_two_lines_machine
from tests.agent.devices.dcmi.simulated_node import KNOWN
from tests.agent.devices.dcmi.test_two_lines_machine import (
    ALL,
    BAD,
    IN_SERVICE,
    LASTING,
    LOOKS,
    METHODS,
    STAYS_S,
    TwoLines,
)
from tests.agent.devices.rude_library import Hang, RudeLibrary
from tests.agent.devices.scripted_library import FUNCTIONS
from tests.agent.driven_node import CALL_S, POLL_S, RECONCILE_S, RECOVER_S

#: How long each call about a slow chip takes: no hang, but nearly.
LATE_S = CALL_S - 0.5
#: The chip that answers at once, on the second product line.
QUICK = 4
MANY = tuple(chip for chip in ALL if chip != QUICK)
SLOW = [(1,), pytest.param(MANY, marks=pytest.mark.long)]
#: From a fault of that chip to its condition, while it is known which others are slow:
#: the call under way, and what may be between its last look and the next turn.
SEEN_S = LATE_S + LOOK_EACH_S + SLOW_S + 2 * POLL_S
#: Three calls of each chip, and what lies between.
PASS_S = len(ALL) * 3 * (LATE_S + 0.5)
#: The same, and all calls that identify them.
CYCLE_S = PASS_S * len(METHODS) / 3


@pytest.fixture
def world() -> Iterator[TwoLines]:
    world = TwoLines()
    yield world
    world.teardown()


def slow_down(
    world: TwoLines, chips: Iterable[int], methods: Iterable[str] = METHODS
) -> None:
    """From now on each of these calls about the chips is late."""
    hang = Hang(for_s=LATE_S, is_once=False)
    methods = list(methods)
    world.library.hangs |= {(m, chip): hang for chip in chips for m in methods}


def seconds_until(world: TwoLines, is_met: Callable[[], bool]) -> float:
    """Let time pass until something is so; return how long that took."""
    began_s = world.loop.time()
    while not is_met():
        assert world.loop.time() - began_s < 2 * CYCLE_S, "it never was"
        world.pass_s(POLL_S)
    return world.loop.time() - began_s


def out(world: TwoLines) -> list[int]:
    return [c for c in ALL if world.conditions[c] not in IN_SERVICE]


def is_told(world: TwoLines, chip: int, code: int) -> bool:
    return code in world.library.truth.answers[chip].codes


def fault_seen_s(world: TwoLines, chip: int) -> float:
    world.fault(chip, (BAD,))
    return seconds_until(world, lambda: chip in out(world))


@pytest.mark.parametrize("slow", SLOW, ids=len)
@pytest.mark.parametrize("has_events", [False, True])
def test_a_fault_is_seen_within_one_call_of_slow_chips(
    world: TwoLines, slow: tuple[int, ...], *, has_events: bool
) -> None:
    """It took the looks at all of them: 13 s beside one, and 376 s beside six."""
    world.begin(has_events=has_events, load_s=0.0)
    slow_down(world, slow)
    world.pass_s(CYCLE_S)
    seen_s, back_s, others = [], [], set[int]()
    for pause_s in (1.0, 2.5, 5.5, 9.0, 13.0):
        seen_s.append(fault_seen_s(world, QUICK))
        others |= set(out(world)) - {QUICK}
        world.fault(QUICK, ())
        back_s.append(seconds_until(world, lambda: QUICK not in out(world)))
        world.pass_s(pause_s)

    assert max(seen_s) <= SEEN_S < 15.0
    assert max(back_s) <= SEEN_S + RECOVER_S + LATE_S
    assert others == set()


@pytest.mark.parametrize("slow", SLOW, ids=len)
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_chip_that_becomes_slow_costs_the_others_one_call(
    world: TwoLines, slow: tuple[int, ...], *, is_killed: bool
) -> None:
    """So it is with each slow chip of a new worker."""
    world.begin(has_events=False, load_s=0.0)
    if is_killed:
        slow_down(world, slow)
        world.pass_s(3 * PASS_S)
        world.worker_is_killed(0.0)
    else:
        world.pass_s(10.0)
        slow_down(world, slow)
    seen_s = fault_seen_s(world, QUICK)
    world.pass_s(3 * PASS_S)

    assert seen_s <= len(slow) * LATE_S + SEEN_S
    assert out(world) == [QUICK]


@pytest.mark.parametrize("slow", SLOW, ids=len)
def test_a_fault_of_a_slow_chip_is_seen_too_and_its_end(
    world: TwoLines, slow: tuple[int, ...]
) -> None:
    world.begin(has_events=False, load_s=0.0)
    slow_down(world, slow)
    world.pass_s(3 * PASS_S)
    fault_seen_s(world, slow[-1])
    world.fault(slow[-1], ())
    seconds_until(world, lambda: not out(world))


@pytest.mark.parametrize("slow", SLOW, ids=len)
def test_a_slow_chip_whose_fault_comes_and_goes_does_not_come_back(
    world: TwoLines, slow: tuple[int, ...]
) -> None:
    """It did after each look without the fault, by the time until the next one."""
    world.begin(has_events=False, load_s=0.0)
    slow_down(world, slow, LOOKS)
    world.pass_s(3 * PASS_S)
    fault_seen_s(world, slow[-1])
    was_out = set[bool]()
    for codes in 3 * ((), (BAD,)):
        world.fault(slow[-1], codes)
        while is_told(world, slow[-1], BAD) is not bool(codes):
            world.pass_s(POLL_S)
            was_out.add(slow[-1] in out(world))

    assert was_out == {True}


@pytest.mark.parametrize("slow", SLOW, ids=len)
def test_a_chip_that_answers_at_once_is_free_soon_after_its_pod(
    world: TwoLines, slow: tuple[int, ...]
) -> None:
    """The look that shows it free lasted for as long as all chips took."""
    world.begin(has_events=False, load_s=0.0)
    world.pod_comes(1, 6.0, is_second=True, is_after=False, is_in_pod=False)
    slow_down(world, slow, LOOKS)
    world.pass_s(3 * PASS_S)
    node = world.known_node
    (name,) = node.pods
    chips = node.pods[name].chips
    node.end_pod(name)
    node.end_processes(lambda _each: True)
    free_s = seconds_until(world, lambda: not node.lines[1].held)

    assert chips == (QUICK,)
    assert free_s <= SEEN_S + RECONCILE_S


def test_a_look_that_is_asked_for_begins_with_the_chips_that_answer_at_once(
    world: TwoLines,
) -> None:
    """A pod waits for it for a second, and was refused after that."""
    world.begin(has_events=True, load_s=0.0)
    slow_down(world, (1,), LOOKS)
    world.pass_s(3 * LATE_S)
    node, process = world.known_node, world.known_node.workers.last
    seconds_until(world, lambda: process.is_well)
    asked_s = world.loop.time()
    node.poller.look_now()
    world.pass_s(1.0)

    assert node.observation.reading is not None
    assert node.observation.reading.looked_s >= asked_s
    assert node.observation.reading.chips_read == {0, 2, 3}


def last_reading(world: TwoLines) -> Reading:
    reading = world.known_node.observation.reading
    assert reading is not None
    return reading


def is_asked(world: TwoLines, chip: int, method: str) -> bool:
    """Whether this call about the chip is under way."""
    call = world.known_node.workers.last.call
    name = FUNCTIONS[method][0]
    return call is not None and (call.card, call.function) == (chip, name)


#: Calls of a slow chip that still let it rest between two looks, while it is quiet.
DRAWLED_S = 0.7
#: To the end of a look that begins after the one under way.
NEXT_S = 2 * len(LOOKS) * DRAWLED_S + LOOK_EACH_S + 2 * POLL_S


def drawl(world: TwoLines) -> None:
    """From now on chip 1 is slow, and quiet: it is read each ten seconds."""
    world.begin(has_events=True, load_s=0.0)
    hang = Hang(for_s=DRAWLED_S, is_once=False)
    world.library.hangs |= {(method, 1): hang for method in LOOKS}
    world.pass_s(3 * QUIET_LOOK_EACH_S)


@pytest.mark.parametrize("after_s", [0.0, 1.0, 2.5, 4.0, 6.5, 8.0, 8.5, 9.5])
def test_a_look_that_is_asked_for_reaches_slow_chips_too(
    world: TwoLines, after_s: float
) -> None:
    """It read the others only: a pod waited for up to ten seconds for a slow chip."""
    drawl(world)
    process = world.known_node.workers.last
    seconds_until(world, lambda: process.call is not None and process.call.card == 1)
    seconds_until(world, lambda: process.call is None)
    world.pass_s(after_s)
    asked_s = world.loop.time()
    world.known_node.poller.look_now()
    read_s = seconds_until(
        world,
        lambda: (
            1 in last_reading(world).chips_read
            and last_reading(world).looked_s >= asked_s
        ),
    )

    assert read_s <= NEXT_S < QUIET_LOOK_EACH_S - DRAWLED_S


@pytest.mark.parametrize("method", LOOKS)
def test_an_event_in_the_middle_of_a_slow_look_has_the_chip_read_again(
    world: TwoLines, method: str
) -> None:
    """The end of that look took the event for read, and the next came 10 s later."""
    drawl(world)
    seconds_until(world, lambda: is_asked(world, 1, method))
    world.fault(1, (BAD,))
    rest_s = seconds_until(world, lambda: not is_asked(world, 1, "codes"))
    again_s = seconds_until(world, lambda: is_asked(world, 1, "codes"))
    world.pass_s(len(LOOKS) * DRAWLED_S + POLL_S)

    assert rest_s + again_s <= NEXT_S - len(LOOKS) * DRAWLED_S
    assert out(world) == [1]


@pytest.mark.parametrize("is_left", [False, True])
def test_a_slow_chip_is_not_released_by_a_look_from_before(
    world: TwoLines, *, is_left: bool
) -> None:
    """The law of the machine: no process of an ended pod is on it, if that is told."""
    world.begin(has_events=False, load_s=0.0)
    world.pod_comes(1, 6.0, is_second=True, is_after=False, is_in_pod=False)
    slow_down(world, (QUICK,), LOOKS)
    world.pass_s(3 * LATE_S)
    node = world.known_node
    (name,) = node.pods
    for _ in range(10):
        world.pass_s(1.7)
        node.poller.look_now()
    node.end_pod(name)
    if not is_left:
        node.end_processes(lambda _each: True)
    world.pass_s(PASS_S)

    assert bool(node.lines[1].held) == is_left


def test_the_time_between_two_looks_at_a_slow_chip_is_no_time_of_its_faults(
    world: TwoLines,
) -> None:
    """A fault of a second would have been raised as one of twenty."""
    world.begin(has_events=False, load_s=0.0)
    world.edit("timed")
    slow = MANY
    slow_down(world, slow)
    world.pass_s(3 * PASS_S)
    raised = []
    for chip in slow[:2]:
        world.fault(chip, (LASTING,))
        seconds_until(world, partial(is_told, world, chip, LASTING))
        world.fault(chip, ())
        for _ in range(round(2 * STAYS_S)):
            world.pass_s(1.0)
            raised += list(world.known_node.raised())

    assert raised == []


def test_while_all_chips_are_slow_none_counts_as_read_before_all_are(
    world: TwoLines,
) -> None:
    world.begin(has_events=False, load_s=0.0)
    slow_down(world, ALL, LOOKS)
    world.pass_s(2 * PASS_S)
    node, stale = world.known_node, set[bool]()
    before = dict(world.conditions)
    for _ in range(round(PASS_S)):
        world.pass_s(1.0)
        stale.add(node.loop.time() - node.observation.reading.read_s > 15.0)  # type: ignore[union-attr]

    assert stale == {False, True}
    assert world.conditions == before == dict.fromkeys(ALL, Condition.HEALTHY)


@pytest.mark.parametrize("slow", [(1,), (2, QUICK, 6)], ids=len)
@pytest.mark.parametrize("has_events", [False, True])
def test_a_chip_that_fails_slowly_is_out_of_service_and_no_other(
    world: TwoLines, slow: tuple[int, ...], *, has_events: bool
) -> None:
    """It stayed in service: between two looks it counted as one that is only slow."""
    world.begin(has_events=has_events, load_s=0.0)
    world.pass_s(10.0)
    slow_down(world, slow, LOOKS)
    for chip in slow:
        for method in LOOKS:
            world.fails(method, chip, -8001, 0.0)
    seconds_until(world, lambda: {*slow} <= {*out(world)})
    for _ in range(round(PASS_S)):
        world.pass_s(1.0)
        assert out(world) == [*slow]


@pytest.mark.parametrize(("late_s", "slow"), [(LATE_S, (1, 2, 3)), (1.0, ALL)])
def test_an_agent_that_starts_beside_slow_chips_serves_the_node(
    world: TwoLines,
    monkeypatch: pytest.MonkeyPatch,
    late_s: float,
    slow: tuple[int, ...],
) -> None:
    """Its worker was replaced each 30 s, since some chips were not asked yet."""
    hang = Hang(for_s=late_s, is_once=False)

    def late(*args: Any, **kwargs: Any) -> RudeLibrary:
        library = RudeLibrary(*args, **kwargs)
        library.hangs |= {(method, chip): hang for chip in slow for method in LOOKS}
        return library

    monkeypatch.setattr(test_two_lines_machine, "RudeLibrary", late)
    began_s = world.loop.time()
    world.begin(has_events=False, load_s=0.0)

    assert world.loop.time() - began_s <= len(slow) * len(LOOKS) * late_s + 2.0
    assert {*world.conditions} == {*ALL}
    assert out(world) == []


def test_an_agent_begins_when_each_chip_was_asked_once() -> None:
    """Else slow chips would be unhealthy for a while after each restart."""
    conversion = Conversion(known=KNOWN)
    chips = tuple(ChipState(identity=chip) for chip in KNOWN.identities)
    slow = replace(chips[5], unread=IS_SLOW)
    with pytest.raises(UnknownMachineError, match=r"^chip 5 is not read yet: "):
        conversion.reading(Survey(chips=(*chips[:5], slow, *chips[6:])), 0, 0.0)
    first = conversion.reading(Survey(chips=chips), 0, 1.0)
    later = conversion.reading(Survey(chips=(*chips[:5], slow, *chips[6:])), 0, 2.0)

    assert (first.chips, first.unread) == (tuple(range(8)), ())
    assert later.chips_read == frozenset(range(8)) - {5}
    assert (later.chips, later.why_unread(5), later.is_old) == (first.chips, "", False)


@pytest.mark.parametrize("error", [None, -8001, -8005])
def test_a_card_that_is_put_back_is_served_whatever_its_place_answered(
    world: TwoLines, error: int | None
) -> None:
    """It was out of service for ever after another error than -8008."""
    world.begin(has_events=False, load_s=0.0)
    world.library.away_error = error
    world.lists_cards_at_load_only(is_so=True)
    world.card_is_pulled(3, 5.0)
    world.worker_is_killed(60.0)
    away = out(world)
    world.card_is_back(3, 200.0)

    assert (away, out(world)) == ([3], [])
