"""Jobs whose pods are made again: which of them are the job, and which were it before.

Pods are as their controllers make them. Whatever happens, a job is bound whole or not
at all, and a pod that replaces one of a job that runs joins that job.
"""

from typing import Any

import pytest

from extender.gang.generations import EndedLines, Generation, next_line
from sandbox.apiclient import Object
from tests.extender.gangworld import NODES, GangWorld, rival, sim_pod, world
from tests.extender.job_controllers import IndexedJob, PodsApi
from tests.extender.worker_sets import WorkerSet
from tests.support.objects import container

T0, T1, T2 = (f"2026-11-28T04:0{minute}:00Z" for minute in range(3))


# -- LeaderWorkerSets --------------------------------------------------------------


@pytest.mark.parametrize("npus", [8, 0])
@pytest.mark.parametrize("has_rival", [True, False])
def test_d4_a_new_leader_waits_for_workers_of_its_own(
    npus: int, *, has_rival: bool
) -> None:
    with world(4 if npus else 3) as w:
        group = WorkerSet(w, leader=npus)
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None
        rivals = rival(w) if has_rival else []

        group.delete("vllm-0")
        group.end("vllm-0")
        group.reconcile()  # its old workers run
        w.run_reported(9)
        assert ("vllm-0" in w.bound) is (npus == 0)

        group.collect_sets()
        group.collect_workers()
        group.end()
        group.reconcile()
        w.run_reported(30)
        assert {*group.names()} <= {*w.bound} or not {*group.names()} & {*w.bound}
        if rivals:
            w.delete(*rivals)
        assert w.run_reported(60, *group.names()) is not None


def test_d4_workers_that_wait_for_a_leader_that_has_gone_are_not_the_job() -> None:
    """All within a second, which is as exact as a creation time is."""
    with world(4) as w:
        group = WorkerSet(w)
        group.reconcile()
        group.delete("vllm-0")
        group.make_leaders()

        assert w.run_reported(9, "vllm-0") is None
        assert w.bound == {}

        group.collect_sets()
        group.collect_workers()
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None


def test_d4_a_worker_that_an_old_set_makes_again_is_not_of_the_new_leader() -> None:
    """The garbage collector is slow."""
    with world(5) as w:
        group = WorkerSet(w, size=2)
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None
        group.delete("vllm-0")
        group.end("vllm-0")
        group.make_leaders()
        group.delete("vllm-0-1")
        group.end("vllm-0-1")
        w.run_reported(2)
        group.make_workers()

        assert w.run_reported(9, "vllm-0") is None


@pytest.mark.parametrize("npus", [8, 0])
def test_d4_the_first_new_worker_does_not_join_old_ones(npus: int) -> None:
    """The garbage collector deletes the old ones one by one."""
    with world(5) as w:
        group = WorkerSet(w, leader=npus)
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None
        group.delete("vllm-0")
        group.end("vllm-0")
        group.make_leaders()
        group.collect_sets()
        group.delete("vllm-0-2")
        group.end()
        group.reconcile()

        assert w.run_reported(9, "vllm-0-2") is None

        group.collect_workers()
        group.end()
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None


def test_d4_a_worker_that_is_made_again_joins_its_group() -> None:
    with world(4) as w:
        group = WorkerSet(w)
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None

        group.delete("vllm-0-2")
        group.end("vllm-0-2")
        group.reconcile()

        assert w.run_reported(9, "vllm-0-2") is not None


@pytest.mark.parametrize("is_new", [True, False])
def test_d4_an_extender_that_starts_tells_old_workers_by_their_age(
    *, is_new: bool
) -> None:
    """The API server lists pods by their names: the leader first."""
    with world(4) as w:
        group = WorkerSet(w)
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None
        if is_new:
            group.delete("vllm-0")
            group.end("vllm-0")
            group.make_leaders()
        seen = {name: w.pods[name] for name in sorted(w.pods)}
        for name in seen:
            w.remove(name)
        w.add(*seen.values())

        (gang,) = w.cache.gangs.values()
        assert len(gang.ending) == (3 if is_new else 0)
        assert gang.missing == (3 if is_new else 0)


@pytest.mark.parametrize(
    ("npus", "is_leader_first"), [(8, True), (8, False), (0, True)]
)
def test_d4_workers_of_an_old_set_are_known_though_all_pods_were_gone(
    npus: int, *, is_leader_first: bool
) -> None:
    """The garbage collector is late, and each pod of the group is deleted at once."""
    with world(4) as w:
        group = WorkerSet(w, size=3, leader=npus)
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None
        for name in [*w.pods]:
            group.delete(name)
        group.end()
        assert w.cache.gangs == {}
        makers = [WorkerSet.make_leaders, WorkerSet.make_workers]
        for make in makers if is_leader_first else makers[::-1]:
            w.pass_s()
            make(group)

        w.run_reported(9)
        assert not {*group.names()} & {*w.bound}

        group.collect_sets()
        group.collect_workers()
        group.end()
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None


