"""Places that are kept for successors: held, given, kept again, lost."""

import json
from dataclasses import replace

import pytest

from extender.cache import events
from extender.cache.reservations import Owner
from extender.gang import events as gang_events
from extender.gang.job_plan import Phase
from extender.gang.membership import Member, Membership, SizeSource
from extender.gang.size import Size
from extender.refusals import READING
from extender.rescheduling.moves import Bound, KeptPlace, PlaceLost
from tests.extender.gangworld import PER_POD
from tests.extender.rescheduling.jobs import JOB, lone, of_job
from tests.extender.rescheduling.keptplaces import (
    BOTH,
    NAMES,
    PAIR,
    SET,
    WAITS,
    WORKERS,
    begin,
    ending,
    leave,
    moving,
    numbered,
    place,
    worker,
    world,
)
from tests.support import objects
from tests.support.caches import (
    all_reservations,
    annotated,
    free,
    kept,
    known_pod,
    reservations,
    time_of,
)
from tests.support.watched import (
    ALL,
    RESOURCE,
    gone,
    pod,
    pod_update,
    report,
    running,
    served,
    tenant,
)

# -- keeping --------------------------------------------------------------------------


async def test_places_are_kept_while_their_pods_run() -> None:
    async with world(*PAIR) as w:
        assert w.returns.keep(JOB, BOTH) == ""

        assert moving(w) == {(JOB, "n2"): 255, (JOB, "n3"): 255}
        assert free(w.cache, "n3") == ()


async def test_places_on_one_node_are_kept_together() -> None:
    async with world(of_job("a", "n1", (0, 1)), of_job("b", "n1", (2, 3))) as w:
        w.returns.keep(JOB, [place("a", 0, "n3", (0, 1)), place("b", 1, "n3", (2, 3))])
        assert moving(w) == {(JOB, "n3"): 0b1111}

        w.returns.release(JOB, frozenset({"uid-a"}))
        assert moving(w) == {(JOB, "n3"): 0b1100}

        w.returns.release(JOB)
        assert moving(w) == {}


@pytest.mark.parametrize(
    "other",
    [
        tenant("x", "n3", (7,)),
        kept("uid-x", "n3", 0b1, shape=pod("x").shape),
        report("n3", unhealthy=(4,)),
    ],
    ids=["used", "reserved", "broken"],
)
async def test_places_of_others_are_not_kept_and_nothing_changes(
    other: events.Change,
) -> None:
    async with world(*PAIR, pod_update("x"), other) as w:
        w.returns.keep(JOB, BOTH[1:])

        why = w.returns.keep(JOB, BOTH)

        assert why in {"chips of n3 are kept for others", "a chip of n3 broke"}
        assert moving(w) == {(JOB, "n2"): 255}


async def test_after_a_restart_what_others_have_is_lost_and_the_rest_is_kept() -> None:
    async with world(*PAIR, tenant("x", "n3", (7,))) as w:
        assert w.returns.keep(JOB, BOTH, is_partial=True) == ""

        why = "chips of n3 are kept for others"
        assert w.reported == [PlaceLost(job=JOB, uid="uid-a", why=why)]
        assert moving(w) == {(JOB, "n2"): 255}


async def test_places_last_as_long_as_their_move() -> None:
    async with world(*PAIR) as w:
        w.returns.keep(JOB, BOTH)
        for _ in range(300):
            w.pass_s()

        assert moving(w) == {(JOB, "n2"): 255, (JOB, "n3"): 255}


async def test_a_pod_that_gets_no_place_has_none() -> None:
    async with world(*PAIR) as w:
        assert w.returns.keep(JOB, [place("a", 0, "", ())]) == ""

        assert (moving(w), w.returns.has_place(known_pod(w.cache, "b"))) == ({}, False)


# -- a job of several pods ---------------------------------------------------------


