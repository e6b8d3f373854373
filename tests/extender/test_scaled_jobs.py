"""Jobs that are made larger, before they run and while they do.

The object of a job is edited first, and its controller makes the pods one by one.
"""

from contextlib import suppress

import pytest

from extender.gang.gang import Gang
from extender.gang.size import whole
from tests.extender.gangworld import GangWorld, sim_pod, world
from tests.extender.job_controllers import ApiError, IndexedJob, PodsApi
from tests.support.caches import cluster
from tests.support.extender import NAMES
from tests.support.extender import world as served_world
from tests.support.watched import JOB_PATH, task


def fill(w: GangWorld, count: int) -> list[str]:
    """Let pods by themselves take so many nodes."""
    names = [f"alone-{number}" for number in range(count)]
    w.add(*(sim_pod(name, job=name, size=1, npus=8) for name in names))
    assert w.run_reported(9, *names) is not None
    return names


def reconcile(job: IndexedJob, calls: int) -> None:
    """Let a Job's controller make so many calls; a quota refuses more."""
    job.api.calls_left = calls
    with suppress(ApiError):
        job.reconcile()
    job.api.calls_left = None


def gang_of(w: GangWorld) -> Gang:
    return w.cache.gangs["Job/default/train"]


# -- before they run ---------------------------------------------------------------


@pytest.mark.parametrize("pods", [1, 2])
def test_s2_a_job_that_waits_and_is_made_larger_is_bound_whole(pods: int) -> None:
    with world(4) as w:
        others = fill(w, 4)
        job = IndexedJob(PodsApi(w), pods)
        job.reconcile()
        assert w.run_reported(3, *job.active.values()) is None

        job.scale(4)
        reconcile(job, 1)
        w.delete(*others[: pods + 1])
        assert w.run_reported(9) is not None
        assert not {*job.active.values()} & {*w.bound}

        job.reconcile()
        w.delete(*others[pods + 1 :])
        assert w.run_reported(30, *job.active.values()) is not None


@pytest.mark.parametrize("ended", ["Succeeded", "Failed"])
def test_s2_a_job_that_is_suspended_and_made_larger_is_resumed_whole(
    ended: str,
) -> None:
    with world(5) as w:
        job = IndexedJob(PodsApi(w), 3)
        job.reconcile()
        assert w.run_reported(9, *job.active.values()) is not None
        first, *others = job.active.values()
        job.api.end(first, ended)
        job.is_suspended = True
        job.reconcile()
        for name in others:
            job.api.end(name, "Failed")
        job.reconcile()
        job.scale(5)
        job.is_suspended = False
        reconcile(job, 2 if ended == "Succeeded" else 3)

        assert w.run_reported(9, *job.active.values()) is None
        assert not {*job.active.values()} & {*w.bound}

        job.reconcile()
        assert w.run_reported(30, *job.active.values()) is not None


async def test_s2_a_plan_is_void_if_another_pod_comes_before_the_last_bind() -> None:
    names = (*NAMES, "n3")
    async with served_world(cluster(nodes=names)) as w:
        w.calls.sizes[JOB_PATH] = whole(2)
        w.add(task(0, name="a"), task(1, name="b"))
        await w.settled()
        assert (w.filter("a", names), w.filter("b", names)) == (["n1"], ["n2"])
        first = await w.come("a", "n1")

        w.calls.sizes[JOB_PATH] = whole(3)
        w.add(task(2, name="c"))
        second = w.bind("b", "n2")

        text = "the job has more pods than when it was planned: it is planned again"
        assert (await first, await second) == (text, text)
        assert w.api.bindings == []
        await w.settled()
        assert w.filter("c", names) == ["n3"]


# -- while they run ----------------------------------------------------------------


def test_s8_a_successor_does_not_wait_for_a_pod_that_is_never_made() -> None:
    with world(4) as w:
        fill(w, 1)
        job = IndexedJob(PodsApi(w), 3)
        job.reconcile()
        assert w.run_reported(9, *job.active.values()) is not None
        job.scale(4)
        w.add(sim_pod("rival", job="rival", size=1, npus=8))
        job.api.end(job.active[1], "Failed")
        assert w.run_reported(9, "rival") is not None

        reconcile(job, 2)  # the finalizer of the old pod, and the new one
        assert w.run_reported(30, job.active[1]) is None
        assert gang_of(w).size == whole(4)

        w.delete("rival")
        assert w.run_reported(9, job.active[1]) is not None


def test_s8_a_successor_is_bound_before_a_pod_for_which_there_is_no_room() -> None:
    with world(3) as w:
        job = IndexedJob(PodsApi(w), 3)
        job.reconcile()
        assert w.run_reported(9, *job.active.values()) is not None
        job.scale(4)
        job.reconcile()
        assert w.run_reported(30, job.active[3]) is None

        job.api.end(job.active[1], "Failed")
        job.reconcile()

        assert w.run_reported(9, job.active[1]) is not None
        assert job.active[3] not in w.bound


def test_s8_a_job_waits_for_those_that_it_had_as_before() -> None:
    with world(5) as w:
        job = IndexedJob(PodsApi(w), 4)
        job.reconcile()
        assert w.run_reported(9, *job.active.values()) is not None
        job.scale(5)
        for index in (1, 2):
            job.api.end(job.active[index], "Failed")
        reconcile(job, 3)

        assert w.run_reported(30, job.active[1]) is None

        reconcile(job, 1)
        assert w.run_reported(30, job.active[1], job.active[2]) is not None


def test_s8_pods_by_which_a_job_was_made_larger_join_it_as_they_are_made() -> None:
    with world(5) as w:
        job = IndexedJob(PodsApi(w), 3)
        job.reconcile()
        assert w.run_reported(9, *job.active.values()) is not None
        job.scale(5)

        for index in (3, 4):
            reconcile(job, 1)
            assert w.run_reported(9, job.active[index]) is not None
        assert gang_of(w).state == "waiting, 5 of 5 pods exist, 5 have a node"
