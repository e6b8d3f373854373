"""Date the evidence of the driver: which looks show what an ended pod has left.

A *look* is one reading of the chips by the driver. It says which chips have processes.
A look that began before a pod ended proves nothing about what the pod has left: its
processes may have ended since, or not yet have been seen. Until a look that began after
the end has read a chip, the chip is *unchecked*: its ids stay as they were, its hold
stays, and no other container gets it.

While no chip can be read at all, no look is awaited: what pods leave behind is then
told by the kernel alone, which shows the processes of their containers. The same holds
for one chip whose processes have not been told for `conditions.UNREAD_S`.
"""

from dataclasses import replace

from agent.claims import release, values
from agent.claims.events import ChipsRead
from agent.claims.values import Ledger
from scheduler_core.node import chips as chip_sets


def note_ends(before: Ledger, ledger: Ledger, now_s: float) -> Ledger:
    """Return the ledger with the chips of pods that have just ended as unchecked.

    Args:
        before: Ledger before the event.
        ledger: Ledger after the event.
        now_s: Time of the event. Unit: seconds, loop time.
    """
    if ledger.pods is before.pods:
        return ledger
    ended = [
        uid
        for uid in before.pods
        if values.is_alive(before, uid) and not values.is_alive(ledger, uid)
    ]
    chips = chip_sets.union(_chips_possibly_of(before, uid) for uid in ended)
    return _mark_unchecked(ledger, chips, now_s)


def note_start(ledger: Ledger, now_s: float) -> Ledger:
    """Return the ledger with all chips unchecked whose pods may have ended before.

    They are the chips of holds without a known and living owner. The agent that made
    these holds has stopped, and this one has not seen when their pods ended.

    Args:
        now_s: Time at which all pods of the node were known. Unit: seconds, loop time.
    """
    chips = chip_sets.union(
        hold.mask
        for hold in ledger.holds.values()
        if not values.has_living_owner(ledger, hold)
    )
    return _mark_unchecked(ledger, chips, now_s)


def _chips_possibly_of(ledger: Ledger, uid: str) -> int:
    """Return the mask of chips that a living pod has, or may have.

    It may have the chips of each hold whose owner is not known. A running pod that is
    not confirmed may have those of its slot.
    """
    pod, slot = ledger.pods[uid], ledger.slots.get(uid)
    chips = chip_sets.union(
        hold.mask
        for hold in ledger.holds.values()
        if hold.owner is None or hold.owner.uid == uid
    )
    is_open = pod.phase == "Running" and not values.is_confirmed(ledger, pod)
    return chips | slot.chips if slot is not None and is_open else chips


def _mark_unchecked(ledger: Ledger, chips: int, now_s: float) -> Ledger:
    if not chips:
        return ledger
    if ledger.unreadable:
        return replace(ledger, busy=ledger.busy & ~chips)
    ended_s = dict.fromkeys(chip_sets.ids_of(chips), now_s)
    return replace(ledger, ended_s={**ledger.ended_s, **ended_s})


def take_in_look(ledger: Ledger, event: ChipsRead) -> Ledger:
    """Store which chips are unhealthy and busy; end the waits that the look answers."""
    ended_s = {
        chip: at_s
        for chip, at_s in ledger.ended_s.items()
        if at_s >= event.began_s or event.unread >> chip & 1
    }
    return replace(
        ledger,
        unhealthy=event.unhealthy,
        busy=event.busy,
        ended_s=ended_s,
        unreadable=False,
    )


def expect_no_look(ledger: Ledger) -> Ledger:
    """Return the ledger without unchecked chips, until a look has read chips again."""
    return replace(_without_unchecked(ledger), unreadable=True)


def assume_no_processes(ledger: Ledger, ids: frozenset[str]) -> Ledger:
    """Return the ledger that a look would leave which shows no process.

    It differs from `ledger` only in the unchecked chips. The result is `ledger` itself
    if there are none.

    Args:
        ids: Device ids that the kubelet offers or gives out.
    """
    if not ledger.ended_s:
        return ledger
    return release.release_reissued_ids(_without_unchecked(ledger), ids)


def _without_unchecked(ledger: Ledger) -> Ledger:
    """Return the ledger as if a look had shown no process on the unchecked chips."""
    busy = ledger.busy & ~values.unchecked_chips(ledger)
    return replace(ledger, ended_s={}, busy=busy)
