"""May this pod go to that node, and which of the nodes where it may is best?

Pure: looks at the cache and changes nothing. What nodes can do, the core's index
says; here stands what only the extender knows: pods that go nowhere, owners that must
wait, binds without an outcome, and unlike pods that wait on a node.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from extender.cache.cache import Cache
from extender.cache.events import Assumed
from scheduler_core.node.reasons import Reason, Refusal
from scheduler_core.wire.pods import NpuPod


class Label(StrEnum):
    """Reasons of the extender's own, beside those of the core; labels in metrics."""

    POD = "pod"
    STORM = "storm"
    OPEN_BIND = "open-bind"
    NOT_BEST = "not-best"
    JOB = "job"
    LOST = "lost"
    ROOM = "room"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a pod does not go to a node, for programs and for people."""

    label: Reason | Label
    text: str

    @property
    def is_resolvable(self) -> bool:
        """Whether evicting other pods, by count, could make room.

        Only then may the scheduler look for victims: its dry run counts chips and
        knows no rings.
        """
        return self.label in (Reason.TOO_FEW_FREE, Label.NOT_BEST)


NOT_BEST = Verdict(label=Label.NOT_BEST, text="another node fits better")
OPEN_BIND = Verdict(
    label=Label.OPEN_BIND, text="an earlier bind of this pod has no known outcome yet"
)
#: Said of all nodes but the one where a job's plan has the pod.
ELSEWHERE = Verdict(label=Label.JOB, text="the job's plan has the pod on another node")
CLOSED = Verdict(label=Label.JOB, text="its node takes no pods now")
KEPT = Verdict(label=Label.JOB, text="kept for a large job that has waited long")
UNSEEN = Verdict(label=Label.JOB, text="the pod is of a job and has not been seen yet")
#: Said of the nodes where chips are being freed for the pod, or its job.
LEAVING = Verdict(label=Label.ROOM, text="pods are leaving to make room for it")
#: Said of all nodes but the one where chips have been freed for the pod.
FREED = Verdict(label=Label.ROOM, text="chips of another node were freed for the pod")
#: Said while the size of a pod's job is not known yet.
READING = "how many pods its job has is being read"
ENDING = Verdict(label=Label.POD, text="the pod is ending")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What filter says of the nodes it was given; together they are all of them."""

    #: the nodes of the best class, in the order of the request
    fitting: Sequence[str]
    #: why not the others, each reason with its nodes
    refused: Sequence[tuple[Verdict, Sequence[str]]] = ()

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """How many nodes say what, the most frequent first, then by text."""
        found: Counter[str] = Counter()
        for verdict, names in self.refused:
            found[verdict.text] += len(names)
        return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def texts(self, *, is_resolvable: bool) -> dict[str, str]:
        """{node: why not}, of the reasons that evicting pods could end, or others."""
        found: dict[str, str] = {}
        for verdict, names in self.refused:
            if verdict.is_resolvable is is_resolvable:
                found.update(dict.fromkeys(names, verdict.text))
        return found


def judge(cache: Cache, pod: NpuPod, names: Sequence[str], now_s: float) -> Judgement:
    """Sort nodes into those that the pod should go to, and why not to the others.

    Nodes where an unlike pod waits for its chips are avoided; if there is no other
    node, this pod waits until that one has started. Decides nothing for good.

    Args:
        cache: what is known.
        pod: asks for NPUs.
        names: the nodes in question; names that are not known are refused.
        now_s: seconds since the epoch.

    Cost:
        O(names), and one step for each node that waits for an Allocate.
    """
    refusal = pod_refusal(cache, pod, now_s)
    if refusal is not None:
        return Judgement(fitting=(), refused=((refusal, names),))
    promise = cache.assumed.get(pod.uid)
    if promise is not None:
        others = [name for name in names if name != promise.node]
        fitting = (promise.node,) if len(others) < len(names) else ()
        why = why_elsewhere(cache, promise)
        return Judgement(fitting=fitting, refused=((why, others),))
    kept = cache.kept_from(pod.uid)
    open_to_it = [name for name in names if name not in kept] if kept else names
    survey = cache.cluster.survey(
        pod.shape.resource, pod.total, open_to_it, avoid=cache.conflicts(pod)
    )
    refused = [*grouped(survey.refused), (NOT_BEST, survey.worse)]
    if kept:
        refused.append((KEPT, [name for name in names if name in kept]))
    return Judgement(
        fitting=survey.best, refused=[group for group in refused if group[1]]
    )


