"""Jobs that are made larger, before they run and while they do.

The object of a job is edited first, and its controller makes the pods one by one.
"""

from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.gang.gang import Gang
from extender.gang.gangs import Gangs
from extender.gang.generations import UNKNOWN, Generation
from extender.gang.membership import Member, Membership, order_of
from extender.gang.size import whole
from sandbox.apiclient import Object
from tests.extender.gangworld import GangWorld, sim_node, sim_pod, world
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


def test_s8_newcomers_do_not_stand_in_for_those_that_a_job_had() -> None:
    with world(4) as w:
        job = IndexedJob(PodsApi(w), 4)
        job.reconcile()
        assert w.run_reported(9, *job.active.values()) is not None
        job.scale(6)
        job.reconcile()
        assert w.run_reported(30, job.active[4]) is None
        for index in (1, 2):
            job.api.end(job.active[index], "Failed")
        reconcile(job, 3)

        w.run_reported(30)
        assert not {job.active[index] for index in (1, 4, 5)} & {*w.bound}
        text = "waits for 1 of the 6 pods of its job"
        assert {w.world.why(job.active[4]), w.world.why(job.active[1])} == {(text,)}

        reconcile(job, 1)
        assert w.run_reported(9, job.active[1], job.active[2]) is not None
        assert not {job.active[index] for index in (4, 5)} & {*w.bound}


def test_s8_pods_by_which_a_job_was_made_larger_join_it_as_they_are_made() -> None:
    with world(5) as w:
        job = IndexedJob(PodsApi(w), 3)
        job.reconcile()
        assert w.run_reported(9, *job.active.values()) is not None
        job.scale(5)

        for index in (3, 4):
            reconcile(job, 1)
            assert w.run_reported(9, job.active[index]) is not None
        assert gang_of(w).counts == "5 of 5 pods exist, 5 have a node"


# -- jobs of several roles ---------------------------------------------------------

VOLCANO_PATH = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/train"


def of_task(role: str, index: int, uid: str, pool: str = "") -> Object:
    """A pod of a Volcano Job, for nodes of one pool."""
    made = sim_pod(f"train-{role}-{index}", npus=8, role=role)
    marks = {"job-name": "train", "task-spec": role, "task-index": f"{index}"}
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"}
    made["metadata"] |= {
        "uid": uid,
        "labels": {f"volcano.sh/{key}": v for key, v in marks.items()} | {"role": role},
        "annotations": {},
        "ownerReferences": [owner | {"uid": "uid-of-train", "controller": True}],
    }
    made["spec"]["nodeSelector"] = {"pool": pool} if pool else {}
    return made


@pytest.mark.parametrize("has_pools", [True, False])
@pytest.mark.parametrize(("larger", "other"), ["vw", "wv"])
def test_s8_a_successor_is_bound_before_newcomers_of_another_role(
    larger: str, other: str, *, has_pools: bool
) -> None:
    pools = (larger, larger, larger, other) if has_pools else ("",) * 4
    numbers = count()

    def made(role: str, index: int) -> Object:
        uid = f"uid-{next(numbers)}"
        return of_task(role, index, uid, role if has_pools else "")

    nodes = (sim_node(f"n{n}", pool=pool) for n, pool in enumerate(pools))
    with closing(GangWorld(nodes)) as w:
        w.world.calls.sizes[VOLCANO_PATH] = whole(4)
        w.add(*(made(larger, index) for index in range(3)), made(other, 0))
        assert w.run_reported(9, *w.pods) is not None
        w.world.calls.sizes[VOLCANO_PATH] = whole(5)
        w.add(made(larger, 3))
        assert w.run_reported(30, f"train-{larger}-3") is None

        w.remove(f"train-{other}-0")
        w.add(made(other, 0))

        assert w.run_reported(9, f"train-{other}-0") is not None
        assert f"train-{larger}-3" not in w.bound


class Parts:
    """A job of pods of several parts, put one by one: of roles, or of controllers."""

    def __init__(
        self, sizes: Sequence[int], *, has_roles: bool, is_indexed: bool
    ) -> None:
        """Let so many pods of each part run."""
        self.gangs = Gangs()
        self.has_roles = has_roles
        self.is_indexed = is_indexed
        #: {UID: part, and index in it}
        self.places: dict[str, tuple[str, int]] = {}
        self.running = [
            self.put((part, index), node="n")
            for part, size in zip("abc", sizes, strict=False)
            for index in range(size)
        ]
        self.gangs.set_size("j", whole(len(self.running)), "")

    @property
    def gang(self) -> Gang:
        return self.gangs.jobs["j"]

    def put(self, place: tuple[str, int], node: str = "") -> str:
        """Show a new pod; return its UID."""
        part, index = place
        number = index if self.is_indexed else 0
        membership = Membership(
            job="j",
            order=order_of(part if self.has_roles else "", (number, 0)),
            index=f"{index}" if self.is_indexed else "",
            generation=UNKNOWN if self.has_roles else Generation(f"of-{part}", part),
        )
        uid = f"{part}-{len(self.places)}"
        self.places[uid] = place
        self.gangs.put(
            uid,
            Member(name=uid, membership=membership),
            bound=bool(node),
            succeeded=False,
            ending=False,
            now_s=0.0,
            node=node,
        )
        return uid

    def drop(self, uids: Collection[str]) -> None:
        for uid in uids:
            self.gangs.drop(uid)
            self.running.remove(uid)


@pytest.mark.property
@given(st.data())
def test_s8_successors_of_any_part_come_before_all_newcomers(
    data: st.DataObject,
) -> None:
    """Also of a job that was made smaller before it was made larger."""
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    job = Parts(
        sizes,
        has_roles=data.draw(st.booleans(), "has roles"),
        is_indexed=data.draw(st.booleans(), "is indexed"),
    )

    def some_running(label: str) -> list[str]:
        most = len(job.running) - 1
        uids = st.lists(st.sampled_from(job.running), max_size=most, unique=True)
        return data.draw(uids, label)

    less = some_running("pods by which it is made smaller")
    job.gangs.set_size("j", whole(len(job.running) - len(less)), "")
    job.drop(less)
    parts = st.sampled_from("abc"[: len(sizes)])
    more = data.draw(st.lists(parts, min_size=1, max_size=4), "parts of newcomers")
    job.gangs.set_size("j", whole(len(job.running) + len(more)), "")
    lost = some_running("pods that are made again")
    job.drop(lost)
    coming = [job.places[uid] for uid in lost]
    coming += [(part, 9 + number) for number, part in enumerate(more)]
    due = {job.places[uid] for uid in lost}
    for place in data.draw(st.permutations(coming), "order"):
        parts_there = {job.places[uid][0] for uid in job.gang.members}
        missing = sum(part in parts_there for part, _ in due) if job.is_indexed else 0
        assert job.gang.missing >= missing
        job.put(place)
        due.discard(place)
    assert job.gang.missing == 0

    uids, least = job.gang.order_by_need()

    first = [job.places[uid] for uid in uids[: len(lost)]]
    again = [job.places[uid] for uid in lost]
    if not job.is_indexed:  # pods of one part are alike
        first, again = ([(part, 0) for part, _ in one] for one in (first, again))
    assert sorted(first) == sorted(again)
    assert least == max(len(lost), 1)
