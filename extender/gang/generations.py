"""Which pods of a job are of its present generation, and which of an earlier one.

A job is made again under its name while pods of the one before still run: they are to
be deleted, and count as terminating. A pod that replaces one of a job that runs is of
the same generation, and joins it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

#: Earlier generations of a line that are known though they have no pods now.
_EARLIER = 16
#: Jobs without pods whose lines are known. Garbage collectors need seconds.
_ENDED = 1000


class Generation(NamedTuple):
    """Generation of a pod: which of the pods of a job were made together with it."""

    #: equal for pods that are made together; "" if nothing tells them apart
    name: str = ""
    #: controller whose pods are made again together; "" for all pods of the job
    line: str = ""
    #: whether the pod follows a leader: the next leader begins the next generation
    follows: bool = False


#: Generation of a pod that nothing tells from those before it.
UNKNOWN = Generation()


@dataclass(slots=True, kw_only=True)
class Lineage:
    """The generations of the pods of a job that are made again together."""

    #: creation time of the first pod of the present generation that was seen
    created: str
    #: whether that is a leader, or there are none
    is_led: bool
    #: names of the present generation: its own, and those of pods that follow it
    names: set[str]
    #: names of earlier ones, of which there may be pods; the latest stand last
    earlier: dict[str, None] = field(default_factory=dict)
    #: whether pods of the line follow a leader
    is_followed: bool = False

    def admit(
        self, generation: Generation, created: str, *, ending: bool = False
    ) -> bool:
        """Return whether a pod begins the next generation; else take it in.

        Pods that follow a leader are made after it. So those that were there before it,
        or are older, follow an earlier one. Pods are listed in any order when the
        extender starts: of two of one second, one that is being deleted is the older.

        Args:
            generation: Generation of the pod; it has a name.
            created: Creation time of the pod, exact to a second.
            ending: Whether the pod is terminating.
        """
        name = generation.name
        self.is_followed |= generation.follows
        if name in self.names or name in self.earlier:
            return False
        if generation.follows and self.is_led:
            if created >= self.created:
                self.names.add(name)
            else:
                self.earlier[name] = None
            return False
        if not self.is_led and not generation.follows and created <= self.created:
            self.names.add(name)  # the leader was listed behind those that follow it
            self.created, self.is_led = created, True
            return False
        return created > self.created or (created == self.created and not ending)


def next_line(
    before: Lineage | None,
    generation: Generation,
    created: str,
    existing: Collection[str],
) -> Lineage:
    """Return a line with its next generation, which a pod begins.

    A StatefulSet that follows an earlier leader may make pods again though it has none
    now. So where pods follow leaders, the latest generations without pods are known.

    Args:
        created: Creation time of the pod.
        existing: Names of the generations of the pods that exist.
    """
    line = Lineage(
        created=created,
        is_led=not generation.follows,
        names={generation.name},
        is_followed=generation.follows,
    )
    if before is not None:
        line.is_followed |= before.is_followed
        absent = [name for name in before.earlier if name not in existing]
        forgotten = {*(absent[:-_EARLIER] if before.is_followed else absent)}
        forgotten.add(generation.name)
        for name in (*before.earlier, *sorted(before.names)):
            if name not in forgotten:
                line.earlier[name] = None
    return line


class EndedLines:
    """Lines of the jobs that have no pods now, where pods follow leaders.

    Protects: of a group whose pods have all gone, the StatefulSet of the leader before
    is known when it makes pods again beside the next leader.
    """

    def __init__(self) -> None:
        #: {job: {name of a line: its generations}}; the latest stand last
        self._of_job: dict[str, dict[str, Lineage]] = {}

    def put(self, job: str, lines: Mapping[str, Lineage]) -> None:
        """Store the lines of a job that has lost its last pod."""
        followed = {name: line for name, line in lines.items() if line.is_followed}
        if followed:
            self._of_job[job] = followed
            if len(self._of_job) > _ENDED:
                del self._of_job[next(iter(self._of_job))]

    def take(self, job: str) -> dict[str, Lineage]:
        """Return the lines of a job that has a pod again, and forget them."""
        return self._of_job.pop(job, {})