def why_elsewhere(cache: Cache, promise: Assumed) -> Verdict:
    """Why a pod that has been promised chips goes to no other node."""
    if not promise.planned:
        return OPEN_BIND
    return FREED if cache.gangs.of(promise.uid) is None else ELSEWHERE


def with_room(cache: Cache, owner: str, judged: Judgement) -> Judgement:
    """The same, where room is being made for a pod or its job.

    Args:
        cache: what is known.
        owner: UID of the pod, or its job.
        judged: what was found without regard to that.
    """
    room = cache.rooms.get(owner)
    if room is None or judged.fitting:
        return judged
    there = [n for _, names in judged.refused for n in names if n in room.chips]
    refused = [
        (verdict, [name for name in names if name not in room.chips])
        for verdict, names in judged.refused
    ]
    refused.append((LEAVING, there))
    return Judgement(fitting=(), refused=[group for group in refused if group[1]])


def scores(
    cache: Cache, pod: NpuPod, names: Sequence[str], most: int
) -> dict[str, int]:
    """Score nodes: `most` for the best class, one less for each class after it.

    Args:
        cache: what is known.
        pod: asks for NPUs.
        names: the nodes in question.
        most: the highest score; 0 is the lowest, and for nodes that do not fit.

    Returns:
        {name: score}, in the order of `names`.
    """
    found = dict.fromkeys(names, 0)
    left: Sequence[str] = names
    for score in range(most, 0, -1):
        survey = cache.cluster.survey(
            pod.shape.resource, pod.total, left, avoid=cache.conflicts(pod)
        )
        found.update(dict.fromkeys(survey.best, score))
        left = survey.worse
        if not left:
            break
    return found


def unplanned(cache: Cache, pod: NpuPod, names: Sequence[str], said: str) -> Judgement:
    """Why no node takes a pod whose job has no plan.

    What nodes say of the pod alone comes first, then what keeps the job.

    Args:
        cache: What is known.
        pod: Of a job that does not fit, or waits.
        names: The nodes that were asked about.
        said: Why the job does not fit; "" when it only waits.
    """
    survey = cache.cluster.survey(
        pod.shape.resource, pod.total, names, avoid=cache.conflicts(pod)
    )
    refused = [*grouped(survey.refused)]
    others = [*survey.best, *survey.worse]
    if others:
        text = f"its job does not fit: {said}" if said else "its job waits"
        refused.append((Verdict(label=Label.JOB, text=text), others))
    return Judgement(fitting=(), refused=refused)


def nowhere(verdict: Verdict, names: Sequence[str]) -> Judgement:
    """The same verdict on all nodes."""
    return Judgement(fitting=(), refused=((verdict, names),) if names else ())


def only(node: str, names: Sequence[str]) -> Judgement:
    """That node, where a job's plan has the pod."""
    if node not in names:
        return nowhere(ELSEWHERE, names)
    others = [name for name in names if name != node]
    refused = ((ELSEWHERE, others),) if others else ()
    return Judgement(fitting=(node,), refused=refused)


def pod_refusal(cache: Cache, pod: NpuPod, now_s: float) -> Verdict | None:
    """Why the pod can go nowhere now; None if nodes decide."""
    if pod.problem:
        return Verdict(label=Label.POD, text=pod.problem)
    if pod.deleting or pod.terminal:
        return ENDING
    storm = cache.storms.refusal(pod.owner, now_s)
    if storm is not None:
        return Verdict(label=Label.STORM, text=storm)
    if cache.lost:
        return Verdict(
            label=Label.LOST,
            text=f"the extender waits until it sees the cluster's {cache.lost} again",
        )
    return None


def of(refusal: Refusal) -> Verdict:
    """The core's refusal as a verdict."""
    return Verdict(label=refusal.reason, text=refusal.text)


def grouped(refused: Mapping[str, Refusal]) -> list[tuple[Verdict, list[str]]]:
    """The nodes of each refusal."""
    # alike nodes share one, so identity will do
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for name, refusal in refused.items():
        groups[id(refusal)].append(name)
    return [(of(refused[names[0]]), names) for names in groups.values()]
