"""All jobs with their pods, and the phase of each job.

The cache adds and removes pods. `permit.step` sets the phases. Plans are only in
memory, so a restart of the extender loses them. The pods of the jobs are then read from
the API server again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from extender.gang import needed_members
from extender.gang.membership import AbsentMember, Member, Membership, SizeSource
from extender.gang.needed_members import Needed
from extender.gang.size import Number, Size, whole
from extender.gang.stages import Stages
from scheduler_core.placement.siblings import Cap
from scheduler_core.topology.leaves import asks_leaves
from scheduler_core.wire.pods import NpuPod

#: Seconds without a new pod after which no more pods of an elastic job are awaited.
SETTLED_S = 2.0


class Phase(StrEnum):
    """How far a job is: without a plan, planned, or being bound.

    A job whose pods are all bound has no plan any more. Sentences for people show the
    value. Metrics call the phases idle, held and open.
    """

    #: no chips are reserved
    GATHERING = "waiting"
    #: all members have reservations; their binds wait for each other
    RESERVED = "planned"
    #: binds are released, or a member was bound before
    BINDING = "being bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A list of nodes without the planned node of a pod."""

    offered: frozenset[str]
    #: nodes that are missing, of those offered before a member had come
    withheld: frozenset[str]
    #: (kind, node) of the members that have come, or have a node
    come: tuple[tuple[str, str], ...]


