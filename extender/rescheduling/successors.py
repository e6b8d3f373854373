"""Find the pods that take the place of those which a fault sent away.

A pod of a job of several is known by its role, its number and the controller that gives
it, or by its order if its controller numbers none; a pod that is a job by itself by its
controller.

No pod gets the place of one that stays. A pod of a job waits until the one before it
has ended: two pods of one rank would be in the job.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from extender.cache.cache import Cache
from extender.gang.gang import Gang
from extender.gang.membership import Membership
from extender.gang.needed_members import has_number
from extender.gang.size import Size
from extender.refusals import describe_predecessor, kept_for_others
from extender.rescheduling.moves import KeptPlace, Slot
from scheduler_core.node import chips
from scheduler_core.wire.pods import NpuPod

#: Line of a controller, and slot: equal for a numbered pod and its successor.
Key = tuple[str, Slot]


@dataclass(slots=True, kw_only=True)
class Awaited:
    """A kept place, and the pod that is to have it."""

    place: KeptPlace
    #: UID of that pod; "" while none has come
    successor: str = ""
    #: {why the place is of no use: since when, in seconds since the epoch}
    lacks: dict[str, float] = field(default_factory=dict)

    def note(self, why: str, now_s: float, *, is_so: bool) -> None:
        """Record whether something keeps a successor from the place."""
        if is_so:
            self.lacks.setdefault(why, now_s)
        else:
            self.lacks.pop(why, None)


@dataclass(slots=True, kw_only=True)
class PlacesOfMove:
    """The kept places of one job."""

    #: its key, or the UID of a pod that was a job by itself
    job: str
    #: "kind/namespace/name" of the controller of such a pod
    owner: str
    #: UIDs of the pods that go
    leaving: frozenset[str]
    #: {UID of a pod that goes: the place of its successor}
    awaited: dict[str, Awaited] = field(default_factory=dict)
    #: of the job when places were kept; None if it was not known
    size: Size | None = None
    #: whether no successor was refused for its chips since schedulers were woken
    is_woken: bool = False
    #: {UID of a pod that still ends: its place} for which successors were refused
    blocking: dict[str, KeptPlace] = field(default_factory=dict)
    #: UID of a pod whose place was found occupied last
    unclear: str = ""
    #: why pods of the job without a kept place have no other
    text: str = ""

    def has(self, cache: Cache, pod: NpuPod) -> bool:
        """Whether a pod is of the job, or was made by the controller of the pod."""
        return (
            pod.uid in self.leaving
            or cache.job_of(pod.uid) == self.job
            or (bool(self.owner) and pod.owner == self.owner)
        )


def holds(cache: Cache, awaited: Awaited) -> bool:
    """Return whether a successor has chips of its own, or has been bound."""
    uid = awaited.successor
    if uid and cache.reservation(uid) is not None:
        return True  # perhaps no watch has shown the pod yet
    pod = cache.pods.get(uid)
    return pod is not None and bool(pod.node) and not pod.terminal


def find_sitter(cache: Cache, move: PlacesOfMove, place: KeptPlace) -> str:
    """Return the UID of the successor that has exactly these chips; "" if none has."""
    for uid, pod, mask in _tenants(cache, place):
        if uid not in move.leaving and mask == place.chips and move.has(cache, pod):
            return uid
    return ""


def has_user(cache: Cache, move: PlacesOfMove, place: KeptPlace) -> bool:
    """Return whether a pod of others has chips of a place."""
    return any(
        mask & place.chips and not move.has(cache, pod)
        for _, pod, mask in _tenants(cache, place)
    )


def _tenants(cache: Cache, place: KeptPlace) -> Iterable[tuple[str, NpuPod, int]]:
    """Return (UID, pod, its chips) of the pods on the node of a place."""
    state = cache.resource_state(place.node, place.resource)
    tenants = {} if state is None else state.tenants
    return [(uid, tenant.pod, tenant.chips) for uid, tenant in tenants.items()]


def is_living(cache: Cache, place: KeptPlace) -> bool:
    """Return whether the pod that leaves for a place has not ended."""
    pod = cache.pods.get(place.uid)
    return pod is not None and not pod.terminal


def is_staying(cache: Cache, place: KeptPlace) -> bool:
    """Return whether that pod does not even end: nobody has asked it to go."""
    return is_living(cache, place) and not cache.pods[place.uid].deleting


def is_left(cache: Cache, place: KeptPlace) -> bool:
    """Return whether that pod has ended, and no pod has the chips of the place."""
    state = cache.resource_state(place.node, place.resource)
    is_known = state is not None and not state.is_silent
    tenants = (mask & place.chips for _, _, mask in _tenants(cache, place))
    return is_known and not is_living(cache, place) and not any(tenants)


def find_conflict(cache: Cache, move: PlacesOfMove, place: KeptPlace) -> str:
    """Return why chips of a place are of no use now; "" if they are.

    Those of the pods that leave count as free.
    """
    node = place.node
    state = cache.index.nodes(place.resource).get(node)
    if state is None or cache.resource_state(node, place.resource) is None:
        return f"{node} has gone"
    if place.chips & ~state.healthy:
        return f"a chip of {node} broke"
    is_taken = any(
        mask & place.chips and uid not in move.leaving
        for uid, _, mask in _tenants(cache, place)
    ) or any(
        other.chips & place.chips
        for other in cache.reserved.get(node, ())
        if other.resource == place.resource and other.kept_for != move.job
    )
    return kept_for_others(node).text if is_taken else ""


def bound_by_key(cache: Cache, move: PlacesOfMove) -> Mapping[Key, str]:
    """Return {key: UID} of bound and numbered pods of a job that do not go."""
    gang = cache.gangs.get(move.job)
    if gang is None:
        return {}
    uids = gang.nodes.keys() - gang.ending - move.leaving
    memberships = {uid: gang.members[uid].membership for uid in uids}
    return {
        key: uid
        for uid, membership in memberships.items()
        if has_number(membership)
        for key in _keys(membership)
    }


def key_of(place: KeptPlace) -> Key:
    """Return the key by which a numbered successor finds its place."""
    return place.line, place.slot


def _keys(membership: Membership) -> tuple[Key, Key]:
    """Return the keys of a pod; the second for places whose line is not known."""
    return (membership.generation.line, membership.place), ("", membership.place)


def assign(
    cache: Cache, move: PlacesOfMove, gang: Gang
) -> tuple[dict[str, Awaited], dict[str, Awaited]]:
    """Return {UID: place} of the members without a node for which places are kept.

    First those that may have their places, then those that wait until the pods before
    have ended. Members that no controller numbers get places in their order, those of
    their own controller first. Only a member that asks for as many chips gets a place.
    """
    places = [
        awaited
        for awaited in move.awaited.values()
        if not (holds(cache, awaited) or is_staying(cache, awaited.place))
    ]
    places.sort(key=lambda a: (is_living(cache, a.place), a.place.slot, a.place.name))
    by_key: defaultdict[Key, list[Awaited]] = defaultdict(list)
    for awaited in places:
        by_key[key_of(awaited.place)].append(awaited)
    assigned: dict[str, Awaited] = {}
    unmatched = []
    for uid in gang.unbound:
        membership = gang.members[uid].membership
        found = next((by_key[key] for key in _keys(membership) if by_key[key]), [])
        if not has_number(membership):
            unmatched.append((uid, membership))
        elif found and _fits(cache, uid, found[0]):
            assigned[uid] = found.pop(0)
    taken = {awaited.place.uid for awaited in assigned.values()}
    rest = [awaited for awaited in places if awaited.place.uid not in taken]
    for uid, membership in unmatched:  # the bind before may have given it its number
        line, role = membership.generation.line, membership.role
        of_role = (a for a in rest if a.place.slot[0] == role and _fits(cache, uid, a))
        first = next(of_role, None)
        if first is not None:
            own = (a for a in chain([first], of_role) if a.place.line == line)
            assigned[uid] = next(own, first)
            rest.remove(assigned[uid])
    waiting = {u: a for u, a in assigned.items() if is_living(cache, a.place)}
    return {u: a for u, a in assigned.items() if u not in waiting}, waiting


def _fits(cache: Cache, uid: str, awaited: Awaited) -> bool:
    pod = cache.pods.get(uid)
    return pod is not None and is_like(pod, awaited.place)


def find_alone(
    cache: Cache, moves: Iterable[PlacesOfMove], pod: NpuPod
) -> tuple[PlacesOfMove, Awaited] | None:
    """Return the place that a pod gets which is a job by itself; None if none.

    Of several pods of a controller the first that is asked about gets it. It has come
    for no place whose pod stays.
    """
    if pod.node:
        return None
    job = cache.job_of(pod.uid)
    for move in moves:
        is_of = move.job == job if job else move.owner == pod.owner != ""
        if not is_of or pod.uid in move.leaving:
            continue
        for awaited in move.awaited.values():
            is_open = awaited.successor == pod.uid or not has_come(cache, awaited)
            is_open = is_open and not is_staying(cache, awaited.place)
            if is_open and is_like(pod, awaited.place):
                return move, awaited
    return None


def has_come(cache: Cache, awaited: Awaited) -> bool:
    """Return whether a pod has come for a place, and has it or may take it."""
    pod = cache.pods.get(awaited.successor)
    is_there = pod is not None and not pod.terminal and not pod.deleting
    return is_there or holds(cache, awaited)


def is_like(pod: NpuPod, place: KeptPlace) -> bool:
    """Return whether a pod asks for as many chips as a place has."""
    is_of_resource = pod.shape.resource == place.resource
    return is_of_resource and pod.total == place.chips.bit_count()


def describe_unclear(place: KeptPlace) -> str:
    """Return that a successor waits until nothing occupies its chips."""
    ids = ",".join(map(str, chips.ids_of(place.chips)))
    return f"waits until chips {ids} of {place.node} are free, which are kept for it"


def describe_living(cache: Cache, awaited: Awaited) -> str:
    """Return that a successor waits until the pod before it has ended."""
    place = awaited.place
    rank = place.slot[1][0]
    return describe_predecessor(place.name, str(rank), cache.pods[place.uid].node)
