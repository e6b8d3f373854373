"""Running containers that ask for their chips again.

Outside admission, because the kubelet has lost what they had or no plugin had
registered when they were started: candidates only after all that wait.
"""

from dataclasses import replace

from agent.claims import choose_chips, occupancy, values
from agent.claims.choose_chips import Pick
from agent.claims.values import Hold, Ledger, Slot
from scheduler_core.node import chips as chip_sets


def waiting(ledger: Ledger, count: int) -> list[Pick]:
    """Return the running containers that may be asking for their chips again.

    Those that the kubelet has lost the ids of, and those that were started
    before any plugin had registered.
    """
    found = []
    for hold in ledger.holds.values():
        slot = _slot_of_lost(ledger, hold) if hold.lost else None
        # more chips than ids: found without a journal, with those of init containers
        if slot is not None and len(hold.kubelet_ids) == count <= len(hold.chips):
            own = chip_sets.mask_of(hold.chips)
            found.append(
                Pick(
                    slot=slot,
                    need=hold.need,
                    reused=0,
                    pool=own,
                    replaces=hold.sequence,
                )
            )
    for uid in sorted(ledger.bare & ledger.slots.keys()):
        slot = ledger.slots[uid]
        pick = choose_chips.usable(ledger, slot)
        if pick is not None and slot.needs[pick.need].count == count:
            found.append(pick)
    return found


def _slot_of_lost(ledger: Ledger, hold: Hold) -> Slot | None:
    """Return the slot of a running pod, made anew if it was served long ago."""
    slot = ledger.slots.get(hold.slot)
    pod = ledger.pods.get(hold.owner.uid) if hold.owner is not None else None
    if slot is not None or pod is None:
        return slot
    return values.slot_of_served(ledger, pod)


def pick(ledger: Ledger, ids: tuple[str, ...]) -> Pick | str | None:
    """Serve a running container whose devices the kubelet has lost.

    If it can only be one, and nothing runs on its chips, it gets its own. If it
    can be several, none of theirs may be given (the others still run on them):
    it gets chips that nobody claims. It is nobody's who may have no claim.
    """
    lost = waiting(ledger, len(ids))
    if not lost or _claimless(ledger, len(ids)):
        return None
    reads = any(pick.slot.shape.reads_annotation for pick in lost)
    if len(lost) == 1 and not lost[0].pool & ledger.busy:
        return replace(lost[0], anew=True)
    fresh = chip_sets.choose(ledger.product, occupancy.unclaimed(ledger), len(ids))
    if not fresh or reads:
        return (
            f"{len(lost)} running containers have lost their "
            f"{ledger.product.resource} devices in the kubelet and it cannot be "
            "told which of them asks; delete their pods to have them started anew"
        )
    uid = values.fresh_uid(ledger.sequence + 1)
    slot = replace(lost[0].slot, uid=uid, chips=fresh)
    return Pick(
        slot=slot,
        need=lost[0].need,
        reused=0,
        pool=fresh,
        rechosen=True,
        anew=True,
    )


def _claimless(ledger: Ledger, count: int) -> bool:
    """Tell whether a pod without a claim may be the one who asks."""
    return any(
        not pod.terminal
        and pod.uid not in ledger.slots
        and not values.holds_of_pod(ledger, pod.uid)
        and count in {need.count for need in pod.needs}
        for pod in ledger.pods.values()
    )
