"""Who holds what: confirm, exchange, find again, release.

What pod-resources shows is joined to holds by device ids and by sequence. A
positive finding counts at once; that something is absent counts only when no
Allocate was under way, and is never enough by itself to release a chip.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.claims import exchanging, occupancy, pairing, standalone, values
from agent.claims.events import (
    Counted,
    Effect,
    Identity,
    InUse,
    Noted,
    PassEnded,
    ResourcesRead,
)
from agent.claims.values import Evidence, Hold, Ledger, Owner
from scheduler_core import chips as chip_sets
from scheduler_core.shapes import ContainerKind
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod

#: Quiet passes without any possible owner after which a hold of nobody ends.
#: Two, so that no single reading decides.
MISSES_TO_RELEASE = 2

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
        and (thorough or (open_holds and not _is_settled(ledger, pod)))
    }
    for hold in ledger.holds.values():
        owner = hold.owner
        if owner is not None and not values.is_alive(ledger, owner.uid):
            wanted.add((owner.uid, owner.namespace, owner.pod))
    return tuple(sorted(wanted))


def is_open(ledger: Ledger) -> bool:
    """Tell whether some hold waits to be confirmed or released."""
    return any(
        hold.owner is None or not values.is_alive(ledger, hold.owner.uid)
        for hold in ledger.holds.values()
    )


def lingers(ledger: Ledger) -> bool:
    """Tell whether all pods have to be listed.

    The kubelet forgets the ids of pods that have ended with the next Allocate,
    or when all pods are listed. And what nobody known to us owns may be a pod's
    that the watch has not shown yet: before it is released, no pod at all may
    have its ids.
    """
    return any(
        _is_nobodys(ledger, hold)
        if hold.owner is None
        else not values.is_alive(ledger, hold.owner.uid)
        and _shows(ledger, hold, hold.owner)
        for hold in ledger.holds.values()
    )


def _is_nobodys(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether this pass would release a hold whose owner was never found."""
    return (
        hold.misses + 1 >= MISSES_TO_RELEASE
        and not hold.mask & ledger.busy
        and not _could_be_somebodys(ledger, hold)
    )


def _is_settled(ledger: Ledger, pod: NpuPod) -> bool:
    """Tell whether every container that can be confirmed is."""
    holds = values.holds_of_pod(ledger, pod.uid)
    names = {hold.owner.container for hold in holds if hold.owner and not hold.lost}
    return "" in names or all(
        need.name in names for need in pod.needs if need.kind is not ContainerKind.INIT
    )


def read(ledger: Ledger, event: ResourcesRead) -> tuple[Ledger, tuple[Effect, ...]]:
    """Take in what pod-resources said about one pod."""
    evidence = Evidence(
        containers=event.containers, as_of=event.as_of, quiet=event.quiet
    )
    ledger = replace(ledger, shown={**ledger.shown, event.uid: evidence})
    pod = ledger.pods.get(event.uid)
    if pod is None or pod.terminal or event.containers is None:
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
    owner = _owner(pod, container)
    mine = _hold_of(ledger, owner)
    hold = _match(ledger, pod, found)
    if mine is not None and found.ids <= frozenset(mine.kubelet_ids):
        if not mine.lost:
            return ledger, ()
        if hold is None or hold.sequence < mine.sequence:
            ledger = _put(ledger, replace(mine, lost=False))
            return _own_init_holds(ledger, pod, since=0), ()
    if hold is None:
        return _adopt(ledger, owner, found.ids)
    if mine is not None:
        ledger = _let_go(ledger, pod, mine)
    swapped = hold.slot != pod.uid
    if swapped:
        ledger = exchanging.exchange(ledger, pod, hold, instead_of=mine)
    need = next(i for i, each in enumerate(pod.needs) if each.name == container)
    hold = replace(
        ledger.holds[hold.sequence], owner=owner, need=need, misses=0, freed=False
    )
    ledger = replace(_put(ledger, hold), bare=ledger.bare - {pod.uid})
    since = 0 if mine is None else mine.sequence  # what was before is known, or lost
    ledger = without_idle_slots(_own_init_holds(ledger, pod, since=since))
    return ledger, (*_corrected(swapped=swapped), *_apart(ledger, pod))


