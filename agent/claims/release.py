"""Release a hold once three sources agree that its pod has ended.

The sources are the API server, the kubelet and the processes of the node. One source
alone proves nothing. The kubelet shows an end in one of two ways: pod-resources no
longer shows the hold's ids, or the kubelet gives these ids out again. The reconciler
asks pod-resources in passes: rounds of questions about several pods. A pass counts only
if no Allocate was under way at any time during the pass.
"""

from dataclasses import replace

from agent.claims import choose_chips, values
from agent.claims.events import InUse, PassEnded, StrayProcessesRead
from agent.claims.values import Hold, Ledger, Owner
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind

#: Quiet passes without any possible owner, after which an ownerless hold ends.
#: Two, because no single reading may decide.
MISSES_TO_RELEASE = 2


def end_pass(ledger: Ledger, event: PassEnded) -> Ledger:
    """Release every hold whose container no longer exists, at the end of a pass.

    In a pass, the reconciler asks pod-resources about pods. Nothing is released if an
    Allocate was under way during the pass.

    A hold with a known owner is released if three things are true. The owner's pod has
    ended at the API server. pod-resources no longer shows the hold's ids.
    A look that began after the pod's end shows no process on the hold's chips, and none
    is left over from the pod. If only processes on some of the chips prevent the
    release, the hold is reduced to these chips.

    A hold without a known owner is released after `MISSES_TO_RELEASE` passes in a row
    in which no living pod could own it. The hold is kept while a process is on its
    chips. It is also kept while `_unexplained_ids` has one of its ids. If a running pod
    lacks devices that the hold fits, each of these passes must list all pods.
    """
    ledger = _drop_old_evidence(ledger)
    if not event.quiet:
        return ledger
    in_use = _unexplained_ids(ledger, event.in_use)
    old_ledger = ledger
    for hold in old_ledger.holds.values():
        if hold.owner is None:
            ledger = _count_miss(ledger, hold, in_use)
        elif _has_owner_released(old_ledger, hold):
            if _is_in_use(old_ledger, hold):
                ledger = _narrow_to_used_chips(ledger, hold)
            else:
                ledger = _drop_holds(ledger, {hold.sequence})
    is_released = len(ledger.holds) < len(old_ledger.holds)
    return drop_idle_slots(ledger) if is_released else ledger


def _count_miss(ledger: Ledger, hold: Hold, in_use: frozenset[str] | None) -> Ledger:
    """Update `hold.misses`, and release the hold after `MISSES_TO_RELEASE` misses.

    A miss is a pass in which no living pod could own the hold. A pass in which a living
    pod could own it sets `misses` to 0. While a process is on the hold's chips,
    `misses` stays and the hold is not released. It stays too if all pods had to be
    listed and were not (`_is_list_needed`).

    Args:
        hold: Has no known owner.
        in_use: Ids from `_unexplained_ids`; a hold with one of them is not released.
            None: these ids are unknown, and no hold is released.
    """
    if _is_in_use(ledger, hold):
        return ledger
    if _can_have_living_owner(ledger, hold):
        return values.put_holds(ledger, replace(hold, misses=0))
    is_unlisted = in_use is not None and in_use.isdisjoint(hold.kubelet_ids)
    if _is_list_needed(ledger, hold) and not is_unlisted:
        return ledger
    misses = hold.misses + 1
    if misses < MISSES_TO_RELEASE:
        return values.put_holds(ledger, replace(hold, misses=misses))
    return _drop_holds(ledger, {hold.sequence})


