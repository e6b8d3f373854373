"""Pods that end with code 0, and of which others are made again.

The phase of one that is being deleted may be `Succeeded`, too. Training operators make
such a pod again, and so does a Job without a failure policy, so no other pod of the job
may be bound in its stead.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from extender.gang.size import whole
from tests.extender.gangworld import NODES, GangWorld, world
from tests.extender.job_controllers import (
    ApiError,
    IndexedJob,
    KubeRay,
    Kueue,
    PodsApi,
    TrainingJob,
)
from tests.extender.test_successors import of_job_set


@contextmanager
def drained(*, is_held: bool) -> Iterator[tuple[GangWorld, TrainingJob]]:
    """A master and a worker were drained, and ended well; another worker has succeeded.

    Args:
        is_held: Whether the worker's pod is still there.
    """
    with world(3) as w:
        job = TrainingJob(PodsApi(w), 2)
        job.reconcile()
        assert w.run_reported(9, *w.pods) is not None
        job.api.end("train-worker-1", "Succeeded")
        for name in ("train-master-0", "train-worker-0"):
            job.api.delete(name)
        if is_held:
            w.pods["train-worker-0"]["metadata"]["finalizers"] = ["example.com/keep"]
        job.api.end("train-worker-0", "Succeeded")
        job.api.end("train-master-0", "Failed")
        assert ("train-worker-0" in w.pods) is is_held
        yield w, job


@pytest.mark.parametrize("is_held", [False, True])
def test_s1_a_master_waits_for_the_worker_that_was_drained_with_it(
    *, is_held: bool
) -> None:
    with drained(is_held=is_held) as (w, job):
        job.api.calls_left = 1  # a quota is used up
        with suppress(ApiError):
            job.reconcile()

        assert w.run_reported(9, "train-master-0") is None

        job.api.calls_left = None
        job.api.patch("train-worker-0", finalizers=None)
        job.reconcile()
        assert w.run_reported(9, "train-master-0", "train-worker-0") is not None


@pytest.mark.parametrize("index", [0, 1])
def test_s1_a_job_waits_for_the_successor_of_a_pod_that_it_has_counted_as_failed(
    index: int,
) -> None:
    """The Job controller removes its finalizer from a pod as soon as it is deleted."""
    with world(4) as w:
        job = IndexedJob(PodsApi(w), 3)
        job.reconcile()
        assert w.run_reported(9, *w.pods) is not None
        first, other, last = job.active.values()
        stopped, late = (first, other) if index == 0 else (other, first)
        job.api.end(last, "Succeeded")
        job.reconcile()
        for name in (stopped, late):
            job.api.delete(name)
        job.reconcile()
        job.api.end(stopped, "Succeeded")

        assert w.run_reported(9, job.active[index]) is None

        job.api.end(late, "Failed")
        assert w.run_reported(9, *job.active.values()) is not None


def test_a_pod_that_a_job_counts_as_succeeded_though_it_was_stopped_is_done() -> None:
    """With `podReplacementPolicy: Failed` its finalizer stays until it has ended."""
    with world(4) as w:
        job = IndexedJob(PodsApi(w), 3)
        job.reconcile()
        assert w.run_reported(9, *w.pods) is not None
        stopped, failed, _ = job.active.values()
        job.api.delete(stopped)
        job.api.end(stopped, "Succeeded")
        job.api.end(failed, "Failed")
        job.reconcile()

        assert job.done == {0}
        assert w.run_reported(2, job.active[1]) is not None


def test_a_pod_of_kueue_that_ends_well_when_it_is_stopped_is_not_replaced() -> None:
    with world(3) as w:
        kueue = Kueue(PodsApi(w), 3, is_fast=False)
        for _ in range(3):
            kueue.create()
        kueue.reconcile()
        kueue.is_admitted = True
        kueue.reconcile()
        assert w.run_reported(9, *w.pods) is not None
        stopped, failed, _ = w.pods
        kueue.api.delete(stopped)
        kueue.api.end(stopped, "Succeeded")
        kueue.api.end(failed, "Failed")
        kueue.create()
        kueue.reconcile()

        assert w.run_reported(9, [*w.pods][-1]) is not None


# -- which success a new pod replaces ----------------------------------------------


def test_s9_a_worker_that_is_made_again_after_a_success_is_counted_once() -> None:
    """It has another name than the one before, and its index, 0."""
    with world(3) as w:
        group = {"replicas": 2, "minReplicas": 2, "numOfHosts": 1}
        ray = KubeRay(PodsApi(w), [group], head=8, is_scaled=False)
        ray.reconcile()
        assert w.run_reported(9, *w.pods) is not None
        for name, phase in zip(ray.names("g0"), ("Succeeded", "Failed"), strict=True):
            ray.api.end(name, phase)
        ray.reconcile()
        ray.api.calls_left = 1
        with suppress(ApiError):
            ray.reconcile()
        (name,) = ray.names("g0")

        assert w.world.why(name, NODES[:4]) == ("waits for 1 of the 3 pods of its job",)


def test_s9_a_pod_without_an_index_replaces_no_success_of_its_job() -> None:
    """Both pods of a Job of a JobSet have the number of that Job."""
    with world(4) as w:
        path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/train"
        w.world.calls.sizes[path] = whole(4)
        for job in (0, 1):
            w.add(*(of_job_set(f"w-{job}-{name}", job, None) for name in "ab"))
        assert w.run_reported(9, *w.pods) is not None
        for name, phase in (("w-1-a", "Succeeded"), ("w-1-b", "Failed")):
            w.pods[name]["status"] = {"phase": phase}
            w.show(name)
        w.remove("w-1-a")
        w.add(of_job_set("w-1-c", 1, None))

        assert w.run_reported(9, "w-1-c") is not None
