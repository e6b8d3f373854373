"""Jobs of several pods, from filter to the API server that binds them."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from extender.cache import decode, events
from extender.cache.requests import Resources
from extender.gang import events as gang_events
from extender.gang.gangs import Gangs
from extender.gang.job_plan import Phase
from extender.gang.membership import Membership
from extender.gang.size import whole
from extender.planning.plan_input import TopologySnapshot
from extender.queries.explain import render_text
from kube import objects
from scheduler_core.placement.job_rules import Profile
from tests.support.caches import apply, cluster, empty, free, known_pod
from tests.support.clock import NOW_S
from tests.support.extender import NAMES, planned_pair, world
from tests.support.fake_api import Fate
from tests.support.objects import container, pod
from tests.support.watched import (
    ALL_FREE,
    gone,
    member,
    node,
    pod_update,
    report,
    tenant,
    two,
)


async def both(*calls: Awaitable[str]) -> list[str]:
    """What was answered to these binds."""
    return list(await asyncio.gather(*calls))


async def test_all_pods_of_a_job_are_bound_once_the_last_has_come() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        w.add(*two())
        assert (w.filter("a"), w.filter("b")) == (["n1"], ["n2"])

        first = await w.come("a", "n1")
        assert w.api.bindings == []
        second = w.bind("b", "n2")

        assert await both(first, second) == ["", ""]
        assert (w.api.node_of("a"), w.api.node_of("b")) == ("n1", "n2")
        assert w.is_(Phase.GATHERING)


async def test_a_pod_whose_job_is_not_whole_waits_and_keeps_nothing() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        w.add(member("a"))

        assert w.why("a") == ("waits for 1 of the 2 pods of its job",)

        assert free(w.cache, "n1") == ALL_FREE
        w.add(member("b"))
        assert w.calls.wakes == 2  # the scheduler is to try the first again


async def test_a_pod_behind_a_gate_is_missing_and_said_to_be_there() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        w.add(member("a"), member("b", is_gated=True))
        waits = "waits for 1 of the 2 pods of its job; 1 behind a scheduling gate"

        assert w.why("a") == (waits,)
        assert free(w.cache, "n1") == ALL_FREE
        assert w.explain("a")["job_pods"] == (
            "2 of 2 pods exist, 0 have a node, 1 behind a scheduling gate"
        )

        wakes = w.calls.wakes
        w.add(member("b"))
        assert w.calls.wakes == wakes + 1  # the scheduler is to try the first again
        assert (w.filter("a"), w.filter("b")) == (["n1"], ["n2"])


def with_sidecar(name: str, visible: str) -> events.PodUpdated:
    """A pod of a job of two, and what its sidecar without chips is to see."""
    env = [{"name": "ASCEND_VISIBLE_DEVICES", "value": visible}]
    marks = {"ascend-affinity/job": "j", "ascend-affinity/job-size": "2"}
    found = pod(
        name,
        containers=[container(npus=8), container("logs", env=env)],
        meta={"uid": f"uid-{name}", "annotations": marks},
    )
    change = decode.pod_change(objects.convert(found, objects.Pod))
    assert isinstance(change, events.PodUpdated)
    return change


async def test_d5_a_pod_that_fits_no_node_is_missing_and_said_to_be_there() -> None:
    """Planned with it, the others would keep chips and wait for what never comes."""
    reason = (
        "container logs sets ASCEND_VISIBLE_DEVICES: leave it out or set it to void"
    )
    async with world(cluster(nodes=NAMES)) as w:
        w.add(with_sidecar("a", "void"), with_sidecar("b", "0"))

        assert w.why("b") == (reason,)
        assert w.why("a") == (
            f"waits for 1 of the 2 pods of its job; b fits no node: {reason}",
        )
        assert free(w.cache, "n1") == free(w.cache, "n2") == ALL_FREE

        w.learn(*gone("b"))
        w.add(with_sidecar("c", "void"))
        assert (w.filter("a"), w.filter("c")) == (["n1"], ["n2"])


async def test_a_job_whose_pods_state_no_number_says_so() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        untold = member("a")
        assert untold.member is not None
        membership = Membership(job="Job of pods/default/j", problem="no number")
        w.add(replace(untold, member=replace(untold.member, membership=membership)))

        assert w.why("a") == ("no number",)

        w.add(member("a"))
        assert w.why("a") == ("waits for 1 of the 2 pods of its job",)
        assert w.calls.wakes == 2  # the scheduler is to try it again


async def test_one_pod_too_many_behind_a_gate_is_not_planned() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        w.add(member("a"), member("b"), member("c", is_gated=True))

        assert (w.filter("a"), w.filter("b")) == (["n1"], ["n2"])


async def test_filter_repeats_itself() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        w.add(*two())

        assert [w.filter("b") for _ in range(3)] == [["n2"]] * 3
        assert w.filter("a") == ["n1"]


async def test_a_job_that_does_not_fit_whole_holds_nothing() -> None:
    async with world(cluster(tenant("x", "n2", (0,)), nodes=NAMES)) as w:
        w.add(*two())

        assert w.why("a") == (
            "its job does not fit: 1 of 2 pods fit",
            "without 8 free chips",
        )
        assert free(w.cache, "n1") == ALL_FREE


async def test_planned_chips_go_to_nobody_else() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        w.add(*two())
        w.add(member("c", job="k"), member("d", job="k"))
        w.filter("a")

        assert w.why("c") == ("without 8 free chips",)


async def test_if_one_does_not_come_all_are_refused_and_all_is_given_back() -> None:
    async with planned_pair() as w:
        call = await w.come("a", "n1")

        w.pass_s(21)

        said = (
            "1 of 2 pods of the job were ready to be bound within 20 s, without b: "
            "all are tried again"
        )
        assert await call == said
        assert w.calls.told == [("b", "AscendGangTimeout", said)]
        assert (free(w.cache, "n1"), free(w.cache, "n2")) == (ALL_FREE, ALL_FREE)
        assert w.api.bindings == []


async def test_it_is_planned_again_after_a_pause_without_the_node_that_refused() -> (
    None
):
    async with planned_pair(("n1", "n2", "n3")) as w:
        names = ("n1", "n2", "n3")
        call = await w.come("a", "n1")
        w.pass_s(21)
        said = await call
        assert w.why("a", names) == (said,)

        w.pass_s(5)

        assert (w.filter("a", names), w.filter("b", names)) == (["n1"], ["n3"])


async def test_a_plan_of_which_nobody_comes_ends() -> None:
    async with planned_pair() as w:
        w.pass_s(31)

        assert w.is_(Phase.GATHERING)
        assert free(w.cache, "n1") == ALL_FREE


async def test_a_pod_that_is_not_offered_its_node_has_its_job_planned_anew() -> None:
    names = ("n1", "n2", "n3")
    async with planned_pair(names) as w:
        call = await w.come("a", "n1")

        assert w.filter("b", ("n1", "n3")) == ["n3"]

        assert await call == "pod b of the job cannot go to n2: it is planned again"
        assert w.filter("a", names) == ["n1"]


async def test_a_list_of_one_node_says_nothing_of_the_others() -> None:
    async with planned_pair() as w:
        assert w.filter("b", ("n1",)) == []

        assert w.filter("b") == ["n2"]


async def test_callers_who_have_gone_have_not_come() -> None:
    async with planned_pair() as w:
        gone = await w.come("a", "n1")
        w.there = False

        second = w.bind("b", "n2")

        assert await gone == "the caller has gone"
        w.there = True
        again = w.bind("a", "n1")
        assert await both(second, again) == ["", ""]


async def test_a_later_call_for_a_pod_takes_the_place_of_the_first() -> None:
    async with planned_pair() as w:
        first = await w.come("a", "n1")

        again = w.bind("a", "n1")

        assert await first == "a later call has taken the place of this one"
        assert await both(again, w.bind("b", "n2")) == ["", ""]


async def test_a_bind_for_another_node_than_planned_is_refused() -> None:
    async with planned_pair() as w:
        assert await w.bind("a", "n2") == "the plan of this pod's job has it on n1"


async def test_a_bind_without_a_plan_is_refused() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        w.add(*two())

        assert await w.bind("a", "n1") == (
            "the job of this pod has no plan now: it is tried again as a whole"
        )


async def test_a_member_that_goes_ends_the_plan() -> None:
    async with planned_pair() as w:
        call = await w.come("a", "n1")

        w.learn(events.PodDeleted(uid="uid-b"))

        assert await call == "pod b of the job has gone"
        assert free(w.cache, "n1") == ALL_FREE


async def test_a_chip_that_fails_while_the_gate_is_closed_has_all_refused() -> None:
    async with planned_pair() as w:
        first = await w.come("a", "n1")
        w.learn(report("n1", unhealthy=(3,), there=(), update_time=NOW_S + 1))

        second = w.bind("b", "n2")

        said = "pod a of the job can no longer be bound: chip unhealthy"
        assert await both(first, second) == [said, said]
        assert w.api.bindings == []
        assert free(w.cache, "n2") == ALL_FREE


async def test_what_fails_in_the_middle_is_completed() -> None:
    async with planned_pair() as w:
        w.api.fates.extend([Fate.FORBIDDEN])

        said = await w.bind_both()

        assert sorted(map(bool, said)) == [False, True]
        left = "a" if said[0] else "b"
        place = {"a": "n1", "b": "n2"}[left]
        assert w.is_(Phase.BINDING)
        assert free(w.cache, place) == ()  # kept for the next try
        assert w.filter(left) == [place]
        assert await w.bind(left, place) == ""
        assert w.is_(Phase.GATHERING)


async def test_a_job_that_stays_bound_in_part_is_told_of_once() -> None:
    async with planned_pair() as w:
        w.api.fates.extend([Fate.FORBIDDEN])
        said = await w.bind_both()
        left = "a" if said[0] else "b"

        w.pass_s(61)
        w.pass_s(1)

        text = f"1 pods of the job are bound and 1 are not: {left}"
        assert w.calls.told == [(left, "AscendGangIncomplete", text)]
        w.pass_s(600)
        assert w.is_(Phase.GATHERING)
        assert free(w.cache, {"a": "n1", "b": "n2"}[left]) == ALL_FREE


async def test_a_pod_that_is_made_again_joins_its_job_without_a_gate() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        w.learn(member("a", node="n1", phase="Running"))
        w.add(member("b"))

        assert w.filter("b") == ["n2"]
        assert await w.bind("b", "n2") == ""


@pytest.mark.parametrize("deletion", ["none", "begun", "done"])
async def test_a_pod_is_made_again_beside_one_that_has_succeeded(deletion: str) -> None:
    """G8: also when the one that succeeded was deleted since, while a third runs.

    The deletion may last: Kueue keeps a finalizer until all pods have succeeded.
    """
    async with world(cluster(nodes=NAMES)) as w:
        is_ending = deletion != "none"
        done = member("a", size=3, node="n1", phase="Succeeded", deleting=is_ending)
        w.learn(done, member("c", size=3, node="n2", phase="Running"))
        if deletion == "done":
            w.learn(*gone("a"))
        w.add(member("b", size=3))

        assert w.filter("b") == ["n1"]
        assert await w.bind("b", "n1") == ""


async def test_a_job_that_begins_again_has_no_pods_that_succeeded() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        done = [
            member(name, size=3, node="n1", phase="Succeeded", deleting=True)
            for name in "ab"
        ]
        ending = member("c", size=3, node="n2", phase="Running", deleting=True)
        w.learn(*done, ending, *gone("a", "b"))
        w.add(member("c2", size=3))

        assert w.why("c2") == ("waits for 2 of the 3 pods of its job",)


async def test_a_pod_that_succeeded_lets_nobody_through_while_it_is_deleted() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        w.learn(member("a", node="n1", phase="Succeeded", deleting=True))
        w.add(member("b"))

        assert w.why("b") == ("waits for 1 of the 2 pods of its job",)


async def test_a_pod_in_the_place_of_one_that_succeeded_is_counted_once() -> None:
    async with world(cluster(nodes=NAMES)) as w:
        done = member("a", size=3, node="n1", phase="Succeeded")
        w.learn(done, member("c", size=3, node="n2", phase="Running"), *gone("a"))
        w.add(member("a", size=3))

        assert w.why("a") == ("waits for 1 of the 3 pods of its job",)


async def test_pods_that_do_not_fit_a_node_together_go_to_two() -> None:
    allocatable_resources = Resources(1000, 1 << 30, 110)
    cache = cluster(nodes=NAMES)
    for name in NAMES:
        apply(cache, replace(node(name), allocatable_resources=allocatable_resources))
    per_pod = TopologySnapshot(profile=Profile.PER_POD)
    async with world(cache, topology=lambda _gang: per_pod) as w:
        asks = Resources(600, 1 << 20)
        w.add(member("a", count=2, ask=asks), member("b", count=2, ask=asks))

        assert (w.filter("a"), w.filter("b")) == (["n1"], ["n2"])


async def test_without_cpu_for_all_there_is_no_plan() -> None:
    cache = cluster(nodes=NAMES)
    for name in NAMES:
        apply(
            cache,
            replace(node(name), allocatable_resources=Resources(1000, 1 << 30, 110)),
        )
    busy = events.OtherPodUpdated(uid="web", node="n2", ask=Resources(800, 0))
    apply(cache, busy)
    async with world(cache) as w:
        asks = Resources(600, 1 << 20)
        w.add(member("a", ask=asks), member("b", ask=asks))

        assert w.why("a") == ("its job does not fit: 1 of 2 pods fit",)

        w.learn(events.PodDeleted(uid="web"))
        assert w.filter("a") == ["n1"]


async def test_jobs_are_planned_by_priority_then_age() -> None:
    async with world(cluster(tenant("x", "n1", (0,)), nodes=NAMES)) as w:
        w.add(*two())
        w.add(member("c", job="k", priority=5), member("d", job="k", priority=5))
        assert w.filter("a") == w.filter("c") == []

        w.learn(events.PodDeleted(uid="uid-x"))
        w.pass_s(3)

        assert w.filter("a") == []  # the other comes first
        assert w.filter("c") == ["n1"]


async def test_a_job_with_more_binds_than_the_extender_has_connections_is_refused() -> (
    None
):
    cache = empty()
    for name in NAMES:
        apply(cache, node(name), report(name))
    async with world(cache, open_files=102) as w:
        w.add(*(member(name, size=3) for name in "abc"))

        text = (
            "its job needs 3 pods at once, more than the 2 that can be bound together: "
            "the extender may have 102 open files (ulimit -Hn)"
        )
        assert w.why("a") == (text,)


async def test_a_job_larger_than_the_gate_takes_is_refused() -> None:
    cache = empty(limits=gang_events.Limits(permit_s=0.02))
    for name in NAMES:
        apply(cache, node(name), report(name))
    async with world(cache) as w:
        w.add(*(member(name, size=3) for name in "abc"))

        text = (
            "its job needs 3 pods at once, more than the 2 that can be bound together"
        )
        assert w.why("a") == (text,)


async def test_pods_that_join_a_job_are_never_too_many() -> None:
    async with world(cluster(nodes=("n1", "n2", "n3", "n4")), open_files=102) as w:
        w.learn(member("a", size=4, node="n1", phase="Running"))
        w.add(*(member(name, size=4) for name in "bcd"))

        assert w.filter("b", ("n2", "n3", "n4")) == ["n2"]


async def test_ranks_and_marks_of_a_job_are_written_at_bind() -> None:
    async with planned_pair() as w:
        await w.bind_both()

        (one, other) = w.api.bindings
        assert one["metadata"]["annotations"]["distributed-job"] == "true"
        assert other["metadata"]["annotations"]["distributed-job"] == "true"


async def test_a_plan_is_explained() -> None:
    async with planned_pair() as w:
        found = w.explain("b")

    assert found["job"] == "Job of pods default/j"
    assert found["job_plan"] == {"a": "n1", "b": "n2"}
    assert render_text(found) == (
        "default/b: planned\n"
        "  job: Job of pods default/j\n"
        "  job_state: planned\n"
        "  job_since: 2027-01-15T08:00:00Z\n"
        "  job_pods: 2 of 2 pods exist, 0 have a node\n"
        "  node: n2\n"
        "  chips: 0,1,2,3,4,5,6,7\n"
        "  now, by reason:\n"
        "    1 node: fits (n2)\n"
        "    1 node: the job's plan has the pod on another node (n1)\n"
        "  now, node by node:\n"
        "    n1: the job's plan has the pod on another node\n"
        "    n2: fits\n"
    )


async def test_a_pod_by_itself_is_not_of_any_job() -> None:
    async with world(cluster()) as w:
        w.learn(pod_update("s"))

        assert w.planner.filter_nodes(known_pod(w.cache, "s"), NAMES) is None


async def test_a_pod_that_ends_lets_nobody_through() -> None:
    names = ("n1", "n2", "n3", "n4")
    async with world(cluster(nodes=names)) as w:
        ending = [
            member(name, node=where, deleting=True)
            for name, where in (("a", "n1"), ("b", "n2"))
        ]
        w.add(*ending, member("c"), member("d"))
        assert (w.filter("c", names), w.filter("d", names)) == (["n3"], ["n4"])

        first = await w.come("c", "n3")
        w.add(*ending)  # a watch tells of them again

        assert w.is_(Phase.RESERVED)
        assert w.api.bindings == []
        assert await both(first, w.bind("d", "n4")) == ["", ""]


async def test_a_pod_that_was_to_join_others_that_end_waits_for_a_whole_job() -> None:
    """G5: the plan of one pod is not the whole job."""
    async with world(cluster(nodes=NAMES)) as w:
        runs = member("a", node="n1", phase="Running")
        w.learn(runs)
        w.add(member("b"))
        assert w.filter("b") == ["n2"]
        w.learn(member("a", node="n1", phase="Running", deleting=True))

        assert await w.bind("b", "n2") == "pods beside which it was to run have gone"
        assert w.why("b") == ("waits for 1 of the 2 pods of its job",)


async def test_binds_that_failed_beside_pods_that_end_come_together_again() -> None:
    names = ("n1", "n2", "n3", "n4")
    async with world(cluster(nodes=names)) as w:
        w.add(member("a", node="n1", deleting=True), *map(member, "cd"))
        assert w.filter("c", names) == ["n2"]
        w.api.fates.extend([Fate.FORBIDDEN] * 2)

        failed = await both(w.bind("c", "n2"), w.bind("d", "n3"))

        assert all(failed)
        assert w.is_(Phase.RESERVED)


def test_pods_are_counted_that_are_not_missing() -> None:
    """A launcher asks for no NPUs, one member has ended well, and one is ending."""
    gangs = Gangs()
    for name in ("a", "b", "c"):
        seen = member(name).member
        assert seen is not None
        gangs.put(
            f"uid-{name}",
            replace(seen, membership=replace(seen.membership, job="j")),
            bound=name != "b",
            succeeded=name == "a",
            ending=name == "b",
            now_s=NOW_S,
        )
    gangs.put_other("uid-launcher", "j")
    gangs.drop("uid-a")
    gang = gangs.jobs["j"]
    gang.size = whole(4, counts_all=True)

    assert gang.missing == 1
    assert gang.counts == (
        "3 of 4 pods exist, 2 have a node, 1 without NPUs, 1 terminating"
    )
