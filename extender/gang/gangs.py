"""All jobs with their pods.

The cache adds and removes pods. `permit.step` sets the phases. Plans are only in
memory, so a restart of the extender loses them. The pods of the jobs are then read from
the API server again.
"""

from dataclasses import replace
from operator import attrgetter

from extender.gang.gang import SETTLED_S, Gang
from extender.gang.generations import UNKNOWN, EndedLines, Generation, next_line
from extender.gang.membership import Member, Membership
from extender.gang.needed_members import has_number, index_key
from extender.gang.size import Size, whole
from extender.gang.stages import Stages


class Gangs:
    """All jobs with their pods, and the job of each pod.

    A pod is in `job_of` exactly if it is in its job's `members` or, without NPUs, in
    its job's `others`.
    """

    def __init__(self) -> None:
        #: {job: its pods and its plan}
        self.jobs: dict[str, Gang] = {}
        #: {uid: job}
        self.job_of: dict[str, str] = {}
        self.stages = Stages()
        self._ended = EndedLines()
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
        uncounted: bool = False,
    ) -> bool:
        """Add a pod to its job, or replace its entry there.

        Returns whether the pod is new in the job, begins to terminate, states another
        size of the job, or may be bound now that its last gate is removed. Also whether
        its successor may be, since the pod has ended.

        Args:
            uid: UID of a pod that asks for NPUs. For a failed pod, call `drop` instead.
            bound: Whether the pod has a node or has succeeded.
            succeeded: Whether the pod has succeeded. It is not missing once deleted,
                unless it succeeded because it was being deleted.
            ending: Whether the pod is terminating.
            now_s: Seconds since the epoch.
            node: Name of its node; "" if it has none.
            uncounted: Whether its controller will count such a success as any other.
        """
        gang = self._gang(uid, member.membership.job)
        _see(gang, uid, member, ending=ending)
        is_outdated = gang.is_outdated(member) and not ending
        ending = ending or is_outdated
        before, was_absent = gang.members.get(uid), uid in gang.absent
        standing = _standing(gang, uid)
        if ending and before is not None:
            gang.leave_run(uid)
        is_done = succeeded and (uncounted or not _is_stopped(gang, uid))
        _drop_kind(gang, uid)
        gang.kinds.setdefault(member.demands.kind, set()).add(uid)
        _add_index(gang, uid, member.membership)
        _put_node(gang, uid, "" if succeeded else node)
        if before is None:
            _forget_collected(gang, member)
        gang.members[uid] = member
        is_absent = ending or (member.is_kept_away and not bound)
        for uids, has_pod in (
            (gang.bound, bound),
            (gang.succeeded, is_done),
            (gang.ending, ending),
            (gang.outdated, is_outdated),
            (gang.absent, is_absent),
        ):
            (uids.add if has_pod else uids.discard)(uid)
        if ending and not was_absent and gang.outdated:
            _keep_outdated(gang, member)
        was_other = before is not None and gang.review_index(before.membership)
        is_free = gang.review_index(member.membership) or was_other
        gang.changes += _standing(gang, uid) != standing
        is_absent = uid in gang.absent
        is_changed = before is None or is_absent is not was_absent
        if is_changed and not is_absent:
            gang.settled_s = now_s + SETTLED_S
        is_resized = _put_stated_size(gang, member.membership)
        return is_changed or is_free or is_resized

    def put_other(
        self,
        uid: str,
        job: str,
        generation: Generation = UNKNOWN,
        created: str = "",
        *,
        ending: bool = False,
    ) -> bool:
        """Set the job of a pod without NPUs; remove the pod from any earlier job.

        Returns whether the pod is new in a job.

        Args:
            job: Key of the job; "" if the pod is in none.
            generation: Generation of the pod: its job may begin again with it.
            created: Creation time of the pod.
            ending: Whether the pod is terminating.
        """
        if self.job_of.get(uid, job) != job:
            self.drop(uid)
        if not job:
            return False
        gang = self._gang(uid, job)
        is_news = uid not in gang.others
        gang.others.add(uid)
        gang.see_generation(generation, created, ending=ending)
        return is_news

    def outdated_in_plan(self, job: str) -> list[str]:
        """Return the UIDs of pods of an earlier generation that a plan still has."""
        gang = self.jobs.get(job)
        return sorted(gang.outdated & gang.plan.places.keys()) if gang else []

    def drop(self, uid: str) -> bool:
        """Remove a pod from its job; return whether its successor may be bound now.

        The job is removed too when it has no pods and no waiting bind calls left.
        """
        job = self.job_of.pop(uid, "")
        gang = self.jobs.get(job)
        if gang is None:
            return False
        _drop_kind(gang, uid)
        was_outdated = uid in gang.outdated
        if uid in gang.members:
            gang.leave_run(uid)
        member = gang.members.pop(uid, None)
        is_done = uid in gang.succeeded
        if is_done and member is not None and not gang.is_outdated(member):
            gang.collected[member.name] = member.membership.place
        gang.nodes.pop(uid, None)
        gang.plan.places.pop(uid, None)
        gang.plan.accepted.discard(uid)
        gang.plan.misses.pop(uid, None)
        for uids in (
            gang.bound,
            gang.succeeded,
            gang.ending,
            gang.outdated,
            gang.absent,
            gang.others,
        ):
            uids.discard(uid)
        gang.plan.open_binds.discard(uid)
        gang.has_excess = gang.has_excess and _is_exceeded(gang)
        gang.predecessors.pop(uid, None)
        gang.changes += 1
        is_free = member is not None and gang.review_index(member.membership)
        if gang.outdated and not was_outdated and member is not None:
            _keep_outdated(gang, member)
        if not gang.members and not gang.others and not gang.plan.waiting_calls:
            del self.jobs[job]
            self._ended.put(job, gang.lines)
            if self.stages:
                self.stages.retain(job, self.jobs)
        return is_free

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
        gang.has_excess = _is_exceeded(gang)
        gang.record_run()
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
            size, lines = self.stages.size_of(job), self._ended.take(job)
            gang = self.jobs[job] = Gang(job=job, size=size, lines=lines)
        return gang


