"""Who holds what: confirm, exchange, find again, release.

What pod-resources shows is joined to holds by device ids and by sequence. A
positive finding counts at once; that something is absent counts only when no
Allocate was under way, and is never enough by itself to release a chip.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

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

#: Reason of the note that a pod has devices which this ledger has not given out.
RESTORED = "NpuHoldRestored"


@dataclass(frozen=True, slots=True)
class _Found:
    """The ids of one container, in a reading that ended at a sequence."""

    ids: frozenset[str]
    until: int


def wants_reading(
    ledger: Ledger, *, thorough: bool
) -> tuple[tuple[str, str, str], ...]:
    """Return the pods that pod-resources should be asked about now.

    Always: pods that have ended and whose chips wait for their release, and,
    while something is held by nobody known, the pods that can be its owner.

    Args:
        ledger: The state.
        thorough: Also every other living pod, to find out whether the kubelet
            still knows what it has.

    Returns:
        (uid, namespace, name), in that order.
    """
    open_holds = any(hold.owner is None for hold in ledger.holds.values())
    wanted = {
        (pod.uid, pod.namespace, pod.name)
        for pod in ledger.pods.values()
        if not pod.terminal
        and (thorough or (open_holds and not values.is_settled(ledger, pod)))
    }
    for hold in ledger.holds.values():
        owner = hold.owner
        if owner is not None and not values.is_alive(ledger, owner.uid):
            wanted.add((owner.uid, owner.namespace, owner.pod))
    return tuple(sorted(wanted))


def unsettled(ledger: Ledger) -> frozenset[str]:
    """Return the uids of the pods whose devices pod-resources can tell now."""
    return frozenset(
        uid
        for uid, pod in ledger.pods.items()
        if not pod.terminal
        and values.is_admitted(ledger, pod)
        and not values.is_settled(ledger, pod)
    )


def is_open(ledger: Ledger) -> bool:
    """Tell whether some hold waits to be confirmed or released."""
    return any(
        hold.owner is None or not values.is_alive(ledger, hold.owner.uid)
        for hold in ledger.holds.values()
    )


def read(ledger: Ledger, event: ResourcesRead) -> tuple[Ledger, tuple[Effect, ...]]:
    """Take in what pod-resources said about one pod.

    It is asked by name. Until the kubelet has said that it knows this very pod, what
    it shows can be that of a pod of the same name that has gone, and that it is still
    admitting or ending.
    """
    evidence = Evidence(
        containers=event.containers, as_of=event.as_of, quiet=event.quiet
    )
    ledger = replace(ledger, shown={**ledger.shown, event.uid: evidence})
    pod = ledger.pods.get(event.uid)
    if pod is None or pod.terminal or event.containers is None:
        return ledger, ()
    if not values.is_admitted(ledger, pod):
        return ledger, ()
    effects: tuple[Effect, ...] = ()
    for need in pod.needs:
        ids = event.containers.get(need.name, frozenset())
        if ids:
            ledger, more = _confirm(ledger, pod, need.name, _Found(ids, event.until))
            effects += more
    if event.quiet:
        ledger, more = _find_missing(ledger, pod, event.containers)
        effects += more
    return ledger, effects


def _confirm(
    ledger: Ledger, pod: NpuPod, container: str, found: _Found
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Join one container's ids to the hold that they came from."""
    owner = values.owner_of(pod, container)
    mine = _hold_of(ledger, owner)
    hold = _match(ledger, pod, found)
    if mine is not None and found.ids <= frozenset(mine.kubelet_ids):
        if not mine.lost:
            return ledger, ()
        if hold is None or hold.sequence < mine.sequence:
            ledger = values.with_hold(ledger, replace(mine, lost=False))
            return init_containers.own(ledger, pod, since=0, near=False), ()
    if hold is None:
        return _adopt(ledger, owner, found.ids)
    if mine is not None:
        ledger = _let_go(ledger, pod, mine)
    swapped = hold.slot != pod.uid
    if swapped:
        ledger = swap.exchange(ledger, pod, hold, instead_of=mine)
    need = next(i for i, each in enumerate(pod.needs) if each.name == container)
    # served in its turn from the pod's own slot: so were its init containers, if any
    near = swapped or hold.need != need
    hold = replace(
        ledger.holds[hold.sequence],
        owner=owner,
        need=need,
        misses=0,
        freed=False,
        anew=_is_anew(ledger, pod, hold, instead_of=mine),
    )
    ledger = replace(values.with_hold(ledger, hold), bare=ledger.bare - {pod.uid})
    since = 0 if mine is None else mine.sequence  # what was before is known
    ledger = init_containers.own(ledger, pod, since=since, near=near)
    ledger = release.without_idle_slots(ledger)
    return ledger, (*_corrected(swapped=swapped), *_apart(ledger, pod))


def _is_anew(
    ledger: Ledger, pod: NpuPod, hold: Hold, *, instead_of: Hold | None
) -> bool:
    """Tell whether a container asked by itself, long after its pod was admitted.

    That the ledger took an Allocate for such a one proves nothing of a pod whose
    containers were not looked for: it may just have been admitted.
    """
    if instead_of is not None and instead_of.lost:
        return True
    return hold.anew and (hold.slot == pod.uid or pod.uid in ledger.bare)


def _corrected(*, swapped: bool) -> tuple[Effect, ...]:
    return (Counted(Identity.CORRECTED),) if swapped else ()


