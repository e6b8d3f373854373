"""The way of faults through time: each transition, then all orders of them."""

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from extender.rescheduling import machine
from extender.rescheduling.assessment import Assessment, Word
from extender.rescheduling.moves import Limits, Tell
from extender.rescheduling.state import (
    Changed,
    Effect,
    Event,
    Judge,
    Judged,
    Seen,
    Sighting,
    State,
    Ticked,
)
from scheduler_core.rescheduling.ladder import Rung
from scheduler_core.wire.chip_faults import ChipFault
from scheduler_core.wire.chip_faults import Effect as FaultEffect
from tests.support.examples import examples

PLACE, OTHER = ("n1", "npu"), ("n2", "npu")
HARD = ChipFault(
    chip=3, effect=FaultEffect.OUT_OF_SERVICE, level="SeparateNPU", codes=("A1",)
)
SOFT = replace(HARD, level="RestartRequest")
MOVES = Assessment(
    word=Word.MOVES, rung=Rung.PODS, leaving=("a",), places={"a": "n9 (chips 0)"}
)
STAYS = Assessment(word=Word.STAYS, why="because")
NO_SPARE = Assessment(word=Word.NO_SPARE, why="3 no free chip")
UNKNOWN = Assessment(word=Word.UNKNOWN, why="being read")
UNASKED = Assessment(word=Word.UNASKED)


def hard(job: str = "j", chips: int = 8) -> Sighting:
    return Sighting(job=job, fault=HARD, chips=chips, settle_s=0.0)


def soft(job: str = "j") -> Sighting:
    return Sighting(job=job, fault=SOFT, chips=8, settle_s=10.0)


@dataclass(slots=True)
class Story:
    """The machine, and a judge who says what the test has it say."""

    assessment: Assessment = MOVES
    state: State = field(default_factory=State)
    now_s: float = 1000.0

    def apply(self, event: Event) -> list[Effect]:
        """Apply an event and answer each `Judge`; return all effects."""
        self.state, effects = machine.step(self.state, event, self.now_s)
        found: list[Effect] = []
        for effect in effects:
            found.append(effect)
            if isinstance(effect, Judge):
                found += self.apply(
                    Judged(
                        job=effect.job, faulty=effect.faulty, assessment=self.assessment
                    )
                )
        return found

    def see(self, place: tuple[str, str] = PLACE, **pods: Sighting) -> list[Effect]:
        return self.apply(Seen(place=place, pods=pods))

    def tick(self, seconds: float = 1.0) -> list[Effect]:
        self.now_s += seconds
        return self.apply(Ticked())

    def change(self) -> list[Effect]:
        return self.apply(Changed(job="j"))


def judges(effects: list[Effect]) -> list[dict[str, int]]:
    return [dict(effect.faulty) for effect in effects if isinstance(effect, Judge)]


def told(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(each.uid, each.reason) for each in effects if isinstance(each, Tell)]


def test_nothing_broken_leaves_the_very_same_state() -> None:
    state = State()

    for event in (
        Seen(place=PLACE, pods={}),
        Changed(job="j"),
        Judged(job="j", faulty={}, assessment=MOVES),
        Ticked(),
    ):
        after, effects = machine.step(state, event, 1.0)
        assert (after is state, effects) == (True, ())


def test_a_hard_fault_is_judged_and_told_at_once_and_once() -> None:
    story = Story()

    first = story.see(u1=hard())

    assert judges(first) == [{"u1": 8}]
    assert told(first) == [("u1", "AscendWouldMove")]
    assert story.see(u1=hard()) == []
    assert [story.tick() for _ in range(100)] == [[]] * 100


def test_what_a_pod_is_told_says_chip_code_and_level() -> None:
    story = Story()

    (_, tell) = story.see(u1=hard())

    assert isinstance(tell, Tell)
    assert tell.text == (
        "chip 3 of this pod is broken (SeparateNPU A1). With evictions, the fault pods "
        "of its job would go (a). Found places: a on n9 (chips 0). --rescheduling "
        "report evicts nothing. If the pod cannot go on, delete it, or have its job "
        "restart it"
    )


def test_a_soft_fault_settles_first_and_looks_do_not_prolong_it() -> None:
    story = Story()
    assert story.see(u1=soft()) == []

    for _ in range(9):
        assert story.tick() == []
        assert story.see(u1=soft()) == []

    assert judges(story.tick()) == [{"u1": 8}]


