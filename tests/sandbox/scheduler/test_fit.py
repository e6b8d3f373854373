from typing import Any

from sandbox.apiclient import Object
from sandbox.pods import Pod, pod_of
from sandbox.scheduler.fit import Load, Misfit, misfit, text
from tests.support import objects

CHIPS = "huawei.com/Ascend910"
EMPTY = Load(pods=0, requests={})


def pod(count: int = 1, **spec: Any) -> Pod:
    return pod_of(objects.pod("p", count, meta={"uid": "u"}, **spec))


def node(allocatable: int = 8, **spec: object) -> Object:
    status = objects.offered(**{CHIPS: str(allocatable), "pods": "110"})
    return {**objects.node("n", labels={"zone": "a"}), "spec": spec, **status}


def test_enough_free_devices_fit() -> None:
    assert misfit(pod(8), node(8), EMPTY) is None


def test_devices_that_others_have_can_be_freed_by_eviction() -> None:
    load = Load(pods=1, requests={CHIPS: 5})

    assert misfit(pod(4), node(8), load) == Misfit(
        reasons=(f"Insufficient {CHIPS}",), is_unresolvable=False
    )


def test_devices_that_the_node_lacks_cannot() -> None:
    assert misfit(pod(9), node(8), EMPTY) == Misfit(
        reasons=(f"Insufficient {CHIPS}",), is_unresolvable=True
    )


def test_every_insufficient_resource_is_told() -> None:
    load = Load(pods=110, requests={CHIPS: 8})

    assert misfit(pod(1), node(8), load) == Misfit(
        reasons=("Too many pods", f"Insufficient {CHIPS}"), is_unresolvable=False
    )


def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    tolerant = {"operator": "Exists"}
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned = node(unschedulable=True, taints=[taint])

    assert misfit(pod(), cordoned, EMPTY) == Misfit(
        reasons=("node(s) were unschedulable",), is_unresolvable=True
    )
    assert misfit(pod(tolerations=[tolerant]), cordoned, EMPTY) is None


def test_taints_want_toleration() -> None:
    taint = {"key": "npu", "value": "broken", "effect": "NoSchedule"}
    tainted = node(taints=[taint])
    equal = {"key": "npu", "value": "broken", "effect": "NoSchedule"}

    assert misfit(pod(), tainted, EMPTY) == Misfit(
        reasons=("node(s) had untolerated taint(s)",), is_unresolvable=True
    )
    assert misfit(pod(tolerations=[equal]), tainted, EMPTY) is None
    assert misfit(pod(tolerations=[equal | {"value": "x"}]), tainted, EMPTY) is not None


def test_a_node_selector_chooses_by_label() -> None:
    assert misfit(pod(nodeSelector={"zone": "a"}), node(), EMPTY) is None
    assert misfit(pod(nodeSelector={"zone": "b"}), node(), EMPTY) == Misfit(
        reasons=("node(s) didn't match Pod's node affinity/selector",),
        is_unresolvable=True,
    )


def test_reasons_add_up_and_are_sorted_as_texts() -> None:
    misfits = {
        f"ring-{i}": Misfit(
            reasons=("no HCCS ring has 4 free chips",), is_unresolvable=i == 0
        )
        for i in range(12)
    } | {
        f"full-{i}": Misfit(reasons=(f"Insufficient {CHIPS}",), is_unresolvable=False)
        for i in range(2)
    }

    assert text(14, misfits) == (
        "0/14 nodes are available: 12 no HCCS ring has 4 free chips, "
        "2 Insufficient huawei.com/Ascend910. preemption: 0/14 nodes are available: "
        "1 Preemption is not helpful for scheduling, "
        "13 No preemption victims found for incoming pod."
    )