def _narrow_to_used_chips(ledger: Ledger, hold: Hold) -> Ledger:
    """Reduce the hold of an ended pod to the chips that a process may use.

    They are the chips on which the driver shows processes, and unchecked ones. The
    hold's other chips become free for new pods. If `ledger.stray_processes` has
    processes of the pod, the hold is not reduced: they may open any chip of the hold
    again.
    """
    has_processes = hold.owner is not None and hold.owner.uid in ledger.stray_processes
    if has_processes or len(hold.kubelet_ids) != len(hold.chips):
        return ledger
    used = ledger.busy | values.unchecked_chips(ledger)
    used_pairs = [
        (kubelet_id, chip)
        for kubelet_id, chip in zip(hold.kubelet_ids, hold.chips, strict=True)
        if used >> chip & 1
    ]
    ids, chips = tuple(i for i, _ in used_pairs), tuple(chip for _, chip in used_pairs)
    ledger = values.put_holds(ledger, replace(hold, kubelet_ids=ids, chips=chips))
    slot = ledger.slots.get(hold.slot)
    if slot is None or values.is_alive(ledger, slot.uid):
        return ledger
    mask = chip_sets.union(h.mask for h in values.holds_of_slot(ledger, slot.uid))
    narrowed_slot = replace(slot, chips=mask, predicate_time=annotations.SERVED)
    return values.put_slots(ledger, narrowed_slot)


def take_in_stray_processes(ledger: Ledger, event: StrayProcessesRead) -> Ledger:
    """Store the stray processes of ended pods."""
    other_pods = {
        uid: pids
        for uid, pids in ledger.stray_processes.items()
        if uid not in event.uids
    }
    return replace(ledger, stray_processes={**other_pods, **event.pids})


def pods_to_check_for_processes(
    ledger: Ledger, ids: frozenset[str] | None = None
) -> frozenset[str]:
    """Return uids of ended pods whose holds can be released once no process remains.

    The caller looks for processes of these pods on the node before it ends a pass, and
    before it handles an Allocate or a GetPreferredAllocation.

    Args:
        ids: Device ids that the kubelet offers or gives out. The result has each ended
            pod with a hold whose ids are all among them. None: the result has each
            ended pod with a hold whose ids pod-resources no longer shows, or has not
            shown before the pod ended.
    """
    return frozenset(
        uid
        for hold in ledger.holds.values()
        if (uid := _ended_pod_of(ledger, hold))
        and (
            hold.owner is None or _has_owner_released(ledger, hold)
            if ids is None
            else ids.issuperset(hold.kubelet_ids)
        )
    )


def needs_full_list(ledger: Ledger) -> bool:
    """Whether the reconciler must call List of pod-resources in this pass.

    It must in two cases:

    - pod-resources shows ids of a hold although the owner's pod has ended. The call
      makes the kubelet forget these ids.
    - `end_pass` is about to release a hold without a known owner. The hold may belong
      to a pod that the pod watch has not shown yet. The call shows whether any
      container has the hold's ids. If a running pod lacks devices that the hold fits,
      the call is made in each pass that counts.
    """
    return any(
        _is_abandoned(ledger, hold)
        if hold.owner is None
        else not values.has_living_owner(ledger, hold)
        and _is_shown_for_owner(ledger, hold, hold.owner)
        for hold in ledger.holds.values()
    )


def _is_abandoned(ledger: Ledger, hold: Hold) -> bool:
    """Whether a List must show now that no container has the ids of `hold`.

    `hold` has no known owner. It must if no process is on the hold's chips, no living
    pod could own the hold, and `_is_list_needed`.
    """
    return (
        _is_list_needed(ledger, hold)
        and not _is_in_use(ledger, hold)
        and not _can_have_living_owner(ledger, hold)
    )


def _is_list_needed(ledger: Ledger, hold: Hold) -> bool:
    """Whether the next miss of `hold` counts only if a List does not show its ids.

    True of the miss that releases the hold. True of each miss while a running pod lacks
    devices that the hold fits: only pod-resources shows that they are not the pod's.
    """
    return hold.misses + 1 >= MISSES_TO_RELEASE or any(
        pod.phase == "Running" for pod in _unconfirmed_fitting_pods(ledger, hold)
    )


