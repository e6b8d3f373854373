"""Each row of the table of problems: each way in which it is told, and its end."""

import asyncio
import logging
from collections import Counter
from itertools import permutations

import pytest

from agent.observe.problems import STAYS_S, UNANSWERED_S, Need, Row, Subject
from kube.errors import KubeError, UnreachableError, api_error
from kube.events import Regarding
from tests.agent.announcing import Announced

#: What has a problem, where a node has several such things.
ONE, OTHER = "huawei.com/Ascend910", "huawei.com/Ascend310P"
#: {need of the agent: its rows, which have all ways of telling together}
NEEDS = {
    "driver, from the start": (Subject.START,),
    "driver": (Subject.DRIVER, Subject.READINGS),
    "API server": (Subject.API_SERVER,),
    "rights at the API server": (Subject.API_ACCESS,),
    "ConfigMap": (Subject.REPORT,),
    "pod-resources": (Subject.POD_RESOURCES,),
    "journal": (Subject.JOURNAL,),
}

every_row = pytest.mark.parametrize("subject", Subject, ids=lambda each: each.name)
pytestmark = pytest.mark.looptime


class World(Announced):
    """A node whose problems are told, in simulated time."""

    async def has(
        self, subject: Subject, problem: str = "broken", of: str = ""
    ) -> None:
        """Let a thing have a problem for as long as it takes to be told."""
        self.problems.tell(subject, problem, of=of)
        await asyncio.sleep(subject.value.after_s)
        self.problems.tell(subject, problem, of=of)

    def answers(self, subject: Subject, of: str = "") -> None:
        self.problems.tell(subject, "", of=of, end="a row")

    def count(self, row: Row) -> Counter[str]:
        """How often each message of the event at a problem's begin was recorded."""
        return Counter(
            {
                key.message: fact.count
                for key, fact in self._recorder._pending.items()
                if key.reason == row.events[0]
            }
        )

    def gauge(self, row: Row) -> float | None:
        name, *kind = row.gauge
        return self.metric(name, **({"kind": kind[0]} if kind else {}))

    def shown(self, subject: Subject) -> list[object]:
        """Whether readiness, status and metric tell of it; the reasons of events."""
        row = subject.value
        return [
            bool(self.problems.why_not_ready()),
            bool(self.problems.status().get(row.status)),
            bool(row.gauge and self.gauge(row)),
            [reason for reason, _ in self.events],
        ]


def ways(row: Row) -> list[object]:
    """What `World.shown` says during the problem, by the table."""
    events = [row.events[0]] if row.events[0] else []
    return [bool(row.ready), bool(row.status), bool(row.gauge), events]


def sentence(subject: Subject, problem: str) -> str:
    return subject.value.text.format(problem=problem)


@pytest.mark.parametrize("need", NEEDS)
def test_each_need_is_told_in_each_way_and_so_is_its_end(need: str) -> None:
    rows = [subject.value for subject in NEEDS[need]]

    assert [
        any(row.ready for row in rows),
        any(row.status for row in rows),
        any(row.gauge for row in rows),
        any(all(row.events) and row.end for row in rows),
    ] == [True] * 4