def _corrected(*, swapped: bool) -> tuple[Effect, ...]:
    return (Counted(Identity.CORRECTED),) if swapped else ()


def _apart(ledger: Ledger, pod: NpuPod) -> tuple[Effect, ...]:
    """Tell a person that a pod has what was left, where nobody looks for better."""
    served = ledger.standalone and _is_settled(ledger, pod)
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
    ledger = _let_go_of_inits(ledger, pod, before=old.sequence)
    return _put(ledger, replace(old, owner=None, freed=True, lost=False))


def _let_go_of_inits(
    ledger: Ledger, pod: NpuPod, *, before: float = float("inf")
) -> Ledger:
    """Part a pod from what its init containers had.

    They have ended; only the kubelet would have given it to them again.
    """
    for hold in values.holds_of_pod(ledger, pod.uid):
        name = hold.owner.container if hold.owner is not None else ""
        if hold.sequence < before and _is_initial(pod, name):
            ledger = _put(ledger, replace(hold, owner=None, freed=True))
    return ledger


def _match(ledger: Ledger, pod: NpuPod, found: _Found) -> Hold | None:
    """Return the hold of nobody that these ids were given out in.

    The newest, where the kubelet gave the same ids out again: it does so only
    when it has forgotten the first. What came after the reading cannot have
    been seen in it, and what came before the pod was not its own.
    """
    # the kubelet reports Running only for the pod that it runs under the name
    runs = pod.phase == "Running"
    since = 0 if runs else ledger.successors.get(pod.uid, 0)
    matches = [
        hold
        for hold in ledger.holds.values()
        if (hold.owner is None or (runs and _is_of_late_namesake(ledger, pod, hold)))
        and frozenset(hold.kubelet_ids) == found.ids
        and since < hold.sequence <= found.until
    ]
    return max(matches, key=lambda each: each.sequence, default=None)