def test_d4_an_old_set_is_known_after_two_leaders_that_saw_no_pod_of_it() -> None:
    with world(4) as w:
        group = WorkerSet(w, size=2)
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None
        for name in group.names():
            group.delete(name)
        group.end()
        for _ in range(2):
            group.make_leaders()
            w.pass_s()
            group.delete("vllm-0")
        group.make_leaders()
        group.make_workers()

        w.run_reported(9)
        assert w.bound == {}


def test_h6_nodes_for_workers_are_not_kept_for_a_leader_that_ends() -> None:
    with world(4) as w:
        group = WorkerSet(w, is_leader_first=True)
        group.make_leaders()
        assert w.run_reported(9, "vllm-0") is not None
        rivals = rival(w, 3)
        assert w.run_reported(5, *rivals) is None

        group.delete("vllm-0")  # its kubelet takes its time

        assert w.run_reported(5, *rivals) is not None


@pytest.mark.parametrize("count", [2, 4])
def test_h6_a_new_leader_that_goes_first_keeps_nodes_for_all_its_workers(
    count: int,
) -> None:
    with world(4) as w:
        group = WorkerSet(w, is_leader_first=True)
        group.make_leaders()
        assert w.run_reported(9, "vllm-0") is not None
        group.reconcile()
        assert w.run_reported(9, *group.names()) is not None
        rivals = rival(w, count)
        group.delete("vllm-0")
        group.end("vllm-0")
        group.reconcile()
        assert w.run_reported(9, "vllm-0") is None

        group.collect_sets()
        group.collect_workers()
        group.end()
        for _ in range(9):
            group.reconcile()
            w.run_reported(4)
        assert {*group.names()} <= {*w.bound} or not {*group.names()} & {*w.bound}
        w.delete(*rivals)
        for _ in range(9):
            group.reconcile()
            w.run_reported(8)
        assert {*group.names()} <= {*w.bound}


@pytest.mark.parametrize("far", [("n1", "n2"), ("n1", "n2", "n3")])
def test_h7_a_worker_goes_to_the_zone_of_its_leader(far: tuple[str, ...]) -> None:
    """Nodes of a zone are no neighbours by name; n1 is full once the leader runs."""
    with world(4) as w:
        group = WorkerSet(w, size=2, is_leader_first=True)
        for name, node in w.nodes.items():
            node["metadata"]["labels"]["zone"] = "b" if name in far else "a"
        group.make_leaders()
        assert w.run_reported(9, "vllm-0") is not None
        assert w.bound["vllm-0"] == "n1"
        group.selector = {"zone": "a"}
        group.reconcile()

        assert w.run_reported(9, "vllm-0-1") is not None


# -- Deployments -------------------------------------------------------------------


def of_replica_set(name: str, revision: str, **meta: Any) -> Object:
    """A pod of the Deployment serve, which needs two of its pods."""
    made = sim_pod(name, npus=8)
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"serve-{revision}",
        "uid": f"uid-of-serve-{revision}{meta.pop('again', '')}",
        "controller": True,
    }
    made["metadata"] |= {
        "uid": f"uid-{name}",
        "annotations": {"huawei.com/schedule_minAvailable": "2"},
        "labels": {"app": "serve", "role": "serve", "pod-template-hash": revision},
        "ownerReferences": [owner],
        "creationTimestamp": T0,
        **meta,
    }
    return made


def test_d9_a_surge_pod_of_a_rolling_update_joins_the_job_that_runs() -> None:
    with world(3) as w:
        w.add(*(of_replica_set(f"serve-6c9-{name}", "6c9") for name in "ab"))
        assert w.run_reported(9, "serve-6c9-a", "serve-6c9-b") is not None

        for old, new in zip("ab", "cd", strict=True):
            w.add(of_replica_set(f"serve-5f4-{new}", "5f4", creationTimestamp=T1))
            assert w.run_reported(9, f"serve-5f4-{new}") is not None
            w.delete(f"serve-6c9-{old}")

        assert [*w.cache.gangs] == ["Minimum/default/ReplicaSet.serve"]


def test_d9_one_pod_alone_of_a_deployment_that_needs_two_waits() -> None:
    with world(3) as w:
        w.add(of_replica_set("serve-6c9-a", "6c9"))

        assert w.run_reported(9, "serve-6c9-a") is None


