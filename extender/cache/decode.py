"""Translate objects of the API server into events of the cache."""

import zlib
from collections.abc import Mapping

from msgspec.structs import replace

from extender.cache import events, requests
from extender.gang import fault_policy, membership
from extender.gang.membership import Membership
from kube import objects, pods
from kube.errors import MalformedError
from scheduler_core.products import lookup, table
from scheduler_core.products.table import Product
from scheduler_core.wire import deviceinfo, inventory, quantities, switches
from scheduler_core.wire.annotations import parse_count
from scheduler_core.wire.pods import NpuPod

#: Resources of whole chips, without duplicates.
CHIP_RESOURCES: tuple[str, ...] = tuple(
    dict.fromkeys(product.resource for product in table.PRODUCTS)
)
#: All resource names that pods may request.
RESOURCES: tuple[str, ...] = (*CHIP_RESOURCES, *lookup.STATIC_PARTS)

#: {resource of whole chips: beginning of the names of its chips}
_CHIP_PREFIXES = {row.resource: row.chip_prefix for row in table.PRODUCTS}

_REPORT_PREFIX = deviceinfo.configmap_name("")

#: Annotation of a Node with its SuperPoD; agents write it.
SUPERPOD_ID = "superPodID"

#: Finalizers of controllers for which a pod that ends with success is done, though it
#: was being deleted. The Job controller removes its own before that from a pod that it
#: has counted as failed, because it is being deleted.
#:
#: Source:
#:     kubernetes v1.36 pkg/controller/job `getValidPodsWithFilter`, `isPodFailed`;
#:     kueue v0.18 pkg/controller/jobs/pod `isPodRunnableOrSucceeded`.
_COUNTING = frozenset({"batch.kubernetes.io/job-tracking", "kueue.x-k8s.io/managed"})

#: Reasons of a kubelet that rejects a pod at admission.
_REJECTIONS = ("UnexpectedAdmissionError", "TopologyAffinityError")
#: Prefix of the reason for an exhausted resource: `OutOfhuawei.com/Ascend910`.
_REJECTION_PREFIX = "OutOf"


def npu_pod(pod: objects.Pod) -> NpuPod | None:
    """Reduce a pod to an `NpuPod`; return None if it asks for no NPU of `RESOURCES`.

    A pod that asks for several NPU resources fits no node. Its `NpuPod` has only the
    first of them in the order of `RESOURCES`.
    """
    limited: set[str] = set()
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        limited.update(container.resources.limits or ())
    if limited.isdisjoint(RESOURCES):
        return None  # most pods of a cluster end here
    npu_pods = (
        pods.npu_pod(pod, resource) for resource in RESOURCES if resource in limited
    )
    return next((resource for resource in npu_pods if resource is not None), None)


def pod_change(pod: objects.Pod) -> events.PodShown:
    """Return the event that puts the present state of a pod into the cache.

    A pod with NPUs gives `PodUpdated`. A pod without NPUs gives `OtherPodUpdated` while
    it lives, and `PodDeleted` once it has failed or succeeded.
    """
    ours = npu_pod(pod)
    if ours is None:
        return _other(pod)
    # pods with parts of chips do not talk over the network: each is planned by itself
    is_part = ours.shape.resource in lookup.STATIC_PARTS
    member = None if is_part else membership.member(pod, ours.problem)
    return events.PodUpdated(
        pod=ours,
        rejected=_is_rejected(pod.status),
        ask=requests.pod_requests(pod),
        member=member,
        other_membership=membership.membership(pod) if is_part else None,
        priority=pod.spec.priority or 0,
        row=_row_asked_for(pod, ours.shape.resource),
        wishes=fault_policy.read_wishes(pod, member),
        is_uncounted=not _COUNTING.isdisjoint(pod.metadata.finalizers or ()),
    )


def _row_asked_for(pod: objects.Pod, resource: str) -> Product | None:
    row = lookup.resolve_job(resource, membership.traits_of(pod))
    return None if isinstance(row, str) else row


def template_change(
    template: Mapping[str, object], namespace: str
) -> events.PodUpdated | None:
    """Return the event of a pod as a controller would make it from a template.

    Name, UID and place in a job are empty. None if the template is malformed, or asks
    for no NPU.
    """
    try:
        pod = objects.convert(template, objects.Pod)
    except MalformedError:
        return None
    pod = replace(pod, metadata=replace(pod.metadata, namespace=namespace))
    ours = npu_pod(pod)
    if ours is None:
        return None
    member = membership.member_of(pod, Membership(job=""))
    return events.PodUpdated(pod=ours, ask=requests.pod_requests(pod), member=member)


