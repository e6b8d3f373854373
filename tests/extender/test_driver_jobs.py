"""JobSets whose jobs begin one after the other, with pods that have succeeded."""

from extender.gang.size import size_of
from sandbox.apiclient import Object
from tests.extender.gangworld import NODES, GangWorld, rival, sim_pod, world
from tests.support.objects import container
from tests.support.watched import RESOURCE

T0, T1, T2 = (f"2026-11-28T04:0{minute}:00Z" for minute in range(3))


def in_order(
    name: str, role: str, index: int, *, attempt: int = 0, created: str = T0
) -> Object:
    """A pod of a JobSet whose two workers are made when its driver is ready."""
    made, prefix = sim_pod(name, npus=8, role=role), "jobset.sigs.k8s.io"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-{role}-0"}
    made["metadata"] |= {
        "labels": {
            f"{prefix}/jobset-name": "train",
            f"{prefix}/jobset-uid": "u",
            f"{prefix}/restart-attempt": f"{attempt}",
            f"{prefix}/replicatedjob-name": role,
            f"{prefix}/job-index": "0",
            "batch.kubernetes.io/job-completion-index": f"{index}",
            "role": role,
        },
        "annotations": {},
        "ownerReferences": [owner | {"uid": f"of-{role}", "controller": True}],
        "creationTimestamp": created,
    }
    return made


def begin_in_order(w: GangWorld) -> None:
    """Let a driver run, for whose two workers nodes are kept."""
    jobs = [
        {
            "name": name,
            "template": {
                "spec": {
                    "parallelism": count,
                    "template": {"spec": {"containers": [container(npus=8)]}},
                }
            },
        }
        for name, count in (("driver", 1), ("workers", 2))
    ]
    policy = {"startupPolicyOrder": "InOrder"}
    found = {"spec": {"startupPolicy": policy, "replicatedJobs": jobs}}
    size = size_of("JobSet", found, [RESOURCE])
    assert size is not None
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/train"
    w.world.calls.sizes[path] = size
    w.add(in_order("d", "driver", 0))
    w.report()
    assert w.run(9, "d") is not None


def succeed(w: GangWorld, name: str) -> None:
    w.pods[name]["status"] = {"phase": "Succeeded"}
    w.show(name)


def run_in_order(w: GangWorld) -> None:
    """Let a driver and its two workers run, of which the first succeeds."""
    begin_in_order(w)
    w.add(*(in_order(f"w{index}", "workers", index) for index in range(2)))
    assert w.run(9, "w0", "w1") is not None
    succeed(w, "w0")


def test_a_driver_is_resumed_with_the_workers_that_have_not_succeeded() -> None:
    with world(3) as w:
        run_in_order(w)
        w.delete("d", "w1")
        w.add(*(sim_pod(f"rival-{n}", job="rival", npus=8) for n in range(2)))
        w.report()
        assert w.run(9, "rival-0", "rival-1") is not None

        w.add(in_order("d2", "driver", 0, created=T1))
        w.report()
        assert w.run(9, "d2") is None

        w.delete("rival-0")
        w.report()
        assert w.run(9, "d2") is not None
        w.add(in_order("w2", "workers", 1, created=T1))
        assert w.run(9, "w2") is not None


def test_a_worker_is_not_bound_beside_a_success_alone() -> None:
    """Its node was kept for it when its driver ended, and rivals take that one's."""
    with world(3) as w:
        begin_in_order(w)
        w.add(in_order("w0", "workers", 0))
        assert w.run_reported(9, "w0") is not None
        succeed(w, "w0")
        w.pods["d"]["metadata"]["deletionTimestamp"] = T2
        w.show("d")
        w.add(in_order("w1", "workers", 1))
        rivals = rival(w)
        w.delete("d")
        assert w.run_reported(30, *rivals) is not None
        w.add(in_order("d2", "driver", 0, created=T1))

        w.run_reported(30)
        assert not {"d2", "w1"} & {*w.bound}

        w.delete(rivals[0])
        assert w.run_reported(60, "d2", "w1") is not None


def test_workers_get_their_nodes_after_a_driver_that_has_succeeded_soon() -> None:
    with world(3) as w:
        begin_in_order(w)
        nodes = {*NODES[:3]} - {*w.bound.values()}
        succeed(w, "d")
        rivals = rival(w)
        for index in range(2):
            w.add(in_order(f"w{index}", "workers", index))
            assert w.run_reported(9, f"w{index}") is not None

        assert {w.bound[f"w{index}"] for index in range(2)} == nodes
        assert not {*rivals} & {*w.bound}


def test_a_pod_that_succeeded_in_an_earlier_attempt_is_missing_in_the_next() -> None:
    with world(4) as w:
        run_in_order(w)
        w.delete("d", "w1")
        w.add(in_order("d2", "driver", 0, attempt=1, created=T1))
        w.report()
        assert w.run(9, "d2") is not None
        (gang,) = w.cache.gangs.values()
        assert gang.part_text == "1 of 3 pods"

        w.delete("w0")

        assert gang.part_text == "1 of 3 pods"
