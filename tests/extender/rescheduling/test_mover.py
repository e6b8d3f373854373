"""Effects of moves are carried out and answered, and what is seen is reported."""

import asyncio
import logging
from dataclasses import replace

import pytest

from extender.kube_scheduler.binder import AT_ONCE
from extender.preemption.attempt import Outcome, Victim
from extender.rescheduling import record
from extender.rescheduling.ends import End, Reach
from extender.rescheduling.mover import HOLD
from extender.rescheduling.moves import (
    Answered,
    DeleteRecord,
    Departure,
    EndPod,
    EndsRead,
    Held,
    JobGone,
    KeepPlaces,
    Limits,
    Move,
    MoveRecord,
    PlacesKept,
    PodEnded,
    PodLeaving,
    ReadEnds,
    Recovered,
    ReleasePlaces,
    Step,
    Tell,
    TellJob,
    WriteRecord,
    Written,
)
from kube.client import CONNECTIONS
from kube.errors import (
    ApiError,
    ForbiddenError,
    KubeError,
    TooManyRequestsError,
    UnreachableError,
)
from scheduler_core.products.lookup import Traits
from tests.extender.rescheduling.jobs import JOB, lone, of_job
from tests.extender.rescheduling.moverworld import (
    World,
    pair,
    place,
    world,
)
from tests.support.caches import all_reservations
from tests.support.watched import ALL, gone, tenant


async def test_places_are_kept_and_released_at_once() -> None:
    async with world(*pair()) as w:
        w.mover.carry_out(KeepPlaces(job=JOB, places=(place("a", "n3"),)))
        assert w.reported == [PlacesKept(job=JOB, is_kept=True)]
        assert [each.node for each in all_reservations(w.cache)] == ["n3"]

        w.mover.carry_out(ReleasePlaces(job=JOB))
        assert all_reservations(w.cache) == []


async def test_places_of_others_are_not_kept() -> None:
    async with world(*pair(), tenant("x", "n3", (0,))) as w:
        w.mover.carry_out(KeepPlaces(job=JOB, places=(place("a", "n3"),)))

        why = "chips of n3 are kept for others"
        assert w.reported == [PlacesKept(job=JOB, is_kept=False, why=why)]


async def test_ends_are_read_with_labels_and_groups() -> None:
    async with world(*pair(group="g")) as w:
        group = End(reach=Reach.GROUP, group=("group",))
        w.api.ends = {"uid-a": group}
        uids = frozenset({"uid-a"})
        w.mover.carry_out(ReadEnds(job=JOB, uids=uids))
        await w.settled()

        groups = {"uid-a": frozenset({"uid-a", "uid-b"})}
        read = EndsRead(job=JOB, uids=uids, ends=w.api.ends, groups=groups)
        assert w.reported == [read]
        ((_, meta),) = w.api.asked[0].values()
        assert meta.labels == {"number": "0", "group": "g"}

        w.api.ends = {"uid-a": replace(group, group=("number",))}
        w.mover.carry_out(ReadEnds(job=JOB, uids=uids))
        await w.settled()
        assert w.reported[1].groups == {"uid-a": uids}  # type: ignore[union-attr]  # of EndsRead


async def test_ends_of_a_pod_by_itself_are_read_of_its_controller() -> None:
    made = lone("a", "n1", (0,))
    owned = replace(made, pod=replace(made.pod, owner="ReplicaSet/default/r"))
    async with world(owned) as w:
        w.api.ends = {"uid-a": End()}
        w.mover.carry_out(ReadEnds(job="uid-a", uids=frozenset({"uid-a"})))
        await w.settled()

        ((owner, meta),) = w.api.asked[0].values()
        assert (owner, meta.name, meta.uid) == ("ReplicaSet/default/r", "a", "uid-a")
        assert w.reported[0].ends == w.api.ends  # type: ignore[union-attr]  # of EndsRead


async def test_ends_that_cannot_be_read_are_a_problem() -> None:
    async with world(*pair()) as w:
        uids = frozenset({"uid-a"})
        w.mover.carry_out(ReadEnds(job=JOB, uids=uids))
        await w.settled()
        w.learn(gone("a")[0])
        w.mover.carry_out(ReadEnds(job=JOB, uids=uids))
        await w.settled()

        assert w.reported == [
            EndsRead(job=JOB, uids=uids, problem="not now"),
            EndsRead(job=JOB, uids=uids, problem="a pod of the job has gone meanwhile"),
        ]
        assert len(w.api.asked) == 1


