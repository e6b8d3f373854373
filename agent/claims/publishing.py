"""What the annotations have to say, and in which order they are rewritten.

They follow the mount: a pod whose containers were all found gets the chips
that it holds, a pod that is still to be served gets the chips of its slot.
At no moment of a correction is a held chip claimed by nobody, nor one that is
to be served: a holder's AscendReal is written first, then the claims, each
only when the chips that it gives up stand somewhere else already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.claims import occupancy, values
from agent.claims.values import Hold, Ledger
from scheduler_core import chips as chip_sets
from scheduler_core.shapes import ContainerKind
from scheduler_core.wire import annotations, configuration
from scheduler_core.wire.deviceinfo import Affinity
from scheduler_core.wire.pods import NpuPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Annotations to set on one pod, by its uid."""

    uid: str
    namespace: str
    name: str
    resource: str  #: that the pod asks for
    annotations: Mapping[str, str]


def patches(ledger: Ledger, *, host_ip: str) -> tuple[Patch, ...]:
    """Return the patches that may be sent now, at most one for each pod.

    When they are acknowledged (the pods seen again), ask again, until there
    are none.

    Args:
        ledger: The state.
        host_ip: The node's InternalIP, for the configuration JSON.
    """
    real, claims = [], []
    for uid in sorted(ledger.slots.keys() | _owners(ledger)):
        pod = ledger.pods.get(uid)
        if pod is None or pod.terminal:
            continue
        truth = _truth(ledger, pod, host_ip)
        claim = _claim(ledger, pod)
        if _differs(pod, truth):
            # both at once, unless the claim changes hands
            both = not claim or claim.get(
                ledger.product.resource
            ) == pod.annotations.get(ledger.product.resource)
            real.append(_patch(pod, {**truth, **claim} if both else truth))
        elif _differs(pod, claim):
            claims.append(_patch(pod, claim))
    safe = [each for each in claims if _is_safe(ledger, each)]
    return tuple(real + safe)


def affinity(ledger: Ledger) -> Affinity:
    """Return what the scheduler has to know beyond the annotations."""
    lost = 0
    for hold in ledger.holds.values():
        if hold.lost:
            lost |= hold.mask
    for uid in ledger.bare & ledger.slots.keys():
        lost |= ledger.slots[uid].chips
    return Affinity(
        held=chip_sets.ids_of(values.held(ledger)),
        releasing=chip_sets.ids_of(values.releasing(ledger)),
        sequence=ledger.sequence,
        lost=chip_sets.ids_of(lost),
    )


def _owners(ledger: Ledger) -> set[str]:
    return {hold.owner.uid for hold in ledger.holds.values() if hold.owner}


def _is_served(ledger: Ledger, pod: NpuPod) -> bool:
    """Tell whether all containers of a pod are known to have their chips."""
    found = {hold.need for hold in values.holds_of_pod(ledger, pod.uid)}
    return values.WHOLE_POD in found or found >= {
        index
        for index, need in enumerate(pod.needs)
        if need.kind is not ContainerKind.INIT
    }


def _truth(ledger: Ledger, pod: NpuPod, host_ip: str) -> dict[str, str]:
    """Return the keys that tell what a pod has got; empty while that is open."""
    mine = values.holds_of_pod(ledger, pod.uid)
    if not mine or not _is_served(ledger, pod):
        return {}
    ids = sorted({kubelet_id for hold in mine for kubelet_id in hold.kubelet_ids})
    truth = {annotations.KLT_DEV: ",".join(ids)}
    if any(hold.reserved for hold in mine):
        return truth  # what was mounted is not certain: claim nothing
    chips = sorted({chip for hold in mine for chip in hold.chips})
    truth[annotations.ASCEND_REAL] = annotations.render_chips(
        chips, ledger.product, lexicographic=True
    )
    truth[annotations.CONFIGURATION] = configuration.render(
        pod_name=pod.name, pod_uid=pod.uid, host_ip=host_ip, chips=chips
    )
    return truth


def _claim(ledger: Ledger, pod: NpuPod) -> dict[str, str]:
    """Return the keys of the claim: chips, and that it was served."""
    mine = values.holds_of_pod(ledger, pod.uid)
    resource = ledger.product.resource
    if mine and _is_served(ledger, pod):
        claim = {annotations.PREDICATE_TIME: str(annotations.SERVED)}
        if not any(hold.reserved for hold in mine):
            got = sorted({chip for hold in mine for chip in hold.chips})
            claim[resource] = annotations.render_chips(got, ledger.product)
        elif resource not in pod.annotations:
            return {}  # nobody has claimed anything for it
        return claim
    slot = ledger.slots.get(pod.uid)
    if slot is None or slot.unplanned:
        return {}
    chips = chip_sets.ids_of(slot.chips | _mask(mine))
    if len(chips) != pod.total:
        return {}  # it got something else than its shape says: wait for the rest
    return {resource: annotations.render_chips(chips, ledger.product)}


def _mask(holds: Iterable[Hold]) -> int:
    return chip_sets.mask_of({chip for hold in holds for chip in hold.chips})


def _differs(pod: NpuPod, wanted: Mapping[str, str]) -> bool:
    return any(pod.annotations.get(key) != text for key, text in wanted.items())


def _patch(pod: NpuPod, wanted: Mapping[str, str]) -> Patch:
    changed = {
        key: text for key, text in wanted.items() if pod.annotations.get(key) != text
    }
    return Patch(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        resource=pod.shape.resource,
        annotations=changed,
    )


def _is_safe(ledger: Ledger, patch: Patch) -> bool:
    """Tell whether the chips that a claim gives up stand elsewhere already."""
    text = patch.annotations.get(ledger.product.resource)
    if text is None:
        return True
    pod = ledger.pods[patch.uid]
    after = chip_sets.mask_of(annotations.parse_chips(text, ledger.product))
    gives_up = occupancy.annotated(ledger, pod) & ~after
    wanted = 0
    for uid, slot in ledger.slots.items():
        if uid != pod.uid and values.is_alive(ledger, uid):
            wanted |= slot.chips
    for hold in ledger.holds.values():
        owner = hold.owner.uid if hold.owner is not None else ""
        if owner != pod.uid and values.is_alive(ledger, owner):
            wanted |= hold.mask
    elsewhere = 0
    for other in ledger.pods.values():
        if other.uid != pod.uid and not other.terminal:
            elsewhere |= occupancy.annotated(ledger, other)
    return not gives_up & wanted & ~elsewhere
