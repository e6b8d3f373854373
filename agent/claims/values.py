"""What the ledger knows: pods, the slots of chips they claimed, and holds.

A *slot* is what a pod of this node is to be served from: the chips of its
claim. When it turns out that a pod of equal shape was served from another
pod's slot, the two exchange their chips.

A *hold* is what one Allocate gave out: some chips of one slot, to a container
that is unknown until pod-resources has named it.

Everything is frozen; a change makes a new value. Sets of chips are bit masks
(`scheduler_core.node.chips`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind, ContainerNeed, Shape

_FRESH = "fresh-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The container that was found to hold something."""

    uid: str
    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The chips that a pod is to be served from, and its containers."""

    uid: str  #: of the pod
    shape: Shape
    needs: tuple[ContainerNeed, ...]
    chips: int  #: mask
    predicate_time: int  #: unit: what the scheduler wrote; only compared
    #: no scheduler has chosen the chips: they are chosen when the kubelet asks
    unplanned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What one Allocate gave out."""

    sequence: int  #: strictly increasing per node
    kubelet_ids: tuple[str, ...]
    chips: tuple[int, ...]  #: parallel to `kubelet_ids`, as mounted
    slot: str  #: uid of the pod whose slot it was taken from; the owner's, once known
    need: int  #: index into that pod's needs
    owner: Owner | None = None
    #: chips that may be mounted too: found without a journal after a crash
    reserved: tuple[int, ...] = ()
    freed: bool = False  #: the kubelet has offered these ids to somebody again
    lost: bool = False  #: the kubelet no longer knows that its owner has them
    #: it was given to a running container, which was made anew by itself: what the
    #: init containers of its pod had, the kubelet has forgotten
    anew: bool = False
    misses: int = 0  #: passes in a row in which nobody alive could be the owner
    #: all chips that nobody else may get while this hold lasts
    mask: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Reckon the mask once: it is asked for some hundred times after each event."""
        mask = chip_sets.mask_of((*self.chips, *self.reserved))
        object.__setattr__(self, "mask", mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What pod-resources last said about one pod."""

    #: {container: its device ids}; None: the kubelet does not know the pod
    containers: Mapping[str, frozenset[str]] | None
    #: every hold up to this sequence had been answered when the reading began
    as_of: int
    #: no Allocate was under way from its beginning to its end
    quiet: bool

    @property
    def ids(self) -> frozenset[str]:
        """All device ids that were shown for the pod."""
        return frozenset[str]().union(*(self.containers or {}).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All that the agent knows about who has which chip of its node.

    Source of truth of each part: pods and slots: the API server; holds: our
    own answers to Allocate, kept in the journal; shown: pod-resources;
    unhealthy and busy: the driver; left: the kernel.
    """

    product: Product
    node: str
    #: there is no scheduler of ours: pods without a claim are served as well
    standalone: bool = False
    pods: Mapping[str, NpuPod] = field(default_factory=dict)  #: by uid
    slots: Mapping[str, Slot] = field(default_factory=dict)  #: by pod uid
    holds: Mapping[int, Hold] = field(default_factory=dict)  #: by sequence
    shown: Mapping[str, Evidence] = field(default_factory=dict)  #: by pod uid
    #: {pod uid: why its claim cannot be read}
    problems: Mapping[str, str] = field(default_factory=dict)
    #: uids of pods that only the kubelet has shown: its list can be older than
    #: what the API server has told, and nobody will ever say that they have gone
    unproven: frozenset[str] = frozenset()
    #: pods that run although no device was ever given to them
    bare: frozenset[str] = frozenset()
    sequence: int = 0
    unhealthy: int = 0  #: mask
    busy: int = 0  #: mask: chips on which the driver sees a process
    #: {uid of a pod that has gone and holds something: processes that it has left,
    #: or none when nobody could tell}
    left: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: what `holds_of_pod` has found, each ledger its own: {pod uid: its holds}
    owned: dict[str, tuple[Hold, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )


def is_alive(ledger: Ledger, uid: str) -> bool:
    """Tell whether a pod exists at the API server and has not ended."""
    pod = ledger.pods.get(uid)
    return pod is not None and not pod.terminal


def is_admitted(ledger: Ledger, pod: NpuPod) -> bool:
    """Tell whether the kubelet is known to have a pod: this one, not its name only."""
    return pod.admitted or pod.phase == "Running" or pod.uid in ledger.unproven


def holds_of_slot(ledger: Ledger, slot_uid: str) -> tuple[Hold, ...]:
    """Return what was given out from one slot, oldest first."""
    return tuple(hold for hold in ledger.holds.values() if hold.slot == slot_uid)


def holds_by_slot(ledger: Ledger) -> Mapping[str, tuple[Hold, ...]]:
    """Return what was given out from each slot, oldest first; not those without."""
    found: dict[str, list[Hold]] = {}
    for hold in ledger.holds.values():
        found.setdefault(hold.slot, []).append(hold)
    return {uid: tuple(holds) for uid, holds in found.items()}


def holds_of_pod(ledger: Ledger, uid: str) -> tuple[Hold, ...]:
    """Return what one pod is known to hold, oldest first.

    Cost: O(holds) for the first pod of a ledger, O(1) for the others: it is asked for
    every pod after every event, and a node may have sixty.
    """
    if ledger.holds and not ledger.owned:
        found: dict[str, list[Hold]] = {"": []}  # known to have been looked for
        for hold in ledger.holds.values():
            if hold.owner is not None:
                found.setdefault(hold.owner.uid, []).append(hold)
        ledger.owned.update((owner, tuple(holds)) for owner, holds in found.items())
    return ledger.owned.get(uid, ())


def held(ledger: Ledger) -> int:
    """Return the mask of all chips that were given out and not released."""
    mask = 0
    for hold in ledger.holds.values():
        mask |= hold.mask
    return mask


def releasing(ledger: Ledger) -> int:
    """Return the chips on which a process runs that no living pod explains.

    A chip whose pod has gone is not free before its last process has ended
    (seed 004, "Concurrency Considerations", 2): neither one that the driver sees,
    nor one of the pod's own, which may open the chip again.
    """
    explained, used = 0, ledger.busy
    for hold in ledger.holds.values():
        if hold.owner is None or is_alive(ledger, hold.owner.uid):
            explained |= hold.mask
        elif hold.owner.uid in ledger.left:
            used |= hold.mask
    for uid in ledger.bare & ledger.slots.keys():
        explained |= ledger.slots[uid].chips
    return used & ~explained


def slot_of_served(ledger: Ledger, pod: NpuPod, *also: Hold) -> Slot:
    """Return the slot of a pod that was served long ago: the chips that it holds.

    Args:
        ledger: The state.
        pod: A pod whose claim was consumed before this agent began.
        also: Holds of it that are no longer in the ledger.
    """
    held_by_it = (*holds_of_pod(ledger, pod.uid), *also)
    return Slot(
        uid=pod.uid,
        shape=pod.shape,
        needs=pod.needs,
        chips=chip_sets.mask_of({chip for hold in held_by_it for chip in hold.chips}),
        predicate_time=annotations.SERVED,
    )


def fresh_uid(sequence: int) -> str:
    """Return the uid of a slot that was made for one hold, for no known pod."""
    return f"{_FRESH}{sequence}"


def is_fresh(slot: Slot) -> bool:
    """Tell whether a slot was made for one hold, for no known pod."""
    return slot.uid.startswith(_FRESH)


def is_init(slot: Slot, need: int) -> bool:
    """Tell whether a need is an ordinary init container's."""
    return slot.needs[need].kind is ContainerKind.INIT


def is_settled(ledger: Ledger, pod: NpuPod) -> bool:
    """Tell whether every container that can be confirmed is."""
    holds = holds_of_pod(ledger, pod.uid)
    names = {hold.owner.container for hold in holds if hold.owner and not hold.lost}
    return all(
        need.name in names for need in pod.needs if need.kind is not ContainerKind.INIT
    )


def with_hold(ledger: Ledger, hold: Hold) -> Ledger:
    """Return the ledger with a hold, in place of the one of its sequence."""
    return replace(ledger, holds={**ledger.holds, hold.sequence: hold})


def owner_of(pod: NpuPod, container: str) -> Owner:
    """Return a container of a pod as the owner of what it holds."""
    return Owner(
        uid=pod.uid, namespace=pod.namespace, pod=pod.name, container=container
    )


def is_of_late_namesake(ledger: Ledger, pod: NpuPod, hold: Hold) -> bool:
    """Tell whether a hold was taken for that of a pod that has gone since.

    The name of a pod can belong to another one before the watch says so.
    """
    owner = hold.owner
    return (
        owner is not None
        and (owner.namespace, owner.pod) == (pod.namespace, pod.name)
        and not is_alive(ledger, owner.uid)
    )
