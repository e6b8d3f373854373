"""Which pods of a job are of its present generation, and which of an earlier one.

A job is made again under its name while pods of the one before still run: they are to
be deleted, and count as terminating. A pod that replaces one of a job that runs is of
the same generation, and joins it.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple


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
    #: names of earlier ones, of which there may be pods
    earlier: set[str] = field(default_factory=set)

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
        if name in self.names or name in self.earlier:
            return False
        if generation.follows and self.is_led:
            (self.names if created >= self.created else self.earlier).add(name)
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

    Args:
        created: Creation time of the pod.
        existing: Names of the generations of the pods that exist.
    """
    line = Lineage(
        created=created, is_led=not generation.follows, names={generation.name}
    )
    if before is not None:
        line.earlier = before.names | before.earlier.intersection(existing)
        line.earlier.discard(generation.name)
    return line