@dataclass(slots=True, kw_only=True)
class JobPlan:
    """What the extender has decided for a job; a restart drops it.

    `permit.step` changes it, and of the rest of the cache only what ends reservations.
    """

    phase: Phase = Phase.GATHERING
    #: {uid: planned node} of members without a node
    places: dict[str, str] = field(default_factory=dict)
    #: {member without a pod: planned node}
    followers: dict[AbsentMember, str] = field(default_factory=dict)
    #: when the nodes of `followers` are given back, in seconds since the epoch
    followers_until_s: float = 0.0
    #: {uid: number of its waiting bind call}
    waiting_calls: dict[str, int] = field(default_factory=dict)
    #: members whose released bind has not ended
    open_binds: set[str] = field(default_factory=set)
    #: deadline of the phase, in seconds since the epoch
    until_s: float = 0.0
    #: when binds were released
    open_s: float = 0.0
    #: whether an event said that it is partly bound
    is_reported: bool = False
    #: whether an event said that it runs with fewer pods than it has
    is_part_reported: bool = False

    #: consecutive plans that failed
    failures: int = 0
    #: earliest time of the next plan
    again_s: float = 0.0
    #: {(kind, node that the scheduler refused to it): until when plans avoid it}
    refused: dict[tuple[str, str], float] = field(default_factory=dict)
    #: pairs of kinds that the scheduler has not let onto one node
    apart: set[tuple[str, str]] = field(default_factory=set)
    #: nodes onto which it has let no more pods of a kind together
    caps: dict[Cap, None] = field(default_factory=dict)
    #: {kind: nodes that the scheduler had offered to it when the plan was made}
    lists: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: members that filter has let go to their planned node
    accepted: set[str] = field(default_factory=set)
    #: {uid: what is to be learnt if it does not come in time}
    misses: dict[str, Miss] = field(default_factory=dict)
    #: when its chips were reserved
    planned_s: float = 0.0
    #: (end, seconds) of the plans of the last hour that the scheduler did not follow
    vain: list[tuple[float, float]] = field(default_factory=list)
    #: whether its binds wait for each other here; under Volcano they do not
    is_gated: bool = True
    #: since when it is complete and does not fit; None otherwise
    waits_s: float | None = None
    #: earliest time of its next node reservation
    nodes_again_s: float = 0.0
    #: why it does not fit
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Gang:
    """A job: its pods and its size, and the plan that the extender has for it."""

    job: str
    size_source: SizeSource | None = None
    #: {uid: member} of pods that ask for NPUs and have not failed
    members: dict[str, Member] = field(default_factory=dict)
    #: members that have a node, or have succeeded
    bound: set[str] = field(default_factory=set)
    #: members that have succeeded
    succeeded: set[str] = field(default_factory=set)
    #: {name: role and number} of members that succeeded and were deleted since
    collected: dict[str, tuple[str, Number]] = field(default_factory=dict)
    #: members that are being deleted
    ending: set[str] = field(default_factory=set)
    #: members that no plan has: being deleted, or behind a scheduling gate
    absent: set[str] = field(default_factory=set)
    #: UIDs of its pods without NPUs
    others: set[str] = field(default_factory=set)
    #: {kind: UIDs of the members with these demands}
    kinds: dict[str, set[str]] = field(default_factory=dict)
    #: {uid: node} of the members that have one and have not succeeded
    nodes: dict[str, str] = field(default_factory=dict)
    #: None: unknown
    size: Size | None = None
    #: why the size is unknown; "" while it is being read
    problem: str = ""
    #: until when more pods are awaited, in seconds since the epoch; 0 for never
    settled_s: float = 0.0

    #: what the extender has decided; all other fields are facts
    plan: JobPlan = field(default_factory=JobPlan)

    @property
    def existing_count(self) -> int:
        """Number of members that are neither terminating nor behind a gate."""
        return len(self.members) - len(self.absent)

    @property
    def missing(self) -> int:
        """Number of pods that the job needs and that cannot be bound yet.

        They do not exist, or are behind a scheduling gate. Terminating pods with NPUs
        do not count as existing. 0 if the size of the job is unknown.
        """
        if self.size is None:
            return 0
        others = len(self.others)
        finished = self._finished_roles
        if not self.size.roles and not self.size.followers:
            existing = self.existing_count + len(finished)
            existing += others if self.size.counts_all else 0
            return max(self.size.least - existing, 0)
        roles = self._roles(self.members.keys() - self.absent) + finished
        roles += [absent.role for absent in self.awaited]
        return needed_members.count_short(self.size, roles, others)

    @property
    def awaited(self) -> list[AbsentMember]:
        """Members without a pod, whose pods are made once other members are ready.

        They count as existing: the first pods are planned with them.
        """
        if self.size is None or self.size.count is None or not self.size.followers:
            return []
        places = {
            member.membership.place
            for uid, member in self.members.items()
            if uid not in self.ending
        }
        places.update(self.collected.values() if self.has_bound else ())
        absent = [
            AbsentMember(self.job, followers.role, number)
            for followers in self.size.followers
            for number in followers.numbers
            if (followers.role, number) not in places
        ]
        existing = len(self.members) - len(self.ending) + len(self._finished_roles)
        return absent[: max(self.size.count - existing, 0)]

    @property
    def _finished_roles(self) -> list[str]:
        """Role of each pod that succeeded and was deleted; "" if it is not known.

        Those that the extender has seen count only beside a member that is bound: a job
        without one may have begun again.
        """
        roles = [role for role, _ in self.collected.values()] if self.has_bound else []
        counted = 0 if self.size is None else self.size.succeeded - len(self.succeeded)
        return roles + [""] * (counted - len(roles))

    def _roles(self, uids: Collection[str]) -> list[str]:
        return [self.members[uid].membership.role for uid in uids]

    def forget_collected(self, member: Member) -> None:
        """Forget the member that succeeded and was deleted, and that a pod replaces.

        They have the same name, or the same number, if that is not 0.
        """
        self.collected.pop(member.name, None)
        place = member.membership.place
        if self.collected and place[1] != (0, 0):
            self.collected = {
                name: other for name, other in self.collected.items() if other != place
            }

    def is_growing(self, now_s: float) -> bool:
        """Whether the plan of an elastic job waits, because more pods may come.

        A pod has come in the last `SETTLED_S` seconds, not all pods exist, and no
        member is bound yet.

        Args:
            now_s: Seconds since the epoch.
        """
        size = self.size
        if size is None or not size.is_elastic or now_s >= self.settled_s:
            return False
        coming = self.existing_count + len(self.awaited) + len(self._finished_roles)
        is_whole = size.count is not None and coming >= size.count
        return not is_whole and not self.has_bound

    @property
    def is_size_wanted(self) -> bool:
        """Whether the size is not known, though its object is and pods wait for it."""
        is_unknown = self.size is None and self.size_source is not None
        return is_unknown and self.unbound_count > 0

    @property
    def is_size_doubtful(self) -> bool:
        """Whether the object with the size is to be read, because pods wait for it.

        The size may have been edited. It is unknown, pods are missing, there are more,
        or the pods that the job needs do not fit.
        """
        if self.size_source is None or not self.unbound_count:
            return False
        if self.size is None or self.missing:
            return True
        if self.plan.waits_s is not None and self.lacks_members:
            return True
        return self.size.count is not None and self.existing_count > self.size.count

    @property
    def placed(self) -> set[str]:
        """UIDs of members that have a node or have succeeded, and are not ending."""
        return self.bound - self.ending

    @property
    def lacks_members(self) -> bool:
        """Whether more of the existing pods must be bound before the job may run.

        True if the size of the job is unknown.
        """
        if self.size is None:
            return True
        roles = self._roles(self.placed) + self._finished_roles
        return needed_members.count_short(self.size, roles, len(self.others)) > 0

    @property
    def is_plan_short(self) -> bool:
        """Whether the plan has fewer pods than the job needs, with those that run.

        A plan for pods that were to join others is short once these end. Members whose
        pods are made later count as there.
        """
        if self.size is None:
            return False
        uids = self.placed | (self.plan.places.keys() & self.members.keys())
        roles = self._roles(uids) + self._finished_roles
        roles += [absent.role for absent in self.awaited]
        return needed_members.count_short(self.size, roles, len(self.others)) > 0

    @property
    def has_optional(self) -> bool:
        """Whether the job has more pods than it needs, existing or awaited."""
        if self.size is None:
            return False
        existing = self.existing_count + len(self.awaited) + len(self._finished_roles)
        return existing > self.size.least

    def order_by_need(self, followers: Iterable[tuple[str, str]] = ()) -> Needed:
        """Return the unbound members in the order in which the job needs them.

        Args:
            followers: (UID, role) of members without a pod, which come after the
                others of their role.
        """
        uids = self.unbound
        unbound = [(uid, self.members[uid].membership.role) for uid in uids]
        unbound += followers
        if self.size is None:
            return Needed(uids, len(uids))
        roles = self._roles(self.placed) + self._finished_roles
        return needed_members.order_by_need(self.size, unbound, roles, len(self.others))

    @property
    def gated(self) -> set[str]:
        """UIDs of the members behind a scheduling gate, unless they are terminating."""
        return self.absent - self.ending

    @property
    def is_several(self) -> bool:
        """Whether the job is planned as a whole, not pod by pod.

        True for several pods, for an unknown size, and for one pod with the label
        `tor-affinity`: its leaf switch depends on the switches that other jobs use. A
        job that is edited to have one pod stays so until its plan ends.
        """
        is_planned = self.plan.phase is not Phase.GATHERING or bool(self.plan.followers)
        return not self.is_one or is_planned or self._asks_leaves

    @property
    def is_one(self) -> bool:
        """Whether the job is known to have exactly one pod.

        True also if its pods need not run together, and their number is not stated.
        """
        size = self.size
        return size is not None and (size.count or size.least) <= 1

    @property
    def _asks_leaves(self) -> bool:
        return any(
            asks_leaves(s.traits.labels) for s in islice(self.members.values(), 1)
        )

    @property
    def unbound(self) -> list[str]:
        """UIDs of the members without a node, sorted by `rank_key`.

        Members that are terminating, gated or have succeeded are left out.
        """
        uids = self.members.keys() - self.bound - self.absent
        return sorted(uids, key=self.rank_key)

    @property
    def unbound_count(self) -> int:
        """Number of UIDs in `unbound`, counted without sorting them."""
        if not self.bound and not self.absent:
            return len(self.members)
        return len(self.members.keys() - self.bound - self.absent)

    @property
    def waiting_kinds(self) -> dict[str, str]:
        """{kind: name of one of its members without a node}, without other kinds."""
        examples: dict[str, str] = {}
        for kind, uids in self.kinds.items():
            waiting = (u for u in uids if u not in self.bound and u not in self.absent)
            uid = next(waiting, None)
            if uid is not None:
                examples[kind] = self.members[uid].name
        return examples

    def find_unoffered(self, offered: Collection[str]) -> str:
        """Return the name of a member for whose kind a plan waits; "" if none does.

        A kind of members that the job can do without is not awaited, unless all
        members without a node are of such kinds.

        Args:
            offered: Kinds to which the scheduler has offered nodes.
        """
        waiting = self.waiting_kinds
        kinds = waiting.keys() - offered
        if kinds and kinds < waiting.keys():
            kinds &= self._needed_kinds
        return min((waiting[kind] for kind in kinds), default="")

    @property
    def _needed_kinds(self) -> set[str]:
        """Kinds of the unbound members without which the job cannot run."""
        if not self.lacks_members:
            return set()
        need = self.order_by_need([("", absent.role) for absent in self.awaited])
        return {self.kind_of(uid) for uid in need.uids[: need.least] if uid}

    def kind_of(self, uid: str) -> str:
        """Return the kind of a member."""
        return self.members[uid].demands.kind

    @property
    def has_bound(self) -> bool:
        """Whether a member has a node or has succeeded, and is not being deleted."""
        return not self.bound <= self.ending

    def may_bind(self, uid: str) -> bool:
        """Whether a bind call for a pod need not wait for bind calls for other pods.

        True if the pod has a planned node, and the job is in the phase BINDING or has a
        bound pod that is not being deleted.
        """
        return uid in self.plan.places and (
            self.plan.phase is Phase.BINDING or self.has_bound
        )

    def rank_key(self, uid: str) -> tuple[int, object, str]:
        """Return the sort key of a pod among the pods of its job.

        Pods with a rank come first, by rank. Pods without a rank follow. They are
        sorted by role (such as master before worker), then by the indexes that their
        job's controller gave them, then by name.
        """
        member = self.members[uid]
        rank = member.membership.rank
        if rank is not None:
            return rank, (), member.name
        return 1 << 30, member.membership.order, member.name

    def queue_key(self, pods: Mapping[str, NpuPod]) -> tuple[int, str, str]:
        """Return the sort key of this job in the queue of waiting jobs.

        The key is (-priority, creation time, UID) of one member: the oldest of those
        with the highest priority. The job with the least key is planned first.
        """
        keys = [
            (-member.priority, pods[uid].created, uid)
            for uid, member in self.members.items()
            if uid in pods
        ]
        return min(keys, default=(0, "", ""))

    def format_names(self, uids: Collection[str]) -> str:
        """Return the names of these members for a sentence, as "a, b, c and 2 more".

        At most three names are listed.
        """
        names = sorted(self.members[uid].name for uid in uids if uid in self.members)
        more = len(uids) - 3
        listed = ", ".join(names[:3])
        return f"{listed} and {more} more" if more > 0 else listed

    @property
    def part_text(self) -> str:
        """How many of its pods a job runs with ("2 of 4 pods"), for sentences."""
        size = self.size
        count = len(self.members) if size is None or size.count is None else size.count
        return f"{len(self.placed) + len(self._finished_roles)} of {count} pods"

    @property
    def state(self) -> str:
        """Phase and counts of the job for people ("planned, 8 of 8 pods exist, ...").

        The counts say how many pods with NPUs exist, and how many of them have a node
        or have succeeded. In phase GATHERING, the reason why the job has no plan is
        added.
        """
        of = "an unknown number of" if self.size is None else self.size.text
        counts = (
            f"{len(self.members)} of {of} pods exist, {len(self.bound)} have a node"
        )
        if self.gated:
            counts += f", {len(self.gated)} behind a scheduling gate"
        if self.plan.followers:
            counts += f", nodes of {len(self.plan.followers)} more are kept"
        why = (
            f": {self.plan.text}"
            if self.plan.text and self.plan.phase is Phase.GATHERING
            else ""
        )
        return f"{self.plan.phase.value}, {counts}{why}"

    @property
    def title(self) -> str:
        """Kind, namespace and name of the job ("JobSet ns/name"), for sentences."""
        kind, _, name = self.job.partition("/")
        return f"{kind} {name}"


