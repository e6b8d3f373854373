"""Values of a ledger: pods, the slots of chips that they claim, and holds.

A *slot* is the set of chips from which one pod of this node is served: the chips of its
claim. Two pods have equal shapes if each may get the chips of the other. If a pod was
served from the slot of another pod, the two slots exchange chips.

A *hold* is the result of one Allocate: some chips of one slot, given to one container.
The container is unknown until pod-resources names it.

A pod has *ended* when it is deleted, Failed or Succeeded. It *lives* until then.

Every value is frozen; a change makes a new value. Sets of chips are bit masks
(`scheduler_core.node.chips`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec

from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire import annotations
from scheduler_core.wire.addresses import Address
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind, ContainerNeed, Shape

_FRESH = "fresh-"
#: A chip id, below a limit above all products: a hold of chip 10^12 would need a mask
#: of that many bits.
_Chip = Annotated[int, msgspec.Meta(ge=0, lt=1024)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The container that owns a hold: pod-resources showed the hold's ids for it."""

    uid: str
    namespace: str
    pod: str
    container: str
    #: uid in the name of the pod's cgroup if it is another; "" if not
    cgroup_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The chips from which one pod is served, and its containers that need chips."""

    uid: str  #: of the pod, or made by `make_fresh_uid`
    shape: Shape
    needs: tuple[ContainerNeed, ...]
    chips: int  #: mask; 0 while `unplanned` and not chosen
    predicate_time: int  #: unit: as the scheduler wrote it; only compared
    #: no scheduler chose the chips: the agent chooses them during Allocate
    unplanned: bool = False


class _Mask:
    """Value that follows from the fields of a hold, and is none of them."""

    __slots__ = ("mask",)

    #: mask of `chips` and `reserved`: no other container may get these chips
    mask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(_Mask):
    """The chips and device ids that one Allocate gave to one container.

    The journal has these fields by their names: `agent.journal.file`.
    """

    #: strictly increasing per node
    sequence: Annotated[int, msgspec.Meta(ge=0)]
    kubelet_ids: tuple[str, ...]
    #: parallel to `kubelet_ids`, as mounted; not in a hold that was restored without a
    #: journal, where not all is certain
    chips: tuple[_Chip, ...]
    slot: str  #: uid of the slot that the chips come from; the owner's, once known
    need: int  #: index into that pod's needs
    owner: Owner | None = None
    #: chips that may be mounted too: the hold was restored without a journal
    reserved: tuple[_Chip, ...] = ()
    reoffered: bool = False  #: the kubelet has offered these ids to another container
    lost: bool = False  #: the kubelet no longer knows that its owner has them
    #: its container was recreated by itself while the pod ran: the kubelet has
    #: forgotten which ids the init containers of the pod had
    recreated: bool = False
    misses: int = 0  #: passes in a row in which no living pod could be the owner

    def __post_init__(self) -> None:
        # once: it is read some hundred times after each event
        mask = chip_sets.mask_of((*self.chips, *self.reserved))
        object.__setattr__(self, "mask", mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The newest answer of pod-resources about one pod, and when it was read."""

    #: {container: its device ids}; None: the kubelet does not know the pod
    containers: Mapping[str, frozenset[str]] | None
    #: every Allocate up to this sequence had been answered when the reading began
    as_of: int
    #: no Allocate was under way from its beginning to its end
    quiet: bool

    @property
    def ids(self) -> frozenset[str]:
        """All device ids that pod-resources showed for the pod's containers."""
        return frozenset[str]().union(*(self.containers or {}).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Pods, slots and holds of one product line: which container has which chips.

    Pods come from the API server, and at times from the kubelet's list. Holds come from
    the agent's answers to Allocate, which the journal keeps. `evidence` comes from
    pod-resources, and so do holds that the journal lacks. `unhealthy` and `busy` come
    from the chip monitor, `stray_processes` from /proc, and `foreign` from
    pod-resources.
    """

    product: Product
    node: str
    #: the node has no scheduler of ours: pods without a claim are served too
    standalone: bool = False
    pods: Mapping[str, NpuPod] = field(default_factory=dict)  #: {uid: pod}
    slots: Mapping[str, Slot] = field(default_factory=dict)  #: {pod uid: slot}
    holds: Mapping[int, Hold] = field(default_factory=dict)  #: {sequence: hold}
    #: {pod uid: last answer of pod-resources}
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    #: identity of the kubelet process that answered last, or with which the plugin has
    #: registered since; None: not known
    kubelet: object = None
    #: sequence of the newest hold when this kubelet answered first, or when the plugin
    #: registered last. It may have forgotten the ids of holds up to this one, and of no
    #: later one
    kubelet_since: int = 0
    #: {pod uid: why its claim cannot be read}
    problems: Mapping[str, str] = field(default_factory=dict)
    #: uids of pods that only the kubelet has listed. Its list can be older than the
    #: watch, and no event will report their deletion
    kubelet_only: frozenset[str] = frozenset()
    #: uids of pods that run although no device was ever given to them
    bare: frozenset[str] = frozenset()
    sequence: int = 0
    unhealthy: int = 0  #: mask
    busy: int = 0  #: mask: chips on which the driver sees a process
    #: {unchecked chip: loop time at which the last pod that had it ended}; seconds. The
    #: first look that begins later and reads the chip ends this
    ended_s: Mapping[int, float] = field(default_factory=dict)
    unreadable: bool = False  #: no chip could be read for a while: no look is awaited
    #: {uid of a deleted pod with a hold: pids that it has left behind; empty when the
    #: kernel could not tell}
    stray_processes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: {uid of a living pod: {chip: address} as its configuration last named them}
    given: Mapping[str, Mapping[int, Address]] = field(default_factory=dict)
    #: {chip: the pods that have it, or may, through another device plugin}
    foreign: Mapping[int, str] = field(default_factory=dict)
    #: {(kind, uid): holds of the slot or pod}, filled by the first `_holds_of`
    holds_index: dict[tuple[str, str], list[Hold]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )


def is_alive(ledger: Ledger, uid: str) -> bool:
    """Whether the ledger has this pod and the pod is neither Failed nor Succeeded."""
    pod = ledger.pods.get(uid)
    return pod is not None and not pod.terminal


def has_living_owner(ledger: Ledger, hold: Hold) -> bool:
    """Whether the owner of a hold is known, and its pod lives."""
    return hold.owner is not None and is_alive(ledger, hold.owner.uid)


def living_pods(ledger: Ledger, chip: int) -> list[NpuPod]:
    """Return the living pods that have a chip.

    Chips in `Hold.reserved`, which a pod may have, do not count.
    """
    owners = [hold.owner for hold in ledger.holds.values() if chip in hold.chips]
    uids = dict.fromkeys(owner.uid for owner in owners if owner is not None)
    return [ledger.pods[uid] for uid in uids if is_alive(ledger, uid)]


def waiting_pods(ledger: Ledger) -> list[str]:
    """Return the uids of the living pods that have a claim but no hold, sorted."""
    return [
        uid
        for uid in sorted(ledger.slots)
        if is_alive(ledger, uid) and not holds_of_pod(ledger, uid)
    ]


def is_admitted(ledger: Ledger, pod: NpuPod) -> bool:
    """Whether the kubelet has admitted this pod.

    True if the pod's status shows it, or if the pod's phase is Running. Also True if
    the pod is known only from the kubelet's list of pods (`ledger.kubelet_only`).
    """
    return pod.admitted or pod.phase == "Running" or pod.uid in ledger.kubelet_only


def holds_of_slot(ledger: Ledger, slot_uid: str) -> tuple[Hold, ...]:
    """Return the holds whose chips come from the slot with this uid, oldest first."""
    return _holds_of(ledger, "slot", slot_uid)


def holds_of_pod(ledger: Ledger, uid: str) -> tuple[Hold, ...]:
    """Return the holds whose known owner is a container of the pod, oldest first."""
    return _holds_of(ledger, "pod", uid)


def _holds_of(ledger: Ledger, kind: str, uid: str) -> tuple[Hold, ...]:
    """Return the holds of a slot or a pod, oldest first.

    Cost:
        O(holds) in the first call with a `Ledger` value, O(1) in each further call with
        it. Called for every pod after every event; a node may have sixty pods.
    """
    index = ledger.holds_index
    if not index:
        for hold in ledger.holds.values():
            index.setdefault(("slot", hold.slot), []).append(hold)
            if hold.owner is not None:
                index.setdefault(("pod", hold.owner.uid), []).append(hold)
    return tuple(index.get((kind, uid), ()))


def lowest(mask: int, count: int) -> int:
    """Return the mask of the `count` lowest chips in `mask`; of all if it has fewer."""
    return chip_sets.mask_of(chip_sets.ids_of(mask)[:count])


def mounted_chips(holds: Iterable[Hold]) -> int:
    """Return the mask of the chips of these holds, without those in `Hold.reserved`."""
    return chip_sets.mask_of({chip for hold in holds for chip in hold.chips})


def held_chips(ledger: Ledger) -> int:
    """Return the mask of the chips of all holds.

    The chips in `Hold.reserved`, which may be mounted too, are included.
    """
    return chip_sets.union(hold.mask for hold in ledger.holds.values())


def releasing_chips(ledger: Ledger) -> int:
    """Return the mask of chips in use without a hold of a living pod.

    They are the chips with a process, and the chips of pods that have them through
    another device plugin (`ledger.foreign`).

    A process counts if the driver sees it on the chip, in a look that began after the
    last pod with this chip ended. A process that an ended or deleted pod left behind
    counts for all chips in the pod's holds. It can open them again, even if the driver
    does not see it now. The pod's chips also count while the kernel cannot tell whether
    such a process exists.

    Chips of a hold without a known owner are left out, because a living pod may own the
    hold. Processes on chips in slots of pods that run without their devices
    (`ledger.bare`) do not count.

    Source: seed 004, "Concurrency Considerations", 2.
    """
    explained, busy_chips = 0, ledger.busy & ~unchecked_chips(ledger)
    for hold in ledger.holds.values():
        if hold.owner is None or is_alive(ledger, hold.owner.uid):
            explained |= hold.mask
        elif hold.owner.uid in ledger.stray_processes:
            busy_chips |= hold.mask
    foreign_chips = chip_sets.mask_of(ledger.foreign)
    return (busy_chips & ~bare_chips(ledger) | foreign_chips) & ~explained


def unchecked_chips(ledger: Ledger) -> int:
    """Return the mask of chips that no look has read since their last pod ended.

    Whether they have processes is not known.
    """
    return chip_sets.mask_of(ledger.ended_s)


def bare_chips(ledger: Ledger) -> int:
    """Return the mask of chips in slots of pods that run without their devices."""
    return chip_sets.union(
        ledger.slots[u].chips for u in ledger.bare & ledger.slots.keys()
    )


def make_served_slot(ledger: Ledger, pod: NpuPod, *also: Hold) -> Slot:
    """Return a slot with the chips of a pod's holds, for a served pod without a slot.

    The ledger may lack the slot after a restart of the agent. The slot's predicate-time
    is `SERVED`, as in the annotations of pods that have their chips.

    Args:
        also: Holds whose chips the slot gets too, though the ledger no longer counts
            them as the pod's.
    """
    return Slot(
        uid=pod.uid,
        shape=pod.shape,
        needs=pod.needs,
        chips=mounted_chips((*holds_of_pod(ledger, pod.uid), *also)),
        predicate_time=annotations.SERVED,
    )


def make_fresh_uid(sequence: int) -> str:
    """Return the uid of the slot made for one hold whose pod is unknown.

    Args:
        sequence: Sequence of the hold.
    """
    return f"{_FRESH}{sequence}"


def is_fresh(slot: Slot) -> bool:
    """Whether a slot was made for a single hold whose pod was unknown at Allocate."""
    return slot.uid.startswith(_FRESH)


def is_init(slot: Slot, need: int) -> bool:
    """Whether container number `need` of a slot is an init container but no sidecar.

    Args:
        need: Index into `slot.needs`.
    """
    return slot.needs[need].kind is ContainerKind.INIT


def is_confirmed(ledger: Ledger, pod: NpuPod) -> bool:
    """Whether each app container and sidecar with NPUs owns a hold that is not lost.

    A hold is lost if the kubelet no longer knows that the container has its devices.
    Init containers do not count: pod-resources never shows them.
    """
    holds = holds_of_pod(ledger, pod.uid)
    names = {hold.owner.container for hold in holds if hold.owner and not hold.lost}
    return all(
        need.name in names for need in pod.needs if need.kind is not ContainerKind.INIT
    )


def put_holds(ledger: Ledger, *holds: Hold) -> Ledger:
    """Return the ledger with these holds, which replace those of equal `sequence`."""
    added = {hold.sequence: hold for hold in holds}
    return replace(ledger, holds={**ledger.holds, **added})


def put_slots(ledger: Ledger, *slots: Slot) -> Ledger:
    """Return the ledger with these slots, which replace those of equal `uid`."""
    added = {slot.uid: slot for slot in slots}
    return replace(ledger, slots={**ledger.slots, **added})


def need_of(pod: NpuPod, container: str) -> int:
    """Return the index into `pod.needs` of the container with this name."""
    return [need.name for need in pod.needs].index(container)


def make_owner(pod: NpuPod, container: str) -> Owner:
    """Return the `Owner` value for the container of a pod with this name."""
    return Owner(
        uid=pod.uid,
        namespace=pod.namespace,
        pod=pod.name,
        container=container,
        # the kubelet runs a static pod, and the API server has a pod that mirrors it
        cgroup_uid=pod.annotations.get(annotations.MIRROR, ""),
    )


def is_open_for(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    """Whether `hold` has no known owner, or an ended one with the name of `pod`.

    A StatefulSet, for example, gives the name of a deleted pod to the next pod.
    """
    owner = hold.owner
    return owner is None or (
        (owner.namespace, owner.pod) == (pod.namespace, pod.name)
        and not is_alive(ledger, owner.uid)
    )
