"""The ledger's one entry: an event comes in, the next state and effects go out.

Rules 1, 2, 4 (the agent's half), 5, 7, 8 (the order of a swap), 10, 13 and 15
of the pairing of pods and chips live in this package and nowhere else. Nothing
here depends on time: how long to wait for a claim is the plugin's.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from agent.claims import allocate, confirm, occupancy, release, standalone, swap, values
from agent.claims.events import (
    AllocateAsked,
    ChipsRead,
    Effect,
    Event,
    LeftRead,
    Noted,
    PassEnded,
    PodGone,
    PodSeen,
    PreferenceAsked,
    ResourcesRead,
)
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations
from scheduler_core.wire.annotations import Claim, WireError
from scheduler_core.wire.pods import NpuPod


def step(ledger: Ledger, event: Event) -> tuple[Ledger, tuple[Effect, ...]]:
    """Take in one event.

    Cost:
        O(pods + holds * chips of the node).
    """
    effects: tuple[Effect, ...] = ()
    match event:
        case PodSeen():
            ledger, effects = _meet(ledger, event)
        case PodGone():
            ledger = _forget(ledger, event.uid)
        case ChipsRead() | LeftRead():
            ledger = _look(ledger, event)
        case PreferenceAsked():
            ledger, preferred = allocate.prefer(ledger, event)
            effects = (preferred,)
        case AllocateAsked():
            ledger, effects = allocate.allocate(ledger, event)
        case ResourcesRead():
            ledger, effects = _read(ledger, event)
        case PassEnded():
            ledger = release.end_pass(ledger, event)
        case _:
            assert_never(event)
    return ledger, effects


def _look(ledger: Ledger, event: ChipsRead | LeftRead) -> Ledger:
    """Take in what driver or kernel has shown."""
    if isinstance(event, LeftRead):
        return release.take_in_left(ledger, event)
    return replace(ledger, unhealthy=event.unhealthy, busy=event.busy)


def restore(ledger: Ledger, holds: Iterable[Hold]) -> Ledger:
    """Take over the holds of the journal, before anything else has happened."""
    kept = {hold.sequence: hold for hold in sorted(holds, key=_sequence)}
    return replace(ledger, holds=kept, sequence=max(kept, default=0))


def _sequence(hold: Hold) -> int:
    return hold.sequence


def resume(ledger: Ledger) -> Ledger:
    """Finish the exchanges that the last agent had begun.

    To be called once, when all pods of the node were seen after `restore`. A
    pod that holds the chips of another pod's open claim gives it its own.
    """
    for uid in sorted(ledger.slots):
        mine = ledger.slots[uid]
        got = swap.given_from(ledger, mine)
        if got & ~mine.chips:
            changed = _with_what_it_got(ledger, mine, got)
            ledger = replace(ledger, slots={**ledger.slots, **changed})
    return ledger


def _with_what_it_got(ledger: Ledger, mine: Slot, got: int) -> dict[str, Slot]:
    """Return the slots that change so that one has what was given out from it.

    It changes with the slot whose chips those were. Where that is done already, a
    circle of exchanges was broken off: what it gives up is for an equal one whose own
    chips another pod has got.
    """
    equals = [
        slot
        for slot in ledger.slots.values()
        if slot.shape == mine.shape and not values.holds_of_slot(ledger, slot.uid)
    ]
    rival = next((slot for slot in equals if not got & ~slot.chips), None)
    if rival is not None:
        return {
            mine.uid: replace(mine, chips=rival.chips),
            rival.uid: replace(rival, chips=mine.chips),
        }
    held = values.held(ledger)
    robbed = next((slot for slot in equals if slot.chips & held), None)
    changed = {mine.uid: replace(mine, chips=_around(ledger, mine, got))}
    if robbed is not None and not mine.chips & (held | changed[mine.uid].chips):
        changed[robbed.uid] = replace(robbed, chips=mine.chips)
    return changed


def _around(ledger: Ledger, slot: Slot, got: int) -> int:
    """Return chips for a slot of which some were given out, these among them."""
    rest = slot.chips.bit_count() - got.bit_count()
    free = occupancy.unclaimed(ledger, but=[slot.uid])
    fresh = chip_sets.complete(ledger.product, free, got, rest)
    return got | (
        fresh or chip_sets.mask_of(chip_sets.ids_of(slot.chips & ~got)[:rest])
    )


def _meet(ledger: Ledger, event: PodSeen) -> tuple[Ledger, tuple[Effect, ...]]:
    """Take in a pod from one who may know it.

    What the API server has shown is not overwritten by the kubelet's list,
    which can be older. A pod that only the kubelet has shown counts until the
    API server shows a newer one of its name, or the kubelet forgets it. A name
    belongs to one pod at a time: where the list is ahead of the watch, the older
    pod has gone, and so have its annotations.
    """
    pod = event.pod
    namesakes = [
        other
        for other in ledger.pods.values()
        if other.uid != pod.uid
        and (other.namespace, other.name) == (pod.namespace, pod.name)
    ]
    if any(_is_late(ledger, event, other) for other in namesakes):
        return ledger, ()
    for other in namesakes:
        ledger = _forget(ledger, other.uid)
    if not event.by_kubelet:
        return _see(replace(ledger, unproven=ledger.unproven - {pod.uid}), pod)
    if pod.uid in ledger.pods.keys() - ledger.unproven:
        return ledger, ()
    return _see(replace(ledger, unproven=ledger.unproven | {pod.uid}), pod)


def _is_late(ledger: Ledger, event: PodSeen, other: NpuPod) -> bool:
    """Tell whether a pod is shown after another one has taken over its name."""
    is_proven = other.uid not in ledger.unproven
    if is_proven and not event.by_kubelet:
        return False  # the watch tells things in their order
    # seconds: of two in one second, the API server's word counts
    created = event.pod.created
    return created < other.created or (is_proven and created == other.created)


def _read(ledger: Ledger, event: ResourcesRead) -> tuple[Ledger, tuple[Effect, ...]]:
    """Take in what pod-resources said; the kubelet's own pods can go this way."""
    if event.uid in ledger.unproven and event.quiet and event.containers is None:
        ledger = _forget(ledger, event.uid)
    return confirm.read(ledger, event)


