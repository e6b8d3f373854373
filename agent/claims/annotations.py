"""Compute the annotations that the pods of a node must have, and the order of patches.

A pod whose app containers and sidecars all own a hold is annotated with the chips of
its holds. A pod that waits for Allocate is annotated with the chips of its slot.

After a swap, several pods must be patched. A scheduler counts a chip as free if no
annotation names it. So no patch may remove the last annotation that names a chip which
another pod holds or waits for. Such a patch waits until another pod's annotation names
the chip. If only the pod's claim has to stay for now, AscendReal is patched first.
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

#: Addresses of a node that has not reported any.
NOWHERE = Addresses()
#: All from which the annotations of one pod are computed: pod, slot, holds.
Basis = tuple[NpuPod | None, Slot | None, tuple[Hold, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Annotations to set on one pod."""

    uid: str
    namespace: str
    name: str
    resource: str  #: requested by the pod
    annotations: Mapping[str, str]


def plan_patches(
    ledger: Ledger,
    *,
    host_ip: str,
    addresses: Addresses = NOWHERE,
    unsure: Collection[str] = (),
    up_to_date: AbstractSet[str] = frozenset(),
) -> tuple[Patch, ...]:
    """Return the patches of pods' annotations to send now, at most one for each pod.

    The API server may apply these patches in any order, and any of them may fail. When
    the ledger has the patched pods, call this function again, until the result is
    empty.

    Args:
        host_ip: The node's InternalIP. It goes into the annotation from which training
            programs make their rank table (`annotations.configuration_key`). "" while
            it is unknown: then no patch has this annotation.
        addresses: Addresses of the node and its chips, for the same annotation.
        unsure: Uids of pods whose annotations in the ledger may be out of date: the pod
            is deleted, or the outcome of an earlier patch is unknown.
        up_to_date: Uids of pods whose annotations are known to be right; no patch is
            planned for them.
    """
    batch: list[Patch] = []
    for uid in sorted(uids_to_annotate(ledger) - up_to_date):
        pod = ledger.pods.get(uid)
        if pod is None or pod.terminal:
            continue
        mounted, claim = _wanted_keys(ledger, pod, host_ip, addresses)
        # AscendReal comes first; the new chips of a recreated container must be
        # claimed before its old chips are given up
        for annotations_to_set in (mounted | claim, mounted, claim):
            patch = _make_patch(pod, annotations_to_set)
            if patch.annotations and _is_safe(ledger, patch, batch, unsure):
                batch.append(patch)
                break
    return tuple(batch)


def uids_to_annotate(ledger: Ledger) -> set[str]:
    """Return the uids of all pods that have a slot or own a hold.

    The agent writes annotations on these pods only.
    """
    owners = {hold.owner.uid for hold in ledger.holds.values() if hold.owner}
    return ledger.slots.keys() | owners


def get_basis(ledger: Ledger, uid: str) -> Basis:
    """Return a pod with its slot and holds, from which its annotations are computed."""
    holds = values.holds_of_pod(ledger, uid)
    return ledger.pods.get(uid), ledger.slots.get(uid), holds


def is_up_to_date(
    ledger: Ledger, uid: str, *, host_ip: str, addresses: Addresses = NOWHERE
) -> bool:
    """Whether a pod has all annotations that follow from its slot and holds.

    True also for a pod that is terminal or not in the ledger. The result depends only
    on the values that `get_basis(ledger, uid)` has had, `host_ip` and `addresses`.
    """
    pod = ledger.pods.get(uid)
    if pod is None or pod.terminal:
        return True
    mounted, claim = _wanted_keys(ledger, pod, host_ip, addresses)
    return not _make_patch(pod, mounted | claim).annotations