@pytest.mark.parametrize("budget", ["", "budget b"])
async def test_budgets_are_asked_before_a_whole_job_goes(budget: str) -> None:
    async with world(*pair()) as w:
        uids = frozenset({"uid-a", "uid-b"})
        w.api.ends, w.api.budget = dict.fromkeys(sorted(uids), End()), budget
        w.mover.carry_out(ReadEnds(job=JOB, uids=uids))
        await w.settled()
        w.mover.carry_out(ReadEnds(job=JOB, uids=uids, asks_budgets=True))
        await w.settled()

        refused = EndsRead(job=JOB, uids=uids, problem=budget, is_refused=True)
        read = EndsRead(job=JOB, uids=uids, ends=w.api.ends)
        assert w.reported == [read, refused if budget else read]
        assert w.api.asked[2:] == [["uid-a", "uid-b"]]


async def test_an_end_is_answered() -> None:
    async with world(*pair()) as w:
        w.api.outcome = Outcome.BUDGET, "budget b"
        end = EndPod(
            job=JOB, uid="uid-a", name="a", namespace="default", is_forced=True
        )
        w.mover.carry_out(end)
        await w.settled()

        victim = Victim(uid="uid-a", namespace="default", name="a")
        assert w.api.asked == [(victim, True)]
        assert w.reported == [
            Answered(job=JOB, uid="uid-a", outcome=Outcome.BUDGET, text="budget b")
        ]


END = EndPod(job=JOB, uid="uid-a", name="a", namespace="default", is_forced=False)


def test_evictions_binds_and_watches_leave_a_connection_for_the_lease() -> None:
    watches = len(("nodes", "pods", "chips", "settings", "switches"))

    assert Limits().most_asks + AT_ONCE + watches < CONNECTIONS


async def test_who_does_not_lead_changes_nothing_and_tells_nothing() -> None:
    async with world(*pair()) as w:
        w.why_not_leading = "another leads"
        w.mover.carry_out(END)
        w.mover.carry_out(WriteRecord(job=JOB, number=1, record=MoveRecord(job=JOB)))
        w.mover.carry_out(DeleteRecord(job=JOB))
        w.mover.carry_out(Tell(uid="uid-a", reason="R", text="one"))
        await w.settled()

        assert (w.api.asked, w.api.told) == ([], [])
        failed = Outcome.FAILED, "another leads"
        assert w.reported == [
            Answered(job=JOB, uid="uid-a", outcome=failed[0], text=failed[1]),
            Written(job=JOB, number=1, is_written=False),
        ]


async def test_a_stop_waits_for_what_was_sent_and_sends_nothing_more() -> None:
    async with world(*pair()) as w:
        w.api.gate = asyncio.Event()
        w.mover.carry_out(END)
        await asyncio.sleep(0.01)
        was_quiet = w.mover.is_quiet
        stopping = asyncio.create_task(w.mover.stop())
        await asyncio.sleep(0.01)
        w.mover.carry_out(END)
        await asyncio.sleep(0.01)
        assert not stopping.done()

        w.api.gate.set()
        await stopping
        assert len(w.api.asked) == 1
        assert (was_quiet, w.mover.is_quiet) == (False, True)
        outcomes = {each.outcome for each in w.reported if isinstance(each, Answered)}
        assert outcomes == {Outcome.YES, Outcome.FAILED}


@pytest.mark.looptime
async def test_a_request_without_an_answer_is_cut_off_and_may_still_count() -> None:
    async with world(*pair()) as w:
        w.api.gate = asyncio.Event()
        w.mover.carry_out(END)
        await asyncio.sleep(0.01)

        await w.mover.stop()

        assert not w.mover.is_quiet


async def test_writes_of_one_record_follow_each_other() -> None:
    async with world(*pair()) as w:
        w.api.gate = asyncio.Event()
        for number in (1, 2):
            written = MoveRecord(job=JOB, owner=f"Job/default/{number}")
            w.mover.carry_out(WriteRecord(job=JOB, number=number, record=written))
        w.mover.carry_out(DeleteRecord(job=JOB))
        await asyncio.sleep(0.01)
        assert (w.api.asked, w.reported) == ([], [])

        w.api.gate.set()
        await w.settled()
        assert w.api.asked == [
            (JOB, "Job/default/1"),
            (JOB, "Job/default/2"),
            f"delete {JOB}",
        ]
        assert w.reported == [
            Written(job=JOB, number=1, is_written=True),
            Written(job=JOB, number=2, is_written=True),
        ]
        assert w.mover._writes == {}


async def test_a_record_is_deleted_until_it_is() -> None:
    async with world() as w:
        w.api.is_down = True
        w.mover.carry_out(DeleteRecord(job=JOB))
        for _ in range(11):
            await w.settled()
            w.mover.observe([], {})
            w.time.pass_s(1)
        w.api.is_down = False
        for _ in range(11):
            await w.settled()
            w.mover.observe([], {})
            w.time.pass_s(1)

        assert w.api.asked == 3 * [f"delete {JOB}"]


