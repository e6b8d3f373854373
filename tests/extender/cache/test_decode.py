from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from extender.cache import decode, events
from extender.cache.requests import ONE_POD
from kube import objects
from scheduler_core.products.table import ATLAS_800_TRAINING
from tests.support.watched import CARD, CARDS, RESOURCE


def node(listed: str | None = None, **status: dict[str, Any]) -> objects.Node:
    """A node; its agent has listed these chips."""
    listing = {} if listed is None else {"baseDeviceInfos": listed}
    meta = {"name": "n1", "annotations": listing}
    return msgspec.convert({"metadata": meta, "status": status}, objects.Node)


def pod(phase: str, reason: str = "", *, asks: bool = True) -> objects.Pod:
    limits = {RESOURCE: "1"} if asks else {}
    found = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": phase, "reason": reason},
    }
    return msgspec.convert(found, objects.Pod)


def configmap(name: str, **data: str) -> objects.ConfigMap:
    found = {"metadata": {"name": name, "namespace": "kube-system"}, "data": data}
    return msgspec.convert(found, objects.ConfigMap)


def test_a_node_with_the_resource_has_its_product() -> None:
    assert decode.node_change(node(allocatable={RESOURCE: "7"})) == events.NodeUpdated(
        name="n1",
        offers=(
            events.Offer(
                resource=ATLAS_800_TRAINING.resource,
                product=ATLAS_800_TRAINING,
                allocatable=7,
            ),
        ),
    )


def test_what_a_node_offers_besides_chips_is_counted() -> None:
    found = decode.node_change(node(allocatable={"cpu": "4", "memory": "2Gi"}))

    assert found.allocatable_resources[:2] == (4000, 2 << 30)


def test_a_node_without_npus_is_none_of_ours() -> None:
    assert decode.node_change(node(allocatable={})) == events.NodeUpdated(name="n1")


def test_a_node_whose_agent_is_known_is_ours_before_its_kubelet_offers_chips() -> None:
    assert decode.node_change(node("{}")) == events.NodeUpdated(
        name="n1",
        offers=(
            events.Offer(
                resource=ATLAS_800_TRAINING.resource, product=ATLAS_800_TRAINING
            ),
        ),
        inventory="{}",
    )


@pytest.mark.parametrize(
    ("quantity", "count"), [("1k", 1000), ("8500m", 0), ("much", 0)]
)
def test_a_quantity_that_is_no_count_offers_nothing(quantity: str, count: int) -> None:
    found = decode.node_change(node(allocatable={RESOURCE: quantity}))

    assert found.offers[0].allocatable == count


@pytest.mark.parametrize(
    ("phase", "reason", "is_rejected"),
    [
        ("Failed", "UnexpectedAdmissionError", True),
        ("Failed", "OutOfhuawei.com/Ascend910", True),
        ("Failed", "TopologyAffinityError", True),
        ("Failed", "Evicted", False),
        ("Failed", "", False),
        ("Running", "UnexpectedAdmissionError", False),
    ],
)
def test_only_what_the_kubelet_would_not_admit_is_a_rejection(
    phase: str, reason: str, *, is_rejected: bool
) -> None:
    found = decode.pod_change(pod(phase, reason))

    assert isinstance(found, events.PodUpdated)
    assert found.rejected is is_rejected


def test_a_pod_without_npus_takes_room_while_it_lives() -> None:
    assert decode.pod_change(pod("Running", asks=False)) == events.OtherPodUpdated(
        uid="u", node="", ask=ONE_POD
    )
    assert decode.pod_change(pod("Failed", asks=False)) == events.PodDeleted(uid="u")


@pytest.mark.parametrize(
    ("finalizer", "is_uncounted"),
    [
        ("batch.kubernetes.io/job-tracking", True),
        ("kueue.x-k8s.io/managed", True),
        ("foregroundDeletion", False),
    ],
)
def test_a_controller_that_counts_how_a_pod_ends_keeps_it(
    finalizer: str, *, is_uncounted: bool
) -> None:
    found = pod("Running")
    meta = replace(found.metadata, finalizers=[finalizer])

    change = decode.pod_change(replace(found, metadata=meta))

    assert isinstance(change, events.PodUpdated)
    assert change.is_uncounted is is_uncounted


def test_a_device_configmap_speaks_of_its_node() -> None:
    found = configmap("mindx-dl-deviceinfo-n1", DeviceInfoCfg="a", AscendAffinity="b")

    assert decode.report_change(found) == events.ReportUpdated(
        node="n1", device_info="a", affinity="b"
    )
    assert decode.report_change(found, is_deleted=True) == events.ReportUpdated(
        node="n1"
    )


def test_another_configmap_with_that_label_is_passed_by() -> None:
    assert decode.report_change(configmap("mindx-dl-other")) is None
    assert decode.report_change(configmap("mindx-dl-other"), is_deleted=True) is None


def test_a_node_that_offers_two_resources_has_two_products() -> None:
    has = {RESOURCE: "8", CARD: "2"}
    found = node(capacity=has, allocatable=has | {RESOURCE: "7"})

    assert decode.node_change(found) == events.NodeUpdated(
        name="n1",
        offers=(
            events.Offer(
                resource=ATLAS_800_TRAINING.resource,
                product=ATLAS_800_TRAINING,
                allocatable=7,
            ),
            events.Offer(resource=CARDS.resource, product=CARDS, allocatable=2),
        ),
    )


def test_what_the_kubelet_does_not_offer_yet_is_told_by_the_names_of_chips() -> None:
    found = decode.node_change(node('{"Ascend310P-8":{},"Ascend910-0":{}}'))

    assert found.offers == (
        events.Offer(resource=ATLAS_800_TRAINING.resource, product=ATLAS_800_TRAINING),
        events.Offer(resource=CARDS.resource, product=CARDS),
    )


@pytest.mark.parametrize(
    ("listed", "lines"), [("", 1), ('{"Ascend310P-8":{}}', 2), ('{"x":{}}', 1)]
)
def test_a_resource_of_a_plugin_that_has_gone_is_no_line(
    listed: str, lines: int
) -> None:
    has = {RESOURCE: "8", CARD: "0"}
    found = decode.node_change(node(listed, capacity=has, allocatable=has))

    assert len(found.offers) == lines


def test_a_pod_that_asks_for_two_kinds_goes_nowhere_and_says_why() -> None:
    asked = ({RESOURCE: "1"}, {CARD: "1"})
    for limits in ([asked[0] | asked[1]], asked):
        some = [
            {"name": f"c{at}", "resources": {"limits": each}}
            for at, each in enumerate(limits)
        ]
        found = {"metadata": {"name": "p"}, "spec": {"containers": some}}

        made = decode.npu_pod(msgspec.convert(found, objects.Pod))

        assert made is not None
        assert made.shape.resource == RESOURCE
        assert made.problem == (
            "a pod gets NPUs of one kind: ask for huawei.com/Ascend910 or "
            "huawei.com/Ascend310P"
        )
