"""Find the holds of init containers, which pod-resources never shows."""

from dataclasses import replace
from operator import attrgetter

from agent.claims import values
from agent.claims.values import Hold, Ledger
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind


def assign_init_holds(
    ledger: Ledger, pod: NpuPod, *, since: int, ids_first: bool
) -> Ledger:
    """Make the init containers of a pod the owners of their holds.

    pod-resources shows no init containers. But the kubelet gives the ids of a pod's
    init containers to its later containers. So the hold of an init container shares an
    id with a hold of an app container or sidecar.

    If an app container or sidecar was recreated while the pod ran, nothing is assigned.
    The kubelet has then forgotten the ids of the init containers.

    Args:
        pod: At least one of its app containers or sidecars owns a hold.
        since: Only holds whose sequence is higher than this are assigned.
        ids_first: An init container may match two holds by ids: the newest one from any
            slot, and one in the pod's own slot. True takes the newest one, False the
            one in the slot.
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
    first = min(lasting, key=attrgetter("sequence"))
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
            if values.is_open_for(ledger, pod, hold)
            and hold.sequence > since
            and not lasting_ids.isdisjoint(hold.kubelet_ids)
        ]
        if not matches:
            continue
        earlier = [hold for hold in earlier if hold is not matches[0]]
        if index not in holds_by_need:
            owner = values.make_owner(pod, need.name)
            ledger = values.put_holds(
                ledger, replace(matches[0], owner=owner, slot=pod.uid, need=index)
            )
    return ledger


def _holds_before(ledger: Ledger, first: Hold, inits: int) -> list[Hold]:
    """Return the newest holds before `first` that share an id with it, oldest first.

    Args:
        first: Oldest hold of the pod's app containers and sidecars.
        inits: The pod's number of init containers, at least 1; the most holds to
            return.
    """
    ids = set(first.kubelet_ids)
    under_its_ids = (
        hold
        for hold in ledger.holds.values()
        if hold.sequence < first.sequence and not ids.isdisjoint(hold.kubelet_ids)
    )
    return sorted(under_its_ids, key=attrgetter("sequence"))[-inits:]


def unassign_init_holds(
    ledger: Ledger, pod: NpuPod, *, before_sequence: float = float("inf")
) -> Ledger:
    """Remove the owner from the holds of a pod's init containers.

    The kubelet has forgotten devices of this pod. So it may give the ids of the init
    containers to any container. `reoffered` is set on each of these holds to say so.

    Args:
        before_sequence: Only holds whose sequence is lower than this lose their owner.
    """
    for hold in values.holds_of_pod(ledger, pod.uid):
        name = hold.owner.container if hold.owner is not None else ""
        if hold.sequence < before_sequence and is_initial(pod, name):
            ledger = values.put_holds(ledger, replace(hold, owner=None, reoffered=True))
    return ledger


def is_initial(pod: NpuPod, container: str) -> bool:
    """Whether the container with this name is an init container but no sidecar.

    pod-resources never shows such a container.
    """
    return any(
        need.name == container and need.kind is ContainerKind.INIT for need in pod.needs
    )
