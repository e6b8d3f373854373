"""Nodes that ending pods leave: which of them a plan may have for their successors."""

from collections.abc import Iterator
from contextlib import contextmanager

from extender.gang.size import whole
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