async def test_a_record_that_is_written_anew_is_not_deleted_later() -> None:
    async with world() as w:
        w.api.is_down = True
        w.mover.carry_out(DeleteRecord(job=JOB))
        w.mover.carry_out(WriteRecord(job=JOB, number=1, record=MoveRecord(job=JOB)))
        await w.settled()
        w.time.pass_s(6)
        w.mover.observe([], {})
        await w.settled()

        assert w.api.asked == [f"delete {JOB}", (JOB, "")]


async def test_a_record_that_is_refused_is_told() -> None:
    async with world(*pair()) as w:
        w.api.is_down = True
        w.mover.carry_out(WriteRecord(job=JOB, number=7, record=MoveRecord(job=JOB)))
        await w.settled()

        assert w.reported == [Written(job=JOB, number=7, is_written=False)]


async def test_records_are_read_until_they_have_been(
    caplog: pytest.LogCaptureFixture,
) -> None:
    a, b = pair()
    ending = replace(b, pod=replace(b.pod, deleting=True))
    async with world(a, ending) as w:
        places = place("a", "n3"), place("b", "n2"), place("c", "n1")
        known = MoveRecord(job=JOB, places=places)
        w.api.records = [("bad", {"move": "{"}), ("good", record.render(known))]
        w.api.is_down = True
        for _ in range(3):
            w.mover.recover()
            await w.settled()
            w.time.pass_s(1)
        assert (w.api.asked, w.mover.is_recovered) == (["records"], False)

        w.api.is_down = False
        w.time.pass_s(5)
        with caplog.at_level(logging.WARNING):
            w.mover.recover()
            await w.settled()
        assert w.mover.is_recovered
        messages = {each.message for each in caplog.records}
        assert "record of a move not understood" in messages
        assert w.reported == [
            Recovered(
                record=known,
                running=frozenset({"uid-a"}),
                ending=frozenset({"uid-b"}),
            )
        ]
        w.mover.recover()
        assert w.api.asked == ["records"] * 2


async def fail_three_times(w: World) -> None:
    w.api.is_down = True
    for _ in range(3):
        assert not w.mover.is_recovered
        w.mover.recover()
        await w.settled()
        w.time.pass_s(5)


async def test_records_that_nobody_may_read_stop_nothing_for_long() -> None:
    async with world(*pair()) as w:
        w.api.error = ForbiddenError(403)
        await fail_three_times(w)
        assert w.mover.is_recovered

        known = MoveRecord(job=JOB, places=(place("a", "n3"),))
        w.api.records, w.api.is_down = [("late", record.render(known))], False
        w.mover.recover()
        await w.settled()
        running = frozenset({"uid-a"})
        assert w.reported == [Recovered(record=known, running=running)]


@pytest.mark.parametrize(
    "error",
    [UnreachableError("no answer"), ApiError(500), TooManyRequestsError(429)],
    ids=["silent", "500", "429"],
)
async def test_a_server_that_is_away_lets_no_move_be_forgotten(
    error: KubeError,
) -> None:
    async with world() as w:
        w.api.error = error
        await fail_three_times(w)

        assert not w.mover.is_recovered


async def test_pods_of_a_move_that_are_gone_are_reported() -> None:
    async with world(*pair()) as w:
        going = {name: Departure(place=place(name, "n3")) for name in ("a", "b")}
        departures = {each.place.uid: each for each in going.values()}
        moves = {JOB: Move(job=JOB, departures=departures)}
        w.mover.observe([], moves)
        assert w.reported == []

        w.learn(gone("a")[0])
        w.mover.observe([], moves)
        assert w.reported == [PodEnded(job=JOB, uid="uid-a")]


async def test_pods_of_a_move_that_others_delete_are_reported_once_it_is_known() -> (
    None
):
    a, b = pair()
    async with world(a, replace(b, pod=replace(b.pod, deleting=True))) as w:
        departure = Departure(place=place("b", "n3"))
        moves = {JOB: Move(job=JOB, departures={"uid-b": departure})}
        w.mover.observe([], moves)
        assert w.reported == [PodLeaving(job=JOB, uid="uid-b")]

        left = replace(departure, step=Step.LEAVING)
        w.mover.observe([], {JOB: Move(job=JOB, departures={"uid-b": left})})
        assert len(w.reported) == 1


JOB_OBJECT = "/apis/batch/v1/namespaces/default/jobs/j uid-j"