async def test_successors_wait_until_the_places_of_all_that_go_are_clear() -> None:
    async with world(*PAIR) as w:
        w.returns.keep(JOB, BOTH)
        w.learn(report("n2", held=ALL), *gone("a", "b"))
        w.learn(worker(0, "a2"), worker(1, "b2"))
        assert w.why("a2", NAMES) == (WAITS.format("n2"),)
        assert w.why("b2", NAMES) == (WAITS.format("n2"),)
        before = w.calls.wakes
        w.learn(report("n2", releasing=ALL))
        assert (w.why("b2", NAMES), w.calls.wakes) == ((WAITS.format("n2"),), before)

        w.learn(report("n2"))
        assert w.calls.wakes == before + 1
        assert w.filter("b2", NAMES) == ["n2"]
        assert w.filter("a2", NAMES) == ["n3"]


async def test_what_has_gone_is_brought_back_while_others_are_not_asked_to_go() -> None:
    """People hold the job in the middle, or a budget lets one go at a time."""
    async with world(*PAIR) as w:
        w.returns.keep(JOB, BOTH)
        w.learn(*gone("a"), report("n1"), worker(0, "a2"))

        assert w.filter("a2", NAMES) == ["n3"]
        assert reservations(w.cache).keys() == {"uid-a2"}
        assert moving(w) == {(JOB, "n2"): 255}


async def test_schedulers_are_woken_for_a_place_beside_one_of_a_pod_that_stays() -> (
    None
):
    left, stays = range(4), range(4, 8)
    pair = (
        numbered(of_job("a", "n1", left), 0),
        numbered(of_job("b", "n1", stays), 1),
    )
    async with world(*pair) as w:
        w.returns.keep(JOB, [place("a", 0, "n1", left), place("b", 1, "n1", stays)])
        w.pass_s()
        w.learn(report("n1", held=left), *gone("a"))
        w.learn(numbered(of_job("a2", "", left), 0))
        waits = "waits until chips 0,1,2,3 of n1 are free, which are kept for it"
        assert w.why("a2", NAMES) == (waits,)
        before = w.calls.wakes
        w.pass_s()
        assert w.calls.wakes == before

        w.learn(report("n1"))
        w.pass_s()
        assert w.calls.wakes > before
        assert w.filter("a2", NAMES) == ["n1"]


async def test_kept_places_become_the_plan_with_what_was_kept_of_the_claims() -> None:
    async with world(*PAIR) as w:
        begin(w)
        assert w.filter("b2", NAMES) == ["n2"]

        planned = reservations(w.cache)
        assert {uid: (r.node, r.chips, r.owner) for uid, r in planned.items()} == {
            "uid-a2": ("n3", 255, Owner.PLAN),
            "uid-b2": ("n2", 255, Owner.PLAN),
        }
        assert annotated(planned["uid-a2"]) == {"hccl/rankIndex": "0"}
        assert w.is_(Phase.RESERVED)
        assert moving(w) == {}


async def test_two_successors_on_one_node_have_claims_one_after_the_other() -> None:
    places = place("a", 0, "n3", (0, 1)), place("b", 1, "n3", (2, 3))
    first = (
        numbered(of_job("a", "n1", (0, 1)), 0),
        numbered(of_job("b", "n1", (2, 3)), 1),
    )
    async with world(*first) as w:
        w.returns.keep(JOB, places)
        w.learn(*gone("a", "b"), report("n1"))
        w.learn(
            numbered(of_job("b2", "", (2, 3)), 1), numbered(of_job("a2", "", (0, 1)), 0)
        )
        w.filter("a2", NAMES)

        planned = reservations(w.cache)
        assert (planned["uid-a2"].chips, planned["uid-b2"].chips) == (0b11, 0b1100)
        assert time_of(planned["uid-a2"]) < time_of(planned["uid-b2"])


async def test_a_job_whose_pods_have_all_gone_has_its_size_again() -> None:
    source = SizeSource(path="/apis/x", kind="JobSet")
    first = [worker(n, p, w, size=None, source=source) for n, p, w in WORKERS]
    async with world(*first) as w:
        w.learn(events.SizeRead(job=JOB, size=Size(count=2, least=2)))
        w.returns.keep(JOB, BOTH)
        leave(w, "a", "b")
        w.learn(worker(0, "a2", size=None, source=source))
        assert w.why("a2", NAMES) == ("waits for 1 of the 2 pods of its job",)

        w.learn(worker(1, "b2", size=None, source=source))
        assert w.filter("b2", NAMES) == ["n2"]