def test_d9_a_deployment_made_again_under_its_name_waits_for_two_pods() -> None:
    """From the same template, while pods of the one before still run."""
    with world(4) as w:
        w.add(*(of_replica_set(f"serve-6c9-{name}", "6c9") for name in "ab"))
        assert w.run_reported(9, "serve-6c9-a", "serve-6c9-b") is not None

        new = {"again": "2", "creationTimestamp": T1}
        w.add(of_replica_set("serve-6c9-c", "6c9", **new))
        assert w.run_reported(9, "serve-6c9-c") is None

        w.add(of_replica_set("serve-6c9-d", "6c9", **new))
        assert w.run_reported(9, "serve-6c9-c", "serve-6c9-d") is not None


def rank_of(w: GangWorld, name: str) -> str:
    rank: str = w.pods[name]["metadata"]["annotations"]["hccl/rankIndex"]
    return rank


def test_s9_a_pod_waits_for_the_one_whose_rank_it_gets() -> None:
    a, b, c = (f"serve-6c9-{name}" for name in "abc")
    with world(3) as w:
        w.add(*(of_replica_set(name, "6c9") for name in (a, b)))
        assert w.run_reported(9, a, b) is not None
        assert [rank_of(w, name) for name in (a, b)] == ["0", "1"]
        w.pods[a]["metadata"]["deletionTimestamp"] = T2
        w.show(a)
        w.add(of_replica_set(c, "6c9"))

        assert w.run_reported(9, c) is None
        node = w.bound[a]
        (text,) = w.world.why(c, ["n3"])
        assert text == (
            f"its job does not fit: waits for pod {a} of the same rank (index 0), "
            f"which still ends on {node}; if {node} is lost, delete that pod by force"
        )

        w.remove(a)
        assert w.run_reported(9, c) is not None
        assert rank_of(w, c) == "0"


def test_s9_a_pod_that_its_job_can_do_without_gets_a_rank_that_is_free() -> None:
    names = [f"serve-6c9-{name}" for name in "abcd"]
    with world(4) as w:
        w.add(*(of_replica_set(name, "6c9") for name in names[:3]))
        assert w.run_reported(9, *names[:3]) is not None
        w.pods[names[0]]["metadata"]["deletionTimestamp"] = T2
        w.show(names[0])
        w.add(of_replica_set(names[3], "6c9"))

        assert w.run_reported(9, names[3]) is not None
        assert rank_of(w, names[3]) == "3"


@pytest.mark.parametrize("optional", [0, 1])
def test_s9_a_rank_that_is_free_waits_for_no_other_rank(optional: int) -> None:
    """A node is lost, so that the pod of rank 0 ends for ever."""
    needed = {"annotations": {"huawei.com/schedule_minAvailable": "3"}}
    a, b, c, *new = (f"serve-6c9-{name}" for name in "abcdefg"[: 5 + optional])
    with world(5) as w:
        w.add(*(of_replica_set(name, "6c9", **needed) for name in (a, b, c)))
        assert w.run_reported(9, a, b, c) is not None
        assert [rank_of(w, name) for name in (a, b, c)] == ["0", "1", "2"]
        w.pods[a]["metadata"]["deletionTimestamp"] = T2
        w.show(a)
        w.remove(b)
        w.add(*(of_replica_set(name, "6c9", **needed) for name in new))

        w.run_reported(30)
        (joined,) = {*new} & {*w.bound}
        assert rank_of(w, joined) == "1"
        waiting = [name for name in new if name != joined]
        for name in waiting:
            text = f"waits for pod {a} of the same rank (index 0), which still ends"
            assert any(text in each for each in w.world.why(name, NODES))

        w.remove(a)
        assert w.run_reported(30, *new) is not None
        ranks = [rank_of(w, name) for name in waiting]
        assert sorted(ranks) == ["0", "3"][: len(ranks)]


# -- Jobs in groups ----------------------------------------------------------------


def in_group(name: str, controller: str, uid: str, created: str) -> Object:
    """A pod of a Job, beside those of another in one job of four pods."""
    made = sim_pod(name, size=4, npus=8)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": controller, "uid": uid}
    made["metadata"] |= {
        "ownerReferences": [owner | {"controller": True}],
        "creationTimestamp": created,
    }
    return made


def a_group(created: str, *names: str, attempt: str = "") -> list[Object]:
    return [
        in_group(name, name[0], f"uid-of-{name[0]}{attempt}", created) for name in names
    ]