def _see(gang: Gang, uid: str, member: Member, *, ending: bool) -> None:
    """Let a job begin again if a pod is of another job of its name.

    That is so if no pod is left that stays. What was read of the earlier job is
    forgotten then. Also if none is left but those that have succeeded: its size may
    have been edited while it was suspended.
    """
    generation = member.membership.generation
    before = gang.members.get(uid)
    if before is not None and before.membership.generation == generation:
        return
    gang.see_generation(generation, member.created, ending=ending)
    if not (gang.members or gang.others):
        return
    is_another = len(gang.ending) == len(gang.members)
    if is_another:
        gang.collected.clear()
    is_resumed = _has_only_ended(gang) and not gang.plan.followers and not gang.is_one
    if is_another or is_resumed:
        gang.run = None
        if gang.size_source is not None:
            gang.size, gang.problem, gang.size_source = None, "", None
            gang.generation += 1


def _standing(gang: Gang, uid: str) -> tuple[object, ...]:
    """Return the place of a pod in its job, and which of the job's sets have it."""
    member = gang.members.get(uid)
    sets = gang.bound, gang.succeeded, gang.ending, gang.absent
    return member and member.membership, *(uid in uids for uids in sets)


def _has_only_ended(gang: Gang) -> bool:
    """Whether each member has succeeded or is terminating."""
    if len(gang.members) > len(gang.ending) + len(gang.succeeded):
        return False  # quickly, of many that come one by one
    return gang.members.keys() <= gang.ending | gang.succeeded


def _is_stopped(gang: Gang, uid: str) -> bool:
    """Whether a member has begun to be deleted before it succeeded.

    Its containers end because they are told to, perhaps with code 0.
    """
    is_deleted = uid in gang.ending and uid not in gang.outdated
    return is_deleted and uid not in gang.succeeded


