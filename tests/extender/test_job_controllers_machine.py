"""Jobs of KubeRay, Kueue and Kubernetes whose pods come and go in any order.

Each machine is the cluster around one job of whole nodes. Whatever happens: no pod is
bound before as many as the job needs are, unless another pod of the job runs and stays;
no two pods of an index are bound at once; and once all is quiet, the job runs with all
its pods, since there is room for them.
"""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extender.gang.gang import Gang
from tests.extender.gangworld import GangWorld, sim_node
from tests.extender.job_controllers import (
    ApiError,
    IndexedJob,
    KubeRay,
    Kueue,
    PodsApi,
)
from tests.support.examples import examples
from tests.support.watched import RESOURCE

NODES = ("n1", "n2", "n3", "n4")
#: Seconds in which a quiet job is bound: pauses after plans that failed are shorter.
QUIET_S = 720


class JobOnNodes(RuleBasedStateMachine):
    """Kubelets, API server and scheduler beside a job's controller."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GangWorld(map(sim_node, NODES))
        self.world.on_let = self.check_gate
        self.api = PodsApi(self.world)

    def reconcile(self) -> None:
        raise NotImplementedError

    @rule(calls=st.sampled_from((1, 2, 3, None)))
    def let_the_controller_work(self, calls: int | None) -> None:
        """The controller makes so many calls; the next one fails."""
        self.api.calls_left = calls
        with suppress(ApiError):
            self.reconcile()
        self.api.calls_left = None

    @rule(data=st.data(), seconds=st.sampled_from((1, 1, 3, 30)))
    def schedule(self, data: st.DataObject, seconds: int) -> None:
        order = data.draw(st.permutations(self.world.waiting))
        for _ in range(seconds):
            self.pass_s(*order)

    def pass_s(self, *order: str) -> None:
        self.world.report()
        self.world.pass_s(order)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def delete_a_pod(self, data: st.DataObject) -> None:
        self.api.delete(data.draw(self.some_pod()))

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), phase=st.sampled_from(("Failed", "Succeeded")))
    def end_a_pod(self, data: st.DataObject, phase: str) -> None:
        self.api.end(data.draw(self.some_pod()), phase)

    def some_pod(self) -> st.SearchStrategy[str]:
        return st.sampled_from(sorted(self.world.pods))

    @rule(phase=st.sampled_from(("Failed", "Succeeded")))
    def end_all_that_are_deleted(self, phase: str = "Failed") -> None:
        for name in list(self.world.pods):
            if self.api.is_ending(name):
                self.api.end(name, phase)

    # -- laws -----------------------------------------------------------------------

    def check_gate(self, let: set[str]) -> None:
        """Who is let through comes with enough others, or beside one that runs."""
        gang = self.gang
        if gang is None or gang.size is None or not gang.is_several:
            return
        staying = {
            name
            for name in self.with_npus()
            if self.api.is_running(name) and not self.api.is_ending(name)
        }
        others = len(self.world.pods) - len(self.with_npus())
        others = others if gang.size.counts_all else 0
        least = gang.size.least - others - self.finished
        assert staying or len(let) >= min(least, len(NODES)), (let, gang.size)

    @property
    def finished(self) -> int:
        """Pods of the job that have succeeded."""
        ended = [n for n in self.with_npus() if self.api.phase(n) == "Succeeded"]
        return len(ended)

    @property
    def gang(self) -> Gang | None:
        gangs = [gang for gang in self.world.cache.gangs.values() if gang.members]
        assert len(gangs) <= 1
        return next(iter(gangs), None)

    def with_npus(self) -> list[str]:
        return [n for n, pod in self.world.pods.items() if asks(pod)]

    @invariant()
    def no_node_is_given_twice(self) -> None:
        nodes = [
            self.world.pods[name]["spec"]["nodeName"]
            for name in self.with_npus()
            if self.api.is_running(name)
        ]
        assert len(nodes) == len({*nodes})

    def run_quietly(self) -> None:
        """Let all end that is to end, and all be bound that waits."""
        for _ in range(QUIET_S):
            for name in list(self.world.pods):
                if self.api.is_ending(name):
                    self.api.end(name, "Failed")
            before = sorted(self.world.pods)
            self.reconcile()
            is_ending = any(map(self.api.is_ending, self.world.pods))
            pods, bound = sorted(self.world.pods), sorted(self.world.bound)
            if before == pods == bound and not is_ending:
                return
            self.pass_s()

    def teardown(self) -> None:
        self.world.close()


def asks(pod: Any) -> bool:
    """Whether a pod asks for chips."""
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    return RESOURCE in limits


class RayCluster(JobOnNodes):
    """KubeRay, its autoscaler, a RayJob that suspends, and people."""

    def __init__(self) -> None:
        super().__init__()
        self.ray: KubeRay | None = None
        #: replicas of several hosts of which a pod was bound
        self.begun: set[str] = set()

    @initialize(
        data=st.data(), is_scaled=st.booleans(), head=st.sampled_from((0, 0, 8))
    )
    def install(self, data: st.DataObject, *, is_scaled: bool, head: int) -> None:
        """The groups have up to four pods altogether."""
        hosts = data.draw(st.sampled_from((1, 1, 2)), "hosts")
        groups = [
            {
                "replicas": data.draw(st.integers(1, 3 // hosts), "replicas"),
                "minReplicas": data.draw(st.integers(0, 1), "least"),
                "numOfHosts": hosts,
            }
        ]
        if hosts == 1:
            groups.append({"replicas": 1, "minReplicas": 0, "numOfHosts": 1})
        self.ray = KubeRay(self.api, groups, head=head, is_scaled=is_scaled)

    def reconcile(self) -> None:
        assert self.ray is not None
        self.ray.reconcile()

    def check_gate(self, let: set[str]) -> None:
        """The first of a replica to be let through has chips for all of it."""
        super().check_gate(let)
        assert self.ray is not None
        gang, pods = self.gang, self.world.pods
        places = gang.plan.places if gang is not None else {}
        for replica, names in self.ray.replicas("g0").items():
            if let & {*names} and replica not in self.begun:
                self.begun.add(replica)
                planned = [n for n in names if pods[n]["metadata"]["uid"] in places]
                hosts = self.ray.spec["workerGroupSpecs"][0]["numOfHosts"]
                assert len(let.union(planned) & {*names}) == hosts

    @rule(replicas=st.integers(0, 3), least=st.integers(0, 1))
    def scale(self, replicas: int, least: int) -> None:
        """A person or the autoscaler asks for another number of workers."""
        assert self.ray is not None
        self.ray.edit(replicas=replicas, minReplicas=least)

    @precondition(lambda self: self.ray is not None and self.ray.names("g0"))
    @rule(data=st.data())
    def scale_down(self, data: st.DataObject) -> None:
        """The autoscaler names the worker that is to go."""
        assert self.ray is not None
        name = data.draw(st.sampled_from(sorted(self.ray.names("g0"))))
        replicas = self.ray.spec["workerGroupSpecs"][0]["replicas"]
        self.ray.edit(replicas=max(replicas - 1, 0), workersToDelete=[name])

    @rule(is_suspended=st.booleans())
    def suspend(self, *, is_suspended: bool) -> None:
        assert self.ray is not None
        self.ray.suspend(is_suspended=is_suspended)

    @rule(is_suspended=st.booleans())
    def suspend_workers(self, *, is_suspended: bool) -> None:
        assert self.ray is not None
        self.ray.edit(suspend=is_suspended)

    @rule()
    def bring_up(self) -> None:
        """The cluster comes up without a disturbance."""
        self.reconcile()
        for _ in range(4):
            self.pass_s()

    @rule()
    def recreate(self) -> None:
        """The cluster was edited, and its strategy is `Recreate`."""
        for name in list(self.world.pods):
            self.api.delete(name)

    def teardown(self) -> None:
        """All pods run once nothing changes any more."""
        if self.ray is not None:
            self.ray.suspend(is_suspended=False)
            replicas = (
                1 if self.ray.spec["workerGroupSpecs"][0]["numOfHosts"] > 1 else 2
            )
            self.ray.edit(replicas=replicas, minReplicas=1, suspend=False)
            self.ray.edit(workersToDelete=self.excess(replicas))
            self.run_quietly()
            assert {*self.world.bound} == {*self.world.pods}
            assert len(self.ray.names("g0")) == 2
            assert len(self.ray.names("headgroup")) == 1
        super().teardown()

    def excess(self, replicas: int) -> list[str]:
        """The workers that the autoscaler takes away: all, then it makes others."""
        assert self.ray is not None
        names = self.ray.names("g0")
        return names if len(names) > replicas else []


class PodGroup(JobOnNodes):
    """Kueue, the queue, and the program that makes the pods."""

    def __init__(self) -> None:
        super().__init__()
        self.kueue: Kueue | None = None

    @initialize(total=st.integers(2, 4), is_fast=st.booleans())
    def install(self, total: int, *, is_fast: bool) -> None:
        self.kueue = Kueue(self.api, total, is_fast=is_fast)

    @property
    def queue(self) -> Kueue:
        assert self.kueue is not None
        return self.kueue

    def reconcile(self) -> None:
        self.queue.reconcile()

    @precondition(lambda self: len(self.world.pods) < 7)
    @rule(number=st.integers(1, 4), npus=st.sampled_from((8, 8, 8, 0)))
    def make_pods(self, number: int, npus: int) -> None:
        """Perhaps too few, perhaps too many."""
        for _ in range(number):
            self.queue.create(npus)
            npus = 8

    @rule(calls=st.sampled_from((0, 1, 2, None)))
    def bring_up(self, calls: int | None) -> None:
        """The group is admitted; perhaps not all gates are removed."""
        while len(self.queue.active) < self.queue.total:
            self.queue.create()
        self.reconcile()
        self.admit()
        self.let_the_controller_work(calls)
        for _ in range(4):
            self.pass_s()

    @rule()
    def replace_what_has_ended(self) -> None:
        """Pods that were deleted end one by one, and each is made again at once."""
        for name in list(self.world.pods):
            if name in self.world.pods and self.api.is_ending(name):
                self.api.end(name, "Failed")
                self.bring_up(None)

    @rule()
    def admit(self) -> None:
        self.queue.is_admitted = self.queue.has_workload

    @rule()
    def preempt(self) -> None:
        self.queue.preempt()

    def teardown(self) -> None:
        """All pods run once the group is admitted and nothing changes any more."""
        if self.kueue is not None:
            for name in list(self.world.pods):
                if self.api.has_ended(name):
                    self.api.patch(name, finalizers=None)
                    self.api.delete(name)
            for _ in range(3):
                self.reconcile()
                self.end_all_that_are_deleted()
            while len(self.queue.active) < self.queue.total:
                self.queue.create()
            self.reconcile()
            self.queue.is_admitted = True
            self.run_quietly()
            assert len(self.queue.active) == self.queue.total
            assert {*self.queue.active} <= {*self.world.bound}
        super().teardown()


class BatchJob(JobOnNodes):
    """An Indexed Job without a failure policy, and people."""

    def __init__(self) -> None:
        super().__init__()
        self.job: IndexedJob | None = None

    @initialize(pods=st.integers(1, 3), least=st.sampled_from((0, 0, 1, 2)))
    def install(self, pods: int, least: int) -> None:
        self.job = IndexedJob(self.api, pods, least=least)
        self.bring_up()

    @property
    def indexed(self) -> IndexedJob:
        assert self.job is not None
        return self.job

    @property
    def finished(self) -> int:
        return len(self.indexed.done | self.indexed.uncounted)

    def check_gate(self, let: set[str]) -> None:
        """Also, nobody is left out of those that there are, whatever was read."""
        super().check_gate(let)
        active = {
            name
            for index, name in self.indexed.active.items()
            if index < self.indexed.pods and index not in self.indexed.done
        }
        if self.indexed.least == 0 and not any(map(self.api.is_running, active)):
            assert active <= let or not active & let, (active, let)

    def reconcile(self) -> None:
        self.indexed.reconcile()

    @rule()
    def bring_up(self) -> None:
        self.reconcile()
        for _ in range(4):
            self.pass_s()

    @rule()
    def replace_all_that_run(self) -> None:
        """A drain, say: all pods are deleted, and made again while they end."""
        for name in self.indexed.active.values():
            self.api.delete(name)
        self.bring_up()

    @rule(pods=st.integers(1, 3))
    def scale(self, pods: int) -> None:
        self.indexed.scale(pods)

    @rule(is_suspended=st.booleans())
    def suspend(self, *, is_suspended: bool) -> None:
        self.indexed.is_suspended = is_suspended

    @rule(calls=st.sampled_from((1, 2, None)), more=st.integers(0, 2))
    def resume_after_a_success(self, calls: int | None, more: int) -> None:
        """One index is done; the job is suspended, perhaps made larger, and resumed."""
        for name in [*self.indexed.active.values()][:1]:
            self.api.end(name, "Succeeded")
        self.indexed.is_suspended = True
        self.reconcile()
        self.end_all_that_are_deleted()
        self.reconcile()
        self.indexed.scale(min(self.indexed.pods + more, 3))
        self.indexed.is_suspended = False
        self.let_the_controller_work(calls)
        for _ in range(3):
            self.pass_s()

    @rule()
    def make_anew(self) -> None:
        self.indexed.make_anew()

    @invariant()
    def no_index_is_bound_twice(self) -> None:
        running = [
            (owner["uid"], self.indexed.index(name))
            for name, found in self.world.pods.items()
            for owner in found["metadata"]["ownerReferences"]
            if self.api.is_running(name)
        ]
        assert len(running) == len({*running}), running

    def teardown(self) -> None:
        """All pods run once nothing changes any more."""
        if self.job is not None:
            self.job.is_suspended = False
            self.run_quietly()
            wanted = {*range(self.job.pods)} - self.job.done
            assert self.job.active.keys() == wanted
            assert {*self.job.active.values()} <= {*self.world.bound}
        super().teardown()


@examples(10, pytest.param(30, marks=pytest.mark.long), variable="GANG_EXAMPLES")
@pytest.mark.parametrize("controller", [RayCluster, PodGroup, BatchJob])
def test_a_controllers_job_is_bound_in_the_end(
    controller: type[RuleBasedStateMachine], examples: int
) -> None:
    run_state_machine_as_test(
        controller,
        settings=settings(
            print_blob=False,
            max_examples=examples,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )
