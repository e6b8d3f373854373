"""Pods that a controller makes while the pod of their index still ends.

The Job controller does so without a failure policy. Whatever happens, no index of a job
is bound twice, and the rest of the job does not suffer for it.
"""

from contextlib import suppress

import msgspec
import pytest

from extender.cache import decode, events
from extender.cache.verify import find_drift
from extender.gang.size import Size
from extender.shadow.compare import Finding, Rule, Shadow
from extender.volcano.sessions import Sessions
from kube import objects
from sandbox.apiclient import Object
from tests.extender.gangworld import NODES, GangWorld, sim_pod, world
from tests.extender.job_controllers import JOB_PATH, ApiError, IndexedJob, PodsApi
from tests.extender.volcanos import volcano
from tests.support.caches import cluster, free
from tests.support.clock import NOW_S
from tests.support.objects import container, pod
from tests.support.watched import ALL_FREE, gone, served

LATE = "2030-01-01T00:00:00Z"


class Job(IndexedJob):
    """An Indexed Job that runs, and what the extender says of its pods."""

    def __init__(self, world: GangWorld, pods: int, *, least: int = 0) -> None:
        super().__init__(PodsApi(world), pods, least=least)
        self.world = world
        self.reconcile()
        assert self.run(9) is not None

    def run(
        self, seconds: int, *indexes: int, order: tuple[str, ...] = ()
    ) -> int | None:
        """Let time pass until pods are bound; without indexes, all that stay."""
        self.world.report()
        names = [self.active[index] for index in indexes or self.active]
        return self.world.run(seconds, *names, order=order)

    def replace(self, *indexes: int) -> list[str]:
        """Delete pods that end late; each has a successor at once. Return the old."""
        old = [self.active[index] for index in indexes]
        for name in old:
            self.api.delete(name)
        self.reconcile()
        return old

    def why(self, index: int) -> str:
        """Why filter refuses a pod; explain says the same, and bind would."""
        name = self.active[index]
        (text,) = self.world.world.why(name, [*self.world.nodes])
        assert {*self.world.world.explain(name)["nodes"].values()} == {text}
        assert self.world.world.reserve(name, "n4") == text
        return text

    def waits_for(self, index: int, old: str) -> str:
        node = self.world.bound[old]
        return (
            f"waits for pod {old} of the same rank (index {index}), which still ends "
            f"on {node}; if {node} is lost, delete that pod by force"
        )

    @property
    def state(self) -> str:
        (gang,) = (
            g for g in self.world.cache.gangs.values() if g.title.startswith("Job ")
        )
        return gang.counts


@pytest.mark.parametrize("index", [0, 2])
def test_a_successor_waits_for_its_predecessor_and_is_bound_when_that_is_gone(
    index: int,
) -> None:
    with world(4) as w:
        job = Job(w, 3)

        (old,) = job.replace(index)
        assert job.run(60, index) is None
        assert job.why(index) == job.waits_for(index, old)
        assert job.state == (
            "3 of 3 pods exist, 2 have a node, 1 terminating, "
            "1 behind a terminating pod"
        )

        wakes = w.world.calls.wakes
        job.api.end(old, "Failed")
        assert w.world.calls.wakes == wakes + 1
        assert w.run(9, job.active[index]) == 1


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_predecessor_that_has_ended_may_still_exist(phase: str) -> None:
    """A finalizer, such as that of the Job controller, keeps it for a while."""
    with world(4) as w:
        job = Job(w, 3)
        (old,) = job.replace(1)
        assert job.run(9, 1) is None
        wakes = w.world.calls.wakes

        w.pods[old]["status"] = {"phase": phase}
        w.show(old)

        assert w.world.calls.wakes == wakes + 1
        assert w.run(9, job.active[1]) == 1