def release_reissued_ids(ledger: Ledger, ids: frozenset[str]) -> Ledger:
    """Release holds of ended pods if the kubelet offers or gives out the holds' ids.

    A scheduler can bind a new pod as soon as the old pod is deleted. The new pod can
    then get the old pod's ids before the reconciler's next pass.

    A hold is released if all its ids are in `ids` and no process is on its chips or
    left over from its pod. The pod of a hold without a known owner is `_ended_pod_of`;
    what else the pod was served with counts as offered again too (`Hold.reoffered`).

    Args:
        ids: Ids that the kubelet offers or has given out.
    """
    ended = {
        hold.sequence
        for hold in ledger.holds.values()
        if _ended_pod_of(ledger, hold)
        and ids.issuperset(hold.kubelet_ids)
        and not _is_in_use(ledger, hold)
    }
    if not ended:
        return ledger
    slots = {ledger.holds[sequence].slot for sequence in ended}
    rest = [
        replace(hold, reoffered=True)
        for hold in ledger.holds.values()
        if hold.slot in slots and hold.owner is None and hold.sequence not in ended
    ]
    return drop_idle_slots(_drop_holds(values.put_holds(ledger, *rest), ended))


def _ended_pod_of(ledger: Ledger, hold: Hold) -> str:
    """Return the uid of the ended pod whose hold this is; "" if there is none.

    A pod may end before pod-resources has shown its ids. Its hold has no known owner
    then, and belongs to the pod of its slot, if the kubelet gives the ids out again. If
    the slot's pod was mistaken for another, the kubelet keeps the ids for that one,
    unless it has restarted and forgotten them: then the plugin has registered since.
    """
    if hold.owner is not None:
        return "" if values.is_alive(ledger, hold.owner.uid) else hold.owner.uid
    slot = ledger.slots.get(hold.slot)
    if slot is None or values.is_fresh(slot) or not _is_remembered(ledger, hold):
        return ""
    return "" if values.is_alive(ledger, slot.uid) else slot.uid


def _is_in_use(ledger: Ledger, hold: Hold) -> bool:
    """Whether a process may be on a hold's chips, or is left over from its ended pod.

    Left-over processes can open the chips again. A process may be on each unchecked
    chip. A process on a chip does not count if another hold with this chip belongs to a
    living pod.
    """
    if _ended_pod_of(ledger, hold) in ledger.stray_processes:
        return True
    # containers of one pod can have had the same chips one after the other
    explained = chip_sets.union(
        other.mask
        for other in ledger.holds.values()
        if other.sequence != hold.sequence and values.has_living_owner(ledger, other)
    )
    used = ledger.busy | values.unchecked_chips(ledger)
    return bool(hold.mask & used & ~explained)