async def test_a_job_that_ends_while_its_pods_are_gone_is_reported() -> None:
    async with world(*pair()) as w:
        w.api.ends = {"uid-a": End(controller=JOB_OBJECT)}
        w.mover.carry_out(ReadEnds(job=JOB, uids=frozenset({"uid-a"})))
        written = MoveRecord(job=JOB)
        await w.settled()
        w.mover.carry_out(WriteRecord(job=JOB, number=1, record=written))
        await w.settled()
        assert w.api.asked.pop() == (JOB, "", JOB_OBJECT)
        w.api.asked.clear()
        left = Departure(place=place("a", "n3"), step=Step.LEAVING)
        w.mover.observe([], {JOB: Move(job=JOB, departures={"uid-a": left})})
        assert w.api.asked == []

        gone_pod = replace(left, step=Step.GONE)
        moves = {JOB: Move(job=JOB, departures={"uid-a": gone_pod})}
        for _ in range(61):  # once at first, and once a minute later
            w.mover.observe([], moves)
            await w.settled()
            w.time.pass_s(1)
        assert w.api.asked == 2 * [("has ended", JOB_OBJECT)]
        assert JobGone(job=JOB) not in w.reported

        w.api.has_job_ended = True
        w.learn(gone("a")[0])
        w.learn(gone("b")[0])
        w.mover.observe([], moves)  # no pod is left
        await w.settled()
        assert JobGone(job=JOB) in w.reported


async def test_a_new_leader_knows_with_which_objects_a_job_ends() -> None:
    async with world(*pair()) as w:
        known = MoveRecord(job=JOB, places=(place("a", "n3"),), controllers=("/j u",))
        w.api.records = [("good", record.render(known))]
        w.mover.recover()
        await w.settled()
        step = Departure(place=place("a", "n3"), step=Step.GONE)
        w.mover.observe([], {JOB: Move(job=JOB, departures={"uid-a": step})})
        await w.settled()

        assert ("has ended", "/j u") in w.api.asked


async def test_what_a_job_without_pods_is_told_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as w:
        with caplog.at_level(logging.INFO):
            w.mover.carry_out(TellJob(job=JOB, reason="R", text="given up"))

    assert [each.__dict__["why"] for each in caplog.records] == ["given up"]


async def test_holds_are_reported_as_they_come_and_go() -> None:
    a, b = pair()
    assert b.member is not None
    traits = Traits(labels={}, annotations={HOLD: "true"})
    held = replace(b, member=replace(b.member, traits=traits))
    async with world(a, held) as w:
        w.mover.observe([JOB], {})
        w.mover.observe([JOB], {})
        w.mover.holds_all = True
        w.mover.observe([JOB], {})
        w.mover.holds_all = False
        w.learn(b)
        w.mover.observe([JOB], {})

        assert w.reported == [
            Held(jobs=frozenset({JOB})),
            Held(jobs=frozenset({JOB}), is_all=True),
            Held(),
        ]


async def test_what_people_hold_is_known_of_a_job_that_nobody_has_asked_about() -> None:
    a, b = pair()
    assert b.member is not None
    traits = Traits(labels={}, annotations={HOLD: "true"})
    held = replace(b, member=replace(b.member, traits=traits))
    async with world(a, held) as w:
        w.mover.see_holds([JOB])
        w.mover.see_holds(["Job/default/other"])
        assert w.reported == [Held(jobs=frozenset({JOB}))]

        w.learn(b)
        w.mover.see_holds([JOB])
        assert w.reported[1:] == [Held()]


async def test_holds_are_known_before_the_moves_of_earlier_leaders() -> None:
    a, b = pair()
    assert b.member is not None
    traits = Traits(labels={}, annotations={HOLD: "true"})
    held = replace(b, member=replace(b.member, traits=traits))
    async with world(a, held) as w:
        known = MoveRecord(job=JOB, places=(place("a", "n3"),))
        w.api.records = [("good", record.render(known))]
        w.mover.recover()
        await w.settled()

        assert [type(each) for each in w.reported] == [Held, Recovered]


async def test_a_job_is_told_on_the_pods_that_wait_else_on_the_first() -> None:
    async with world(*pair()) as w:
        w.mover.carry_out(TellJob(job=JOB, reason="R", text="one"))
        w.mover.carry_out(Tell(uid="uid-b", reason="R", text="two"))
        w.learn(of_job("c", "", ALL))
        w.mover.carry_out(TellJob(job=JOB, reason="R", text="three"))
        w.mover.carry_out(Tell(uid="uid-x", reason="R", text="four"))

        assert w.api.told == [
            ("a", "R", "one"),
            ("b", "R", "two"),
            ("c", "R", "three"),
        ]