def test_what_the_scheduler_writes_on_a_successor_is_no_news() -> None:
    """It does so at each refusal: a scheduler that is woken by it would not rest."""
    with world(4) as w:
        job = Job(w, 3)
        job.replace(1)
        assert job.run(3, 1) is None
        wakes = w.world.calls.wakes

        w.pods[job.active[1]]["status"] = {"phase": "Pending"}
        w.show(job.active[1])

        assert w.world.calls.wakes == wakes
        shown = decode.pod_change(msgspec.convert(w.pods[job.active[1]], objects.Pod))
        assert find_drift(w.cache, shown) == ""


def test_a_job_of_one_pod_has_its_index_once() -> None:
    with world(2) as w:
        job = Job(w, 1)

        (old,) = job.replace(0)
        assert job.run(9, 0) is None
        assert w.world.reserve(job.active[0], "n2") == job.waits_for(0, old)

        wakes = w.world.calls.wakes
        job.api.end(old, "Failed")
        assert w.world.calls.wakes == wakes + 1
        assert w.run(9, job.active[0]) == 1


def test_another_pod_of_a_job_that_runs_is_not_held_up() -> None:
    with world(5) as w:
        job = Job(w, 4)
        late, soon = job.replace(1, 2)
        job.api.end(soon, "Failed")

        assert job.run(9, 2) is not None
        assert job.active[1] not in w.bound

        job.api.end(late, "Failed")
        assert job.run(9, 1) is not None


def test_a_job_that_is_replaced_whole_is_bound_whole() -> None:
    with world(4) as w:
        job = Job(w, 2)
        first, last = job.replace(0, 1)
        job.api.end(first, "Failed")

        assert job.run(30, 0) is None
        assert not {*job.active.values()} & {*w.bound}
        (text,) = w.world.why(job.active[0], NODES[:4])
        assert text == (
            "waits for 1 of the 2 pods of its job; "
            f"{job.active[1]} waits until pod {last} has ended"
        )

        job.api.end(last, "Failed")
        assert job.run(9) is not None


def test_an_elastic_job_that_is_replaced_whole_begins_with_its_least_number() -> None:
    with world(4) as w:
        job = Job(w, 3, least=2)
        *some, last = job.replace(0, 1, 2)
        for name in some:
            job.api.end(name, "Failed")

        assert job.run(9, 0, 1) is not None
        assert job.run(9, 2) is None

        job.api.end(last, "Failed")
        assert job.run(9, 2) is not None


def test_an_elastic_job_that_runs_with_its_least_number_goes_on() -> None:
    with world(4) as w:
        job = Job(w, 2, least=1)

        (old,) = job.replace(1)
        assert job.run(9, 1) is None
        assert job.active[0] in w.bound

        job.api.end(old, "Failed")
        assert job.run(9, 1) is not None


def test_a_job_made_anew_under_its_name_waits_for_no_pod_of_the_one_before() -> None:
    with world(4) as w:
        job = Job(w, 2)
        job.make_anew()
        job.reconcile()

        assert job.run(9) is not None
        assert len(w.bound) == 4


def test_a_job_that_is_suspended_and_resumed_waits_for_its_own_pods() -> None:
    """It is the same Job, so its pods are of one generation."""
    with world(4) as w:
        job = Job(w, 2)
        old = [*job.active.values()]
        for is_suspended in (True, False):
            job.is_suspended = is_suspended
            job.reconcile()
        assert job.run(9) is None

        for name in old:
            job.api.end(name, "Failed")
        assert job.run(9) is not None


@pytest.mark.parametrize("ended", [1, 2])
def test_a_job_of_which_one_pod_has_succeeded_is_resumed_whole(ended: int) -> None:
    """That pod runs no more: the others join nothing."""
    with world(4) as w:
        job = Job(w, 3)
        old = dict(job.active)
        job.api.end(old[2], "Succeeded")
        for is_suspended in (True, False):
            job.is_suspended = is_suspended
            job.reconcile()
        for index in range(ended):
            job.api.end(old[index], "Failed")
        if ended == 2:  # a volume, say: the pod never comes to its bind
            w.refused |= {("train-1", node) for node in NODES}
        assert job.run(20, 0) is None

        w.refused.clear()
        if ended == 1:
            job.api.end(old[1], "Failed")
        assert job.run(30) is not None


