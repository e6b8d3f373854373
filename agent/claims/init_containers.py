"""Assign the holds of ordinary init containers, which pod-resources never shows."""

from dataclasses import replace

from agent.claims import values
from agent.claims.values import Hold, Ledger
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind


def assign_init_holds(
    ledger: Ledger, pod: NpuPod, *, since: int, ids_first: bool
) -> Ledger:
    """Assign to a pod the holds of its ordinary init containers.

    pod-resources never shows them. Their pod follows from the slot, and from their ids,
    which later containers got. This fails where one of those was recreated by itself:
    the kubelet has forgotten the ids of the pod, and init containers do not run again.

    Args:
        ledger: The state.
        pod: At least one of its lasting containers has a known hold.
        since: Only holds with a sequence above this can be theirs.
        ids_first: Prefer the holds given out before under the ids of the pod to those
            from the pod's slot. False for a container that asked by itself.
    """
    holds_by_need = {hold.need: hold for hold in values.holds_of_pod(ledger, pod.uid)}
    slot_holds_by_need = {
        hold.need: hold for hold in values.holds_of_slot(ledger, pod.uid)
    }
    inits = {
        i
        for i, container_need in enumerate(pod.needs)
        if container_need.kind is ContainerKind.INIT
    }
    lasting = [hold for need, hold in holds_by_need.items() if need not in inits]
    if not inits or any(hold.recreated for hold in lasting):
        return ledger
    lasting_ids = {kubelet_id for hold in lasting for kubelet_id in hold.kubelet_ids}
    first = min(lasting, key=_sequence)
    earlier = _holds_before(ledger, first, len(inits))
    for index in sorted(inits, reverse=True):  # the last one was served last
        need = pod.needs[index]
        last_hold = [
            hold for hold in earlier[-1:] if len(hold.kubelet_ids) == need.count
        ]
        slot_hold = [slot_holds_by_need[index]] if index in slot_holds_by_need else []
        matches = [
            hold
            for hold in (
                [*last_hold, *slot_hold] if ids_first else [*slot_hold, *last_hold]
            )
            if _is_open(ledger, pod, hold)
            and hold.sequence > since
            and not lasting_ids.isdisjoint(hold.kubelet_ids)
        ]
        if not matches:
            continue
        earlier = [hold for hold in earlier if hold is not matches[0]]
        if index not in holds_by_need:
            owner = values.make_owner(pod, need.name)
            ledger = values.put_hold(
                ledger, replace(matches[0], owner=owner, slot=pod.uid, need=index)
            )
    return ledger


def _sequence(hold: Hold) -> int:
    return hold.sequence


def _is_open(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    return hold.owner is None or values.is_of_gone_namesake(ledger, pod, hold)


def _holds_before(ledger: Ledger, first: Hold, inits: int) -> list[Hold]:
    """Return the holds that can be of a pod's init containers, from whichever slots.

    The kubelet gives a pod's first lasting container the ids of its init containers
    before other ids, and gives them to no other pod meanwhile. So the last holds
    before, under one of its ids, were theirs, in their order. Recreated containers may
    have asked in between, under other ids.

    Args:
        ledger: The state.
        first: The pod's first lasting hold.
        inits: Number of init containers, 1 or more.
    """
    ids = set(first.kubelet_ids)
    under_its_ids = (
        hold
        for hold in ledger.holds.values()
        if hold.sequence < first.sequence and not ids.isdisjoint(hold.kubelet_ids)
    )
    return sorted(under_its_ids, key=_sequence)[-inits:]


def unassign_init_holds(
    ledger: Ledger, pod: NpuPod, *, before_sequence: float = float("inf")
) -> Ledger:
    """Detach from a pod the holds of its init containers.

    The init containers have ended. Only the kubelet could give their ids to them again.
    """
    for hold in values.holds_of_pod(ledger, pod.uid):
        name = hold.owner.container if hold.owner is not None else ""
        if hold.sequence < before_sequence and is_initial(pod, name):
            ledger = values.put_hold(ledger, replace(hold, owner=None, reoffered=True))
    return ledger


def is_initial(pod: NpuPod, container: str) -> bool:
    """Tell whether a container is an ordinary init container, which is never shown."""
    return any(
        need.name == container and need.kind is ContainerKind.INIT for need in pod.needs
    )
