"""Chips that are kept for someone: for whom, by which part of the extender, how long.

Every reservation has an owner, the part of the extender that decides over it, and an
end. All reservations are made, confirmed, released and expired here:

* PLAN, for a pod of a planned job, or a member whose pod is made later. Made by
  `Planner._reserve`; ends with the plan (`permit.step`), when a bind or an allocation
  takes the chips over, or the pod is bound or gone. After 60 s renewed while the plan
  has the pod on that node, else ended, logged and counted.
* BIND, for a pod. Made by `Binder._reserve_and_bind`, before the bind is sent; ended by
  the pod watch, which shows the pod bound or gone, or by `SentBinds._void` when the
  bind has certainly not happened: a plan that still has the pod gets the chips back,
  and so does preemption that freed them less than 60 s ago. After 65 s, then each 60 s,
  renewed: `SentBinds._review` reads the pod.
* VOLCANO, for a pod. Made by `Sessions.choose`, at the start by `VolcanoVerbs.adopt`;
  ended by the pod watch, deallocateFunc, a claim that could not be written, or a
  predicate at least 65 s after the allocation. After 660 s `VolcanoVerbs.carry_out`
  undoes the allocation.
* PREEMPTION without a claim (nominated), for a pod or a job while its chips are freed.
  Made by `Preemptor._nominate`, once a second; ends with the attempt, or the pod is
  bound or gone. After 380 s ended, and the attempt with it.
* PREEMPTION with a claim, for a pod whose chips are free now. Made by
  `Preemptor.reserve_freed_chips`, or by `step._void_bind` when a bind with them has not
  happened; ends when a bind takes the chips over, or the pod is bound or gone, or turns
  out to be of a job. After 60 s ended; the pod gets no new attempt for 5 min.
* RESCHEDULING without a claim, for a job some of whose pods move because of a fault:
  the chips that their successors get. Made by `Returns.keep` before a pod is evicted,
  renewed by `Returns.tick`; ended by `Returns.give` when a plan or a pod takes them
  over, or by `Returns.release`. It outlives the pods of its job. After 60 s ended.
* RESCHEDULING with a claim, for the successor of a pod that is a job by itself. Made by
  `Returns.give` once the chips are free, or by `step._void_bind` when a bind with them
  has not happened; ends as one of PREEMPTION. After 60 s ended, and kept again for the
  job.
* No owner, but a job that has waited long: whole nodes (`NodeReservation`). Made by
  `reservation.reserve_nodes`; ended by `step._review_nodes`, once a second, when the
  job is planned, bound or gone. After 30 min ended.

A reservation of a pod that has chips of its own is *assigned*: it has a `Claim`, and
the pod can only be bound with it. A pod has at most one. A reservation with a claim is
*confirmed* when the pod watch shows the pod bound: from then on the pod's annotations
keep the chips.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from extender.cache.requests import NOTHING, Resources
from extender.gang.membership import AbsentMember
from scheduler_core.node import chips
from scheduler_core.wire.shapes import Shape

_K = TypeVar("_K")

_NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})


class Owner(StrEnum):
    """Part of the extender that decides over a reservation and answers for its end."""

    PLAN = "plan"
    BIND = "bind"
    VOLCANO = "volcano"
    PREEMPTION = "preemption"
    RESCHEDULING = "rescheduling"


#: Seconds until a renewed reservation is looked at again.
REVIEW_S = 60.0
#: Owners that may have sent a bind. They are asked at the end of a reservation, because
#: the API server may still bind its pod: it is renewed, and only they release it.
SENT = frozenset({Owner.BIND, Owner.VOLCANO})


#: For whom chips are kept: UID of a pod, key of a job, or a member without a pod.
Beneficiary = str | AbsentMember


class Claim(NamedTuple):
    """What bind writes on a pod for its reserved chips, besides the chips."""

    predicate_time: int
    shape: Shape
    #: further annotations
    annotations: Mapping[str, str] = _NO_ANNOTATIONS


class Reservation(NamedTuple):
    """Chips of one node that are kept for one beneficiary.

    A tuple, which is cheap to create: a plan may create thousands.
    """

    kept_for: Beneficiary
    owner: Owner
    node: str
    resource: str
    #: mask of the chips
    chips: int
    #: seconds since the epoch
    until_s: float
    #: None: the chips are not free yet, or no pod has been given them
    claim: Claim | None = None
    #: why this node and these chips, for people
    text: str = ""
    #: Until then a bind that fails leaves them to `freed_by`: pods were evicted for
    #: these chips. Seconds since the epoch.
    freed_until_s: float = 0.0
    freed_by: Owner = Owner.PREEMPTION
    #: what the member asks for besides chips, if it has no pod yet
    ask: Resources = NOTHING

    @property
    def is_sent(self) -> bool:
        """Whether a bind, or an allocation of Volcano, may have been sent with it."""
        return self.owner in SENT

    @property
    def is_of_move(self) -> bool:
        """Whether it waits for successors: the end of its pods does not end it."""
        return self.claim is None and self.owner is Owner.RESCHEDULING

    @property
    def is_of_successor(self) -> bool:
        """Whether it was kept for this pod when a fault sent its predecessor away."""
        return self.freed_by is Owner.RESCHEDULING

    def excludes(self, existing: "Reservation") -> bool:
        """Whether a chip may not have both: they are for two, or wait for two ends."""
        if existing.kept_for != self.kept_for:
            return True
        are_waiting = existing.claim is None and self.claim is None
        return are_waiting and existing.owner is not self.owner

    def replaces(self, existing: "Reservation") -> bool:
        """Whether it takes the place of another one of the same beneficiary."""
        if (existing.claim is None) is not (self.claim is None):
            return False
        is_same = existing.owner is self.owner and existing.node == self.node
        is_same = is_same and existing.resource == self.resource
        return self.claim is not None or is_same


class Conflict(NamedTuple):
    """Chips that cannot be reserved, because another reservation has some of them."""

    wanted: Reservation
    existing: Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReservation:
    """Nodes with chips of one resource that are kept for one job.

    The chips stay free. Pods of other jobs get none of them, unless their priority is
    higher than that of the job.
    """

    job: str
    resource: str
    #: highest of its pods
    priority: int
    nodes: frozenset[str]
    until_s: float


class Reservations:
    """All reservations: by whom they are kept for, and by node.

    Invariant: no chip has two reservations for different beneficiaries, nor two that
    wait without a claim. A pod has at most one assigned reservation.
    """

    def __init__(self) -> None:
        #: {beneficiary: its reservations, one for each owner, node and resource}
        self._kept_for: dict[Beneficiary, tuple[Reservation, ...]] = {}
        #: {node: reservations of its chips}. Others only read it.
        self.by_node: dict[str, tuple[Reservation, ...]] = {}
        #: {resource: nodes kept for one job}. Others only read it.
        self.of_nodes: dict[str, NodeReservation] = {}
        #: no reservation ends before this time
        self._next_end_s = inf

    # -- making and ending ---------------------------------------------------------

    def reserve(self, wanted: Reservation) -> tuple[Reservation, ...] | Conflict:
        """Keep chips; return the reservations that end thereby, or what is in the way.

        An assigned reservation takes the place of the assigned one of its pod. Any
        other takes the place of that of the same beneficiary, owner, node and resource.
        """
        for existing in self.by_node.get(wanted.node, ()):
            if (
                existing.chips & wanted.chips
                and existing.resource == wanted.resource
                and wanted.excludes(existing)
            ):
                return Conflict(wanted, existing)
        own = self._kept_for.get(wanted.kept_for, ())
        replaced = tuple(filter(wanted.replaces, own)) if own else ()
        for existing in replaced:
            self.end(existing)
        self._add(wanted)
        return replaced

    def reserve_all(
        self, wanted: Sequence[Reservation]
    ) -> tuple[Reservation, ...] | Conflict:
        """Do as `reserve` for all of these, of one beneficiary each, or for none."""
        replaced: list[Reservation] = []
        for number, reservation in enumerate(wanted):
            outcome = self.reserve(reservation)
            if isinstance(outcome, Conflict):
                for made in wanted[:number]:
                    self.end(made)
                for existing in replaced:
                    self._add(existing)
                return outcome
            replaced += outcome
        return tuple(replaced)

    def release(
        self, kept_for: Beneficiary, owner: Owner | None = None
    ) -> tuple[Reservation, ...]:
        """End the reservations of a beneficiary; return those that there were.

        Args:
            owner: Only reservations with this owner end. None: all.
        """
        ended = tuple(
            existing
            for existing in self._kept_for.get(kept_for, ())
            if owner is None or existing.owner is owner
        )
        for existing in ended:
            self.end(existing)
        return ended

    def hand_over(self, member: AbsentMember, uid: str) -> tuple[Reservation, ...]:
        """Keep for a pod what was kept for the member that it is; return what that is.

        If the pod has chips already, what was kept for the member ends.
        """
        ended = self.release(member)
        if uid not in self._kept_for:
            for existing in ended:
                self._add(existing._replace(kept_for=uid))
        return ended

    def change(self, existing: Reservation, owner: Owner, until_s: float) -> None:
        """Give an existing reservation another owner, or another end (Unix seconds)."""
        self.end(existing)
        self._add(existing._replace(owner=owner, until_s=until_s))

    def end(self, existing: Reservation) -> None:
        """End one existing reservation."""
        _discard(self._kept_for, existing.kept_for, existing)
        _discard(self.by_node, existing.node, existing)

    def due(self, now_s: float) -> list[Reservation]:
        """Return the reservations whose end has come, in a fixed order.

        The caller releases or renews each of them.

        Cost:
            O(1) while the earliest end is later, else O(reservations).
        """
        if now_s < self._next_end_s:
            return []
        everything = list(self)
        self._next_end_s = min(
            (
                reservation.until_s
                for reservation in everything
                if reservation.until_s > now_s
            ),
            default=inf,
        )
        return [
            reservation for reservation in everything if reservation.until_s <= now_s
        ]

    def reserve_nodes(self, wanted: NodeReservation) -> None:
        """Keep nodes for a job, unless a job has nodes of this resource already."""
        self.of_nodes.setdefault(wanted.resource, wanted)

    def release_nodes(self, resource: str) -> None:
        """End the node reservation for a resource."""
        del self.of_nodes[resource]

    # -- queries -------------------------------------------------------------------

    def assigned(self, uid: str) -> Reservation | None:
        """Return the chips with which a pod is to be bound; None if it has none yet."""
        for existing in self._kept_for.get(uid, ()):
            if existing.claim is not None:
                return existing
        return None

    def kept_for(self, beneficiary: Beneficiary) -> tuple[Reservation, ...]:
        """Return all reservations of one beneficiary."""
        return self._kept_for.get(beneficiary, ())

    def on(self, node: str, resource: str) -> list[Reservation]:
        """Return the reservations of the chips of one resource of a node."""
        return [
            reservation
            for reservation in self.by_node.get(node, ())
            if reservation.resource == resource
        ]

    def chips_on(self, node: str, resource: str, *, but: Beneficiary = "") -> int:
        """Return the mask of the reserved chips of a node.

        Args:
            but: Reservations for this beneficiary do not count. "": all count.
        """
        return union(
            existing for existing in self.on(node, resource) if existing.kept_for != but
        )

    def __iter__(self) -> Iterator[Reservation]:
        for reservation in self._kept_for.values():
            yield from reservation

    def _add(self, wanted: Reservation) -> None:
        of_it = self._kept_for.get(wanted.kept_for, ())
        self._kept_for[wanted.kept_for] = *of_it, wanted
        self.by_node[wanted.node] = *self.by_node.get(wanted.node, ()), wanted
        self._next_end_s = min(self._next_end_s, wanted.until_s)


def _discard(
    table: dict[_K, tuple[Reservation, ...]], key: _K, existing: Reservation
) -> None:
    remaining = tuple(
        reservation for reservation in table[key] if reservation is not existing
    )
    if remaining:
        table[key] = remaining
    else:
        del table[key]


def union(reservations: Iterable[Reservation]) -> int:
    """Return the mask of all chips of these reservations."""
    return chips.union(reservation.chips for reservation in reservations)