def test_s7_an_elastic_job_that_is_resumed_waits_for_more_of_its_pods() -> None:
    with world(5) as w:
        job = Job(w, 3, least=1)
        first, *others = job.active.values()
        job.api.end(first, "Succeeded")
        job.is_suspended = True
        job.reconcile()
        for name in others:
            job.api.end(name, "Failed")
        job.reconcile()
        let: list[set[str]] = []
        w.on_let = let.append

        job.is_suspended = False
        job.api.calls_left = 1
        with suppress(ApiError):
            job.reconcile()
        assert job.run(1) is None
        job.api.calls_left = None
        job.reconcile()

        assert job.run(9) is not None
        assert let == [{*job.active.values()}]


def test_a_successor_that_is_deleted_too_waits_for_nobody() -> None:
    with world(4) as w:
        job = Job(w, 3)
        (old,) = job.replace(1)
        second = job.active[1]
        job.api.delete(second)
        job.reconcile()

        assert job.run(9, 1) is None
        assert job.why(1) == job.waits_for(1, old)

        job.api.end(old, "Failed")
        assert job.run(9, 1) is not None


def test_a_gate_on_a_successor_is_lifted_before_its_predecessor_ends() -> None:
    with world(4) as w:
        job = Job(w, 3)
        (old,) = job.replace(1)
        w.pods[job.active[1]]["spec"]["schedulingGates"] = [{"name": "g"}]
        w.show(job.active[1])
        assert job.state.endswith("1 terminating, 1 behind a scheduling gate")

        w.lift_gates(job.active[1])
        assert job.run(9, 1) is None

        job.api.end(old, "Failed")
        assert job.run(9, 1) is not None


def test_chips_of_a_predecessor_are_its_own_until_it_has_ended() -> None:
    with world(3) as w:
        job = Job(w, 3)
        (old,) = job.replace(1)
        node = w.bound[old]

        assert job.run(30, 1) is None
        assert free(w.cache, node) == ()

        job.api.end(old, "Failed")
        assert job.run(9, 1) is not None
        assert w.bound[job.active[1]] == node


@pytest.mark.parametrize(
    ("npus", "is_full", "offered"),
    [(8, False, ["n1", "n4"]), (4, True, ["n1"])],
    ids=["with the node that was free", "with the node of the predecessor"],
)
def test_a_job_behind_does_not_come_first_when_a_predecessor_has_ended(
    npus: int, *, is_full: bool, offered: list[str]
) -> None:
    """It is asked about first, and what is free would do for it."""
    with world(4) as w:
        job = Job(w, 3)
        index = next(i for i, name in job.active.items() if w.bound[name] == "n1")
        if is_full:
            w.add(sim_pod("alone", job="alone", size=1, npus=8))
            assert w.run(9, "alone") is not None
        for name in ("rival-0", "rival-1"):
            rival = sim_pod(name, job="rival", npus=npus)
            rival["metadata"]["creationTimestamp"] = LATE
            w.add(rival)
        (old,) = job.replace(index)
        assert w.world.filter(job.active[index], ["n4"]) == []
        assert w.world.filter("rival-0", ["n4"]) == []
        w.world.pass_s()

        job.api.end(old, "Failed")
        w.world.pass_s(3)
        w.report()
        assert free(w.cache, "n1") == ALL_FREE
        assert w.world.filter("rival-0", offered) == []

        assert job.run(9, index, order=("rival-0", "rival-1")) is not None
        assert not {"rival-0", "rival-1"} & {*w.bound}


