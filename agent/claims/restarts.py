"""Serve running containers whose device ids the kubelet has lost or never had.

The kubelet never had them if no plugin was registered when the container started. When
the kubelet recreates such a container, it calls Allocate although no pod is being
admitted. The agent serves the container only if the call fits no waiting pod in the
ledger.
"""

from dataclasses import replace

from agent.claims import choose_chips, occupancy, values
from agent.claims.choose_chips import Pick
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations


def find_picks(ledger: Ledger, count: int) -> list[Pick]:
    """Return a `Pick` for each running container that may be asking for `count` chips.

    Containers whose ids the kubelet has lost get the chips that they held before. Pods
    in `ledger.bare` run although one of their containers was never given a device, as
    far as is known. Of such a pod, only the container that its slot serves next gets
    chips of its claim.
    """
    picks = []
    for hold in ledger.holds.values():
        slot = _find_slot_of_lost(ledger, hold) if hold.lost else None
        # more chips than ids: restored without a journal, with chips of init containers
        if slot is not None and len(hold.kubelet_ids) == count <= len(hold.chips):
            chips = chip_sets.mask_of(hold.chips)
            picks.append(
                Pick(
                    slot=slot,
                    need=hold.need,
                    reused=0,
                    pool=chips,
                    replaces=hold.sequence,
                )
            )
    for uid in sorted(ledger.bare):
        slot = ledger.slots.get(uid) or _make_annotated_slot(ledger, uid)
        if slot is None:
            continue
        pick = choose_chips.pick_from_claim(ledger, slot)
        if pick is not None and slot.needs[pick.need].count == count:
            picks.append(pick)
    return picks


def _make_annotated_slot(ledger: Ledger, uid: str) -> Slot | None:
    """Return a slot with the chips that a served pod's annotation names.

    Such a pod has no hold if both the kubelet's checkpoint and the journal were lost.
    Return None if the pod was not served, has gone, or has containers that hold chips.
    """
    pod = ledger.pods.get(uid)
    if pod is None or values.holds_of_pod(ledger, uid):
        return None
    if pod.annotations.get(annotations.PREDICATE_TIME) != str(annotations.SERVED):
        return None
    chips = occupancy.chips_in_annotation(ledger, pod, annotations.ASCEND_REAL)
    slot = values.make_served_slot(ledger, pod)
    return replace(slot, chips=chip_sets.mask_of(chips))


def _find_slot_of_lost(ledger: Ledger, hold: Hold) -> Slot | None:
    """Return the slot of a hold whose ids the kubelet has lost.

    If the slot is gone, return a new slot with the chips of all holds of the pod that
    owns `hold`. Return None if this pod is gone too.
    """
    slot = ledger.slots.get(hold.slot)
    pod = ledger.pods.get(hold.owner.uid) if hold.owner is not None else None
    if slot is not None or pod is None:
        return slot
    return values.make_served_slot(ledger, pod)


def pick_running_container(ledger: Ledger, ids: tuple[str, ...]) -> Pick | str | None:
    """Return chips for a running container whose ids the kubelet lost or never had.

    The kubelet does not say which container asks. If only one can be asking, and no
    process is on its chips, it gets its own chips. Otherwise the asking container gets
    unclaimed chips, because its own chips may still be in use.

    Args:
        ids: Device ids of the Allocate.

    Returns:
        None if no running container can be asking, or if a living pod without a claim
        can be asking. Otherwise a `Pick` with the chips, or a text that refuses the
        Allocate. It is refused if unclaimed chips are necessary but too few. It is also
        refused if unclaimed chips are necessary and a container that can be asking
        takes ASCEND_VISIBLE_DEVICES from its pod's annotation.
    """
    picks = find_picks(ledger, len(ids))
    if not picks or _has_claimless_pod(ledger, len(ids), picks):
        return None
    reads_annotation = any(pick.slot.shape.reads_annotation for pick in picks)
    if len(picks) == 1 and not picks[0].pool & ledger.busy:
        return replace(picks[0], recreated=True)
    fresh = chip_sets.choose(
        ledger.product, occupancy.unclaimed_chips(ledger), len(ids)
    )
    if not fresh or reads_annotation:
        return (
            f"{len(picks)} running containers have lost their "
            f"{ledger.product.resource} devices in the kubelet and it cannot be "
            "told which of them asks; delete their pods to have them started again"
        )
    uid = values.make_fresh_uid(ledger.sequence + 1)
    slot = replace(picks[0].slot, uid=uid, chips=fresh)
    return Pick(
        slot=slot,
        need=picks[0].need,
        reused=0,
        pool=fresh,
        rechosen=True,
        recreated=True,
    )


def _has_claimless_pod(ledger: Ledger, count: int, picks: list[Pick]) -> bool:
    """Whether a pod that has no slot and no hold could be the caller of an Allocate.

    Args:
        count: Number of chips that the Allocate asks for.
        picks: For other pods.
    """
    picked_uids = {pick.slot.uid for pick in picks}
    return any(
        not pod.terminal
        and pod.uid not in ledger.slots
        and pod.uid not in picked_uids
        and not values.holds_of_pod(ledger, pod.uid)
        and count in {need.count for need in pod.needs}
        for pod in ledger.pods.values()
    )
