"""Find out which container owns which hold, from the answers of pod-resources.

pod-resources shows the device ids of each container. A container owns the newest hold
that has its ids and was made before the answer.

If an answer shows a container without ids, the kubelet may have forgotten the
container's devices. The agent believes that they are forgotten only if no Allocate was
under way while pod-resources answered. The agent never releases chips because of such
an answer alone.
"""

from collections.abc import Mapping
from dataclasses import replace

from agent.claims import init_containers, occupancy, release, standalone, swap, values
from agent.claims.events import (
    Counted,
    Effect,
    Identity,
    Noted,
    ResourcesRead,
)
from agent.claims.values import Evidence, Hold, Ledger, Owner
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind

#: Event reason: a pod has devices that this ledger did not give out.
RESTORED = "NpuHoldRestored"


def pods_to_read(ledger: Ledger, *, thorough: bool) -> tuple[tuple[str, str, str], ...]:
    """Return the pods about which the reconciler must now ask pod-resources.

    The result has all ended pods that own a hold. If any hold has no known owner, the
    result also has the living pods that are not confirmed (`values.is_confirmed`).

    Args:
        thorough: Whether the result has all living pods, so that the reconciler checks
            whether the kubelet still knows their devices.

    Returns:
        (uid, namespace, name) of each pod, sorted.
    """
    open_holds = any(hold.owner is None for hold in ledger.holds.values())
    pods = {
        (pod.uid, pod.namespace, pod.name)
        for pod in ledger.pods.values()
        if not pod.terminal
        and (thorough or (open_holds and not values.is_confirmed(ledger, pod)))
    }
    for hold in ledger.holds.values():
        owner = hold.owner
        if owner is not None and not values.is_alive(ledger, owner.uid):
            pods.add((owner.uid, owner.namespace, owner.pod))
    return tuple(sorted(pods))


def unconfirmed_pods(ledger: Ledger) -> frozenset[str]:
    """Return the uids of the admitted pods that are not confirmed and not terminal.

    A pod is confirmed if each app container and sidecar with NPUs owns a hold whose ids
    the kubelet has not lost.
    """
    return frozenset(
        uid
        for uid, pod in ledger.pods.items()
        if not pod.terminal
        and values.is_admitted(ledger, pod)
        and not values.is_confirmed(ledger, pod)
    )


def has_open_holds(ledger: Ledger) -> bool:
    """Whether any hold of the ledger has no known owner, or one that has ended."""
    return not all(values.has_living_owner(ledger, h) for h in ledger.holds.values())