def test_a_job_behind_one_that_is_replaced_whole_does_not_come_first() -> None:
    with world(3) as w:
        job = Job(w, 2)
        for name in ("rival-0", "rival-1"):
            rival = sim_pod(name, job="rival", npus=8)
            rival["metadata"]["creationTimestamp"] = LATE
            w.add(rival)
        old = job.replace(0, 1)
        assert w.world.filter(job.active[0], ["n3"]) == []
        assert w.world.filter("rival-0", ["n3"]) == []

        for name in old:
            job.api.end(name, "Failed")
        w.world.pass_s(3)
        w.report()
        assert w.world.filter("rival-0", ["n1", "n2"]) == []

        assert job.run(9, order=("rival-0", "rival-1")) is not None
        assert not {"rival-0", "rival-1"} & {*w.bound}


@pytest.mark.parametrize("is_first", [True, False])
def test_an_extender_that_starts_knows_who_waits(*, is_first: bool) -> None:
    """The API server lists pods by their names, so the successor may come first."""
    with world(4) as w:
        job = Job(w, 3)
        (old,) = job.replace(1)
        new = job.active[1]
        seen = dict(w.pods)
        for name in seen:
            w.remove(name)
        pair = (new, old) if is_first else (old, new)
        w.add(*(seen[name] for name in seen if name not in pair))
        w.add(*(seen[name] for name in pair))

        assert job.run(9, 1) is None
        assert job.why(1) == job.waits_for(1, old)

        job.api.end(old, "Failed")
        assert job.run(9, 1) is not None


def in_job_of_pods(name: str, **meta: object) -> Object:
    """A pod of a job of three that no controller numbers."""
    made = sim_pod(name, size=3, npus=8)
    made["metadata"] |= meta
    return made


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "j",
                    "uid": "uid-of-j",
                    "controller": True,
                }
            ]
        },
    ],
    ids=["by hand", "Job without indexes"],
)
def test_pods_that_nobody_numbers_wait_for_nobody(meta: dict[str, object]) -> None:
    with world(4) as w:
        w.add(*(in_job_of_pods(name, **meta) for name in "abc"))
        w.report()
        assert w.run(9, *"abc") is not None
        w.pods["b"]["metadata"]["deletionTimestamp"] = LATE
        w.show("b")
        w.add(in_job_of_pods("d", **meta))

        assert w.run(9, "d") is not None


# -- JobSets, and Volcano ----------------------------------------------------------


def of_job_set(
    name: str, job: int, index: int | None, attempt: int = 0, **more: str
) -> Object:
    """A pod of a JobSet of two Jobs of two pods."""
    prefix = "jobset.sigs.k8s.io"
    labels = {
        f"{prefix}/jobset-name": "train",
        f"{prefix}/jobset-uid": "u",
        f"{prefix}/restart-attempt": str(attempt),
        f"{prefix}/replicatedjob-name": "w",
        f"{prefix}/job-index": str(job),
        "role": "w",
    }
    if index is not None:
        labels["batch.kubernetes.io/job-completion-index"] = str(index)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-w-{job}"}
    meta = {
        "uid": f"uid-{name}",
        "labels": labels,
        "annotations": {},
        "ownerReferences": [owner | {"uid": f"uid-of-{job}", "controller": True}],
        **more,
    }
    return pod(name, containers=[container(npus=8)], meta=meta)


def run_job_set(w: GangWorld, *, is_indexed: bool = True) -> None:
    """Let a JobSet run, of which the pod w-1-0 ends."""
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/train"
    w.world.calls.sizes[path] = Size(count=4, least=4)
    for job, index in ((0, 0), (0, 1), (1, 0), (1, 1)):
        w.add(of_job_set(f"w-{job}-{index}", job, index if is_indexed else None))
    w.report()
    assert w.run(9, *w.pods) is not None
    w.pods["w-1-0"]["metadata"]["deletionTimestamp"] = LATE
    w.show("w-1-0")


