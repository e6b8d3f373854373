"""Annotations that bind writes on a pod: chips, rank, SuperPoD and configuration.

The configuration is a JSON text with the addresses of the pod's chips, which training
operators read. After mounting chips, the agent overwrites the chips and the
configuration with those of the mounted chips. Bind writes the configuration only for a
pod that gets all chips of its node. For such a pod, training operators need not wait
for the agent.
"""

from extender.cache.node_state import ResourceState
from extender.cache.reservations import Reservation
from scheduler_core.node import chips
from scheduler_core.placement import job_rules
from scheduler_core.products import lookup
from scheduler_core.wire import annotations, configuration, job_annotations
from scheduler_core.wire.job_annotations import Marks
from scheduler_core.wire.pods import NpuPod


def alone(resource_state: ResourceState, pod: NpuPod) -> dict[str, str]:
    """Return the annotations on rank, SuperPoD and `distributed-job` for a one-pod job.

    Those of the SuperPoD are included only if the pod has the annotation `sp-block`.
    """
    rank = job_rules.choose_rank_annotation(
        0,
        annotation=pod.annotations.get(job_annotations.RANK_INDEX, ""),
        owner_kind=pod.owner.partition("/")[0],
        of_minimum=False,
    )
    asks_superpod = any(key == lookup.SP_BLOCK for key, _ in pod.shape.choice)
    superpod = (
        resource_state.report.superpod
        if asks_superpod and resource_state.report
        else -1
    )
    return job_annotations.render(
        Marks(
            rank=rank or "",
            superpod_rank=0 if superpod >= 0 else -1,
            superpod=superpod,
        )
    )


def on_pod(
    resource_state: ResourceState, pod: NpuPod, reservation: Reservation
) -> dict[str, str]:
    """Return all annotations that bind writes on a pod for its reserved chips.

    None where the kubelet alone chooses: a claim would name parts that are not there.
    """
    product, claim = resource_state.product, reservation.claim
    if product is None or claim is None:
        raise TypeError(f"{resource_state.node_info.name!r} has no chips for a bind")
    if resource_state.is_counted:
        return {}
    return {
        product.resource: annotations.render_chips(
            chips.ids_of(reservation.chips), product
        ),
        annotations.PREDICATE_TIME: str(claim.predicate_time),
        **claim.annotations,
        **_of_whole_node(resource_state, pod, reservation),
    }


def _of_whole_node(
    resource_state: ResourceState, pod: NpuPod, reservation: Reservation
) -> dict[str, str]:
    """Return {annotation key: configuration} for a pod with all chips of its node.

    Return {} for any other pod, and if the address of the node or the network addresses
    of the chips are unknown. The agent then writes it later. So it does for parts of
    chips, which have no addresses.
    """
    product = resource_state.product
    is_of_parts = product is not None and product.chip_row is not None
    if is_of_parts or reservation.chips.bit_count() != resource_state.allocatable:
        return {}
    addresses = resource_state.addresses()
    if addresses is None or chips.mask_of(addresses.chips) != reservation.chips:
        return {}
    if not resource_state.node_info.internal_ips:
        return {}
    text = configuration.render(
        pod_name=pod.name,
        pod_uid=pod.uid,
        host_ip=resource_state.node_info.internal_ips[0],
        chips=chips.ids_of(reservation.chips),
        addresses=addresses,
    )
    return {annotations.configuration_key(pod.shape.resource): text}