def _apart(ledger: Ledger, pod: NpuPod) -> tuple[Effect, ...]:
    """Tell a person that a pod has what was left, where nobody looks for better."""
    served = ledger.standalone and values.is_settled(ledger, pod)
    if not served or not standalone.are_apart(ledger, pod):
        return ()
    text = (
        "the pod's chips are not together: when it came, no group of chips on this "
        "node had enough free ones, and in standalone mode nobody looks at other nodes"
    )
    return (Noted(pod.uid, "NpuChipsApart", text),)


def _let_go(ledger: Ledger, pod: NpuPod, old: Hold) -> Ledger:
    """Part a pod from the hold of a container that was made anew.

    It ends like any hold of nobody, with care. Either the kubelet had lost it; or it
    was a namesake's, and so was what the init containers had before.
    """
    ledger = init_containers.let_go(ledger, pod, before=old.sequence)
    return values.with_hold(ledger, replace(old, owner=None, freed=True, lost=False))


def _match(ledger: Ledger, pod: NpuPod, found: _Found) -> Hold | None:
    """Return the hold of nobody that these ids were given out in.

    The newest, where the kubelet gave the same ids out again: it does so only
    when it has forgotten the first. What came after the reading cannot have
    been seen in it.
    """
    matches = [
        hold
        for hold in ledger.holds.values()
        if (hold.owner is None or values.is_of_late_namesake(ledger, pod, hold))
        and frozenset(hold.kubelet_ids) == found.ids
        and hold.sequence <= found.until
    ]
    return max(matches, key=lambda each: each.sequence, default=None)


def _hold_of(ledger: Ledger, owner: Owner) -> Hold | None:
    """Return the newest hold of a container."""
    mine = [
        hold
        for hold in values.holds_of_pod(ledger, owner.uid)
        if hold.owner is not None and hold.owner.container == owner.container
    ]
    return max(mine, key=lambda hold: hold.sequence, default=None)


def _adopt(
    ledger: Ledger, owner: Owner, ids: frozenset[str]
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Make a hold for ids that were given out before this ledger began.

    What was mounted for them is not certain (the journal is gone), so both
    the chips of the annotation and the chips of the ids stay reserved.
    """
    known = {i for hold in ledger.holds.values() for i in hold.kubelet_ids}
    if ids & known:
        return ledger, ()  # another hold explains some of them: wait and see
    pod = ledger.pods[owner.uid]
    own = chip_sets.mask_of(
        chip
        for chip in (occupancy.chip_of(ledger.product, each) for each in ids)
        if chip >= 0
    )
    claimed = occupancy.annotated(ledger, pod) & ~values.held(ledger)
    whole = sum(need.kind is not ContainerKind.INIT for need in pod.needs) == 1
    certain = _real(ledger, pod) if whole else ()
    chips = certain or chip_sets.ids_of(own & claimed)
    reserved = (
        () if certain else chip_sets.ids_of((own | claimed) & ~chip_sets.mask_of(chips))
    )
    need = next(i for i, each in enumerate(pod.needs) if each.name == owner.container)
    hold = Hold(
        sequence=ledger.sequence + 1,
        kubelet_ids=tuple(sorted(ids)),
        chips=chips,
        slot=owner.uid,
        need=need,
        owner=owner,
        reserved=reserved,
    )
    ledger = replace(values.with_hold(ledger, hold), sequence=hold.sequence)
    text = f"{', '.join(hold.kubelet_ids)} was not given out by this agent"
    return ledger, (Noted(owner.uid, RESTORED, text),)


def _real(ledger: Ledger, pod: NpuPod) -> tuple[int, ...]:
    text = pod.annotations.get(annotations.ASCEND_REAL, "")
    try:
        return annotations.parse_chips(text, ledger.product) if text else ()
    except annotations.WireError:
        return ()


def _find_missing(
    ledger: Ledger, pod: NpuPod, containers: Mapping[str, frozenset[str]]
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Notice a pod that the kubelet shows without the devices that it has."""
    if pod.deleting:
        return ledger, ()
    effects: tuple[Effect, ...] = ()
    for hold in values.holds_of_pod(ledger, pod.uid):
        name = hold.owner.container if hold.owner else ""
        # By the pod's needs: after a restart of ours a served pod has no slot.
        if hold.lost or init_containers.is_initial(pod, name):
            continue
        if not containers.get(name):
            ledger = init_containers.let_go(ledger, pod)
            ledger = values.with_hold(ledger, replace(hold, lost=True))
            text = f"the kubelet no longer knows the devices of container {name}"
            effects += (Noted(pod.uid, "NpuDevicesLost", text),)
    without = _never_found(ledger, pod, containers)
    if without and pod.phase == "Running" and pod.uid not in ledger.bare:
        ledger = replace(ledger, bare=ledger.bare | {pod.uid})
        text = (
            f"container {', '.join(without)} runs without its "
            f"{ledger.product.resource} devices: it was started before the device "
            "plugin had registered, or the kubelet has lost them; delete the pod to "
            "have it started again"
        )
        effects += (Noted(pod.uid, "NpuDevicesMissing", text),)
    return ledger, effects


def _never_found(
    ledger: Ledger, pod: NpuPod, containers: Mapping[str, frozenset[str]]
) -> list[str]:
    """Return the containers that are not shown with devices and never were."""
    holds = values.holds_of_pod(ledger, pod.uid)
    found = {hold.owner.container for hold in holds if hold.owner is not None}
    return [
        need.name
        for need in pod.needs
        if need.kind is not ContainerKind.INIT
        and not containers.get(need.name)
        and need.name not in found
    ]
