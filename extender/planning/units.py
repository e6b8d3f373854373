"""Members of a job that hold chips together or not at all.

Such a unit is a replica of several hosts of a RayCluster, or a partition of a task of a
Volcano Job. Half of one serves nobody.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from extender.gang.gang import Gang
from extender.gang.membership import AbsentMember, Member
from extender.gang.parts import Division, Number
from extender.refusals import describe_lack


@dataclass(frozen=True, slots=True)
class Unit:
    """The members of a unit of which none has a node."""

    #: UIDs of those that may be planned, also of those without a pod
    uids: frozenset[str]
    #: how many others it needs
    lacking: int
    #: what it is one of
    division: Division


def read_units(gang: Gang, followers: Mapping[str, AbsentMember]) -> list[Unit]:
    """Return the units of a job of which no member has a node.

    If one has, the others join it one by one, as pods join a job that runs.

    Args:
        followers: {UID: member without a pod} that a plan is to have.
    """
    divisions = gang.size.divisions if gang.size is not None else ()
    return [
        unit
        for division in divisions
        for unit in _units_of_role(gang, division, followers)
    ]


def find_incomplete(units: Iterable[Unit], without: Collection[str]) -> set[str]:
    """Return the UIDs of the members that wait for others of their unit.

    Args:
        without: UIDs of members that no plan has for another reason.
    """
    return {
        uid
        for unit in units
        if unit.lacking or not unit.uids.isdisjoint(without)
        for uid in unit.uids
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingUnits:
    """The existing members of a job in units of which none has a node."""

    #: UIDs of those in whole units
    whole: frozenset[str] = frozenset()
    #: {uid: its unit} of those in units that are not whole
    lacking: Mapping[str, Unit] = field(default_factory=dict)

    def why_lacking(self, uid: str) -> str:
        """Return that a member waits for others of its unit, for people; "" if not."""
        unit = self.lacking.get(uid)
        if unit is None:
            return ""
        return describe_lack(unit.lacking, unit.division.pods, unit.division.name)


_NONE = WaitingUnits()


class UnitsOfJobs:
    """The waiting units of jobs, which are read once until a job has changed."""

    def __init__(self) -> None:
        #: {job: (the job, what its units depend on, its units)}
        self._known: dict[str, tuple[Gang, object, WaitingUnits]] = {}

    def read(self, gang: Gang) -> WaitingUnits:
        """Return the waiting units of a job."""
        if gang.size is None or not gang.size.divisions:
            return _NONE  # the common case
        state = gang.size, gang.changes, gang.generation, *gang.plan.followers
        known = self._known.get(gang.job)
        if known is not None and known[0] is gang and known[1] == state:
            return known[2]
        units = read_waiting(gang)
        self._known[gang.job] = gang, state, units
        return units

    def retain(self, jobs: Collection[str]) -> None:
        """Forget the units of each job that is not in `jobs`."""
        self._known = {job: known for job, known in self._known.items() if job in jobs}


def read_waiting(gang: Gang) -> WaitingUnits:
    """Return the waiting units of a job."""
    units = read_units(gang, {})
    whole = [unit.uids for unit in units if not unit.lacking]
    lacking = {uid: unit for unit in units if unit.lacking for uid in unit.uids}
    return WaitingUnits(whole=frozenset[str]().union(*whole), lacking=lacking)


def _units_of_role(
    gang: Gang, division: Division, followers: Mapping[str, AbsentMember]
) -> Iterator[Unit]:
    staying = gang.placed
    begun = _begun_units(gang, division)
    waiting: dict[int, set[str]] = {}
    for uid, unit in _number_units(gang, division, staying):
        if uid in staying:
            begun.add(unit)
        elif uid not in gang.absent:
            waiting.setdefault(unit, set()).add(uid)
    for uid, absent in followers.items():
        if absent.role == division.role:
            waiting.setdefault(division.unit_of(absent.number), set()).add(uid)
    for unit, uids in waiting.items():
        if unit not in begun:
            yield Unit(frozenset(uids), max(division.pods - len(uids), 0), division)


def _begun_units(gang: Gang, division: Division) -> set[int]:
    """Return the units with members that have no pod, and need none or have a node.

    Their pods succeeded and were deleted since, with no pod in their place; or they are
    to come where nodes are kept.
    """
    places = [(absent.role, absent.number) for absent in gang.plan.followers]
    if gang.has_bound:  # or the job may have begun again
        members = [gang.members[uid] for uid in gang.members.keys() - gang.ending]
        replaced = {member.membership.place for member in members}
        ended = [gang.members[uid] for uid in gang.succeeded & gang.ending]
        places += {*gang.collected.values(), *_places(gang, ended)} - replaced
    numbers = [number for role, number in places if role == division.role]
    return set(map(division.unit_of, numbers))


def _places(gang: Gang, members: Iterable[Member]) -> list[tuple[str, Number]]:
    return [m.membership.place for m in members if not gang.is_outdated(m)]


def _number_units(
    gang: Gang, division: Division, staying: Collection[str]
) -> Iterator[tuple[str, int]]:
    """Yield the UID of each member of a role, and the number of its unit.

    Members without an index are divided as they come, those that stay first: any of
    them make a unit, whose number is negative.
    """
    uids = [
        uid
        for uid, member in gang.members.items()
        if member.membership.role == division.role
        and (uid in staying or uid not in gang.bound)
        and not gang.is_outdated(member)
    ]
    alike = []
    for uid in uids:
        membership = gang.members[uid].membership
        if membership.index:
            yield uid, division.unit_of(membership.order[2:])
        elif uid in staying or uid not in gang.absent:
            alike.append(uid)
    alike.sort(key=lambda uid: (uid not in staying, gang.rank_key(uid)))
    for position, uid in enumerate(alike):
        yield uid, -1 - position // division.pods
