"""Release holds: when the API server, pod-resources and the processes all agree.

That a pod is absent from one of them proves nothing. It counts only in a quiet pass,
during which no Allocate was under way.
"""

from dataclasses import replace

from agent.claims import choose_chips, values
from agent.claims.events import InUse, PassEnded, StrayProcessesRead
from agent.claims.values import Hold, Ledger, Owner
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind

#: Quiet passes without any possible owner, after which an ownerless hold ends.
#: Two, because no single reading may decide.
MISSES_TO_RELEASE = 2


def end_pass(ledger: Ledger, event: PassEnded) -> Ledger:
    """Release every hold that no container has any more, at the end of a pass.

    A hold ends when three conditions agree. Its pod was deleted or has ended at the API
    server. pod-resources no longer shows its ids. No process is on its chips or left
    over from the pod.
    """
    ledger = _drop_old_evidence(ledger)
    if not event.quiet:
        return ledger
    in_use = _unexplained_ids(ledger, event.in_use)
    old_ledger = ledger
    for hold in old_ledger.holds.values():
        if hold.owner is None:
            ledger = _count_miss(ledger, hold, in_use)
        elif _has_owner_released(old_ledger, hold, hold.owner):
            if _is_in_use(old_ledger, hold):
                ledger = _narrow_to_used_chips(ledger, hold)
            else:
                ledger = _drop_holds(ledger, {hold.sequence})
    is_released = len(ledger.holds) < len(old_ledger.holds)
    return drop_idle_slots(ledger) if is_released else ledger


def _count_miss(ledger: Ledger, hold: Hold, in_use: frozenset[str] | None) -> Ledger:
    """Count a pass without possible owner; release the hold at the last count."""
    if _is_in_use(ledger, hold):
        return ledger
    misses = 0 if _can_have_living_owner(ledger, hold) else hold.misses + 1
    if misses < MISSES_TO_RELEASE:
        return values.put_hold(ledger, replace(hold, misses=misses))
    if in_use is not None and in_use.isdisjoint(hold.kubelet_ids):
        return _drop_holds(ledger, {hold.sequence})
    return ledger


def _narrow_to_used_chips(ledger: Ledger, hold: Hold) -> Ledger:
    """Reduce the hold of a deleted pod to the chips that processes still use.

    One stuck process must not keep all chips of the hold from other pods. A process of
    the pod itself may use any of the chips again, so such a hold stays whole.
    """
    has_processes = hold.owner is not None and hold.owner.uid in ledger.stray_processes
    if has_processes or len(hold.kubelet_ids) != len(hold.chips):
        return ledger
    used_pairs = [
        (kubelet_id, chip)
        for kubelet_id, chip in zip(hold.kubelet_ids, hold.chips, strict=True)
        if ledger.busy >> chip & 1
    ]
    ids, chips = tuple(i for i, _ in used_pairs), tuple(chip for _, chip in used_pairs)
    ledger = values.put_hold(ledger, replace(hold, kubelet_ids=ids, chips=chips))
    slot = ledger.slots.get(hold.slot)
    if slot is None or values.is_alive(ledger, slot.uid):
        return ledger
    mask = 0
    for other in values.holds_of_slot(ledger, slot.uid):
        mask |= other.mask
    narrowed_slot = replace(slot, chips=mask, predicate_time=annotations.SERVED)
    return replace(ledger, slots={**ledger.slots, slot.uid: narrowed_slot})


def take_in_stray_processes(ledger: Ledger, event: StrayProcessesRead) -> Ledger:
    """Store which processes deleted pods have left behind."""
    other_pods = {
        uid: pids
        for uid, pids in ledger.stray_processes.items()
        if uid not in event.uids
    }
    return replace(ledger, stray_processes={**other_pods, **event.pids})