def take_in_reading(
    ledger: Ledger, event: ResourcesRead
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Store an answer of pod-resources about a pod, and derive owners of holds from it.

    pod-resources is asked by the pod's name, so the answer can be about a deleted pod
    of the same name. No owner is therefore set before the kubelet has admitted the pod
    with uid `event.uid`.
    """
    evidence = Evidence(
        containers=event.containers, as_of=event.as_of, quiet=event.quiet
    )
    ledger = replace(ledger, evidence={**ledger.evidence, event.uid: evidence})
    pod = ledger.pods.get(event.uid)
    if pod is None or pod.terminal or event.containers is None:
        return ledger, ()
    if not values.is_admitted(ledger, pod):
        return ledger, ()
    effects: tuple[Effect, ...] = ()
    for need in pod.needs:
        ids = event.containers.get(need.name, frozenset())
        if ids:
            ledger, new_effects = _confirm(
                ledger, pod, need.name, ids=ids, until=event.until
            )
            effects += new_effects
    if event.quiet:
        ledger, new_effects = _note_missing_devices(ledger, pod, event.containers)
        effects += new_effects
    return ledger, effects


def _confirm(
    ledger: Ledger, pod: NpuPod, container: str, *, ids: frozenset[str], until: int
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Make a container the owner of the hold whose ids pod-resources showed for it.

    If the hold's chips came from another pod's slot, `swap.exchange` changes the slots.
    If there is no such hold, `_restore_hold` may add one.

    Args:
        container: Name of the container in `pod`.
        ids: The ids that pod-resources showed for the container.
        until: Sequence of the newest hold when pod-resources answered.
    """
    owner = values.make_owner(pod, container)
    old_hold = _newest_hold_of(ledger, owner)
    hold = _find_hold(ledger, pod, ids, until)
    if old_hold is not None and ids <= frozenset(old_hold.kubelet_ids):
        if not old_hold.lost:
            return ledger, ()
        if hold is None or hold.sequence < old_hold.sequence:
            ledger = values.put_holds(ledger, replace(old_hold, lost=False))
            return init_containers.assign_init_holds(
                ledger, pod, since=0, ids_first=False
            ), ()
    if hold is None:
        return _restore_hold(ledger, owner, ids)
    if old_hold is not None:
        ledger = _detach_hold(ledger, pod, old_hold)
    is_swapped = hold.slot != pod.uid
    if is_swapped:
        ledger = swap.exchange(ledger, pod, hold, replaced_hold=old_hold)
    need = values.need_of(pod, container)
    # served in its turn from the pod's slot: so were its init containers, if any
    ids_first = is_swapped or hold.need != need
    hold = replace(
        ledger.holds[hold.sequence],
        owner=owner,
        need=need,
        misses=0,
        reoffered=False,
        recreated=_is_recreated(ledger, pod, hold, old_hold=old_hold),
    )
    ledger = replace(values.put_holds(ledger, hold), bare=ledger.bare - {pod.uid})
    # init holds older than the pod's last hold were assigned when that was confirmed
    since = 0 if old_hold is None else old_hold.sequence
    ledger = init_containers.assign_init_holds(
        ledger, pod, since=since, ids_first=ids_first
    )
    ledger = release.drop_idle_slots(ledger)
    swaps = (Counted(Identity.CORRECTED),) if is_swapped else ()
    return ledger, (*swaps, *_note_scattered_chips(ledger, pod))


def _is_recreated(
    ledger: Ledger, pod: NpuPod, hold: Hold, *, old_hold: Hold | None
) -> bool:
    """Whether the container that owns `hold` was recreated while its pod ran.

    Args:
        old_hold: The container's previous hold; None if there is none.
    """
    if old_hold is not None and old_hold.lost:
        return True
    return hold.recreated and (hold.slot == pod.uid or pod.uid in ledger.bare)


def _note_scattered_chips(ledger: Ledger, pod: NpuPod) -> tuple[Effect, ...]:
    """Return a Kubernetes event if a pod's chips are on needlessly many rings or cards.

    The result is empty except in standalone mode. It is also empty until the pod is
    confirmed (`values.is_confirmed`).
    """
    is_served = ledger.standalone and values.is_confirmed(ledger, pod)
    if not is_served or not standalone.has_scattered_chips(ledger, pod):
        return ()
    text = (
        "the pod's chips are not together: when it came, no group of chips on this "
        "node had enough free ones, and in standalone mode nobody looks at other nodes"
    )
    return (Noted(pod.uid, "NpuChipsApart", text),)


def _detach_hold(ledger: Ledger, pod: NpuPod, old: Hold) -> Ledger:
    """Remove the owner from `old`, because its container owns another hold now.

    Holds of the pod's init containers that are older than `old` lose their owner too.
    """
    ledger = init_containers.unassign_init_holds(
        ledger, pod, before_sequence=old.sequence
    )
    return values.put_holds(
        ledger, replace(old, owner=None, reoffered=True, lost=False)
    )


def _find_hold(
    ledger: Ledger, pod: NpuPod, ids: frozenset[str], until: int
) -> Hold | None:
    """Return the newest ownerless hold whose ids are exactly `ids`, or None.

    A hold of an ended pod with the name of `pod` counts as ownerless. A hold with a
    sequence above `until` is left out.
    """
    matches = [
        hold
        for hold in ledger.holds.values()
        if values.is_open_for(ledger, pod, hold)
        and frozenset(hold.kubelet_ids) == ids
        and hold.sequence <= until
    ]
    return max(matches, key=lambda hold: hold.sequence, default=None)


def _newest_hold_of(ledger: Ledger, owner: Owner) -> Hold | None:
    holds = [
        hold
        for hold in values.holds_of_pod(ledger, owner.uid)
        if hold.owner is not None and hold.owner.container == owner.container
    ]
    return max(holds, key=lambda hold: hold.sequence, default=None)


def _restore_hold(
    ledger: Ledger, owner: Owner, ids: frozenset[str]
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Add a hold for a container, unless another hold has one of its device ids.

    The journal does not say which chips the container has. If they are uncertain, the
    hold reserves all chips that the container may have, so that no other pod gets them.

    Args:
        owner: The container.
        ids: All ids that pod-resources shows for the container.
    """
    held_ids = {i for hold in ledger.holds.values() for i in hold.kubelet_ids}
    if ids & held_ids:
        # another hold has some of these ids: decide at a later reading
        return ledger, ()
    pod = ledger.pods[owner.uid]
    numbers = (occupancy.chip_of(ledger.product, kubelet_id) for kubelet_id in ids)
    id_chips = chip_sets.mask_of(chip for chip in numbers if chip >= 0)
    annotated_chips = occupancy.annotated_chips(ledger, pod) & ~values.held_chips(
        ledger
    )
    has_one_container = (
        sum(need.kind is not ContainerKind.INIT for need in pod.needs) == 1
    )
    mounted = (
        occupancy.chips_in_annotation(ledger, pod, annotations.ASCEND_REAL)
        if has_one_container
        else ()
    )
    chips = mounted or chip_sets.ids_of(id_chips & annotated_chips)
    reserved = (
        ()
        if mounted
        else chip_sets.ids_of((id_chips | annotated_chips) & ~chip_sets.mask_of(chips))
    )
    by_number = occupancy.sort_ids(ledger.product, ids)
    kubelet_ids, chips = _pair_ids(ledger, by_number, chips)
    hold = Hold(
        sequence=ledger.sequence + 1,
        kubelet_ids=kubelet_ids,
        chips=chips,
        slot=owner.uid,
        need=values.need_of(pod, owner.container),
        owner=owner,
        reserved=reserved,
    )
    ledger = replace(values.put_holds(ledger, hold), sequence=hold.sequence)
    text = f"{', '.join(by_number)} was not given out by this agent"
    return ledger, (Noted(owner.uid, RESTORED, text),)


def _pair_ids(
    ledger: Ledger, ids: tuple[str, ...], chips: tuple[int, ...]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the ids and the chips of a restored hold, reordered so that pairs match.

    An id stands for the chip with its number, if that chip is mounted: so an Allocate
    pairs them. The others follow in ascending order.

    Args:
        ids: Device ids, ascending by number.
        chips: Chips that are known to be mounted, ascending. There may be more of them
            than ids, or fewer.
    """
    own_chips = {name: occupancy.chip_of(ledger.product, name) for name in ids}
    paired = [name for name in ids if own_chips[name] in chips]
    paired_chips = [own_chips[name] for name in paired]
    other_ids = [name for name in ids if name not in paired]
    other_chips = [chip for chip in chips if chip not in paired_chips]
    return (*paired, *other_ids), (*paired_chips, *other_chips)


def _note_missing_devices(
    ledger: Ledger, pod: NpuPod, containers: Mapping[str, frozenset[str]]
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Mark a living pod or its holds if pod-resources shows no devices; return events.

    A hold is marked as lost if its container is shown without devices. A running pod is
    marked as bare (running without its devices) if one of its containers was never
    shown with devices. Init containers and terminating pods are left out.

    Args:
        containers: {container name: device ids} as pod-resources showed them while no
            Allocate was under way.
    """
    if pod.deleting:
        return ledger, ()
    effects: tuple[Effect, ...] = ()
    for hold in values.holds_of_pod(ledger, pod.uid):
        name = hold.owner.container if hold.owner else ""
        # by the pod's needs: after a restart of the agent a served pod has no slot
        if hold.lost or init_containers.is_initial(pod, name):
            continue
        if not containers.get(name):
            ledger = init_containers.unassign_init_holds(ledger, pod)
            ledger = values.put_holds(ledger, replace(hold, lost=True))
            text = f"the kubelet no longer knows the devices of container {name}"
            effects += (Noted(pod.uid, "NpuDevicesLost", text),)
    names = _containers_never_shown(ledger, pod, containers)
    if names and pod.phase == "Running" and pod.uid not in ledger.bare:
        ledger = replace(ledger, bare=ledger.bare | {pod.uid})
        text = (
            f"container {', '.join(names)} runs without its "
            f"{ledger.product.resource} devices: it was started before the device "
            "plugin had registered, or the kubelet has lost them; delete the pod to "
            "have it started again"
        )
        effects += (Noted(pod.uid, "NpuDevicesMissing", text),)
    return ledger, effects


def _containers_never_shown(
    ledger: Ledger, pod: NpuPod, containers: Mapping[str, frozenset[str]]
) -> list[str]:
    """Return the pod's containers that need devices but have none, as far as is known.

    The result has names of app containers and sidecars. Each owns no hold, and has no
    device ids in the newest answer of pod-resources.

    Args:
        containers: {container name: device ids} in the newest answer of pod-resources.
    """
    holds = values.holds_of_pod(ledger, pod.uid)
    confirmed = {hold.owner.container for hold in holds if hold.owner is not None}
    return [
        need.name
        for need in pod.needs
        if need.kind is not ContainerKind.INIT
        and not containers.get(need.name)
        and need.name not in confirmed
    ]