def make_affinity(ledger: Ledger) -> Affinity:
    """Return the held, releasing and lost chips, for the agent's report of its node.

    The scheduler extender needs the report, because pod annotations do not show which
    chips are held, releasing or lost. A chip is lost if a container has it and the
    kubelet has forgotten this. The slot chips of a pod that runs without its devices
    (`ledger.bare`) count as lost too. Unchecked chips that nobody holds count as
    releasing: a look may find processes on them.
    """
    held, releasing = values.held_chips(ledger), values.releasing_chips(ledger)
    releasing |= values.unchecked_chips(ledger) & ~held
    lost_chips = chip_sets.union(h.mask for h in ledger.holds.values() if h.lost)
    return Affinity(
        held=chip_sets.ids_of(held),
        releasing=chip_sets.ids_of(releasing),
        sequence=ledger.sequence,
        lost=chip_sets.ids_of(lost_chips | values.bare_chips(ledger)),
    )


def _is_served(ledger: Ledger, pod: NpuPod) -> bool:
    """Whether each app container and sidecar of a pod owns a hold."""
    served_needs = {hold.need for hold in values.holds_of_pod(ledger, pod.uid)}
    return served_needs >= {
        index
        for index, need in enumerate(pod.needs)
        if need.kind is not ContainerKind.INIT
    }


def _wanted_keys(
    ledger: Ledger, pod: NpuPod, host_ip: str, addresses: Addresses
) -> tuple[dict[str, str], dict[str, str]]:
    """Return {annotation key: text} of a pod's mounted chips, and of its claim.

    Until each app container and sidecar of the pod owns a hold, nothing counts as
    mounted, and `_make_waiting_claim` makes the claim. After that the claim names the
    chips of the pod's holds. If it is uncertain which chips are mounted, the device ids
    alone are told, and the claim names no chips.

    The configuration is missing for parts of chips, and while `host_ip` is "", or the
    address of a chip is waited for: a reader waits for a missing configuration, and
    takes a wrong one for the truth. An address that was in the pod's configuration
    since its chips were mounted stays (`note_given`): the card with the chip's id may
    have become another.
    """
    holds, resource = values.holds_of_pod(ledger, pod.uid), ledger.product.resource
    if not holds or not _is_served(ledger, pod):
        return {}, _make_waiting_claim(ledger, pod, holds)
    ids = sorted({kubelet_id for hold in holds for kubelet_id in hold.kubelet_ids})
    mounted = {annotations.KLT_DEV: ",".join(ids)}
    claim = {annotations.PREDICATE_TIME: str(annotations.SERVED)}
    if any(hold.reserved for hold in holds):
        # without an annotation no scheduler has claimed chips for it
        return mounted, claim if resource in pod.annotations else {}
    chips = sorted({chip for hold in holds for chip in hold.chips})
    claim[resource] = annotations.render_chips(chips, ledger.product)
    mounted[annotations.ASCEND_REAL] = annotations.render_chips(
        chips, ledger.product, lexicographic=True
    )
    is_of_part = ledger.product.chip_row is not None  # it has no address
    if is_of_part or not host_ip or addresses.awaited & chip_sets.mask_of(chips):
        return mounted, claim
    given = ledger.given.get(pod.uid, {})
    if given.keys() == {*chips}:
        addresses = addresses.with_given(given)
    mounted[annotations.configuration_key(resource)] = configuration.render(
        pod_name=pod.name,
        pod_uid=pod.uid,
        host_ip=host_ip,
        chips=chips,
        addresses=addresses,
    )
    return mounted, claim


def note_given(ledger: Ledger, pod: NpuPod) -> Ledger:
    """Return the ledger with the addresses that a pod's configuration names.

    They are those of the cards that the pod was given. A configuration of other chips
    than those in `AscendReal` is no news. What a person removes from it stays known.
    """
    real = occupancy.chips_in_annotation(ledger, pod, annotations.ASCEND_REAL)
    key = annotations.configuration_key(ledger.product.resource)
    named = configuration.parse_devices(pod.annotations.get(key, ""))
    if not real or named.keys() != {*real}:
        return ledger
    known = ledger.given.get(pod.uid, {})
    before = Addresses(chips=known) if known.keys() == named.keys() else NOWHERE
    given = {**ledger.given, pod.uid: before.with_given(named).chips}
    return replace(ledger, given=given)