async def test_a_job_that_is_made_larger_while_it_moves_is_read_again() -> None:
    source = SizeSource(path="/apis/x", kind="JobSet")
    first = [worker(n, p, w, size=None, source=source) for n, p, w in WORKERS]
    async with world(*first) as w:
        w.learn(events.SizeRead(job=JOB, size=Size(count=2, least=2)))
        w.returns.keep(JOB, BOTH)
        leave(w, "a", "b")
        for number, name in enumerate(("a2", "b2", "c2")):
            w.learn(worker(number, name, size=None, source=source))

        assert w.why("a2", NAMES) == (READING,)


async def test_a_pod_is_refused_where_it_was_not_kept() -> None:
    async with world(*PAIR) as w:
        begin(w)

        assert w.filter("a2", ("n1", "n2")) == []
        assert reservations(w.cache) == {}
        text = "the scheduler does not offer n3, where chips are kept"
        assert w.why("a2", ("n1", "n2")) == (text,)
        assert w.filter("a2", NAMES) == ["n3"]


async def test_the_planner_leaves_a_job_with_kept_places_alone() -> None:
    """In the filter call of a later job, say, which plans those before it."""
    async with world(*PAIR) as w:
        begin(w)
        w.planner.offer(w.cache.gangs[JOB], NAMES)

        assert reservations(w.cache) == {}
        assert w.filter("a2", NAMES) == ["n3"]


async def test_members_without_a_number_get_places_in_their_order() -> None:
    slot = ("", (0, 0))
    first = of_job("a", "n1", ALL), of_job("b", "n2", ALL)
    places = [replace(each, slot=slot) for each in BOTH]
    async with world(*first) as w:
        w.returns.keep(JOB, places)
        leave(w, "a", "b")
        w.learn(of_job("q", "", ALL), of_job("p", "", ALL))
        w.filter("q", NAMES)

        planned = reservations(w.cache)
        nodes = {uid: each.node for uid, each in planned.items()}
        assert nodes == {"uid-p": "n3", "uid-q": "n2"}


async def test_a_pod_that_asks_for_another_number_of_chips_gets_no_kept_place() -> None:
    smaller = numbered(of_job("b2", "", range(4), says={}), 1)
    async with world(*PAIR, topology=lambda _gang: PER_POD) as w:
        w.returns.keep(JOB, BOTH)
        leave(w, "a", "b")
        w.learn(worker(0, "a2"), smaller)
        assert w.filter("a2", NAMES) == ["n3"]

        planned = reservations(w.cache)
        assert planned["uid-b2"].node == "n1", "n2 is still kept"


async def test_a_plan_that_is_void_leaves_the_places_to_the_move() -> None:
    async with world(*PAIR) as w:
        begin(w)
        w.filter("a2", NAMES)
        w.learn(gang_events.PlanBroken(job=JOB, text="a volume is missing"))

        assert moving(w) == {(JOB, "n2"): 255, (JOB, "n3"): 255}
        w.pass_s(120)
        assert w.filter("a2", NAMES) == ["n3"]


async def test_a_successor_that_goes_leaves_its_place_to_the_next() -> None:
    async with world(*PAIR) as w:
        begin(w)
        w.filter("a2", NAMES)
        w.learn(*gone("a2"))
        assert moving(w) == {(JOB, "n2"): 255, (JOB, "n3"): 255}

        w.learn(worker(0, "a3"))
        w.pass_s(120)
        assert w.filter("a3", NAMES) == ["n3"]


async def test_planned_pods_do_not_swap_kept_places() -> None:
    async with world(*PAIR) as w:
        begin(w)
        w.filter("a2", NAMES)

        assert w.filter("a2", ("n2",)) == []

        planned = reservations(w.cache)
        assert (planned["uid-a2"].node, planned["uid-b2"].node) == ("n3", "n2")


