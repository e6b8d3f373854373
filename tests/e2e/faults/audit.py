"""What containers wrote down, against what the API server was told of their pods."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.e2e.commands import until
from tests.e2e.configurations import RESOURCE
from tests.e2e.faults import witness
from tests.e2e.faults.chronicle import Chronicle, Story
from tests.e2e.faults.witness import Line
from tests.e2e.truth import SERVED, numbers

_REAL = "huawei.com/AscendReal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was wrong, in sentences."""

    #: a container has other chips than its pod's annotations say in the end
    wrong: tuple[str, ...]
    #: a container found its chip in another one's hands
    doubles: tuple[str, ...]
    #: a pod ended and nobody ever said whose chips it had
    unconfirmed: tuple[str, ...]
    #: how many pods have been looked at
    pod_count: int


def audit(stories: Iterable[Story], lines: Iterable[Line]) -> Audit:
    """Compare.

    Args:
        stories: Of pods, at their end or settled.
        lines: What containers wrote; those of other pods are left out.
    """
    written: dict[str, list[Line]] = {}
    for line in lines:
        written.setdefault(line.pod_uid, []).append(line)
    begun = [(story, written[story.uid]) for story in stories if story.uid in written]
    return Audit(
        wrong=tuple(text for story, mine in begun for text in _wrong(story, mine)),
        doubles=tuple(
            f"{story.name}/{line.container}: chips {line.taken} were another's"
            for story, mine in begun
            for line in mine
            if line.taken
        ),
        unconfirmed=tuple(story.name for story, _ in begun if not _is_confirmed(story)),
        pod_count=len(begun),
    )


def wait_nothing_wrong(chronicle: Chronicle, pod_count: int) -> None:
    """Wait until nothing is wrong with so many pods; the chronicle may be late."""
    wanted = Audit(wrong=(), doubles=(), unconfirmed=(), pod_count=pod_count)

    def found() -> Audit:
        return audit(chronicle.stories(), witness.lines())

    until(lambda: found() == wanted, lambda: f"{wanted}: {found()}", within_s=60)


def _wrong(story: Story, lines: list[Line]) -> Iterator[str]:
    wanted = _wanted(story)
    for line in lines:
        name = f"{story.name}/{line.container}"
        if line.environment != line.devices:
            yield f"{name} was told {line.environment} and sees {line.devices}"
        if len(line.environment) != wanted.get(line.container, 0):
            yield f"{name} asked for {wanted[line.container]}, got {line.environment}"
    notes = story.annotations
    if not _is_confirmed(story) or set(wanted) != {line.container for line in lines}:
        return  # nothing was said of it yet, or not all of it has begun
    mounted = tuple(sorted({chip for line in lines for chip in line.environment}))
    for key in (RESOURCE, _REAL):
        if numbers(notes.get(key, "")) != mounted:
            yield f"{story.name} has {mounted}, {key} says {notes.get(key)}"


def _is_confirmed(story: Story) -> bool:
    """Whether the agent has said what the pod has got.

    One that cannot read its journal says that a pod was served, and not with what,
    where that is not certain.
    """
    notes = story.annotations
    return notes.get("predicate-time") == SERVED and _REAL in notes


def _wanted(story: Story) -> dict[str, int]:
    spec = story.pod["spec"]
    return {
        each["name"]: int(each["resources"].get("limits", {}).get(RESOURCE, 0))
        for each in [*spec.get("initContainers", []), *spec["containers"]]
    }
