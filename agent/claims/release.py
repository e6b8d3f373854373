"""When a hold ends: API server, pod-resources and processes all agree.

Absence from one of them proves nothing, and counts only of a pass in which no
Allocate was under way.
"""

from dataclasses import replace

from agent.claims import choose_chips, values
from agent.claims.events import InUse, LeftRead, PassEnded
from agent.claims.values import Hold, Ledger, Owner
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind

#: Quiet passes without any possible owner after which a hold of nobody ends.
#: Two, so that no single reading decides.
MISSES_TO_RELEASE = 2


def end_pass(ledger: Ledger, event: PassEnded) -> Ledger:
    """Release what certainly nobody holds any more.

    A hold ends when its pod has gone or ended at the API server, and
    pod-resources no longer shows its ids, and no process is on its chips or
    left of the pod.
    """
    ledger = _without_old_evidence(ledger)
    if not event.quiet:
        return ledger
    in_use = _unexplained(ledger, event.in_use)
    before = ledger
    for hold in before.holds.values():
        if hold.owner is None:
            ledger = _without_nobodys(ledger, hold, in_use)
        elif _owner_is_through(before, hold, hold.owner):
            if _is_in_use(before, hold):
                ledger = _narrowed(ledger, hold)
            else:
                ledger = _without(ledger, {hold.sequence})
    is_less = len(ledger.holds) < len(before.holds)
    return without_idle_slots(ledger) if is_less else ledger


def _without_nobodys(
    ledger: Ledger, hold: Hold, in_use: frozenset[str] | None
) -> Ledger:
    """Count that nobody can be the owner of a hold; release it at the last time."""
    if _is_in_use(ledger, hold):
        return ledger
    misses = 0 if _could_be_somebodys(ledger, hold) else hold.misses + 1
    if misses < MISSES_TO_RELEASE:
        return values.with_hold(ledger, replace(hold, misses=misses))
    if in_use is not None and in_use.isdisjoint(hold.kubelet_ids):
        return _without(ledger, {hold.sequence})
    return ledger


def _narrowed(ledger: Ledger, hold: Hold) -> Ledger:
    """Keep of a hold whose pod has gone only the chips that are still used.

    One stuck process is not to keep all chips of a node from everybody. But what
    of the pod's own is left may use each of them again.
    """
    is_left = hold.owner is not None and hold.owner.uid in ledger.left
    if is_left or len(hold.kubelet_ids) != len(hold.chips):
        return ledger
    used = [
        (kubelet_id, chip)
        for kubelet_id, chip in zip(hold.kubelet_ids, hold.chips, strict=True)
        if ledger.busy >> chip & 1
    ]
    ids, chips = tuple(i for i, _ in used), tuple(chip for _, chip in used)
    ledger = values.with_hold(ledger, replace(hold, kubelet_ids=ids, chips=chips))
    slot = ledger.slots.get(hold.slot)
    if slot is None or values.is_alive(ledger, slot.uid):
        return ledger
    mask = 0
    for other in values.holds_of_slot(ledger, slot.uid):
        mask |= other.mask
    rest = replace(slot, chips=mask, predicate_time=annotations.SERVED)
    return replace(ledger, slots={**ledger.slots, slot.uid: rest})


def take_in_left(ledger: Ledger, event: LeftRead) -> Ledger:
    """Take in which processes pods have left that have gone."""
    others = {uid: pids for uid, pids in ledger.left.items() if uid not in event.uids}
    return replace(ledger, left={**others, **event.found})


def vacating(ledger: Ledger, ids: frozenset[str] | None = None) -> frozenset[str]:
    """Return the pods of whose own processes it depends whether their chips are free.

    They are to be read before a pass ends, or ids are given again.

    Args:
        ledger: The state.
        ids: That the kubelet offers, or gives; None: those of a pass.
    """
    return frozenset(
        hold.owner.uid
        for hold in ledger.holds.values()
        if hold.owner is not None
        and not values.is_alive(ledger, hold.owner.uid)
        and (
            _owner_is_through(ledger, hold, hold.owner)
            if ids is None
            else ids.issuperset(hold.kubelet_ids)
        )
    )


def lingers(ledger: Ledger) -> bool:
    """Tell whether all pods have to be listed.

    The kubelet forgets the ids of pods that have ended with the next Allocate,
    or when all pods are listed. And what nobody known to us owns may be a pod's
    that the watch has not shown yet: before it is released, no pod at all may
    have its ids.
    """
    return any(
        _is_nobodys(ledger, hold)
        if hold.owner is None
        else not values.is_alive(ledger, hold.owner.uid)
        and _shows(ledger, hold, hold.owner)
        for hold in ledger.holds.values()
    )