@every_row
async def test_a_problem_is_told_as_its_row_says_and_taken_back(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world, row = World(), subject.value
    before = world.shown(subject)
    await world.has(subject)
    during, text = world.shown(subject), world.problems.status().get(row.status)
    logged = [(each.levelno, each.message) for each in caplog.records]
    world.answers(subject)
    after = world.shown(subject)

    assert before == [False, False, False, []]
    assert during == ways(row)
    assert text in (None, sentence(subject, "broken"))
    assert after == [False, False, False, [each for each in row.events if each]]
    assert logged == ([(row.level, row.log[0])] if row.log[0] else [])
    assert [each.message for each in caplog.records] == [*filter(None, row.log)]
    assert not any("{" in message for _, message in world.events)


@every_row
async def test_a_problem_of_which_no_more_is_heard_is_told_when_its_time_has_come(
    subject: Subject,
) -> None:
    world, row = World(), subject.value
    world.problems.tell(subject, "broken")
    await asyncio.sleep(row.after_s - 0.1 if row.after_s else 0)
    before = world.shown(subject)
    await asyncio.sleep(0.2)

    assert before == ([False, False, False, []] if row.after_s else ways(row))
    assert world.shown(subject) == ways(row)


@every_row
async def test_what_is_told_already_is_told_again_only_with_another_sentence(
    subject: Subject,
) -> None:
    world, row = World(), subject.value
    for problem in ("broken", "broken", "on fire", "broken"):
        await world.has(subject, problem)

    news = ["broken"] if row.is_announced_once else ["broken", "on fire", "broken"]
    texts = [sentence(subject, problem) for problem in news if row.events[0]]
    assert world.count(row) == Counter(texts)


@every_row
async def test_readiness_and_status_have_the_sentence_of_now(subject: Subject) -> None:
    world, row = World(), subject.value
    await world.has(subject, "broken")
    await world.has(subject, "on fire")
    now = sentence(subject, "on fire")

    assert world.problems.status().get(row.status) == (now if row.status else None)
    ready = row.ready.format(problem="on fire", text=now)
    assert world.problems.why_not_ready() == (ready or None)


@every_row
async def test_a_problem_that_is_shorter_than_its_row_says_is_told_to_nobody(
    subject: Subject,
) -> None:
    world, row = World(), subject.value
    if not row.after_s:
        return
    for _ in range(5):
        world.problems.tell(subject, "broken")
        await asyncio.sleep(row.after_s - 0.1)
        world.problems.tell(subject, "broken")
        world.answers(subject)

    assert row.after_s in {STAYS_S, UNANSWERED_S}
    assert world.shown(subject) == [False, False, False, []]


@pytest.mark.parametrize(
    ("one", "other"),
    list(permutations(Subject, 2)),
    ids=lambda each: each.name,
)
async def test_of_two_problems_each_is_taken_back_by_itself(
    one: Subject, other: Subject
) -> None:
    world = World()
    await world.has(one)
    await world.has(other)
    first = min(one, other, key=list(Subject).index)
    order = [each for each in Subject if each in {one, other} and each.value.ready]
    said = world.problems.why_not_ready()
    world.answers(one)
    rest = world.shown(other)

    assert first in order or not first.value.ready
    row = order[0].value if order else None
    text = row and row.text.format(problem="broken")
    assert said == (row and row.ready.format(problem="broken", text=text))
    assert rest[:3] == ways(other.value)[:3]


@every_row
async def test_a_problem_of_one_of_two_things_stays_when_the_other_has_none(
    subject: Subject,
) -> None:
    world = World()
    await world.has(subject, of=ONE)
    await world.has(subject, of=OTHER)
    world.answers(subject, of=ONE)
    during = world.shown(subject)
    world.answers(subject, of=OTHER)

    assert during[:3] == ways(subject.value)[:3]
    assert world.shown(subject)[:3] == [False, False, False]


@every_row
async def test_an_agent_that_begins_anew_takes_back_what_its_parts_do_not_have(
    subject: Subject,
) -> None:
    world, row = World(), subject.value
    await world.has(subject)
    world.problems.begin_anew("another row")
    between = world.shown(subject)
    events = len(world.events)
    world.answers(subject)

    assert between[:3] == [False, False, False]
    assert world.events[events - 1] == (
        "NpuProductChanged",
        "the agent begins anew: another row",
    )
    is_over = subject is Subject.PRODUCT_ROW  # this has ended by beginning anew
    ended = [] if is_over or not row.events[1] else [row.events[1]]
    assert [reason for reason, _ in world.events[events:]] == ended


@every_row
async def test_of_what_was_not_told_yet_a_beginning_leaves_nothing(
    subject: Subject,
) -> None:
    world, row = World(), subject.value
    if not row.after_s:
        return
    world.problems.tell(subject, "broken")
    await asyncio.sleep(row.after_s - 0.1)
    world.problems.begin_anew("another row")
    await asyncio.sleep(row.after_s)

    assert world.shown(subject)[:3] == [False, False, False]
    assert world.count(row) == Counter()


@every_row
async def test_a_problem_that_outlasts_a_beginning_is_told_on_at_once_and_not_again(
    subject: Subject,
) -> None:
    world, row = World(), subject.value
    await world.has(subject)
    world.problems.begin_anew("another row")
    world.problems.tell(subject, "broken")

    assert world.shown(subject)[:3] == ways(row)[:3]
    # of these two the beginning has told the end, or why it begins
    is_told_anew = subject in {Subject.START, Subject.PRODUCT_ROW}
    count = 1 + is_told_anew if row.events[0] else 0
    assert world.count(row)[sentence(subject, "broken")] == count


SILENT, REFUSED = Subject.API_SERVER, Subject.API_ACCESS
#: Its sentence is not that of readiness.
EVENTS = Subject.EVENTS
VITAL = [need for need in Need if need is not Need.EVENTS]
#: {answer of the API server, None for none: row that tells of it}
ANSWERS: dict[int | None, Subject | None] = {
    None: SILENT,
    **dict.fromkeys((401, 429, 500, 502, 503, 504), SILENT),
    **dict.fromkeys((400, 403, 404, 405, 413, 422), REFUSED),
    # there is a newer version, which is read
    409: None,
}


def failure(status: int | None) -> KubeError:
    if status is None:
        return UnreachableError("WATCH /api/v1/pods: no answer in time")
    return api_error(status, b"", request_line="WATCH /api/v1/pods")


@pytest.mark.parametrize("need", Need, ids=lambda each: each.name)
@pytest.mark.parametrize("status", ANSWERS)
async def test_each_need_of_the_api_server_is_judged_by_itself(
    need: Need, status: int | None
) -> None:
    world = World()
    others = [other for other in Need if other is not need]
    for _ in range(2):
        for other in others:  # all else is answered, before and after
            world.problems.tell_need(other, None)
        world.problems.tell_need(need, failure(status))
        for other in others:
            world.problems.tell_need(other, None)
        await asyncio.sleep(UNANSWERED_S)
    told = ANSWERS[status]
    if told is not None and need is Need.EVENTS:
        told = EVENTS
    shown = {row: world.shown(row) for row in (SILENT, REFUSED, EVENTS)}
    statuses = world.problems.status()
    said = (statuses[told.value.status] if told else "") or ""
    is_ready = world.problems.why_not_ready() is None
    world.problems.tell_need(need, None)

    assert [row for row in shown if shown[row] == ways(row.value)] == (
        [told] if told else []
    )
    assert is_ready == (told in {None, EVENTS})
    right, loss = need.value
    assert (f"{loss} " in said) == (told is not None)
    assert (right in said) == (told is REFUSED)
    assert (str(failure(status)) in said) == (told is not None)
    assert [world.shown(row)[:3] for row in shown] == [[False] * 3] * 3


async def test_needs_of_one_kind_are_told_by_one_event_and_one_sentence() -> None:
    world, error = World(), failure(503)
    for _ in range(2):
        for need in Need:
            world.problems.tell_need(need, error)
        await asyncio.sleep(UNANSWERED_S)
    said = world.problems.why_not_ready() or ""
    *most, last = VITAL
    for need in most:
        world.problems.tell_need(need, None)
    rest = world.problems.status()["apiServerProblem"]
    ended = len(world.events)
    world.problems.tell_need(last, None)

    assert [need for need in Need if f"{need.value[1]} ({error})" in said] == VITAL
    assert rest == sentence(SILENT, f"{last.value[1]} ({error})")
    assert (ended, [reason for reason, _ in world.events]) == (
        1,
        [*SILENT.value.events],
    )


async def test_a_pod_is_told_by_an_event_of_its_own_and_the_node_stays_ready() -> None:
    world, subject = World(), Subject.POD_ANNOTATIONS
    pods = [Regarding(kind="Pod", name=n, namespace="a", uid=n) for n in ("b", "c")]
    for pod in pods:
        world.problems.tell(subject, f"PATCH {pod.name}: 422", of=pod)
    await asyncio.sleep(UNANSWERED_S + 0.1)
    both = world.shown(subject)
    told = [(fact.regarding, fact.message) for fact in world._recorder._pending]
    world.problems.tell(subject, "", of=pods[0])
    one = world.problems.status()["apiAccessProblem"]
    world.problems.tell(subject, "", of=pods[1])

    assert both == [False, True, True, ["NpuNotAnnotated", "NpuNotAnnotated"]]
    assert told == [(pod, sentence(subject, f"PATCH {pod.name}: 422")) for pod in pods]
    assert one == sentence(subject, "PATCH c: 422")
    assert world.shown(subject)[:3] == [False, False, False]
    assert world.problems._problems == {}  # pods come and go for years


async def test_a_need_of_two_things_is_met_when_both_have_it() -> None:
    world, error = World(), failure(403)
    for _ in range(2):
        for of in (ONE, OTHER):
            world.problems.tell_need(Need.ANNOTATIONS, error, of=of)
        await asyncio.sleep(UNANSWERED_S)
    world.problems.tell_need(Need.ANNOTATIONS, None, of=ONE)
    during = world.shown(REFUSED)
    world.problems.tell_need(Need.ANNOTATIONS, None, of=OTHER)

    assert during[:3] == [True, True, True]
    assert world.shown(REFUSED)[:3] == [False, False, False]


async def test_without_problems_and_checks_the_agent_is_ready() -> None:
    world = World()

    assert (world.problems.why_not_ready(), world.metric("ready")) == (None, 1.0)


async def test_a_part_is_asked_when_all_before_it_is_there() -> None:
    world = World()
    first: list[str | None] = ["the reporter waits", None, None]
    then: list[str | None] = ["not registered yet", None]
    world.problems.add_check(lambda: first.pop(0))
    world.problems.add_check(lambda: then.pop(0))
    world.problems.tell(Subject.DIRECTORY, "not ours")
    said = [world.problems.why_not_ready()]
    world.problems.tell(Subject.DIRECTORY, "")
    said += [world.problems.why_not_ready() for _ in range(3)]

    assert said == ["not ours", "the reporter waits", "not registered yet", None]


async def test_an_agent_that_begins_anew_has_none_of_the_checks_before() -> None:
    world = World()
    world.problems.add_check(lambda: "not registered yet")
    world.problems.begin_anew("another row")

    assert world.problems.why_not_ready() is None
