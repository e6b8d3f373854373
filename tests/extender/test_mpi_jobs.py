"""Jobs of the MPI operator, whose launcher is the pod of a Job without indexes."""

from collections.abc import Iterator

import pytest

from extender.gang.size import size_of
from tests.extender.gangworld import GangWorld, sim_node
from tests.extender.job_controllers import PodsApi
from tests.support.objects import container
from tests.support.watched import RESOURCE

NODES = ("n1", "n2", "n3", "n4", "n5")
MPI_PATH = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs/bert"


class MpiJob:
    """The MPI operator with one MPIJob, and the Job controller with its launcher.

    Workers are made again once they have gone, since their names stay. The Job of the
    launcher says nothing of pods that are being deleted before v0.8.1.

    Source:
        kubeflow/mpi-operator v0.8.0 `syncHandler`, `getOrCreateWorker`,
        `newLauncherJob`.
    """

    def __init__(self, api: PodsApi, workers: int) -> None:
        self.api = api
        self.workers = workers
        self.is_suspended = False
        roles = {"Launcher": 1, "Worker": workers}
        template = {"spec": {"containers": [container(npus=8)]}}
        replicas = {
            role: {"replicas": number, "template": template}
            for role, number in roles.items()
        }
        found = size_of(
            "Training job", {"spec": {"mpiReplicaSpecs": replicas}}, [RESOURCE]
        )
        assert found is not None
        api.world.world.calls.sizes[MPI_PATH] = found

    def names(self, role: str) -> list[str]:
        """The pods of a role, also those that are being deleted."""
        return [
            name
            for name, found in self.api.pods.items()
            if found["metadata"]["labels"].get("training.kubeflow.org/job-role") == role
        ]

    @property
    def active(self) -> list[str]:
        """Pods that stay."""
        names = self.names("launcher") + self.names("worker")
        return [
            name
            for name in names
            if not self.api.is_ending(name) and not self.api.has_ended(name)
        ]

    def reconcile(self) -> None:
        if self.is_suspended:
            for name in self.active:
                self.api.delete(name)
            return
        key = "training.kubeflow.org/replica-index"
        labels = [
            self.api.pods[name]["metadata"]["labels"] for name in self.names("worker")
        ]
        there = {each[key] for each in labels}
        for index in range(self.workers):
            if f"{index}" not in there:
                owner = ("kubeflow.org/v2beta1", "MPIJob", "bert")
                self._create("worker", owner, {key: f"{index}"})
        if not {*self.names("launcher")} & {*self.active}:
            self._create("launcher", ("batch/v1", "Job", "bert-launcher"), {})

    def _create(
        self, role: str, owner: tuple[str, str, str], labels: dict[str, str]
    ) -> None:
        keys = ("apiVersion", "kind", "name")
        reference = dict(zip(keys, owner, strict=True)) | {"uid": f"uid-of-{owner[2]}"}
        marks = {
            "training.kubeflow.org/job-name": "bert",
            "training.kubeflow.org/job-role": role,
        }
        meta = {
            "labels": marks | labels,
            "ownerReferences": [reference | {"controller": True}],
        }
        self.api.create(f"bert-{role}", 8, meta)


@pytest.fixture
def job() -> Iterator[MpiJob]:
    """An MPIJob with a launcher and two workers that runs."""
    world = GangWorld(map(sim_node, NODES))
    found = MpiJob(PodsApi(world), 2)
    found.reconcile()
    world.report()
    assert world.run(9, *found.active) is not None
    yield found
    world.close()


def test_a_launcher_that_is_made_again_waits_until_the_one_before_has_ended(
    job: MpiJob,
) -> None:
    world = job.api.world
    (old,) = job.names("launcher")
    node = world.bound[old]
    job.api.delete(old)
    job.reconcile()
    (new,) = {*job.active} & {*job.names("launcher")}

    world.report()
    assert world.run(60, new) is None
    (text,) = world.world.why(new, NODES)
    assert text.startswith(f"waits for pod {old} of the same rank (index 0), ")
    assert f" still ends on {node}; " in text

    job.api.end(old, "Failed")
    world.report()
    assert world.run(9, new) is not None


def test_an_mpi_job_is_resumed_whole_once_its_launcher_has_ended(job: MpiJob) -> None:
    world = job.api.world
    (launcher,), workers = job.names("launcher"), job.names("worker")
    for is_suspended in (True, False):
        job.is_suspended = is_suspended
        job.reconcile()
    for name in workers:
        job.api.end(name, "Failed")
    job.reconcile()
    world.report()
    assert world.run(20, *job.active) is None
    assert not {*job.active} & {*world.bound}

    job.api.end(launcher, "Failed")
    world.report()
    assert world.run(9, *job.active) is not None