def _make_waiting_claim(
    ledger: Ledger, pod: NpuPod, holds: tuple[Hold, ...]
) -> dict[str, str]:
    """Return {annotation key: text} of the claim of a pod that waits for chips.

    The claim names the chips of the pod's slot and holds. The result is empty if no
    scheduler chose the slot's chips, or if the number of chips is not the number that
    the pod needs.
    """
    slot = ledger.slots.get(pod.uid)
    if slot is None or slot.unplanned:
        return {}
    chips = chip_sets.ids_of(slot.chips | values.mounted_chips(holds))
    if len(chips) != pod.total:
        return {}  # the count does not fit its shape yet: wait for the other containers
    return {ledger.product.resource: annotations.render_chips(chips, ledger.product)}


def _make_patch(pod: NpuPod, keys: Mapping[str, str]) -> Patch:
    changed = {
        key: text for key, text in keys.items() if pod.annotations.get(key) != text
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
    """Whether no chip in use is removed from its last annotation by `patch`.

    A chip is in use if another living pod waits for it, or may hold it.

    Args:
        batch: Patches that may be applied before or after `patch`.
        unsure: Uids of pods whose annotations in the ledger may be out of date; their
            annotations do not count.
    """
    pod = ledger.pods[patch.uid]
    given_up = occupancy.annotated_chips(ledger, pod) & ~_chips_after(ledger, patch)
    if not given_up:
        return True  # as for nearly every pod: it was served from its claim
    annotated_elsewhere = 0
    kept_if_patched = {other.uid: _chips_after(ledger, other) for other in batch}
    for other in ledger.pods.values():
        if other.uid != pod.uid and not other.terminal and other.uid not in unsure:
            stays = kept_if_patched.get(other.uid, ledger.product.all_chips)
            annotated_elsewhere |= occupancy.annotated_chips(ledger, other) & stays
    return not given_up & _chips_of_others(ledger, pod) & ~annotated_elsewhere


def _chips_after(ledger: Ledger, patch: Patch) -> int:
    """Return the mask of chips that the pod's annotations name after `patch`."""
    pod = ledger.pods[patch.uid]
    merged = {**pod.annotations, **patch.annotations}
    return occupancy.annotated_chips(ledger, replace(pod, annotations=merged))


def _chips_of_others(ledger: Ledger, pod: NpuPod) -> int:
    """Return the mask of chips that living pods except `pod` hold or wait for.

    A pod waits for the chips of its slot until each app container and sidecar owns a
    hold. A hold counts if a living pod owns it, or can still turn out to own it.
    """
    chips = 0
    for uid, slot in ledger.slots.items():
        other = ledger.pods.get(uid)
        if uid == pod.uid or other is None or other.terminal:
            continue
        if not _is_served(ledger, other):  # else its holds count
            chips |= slot.chips
    for hold in ledger.holds.values():
        is_own = hold.owner is not None and hold.owner.uid == pod.uid
        if not is_own and _can_be_of_living_pod(ledger, hold):
            chips |= hold.mask
    return chips


def _can_be_of_living_pod(ledger: Ledger, hold: Hold) -> bool:
    """Whether a living pod owns a hold, or can still turn out to own it.

    pod-resources names pods without UIDs. So if the named pod has ended, the owner may
    still be a living pod with the same name.
    """
    owner = hold.owner
    if values.has_living_owner(ledger, hold):
        return True
    return any(
        not pod.terminal
        and (owner is None or (owner.namespace, owner.pod) == (pod.namespace, pod.name))
        and _can_be_confirmed_as_owner(ledger, pod, hold)
        for pod in ledger.pods.values()
    )


def _can_be_confirmed_as_owner(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    """Whether pod-resources can still show that a container of `pod` owns `hold`."""
    if values.is_confirmed(ledger, pod):
        return False
    holds_by_need = {
        hold_of_need.need: hold_of_need
        for hold_of_need in values.holds_of_pod(ledger, pod.uid)
    }
    fitting = (
        holds_by_need.get(index)
        for index, need in enumerate(pod.needs)
        if need.count == len(hold.kubelet_ids)
    )
    return any(
        hold_of_need is None
        or (hold_of_need.lost and hold_of_need.sequence < hold.sequence)
        for hold_of_need in fitting
    )
