"""Jobs that were bound in part and cannot be completed: kept, or begun anew."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from extender.apiserver.wake import SchedulerWaker
from extender.apiserver.writers import KubeJobs
from extender.cache import events
from extender.cache.reservations import Owner
from extender.gang.job_plan import Phase
from extender.gang.size import Size
from extender.metrics import Metrics
from kube import credentials
from kube.client import Client
from kube.events import Recorder
from sandbox.apiserver.paths import Target
from sandbox.apiserver.resources import PODS
from tests.extender.test_evictions_over_http import asking
from tests.support.caches import cluster, free, only_gang, reservations, set_limits
from tests.support.extender import NAMES, planned_pair, world
from tests.support.fake_api import Fate
from tests.support.servers import api_server
from tests.support.until import until
from tests.support.watched import ALL, JOB_PATH, member, pod, served, task, two


@pytest.mark.parametrize("evicts", [False, True])
async def test_bound_pods_of_a_job_in_part_are_evicted_only_if_asked_to(
    evicts: bool,
) -> None:
    cache = cluster(nodes=NAMES)
    set_limits(cache, evicts_incomplete=evicts)
    async with world(cache) as w:
        w.add(*two())
        w.filter("a")
        w.api.fates.extend([Fate.FORBIDDEN])
        text = await w.bind_both()
        bound, left = ("b", "a") if text[0] else ("a", "b")
        for _ in range(9):  # the plan keeps the chips of who is left
            w.pass_s(61)
            assert reservations(w.cache)[f"uid-{left}"].owner is Owner.PLAN
        assert w.calls.removed == []

        w.pass_s(61)
        await asyncio.gather(*w.job_calls._tasks)

        assert w.calls.removed == ([bound] if evicts else [])
        why = "evicted, because its job was not complete in time: it starts again"
        told = [(bound, "AscendGangEvicted", why)] if evicts else []
        assert w.calls.told[1:] == told
        assert free(w.cache, {"a": "n1", "b": "n2"}[left]) == tuple(ALL)


async def test_s7_a_pod_that_has_succeeded_is_not_evicted_with_an_incomplete_job() -> (
    None
):
    cache = cluster(nodes=NAMES)
    set_limits(cache, evicts_incomplete=True)
    async with world(cache) as w:
        w.learn(member("c", size=3, node="n2", phase="Succeeded"))
        w.add(member("a", size=3), member("b", size=3))
        w.filter("a")
        w.api.fates.extend([Fate.FORBIDDEN])
        answers = await w.bind_both()
        bound, left = ("b", "a") if answers[0] else ("a", "b")
        for _ in range(10):
            w.pass_s(61)
        await asyncio.gather(*w.job_calls._tasks)

        assert w.calls.removed == [bound]
        text = f"1 pods of the job are bound and 1 are not: {left}"
        assert w.calls.told[0] == (left, "AscendGangIncomplete", text)


async def test_a_job_with_all_that_it_needs_is_not_evicted_for_a_pod_that_joins() -> (
    None
):
    names = (*NAMES, "n3")
    cache = cluster(nodes=names)
    set_limits(cache, evicts_incomplete=True)
    async with world(cache) as w:
        w.calls.sizes[JOB_PATH] = Size(count=3, least=2)
        w.learn(task(0, node="n1"), task(1, node="n2"))
        w.add(task(2))
        await w.settled()
        assert w.filter("w2", names) == ["n3"]
        w.api.fates.append(Fate.FORBIDDEN)
        assert await w.bind("w2", "n3") != ""
        for _ in range(11):
            w.pass_s(61)
        await asyncio.gather(*w.job_calls._tasks)

        assert w.calls.removed == []
        assert [reason for _, reason, _ in w.calls.told] == ["AscendGangIncomplete"]
        assert free(w.cache, "n3") == tuple(ALL)


async def test_a_bind_whose_turn_comes_when_its_job_is_given_up_is_refused() -> None:
    async with world(cluster(nodes=NAMES), at_once=1) as w:
        w.add(*two())
        w.filter("a")
        w.api.fates.append(Fate.WAIT)
        first = await w.come("a", "n1")
        second = w.bind("b", "n2")
        await until(lambda: w.api.unanswered == 1)

        w.pass_s(601)
        w.api.go_on.set()

        # to be bound now would be to be bound by itself: as a job of one, of rank 0
        assert sorted(await asyncio.gather(first, second)) == [
            "",
            "the job of this pod has no plan now: it is tried again as a whole",
        ]
        assert len(w.api.bindings) == 1


async def test_a_job_is_not_planned_anew_while_a_bind_of_it_may_take_effect() -> None:
    names = ("n1", "n2", "n3")
    async with planned_pair(names) as w:
        w.api.fates.extend([Fate.WAIT, Fate.FORBIDDEN])
        calls = {"a": w.bind("a", "n1")}
        await w.until_came(1)
        calls["b"] = w.bind("b", "n2")
        await until(lambda: len(w.api.bindings) == 2)
        late = str(w.api.bindings[0]["metadata"]["name"])
        other = {"a": "b", "b": "a"}[late]
        await calls[other]
        w.pass_s(601)
        w.pass_s(5)

        # a plan would give the late one other chips, and forget that it has these
        assert w.filter(other, names) == []

        w.api.go_on.set()
        assert await calls[late] == ""
        wakes = w.calls.wakes
        w.pass_s(1)
        assert w.calls.wakes == wakes + 1
        assert len(w.filter(other, names)) == 1
        w.learn(*(events.PodDeleted(uid=f"uid-{name}") for name in calls))
        assert [free(w.cache, name) for name in names] == [tuple(ALL)] * 3


async def test_they_are_evicted_by_uid_and_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        api_server() as server,
        Client(credentials.from_url(server.url)) as client,
    ):
        recorder = Recorder(client, component="test", spacing_s=0)
        waker = SchedulerWaker(no_mark)
        jobs = KubeJobs(client, recorder, waker, Metrics(CollectorRegistry()))
        target = Target(resource=PODS, namespace="default")
        made = server.store.create(target, asking("a", 1, 0)).document
        uid = made["metadata"]["uid"]

        await jobs.remove(pod("a", uid="another"))
        assert server.store.entries(PODS).keys() == {("default", "a")}
        await jobs.remove(pod("a", uid=uid))
        assert server.store.entries(PODS) == {}

    assert [each.message for each in caplog.records] == [
        "pod of an incomplete job not evicted"
    ]


async def no_mark(_node: str) -> None:
    """Nobody waits here."""


async def test_a_pod_that_is_gone_when_it_is_bound_has_no_place_in_the_plan() -> None:
    async with planned_pair() as w:
        del w.api.pods["default", "a"]  # its watch has not shown that yet

        assert await w.bind_both() == ["the pod is gone", ""]
        gang = only_gang(w.cache)
        assert gang.plan.places == {}
        assert reservations(w.cache).keys() == {"uid-b"}
        assert w.is_(Phase.GATHERING)


async def test_who_has_come_goes_on_once_another_turns_out_to_be_bound() -> None:
    async with planned_pair() as w:
        w.api.fates.extend([Fate.CUT, Fate.FORBIDDEN])
        await w.bind_both()
        assert w.is_(Phase.RESERVED)
        unclear, left = (
            ("a", "b") if "uid-a" in w.sent_binds._open_binds else ("b", "a")
        )
        earlier = w.bind(left, {"a": "n1", "b": "n2"}[left])
        await w.until_came(1)

        seen = next(each for each in two() if each.pod.name == unclear)
        claim = reservations(w.cache)[f"uid-{unclear}"]
        bound = replace(seen.pod, node=claim.node, annotations=served(range(8)))
        w.learn(replace(seen, pod=bound))

        assert await earlier == ""
        assert w.is_(Phase.GATHERING)
        assert w.permits._waiting_binds._waiting == {}