def _put_node(gang: Gang, uid: str, node: str) -> None:
    if node:
        gang.nodes[uid] = node
    else:
        gang.nodes.pop(uid, None)


def _keep_outdated(gang: Gang, ended: Member) -> None:
    """Let the newest of the outdated members of a line stay if no other does.

    Members that follow a leader end with it.

    Args:
        ended: Member of the line that does not stay.

    Cost:
        As many steps as members have come before the first that stays.
    """
    name = ended.membership.generation.line
    for uid, other in gang.members.items():
        if uid not in gang.ending and other.membership.generation.line == name:
            return
    outdated = [
        member
        for member in map(gang.members.__getitem__, gang.outdated)
        if member.membership.generation.line == name
    ]
    newest = max(outdated, key=attrgetter("created"), default=None)
    generation = UNKNOWN if newest is None else newest.membership.generation
    if newest is not None and not generation.follows:
        line = next_line(None, generation, newest.created, ())
        gang.begin_generation(name, line)


def _drop_kind(gang: Gang, uid: str) -> None:
    """Remove a member from the members of its kind, and from those of its index."""
    member = gang.members.get(uid)
    uids = gang.kinds.get(member.demands.kind) if member is not None else None
    if member is not None and uids is not None:
        _drop_index(gang, uid, member.membership)
        uids.discard(uid)
        if not uids:
            del gang.kinds[member.demands.kind]


def _add_index(gang: Gang, uid: str, membership: Membership) -> None:
    """Record the index of a member, if its controller gives it one."""
    if membership.index:
        gang.by_index.setdefault(index_key(membership), set()).add(uid)


def _drop_index(gang: Gang, uid: str, membership: Membership) -> None:
    """Forget the index of a member."""
    uids = gang.by_index.get(index_key(membership), set())
    uids.discard(uid)
    if not uids:
        gang.by_index.pop(index_key(membership), None)


def _forget_collected(gang: Gang, member: Member) -> None:
    """Forget the member that succeeded and was deleted, and that a pod replaces.

    They have the same name, or the same number.
    """
    gang.collected.pop(member.name, None)
    if gang.collected and has_number(member.membership):
        place = member.membership.place
        gang.collected = {
            name: other for name, other in gang.collected.items() if other != place
        }


def _put_stated_size(gang: Gang, membership: Membership) -> bool:
    """Set the size that a pod states if no object has it; return whether it changed."""
    gang.size_source = gang.size_source or membership.size_source
    if gang.size_source is not None:
        _doubt_size(gang)
        return False
    before, gang.size = gang.size, _stated_size(membership) or gang.size
    gang.problem = "" if gang.size is not None else membership.problem
    return gang.size != before


def _doubt_size(gang: Gang) -> None:
    """Forget the size of a job that has more pods than it says, so that it is read.

    The object that says it was edited, and the pods are made one by one: those that
    exist would be planned without the others. If it says so while there are more, it is
    right: they do not need each other, or some are still to be deleted.
    """
    is_exceeded = _is_exceeded(gang)
    if is_exceeded and not gang.has_excess:
        gang.size = None
    gang.has_excess = gang.has_excess and is_exceeded


def _is_exceeded(gang: Gang) -> bool:
    """Whether a job has more pods than an object states that it has."""
    size, is_read = gang.size, gang.size_source is not None
    return (
        is_read
        and size is not None
        and size.count is not None
        and gang.staying_count > size.count
    )


def _stated_size(membership: Membership) -> Size | None:
    """Return the size of a job that one of its pods states; None if it states none."""
    if membership.size is None:
        return None
    if membership.is_least:
        return Size(count=None, least=membership.size, counts_all=membership.counts_all)
    size = whole(membership.size, counts_all=membership.counts_all)
    return replace(size, least=1) if membership.can_begin_with_one else size
