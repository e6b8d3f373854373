"""Each law of the stories of jobs can be broken, and lets pass what is right."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from sandbox.apiclient import Object
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.e2e.stories import laws, lives
from tests.e2e.stories.lives import NEVER, RAY, TRAINING, Life, Told

NODES = {f"n{i}": {"host": f"n{i}", "zone": "ab"[i % 2]} for i in range(4)}
LWS, JOBSET = "leaderworkerset.sigs.k8s.io", "jobset.sigs.k8s.io"
BATCH = "batch.kubernetes.io"


def life(rank: str, bound_s: float = NEVER, node: str = "", **more: Any) -> Life:
    """A pod of a job of two, made at 0 s."""
    given: dict[str, Any] = {
        "name": f"train-{rank}",
        "job": "Job train",
        "generation": "g",
        "rank": rank,
        "size": 2,
        "least": 2,
        "selector": {},
        "created_s": 0.0,
        "ungated_s": more.get("created_s", 0.0),
        "bound_s": bound_s,
        "node": node,
    }
    return Life(**{**given, **more})


def broken(*pods: Life, now_s: float = 100.0) -> list[str]:
    return laws.broken(pods, NODES, now_s)


def test_a_job_that_is_bound_whole_breaks_no_law() -> None:
    chips: dict[str, Any] = {"chips": frozenset({"Ascend910-0"})}

    assert not broken(life("0", 1.0, "n0", **chips), life("1", 2.0, "n1", **chips))


def test_a_job_that_is_not_bound_at_all_breaks_no_law_where_there_is_no_room() -> None:
    others = [
        life("", 0.0, f"n{i}", generation=f"o{i}", size=1, least=1) for i in range(3)
    ]

    assert not broken(*others, life("0"), life("1"))


def test_a_job_of_which_one_pod_gets_no_node_is_bound_in_part() -> None:
    pods = (life("0", 1.0, "n0"), life("1", selector={"host": "none"}))

    assert broken(*pods, now_s=10.9) == []
    assert broken(*pods, now_s=11.1) == [
        "Job train was bound in part: train-1 had no node 10 s after 1.0 s"
    ]


def test_a_pod_that_is_bound_too_late_was_missing_all_the_same() -> None:
    found = broken(life("0", 1.0, "n0"), life("1", 12.0, "n1", ungated_s=0.5))

    assert found[0] == (
        "Job train was bound in part: train-1 had no node 10 s after 1.0 s"
    )


def test_workers_that_are_made_later_have_as_much_time() -> None:
    leader = life("0", 1.0, "n0")

    assert not broken(leader, life("1", 39.0, "n1", created_s=30.0))
    assert broken(leader, life("1", 41.0, "n1", created_s=30.0))


def test_a_pod_that_takes_a_rank_over_waits_for_room_alone() -> None:
    others = [
        life("", 5.0, f"n{i}", generation=f"o{i}", size=1, least=1) for i in (1, 2, 3)
    ]
    pods = (
        life("0", 1.0, "n0"),
        life("1", 1.0, "n1", leaves_s=4.0, ended_s=5.0),
        life("1", created_s=6.0),
    )

    assert not broken(*pods, *others)
    assert broken(*pods, *others[1:]) == ["Job train had room from 6.0 s: train-1"]


def test_a_job_that_is_deleted_before_it_is_whole_breaks_no_law() -> None:
    gone: dict[str, Any] = {"leaves_s": 5.0, "ended_s": 6.0}

    assert not broken(life("0", 1.0, "n0", **gone), life("1", **gone))


def test_an_elastic_job_needs_its_least_number_at_once() -> None:
    def pods(*bound_s: float) -> list[Life]:
        return [
            life("", at_s, f"n{i}", size=3, least=2) for i, at_s in enumerate(bound_s)
        ]

    assert list(laws.bound_in_part(pods(1.0, 2.0, NEVER), 100.0)) == []
    assert list(laws.bound_in_part(pods(1.0, 12.0, NEVER), 100.0)) == [
        (
            "Job train was bound in part: 1 of at least 2 pods within 10 s of the "
            "first, at 1.0 s"
        )
    ]


def test_pods_without_ranks_are_bound_whole_or_not_at_all() -> None:
    bound, waits = life("", 1.0, "n0"), life("", selector={"host": "none"})
    joins = life("", selector={"host": "none"}, created_s=5.0)

    assert list(laws.bound_in_part([bound, life("", 2.0, "n1"), joins], 100.0)) == []
    assert list(laws.bound_in_part([bound, waits], 100.0)) == [
        "Job train was bound in part: train- had no node 10 s after 1.0 s"
    ]


def test_a_chip_has_one_pod_at_a_time() -> None:
    chips = frozenset({"Ascend910-0", "Ascend910-1"})
    first = life("0", 1.0, "n0", chips=chips, ended_s=5.0)

    def second(bound_s: float, node: str) -> Life:
        return life("1", bound_s, node, chips=chips - {"Ascend910-0"})

    assert list(laws.chip_twice([first, second(5.0, "n0")])) == []
    assert list(laws.chip_twice([first, second(4.9, "n1")])) == []
    assert list(laws.chip_twice([first, second(4.9, "n0")])) == [
        "train-0 and train-1 had Ascend910-1"
    ]


def test_a_rank_has_one_pod_at_a_time() -> None:
    first = life("0", 1.0, "n0", leaves_s=3.0, ended_s=5.0)

    assert list(laws.rank_twice([first, life("0", 5.0, "n1")])) == []
    assert list(laws.rank_twice([first, life("0", 4.0, "n1", generation="h")])) == []
    assert list(laws.rank_twice([first, life("0", 4.0, "n1")])) == [
        "Job train had rank 0 bound twice at 4.0 s"
    ]


def test_a_job_that_waits_beside_free_nodes_is_late() -> None:
    assert broken(life("0"), life("1"), now_s=9.9) == []
    assert broken(life("0"), life("1")) == [
        "Job train had room from 0.0 s: train-0, train-1"
    ]


def test_time_counts_from_the_last_pod_that_ends() -> None:
    full = [
        life("", 0.0, f"n{i}", generation=f"o{i}", size=1, least=1, ended_s=50.0 + i)
        for i in range(4)
    ]

    assert broken(*full, life("0", 60.0, "n0"), life("1", 60.0, "n1")) == []
    assert broken(*full, life("0", 62.0, "n0"), life("1", 62.0, "n1")) == [
        "Job train had room from 51.0 s: train-0, train-1"
    ]


def test_a_job_needs_room_for_all_its_pods_until_the_last_of_them_is_bound() -> None:
    others = [
        life("", 0.0, f"n{i}", generation=f"o{i}", size=1, least=1, ended_s=ended_s)
        for i, ended_s in enumerate((8.0, 8.0, 8.0, 2.0))
    ]

    assert broken(*others, life("0", 11.9, "n0"), life("1", 12.1, "n1")) == []


def test_time_counts_from_the_last_pod_that_is_made() -> None:
    assert broken(life("0"), life("1", created_s=50.0), now_s=59.0) == [
        "Job train had room from 0.0 s: train-0"
    ]
    assert broken(life("0", 15.0, "n0"), life("1", 15.0, "n1", created_s=6.0)) == []


def test_a_gate_is_waited_for() -> None:
    assert not broken(life("0", ungated_s=NEVER), life("1", ungated_s=NEVER))


def test_nodes_that_a_job_needs_for_pods_to_come_are_not_free_for_others() -> None:
    pods = (life("0", 1.0, "n0"),)
    rival = [life(f"{i}", generation="r", job="Job rival", size=2) for i in range(2)]
    other = life("", 0.0, "n3", generation="o", size=1, least=1)

    assert not broken(*pods, other, *rival)
    assert broken(*pods, *rival) == ["Job rival had room from 0.0 s: train-0, train-1"]


def test_a_pod_waits_for_the_one_of_its_rank_that_ends() -> None:
    pods = (life("0", 1.0, "n0", leaves_s=3.0, ended_s=50.0), life("1", 1.0, "n1"))

    assert not broken(*pods, life("0", 55.0, "n2", created_s=4.0))
    assert broken(*pods, life("0", 61.0, "n2", created_s=4.0)) == [
        "Job train had room from 50.0 s: train-0"
    ]


def test_a_node_selector_says_which_nodes_are_room() -> None:
    def pods(host: str) -> list[Life]:
        return [life(rank, selector={"host": host}) for rank in "01"]

    assert not broken(*pods("n0"))
    apart = (life("0", selector={"host": "n0"}), life("1", selector={"host": "n1"}))
    assert broken(*apart)


def test_nodes_of_another_kind_are_no_room() -> None:
    nodes = {name: {lives.OFFERS: "ab"[i // 2]} for i, name in enumerate(NODES)}
    of_a: dict[str, Any] = {"selector": {lives.OFFERS: "a"}}
    of_b: dict[str, Any] = {"selector": {lives.OFFERS: "b"}}

    def found(size: int, *others: Life) -> list[str]:
        return list(laws.late([life("0", size=size, **of_a), *others], nodes, 100.0))

    runs = life("0", 0.0, "n2", generation="o", job="Job other", size=2, **of_b)
    same = life("0", 0.0, "n1", generation="o", job="Job other", size=1, **of_a)

    assert found(3) == []
    assert found(2) == ["Job train had room from 0.0 s: train-0"]
    assert found(2, runs) == ["Job train had room from 0.0 s: train-0"]
    assert found(2, same) == []


def test_nodes_that_a_job_of_another_kind_needs_are_kept_from_nobody() -> None:
    nodes = {name: {lives.OFFERS: "ab"[i // 2]} for i, name in enumerate(NODES)}
    kept = life("0", 0.0, "n2", generation="o", job="Job other", size=2)
    waits = life("0", selector={lives.OFFERS: "b"}, size=1)

    assert list(laws.late([waits, kept], nodes, 100.0)) == []
    other = replace(kept, node="n0", selector={lives.OFFERS: "a"})
    assert list(laws.late([waits, other], nodes, 100.0)) == [
        "Job train had room from 0.0 s: train-0"
    ]


@pytest.mark.parametrize(
    ("taken", "is_late"), [((), True), (("n0",), True), (("n0", "n1"), False)]
)
def test_a_unit_needs_a_domain_to_itself(taken: tuple[str, ...], is_late: bool) -> None:
    unit: dict[str, Any] = {"unit": "u", "unit_size": 2, "domain": "zone"}
    others = [life("", 0.0, node, generation=node, size=1, least=1) for node in taken]

    assert bool(broken(*others, life("0", **unit))) == is_late


def test_a_domain_of_another_unit_is_no_room() -> None:
    def unit(name: str) -> dict[str, Any]:
        return {"unit": name, "unit_size": 1, "domain": "zone", "size": 1, "least": 1}

    first = life("0", 0.0, "n0", generation="a", **unit("a"))
    second = life("0", 0.0, "n1", generation="b", **unit("b"))

    assert not broken(first, second, life("0", generation="c", **unit("c")))
    assert broken(first, life("0", generation="c", **unit("c")))


def test_pods_of_a_unit_go_where_the_others_of_it_are() -> None:
    unit: dict[str, Any] = {"unit": "u", "unit_size": 2, "domain": "zone"}
    leader = life("0", 1.0, "n0", **unit)
    in_its_zone = life("", 0.0, "n2", generation="o", size=1, least=1)

    def found(*others: Life) -> list[str]:
        worker = life("1", created_s=2.0, **unit)
        return list(laws.late([leader, worker, *others], NODES, 100.0))

    assert found() == ["Job train had room from 2.0 s: train-1"]
    assert found(in_its_zone) == []


UIDS = itertools.count()


def made(kind: str, name: str, *, owner: Object | None = None, **more: Any) -> Object:
    """An object of the API server."""
    owners = [{"uid": owner["metadata"]["uid"], "controller": True}] if owner else []
    meta = {"name": name, "uid": f"uid-{next(UIDS)}", "ownerReferences": owners}
    meta |= {"labels": more.pop("labels", {}), "annotations": more.pop("notes", {})}
    return {"kind": kind, "metadata": meta, **more}


def pod(name: str, owner: Object | None = None, **more: Any) -> Object:
    limits = {PRODUCT.resource: "8"}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    return made("Pod", name, owner=owner, spec=spec, status={}, **more)


def indexed(name: str, job: Object, index: int) -> Object:
    labels = {f"{BATCH}/job-completion-index": str(index)}
    return pod(name, job, labels=labels)


def told(*items: Object) -> list[Told]:
    return [Told(at_s=float(at_s), item=item) for at_s, item in enumerate(items)]


def job(pods: int) -> Object:
    return made("Job", "train", spec={"parallelism": pods, "completions": pods})


def test_a_life_is_read_from_the_events_of_a_pod() -> None:
    owner = job(2)
    new = indexed("train-0", owner, 0)
    bound = new | {"spec": new["spec"] | {"nodeName": "n0"}}
    claim = {"annotations": {PRODUCT.resource: "Ascend910-0,Ascend910-1"}}
    bound["metadata"] = new["metadata"] | claim
    leaving = bound | {"metadata": bound["metadata"] | {"deletionTimestamp": "now"}}
    leaving["status"] = {"conditions": [{"type": "DisruptionTarget"}]}
    history = told(owner, new, bound, leaving)
    gone = Told(at_s=9.0, item=leaving, is_gone=True)

    (found,) = lives.read([*history, gone])

    assert found == Life(
        name="train-0",
        uid=new["metadata"]["uid"],
        job="Job train",
        generation=f"{owner['metadata']['uid']}#0",
        rank="0",
        size=2,
        least=2,
        selector={lives.OFFERS: PRODUCT.resource},
        created_s=1.0,
        ungated_s=1.0,
        bound_s=2.0,
        node="n0",
        chips=frozenset({"Ascend910-0", "Ascend910-1"}),
        is_disrupted=True,
        leaves_s=3.0,
        ended_s=9.0,
    )


def test_a_pod_without_npus_has_no_job() -> None:
    plain = pod("plain")
    plain["spec"]["containers"][0]["resources"] = {}

    assert lives.read(told(plain)) == []


def test_a_job_that_is_made_again_has_another_generation() -> None:
    owner = job(1)
    old = indexed("old", owner, 0)
    leaving = old | {"metadata": old["metadata"] | {"deletionTimestamp": "now"}}
    beside, after = (indexed(name, owner, 0) for name in ("beside", "after"))

    def generations(*events: Object) -> list[str]:
        return [each.generation.partition("#")[2] for each in lives.read(told(*events))]

    assert generations(owner, old, beside, leaving) == ["0", "0"]
    assert generations(owner, old, leaving, after) == ["0", "1"]


def test_a_size_is_the_one_when_the_pod_was_made() -> None:
    owner = job(1)
    larger = owner | {"spec": {"parallelism": 2, "completions": 2}}
    pods = [indexed(f"train-{index}", owner, index) for index in range(2)]

    found = lives.read(told(owner, pods[0], larger, pods[1]))

    assert [each.size for each in found] == [1, 2]
    assert [each.size for each in lives.read(told(pods[0], owner))] == [1]


def test_workers_are_of_the_generation_of_the_leader_that_owns_them() -> None:
    def member(index: int, owner: Object | None = None) -> Object:
        labels = {
            f"{LWS}/name": "serve",
            f"{LWS}/group-index": "3",
            f"{LWS}/worker-index": str(index),
        }
        name = f"serve-3-{index}" if index else "serve-3"
        return pod(name, owner, labels=labels, notes={f"{LWS}/size": "2"})

    old, new = member(0), member(0)
    sets = [made("StatefulSet", "serve-3", owner=leader) for leader in (old, new)]
    workers = [member(1, each) for each in sets]

    found = lives.read(told(old, new, *workers, *sets))

    keys = [f"{each['metadata']['uid']}#0" for each in (old, new)]
    assert [each.generation for each in found] == [*keys, *keys]
    assert [each.rank for each in found] == ["0", "0", "1", "1"]
    assert {each.job for each in found} == {"LeaderWorkerSet serve/3"}


def test_a_job_set_has_a_generation_for_each_attempt_and_a_unit_for_each_job() -> None:
    template = {"spec": {"parallelism": 2, "completions": 2}}
    replicated = {"name": "train", "replicas": 3, "template": template}
    owner = made("JobSet", "llm", spec={"replicatedJobs": [replicated]})
    uid = owner["metadata"]["uid"]

    def member(index: int, attempt: int) -> Object:
        labels = {
            f"{JOBSET}/jobset-name": "llm",
            f"{JOBSET}/jobset-uid": uid,
            f"{JOBSET}/restart-attempt": str(attempt),
            f"{JOBSET}/replicatedjob-name": "train",
            f"{JOBSET}/job-index": str(index),
        }
        notes = {
            f"{BATCH}/job-completion-index": "1",
            f"alpha.{JOBSET}/exclusive-topology": "zone",
        }
        return pod(f"llm-{index}", labels=labels, notes=notes)

    first, again = lives.read(told(owner, member(0, 0), member(2, 1)))

    assert (first.generation, again.generation) == (f"{uid}/0#0", f"{uid}/1#0")
    assert (first.rank, again.rank) == ("train/0/1", "train/2/1")
    assert (first.size, first.unit, first.unit_size) == (6, f"{uid}/0/train/0", 2)
    assert first.domain == "zone"


def test_a_ray_cluster_has_a_head_and_hosts_of_workers() -> None:
    groups = [{"replicas": 2, "numOfHosts": 2}, {"replicas": 1}]
    owner = made("RayCluster", "llm", spec={"workerGroupSpecs": groups})
    head = {f"{RAY}/cluster": "llm", f"{RAY}/node-type": "head"}
    worker = {
        f"{RAY}/cluster": "llm",
        f"{RAY}/node-type": "worker",
        f"{RAY}/group": "big",
        f"{RAY}/worker-group-replica-index": "1",
    }
    host = worker | {f"{RAY}/replica-host-index": "1"}
    pods = [
        pod(f"llm-{i}", owner, labels=e) for i, e in enumerate((head, worker, host))
    ]

    found = lives.read(told(owner, *pods))

    assert [each.rank for each in found] == ["head", "big/1/0", "big/1/1"]
    assert {(each.job, each.size, each.least) for each in found} == {
        ("RayCluster llm", 6, 6)
    }


def test_a_training_job_has_roles() -> None:
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}
    owner = made("PyTorchJob", "bert", spec={"pytorchReplicaSpecs": roles})
    labels = {
        f"{TRAINING}/job-name": "bert",
        f"{TRAINING}/replica-type": "worker",
        f"{TRAINING}/replica-index": "1",
    }

    (found,) = lives.read(told(owner, pod("bert-worker-1", owner, labels=labels)))

    assert (found.job, found.rank, found.size) == ("PyTorchJob bert", "worker/1", 3)


def test_pods_of_two_replica_sets_are_of_one_deployment() -> None:
    owner = made("Deployment", "serve", spec={"replicas": 3})
    sets = [made("ReplicaSet", f"serve-{name}", owner=owner) for name in "ab"]
    notes = {"huawei.com/schedule_minAvailable": "2"}
    pods = [pod(each["metadata"]["name"], each, notes=notes) for each in sets]

    found = lives.read(told(owner, *sets, *pods))

    assert {each.job for each in found} == {"Deployment serve"}
    assert len({each.generation for each in found}) == 1
    assert {(each.rank, each.size, each.least) for each in found} == {("", 3, 2)}


def kept_at(node: str, *chips: int) -> laws.Place:
    names = (f"{PRODUCT.chip_prefix}{chip}" for chip in chips)
    return laws.Place(node, frozenset(names))


def moved(node: str, *chips: int, **of_first: Any) -> list[Life]:
    """A pod that was evicted, one of another rank, and the next of its rank."""
    here, there = kept_at("n0", 0).chips, kept_at(node, *chips).chips
    gone: dict[str, Any] = {"uid": "a", "leaves_s": 5.0, "ended_s": 6.0}
    return [
        life("0", 1.0, "n0", chips=here, **gone | of_first),
        life("1", 7.0, "n1", chips=here, uid="b", created_s=6.5),
        life("0", 8.0, node, chips=there, uid="c", created_s=7.0),
    ]


def test_a_pod_that_is_bound_on_its_kept_place_breaks_no_law() -> None:
    pods = moved("n2", 0, 1, is_disrupted=True)

    assert list(laws.moved_elsewhere(pods, {"a": kept_at("n2", 0, 1)})) == []
    assert list(laws.ended_as_failed(pods, {"a": kept_at("n2", 0, 1)})) == []


def test_a_pod_that_is_bound_elsewhere_than_kept_is_told() -> None:
    kept = {"a": kept_at("n2", 0, 1)}
    text = "train-0 was bound to {}, and Ascend910-0, Ascend910-1 of n2 were kept"

    assert list(laws.moved_elsewhere(moved("n3", 0, 1), kept)) == [text.format("n3")]
    assert list(laws.moved_elsewhere(moved("n2", 0, 2), kept)) == [text.format("n2")]


def test_a_pod_that_ends_without_the_condition_is_told() -> None:
    kept = {"a": kept_at("n2", 0)}
    stays: dict[str, Any] = {"leaves_s": NEVER, "ended_s": NEVER}

    assert list(laws.ended_as_failed(moved("n2", 0), kept)) == [
        "train-0 ended without DisruptionTarget"
    ]
    assert list(laws.ended_as_failed(moved("n2", 0, **stays), kept)) == []
    assert list(laws.ended_as_failed(moved("n2", 0), {})) == []
