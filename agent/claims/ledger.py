"""Apply one event to a ledger: return the next ledger and the effects to carry out.

The rules that the ledger follows are in tests/pairing-rules.md. No function of this
module decides by the length of a time: the plugin decides how long to wait for a claim.
The time of an event only tells which looks of the driver began after it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from agent.claims import (
    allocate,
    confirm,
    evidence,
    occupancy,
    release,
    standalone,
    swap,
    values,
)
from agent.claims.annotations import note_given
from agent.claims.events import (
    AllocateAsked,
    ChipsRead,
    ChipsUnreadable,
    Effect,
    Event,
    ForeignRead,
    Noted,
    PassEnded,
    PodDeleted,
    PodUpdated,
    PreferenceAsked,
    Registering,
    ResourcesRead,
    StrayProcessesRead,
)
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations
from scheduler_core.wire.annotations import Claim, WireError
from scheduler_core.wire.pods import NpuPod


def step(
    ledger: Ledger, event: Event, now_s: float
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Apply one event to a ledger and return the next ledger and the effects.

    Args:
        now_s: Time of the event. Unit: seconds, loop time.
    """
    before = ledger
    effects: tuple[Effect, ...] = ()
    match event:
        case PodUpdated():
            ledger, effects = _take_in_pod(ledger, event)
        case PodDeleted():
            ledger = _drop_pod(ledger, event.uid)
        case PreferenceAsked():
            ledger, preferred = allocate.prefer(ledger, event)
            effects = (preferred,)
        case AllocateAsked():
            ledger, effects = allocate.allocate(ledger, event)
        case ResourcesRead():
            ledger, effects = _read(ledger, event)
        case ForeignRead():
            ledger, effects = _take_in_foreign(ledger, event)
        case _:
            ledger = _apply_silently(ledger, event)
    return evidence.note_ends(before, ledger, now_s), effects


def _apply_silently(
    ledger: Ledger,
    event: ChipsRead | ChipsUnreadable | StrayProcessesRead | Registering | PassEnded,
) -> Ledger:
    """Return the ledger after an event about chips, the kubelet or a pass.

    Such an event has no effects.
    """
    match event:
        case ChipsRead():
            return evidence.take_in_look(ledger, event)
        case ChipsUnreadable():
            return evidence.expect_no_look(ledger)
        case StrayProcessesRead():
            return release.take_in_stray_processes(ledger, event)
        case Registering():
            return _meet_kubelet(ledger, event.kubelet)
        case PassEnded():
            return release.end_pass(ledger, event)
        case _:
            assert_never(event)