def _is_of_late_namesake(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    """Tell whether a hold was taken for that of a pod that has gone since.

    The name of a pod can belong to another one before the watch says so.
    """
    owner = hold.owner
    return (
        owner is not None
        and (owner.namespace, owner.pod) == (pod.namespace, pod.name)
        and not values.is_alive(ledger, owner.uid)
    )


def _hold_of(ledger: Ledger, owner: Owner) -> Hold | None:
    """Return the newest hold of a container (or of its pod as a whole)."""
    mine = [
        hold
        for hold in values.holds_of_pod(ledger, owner.uid)
        if hold.owner is not None and hold.owner.container in ("", owner.container)
    ]
    return max(mine, key=lambda hold: hold.sequence, default=None)


def _own_init_holds(ledger: Ledger, pod: NpuPod, *, since: int) -> Ledger:
    """Give a pod what its init containers got.

    pod-resources never shows ordinary init containers; that their pod is this
    one follows from the slot and from their ids, which later containers got.
    """
    mine = {hold.need: hold for hold in values.holds_of_pod(ledger, pod.uid)}
    in_slot = {hold.need: hold for hold in values.holds_of_slot(ledger, pod.uid)}
    inits = {i for i, each in enumerate(pod.needs) if each.kind is ContainerKind.INIT}
    lasting = [hold for need, hold in mine.items() if need not in inits]
    shown = {kubelet_id for hold in lasting for kubelet_id in hold.kubelet_ids}
    first = min(lasting, key=lambda hold: hold.sequence)
    for index in sorted(inits):
        need = pod.needs[index]
        hold = _before_the_others(ledger, first, need.count)
        if hold is None and index not in mine:
            hold = in_slot.get(index)
        if hold is None or hold.owner is not None or hold.sequence <= since:
            continue
        if shown.isdisjoint(hold.kubelet_ids):
            continue
        if index in mine:  # that was of an admission before
            ledger = _put(ledger, replace(mine[index], owner=None, freed=True))
        owner = _owner(pod, need.name)
        ledger = _put(ledger, replace(hold, owner=owner, slot=pod.uid, need=index))
    return ledger


def _before_the_others(ledger: Ledger, first: Hold, count: int) -> Hold | None:
    """Return the hold of an init container, whichever slot it came from.

    The kubelet gives a pod's first lasting container the ids of its init
    containers before any other. So what was last given out under one of its ids
    was theirs.
    """
    before = [
        hold
        for hold in ledger.holds.values()
        if hold.sequence < first.sequence
        and not set(first.kubelet_ids).isdisjoint(hold.kubelet_ids)
    ]
    last = max(before, key=lambda hold: hold.sequence, default=None)
    if last is None or last.owner is not None or len(last.kubelet_ids) != count:
        return None
    return last


def _owner(pod: NpuPod, container: str) -> Owner:
    return Owner(
        uid=pod.uid, namespace=pod.namespace, pod=pod.name, container=container
    )


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
    ledger = replace(_put(ledger, hold), sequence=hold.sequence)
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
        if hold.lost or _is_initial(pod, name):
            continue
        shown = containers.get(name) if name else any(containers.values())
        if not shown:
            ledger = _put(_let_go_of_inits(ledger, pod), replace(hold, lost=True))
            text = f"the kubelet no longer knows the devices of container {name or '*'}"
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


def _is_initial(pod: NpuPod, container: str) -> bool:
    """Tell whether a container is an ordinary init one, which is never shown."""
    return any(
        need.name == container and need.kind is ContainerKind.INIT for need in pod.needs
    )


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
        and found.isdisjoint(("", need.name))
    ]


def end_pass(ledger: Ledger, event: PassEnded) -> Ledger:
    """Release what certainly nobody holds any more.

    A hold ends when its pod has gone or ended at the API server, and
    pod-resources no longer shows its ids, and no process is on its chips.
    """
    ledger = _without_old_evidence(ledger)
    if not event.quiet:
        return ledger
    in_use = _unexplained(ledger, event.in_use)
    ended = set()
    for hold in tuple(ledger.holds.values()):
        if hold.mask & ledger.busy:
            continue
        if hold.owner is not None:
            if _owner_is_through(ledger, hold, hold.owner):
                ended.add(hold.sequence)
        else:
            misses = 0 if _could_be_somebodys(ledger, hold) else hold.misses + 1
            if misses < MISSES_TO_RELEASE:
                ledger = _put(ledger, replace(hold, misses=misses))
            elif in_use is not None and in_use.isdisjoint(hold.kubelet_ids):
                ended.add(hold.sequence)
    return without_idle_slots(_without(ledger, ended)) if ended else ledger


def _unexplained(ledger: Ledger, in_use: InUse | None) -> frozenset[str] | None:
    """Return the ids of containers that are not the known owners of their holds.

    The kubelet can give one id twice: that the one container is known says
    nothing about the other.
    """
    if in_use is None:
        return None
    explained: dict[tuple[str, str, str], set[str]] = {}
    for hold in ledger.holds.values():
        owner = hold.owner
        if owner is not None:
            key = (owner.namespace, owner.pod, owner.container)
            explained.setdefault(key, set()).update(hold.kubelet_ids)
    return frozenset[str]().union(
        *(ids - explained.get(container, set()) for container, ids in in_use.items())
    )


def _owner_is_through(ledger: Ledger, hold: Hold, owner: Owner) -> bool:
    if values.is_alive(ledger, owner.uid):
        return False
    evidence = ledger.shown.get(owner.uid)
    if evidence is None or not evidence.quiet or evidence.as_of < hold.sequence:
        return False
    return not _shows(ledger, hold, owner)


