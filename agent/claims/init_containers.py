"""What ordinary init containers were given: pod-resources never shows it."""

from dataclasses import replace

from agent.claims import values
from agent.claims.values import Hold, Ledger
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind


def own(ledger: Ledger, pod: NpuPod, *, since: int, near: bool) -> Ledger:
    """Give a pod what its init containers got.

    pod-resources never shows ordinary init containers; that their pod is this
    one follows from the slot and from their ids, which later containers got. Not
    where one of those was made anew by itself: the kubelet has forgotten the pod's
    ids, and init containers do not run again.

    Args:
        ledger: The state.
        pod: One of its other containers was found to hold something.
        since: The sequence up to which nothing of this is theirs.
        near: What was given out before under its ids goes before what was given
            out from the pod's slot. Not for a container that asked by itself.
    """
    mine = {hold.need: hold for hold in values.holds_of_pod(ledger, pod.uid)}
    in_slot = {hold.need: hold for hold in values.holds_of_slot(ledger, pod.uid)}
    inits = {i for i, each in enumerate(pod.needs) if each.kind is ContainerKind.INIT}
    lasting = [hold for need, hold in mine.items() if need not in inits]
    if not inits or any(hold.anew for hold in lasting):
        return ledger
    shown = {kubelet_id for hold in lasting for kubelet_id in hold.kubelet_ids}
    first = min(lasting, key=_sequence)
    before = _before(ledger, first, len(inits))
    for index in sorted(inits, reverse=True):  # the last one was served last
        need = pod.needs[index]
        last = [hold for hold in before[-1:] if len(hold.kubelet_ids) == need.count]
        of_slot = [in_slot[index]] if index in in_slot else []
        found = [
            hold
            for hold in ([*last, *of_slot] if near else [*of_slot, *last])
            if _is_open(ledger, pod, hold)
            and hold.sequence > since
            and not shown.isdisjoint(hold.kubelet_ids)
        ]
        if not found:
            continue
        before = [hold for hold in before if hold is not found[0]]
        if index not in mine:
            owner = values.owner_of(pod, need.name)
            ledger = values.with_hold(
                ledger, replace(found[0], owner=owner, slot=pod.uid, need=index)
            )
    return ledger


def _sequence(hold: Hold) -> int:
    return hold.sequence


def _is_open(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    return hold.owner is None or values.is_of_late_namesake(ledger, pod, hold)


def _before(ledger: Ledger, first: Hold, inits: int) -> list[Hold]:
    """Return what can be a pod's init containers', whichever slots it came from.

    The kubelet gives a pod's first lasting container the ids of its init
    containers before any other, and to nobody else meanwhile. So what was given out
    last before, under one of its ids, was theirs, in their order. Containers that
    are made anew may have asked in between, under other ids.

    Args:
        ledger: The state.
        first: The pod's first lasting hold.
        inits: How many init containers there are, 1 or more.
    """
    ids = set(first.kubelet_ids)
    under_its_ids = (
        hold
        for hold in ledger.holds.values()
        if hold.sequence < first.sequence and not ids.isdisjoint(hold.kubelet_ids)
    )
    return sorted(under_its_ids, key=_sequence)[-inits:]


def let_go(ledger: Ledger, pod: NpuPod, *, before: float = float("inf")) -> Ledger:
    """Part a pod from what its init containers had.

    They have ended; only the kubelet would have given it to them again.
    """
    for hold in values.holds_of_pod(ledger, pod.uid):
        name = hold.owner.container if hold.owner is not None else ""
        if hold.sequence < before and is_initial(pod, name):
            ledger = values.with_hold(ledger, replace(hold, owner=None, freed=True))
    return ledger


def is_initial(pod: NpuPod, container: str) -> bool:
    """Tell whether a container is an ordinary init one, which is never shown."""
    return any(
        need.name == container and need.kind is ContainerKind.INIT for need in pod.needs
    )