async def test_a_bound_successor_ends_its_place() -> None:
    async with world(*PAIR) as w:
        begin(w)
        w.filter("a2", NAMES)
        w.learn(worker(0, "a2", "n3"), worker(1, "b2", "n2"))
        w.pass_s()

        assert w.reported == [
            Bound(job=JOB, uid="uid-a", successor="uid-a2", node="n3"),
            Bound(job=JOB, uid="uid-b", successor="uid-b2", node="n2"),
        ]
        assert all_reservations(w.cache) == []
        assert not w.returns._moves


async def test_a_successor_that_was_bound_before_a_restart_is_found() -> None:
    async with world(worker(0, "a2", "n3"), PAIR[1]) as w:
        w.returns.keep(JOB, BOTH[:1], is_partial=True)
        w.pass_s()

        bound = Bound(job=JOB, uid="uid-a", successor="uid-a2", node="n3")
        assert w.reported == [bound]


async def test_one_pod_that_was_bound_elsewhere_is_told() -> None:
    async with world(worker(0, "a2", "n1"), PAIR[1]) as w:
        w.returns.keep(JOB, BOTH[:1])
        w.pass_s()

        bound = Bound(job=JOB, uid="uid-a", successor="uid-a2", node="n1")
        assert w.reported == [bound]


async def test_a_fault_pod_alone_comes_back_beside_the_others() -> None:
    async with world(*PAIR) as w:
        w.returns.keep(JOB, BOTH[:1])
        w.learn(*gone("a"), report("n1"), worker(0, "a2"))

        assert w.filter("a2", NAMES) == ["n3"]
        assert reservations(w.cache).keys() == {"uid-a2"}


async def test_a_member_without_a_place_is_planned_beside_those_with_one() -> None:
    async with world(*PAIR) as w:
        begin(w)
        w.returns.release(JOB, frozenset({"uid-b"}))
        w.learn(tenant("x", "n2", (0,)))

        assert w.filter("a2", NAMES) == ["n3"]
        assert w.filter("b2", NAMES) == ["n1"]


async def test_a_job_waits_while_a_member_without_a_place_finds_none() -> None:
    async with world(*PAIR) as w:
        begin(w)
        w.returns.release(JOB, frozenset({"uid-b"}))
        w.learn(tenant("x", "n2", (0,)), tenant("y", "n1", (0,)))

        assert w.filter("a2", NAMES) == []
        assert moving(w) == {(JOB, "n3"): 255}
        w.pass_s(120)
        (text,) = w.why("b2", NAMES)
        assert "pods beside its kept places do not fit" in text


# -- a pod that is a job by itself ----------------------------------------------------


def of_set(found: events.PodUpdated, owner: str = SET) -> events.PodUpdated:
    return replace(found, pod=replace(found.pod, owner=owner))


ALONE = of_set(lone("a", "n1", (0, 1)))
HERE = KeptPlace(
    uid="uid-a",
    name="a",
    namespace="default",
    slot=("", (0, 0)),
    resource=RESOURCE,
    node="n3",
    chips=0b11,
    home="n1",
)


def successor(name: str, count: int = 2) -> events.PodUpdated:
    return pod_update(name, count, owner=SET)


async def test_the_successor_of_a_pod_by_itself_waits_for_its_place_and_gets_it() -> (
    None
):
    async with world(ALONE, report("n3", releasing=(0, 1))) as w:
        w.returns.keep("uid-a", [HERE], owner=SET)
        w.learn(*gone("a"), successor("a2"))

        waits = "waits until chips 0,1 of n3 are free, which are kept for it"
        assert w.why("a2", NAMES) == (waits,)
        before = w.calls.wakes
        w.learn(report("n3"))
        assert w.calls.wakes > before

        assert w.filter("a2", NAMES) == ["n3"]
        (own,) = all_reservations(w.cache)
        assert (own.kept_for, own.owner, own.chips) == (
            "uid-a2",
            Owner.RESCHEDULING,
            0b11,
        )
        assert w.reserve("a2", "n3") == (0, 1)
        w.learn(of_set(running("a2", served((0, 1)), "n3", 2)))
        w.pass_s()
        bound = Bound(job="uid-a", uid="uid-a", successor="uid-a2", node="n3")
        assert w.reported == [bound]
        assert all_reservations(w.cache) == []