class Gangs:
    """All jobs with their pods, and the job of each pod.

    A pod is in `job_of` exactly if it is in its job's `members` or, without NPUs, in
    its job's `others`.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Gang] = {}
        #: {uid: job}
        self.job_of: dict[str, str] = {}
        self.stages = Stages()
        #: jobs that may have refused nodes in their plan
        self.refused_jobs: set[str] = set()

    def gang_of(self, uid: str) -> Gang | None:
        """Return the job of a pod if the job is planned as a whole; None otherwise."""
        gang = self.jobs.get(self.job_of.get(uid, ""))
        return gang if gang is not None and gang.is_several else None

    def put(  # noqa: PLR0913  # what a pod shows
        self,
        uid: str,
        member: Member,
        *,
        bound: bool,
        succeeded: bool,
        ending: bool,
        now_s: float,
        node: str = "",
    ) -> bool:
        """Add a pod to its job, or replace its entry there.

        Returns whether the pod is new in the job, begins to terminate, states another
        size of the job, or may be bound now that its last gate is removed.

        Args:
            uid: UID of a pod that asks for NPUs. For a failed pod, call `drop` instead.
            bound: Whether the pod has a node or has succeeded.
            succeeded: Whether the pod has succeeded. It is not missing once deleted.
            ending: Whether the pod is terminating.
            now_s: Seconds since the epoch.
            node: Name of its node; "" if it has none.
        """
        gang = self._gang(uid, member.membership.job)
        _drop_kind(gang, uid)
        gang.kinds.setdefault(member.demands.kind, set()).add(uid)
        if node and not succeeded:
            gang.nodes[uid] = node
        else:
            gang.nodes.pop(uid, None)
        is_absent = ending or member.is_gated
        is_news = uid not in gang.members or is_absent is not (uid in gang.absent)
        if is_news and not is_absent:
            gang.settled_s = now_s + SETTLED_S
        if uid not in gang.members:
            gang.forget_collected(member)
        gang.members[uid] = member
        gang.size_source = gang.size_source or member.membership.size_source
        if gang.size_source is None:
            size = _stated_size(member.membership) or gang.size
            is_news = is_news or size != gang.size
            gang.size = size
            gang.problem = "" if size is not None else member.membership.problem
        (gang.bound.add if bound else gang.bound.discard)(uid)
        (gang.succeeded.add if succeeded else gang.succeeded.discard)(uid)
        (gang.ending.add if ending else gang.ending.discard)(uid)
        (gang.absent.add if is_absent else gang.absent.discard)(uid)
        return is_news

    def put_other(self, uid: str, job: str) -> bool:
        """Set the job of a pod without NPUs; remove the pod from any earlier job.

        Returns whether the pod is new in a job.

        Args:
            job: Key of the job; "" if the pod is in none.
        """
        if self.job_of.get(uid, job) != job:
            self.drop(uid)
        if not job:
            return False
        others = self._gang(uid, job).others
        is_news = uid not in others
        others.add(uid)
        return is_news

    def drop(self, uid: str) -> None:
        """Remove a pod from its job.

        The job is removed too when it has no pods and no waiting bind calls left.
        """
        job = self.job_of.pop(uid, "")
        gang = self.jobs.get(job)
        if gang is None:
            return
        _drop_kind(gang, uid)
        member = gang.members.pop(uid, None)
        if member is not None and uid in gang.succeeded:
            gang.collected[member.name] = member.membership.place
        gang.nodes.pop(uid, None)
        gang.plan.places.pop(uid, None)
        gang.plan.accepted.discard(uid)
        gang.plan.misses.pop(uid, None)
        for uids in (
            gang.bound,
            gang.succeeded,
            gang.ending,
            gang.absent,
            gang.others,
        ):
            uids.discard(uid)
        gang.plan.open_binds.discard(uid)
        if not gang.members and not gang.others and not gang.plan.waiting_calls:
            del self.jobs[job]
            if self.stages:
                self.stages.retain(job, self.jobs)

    def set_size(self, job: str, size: Size | None, problem: str) -> bool:
        """Set the size of a job to the one that the job's API object states.

        Returns whether the size has changed.

        If `size` is None, the size that a pod of the job states is used. A job that is
        not in `jobs` is ignored.

        Args:
            size: Size in the API object; None if it has none or cannot be read.
            problem: Why `size` is None; "" otherwise.
        """
        gang = self.jobs.get(job)
        if gang is None:
            return False
        if size is None:
            stated = (_stated_size(m.membership) for m in gang.members.values())
            size = next(filter(None, stated), None)
        is_changed = size != gang.size
        gang.size = size
        gang.problem = "" if size is not None else problem
        return is_changed

    def note_refusals(self) -> None:
        """Find out which jobs have refused nodes."""
        self.refused_jobs = {
            gang.job for gang in self.jobs.values() if gang.plan.refused
        }

    def forget_refusals(self, node: str) -> None:
        """Let plans use a node again that has changed, for all kinds of all jobs."""
        for job in tuple(self.refused_jobs):
            gang = self.jobs.get(job)
            if gang is not None:
                gang.plan.refused = {
                    place: until_s
                    for place, until_s in gang.plan.refused.items()
                    if place[1] != node
                }
            if gang is None or not gang.plan.refused:
                self.refused_jobs.discard(job)

    def _gang(self, uid: str, job: str) -> Gang:
        self.job_of[uid] = job
        gang = self.jobs.get(job)
        if gang is None:
            gang = self.jobs[job] = Gang(job=job, size=self.stages.size_of(job))
        return gang


def _drop_kind(gang: Gang, uid: str) -> None:
    """Remove a member from the members of its kind."""
    member = gang.members.get(uid)
    uids = gang.kinds.get(member.demands.kind) if member is not None else None
    if member is not None and uids is not None:
        uids.discard(uid)
        if not uids:
            del gang.kinds[member.demands.kind]


def _stated_size(membership: Membership) -> Size | None:
    """Return the size of a job that one of its pods states; None if it states none."""
    if membership.size is None:
        return None
    if membership.is_least:
        return Size(count=None, least=membership.size, counts_all=membership.counts_all)
    return whole(membership.size, counts_all=membership.counts_all)