def _is_nobodys(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether this pass would release a hold whose owner was never found."""
    return (
        hold.misses + 1 >= MISSES_TO_RELEASE
        and not _is_in_use(ledger, hold)
        and not _could_be_somebodys(ledger, hold)
    )


def without_ended(ledger: Ledger, ids: frozenset[str]) -> Ledger:
    """Release what a pod had that has gone and whose ids the kubelet gives out again.

    The next pod can be bound as soon as the last one has gone: by a stock scheduler,
    and by ours where the hold of a short pod was never published. The kubelet then
    asks for its chips before the correction pass has come round. That the pod has gone
    at the API server, that the kubelet gives its ids to another, and that no process is
    on its chips: that is all that the pass would find.

    Args:
        ledger: The state.
        ids: That the kubelet offers, or has given.
    """
    ended = {
        hold.sequence
        for hold in ledger.holds.values()
        if hold.owner is not None
        and not values.is_alive(ledger, hold.owner.uid)
        and ids.issuperset(hold.kubelet_ids)
        and not _is_in_use(ledger, hold)
    }
    return without_idle_slots(_without(ledger, ended)) if ended else ledger


def _is_in_use(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether a process is, or can come to be, on chips of a pod that has gone."""
    if hold.owner is not None and hold.owner.uid in ledger.left:
        return True
    # a pod's containers can have had the same chips one after the other
    explained = 0
    for other in ledger.holds.values():
        owner = other.owner
        if other.sequence != hold.sequence and owner is not None:
            explained |= other.mask if values.is_alive(ledger, owner.uid) else 0
    return bool(hold.mask & ledger.busy & ~explained)


def _unexplained(ledger: Ledger, in_use: InUse | None) -> frozenset[str] | None:
    """Return the ids of containers that are not the known owners of their holds.

    The kubelet can give one id twice: that the one container is known says
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


def _owner_is_through(ledger: Ledger, hold: Hold, owner: Owner) -> bool:
    if values.is_alive(ledger, owner.uid):
        return False
    evidence = ledger.shown.get(owner.uid)
    if evidence is None or not evidence.quiet or evidence.as_of < hold.sequence:
        return False
    return not _shows(ledger, hold, owner)


def _shows(ledger: Ledger, hold: Hold, owner: Owner) -> bool:
    """Tell whether pod-resources last showed a hold's ids for its owner."""
    evidence = ledger.shown.get(owner.uid)
    if evidence is None:
        return False
    shown = evidence.ids
    # a new pod of the same name may have got the same ids
    newer = {
        kubelet_id
        for other in ledger.holds.values()
        if other.sequence > hold.sequence
        for kubelet_id in other.kubelet_ids
    }
    return not shown.isdisjoint(set(hold.kubelet_ids) - newer)


def _could_be_somebodys(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether a living pod may own a hold of nobody.

    An ordinary init container is never shown. But its pod's other containers
    are, as soon as all are served: then the pod owns this hold or never will.
    """
    if _is_shown_unexplained(ledger, hold):
        return True
    slot = ledger.slots.get(hold.slot)
    initial = slot is not None and values.is_init(slot, hold.need)
    for pod in ledger.pods.values():
        if pod.terminal or values.is_settled(ledger, pod):
            continue
        counts = {
            need.count
            for need in pod.needs
            if (need.kind is ContainerKind.INIT) is initial
        }
        if len(hold.kubelet_ids) not in counts:
            continue
        under_way = initial and _is_half_served(ledger, hold) and pod.phase != "Running"
        if under_way or not _is_not_there(ledger, pod, hold):
            return True
    return False


def _is_half_served(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether the pod of a hold may still be on its way through admission."""
    slot = ledger.slots.get(hold.slot)
    return slot is not None and choose_chips.open_need(ledger, slot) is not None


def _is_not_there(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    """Tell whether a reading proves that a pod was never given what is held.

    Of a pod that runs it proves nothing: the kubelet may have lost its devices.
    """
    evidence = ledger.shown.get(pod.uid)
    return (
        pod.phase != "Running"
        and evidence is not None
        and evidence.quiet
        and evidence.as_of >= hold.sequence
        and evidence.containers is not None
    )


def _is_shown_unexplained(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether some pod is shown with ids of a hold that none of its own has."""
    for uid, evidence in ledger.shown.items():
        if not values.is_alive(ledger, uid):
            continue  # not read any more
        shown = evidence.ids
        own = {i for each in values.holds_of_pod(ledger, uid) for i in each.kubelet_ids}
        if not (shown - own).isdisjoint(hold.kubelet_ids):
            return True
    return False


def without_idle_slots(ledger: Ledger) -> Ledger:
    """Drop the slots of pods that have ended and from which nothing is held."""
    used = {hold.slot for hold in ledger.holds.values()}
    slots = {
        uid: slot
        for uid, slot in ledger.slots.items()
        if uid in used or values.is_alive(ledger, uid)
    }
    return ledger if len(slots) == len(ledger.slots) else replace(ledger, slots=slots)


def _without_old_evidence(ledger: Ledger) -> Ledger:
    """Drop what was read about pods that have gone and hold nothing."""
    needed = ledger.pods.keys() | {
        hold.owner.uid for hold in ledger.holds.values() if hold.owner is not None
    }
    shown = {uid: each for uid, each in ledger.shown.items() if uid in needed}
    gone = {uid for uid in needed if not values.is_alive(ledger, uid)}
    left = {uid: pids for uid, pids in ledger.left.items() if uid in gone}
    return replace(ledger, shown=shown, left=left)


def _without(ledger: Ledger, sequences: set[int]) -> Ledger:
    holds = {s: hold for s, hold in ledger.holds.items() if s not in sequences}
    return replace(ledger, holds=holds)
