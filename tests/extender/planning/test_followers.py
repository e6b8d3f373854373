"""Jobs whose controllers make pods only when others are ready (G6)."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from extender.cache import decode, events
from extender.cache.requests import Resources
from extender.cache.verify import find_drift
from extender.gang.membership import membership
from extender.gang.size import size_of, whole
from extender.planning.plan_input import TopologySnapshot
from extender.planning.topology import NetworkTopology, Rules
from extender.queries import snapshot
from kube.objects import Pod
from scheduler_core.placement.job_rules import Profile
from tests.support import objects
from tests.support.caches import cluster, free, only_gang
from tests.support.extender import ServedWorld, world
from tests.support.watched import ALL_FREE, gone, member, node, report

NODES = ("n1", "n2", "n3", "n4")
LWS = "leaderworkerset.sigs.k8s.io"
JOBSET = "jobset.sigs.k8s.io"
COMPLETION = "batch.kubernetes.io/job-completion-index"


def template(count: int = 8, **limits: str) -> dict[str, Any]:
    return {"spec": {"containers": [objects.container(npus=count, limits=limits)]}}


def a_worker_set(**spec: Any) -> dict[str, Any]:
    """A LeaderWorkerSet whose groups have a leader and two workers."""
    group = {"size": 3, "workerTemplate": template()}
    return {"spec": {"leaderWorkerTemplate": group, **spec}}


def a_jobset(*names: str, **spec: Any) -> dict[str, Any]:
    """A JobSet with a replicated job of two pods of each name."""
    jobs = [
        {"name": name, "template": {"spec": {"parallelism": 2, "template": template()}}}
        for name in names
    ]
    return {"spec": {"replicatedJobs": jobs, **spec}}


def a_set(replicas: int = 3, **spec: Any) -> dict[str, Any]:
    """A StatefulSet of which two pods must run together."""
    notes = {"huawei.com/schedule_minAvailable": "2"}
    made = template() | {"metadata": {"annotations": notes}}
    return {"spec": {"replicas": replicas, "template": made, **spec}}


def made(name: str, **meta: Any) -> Pod:
    """A pod as its controller makes it; its UID is that of `watched.pod`."""
    raw = objects.pod(name, 8, meta={"uid": f"uid-{name}", **meta})
    return msgspec.convert(raw, Pod)


def of_group(number: int) -> Pod:
    labels = {
        f"{LWS}/name": "serve",
        f"{LWS}/group-index": "0",
        f"{LWS}/worker-index": str(number),
    }
    return made(f"w{number}", labels=labels, annotations={f"{LWS}/size": "3"})


def of_jobset(role: str, number: int) -> Pod:
    labels = {
        f"{JOBSET}/jobset-name": "js",
        f"{JOBSET}/replicatedjob-name": role,
        f"{JOBSET}/job-index": "0",
        COMPLETION: str(number),
    }
    return made(f"{role}{number}", labels=labels)


def of_set(number: int) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s"}
    return made(
        f"s{number}",
        labels={"apps.kubernetes.io/pod-index": str(number)},
        annotations={"huawei.com/schedule_minAvailable": "2"},
        ownerReferences=[owner | {"controller": True}],
    )


@asynccontextmanager
async def job_world(
    found: Mapping[str, Any], *pods: Pod, nodes: Sequence[str] = NODES
) -> AsyncIterator[ServedWorld]:
    """A world in which an object makes these pods first."""
    per_pod = TopologySnapshot(profile=Profile.PER_POD)
    async with world(cluster(nodes=nodes), topology=lambda _gang: per_pod) as w:
        place = membership(pods[0])
        assert place is not None
        assert place.size_source is not None
        source = place.size_source
        size = size_of(source.kind, found, decode.RESOURCES, source.stated)
        assert size is not None
        w.calls.sizes[place.size_source.path] = size
        add(w, *pods)
        await w.tick()
        await w.tick(3)
        yield w


def add(w: ServedWorld, *pods: Pod) -> None:
    """Let pods be made."""
    for each in pods:
        change = decode.pod_change(each)
        assert isinstance(change, events.PodUpdated)
        w.add(change)


async def bind(w: ServedWorld, *names: str) -> list[str]:
    """Bind these pods where filter sends them; return the nodes."""
    nodes = [w.filter(name, NODES)[0] for name in names]
    calls = [w.bind(name, node) for name, node in zip(names, nodes, strict=True)]
    assert await asyncio.gather(*calls) == [""] * len(names)
    return nodes


@pytest.mark.parametrize(
    "found",
    [
        a_worker_set(startupPolicy="LeaderReady"),
        a_worker_set()
        | {"metadata": {"annotations": {f"{LWS}/exclusive-topology": "r"}}},
    ],
    ids=["LeaderReady", "exclusive topology"],
)
async def test_a_leader_starts_first_and_its_workers_find_their_nodes(
    found: dict[str, Any],
) -> None:
    async with job_world(found, of_group(0)) as w:
        assert await bind(w, "w0") == ["n1"]
        assert [free(w.cache, name) for name in NODES] == [(), (), (), ALL_FREE]
        w.add(member("x", job="k"), member("y", job="k"))
        assert w.why("x", NODES) == (
            "without 8 free chips",
            "its job does not fit: 1 of 2 pods fit",
        )
        assert w.explain("w0")["job_pods"] == (
            "1 of 3 pods exist, 1 have a node, nodes of 2 more are kept"
        )

        shown = snapshot.take(w.cache, NetworkTopology(w.cache, Rules()))
        assert [(pod.name, pod.node, pod.phase) for pod in shown.pods] == [
            ("default/serve-0-1-0", "n2", "Pending"),
            ("default/serve-0-2-0", "n3", "Pending"),
            ("default/w0", "n1", "Pending"),
        ]

        w.pass_s(500)  # a model is loaded
        add(w, of_group(1), of_group(2))

        assert await bind(w, "w2", "w1") == ["n3", "n2"]
        assert w.explain("w0")["job_pods"] == "3 of 3 pods exist, 3 have a node"


async def test_workers_with_a_port_of_the_node_get_nodes_of_their_own() -> None:
    found = a_worker_set(startupPolicy="LeaderReady")
    spec = found["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    spec["containers"] = [
        objects.container(npus=2, ports=[{"containerPort": 29500, "protocol": "TCP"}])
    ]
    spec["hostNetwork"] = True
    async with job_world(found, of_group(0)) as w:
        await bind(w, "w0")

        kept = only_gang(w.cache).plan.followers
        assert len(set(kept.values())) == 2


async def test_a_leader_whose_workers_would_not_fit_waits() -> None:
    found = a_worker_set(startupPolicy="LeaderReady")
    async with job_world(found, of_group(0), nodes=NODES[:2]) as w:
        assert w.why("w0") == ("its job does not fit: 2 of 3 pods fit",)


async def test_a_leader_alone_of_the_policy_waits_for_its_workers() -> None:
    async with job_world(a_worker_set(), of_group(0)) as w:
        assert w.why("w0") == ("waits for 2 of the 3 pods of its job",)


@pytest.mark.parametrize("policy", ["InOrder", "dependsOn"])
async def test_replicated_jobs_begin_one_after_the_other(policy: str) -> None:
    found = a_jobset("b", "a")
    if policy == "InOrder":
        found["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    else:
        depends_on = [{"name": "b", "status": "Ready"}]
        found["spec"]["replicatedJobs"][1]["dependsOn"] = depends_on
    async with job_world(found, of_jobset("b", 0)) as w:
        assert w.why("b0", NODES) == ("waits for 1 of the 4 pods of its job",)
        add(w, of_jobset("b", 1))

        first = await bind(w, "b0", "b1")
        add(w, of_jobset("a", 0), of_jobset("a", 1))
        second = await bind(w, "a0", "a1")

        assert sorted(first + second) == list(NODES)


@pytest.mark.parametrize("is_read_late", [False, True])
async def test_what_begins_when_another_has_completed_is_a_job_of_its_own(
    is_read_late: bool,
) -> None:
    found = a_jobset("b", "a")
    found["spec"]["replicatedJobs"][1]["dependsOn"] = [
        {"name": "b", "status": "Complete"}
    ]
    first = [] if is_read_late else [of_jobset("b", 0), of_jobset("b", 1)]
    second = [of_jobset("a", 0), of_jobset("a", 1)]
    async with job_world(found, *first, *second[: not first], nodes=NODES[:2]) as w:
        if first:
            await bind(w, "b0", "b1")
            ended = [replace_status(pod, "Succeeded") for pod in first]
            w.learn(*map(decode.pod_change, ended))
            add(w, second[0])
        text = "waits for 1 of the 2 pods of its job"
        assert w.why("a0") == (text,)
        assert w.explain("a0")["job"] == "JobSet default/js/a"
        assert find_drift(w.cache, decode.pod_change(second[0])) == ""

        add(w, second[1])
        call = await w.come("a0", w.filter("a0")[0])
        (node,) = w.filter("a1")
        assert [*await asyncio.gather(call, w.bind("a1", node))] == ["", ""]
        w.learn(*gone("a0", "a1", "b0", "b1"))
        assert w.cache.gangs == {}
        assert len(w.cache._state.gangs.stages) == 0


def of_attempt(number: int, attempt: int) -> Pod:
    """A pod of a JobSet that has begun again so many times."""
    pod = of_jobset("b", number)
    labels = dict(pod.metadata.labels or {}) | {
        f"{JOBSET}/restart-attempt": f"{attempt}"
    }
    name = f"b{number}.{attempt}"
    created = f"2026-11-01T00:0{attempt}:00Z"
    return made(name, labels=labels, creationTimestamp=created)


async def test_pods_of_an_earlier_attempt_let_no_pod_through() -> None:
    """A JobSet makes each job anew as soon as its own pods have gone."""
    before = [of_attempt(0, 0), of_attempt(1, 0)]
    async with job_world(a_jobset("b"), *before, nodes=NODES[:2]) as w:
        await bind(w, "b0.0", "b1.0")
        w.learn(*gone("b0.0"))
        add(w, of_attempt(0, 1))
        await w.tick()

        assert w.why("b0.1") == ("waits for 1 of the 2 pods of its job",)

        w.learn(*map(decode.pod_change, [on_node(before[1], "n2")]))
        assert find_drift(w.cache, decode.pod_change(on_node(before[1], "n2"))) == ""
        assert w.why("b0.1") == ("waits for 1 of the 2 pods of its job",)
        w.learn(*gone("b1.0"))
        add(w, of_attempt(1, 1))
        assert sorted(await bind(w, "b0.1", "b1.1")) == ["n1", "n2"]


async def test_an_earlier_attempt_that_stays_alone_is_the_job() -> None:
    async with job_world(a_jobset("b"), of_attempt(0, 0), of_attempt(0, 1)) as w:
        w.learn(*gone("b0.1"))
        add(w, of_attempt(1, 0))

        assert sorted(await bind(w, "b0.0", "b1.0")) == ["n1", "n2"]


async def test_an_earlier_attempt_that_is_listed_later_is_not_the_job() -> None:
    pods = [of_attempt(1, 1), of_attempt(0, 0), of_attempt(0, 1)]
    async with job_world(a_jobset("b"), *pods) as w:
        assert sorted(await bind(w, "b1.1", "b0.1")) == ["n1", "n2"]


async def test_pods_that_another_object_adopts_stay_the_job() -> None:
    before = [of_attempt(number, 0) for number in range(2)]
    async with job_world(a_jobset("b"), *before) as w:
        nodes = await bind(w, "b0.0", "b1.0")
        for pod, node in zip(before, nodes, strict=True):
            labels = {**(pod.metadata.labels or {}), f"{JOBSET}/jobset-uid": "new"}
            meta = msgspec.structs.replace(pod.metadata, labels=labels)
            adopted = msgspec.structs.replace(pod, metadata=meta)
            w.learn(decode.pod_change(on_node(adopted, node)))
            assert find_drift(w.cache, decode.pod_change(on_node(adopted, node))) == ""

        assert only_gang(w.cache).ending == set()


async def test_a_size_is_read_anew_for_another_job_of_the_same_name() -> None:
    async with job_world(a_jobset("b"), of_attempt(0, 0), of_attempt(1, 0)) as w:
        await bind(w, "b0.0", "b1.0")
        (path,) = w.calls.sizes
        w.calls.sizes[path] = whole(3)
        add(w, of_attempt(0, 1), of_attempt(1, 1))
        await w.tick()

        assert w.why("b0.1") == ("waits for 1 of the 3 pods of its job",)


def on_node(pod: Pod, name: str) -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name=name)
    return msgspec.structs.replace(pod, spec=spec)


async def test_the_first_pod_of_a_jobset_with_exclusive_topology_starts() -> None:
    """Its controller makes the others once that one has a node."""
    found = a_jobset("a")
    found["metadata"] = {
        "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    }
    async with job_world(found, of_jobset("a", 0)) as w:
        assert await bind(w, "a0") == ["n1"]
        assert free(w.cache, "n2") == ()
        add(w, of_jobset("a", 1))
        assert await bind(w, "a1") == ["n2"]


async def test_a_stage_after_one_without_npus_of_a_stage_is_no_part_of_the_first() -> (
    None
):
    """The first would wait for pods that are made once it has completed."""
    found = a_jobset("b", "check", "a")
    jobs = found["spec"]["replicatedJobs"]
    jobs[1]["template"]["spec"]["template"] = template(0)
    jobs[1]["dependsOn"] = [{"name": "b", "status": "Complete"}]
    jobs[2]["dependsOn"] = [{"name": "check", "status": "Complete"}]
    async with job_world(found, of_jobset("b", 0), of_jobset("b", 1)) as w:
        assert await bind(w, "b0", "b1") == ["n1", "n2"]


async def test_a_group_made_again_as_before_its_object_was_edited_starts() -> None:
    """Groups above the partition of a rolling update keep the size that they had."""
    found = a_worker_set()
    found["spec"]["leaderWorkerTemplate"]["size"] = 4
    async with job_world(found, *map(of_group, range(3))) as w:
        assert await bind(w, "w0", "w1", "w2") == ["n1", "n2", "n3"]


async def test_a_stage_after_one_without_npus_is_the_job() -> None:
    found = a_jobset("b", "a")
    found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = template(0)
    found["spec"]["replicatedJobs"][1]["dependsOn"] = [
        {"name": "b", "status": "Complete"}
    ]
    async with job_world(found, of_jobset("a", 0), of_jobset("a", 1)) as w:
        assert w.explain("a0")["job"] == "JobSet default/js"
        assert await bind(w, "a0", "a1") == ["n1", "n2"]


def replace_status(pod: Pod, phase: str) -> Pod:
    """A bound pod in this phase."""
    spec = msgspec.structs.replace(pod.spec, node_name="n1")
    status = msgspec.structs.replace(pod.status, phase=phase)
    return msgspec.structs.replace(pod, spec=spec, status=status)


async def test_pods_of_a_set_come_one_by_one() -> None:
    async with job_world(a_set(), of_set(0), nodes=NODES) as w:
        nodes = await bind(w, "s0")
        for number in (1, 2):
            w.pass_s(400)
            add(w, of_set(number))
            nodes += await bind(w, f"s{number}")

        assert sorted(nodes) == ["n1", "n2", "n3"]
        assert w.calls.told == []


async def test_a_set_runs_with_its_least_where_not_all_fit() -> None:
    async with job_world(a_set(), of_set(0), nodes=NODES[:2]) as w:
        await bind(w, "s0")
        add(w, of_set(1))
        await bind(w, "s1")
        add(w, of_set(2))
        assert w.why("s2", NODES[:2]) == ("without 8 free chips",)


async def test_a_set_below_its_least_waits() -> None:
    async with job_world(a_set(), of_set(0), nodes=NODES[:1]) as w:
        assert w.why("s0", NODES[:1]) == ("its job does not fit: 1 of 2 pods fit",)


async def test_nodes_that_nobody_takes_are_given_back_with_an_event() -> None:
    found = a_worker_set(startupPolicy="LeaderReady")
    async with job_world(found, of_group(0)) as w:
        await bind(w, "w0")
        w.pass_s(599)
        assert free(w.cache, "n2") == ()

        w.pass_s(2)

        assert free(w.cache, "n2") == free(w.cache, "n3") == ALL_FREE
        text = (
            "2 pods of the job were not made within 600 s after the others: their "
            "nodes are given back"
        )
        assert w.calls.told == [("w0", "AscendFollowersLate", text)]
        add(w, of_group(1), of_group(2))
        assert sorted(await bind(w, "w1", "w2")) == ["n2", "n3"]


async def test_nodes_are_given_back_when_the_last_of_the_others_goes() -> None:
    found = a_worker_set(startupPolicy="LeaderReady")
    async with job_world(found, of_group(0)) as w:
        await bind(w, "w0")
        w.learn(*gone("w0"))

        assert [free(w.cache, name) for name in NODES] == [ALL_FREE] * 4
        assert w.calls.told == []


async def test_a_leader_that_is_made_again_takes_no_more_nodes() -> None:
    found = a_jobset("b", "a", startupPolicy={"startupPolicyOrder": "InOrder"})
    async with job_world(found, of_jobset("b", 0), of_jobset("b", 1)) as w:
        await bind(w, "b0", "b1")
        w.learn(*gone("b0"))
        add(w, of_jobset("b", 0))
        assert await bind(w, "b0") == ["n1"]
        add(w, of_jobset("a", 0), of_jobset("a", 1))
        assert await bind(w, "a0", "a1") == ["n3", "n4"]


async def test_a_gate_that_closes_gives_all_nodes_back() -> None:
    found = a_jobset("b", "a", startupPolicy={"startupPolicyOrder": "InOrder"})
    async with job_world(found, of_jobset("b", 0), of_jobset("b", 1)) as w:
        (node,) = w.filter("b0", NODES)
        call = await w.come("b0", node)
        w.pass_s(21)

        assert await call
        assert [free(w.cache, name) for name in NODES] == [ALL_FREE] * 4
        assert only_gang(w.cache).plan.followers == {}


async def test_a_pod_unlike_its_template_is_planned_as_it_is() -> None:
    found = a_worker_set(startupPolicy="LeaderReady")
    async with job_world(found, of_group(0)) as w:
        await bind(w, "w0")
        labels = of_group(1).metadata.labels
        raw = objects.pod("w1", 4, meta={"uid": "uid-w1", "labels": labels})
        add(w, msgspec.convert(raw, Pod))

        assert await bind(w, "w1") == ["n4"]


async def test_cpu_is_kept_as_well() -> None:
    """A plan puts no other pod where a follower would lack CPU."""
    found = a_worker_set(startupPolicy="LeaderReady")
    group = found["spec"]["leaderWorkerTemplate"]
    group |= {"leaderTemplate": template(), "workerTemplate": template(4, cpu="6")}
    async with job_world(found, of_group(0), nodes=()) as w:
        for name in NODES[:2]:
            w.learn(*node_of(name, Resources(8000, 1 << 40, 110)))
        assert w.why("w0", NODES[:2]) == ("its job does not fit: 2 of 3 pods fit",)
        w.learn(*node_of("n3", Resources(8000, 1 << 40, 110)))
        await bind(w, "w0")
        asks = Resources(3000, 0)
        w.add(*(member(name, job="k", count=4, ask=asks) for name in "xy"))
        assert w.filter("x", NODES[:3]) == []


def node_of(name: str, has: Resources) -> tuple[events.Change, ...]:
    """A node with this CPU and memory, and its agent's report."""
    return replace(node(name), allocatable_resources=has), report(name)


async def test_a_template_that_cannot_be_read_keeps_nothing() -> None:
    found = a_worker_set(startupPolicy="LeaderReady")
    containers = found["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    found["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = template()
    containers["nodeSelector"] = ["nonsense"]
    async with job_world(found, of_group(0)) as w:
        assert await bind(w, "w0") == ["n1"]
        assert free(w.cache, "n2") == ALL_FREE
