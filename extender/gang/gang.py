"""A job of several pods: its pods, how many it needs, and its plan."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice

from extender.gang import needed_members
from extender.gang.generations import Generation, Lineage, next_line
from extender.gang.job_plan import JobPlan, Phase
from extender.gang.membership import AbsentMember, Member, Membership, SizeSource
from extender.gang.needed_members import IndexKey, Needed, Run, has_number, index_key
from extender.gang.parts import Number
from extender.gang.size import Size
from extender.refusals import Refusal, describe_predecessor, refuse_for_job
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.topology.leaves import asks_leaves

#: Seconds without a new pod after which no more pods of an elastic job are awaited.
SETTLED_S = 2.0


@dataclass(slots=True, kw_only=True)
class Gang:
    """A job: its pods and its size, and the plan that the extender has for it."""

    job: str
    size_source: SizeSource | None = None
    #: {uid: member} of pods that ask for NPUs and have not failed
    members: dict[str, Member] = field(default_factory=dict)
    #: members that have a node, or have ended with success
    bound: set[str] = field(default_factory=set)
    #: members that have succeeded, but for those that were being deleted before
    succeeded: set[str] = field(default_factory=set)
    #: {name: role and number} of members that succeeded and were deleted since
    collected: dict[str, tuple[str, Number]] = field(default_factory=dict)
    #: members that are being deleted, or are of an earlier job of this name
    ending: set[str] = field(default_factory=set)
    #: those of `ending` that are not being deleted yet
    outdated: set[str] = field(default_factory=set)
    #: {name of a line: its generations}
    lines: dict[str, Lineage] = field(default_factory=dict)
    #: how often the job or a generation of its pods has begun
    generation: int = 0
    #: how often a member has come, gone, or changed in what the sets here say of it
    changes: int = 0
    #: members that no plan has: being deleted, behind a scheduling gate, unfit for
    #: every node, or with a predecessor
    absent: set[str] = field(default_factory=set)
    #: {key of an index: UIDs of the members that have it}
    by_index: dict[IndexKey, set[str]] = field(default_factory=dict)
    #: {uid of a member without a node: UID of the bound one of its index that ends}
    predecessors: dict[str, str] = field(default_factory=dict)
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
    #: whether it was read when there were more pods than it says
    has_excess: bool = False
    #: when all needed pods were bound last, since the job began; None: never
    run: Run | None = None
    #: until when more pods are awaited, in seconds since the epoch; 0 for never
    settled_s: float = 0.0

    #: what the extender has decided; all other fields are facts
    plan: JobPlan = field(default_factory=JobPlan)

    @property
    def existing_count(self) -> int:
        """Number of members that are neither terminating nor kept away."""
        return len(self.members) - len(self.absent)

    @property
    def staying_count(self) -> int:
        """Number of members that are not terminating."""
        return len(self.members) - len(self.ending)

    @property
    def missing(self) -> int:
        """Number of pods that the job needs and that cannot be bound yet.

        They do not exist, are behind a scheduling gate, fit no node, or have a
        predecessor and are to be planned with the others. Terminating pods with NPUs do
        not count as existing. 0 if the size of the job is unknown.
        """
        size = self._needed_size
        if size is None:
            return 0
        if self.run is not None and (due := self._due_count):
            return due
        others = len(self.others)
        finished = self._finished_roles
        is_alone = self.is_running and not self._has_network
        joining = self.predecessors if is_alone else {}
        if not size.roles and not size.followers:
            existing = self.existing_count + len(joining) + len(finished)
            existing += others if size.counts_all else 0
            return max(size.least - existing, 0)
        existing_uids = (self.members.keys() - self.absent) | joining.keys()
        roles = self._roles(existing_uids) + finished
        roles += [absent.role for absent in self.awaited]
        return needed_members.count_short(size, roles, others)

    @property
    def _needed_size(self) -> Size | None:
        """The size whose pods the job waits for; None if it is unknown.

        A job that runs and was made larger waits for no more than it had: what is
        made again of it need not wait for pods that are perhaps never made.
        """
        run = None if self.run is None else self._outgrown
        return self.size if run is None else run.size

    @property
    def _outgrown(self) -> Run | None:
        """What the job had before it was made larger; None if it runs as it is."""
        size, run = self.size, self.run
        is_larger = size is not None and run is not None and run.size.least < size.least
        return run if is_larger and self.is_running else None

    @property
    def _due_count(self) -> int:
        """Number of successors that do not exist, of a job that was made larger.

        Newcomers do not stand in for them. None is due of a controller without pods.
        """
        run = self._outgrown
        due = [] if run is None else [k for k in run.left if not self._has_pod(k)]
        if not due:
            return 0
        staying = self._index_keys(self.members.keys() - self.ending).values()
        generations = {generation for generation, _, _ in staying}
        return sum(generation in generations for generation, _, _ in due)

    def _has_pod(self, key: IndexKey) -> bool:
        uids = self.by_index.get(key, ())
        return any(uid not in self.absent or uid in self.predecessors for uid in uids)

    def record_run(self) -> None:
        """Record the members of the job if all pods that it needs are bound."""
        size = self.size
        if size is None or (self.run is not None and size == self.run.size):
            return
        most = len(self.bound) + len(self.collected) + len(self.others)
        if size.least > most + size.succeeded:  # counted quickly, for each bound pod
            return
        if self.is_running and not self.lacks_members:
            counts = Counter(self._index_keys(self.placed).values())
            others = len(self.others) if size.counts_all else 0
            count = counts.total() + len(self._finished_roles) + others
            self.run = Run(size=size, counts=counts, spare=count - size.least)

    def leave_run(self, uid: str) -> None:
        """Forget that a member ran, if it begins to end and needs no successor."""
        if self.run is not None and uid in self.bound and uid not in self.ending:
            key = index_key(self.members[uid].membership)
            self.run.leave(key, is_done=uid in self.succeeded)

    def _index_keys(self, uids: Iterable[str]) -> dict[str, IndexKey]:
        return {uid: index_key(self.members[uid].membership) for uid in uids}

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
        places.update(self._finished_places if self.has_bound else ())
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
        has_some = (self.collected or self.succeeded) and self.has_bound
        roles = [role for role, _ in self._finished_places] if has_some else []
        staying = len(self.succeeded - self.ending)
        counted = 0 if self.size is None else self.size.succeeded - staying
        return roles + [""] * (counted - len(roles))

    @property
    def _finished_places(self) -> list[tuple[str, Number]]:
        """Role and number of each pod that succeeded and was deleted.

        A finalizer, such as that of Kueue, may keep such pods for long. Those that a
        pod replaces, and those of an earlier generation, are left out.
        """
        collected = list(self.collected.values())
        ended = self.succeeded & self.ending
        if not ended:
            return collected
        places = {
            member.membership.place
            for uid, member in self.members.items()
            if uid not in ended
        }
        members = [self.members[uid] for uid in ended]
        of_ended = [m.membership for m in members if not self.is_outdated(m)]
        return collected + [
            one.place
            for one in of_ended
            if not has_number(one) or one.place not in places
        ]

    def _roles(self, uids: Collection[str]) -> list[str]:
        return [self.members[uid].membership.role for uid in uids]

    def see_generation(
        self, generation: Generation, created: str, *, ending: bool = False
    ) -> None:
        """Let the next generation begin if a pod is the first of it that is seen.

        Args:
            created: Creation time of the pod.
            ending: Whether the pod is terminating.
        """
        line = self.lines.get(generation.line)
        if not generation.name:
            return
        if line is None or line.admit(generation, created, ending=ending):
            names = {m.membership.generation.name for m in self.members.values()}
            line = next_line(line, generation, created, names)
            self.begin_generation(generation.line, line)

    def is_outdated(self, member: Member) -> bool:
        """Whether a member is known to be of an earlier generation."""
        generation = member.membership.generation
        line = self.lines.get(generation.line) if generation.name else None
        return line is not None and generation.name not in line.names

    def begin_generation(self, name: str, line: Lineage) -> None:
        """Let members of the present generation be the job, and no others of a line."""
        self.generation += 1
        self.run = None
        of_members = {m.membership.generation.line for m in self.members.values()}
        self.lines = {  # each revision of a Deployment is a line
            key: known for key, known in self.lines.items() if key in of_members
        }
        self.lines[name] = line
        for uid in self.outdated:
            self.ending.discard(uid)
            if uid in self.bound or not self.members[uid].is_kept_away:
                self.absent.discard(uid)
        self.outdated = {
            uid
            for uid, other in self.members.items()
            if uid not in self.ending and self.is_outdated(other)
        }
        self.ending |= self.outdated
        self.absent |= self.outdated
        for uids in self.by_index.values():
            self._review_predecessors(uids)

    def review_index(self, membership: Membership) -> bool:
        """Let members wait for the bound one of their index that still ends.

        A controller may make the next pod of an index early, while containers of the
        one before run: two pods of one rank would be in the job.

        Returns:
            Whether a member waits no more, and may be bound now.
        """
        return self._review_predecessors(self.by_index.get(index_key(membership), ()))

    def _review_predecessors(self, uids: Collection[str]) -> bool:
        leaving = (uid for uid in uids if uid in self.nodes and uid in self.ending)
        before, is_free = min(leaving, default=""), False
        for uid in uids:
            may_come = uid not in self.ending and not self.members[uid].is_kept_away
            known = self.predecessors.pop(uid, "")
            if before and may_come and uid not in self.bound:
                self.predecessors[uid] = before
                self.absent.add(uid)
            elif known and may_come:
                self.absent.discard(uid)
                is_free = True
            self.changes += self.predecessors.get(uid, "") != known
        return is_free

    def predecessor_refusal(self, uid: str) -> Refusal | None:
        """Return that a member waits until its predecessor has ended; None if not."""
        before = self.predecessors.get(uid)
        if before is None:
            return None
        name, index = self.members[before].name, self.members[uid].membership.index
        return refuse_for_job(describe_predecessor(name, index, self.nodes[before]))

    @property
    def succession(self) -> tuple[str, str] | None:
        """Names of a member and its predecessor; None if no member has one."""
        uids = self.predecessors.items()
        names = ((self.members[uid].name, self.members[old].name) for uid, old in uids)
        return min(names, default=None)

    def is_growing(self, now_s: float) -> bool:
        """Whether the plan of an elastic job waits, because more pods may come.

        A pod has come in the last `SETTLED_S` seconds, not all pods exist, and no
        member runs.

        Args:
            now_s: Seconds since the epoch.
        """
        size = self.size
        if size is None or not size.is_elastic or now_s >= self.settled_s:
            return False
        coming = self._coming_count
        coming += len(self.others) if size.counts_all else 0
        is_whole = size.count is not None and coming >= size.count
        return not is_whole and not self.is_running

    @property
    def is_size_wanted(self) -> bool:
        """Whether the size is not known, though its object is and pods wait for it."""
        is_unknown = self.size is None and self.size_source is not None
        return is_unknown and self.has_waiting

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
        return self._lacks(self.size, self.placed)

    @property
    def lacks_successors(self) -> bool:
        """Whether existing pods must be bound before the job has what it waits for.

        As `lacks_members`, but a job that runs and was made larger needs what it had.
        """
        return self._lacks(self._needed_size, self.placed)

    def _lacks(
        self,
        size: Size | None,
        uids: Collection[str],
        awaited: Iterable[AbsentMember] = (),
    ) -> bool:
        if size is None:
            return True
        roles = self._roles(uids) + self._finished_roles
        roles += [absent.role for absent in awaited]
        return needed_members.count_short(size, roles, len(self.others)) > 0

    @property
    def is_plan_short(self) -> bool:
        """Whether the plan has fewer pods than the job needs, with those that run.

        A plan for pods that were to join others is short once these end. Members whose
        pods are made later count as there. So may be a plan whose job has more pods
        since: their number is not known then.
        """
        uids = self.placed | (self.plan.places.keys() & self.members.keys())
        return self._lacks(self._needed_size, uids, self.awaited)

    @property
    def has_optional(self) -> bool:
        """Whether the job has more pods than it needs, existing or awaited."""
        size = self._needed_size
        if size is None:
            return False
        return self._coming_count > size.least

    @property
    def _coming_count(self) -> int:
        return self.existing_count + len(self.awaited) + len(self._finished_roles)

    def order_by_need(self, followers: Iterable[tuple[str, str]] = ()) -> Needed:
        """Return the unbound members in the order in which the job needs them.

        Args:
            followers: (UID, role) of members without a pod, which come after the
                others of their role.
        """
        uids, run = self.unbound, self._outgrown
        if run is not None:
            placed = self._index_keys(self.placed).values()
            uids = run.put_first(self._index_keys(uids), placed)
        unbound = [(uid, self.members[uid].membership.role) for uid in uids]
        unbound += followers
        size = self._needed_size
        if size is None:
            return Needed(uids, len(uids))
        roles = self._roles(self.placed) + self._finished_roles
        return needed_members.order_by_need(size, unbound, roles, len(self.others))

    @property
    def gated(self) -> set[str]:
        """UIDs of the members behind a scheduling gate, unless they are terminating."""
        waiting = self.absent - self.ending
        return {uid for uid in waiting if self.members[uid].is_gated}

    @property
    def unfit(self) -> tuple[str, str] | None:
        """Name of a member that no node can take, and why; None if there is none."""
        members = (self.members[uid] for uid in self.absent - self.ending)
        return min(((m.name, m.problem) for m in members if m.problem), default=None)

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
    def _has_network(self) -> bool:
        """Whether the number of a pod decides where in the network its node is."""
        first = islice(self.members.values(), 1)
        return self._asks_leaves or any(SP_BLOCK in m.traits.annotations for m in first)

    @property
    def unbound(self) -> list[str]:
        """UIDs of the members without a node, sorted by `rank_key`.

        Members that are terminating, kept away or have succeeded are left out.
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
    def has_waiting(self) -> bool:
        """Whether a member waits for a node, now or once its predecessor has ended."""
        return bool(self.predecessors) or self.unbound_count > 0

    def kind_of(self, uid: str) -> str:
        """Return the kind of a member."""
        return self.members[uid].demands.kind

    @property
    def has_bound(self) -> bool:
        """Whether a member has a node or has succeeded, and is not being deleted."""
        return not self.bound <= self.ending

    @property
    def is_running(self) -> bool:
        """Whether a member has a node, has not succeeded and is not being deleted."""
        return not self.bound <= self.ending | self.succeeded

    def may_bind(self, uid: str) -> bool:
        """Whether a bind call for a pod need not wait for bind calls for other pods.

        True if the pod has a planned node, and the job is in the phase BINDING or has a
        pod that runs.
        """
        return uid in self.plan.places and (
            self.plan.phase is Phase.BINDING or self.is_running
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
    def counts(self) -> str:
        """Counts of the pods of the job for people ("8 of 8 pods exist, ...").

        They say how many pods exist, and how many of those with NPUs have a node. Pods
        that succeeded count for both, also once they are deleted. Terminating pods
        count apart.
        """
        size, finished = self.size, len(self._finished_roles)
        of = "an unknown number of" if size is None else size.text
        others = len(self.others) if size is not None and size.counts_all else 0
        existing = len(self.members) - len(self.ending) + finished + others
        counts = (
            f"{existing} of {of} pods exist, {len(self.placed) + finished} have a node"
        )
        if others:
            counts += f", {others} without NPUs"
        if self.ending:
            counts += f", {len(self.ending)} terminating"
        if self.gated:
            counts += f", {len(self.gated)} behind a scheduling gate"
        if self.predecessors:
            counts += f", {len(self.predecessors)} behind a terminating pod"
        if self.plan.followers:
            counts += f", nodes of {len(self.plan.followers)} more are kept"
        return counts

    @property
    def title(self) -> str:
        """Kind, namespace and name of the job ("JobSet ns/name"), for sentences."""
        kind, _, name = self.job.partition("/")
        return f"{kind} {name}"
