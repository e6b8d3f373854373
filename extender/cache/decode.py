"""From what the API server shows to what the cache understands: pure translation."""

from extender.cache import events, requests
from extender.gang import membership
from kube import objects, pods
from scheduler_core.products import lookup, table
from scheduler_core.products.table import Product
from scheduler_core.wire import deviceinfo, inventory, switches
from scheduler_core.wire.pods import NpuPod

#: The resources that pods may ask us for, each once.
RESOURCES: tuple[str, ...] = tuple(
    dict.fromkeys(product.resource for product in table.PRODUCTS)
)

_REPORT_PREFIX = deviceinfo.configmap_name("")

#: Of a Node: the SuperPoD that it is of, as agents write it.
SUPERPOD_ID = "superPodID"

#: Reasons with which a kubelet refuses to admit a pod for what it asks of the node.
_REJECTIONS = ("UnexpectedAdmissionError", "TopologyAffinityError")
#: … and their form for a resource that ran out: `OutOfhuawei.com/Ascend910`.
_REJECTION_PREFIX = "OutOf"


def npu_pod(pod: objects.Pod) -> NpuPod | None:
    """The pod as the core sees it; None if it asks for no NPU that we serve.

    One that asks for several kinds is of the first, and goes nowhere.
    """
    limited: set[str] = set()
    for one in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        limited.update(one.resources.limits or ())
    if limited.isdisjoint(RESOURCES):
        return None  # most pods of a cluster end here
    asking = (pods.npu_pod(pod, each) for each in RESOURCES if each in limited)
    return next((each for each in asking if each is not None), None)


def pod_change(
    pod: objects.Pod,
) -> events.PodSeen | events.OtherSeen | events.PodGone:
    """A pod as the watch shows it; one without NPUs counts for as long as it lives."""
    ours = npu_pod(pod)
    if ours is None:
        return _other(pod)
    return events.PodSeen(
        pod=ours,
        rejected=_is_rejected(pod.status),
        ask=requests.of_pod(pod),
        seat=membership.seat(pod),
        priority=pod.spec.priority or 0,
    )


def _other(pod: objects.Pod) -> events.OtherSeen | events.PodGone:
    uid = pod.metadata.uid
    if pod.status.phase in {"Failed", "Succeeded"}:
        return events.PodGone(uid=uid)
    found = membership.membership(pod)
    return events.OtherSeen(
        uid=uid,
        node=pod.spec.node_name,
        ask=requests.of_pod(pod),
        job=found.job if found else "",
    )


def node_change(node: objects.Node) -> events.NodeSeen:
    """A node as the watch shows it."""
    lines = [
        events.Offer(
            product=row, allocatable=_whole(node.allocatable.get(row.resource, 0))
        )
        for row in _products(node)
    ]
    return events.NodeSeen(
        name=node.metadata.name,
        product=lines[0].product if lines else None,
        inventory=node.annotations.get(inventory.BASE_DEVICE_INFOS, ""),
        allocatable=lines[0].allocatable if lines else 0,
        beside=tuple(lines[1:]),
        room=requests.of_node(node.allocatable),
        address=node.internal_ip,
        superpod=_superpod(node.annotations.get(SUPERPOD_ID, "")),
    )


def _superpod(text: str) -> int:
    is_id = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if is_id else -1


def report_change(report: objects.ConfigMap) -> events.ReportSeen | None:
    """An agent's ConfigMap as the watch shows it; None if it is another's."""
    node = _node_of(report)
    if node is None:
        return None
    texts = report.data or {}
    return events.ReportSeen(
        node=node,
        device_info=texts.get(deviceinfo.DEVICE_INFO_KEY, ""),
        affinity=texts.get(deviceinfo.AFFINITY_KEY, ""),
    )


def report_gone(report: objects.ConfigMap) -> events.ReportSeen | None:
    """An agent's ConfigMap that was deleted; None if it is another's."""
    node = _node_of(report)
    return None if node is None else events.ReportSeen(node=node)


def switches_change(found: objects.ConfigMap | None) -> events.SwitchesSeen:
    """The ConfigMap of the leaf switches as the watch shows it; None: it is gone."""
    texts = (found.data if found else None) or {}
    return events.SwitchesSeen(
        tor_info=texts.get(switches.TOR_INFO_KEY, ""),
        tor_level=texts.get(switches.TOR_LEVEL_KEY, ""),
    )


def _node_of(report: objects.ConfigMap) -> str | None:
    """The node that an agent's ConfigMap speaks of; None if it is another's."""
    name = report.metadata.name
    if not name.startswith(_REPORT_PREFIX):
        return None
    return name.removeprefix(_REPORT_PREFIX)


def _products(node: objects.Node) -> list[Product]:
    """What the node has: its kubelet offers the resource, or its agent is known.

    What the kubelet does not offer yet, the agent's list of chips tells by their
    names; of a list that names none we take the first product that the labels allow.
    A resource that is left over of a device plugin that has gone is no line beside
    another.
    """
    of_labels = [lookup.of_node(resource, node.labels) for resource in RESOURCES]
    rows = [row for row in of_labels if row is not None]
    listed = node.annotations.get(inventory.BASE_DEVICE_INFOS)
    offered = [
        row
        for row in rows
        if row.resource in node.capacity or row.resource in node.allocatable
    ]
    if len(offered) == 1 or (not offered and listed is None):
        return offered
    named = [row for row in rows if listed and f'"{row.chip_prefix}' in listed]
    if not offered:
        return named or rows[:1]
    return [
        row
        for at, row in enumerate(offered)
        if not at or row in named or _whole(node.capacity.get(row.resource, 0))
    ]


def _whole(quantity: objects.Quantity) -> int:
    try:
        return int(quantity)
    except ValueError:
        return 0


def _is_rejected(status: objects.PodStatus) -> bool:
    return status.phase == "Failed" and (
        status.reason in _REJECTIONS or status.reason.startswith(_REJECTION_PREFIX)
    )
