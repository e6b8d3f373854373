"""What the annotations have to say, and in which order they are rewritten.

They follow the mount: a pod whose containers were all found gets the chips
that it holds, a pod that is still to be served gets the chips of its slot.
At no moment of a correction is a held chip claimed by nobody, nor one that is
to be served: a holder's AscendReal is written first, then the claims, each
only when the chips that it gives up stand somewhere else already.
"""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from agent.claims import occupancy, values
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations, configuration
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.deviceinfo import Affinity
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind

#: Of a node of which nobody has said anything.
NOWHERE = Addresses()
#: What the annotations of one pod follow from: the pod, its slot and its holds.
Basis = tuple[NpuPod | None, Slot | None, tuple[Hold, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Annotations to set on one pod, by its uid."""

    uid: str
    namespace: str
    name: str
    resource: str  #: that the pod asks for
    annotations: Mapping[str, str]


def patches(
    ledger: Ledger,
    *,
    host_ip: str,
    addresses: Addresses = NOWHERE,
    unsure: Collection[str] = (),
    right: AbstractSet[str] = frozenset(),
) -> tuple[Patch, ...]:
    """Return the patches that may be sent now, at most one for each pod.

    They may land in any order, and any of them may not land at all. When they
    are acknowledged (the pods seen again), ask again, until there are none.

    Args:
        ledger: The state.
        host_ip: The node's InternalIP, for the configuration JSON.
        addresses: Of the node and its chips, for the same.
        unsure: Uids of pods that may have been patched without our knowing.
        right: Uids of pods that are known to say what they have to.
    """
    batch: list[Patch] = []
    for uid in sorted(concerned(ledger) - right):
        pod = ledger.pods.get(uid)
        if pod is None or pod.terminal:
            continue
        truth = _truth(ledger, pod, host_ip, addresses)
        claim = _claim(ledger, pod)
        if not _patch(pod, {**truth, **claim}).annotations:
            continue
        # what was mounted comes first; a container that was made anew on other
        # chips has to be claimed before its old chips are let go
        for wanted in ({**truth, **claim}, truth, claim):
            patch = _patch(pod, wanted)
            if patch.annotations and _is_safe(ledger, patch, batch, unsure):
                batch.append(patch)
                break
    return tuple(batch)


def concerned(ledger: Ledger) -> set[str]:
    """Return the uids of all pods whose annotations may be ours to write."""
    return ledger.slots.keys() | _owners(ledger)


def basis(ledger: Ledger, uid: str) -> Basis:
    """Return all of a ledger that the annotations of one pod follow from."""
    held = values.holds_of_pod(ledger, uid)
    return ledger.pods.get(uid), ledger.slots.get(uid), held


def is_right(
    ledger: Ledger, uid: str, *, host_ip: str, addresses: Addresses = NOWHERE
) -> bool:
    """Tell whether a pod says what it has to; it does until its basis differs."""
    pod = ledger.pods.get(uid)
    if pod is None or pod.terminal:
        return True
    wanted = {**_truth(ledger, pod, host_ip, addresses), **_claim(ledger, pod)}
    return not _patch(pod, wanted).annotations


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
    return found >= {
        index
        for index, need in enumerate(pod.needs)
        if need.kind is not ContainerKind.INIT
    }


def _truth(
    ledger: Ledger, pod: NpuPod, host_ip: str, addresses: Addresses
) -> dict[str, str]:
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
    key = annotations.configuration_key(ledger.product.resource)
    truth[key] = configuration.render(
        pod_name=pod.name,
        pod_uid=pod.uid,
        host_ip=host_ip,
        chips=chips,
        addresses=addresses,
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


def _is_safe(
    ledger: Ledger, patch: Patch, batch: Iterable[Patch], unsure: Collection[str]
) -> bool:
    """Tell whether the chips that a patch gives up stand elsewhere.

    Elsewhere is what other pods are annotated with, whichever patches of the
    batch have landed.
    """
    pod = ledger.pods[patch.uid]
    gives_up = occupancy.annotated(ledger, pod) & ~_after(ledger, patch)
    if not gives_up:
        return True  # as for nearly every pod: it was served from its claim
    elsewhere = 0
    changing = {other.uid: _after(ledger, other) for other in batch}
    for other in ledger.pods.values():
        if other.uid != pod.uid and not other.terminal and other.uid not in unsure:
            stays = changing.get(other.uid, ledger.product.all_chips)
            elsewhere |= occupancy.annotated(ledger, other) & stays
    return not gives_up & _wanted_by_others(ledger, pod) & ~elsewhere


def _after(ledger: Ledger, patch: Patch) -> int:
    """Return the chips that a pod is annotated with once a patch has landed."""
    pod = ledger.pods[patch.uid]
    merged = {**pod.annotations, **patch.annotations}
    return occupancy.annotated(ledger, replace(pod, annotations=merged))


def _wanted_by_others(ledger: Ledger, pod: NpuPod) -> int:
    """Return the chips that other living pods have got or are to be served from."""
    wanted = 0
    for uid, slot in ledger.slots.items():
        other = ledger.pods.get(uid)
        if uid == pod.uid or other is None or other.terminal:
            continue
        if not _is_served(ledger, other):  # else what it got counts
            wanted |= slot.chips
    for hold in ledger.holds.values():
        is_own = hold.owner is not None and hold.owner.uid == pod.uid
        if not is_own and _is_a_living_pods(ledger, hold):
            wanted |= hold.mask
    return wanted


def _is_a_living_pods(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether a living pod has a hold, or may turn out to have it.

    Whoever lacks something may be its owner: if the owner is not known, or was
    a pod of the same name that has gone.
    """
    owner = hold.owner
    if owner is not None and values.is_alive(ledger, owner.uid):
        return True
    return any(
        not pod.terminal
        and (owner is None or (owner.namespace, owner.pod) == (pod.namespace, pod.name))
        and _can_turn_out_to_have(ledger, pod, hold)
        for pod in ledger.pods.values()
    )


def _can_turn_out_to_have(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    """Tell whether a container of a pod can be found to have been given a hold.

    One whose chips are known can when the kubelet has lost them since. What init
    containers got is found with what lasts: of a settled pod there is no more to find.
    """
    if values.is_settled(ledger, pod):
        return False
    known = {mine.need: mine for mine in values.holds_of_pod(ledger, pod.uid)}
    fitting = (
        known.get(index)
        for index, need in enumerate(pod.needs)
        if need.count == len(hold.kubelet_ids)
    )
    return any(
        mine is None or (mine.lost and mine.sequence < hold.sequence)
        for mine in fitting
    )


class PatchError(Exception):
    """A patch did not land; try again later."""