def _other(pod: objects.Pod) -> events.OtherPodUpdated | events.PodDeleted:
    uid = pod.metadata.uid
    if pod.status.phase in {"Failed", "Succeeded"}:
        return events.PodDeleted(uid=uid)
    place = membership.membership(pod) or Membership(job="")
    return events.OtherPodUpdated(
        uid=uid,
        node=pod.spec.node_name,
        ask=requests.pod_requests(pod),
        job=place.job,
        generation=place.generation,
        created=pod.metadata.creation_timestamp or "",
        deleting=pod.metadata.deletion_timestamp is not None,
    )


def node_change(node: objects.Node) -> events.NodeUpdated:
    """Return the event that puts the present state of a Node into the cache."""
    return events.NodeUpdated(
        name=node.metadata.name,
        offers=tuple(
            events.Offer(
                resource=resource,
                product=lookup.find_node_row(resource, node.labels),
                allocatable=quantities.count(node.allocatable.get(resource, 0)),
            )
            for resource in _resources(node)
        ),
        inventory=node.annotations.get(inventory.BASE_DEVICE_INFOS, ""),
        allocatable_resources=requests.node_allocatable(node.allocatable),
        internal_ips=node.internal_ips,
        superpod=_superpod(node.annotations.get(SUPERPOD_ID, "")),
        labels=node.labels,
        taints=node.taints,
        marks=_marks(node),
    )


def _marks(node: objects.Node) -> int:
    """Return a number for labels and taints of a Node; 0 if it has none."""
    spec = node.spec
    marks = node.labels, spec.taints or (), spec.unschedulable
    return zlib.crc32(objects.encode(marks)) if any(marks) else 0


def _superpod(text: str) -> int:
    number = parse_count(text)
    return -1 if number is None else number


def report_change(
    report: objects.ConfigMap, *, is_deleted: bool = False
) -> events.ReportUpdated | None:
    """Return the event for a change of a ConfigMap `mindx-dl-deviceinfo-<node>`.

    None if the ConfigMap has another name.
    """
    name = report.metadata.name
    if not name.startswith(_REPORT_PREFIX):
        return None
    texts = {} if is_deleted else report.data or {}
    return events.ReportUpdated(
        node=name.removeprefix(_REPORT_PREFIX),
        device_info=texts.get(deviceinfo.DEVICE_INFO_KEY, ""),
        affinity=texts.get(deviceinfo.AFFINITY_KEY, ""),
    )


def switches_change(config_map: objects.ConfigMap | None) -> events.SwitchesUpdated:
    """Return the event for `basic-tor-node-cm`, which lists the leaf switches.

    Args:
        config_map: The present ConfigMap; None if it was deleted.
    """
    texts = (config_map.data if config_map else None) or {}
    return events.SwitchesUpdated(
        tor_info=texts.get(switches.TOR_INFO_KEY, ""),
        tor_level=texts.get(switches.TOR_LEVEL_KEY, ""),
    )


def _resources(node: objects.Node) -> list[str]:
    """Return the NPU resources of a node: those of chips, then those of parts.

    Parts with a capacity of 0 count if they are named: the plugin may be back soon.
    """
    listed = node.annotations.get(inventory.BASE_DEVICE_INFOS, "")
    parts = [
        resource
        for resource in lookup.STATIC_PARTS
        if resource in node.capacity
        and (
            quantities.count(node.capacity[resource])
            or f'"{resource.rpartition("/")[2]}-' in listed
        )
    ]
    return [*_chip_resources(node), *parts]


def _chip_resources(node: objects.Node) -> list[str]:
    """Return the resources of a node's whole chips.

    A removed device plugin leaves its resource in the Node, with a capacity of 0. So
    the Node's second and later resources are left out if they have a capacity of 0
    and no chips in the annotation `baseDeviceInfos`.
    """
    listed = node.annotations.get(inventory.BASE_DEVICE_INFOS)
    offered = [
        resource
        for resource in CHIP_RESOURCES
        if resource in node.capacity or resource in node.allocatable
    ]
    if len(offered) == 1 or (not offered and listed is None):
        return offered
    named = [
        resource
        for resource, prefix in _CHIP_PREFIXES.items()
        if listed and f'"{prefix}' in listed
    ]
    if not offered:
        return named or [*CHIP_RESOURCES[:1]]
    return [
        resource
        for at, resource in enumerate(offered)
        if not at
        or resource in named
        or quantities.count(node.capacity.get(resource, 0))
    ]


def _is_rejected(status: objects.PodStatus) -> bool:
    return status.phase == "Failed" and (
        status.reason in _REJECTIONS or status.reason.startswith(_REJECTION_PREFIX)
    )