def pods_to_check_for_processes(
    ledger: Ledger, ids: frozenset[str] | None = None
) -> frozenset[str]:
    """Return uids of deleted pods whose left-over processes decide about a release.

    The caller must look for their processes before a pass ends, or before ids are given
    again.

    Args:
        ledger: The state.
        ids: Ids that the kubelet offers or gives; None: check for the end of a pass.
    """
    return frozenset(
        hold.owner.uid
        for hold in ledger.holds.values()
        if hold.owner is not None
        and not values.is_alive(ledger, hold.owner.uid)
        and (
            _has_owner_released(ledger, hold, hold.owner)
            if ids is None
            else ids.issuperset(hold.kubelet_ids)
        )
    )


def needs_full_list(ledger: Ledger) -> bool:
    """Tell whether pod-resources must list all pods in this pass.

    The kubelet forgets the ids of ended pods with its next Allocate, or when all pods
    are listed. An ownerless hold may belong to a pod that the watch has not shown yet.
    Before its release, the list must prove that no pod has its ids.
    """
    return any(
        _is_abandoned(ledger, hold)
        if hold.owner is None
        else not values.is_alive(ledger, hold.owner.uid)
        and _is_shown_for_owner(ledger, hold, hold.owner)
        for hold in ledger.holds.values()
    )


