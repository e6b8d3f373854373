"""Nodes that ending pods leave: which of them a plan may have for their successors."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from extender.gang.size import whole
from extender.planning.offered_nodes import NodesLeft
from sandbox.apiclient import Object
from tests.extender.gangworld import GangWorld, sim_node, sim_pod
from tests.extender.job_controllers import IndexedJob, PodsApi
from tests.support.objects import container, pod

LATE = "2030-01-01T00:00:00Z"
JOBSET_PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/train"


@contextmanager
def world(*nodes: Object) -> Iterator[GangWorld]:
    found = GangWorld(nodes)
    found.report()
    try:
        yield found
    finally:
        found.close()


def rivals(w: GangWorld) -> tuple[str, str]:
    """A younger job of whole nodes, which is asked about first."""
    names = ("rival-0", "rival-1")
    for name in names:
        made = sim_pod(name, job="rival", npus=8)
        made["metadata"]["creationTimestamp"] = LATE
        w.add(made)
    return names


def end(w: GangWorld, *names: str) -> None:
    """Let pods end whose chips are free some seconds later."""
    for name in names:
        w.remove(name)
    w.world.pass_s(3)
    w.report()


def test_a_node_that_is_drained_is_not_planned_for_the_successor_of_its_pod() -> None:
    with world(*map(sim_node, ("n1", "n2", "n3", "n4"))) as w:
        job = IndexedJob(PodsApi(w), 3)
        job.reconcile()
        assert w.run(9, *job.active.values()) is not None
        old = next(name for name, node in w.bound.items() if node == "n1")
        index = job.index(old)

        w.cordon("n1")
        job.api.delete(old)  # its kubelet takes its time
        job.reconcile()
        new, (rival, _) = job.active[index], rivals(w)
        for name in (new, rival):
            assert w.world.filter(name, ["n4"]) == []
        w.world.pass_s()
        end(w, old)

        assert w.world.filter(rival, ["n4"]) == []  # the older job is planned
        assert w.world.filter(new, ["n4"]) == ["n4"]


def of_job_set(name: str, role: str, pool: str) -> Object:
    """A pod of a JobSet of two, each half a node of a pool of its own."""
    prefix = "jobset.sigs.k8s.io"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-{role}-0"}
    meta = {
        "uid": f"uid-{name}",
        "labels": {
            f"{prefix}/jobset-name": "train",
            f"{prefix}/replicatedjob-name": role,
            f"{prefix}/job-index": "0",
            "batch.kubernetes.io/job-completion-index": "0",
            "role": role,
        },
        "annotations": {},
        "ownerReferences": [owner | {"uid": f"of-{role}", "controller": True}],
    }
    return pod(
        name,
        containers=[container(npus=4)],
        meta=meta,
        nodeSelector={"pool": pool},
    )


def test_a_node_that_a_pod_of_another_kind_leaves_is_not_planned_for_a_pod() -> None:
    """Two halves of a node would fit the node that one of them may not have."""
    with world(sim_node("n1", pool="a"), sim_node("n2", pool="b")) as w:
        for name in w.nodes:
            w.show_node(name)
        w.world.calls.sizes[JOBSET_PATH] = whole(2)
        pools = {"driver": "a", "worker": "b"}
        w.add(*(of_job_set(role, role, pool) for role, pool in pools.items()))
        assert w.run(9, *pools) is not None
        for role in pools:
            w.pods[role]["metadata"]["deletionTimestamp"] = LATE
            w.show(role)
        new = [f"{role}-again" for role in pools]
        w.add(*(of_job_set(f"{role}-again", role, pools[role]) for role in pools))
        assert w.run(2, *new) is None
        first = rivals(w)
        end(w, *pools)

        assert w.run(9, *new, order=first) is not None


#: What is added to a template.
EDITED: tuple[dict[str, Any], ...] = (
    {"nodeSelector": {"pool": "a"}},
    {"tolerations": [{"key": "k", "operator": "Exists"}]},
)


@pytest.mark.parametrize("spec", EDITED, ids=["selector", "toleration"])
def test_a_successor_of_an_edited_template_has_the_nodes_that_pods_leave(
    spec: dict[str, Any],
) -> None:
    """A younger job is asked about first, for which the nodes would do, too."""

    def made(name: str, role: str, **spec: Any) -> Object:
        pod = of_job_set(name, role, "")
        pod["spec"] = {"containers": [container(npus=8)]} | spec
        return pod

    with world(*(sim_node(name, pool="a") for name in ("n1", "n2", "n3"))) as w:
        for name in w.nodes:
            w.show_node(name)
        w.world.calls.sizes[JOBSET_PATH] = whole(2)
        w.add(*(made(role, role) for role in ("driver", "worker")))
        assert w.run(9, "driver", "worker") is not None
        left = sorted(w.bound.values())
        (free,) = {*w.nodes} - {*left}
        for role in ("driver", "worker"):
            w.pods[role]["metadata"]["deletionTimestamp"] = LATE
            w.show(role)
            w.add(made(f"{role}-again", role, **spec))
        first, _ = rivals(w)
        for name in ("driver-again", "worker-again", first):
            assert w.world.filter(name, [free]) == []
        w.world.pass_s()
        end(w, "driver", "worker")

        assert w.world.filter(first, left) == []  # the older job is planned
        assert len(w.world.filter("driver-again", [*w.nodes])) == 1


def test_nodes_that_pods_leave_are_found_once_until_something_changes() -> None:
    with world(*map(sim_node, ("n1", "n2", "n3", "n4"))) as w:
        job = IndexedJob(PodsApi(w), 3)
        job.reconcile()
        assert w.run(9, *job.active.values()) is not None
        (gang,) = w.cache.gangs.values()
        left = NodesLeft(w.cache)

        def found(index: int) -> Collection[str]:
            uid: str = w.pods[job.active[index]]["metadata"]["uid"]
            return left.find(gang, uid)

        first, second, _ = old = [*job.active.values()]
        nodes = [w.bound[name] for name in old]
        job.api.delete(first)
        job.reconcile()
        before = found(0)
        assert [*before] == nodes[:1]
        w.show(job.active[0])  # the scheduler writes that it is refused
        assert found(0) is before

        job.api.delete(second)
        job.reconcile()
        assert [*found(0)] == [*found(1)] == nodes[:2]

        w.cordon(nodes[0])
        assert [*found(0)] == nodes[1:2]

        end(w, first)
        assert [*found(1)] == nodes[1:2]