def test_controllers_made_again_make_the_job_again() -> None:
    with world(5) as w:
        w.add(*a_group(T0, "a1", "a2", "b1", "b2"))
        assert w.run_reported(9, "a1", "a2", "b1", "b2") is not None
        w.delete("b2")
        w.add(*a_group(T1, "a3", "a4", attempt="'"))
        w.add(*a_group(T1, "b3", attempt="'"))

        assert w.run_reported(9, "a3") is None

        w.delete("a1", "a2", "b1")
        w.add(*a_group(T2, "b4", attempt="'"))
        assert w.run_reported(9, "a3", "a4", "b3", "b4") is not None


def test_a_pod_of_one_controller_of_several_joins_the_job() -> None:
    with world(4) as w:
        w.add(*a_group(T0, "a1", "a2"), *a_group(T1, "b1", "b2"))
        assert w.run_reported(9, "a1", "a2", "b1", "b2") is not None

        w.delete("a2")
        w.add(*a_group(T2, "a3"))

        assert w.run_reported(9, "a3") is not None


@pytest.mark.parametrize("is_deleted", [True, False])
@pytest.mark.parametrize("is_new_first", [True, False])
def test_s9_of_two_makings_of_one_second_an_extender_that_starts_knows_the_newer(
    *, is_new_first: bool, is_deleted: bool
) -> None:
    """Unless the garbage collector is late: then once it has deleted the older."""
    with world(4) as w:
        api = PodsApi(w)
        job = IndexedJob(api, 2)
        job.reconcile()
        old = [*job.active.values()]
        assert w.run_reported(9, *old) is not None
        job.make_anew()
        job.reconcile()
        new = [*job.active.values()]
        seen = {name: w.pods[name] for name in (*old, *new)}
        for name, found in seen.items():
            found["metadata"]["creationTimestamp"] = T0
            if name in old and not is_deleted:
                del found["metadata"]["deletionTimestamp"]
            w.remove(name)
        order = (*new, *old) if is_new_first else (*old, *new)
        w.add(*(seen[name] for name in order))
        if not is_deleted:
            w.run_reported(2)
            for name in old:
                api.delete(name)

        assert w.run_reported(9, *new) is not None
        assert {*old} <= {*w.bound}


def test_s9_an_older_launcher_of_the_same_second_does_not_begin_the_job_again() -> None:
    """It has no NPUs, is being deleted, and is listed last."""
    with world(5) as w:
        names = ("a1", "a2", "a3", "a4")
        w.add(*a_group(T0, *names, attempt="'"))
        launcher = in_group("a0", "a", "uid-of-a", T0)
        launcher["metadata"]["deletionTimestamp"] = T2
        launcher["spec"] = {"containers": [container()], "nodeName": "n5"}
        w.add(launcher)

        assert w.run_reported(9, *names) is not None


# -- lines -------------------------------------------------------------------------


def test_workers_listed_before_their_leader_follow_it() -> None:
    line = next_line(None, Generation("set", follows=True), T1, ())

    assert not line.admit(Generation("leader"), T0)

    assert line.names == {"set", "leader"}


def test_of_earlier_generations_those_are_known_that_have_pods() -> None:
    line = next_line(None, Generation("a"), T0, ())
    for name, created in (("b", T1), ("c", T2)):
        assert line.admit(Generation(name), created)
        line = next_line(line, Generation(name), created, {"b"})

    assert (line.names, [*line.earlier]) == ({"c"}, ["b"])


def test_of_leaders_the_latest_are_known_and_those_that_have_pods() -> None:
    line = next_line(None, Generation("set", follows=True), T0, ())
    for number in range(20):
        line = next_line(line, Generation(f"{number}"), T1, {"0", "1"})

    assert [*line.earlier] == [f"{number}" for number in range(19)]


def test_lines_of_the_latest_groups_without_pods_are_known() -> None:
    ended = EndedLines()
    line = next_line(None, Generation("set", follows=True), T0, ())
    for number in range(1001):
        ended.put(f"{number}", {"": line})
    ended.put("of one", {"": next_line(None, Generation("pod"), T0, ())})

    assert ended.take("0") == ended.take("of one") == {}
    assert ended.take("1") == {"": line}
    assert ended.take("1") == {}


def test_revisions_without_pods_are_forgotten() -> None:
    with world(3) as w:
        for revision in ("6c9", "5f4", "77b"):
            names = [f"serve-{revision}-{name}" for name in "ab"]
            w.add(*(of_replica_set(name, revision) for name in names))
            old = [name for name in w.pods if name not in names]
            if old:
                w.delete(*old)

        (gang,) = w.cache.gangs.values()
        assert [*gang.lines] == [
            "ReplicaSet.apps/serve-5f4",
            "ReplicaSet.apps/serve-77b",
        ]