def _unexplained_ids(ledger: Ledger, in_use: InUse | None) -> frozenset[str] | None:
    """Return the ids that pod-resources lists for a container whose holds lack them.

    Holds of other containers do not matter: the kubelet can give one id to two
    containers.

    Args:
        in_use: {container: its device ids} as pod-resources listed them. None: the
            reconciler did not list all pods, and the result is None.
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


def _has_owner_released(ledger: Ledger, hold: Hold) -> bool:
    owner = hold.owner
    if owner is None or values.is_alive(ledger, owner.uid):
        return False
    evidence = ledger.evidence.get(owner.uid)
    if evidence is None or not evidence.quiet or evidence.as_of < hold.sequence:
        return False
    return not _is_shown_for_owner(ledger, hold, owner)


def _is_shown_for_owner(ledger: Ledger, hold: Hold, owner: Owner) -> bool:
    """Whether pod-resources' newest answer about the owner's pod shows an id of `hold`.

    Ids that also belong to a newer hold do not count: a newer pod of the same name may
    have them.
    """
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
    """Whether a living pod may be the owner of a hold whose owner is not known.

    A pod may be the owner in two cases:

    - pod-resources shows an id of the hold for the pod, and no hold of the pod has this
      id.
    - An app container or sidecar of the pod is not confirmed, the hold fits a container
      of the pod, and pod-resources does not rule out the pod.

    In admission, pod-resources cannot rule out a pod for a hold of an init container,
    because it shows no init containers.
    """
    if _is_shown_unexplained(ledger, hold):
        return True
    slot = ledger.slots.get(hold.slot)
    # then the pod of the slot may still be in admission
    half_served = slot is not None and choose_chips.next_need(ledger, slot) is not None
    under_way = _is_of_init(ledger, hold) and half_served
    return any(
        (under_way and pod.phase != "Running")
        or not _is_proven_not_owner(ledger, pod, hold)
        for pod in _unconfirmed_fitting_pods(ledger, hold)
    )


def _unconfirmed_fitting_pods(ledger: Ledger, hold: Hold) -> list[NpuPod]:
    """Return the living pods that are not confirmed and have a container like `hold`'s.

    The container needs as many chips as the hold has ids. It is an init container if
    the hold's is one.
    """
    is_init = _is_of_init(ledger, hold)
    return [
        pod
        for pod in ledger.pods.values()
        if not pod.terminal
        and not values.is_confirmed(ledger, pod)
        and any(
            need.count == len(hold.kubelet_ids)
            and (need.kind is ContainerKind.INIT) is is_init
            for need in pod.needs
        )
    ]


def _is_of_init(ledger: Ledger, hold: Hold) -> bool:
    slot = ledger.slots.get(hold.slot)
    return slot is not None and values.is_init(slot, hold.need)


def _is_proven_not_owner(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    """Whether the newest answer of pod-resources rules out that `pod` owns `hold`.

    Call it only if `_is_shown_unexplained` is False for `hold`. A kubelet that restarts
    may forget a running pod's devices, and the watch may not have shown yet that the
    pod runs. So a pod is ruled out only if the present kubelet has answered since
    before the hold was made. A running pod is never ruled out for the hold of an init
    container, which pod-resources does not show.
    """
    evidence = ledger.evidence.get(pod.uid)
    return (
        _is_remembered(ledger, hold)
        and (pod.phase != "Running" or not _is_of_init(ledger, hold))
        and evidence is not None
        and evidence.quiet
        and evidence.as_of >= hold.sequence
        and evidence.containers is not None
    )


def _is_remembered(ledger: Ledger, hold: Hold) -> bool:
    """Whether the kubelet that answers and asks now has given out the ids of `hold`."""
    return ledger.kubelet is not None and hold.sequence > ledger.kubelet_since


def _is_shown_unexplained(ledger: Ledger, hold: Hold) -> bool:
    """Whether pod-resources shows a living pod that may own `hold`.

    A pod may own `hold` if pod-resources shows for the pod an id of `hold`, and no hold
    of the pod has this id.
    """
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
    """Return the ledger without the unused slots of ended pods.

    A slot is unused if no hold has chips of it.
    """
    used = {hold.slot for hold in ledger.holds.values()}
    slots = {
        uid: slot
        for uid, slot in ledger.slots.items()
        if uid in used or values.is_alive(ledger, uid)
    }
    return ledger if len(slots) == len(ledger.slots) else replace(ledger, slots=slots)


def _drop_old_evidence(ledger: Ledger) -> Ledger:
    """Drop the answers and stray processes of pods that no longer matter.

    An answer of pod-resources is kept if its pod is in the ledger or owns a hold. Stray
    processes are kept if, in addition, the pod has ended. So are those of an ended pod
    whose hold has no known owner.
    """
    needed = ledger.pods.keys() | {
        hold.owner.uid for hold in ledger.holds.values() if hold.owner is not None
    }
    evidence_by_uid = {
        uid: evidence for uid, evidence in ledger.evidence.items() if uid in needed
    }
    ended = {uid for uid in needed if not values.is_alive(ledger, uid)}
    ended |= {_ended_pod_of(ledger, hold) for hold in ledger.holds.values()}
    stray_processes = {
        uid: pids for uid, pids in ledger.stray_processes.items() if uid in ended
    }
    return replace(ledger, evidence=evidence_by_uid, stray_processes=stray_processes)


def _drop_holds(ledger: Ledger, sequences: set[int]) -> Ledger:
    holds = {s: hold for s, hold in ledger.holds.items() if s not in sequences}
    return replace(ledger, holds=holds)