def _is_abandoned(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether this pass would release a hold whose owner was never found."""
    return (
        hold.misses + 1 >= MISSES_TO_RELEASE
        and not _is_in_use(ledger, hold)
        and not _can_have_living_owner(ledger, hold)
    )


def release_reissued_ids(ledger: Ledger, ids: frozenset[str]) -> Ledger:
    """Release holds of deleted pods whose ids the kubelet gives out again.

    The next pod can be bound as soon as the last one is deleted. A stock scheduler does
    so, and ours does if the hold of a short pod was never published. The kubelet then
    asks for its chips before the next correction pass. The pod is deleted at the API
    server, the kubelet gives its ids to another pod, and its chips have no process. The
    pass would check the same.

    Args:
        ledger: The state.
        ids: Ids that the kubelet offers or has given.
    """
    ended = {
        hold.sequence
        for hold in ledger.holds.values()
        if hold.owner is not None
        and not values.is_alive(ledger, hold.owner.uid)
        and ids.issuperset(hold.kubelet_ids)
        and not _is_in_use(ledger, hold)
    }
    return drop_idle_slots(_drop_holds(ledger, ended)) if ended else ledger


def _is_in_use(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether a process of a deleted pod is, or can come, on a hold's chips."""
    if hold.owner is not None and hold.owner.uid in ledger.stray_processes:
        return True
    # containers of one pod can have had the same chips one after the other
    explained = 0
    for other in ledger.holds.values():
        owner = other.owner
        if other.sequence != hold.sequence and owner is not None:
            explained |= other.mask if values.is_alive(ledger, owner.uid) else 0
    return bool(hold.mask & ledger.busy & ~explained)


def _unexplained_ids(ledger: Ledger, in_use: InUse | None) -> frozenset[str] | None:
    """Return listed ids whose container is not the known owner; None if not listed.

    The kubelet can give one id to two containers. That one of them is known says
    nothing about the other.
    """
    if in_use is None:
        return None
    explained: dict[tuple[str, str, str], set[str]] = {}
    for hold in ledger.holds.values():
        owner = hold.owner
        if owner is not None:
            key = (owner.namespace, owner.pod, owner.container)
            explained.setdefault(key, set()).update(hold.kubelet_ids)
    return frozenset[str]().union(
        *(ids - explained.get(container, set()) for container, ids in in_use.items())
    )


def _has_owner_released(ledger: Ledger, hold: Hold, owner: Owner) -> bool:
    if values.is_alive(ledger, owner.uid):
        return False
    evidence = ledger.evidence.get(owner.uid)
    if evidence is None or not evidence.quiet or evidence.as_of < hold.sequence:
        return False
    return not _is_shown_for_owner(ledger, hold, owner)


def _is_shown_for_owner(ledger: Ledger, hold: Hold, owner: Owner) -> bool:
    """Tell whether pod-resources last showed a hold's ids for its owner."""
    evidence = ledger.evidence.get(owner.uid)
    if evidence is None:
        return False
    shown = evidence.ids
    # a newer pod of the same name may have the same ids
    newer = {
        kubelet_id
        for other in ledger.holds.values()
        if other.sequence > hold.sequence
        for kubelet_id in other.kubelet_ids
    }
    return not shown.isdisjoint(set(hold.kubelet_ids) - newer)


def _can_have_living_owner(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether a living pod may be the owner of an ownerless hold.

    pod-resources never shows an ordinary init container. It shows the pod's other
    containers once all are served. From then on the pod has this hold confirmed or is
    not its owner.
    """
    if _is_shown_unexplained(ledger, hold):
        return True
    slot = ledger.slots.get(hold.slot)
    initial = slot is not None and values.is_init(slot, hold.need)
    for pod in ledger.pods.values():
        if pod.terminal or values.is_confirmed(ledger, pod):
            continue
        counts = {
            need.count
            for need in pod.needs
            if (need.kind is ContainerKind.INIT) is initial
        }
        if len(hold.kubelet_ids) not in counts:
            continue
        under_way = initial and _is_half_served(ledger, hold) and pod.phase != "Running"
        if under_way or not _is_proven_not_owner(ledger, pod, hold):
            return True
    return False


def _is_half_served(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether the pod of a hold's slot may still be in admission."""
    slot = ledger.slots.get(hold.slot)
    return slot is not None and choose_chips.next_need(ledger, slot) is not None


def _is_proven_not_owner(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    """Tell whether a reading proves that a pod was never given a hold.

    For a running pod it proves nothing: the kubelet may have forgotten its devices.
    """
    evidence = ledger.evidence.get(pod.uid)
    return (
        pod.phase != "Running"
        and evidence is not None
        and evidence.quiet
        and evidence.as_of >= hold.sequence
        and evidence.containers is not None
    )


def _is_shown_unexplained(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether a living pod is shown with ids of a hold that it does not own."""
    for uid, evidence in ledger.evidence.items():
        if not values.is_alive(ledger, uid):
            continue  # its evidence is old
        shown = evidence.ids
        own_ids = {
            i
            for own_hold in values.holds_of_pod(ledger, uid)
            for i in own_hold.kubelet_ids
        }
        if not (shown - own_ids).isdisjoint(hold.kubelet_ids):
            return True
    return False


def drop_idle_slots(ledger: Ledger) -> Ledger:
    """Drop the slots of ended pods that no hold uses."""
    used = {hold.slot for hold in ledger.holds.values()}
    slots = {
        uid: slot
        for uid, slot in ledger.slots.items()
        if uid in used or values.is_alive(ledger, uid)
    }
    return ledger if len(slots) == len(ledger.slots) else replace(ledger, slots=slots)


def _drop_old_evidence(ledger: Ledger) -> Ledger:
    """Drop evidence and left-over processes of deleted pods without a hold."""
    needed = ledger.pods.keys() | {
        hold.owner.uid for hold in ledger.holds.values() if hold.owner is not None
    }
    evidence_by_uid = {
        uid: evidence for uid, evidence in ledger.evidence.items() if uid in needed
    }
    ended = {uid for uid in needed if not values.is_alive(ledger, uid)}
    stray_processes = {
        uid: pids for uid, pids in ledger.stray_processes.items() if uid in ended
    }
    return replace(ledger, evidence=evidence_by_uid, stray_processes=stray_processes)


def _drop_holds(ledger: Ledger, sequences: set[int]) -> Ledger:
    holds = {s: hold for s, hold in ledger.holds.items() if s not in sequences}
    return replace(ledger, holds=holds)