def _see(ledger: Ledger, pod: NpuPod) -> tuple[Ledger, tuple[Effect, ...]]:
    """Take in a pod as it is now."""
    if pod.node != ledger.node:
        return _forget(ledger, pod.uid), ()
    before = ledger.pods.get(pod.uid)
    ledger = replace(ledger, pods={**ledger.pods, pod.uid: pod})
    if pod.terminal:
        return _close(ledger, pod.uid), ()
    claim, problem = _claim_of(ledger, pod)
    old_problem = ledger.problems.get(pod.uid, "")
    problems = {u: text for u, text in ledger.problems.items() if u != pod.uid}
    if problem:
        problems[pod.uid] = problem
    ledger = _with_claim(replace(ledger, problems=problems), pod, claim, before)
    if problem and problem != old_problem:
        return ledger, (Noted(pod.uid, "NpuClaimUnreadable", problem),)
    return ledger, ()


def _claim_of(ledger: Ledger, pod: NpuPod) -> tuple[Claim | None, str]:
    """Read a pod's claim; the second part says why it cannot be used."""
    if pod.problem:
        return None, pod.problem
    try:
        claim = annotations.parse_claim(pod.annotations, ledger.product)
    except WireError as error:
        return None, str(error)
    if claim is None or claim.predicate_time == annotations.SERVED:
        # what was mounted can be more, or less: init containers need not have the same
        return claim, ""
    if len(claim.chips) != pod.total:
        return None, (
            f"annotations[{ledger.product.resource!r}]: expected {pod.total} chips, "
            f"as many as the pod asks for, found {len(claim.chips)}"
        )
    return claim, ""


def _with_claim(
    ledger: Ledger, pod: NpuPod, claim: Claim | None, before: NpuPod | None
) -> Ledger:
    """Open, change or leave a pod's slot, as its annotations say."""
    if claim is None or claim.predicate_time == annotations.SERVED:
        return _with_open_slot(ledger, pod) if claim is None else ledger
    slot = ledger.slots.get(pod.uid)
    if slot is not None:
        same = before is not None and _claim_of(ledger, before)[0] == claim
        if same or values.holds_of_slot(ledger, pod.uid):
            return ledger  # ours is newer: what was given out, or an exchange
    if values.holds_of_pod(ledger, pod.uid) and slot is None and before is not None:
        return ledger
    opened = Slot(
        uid=pod.uid,
        shape=pod.shape,
        needs=pod.needs,
        chips=chip_sets.mask_of(claim.chips),
        predicate_time=claim.predicate_time,
    )
    # Behind the others, also if it had claimed something else before.
    earlier = {uid: each for uid, each in ledger.slots.items() if uid != pod.uid}
    return replace(ledger, slots={**earlier, pod.uid: opened})


def _with_open_slot(ledger: Ledger, pod: NpuPod) -> Ledger:
    """Open the slot of a pod that no scheduler of ours has seen."""
    known = pod.uid in ledger.slots or pod.uid in ledger.problems
    if not ledger.standalone or known:
        return ledger
    slots = {**ledger.slots, pod.uid: standalone.slot_of(ledger, pod)}
    return replace(ledger, slots=slots)


def _forget(ledger: Ledger, uid: str) -> Ledger:
    """Drop a pod that the API server no longer has; its holds stay."""
    if uid not in ledger.pods:
        return ledger
    pods = {u: pod for u, pod in ledger.pods.items() if u != uid}
    unproven = ledger.unproven - {uid}
    return _close(replace(ledger, pods=pods, unproven=unproven), uid)


def _close(ledger: Ledger, uid: str) -> Ledger:
    """End a pod's claim: nothing will be served from it any more."""
    return release.without_idle_slots(
        replace(
            ledger,
            problems={u: text for u, text in ledger.problems.items() if u != uid},
            bare=ledger.bare - {uid},
        )
    )