def _shows(ledger: Ledger, hold: Hold, owner: Owner) -> bool:
    """Tell whether pod-resources last showed a hold's ids for its owner."""
    evidence = ledger.shown.get(owner.uid)
    if evidence is None:
        return False
    shown = {i for ids in (evidence.containers or {}).values() for i in ids}
    # a new pod of the same name may have got the same ids
    newer = {
        kubelet_id
        for other in ledger.holds.values()
        if other.sequence > hold.sequence
        for kubelet_id in other.kubelet_ids
    }
    return not shown.isdisjoint(set(hold.kubelet_ids) - newer)


def _could_be_somebodys(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether a living pod may own a hold of nobody.

    An ordinary init container is never shown. But its pod's other containers
    are, as soon as all are served: then the pod owns this hold or never will.
    """
    if _is_shown_unexplained(ledger, hold):
        return True
    slot = ledger.slots.get(hold.slot)
    initial = slot is not None and values.is_init(slot, hold.need)
    for pod in ledger.pods.values():
        if pod.terminal or _is_settled(ledger, pod):
            continue
        counts = {
            need.count
            for need in pod.needs
            if (need.kind is ContainerKind.INIT) is initial
        }
        if len(hold.kubelet_ids) not in counts:
            continue
        under_way = initial and _is_half_served(ledger, hold) and pod.phase != "Running"
        if under_way or not _is_not_there(ledger, pod, hold):
            return True
    return False


def _is_half_served(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether the pod of a hold may still be on its way through admission."""
    slot = ledger.slots.get(hold.slot)
    return slot is not None and pairing.open_need(ledger, slot) is not None


def _is_not_there(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    """Tell whether a reading proves that a pod was never given what is held.

    Of a pod that runs it proves nothing: the kubelet may have lost its devices.
    """
    evidence = ledger.shown.get(pod.uid)
    return (
        pod.phase != "Running"
        and evidence is not None
        and evidence.quiet
        and evidence.as_of >= hold.sequence
        and evidence.containers is not None
    )


def _is_shown_unexplained(ledger: Ledger, hold: Hold) -> bool:
    """Tell whether some pod is shown with ids of a hold that none of its own has."""
    for uid, evidence in ledger.shown.items():
        if not values.is_alive(ledger, uid):
            continue  # not read any more
        shown = {i for ids in (evidence.containers or {}).values() for i in ids}
        own = {i for each in values.holds_of_pod(ledger, uid) for i in each.kubelet_ids}
        if not (shown - own).isdisjoint(hold.kubelet_ids):
            return True
    return False


def without_idle_slots(ledger: Ledger) -> Ledger:
    """Drop the slots of pods that have ended and from which nothing is held."""
    used = {hold.slot for hold in ledger.holds.values()}
    slots = {
        uid: slot
        for uid, slot in ledger.slots.items()
        if uid in used or values.is_alive(ledger, uid)
    }
    return ledger if len(slots) == len(ledger.slots) else replace(ledger, slots=slots)


def _without_old_evidence(ledger: Ledger) -> Ledger:
    """Drop what was read about pods that have gone and hold nothing."""
    needed = ledger.pods.keys() | {
        hold.owner.uid for hold in ledger.holds.values() if hold.owner is not None
    }
    unconfirmed = any(hold.owner is None for hold in ledger.holds.values())
    return replace(
        ledger,
        shown={uid: each for uid, each in ledger.shown.items() if uid in needed},
        vacated=ledger.vacated if unconfirmed else frozenset(),
    )


def _put(ledger: Ledger, hold: Hold) -> Ledger:
    return replace(ledger, holds={**ledger.holds, hold.sequence: hold})


def _without(ledger: Ledger, sequences: set[int]) -> Ledger:
    holds = {s: hold for s, hold in ledger.holds.items() if s not in sequences}
    return replace(ledger, holds=holds)