def test_a_soft_fault_that_ends_in_time_is_never_judged() -> None:
    story = Story()
    story.see(u1=soft())
    story.tick(9)

    assert story.see() == []
    assert story.tick(100) == []
    assert story.state == State()


def test_a_soft_fault_that_becomes_hard_waits_no_longer() -> None:
    story = Story()
    story.see(u1=soft())

    assert judges(story.see(u1=hard())) == [{"u1": 8}]


def test_a_hard_fault_that_becomes_soft_stays_due() -> None:
    story = Story()
    story.see(u1=hard())
    story.now_s += 100

    assert judges(story.see(u1=soft())) == [{"u1": 8}]


def test_a_second_fault_joins_the_first_and_both_pods_are_told() -> None:
    story = Story()
    story.see(u1=hard())
    story.assessment = replace(MOVES, leaving=("a", "b"))

    second = story.see(OTHER, u2=hard())

    assert judges(second) == [{"u1": 8, "u2": 8}]
    assert {uid for uid, _ in told(second)} == {"u1", "u2"}


def test_a_second_pod_is_told_the_same_assessment_and_the_first_not_again() -> None:
    story = Story()
    story.see(u1=hard())

    assert told(story.see(OTHER, u2=hard())) == [("u2", "AscendWouldMove")]


def test_a_second_fault_that_settles_is_no_part_of_the_question_yet() -> None:
    story = Story()
    story.see(u1=hard())
    story.see(OTHER, u2=soft())
    story.tick(5)
    assert [dict(job.judged) for job in story.state.jobs.values()] == [{"u1": 8}]

    assert judges(story.tick(5)) == [{"u1": 8, "u2": 8}]


def test_another_chip_of_the_same_pod_is_judged_at_once() -> None:
    story = Story()
    story.see(u1=hard())

    assert judges(story.see(u1=hard(chips=12))) == [{"u1": 12}]


def test_a_fault_that_ends_leaves_the_others_judged_again() -> None:
    story = Story()
    story.see(u1=hard())
    story.see(OTHER, u2=hard())

    assert judges(story.see()) == [{"u2": 8}]
    assert story.see(OTHER) == []
    assert story.state == State()


def test_a_pod_that_changes_its_job_leaves_the_first() -> None:
    story = Story()
    story.see(u1=hard())

    moved = story.see(u1=hard(job="k"))

    assert [each.job for each in moved if isinstance(each, Judge)] == ["k"]
    assert story.state.jobs.keys() == {"k"}


def test_jobs_are_judged_apart() -> None:
    story = Story()

    both = story.see(u1=hard(), u2=hard(job="k"))

    asked = {each.job: dict(each.faulty) for each in both if isinstance(each, Judge)}
    assert asked == {"j": {"u1": 8}, "k": {"u2": 8}}


def test_changes_have_it_judged_again_with_pauses_and_told_if_it_is_news() -> None:
    story = Story(NO_SPARE)
    story.see(u1=hard())

    at = []
    for second in range(1, 121):
        story.change()
        if judges(story.tick()):
            at.append(second)
    assert at == [1, 3, 7, 15, 31, 61, 91]

    story.assessment = MOVES
    story.change()
    assert told(story.tick(30)) == [("u1", "AscendWouldMove")]
    story.change()
    assert judges(story.tick()) == [{"u1": 8}], "the pause is short again"


def test_nothing_is_judged_again_unless_something_changes() -> None:
    story = Story(NO_SPARE)
    story.see(u1=hard())

    assert [story.tick(60) for _ in range(10)] == [[]] * 10


def test_places_and_numbers_that_change_are_no_news() -> None:
    story = Story(NO_SPARE)
    story.see(u1=hard())
    story.assessment = replace(NO_SPARE, why="4 no free chip")
    story.change()
    assert told(story.tick()) == []
    assert story.state.jobs["j"].assessment == story.assessment


def test_what_is_awaited_is_judged_without_a_pause() -> None:
    story = Story(UNKNOWN)
    assert told(story.see(u1=hard())) == []
    story.assessment = STAYS

    story.apply(Changed(job="j", is_awaited=True))

    assert told(story.apply(Ticked())) == [("u1", "AscendNotMoved")]