def _take_in_foreign(
    ledger: Ledger, event: ForeignRead
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Store which chips pods have through another device plugin.

    The effects are Kubernetes events on pods that have some of these chips as well.
    """
    effects: tuple[Effect, ...] = ()
    for hold in ledger.holds.values():
        uid = hold.owner.uid if hold.owner else hold.slot
        shared = [
            chip
            for chip in hold.chips
            if chip in event.chips and chip not in ledger.foreign
        ]
        if shared and values.is_alive(ledger, uid):
            users = ", ".join(dict.fromkeys(event.chips[chip] for chip in shared))
            text = (
                f"{annotations.render_chips(shared, ledger.product)} of this pod may "
                f"be used by others too, through another device plugin: {users}"
            )
            effects += (Noted(uid, "NpuShared", text),)
    return replace(ledger, foreign=event.chips), effects


def _meet_kubelet(ledger: Ledger, kubelet: object) -> Ledger:
    """Return the ledger that served another kubelet process, or may have."""
    return replace(ledger, kubelet=kubelet, kubelet_since=ledger.sequence)


def restore(ledger: Ledger, holds: Iterable[Hold]) -> Ledger:
    """Return the ledger with the holds of the journal; call it before any event.

    What offers and passes before have shown of a hold, they have to show again.
    """
    restored = {
        hold.sequence: replace(hold, reoffered=False, misses=0) for hold in holds
    }
    in_order = {sequence: restored[sequence] for sequence in sorted(restored)}
    return replace(ledger, holds=in_order, sequence=max(restored, default=0))


def resume(ledger: Ledger, now_s: float) -> Ledger:
    """Finish the swaps of slots that were cut off when the agent last stopped.

    Chips of pods that have ended meanwhile become unchecked. Call it once, after
    `restore` and after all pods of the node were stored.

    A swap was cut off if a hold has chips that are not in the hold's slot. The slot
    then gets these chips, as `_slots_after_exchange` says.

    Args:
        now_s: Time at which the pods were known. Unit: seconds, loop time.
    """
    ledger = evidence.note_start(ledger, now_s)
    for uid in sorted(ledger.slots):
        slot = ledger.slots[uid]
        given_chips = swap.chips_given_from(ledger, slot)
        if given_chips & ~slot.chips:
            changed = _slots_after_exchange(ledger, slot, given_chips)
            ledger = values.put_slots(ledger, *changed)
    return ledger


def _slots_after_exchange(ledger: Ledger, slot: Slot, given_chips: int) -> list[Slot]:
    """Return the slots to change so that `slot` contains `given_chips`.

    If possible, another slot of equal shape without holds gets the old chips of `slot`.

    Args:
        given_chips: Mask of the chips given out from `slot`; some are not in it.
    """
    equal_slots = [
        other
        for other in ledger.slots.values()
        if other.shape == slot.shape and not values.holds_of_slot(ledger, other.uid)
    ]
    matching = next(
        (other for other in equal_slots if not given_chips & ~other.chips), None
    )
    if matching is not None:
        return [
            replace(slot, chips=matching.chips),
            replace(matching, chips=slot.chips),
        ]
    held_chips = values.held_chips(ledger)
    dispossessed = next(
        (other for other in equal_slots if other.chips & held_chips), None
    )
    chips = _complete_chips(ledger, slot, given_chips)
    changed = [replace(slot, chips=chips)]
    if dispossessed is not None and not slot.chips & (held_chips | chips):
        changed.append(replace(dispossessed, chips=slot.chips))
    return changed


def _complete_chips(ledger: Ledger, slot: Slot, given_chips: int) -> int:
    """Return a mask with `given_chips` and others, with as many chips as `slot` has."""
    rest_count = slot.chips.bit_count() - given_chips.bit_count()
    free = occupancy.unclaimed_chips(ledger, but=slot.uid)
    fresh = chip_sets.complete(ledger.product, free, given_chips, rest_count)
    return given_chips | (fresh or values.lowest(slot.chips & ~given_chips, rest_count))


def _take_in_pod(
    ledger: Ledger, event: PodUpdated
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Store a pod from the API server or from the kubelet's list; update its slot.

    The kubelet's list can be older than the pod watch. It therefore never overwrites a
    pod that the API server has shown. Of two pods with the same name, the ledger keeps
    only the one created later.
    """
    pod = event.pod
    namesakes = [
        namesake
        for namesake in ledger.pods.values()
        if namesake.uid != pod.uid
        and (namesake.namespace, namesake.name) == (pod.namespace, pod.name)
    ]
    if any(_is_late(ledger, event, namesake) for namesake in namesakes):
        return ledger, ()
    for namesake in namesakes:
        ledger = _drop_pod(ledger, namesake.uid)
    if event.by_kubelet and pod.uid in ledger.pods.keys() - ledger.kubelet_only:
        return ledger, ()
    uids = {pod.uid} if event.by_kubelet else set[str]()
    kubelet_only = ledger.kubelet_only - {pod.uid} | uids
    return _update_pod(replace(ledger, kubelet_only=kubelet_only), pod)


def _is_late(ledger: Ledger, event: PodUpdated, other: NpuPod) -> bool:
    """Whether an event shows an older pod than the ledger's pod with the same name.

    Args:
        other: The pod in the ledger.
    """
    is_proven = other.uid not in ledger.kubelet_only
    if is_proven and not event.by_kubelet:
        return False  # the watch delivers events in order
    # unit: seconds; of two pods of one second, the API server's counts
    created = event.pod.created
    return created < other.created or (is_proven and created == other.created)


def _read(ledger: Ledger, event: ResourcesRead) -> tuple[Ledger, tuple[Effect, ...]]:
    """Store an answer of pod-resources, and the owners of holds that the answer shows.

    A pod that is known only from the kubelet's list is dropped if pod-resources does
    not know it and no Allocate was under way during the call to pod-resources.
    """
    if event.kubelet != ledger.kubelet:
        ledger = _meet_kubelet(ledger, event.kubelet)
    if event.uid in ledger.kubelet_only and event.quiet and event.containers is None:
        ledger = _drop_pod(ledger, event.uid)
    return confirm.take_in_reading(ledger, event)


def _update_pod(ledger: Ledger, pod: NpuPod) -> tuple[Ledger, tuple[Effect, ...]]:
    """Store the newest version of a pod and open, change or drop its slot.

    A pod of another node is dropped. If the pod's claim has become unreadable, the
    effect is a Kubernetes event on the pod.
    """
    if pod.node != ledger.node:
        return _drop_pod(ledger, pod.uid), ()
    old_pod = ledger.pods.get(pod.uid)
    ledger = replace(ledger, pods={**ledger.pods, pod.uid: pod})
    if pod.terminal:
        return _close_claim(ledger, pod.uid), ()
    if old_pod is None or old_pod.annotations != pod.annotations:
        ledger = note_given(ledger, pod)
    claim, problem = _claim_of(ledger, pod)
    old_problem = ledger.problems.get(pod.uid, "")
    problems = {u: text for u, text in ledger.problems.items() if u != pod.uid}
    if problem:
        problems[pod.uid] = problem
    ledger = _with_claim(replace(ledger, problems=problems), pod, claim, old_pod)
    if problem and problem != old_problem:
        return ledger, (Noted(pod.uid, "NpuClaimUnreadable", problem),)
    return ledger, ()


def _claim_of(ledger: Ledger, pod: NpuPod) -> tuple[Claim | None, str]:
    """Return (claim, reason why the claim cannot be used).

    The claim is None if the pod has no claim, has an unusable claim, or can never be
    served (`pod.problem`). The reason is "" unless one of the last two cases applies.
    A pod with a part of a chip may come from a scheduler that knows nothing of claims
    of parts. So it is served without one, whatever its annotations say.
    """
    is_of_part = ledger.product.chip_row is not None
    if pod.problem:
        return None, "" if is_of_part else pod.problem
    try:
        claim = annotations.parse_claim(pod.annotations, ledger.product)
    except WireError as error:
        return None, "" if is_of_part else str(error)
    if claim is None or claim.predicate_time == annotations.SERVED:
        # the count can differ: init containers need not have had the same chips
        return claim, ""
    if len(claim.chips) != pod.total:
        return None, "" if is_of_part else (
            f"annotations[{ledger.product.resource!r}]: expected {pod.total} chips, "
            f"as many as the pod asks for, found {len(claim.chips)}"
        )
    return claim, ""


def _with_claim(
    ledger: Ledger, pod: NpuPod, claim: Claim | None, old_pod: NpuPod | None
) -> Ledger:
    """Return the ledger with a slot for a pod's claim.

    If `claim` is None, the result is that of `_with_open_slot`. Otherwise the ledger
    stays as it is in each of these cases:

    - The claim has the predicate-time `SERVED`, so the pod has its chips.
    - The pod has a slot whose claim is unchanged, or whose chips a hold has.
    - The pod has holds but no slot, and was in the ledger before.

    Args:
        old_pod: The pod as the ledger had it before; None for a new pod.
    """
    if claim is None or claim.predicate_time == annotations.SERVED:
        return _with_open_slot(ledger, pod) if claim is None else ledger
    slot = ledger.slots.get(pod.uid)
    if slot is not None:
        is_same = old_pod is not None and _claim_of(ledger, old_pod)[0] == claim
        if is_same or values.holds_of_slot(ledger, pod.uid):
            return ledger  # the slot is newer: chips were given out or exchanged
    if values.holds_of_pod(ledger, pod.uid) and slot is None and old_pod is not None:
        return ledger
    slot_of_claim = Slot(
        uid=pod.uid,
        shape=pod.shape,
        needs=pod.needs,
        chips=chip_sets.mask_of(claim.chips),
        predicate_time=claim.predicate_time,
    )
    # last in order, even if the pod had another claim before
    others = {uid: other for uid, other in ledger.slots.items() if uid != pod.uid}
    return replace(ledger, slots={**others, pod.uid: slot_of_claim})


def _with_open_slot(ledger: Ledger, pod: NpuPod) -> Ledger:
    """Return the ledger with a slot without chips for a pod that has no claim.

    Outside standalone mode the ledger stays as it is, because a scheduler chooses the
    chips. A pod with a slot or with an unreadable claim gets no new slot.
    """
    is_known = pod.uid in ledger.slots or pod.uid in ledger.problems
    if not ledger.standalone or is_known:
        return ledger
    return values.put_slots(ledger, standalone.make_slot(ledger, pod))


def _drop_pod(ledger: Ledger, uid: str) -> Ledger:
    """Return the ledger without the pod with this uid; holds of the pod stay."""
    if uid not in ledger.pods:
        return ledger
    pods = {u: pod for u, pod in ledger.pods.items() if u != uid}
    unproven = ledger.kubelet_only - {uid}
    return _close_claim(replace(ledger, pods=pods, kubelet_only=unproven), uid)


def _close_claim(ledger: Ledger, uid: str) -> Ledger:
    """Remove an ended pod from what is known of living pods; drop the unused slots.

    A slot is unused if its pod has ended and no hold has its chips.
    """
    return release.drop_idle_slots(
        replace(
            ledger,
            problems={u: text for u, text in ledger.problems.items() if u != uid},
            given={u: given for u, given in ledger.given.items() if u != uid},
            bare=ledger.bare - {uid},
        )
    )