async def test_other_pods_of_the_controller_go_where_they_like() -> None:
    async with world(ALONE, report("n3", releasing=(0, 1))) as w:
        w.returns.keep("uid-a", [HERE], owner=SET)
        w.learn(*gone("a"), successor("a2"), successor("a3"), successor("a4", 4))
        w.filter("a2", NAMES)

        assert w.filter("a3", NAMES) != []
        assert w.filter("a4", NAMES) != []
        assert w.filter("a2", NAMES) == []
        w.learn(*gone("a2"), successor("a5"))
        assert w.filter("a5", NAMES) == []


async def test_a_pod_more_of_a_controller_gets_no_place_of_a_pod_that_stays() -> None:
    """A budget refuses the eviction, and people scale the Deployment up."""
    async with world(ALONE, report("n3", releasing=(0, 1))) as w:
        w.returns.keep("uid-a", [HERE], owner=SET)
        w.learn(successor("x"))
        assert w.filter("x", NAMES) != []
        assert w.returns.successors_of("uid-a") == []

        w.learn(of_set(running("x", served((0, 1)), "n2", 2)), ending(ALONE))
        w.learn(report("n3"), successor("a2"))
        assert w.filter("a2", NAMES) == ["n3"]


async def test_a_bind_that_fails_leaves_the_place_to_the_successor() -> None:
    async with world(ALONE) as w:
        w.returns.keep("uid-a", [HERE], owner=SET)
        w.learn(*gone("a"), successor("a2"))
        w.filter("a2", NAMES)
        w.reserve("a2", "n3")
        w.learn(events.BindVoided(uid="uid-a2"))

        assert reservations(w.cache)["uid-a2"].owner is Owner.RESCHEDULING
        assert w.filter("a2", NAMES) == ["n3"]


async def test_a_place_that_is_not_taken_up_in_time_is_kept_again() -> None:
    async with world(ALONE) as w:
        w.returns.keep("uid-a", [HERE], owner=SET)
        w.learn(*gone("a"), successor("a2"))
        w.filter("a2", NAMES)
        w.pass_s(61)

        assert moving(w) == {("uid-a", "n3"): 0b11}
        w.learn(*gone("a2"), successor("a3"))
        assert w.filter("a3", NAMES) == ["n3"]


async def test_a_job_of_one_pod_is_known_by_its_key() -> None:
    membership = Membership(job=JOB, size=1)
    member = Member(name="a", membership=membership)
    runs = replace(running("a", served((0, 1)), "n1", 2), member=member)
    waits = replace(pod_update("a2", 2), member=replace(member, name="a2"))
    async with world(runs) as w:
        w.returns.keep(JOB, [HERE])
        w.learn(ending(runs), waits)
        (text,) = w.why("a2", NAMES)
        assert text.startswith("waits for pod a of the same rank (index 0), which ")
        w.learn(*gone("a"))

        assert w.filter("a2", NAMES) == ["n3"]
        assert w.reserve("a2", "n3") == (0, 1)


async def test_nobody_is_evicted_for_a_pod_with_a_kept_place() -> None:
    low = replace(tenant("x", "n2", ALL), priority=-1)
    async with world(ALONE, low, report("n3", releasing=(0, 1)), preempts=True) as w:
        w.returns.keep("uid-a", [HERE], owner=SET)
        w.learn(*gone("a"), replace(successor("a2"), priority=100))
        asking = {"Pod": objects.pod("a2", 2, meta={"uid": "uid-a2"})}
        body = json.dumps({**asking, "NodeNames": list(NAMES)}).encode()
        answer = b""
        for _ in range(5):
            answer = await w.verbs._filter(body, None)  # type: ignore[arg-type]  # it is not read
            await w.tick()

        assert b"waits until chips 0,1 of n3 are free" in answer
        assert (w.calls.rehearsed, w.calls.evicted) == ([], [])