@pytest.mark.parametrize(
    ("assessment", "reason"),
    [
        (MOVES, ["AscendWouldMove"]),
        (replace(MOVES, word=Word.SHRINKS), ["AscendWouldMove"]),
        (NO_SPARE, ["AscendNoSpare"]),
        (STAYS, ["AscendNotMoved"]),
        (UNKNOWN, []),
        (UNASKED, []),
    ],
)
def test_each_assessment_has_its_event_or_none(
    assessment: Assessment, reason: list[str]
) -> None:
    assert [reason for _, reason in told(Story(assessment).see(u1=hard()))] == reason


def test_a_tick_judges_few_jobs_and_the_next_one_the_others() -> None:
    story = Story()
    pods = {f"u{number}": soft(f"job{number}") for number in range(6)}
    story.apply(Seen(place=PLACE, pods=pods))

    first, second = story.tick(10), story.tick()

    assert len(judges(first)) == Limits().at_once
    assert len(judges(second)) == 2


UIDS = ("u1", "u2", "u3")
#: {pod: (its place, its job)}
WHERE = {"u1": (PLACE, "j"), "u2": (PLACE, "k"), "u3": (OTHER, "j")}


class Faults(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        #: {pod: how long its fault settles, and since when}
        self.broken: dict[str, tuple[float, float]] = {}
        self.told: list[tuple[str, tuple[object, ...]]] = []

    def _see(self, place: tuple[str, str]) -> None:
        pods = {
            uid: replace(hard(WHERE[uid][1]), settle_s=settle_s)
            for uid, (settle_s, _) in self.broken.items()
            if WHERE[uid][0] == place
        }
        self._note(self.story.apply(Seen(place=place, pods=pods)))

    def _note(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Tell):
                news = self.story.assessment.news
                assert effect.uid in self.broken, "a pod without a fault is told"
                self.told.append((effect.uid, news))

    @rule(uid=st.sampled_from(UIDS), settle_s=st.sampled_from([0.0, 10.0]))
    def breaks(self, uid: str, settle_s: float) -> None:
        self.broken.setdefault(uid, (settle_s, self.story.now_s))
        self._see(WHERE[uid][0])

    @rule(uid=st.sampled_from(UIDS))
    def recovers(self, uid: str) -> None:
        self.broken.pop(uid, None)
        self.told = [each for each in self.told if each[0] != uid]
        self._see(WHERE[uid][0])

    @rule(seconds=st.sampled_from([1.0, 3.0, 10.0]))
    def passes(self, seconds: float) -> None:
        self._note(self.story.tick(seconds))

    @rule(job=st.sampled_from("jk"), is_awaited=st.booleans())
    def changes(self, job: str, *, is_awaited: bool) -> None:
        event = Changed(job=job, is_awaited=is_awaited)
        self._note(self.story.apply(event))

    @rule(assessment=st.sampled_from([MOVES, STAYS, NO_SPARE, UNKNOWN, UNASKED]))
    def judge_thinks(self, assessment: Assessment) -> None:
        self.story.assessment = assessment

    @invariant()
    def the_jobs_are_those_with_faults(self) -> None:
        jobs = {WHERE[uid][1] for uid in self.broken}
        assert self.story.state.jobs.keys() == jobs
        known = {uid for job in self.story.state.jobs.values() for uid in job.pods}
        assert known == self.broken.keys()

    @invariant()
    def a_assessment_is_about_the_pods_that_are_due(self) -> None:
        for job in self.story.state.jobs.values():
            due = {uid for uid in job.pods if sum(self.broken[uid]) <= self.story.now_s}
            assert job.due(self.story.now_s).keys() == due
            if due:
                assert job.judged.keys() == due

    @invariant()
    def no_pod_is_told_the_same_twice_in_a_row(self) -> None:
        for uid in UIDS:
            news = [told for each, told in self.told if each == uid]
            pairs = itertools.pairwise(news)
            assert all(one != other for one, other in pairs)


@examples(60, pytest.param(400, marks=pytest.mark.long))
def test_in_any_order_jobs_with_due_pods_have_assessments_and_no_others(
    examples: int,
) -> None:
    run_state_machine_as_test(
        Faults, settings=settings(max_examples=examples, deadline=None)
    )
