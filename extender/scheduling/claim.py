"""What bind writes on a pod: its chips, and what other programs read of its place.

The agent writes what was mounted later, over it. Of a pod that gets all chips of its
node, the configuration is certain before they are mounted, so that a training operator
need not wait for it; byte for byte as the agent writes it.
"""

from extender.cache.events import Assumed
from extender.cache.node_record import Record
from scheduler_core.node import chips
from scheduler_core.placement import job_rules
from scheduler_core.products import lookup
from scheduler_core.wire import annotations, configuration, job_kind_marks
from scheduler_core.wire.job_kind_marks import Marks
from scheduler_core.wire.pods import NpuPod


def alone(record: Record, pod: NpuPod) -> dict[str, str]:
    """What is written, besides chips, on a pod that is a job by itself."""
    rank = job_rules.rank_to_write(
        0,
        written=pod.annotations.get(job_kind_marks.RANK_INDEX, ""),
        owner_kind=pod.owner.partition("/")[0],
        of_minimum=False,
    )
    asks_superpod = any(key == lookup.SP_BLOCK for key, _ in pod.shape.choice)
    superpod = record.report.superpod if asks_superpod and record.report else -1
    return job_kind_marks.render(
        Marks(
            rank=rank or "",
            superpod_rank=0 if superpod >= 0 else -1,
            superpod=superpod,
        )
    )


def on_pod(record: Record, pod: NpuPod, promise: Assumed) -> dict[str, str]:
    """All annotations that bind writes on a pod which gets what it was promised."""
    product = record.product
    if product is None:
        raise TypeError(f"{record.host.name!r} has chips but no product")
    return {
        product.resource: annotations.render_chips(
            chips.ids_of(promise.chips), product
        ),
        annotations.PREDICATE_TIME: str(promise.predicate_time),
        **promise.extra,
        **_of_whole_node(record, pod, promise),
    }


def _of_whole_node(record: Record, pod: NpuPod, promise: Assumed) -> dict[str, str]:
    """The configuration, if the pod gets all chips that the node has."""
    if promise.chips.bit_count() != record.allocatable:
        return {}
    addresses = record.addresses()
    if addresses is None or chips.mask_of(addresses.chips) != promise.chips:
        return {}
    text = configuration.render(
        pod_name=pod.name,
        pod_uid=pod.uid,
        host_ip=record.host.address,
        chips=chips.ids_of(promise.chips),
        addresses=addresses,
    )
    return {annotations.configuration_key(pod.shape.resource): text}