def test_an_index_of_a_job_set_is_that_of_the_job_and_that_in_the_job() -> None:
    with world(5) as w:
        run_job_set(w)
        w.add(of_job_set("w-1-0-b", 1, 0))

        assert w.run(9, "w-1-0-b") is None
        (text,) = w.world.why("w-1-0-b", NODES)
        assert text.startswith("waits for pod w-1-0 of the same rank (index 1/0), ")

        w.remove("w-1-0")
        assert w.run(9, "w-1-0-b") is not None


def test_pods_of_a_job_set_whose_jobs_have_no_indexes_wait_for_nobody() -> None:
    """The number of their Job is not theirs alone."""
    with world(5) as w:
        run_job_set(w, is_indexed=False)
        w.add(of_job_set("w-1-0-b", 1, None))

        assert w.run(9, "w-1-0-b") is not None


def test_a_later_attempt_of_a_job_set_does_not_wait_for_the_one_before() -> None:
    with world(5) as w:
        run_job_set(w)
        w.add(of_job_set("w-1-0-b", 1, 0, attempt=1))
        w.pass_s()

        (text,) = w.world.why("w-1-0-b", NODES)
        assert text == "waits for 3 of the 4 pods of its job"


def of_job(name: str, index: int, node: str = "", **meta: str) -> events.Change:
    """A pod of an Indexed Job of two, as the watch shows it."""
    labels = {
        "batch.kubernetes.io/job-completion-index": str(index),
        "batch.kubernetes.io/job-name": "train",
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}
    found = pod(
        name,
        8,
        meta={
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": served(range(8)) if node else {},
            "ownerReferences": [owner | {"controller": True}],
            **meta,
        },
        node=node,
    )
    return decode.pod_change(msgspec.convert(found, objects.Pod))


async def test_volcano_gets_no_node_for_a_successor_before_its_time() -> None:
    nodes = ("n1", "n2", "n3")
    seen = [of_job("a", 0, "n1"), of_job("b", 1, "n2", deletionTimestamp=LATE)]
    async with volcano(cluster(*seen, nodes=nodes)) as w:
        w.calls.sizes[JOB_PATH] = Size(count=2, least=2)
        w.learn(of_job("c", 1))
        await w.settled()
        sentence = (
            "waits for pod b of the same rank (index 1), which still ends on n2; "
            "if n2 is lost, delete that pod by force"
        )
        assert [await w.predicate("c", node) for node in nodes] == [sentence] * 3
        assert await w.allocate("c", "n3") != ""
        assert free(w.cache, "n3") == ALL_FREE

        w.learn(*gone("b"))

        assert await w.fitting("c", nodes) == ["n3"]
        assert await w.allocate("c", "n3") == ""


async def test_volcano_takes_up_a_group_whose_pod_waits_for_its_predecessor() -> None:
    seen = [of_job("a", 0, "n1"), of_job("b", 1, "n2", deletionTimestamp=LATE)]
    async with volcano(cluster(*seen, nodes=("n1", "n2"))) as w:
        w.calls.sizes[JOB_PATH] = Size(count=2, least=2)
        w.learn(of_job("c", 1))
        await w.settled()

        sessions = Sessions(w.cache, w.apply, w.planner, w.clock)
        assert sessions.job_refusal(["uid-a", "uid-b", "uid-c"]) is None


def test_another_scheduler_that_does_not_wait_is_told_apart() -> None:
    seen = [of_job("a", 0, "n1"), of_job("b", 1, "n2", deletionTimestamp=LATE)]
    cache = cluster(*seen, of_job("c", 1), nodes=("n1", "n2", "n3"))
    found: list[Finding] = []
    beheld = Shadow(cache, wall_s=lambda: NOW_S, on_finding=found.append)

    beheld.compare_bound(of_job("c", 1, "n3"))

    assert [each.rule for each in found] == [Rule.AGREES, Rule.JOB_UNSCHEDULABLE]
    assert found[-1].text.startswith("waits for pod b of the same rank (index 1), ")
