"""Filter and score nodes for one pod.

The core's index knows what nodes can do. This module adds what only the extender knows:
pods that fit nowhere, owners in back-off, binds without an outcome, and unlike pods
that wait on a node. Pure: reads the cache and changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from extender.cache.cache import Cache
from extender.cache.events import Reservation
from scheduler_core.node import reasons
from scheduler_core.node.reasons import Reason
from scheduler_core.wire.pods import NpuPod


class ExtenderReason(StrEnum):
    """Reasons of the extender, in addition to the core's; values of a metric label."""

    POD = "pod"
    BACK_OFF = "storm"
    OPEN_BIND = "open-bind"
    NOT_BEST = "not-best"
    JOB = "job"
    LOST = "lost"
    ROOM = "room"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a pod cannot go to a node: a reason for programs, a text for people."""

    reason: Reason | ExtenderReason
    text: str

    @property
    def is_resolvable(self) -> bool:
        """Whether evicting other pods, by count, could help.

        Only then may the scheduler search for victims: its dry run counts chips and
        does not know rings.
        """
        return self.reason in (Reason.TOO_FEW_FREE, ExtenderReason.NOT_BEST)


NOT_BEST = Refusal(reason=ExtenderReason.NOT_BEST, text="another node fits better")
OPEN_BIND = Refusal(
    reason=ExtenderReason.OPEN_BIND,
    text="an earlier bind of this pod has no known outcome yet",
)
#: Refusal of nodes other than the planned one.
ELSEWHERE = Refusal(
    reason=ExtenderReason.JOB, text="the job's plan has the pod on another node"
)
CLOSED = Refusal(reason=ExtenderReason.JOB, text="its node takes no pods now")
RESERVED_NODE = Refusal(
    reason=ExtenderReason.JOB, text="kept for a large job that has waited long"
)
UNSEEN = Refusal(
    reason=ExtenderReason.JOB, text="the pod is of a job and has not been seen yet"
)
#: Refusal of nodes whose chips preemption still frees for the pod or its job.
LEAVING = Refusal(
    reason=ExtenderReason.ROOM, text="pods are leaving to make room for it"
)
#: Refusal of nodes other than the one where preemption freed chips for the pod.
FREED = Refusal(
    reason=ExtenderReason.ROOM, text="chips of another node were freed for the pod"
)
#: Refusal while the size of the pod's job is being read.
READING = "how many pods its job has is being read"
ENDING = Refusal(reason=ExtenderReason.POD, text="the pod is ending")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterResult:
    """Nodes of one filter call: those that fit best, and all others with a refusal."""

    #: names of the best class, in the order of the request
    fitting: Sequence[str]
    #: each refusal with the names of its nodes
    refused: Sequence[tuple[Refusal, Sequence[str]]] = ()

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """Return (text, number of nodes) of all refusals, the most frequent first."""
        counts_by_text: Counter[str] = Counter()
        for refusal, names in self.refused:
            counts_by_text[refusal.text] += len(names)
        return tuple(
            sorted(counts_by_text.items(), key=lambda item: (-item[1], item[0]))
        )

    def texts(self, *, is_resolvable: bool) -> dict[str, str]:
        """Return {node.

        Refusal text} of refusals that eviction can resolve, or of the others.
        """
        texts_by_node: dict[str, str] = {}
        for refusal, names in self.refused:
            if refusal.is_resolvable is is_resolvable:
                texts_by_node.update(dict.fromkeys(names, refusal.text))
        return texts_by_node


def filter_nodes(
    cache: Cache, pod: NpuPod, names: Sequence[str], now_s: float
) -> FilterResult:
    """Split nodes into the best ones for a pod and the refused ones with reasons.

    Nodes with an unlike unconfirmed claim of the same count are avoided. If there is no
    other node, the pod waits until that claim was served. Reserves nothing.

    Args:
        cache: Read only.
        pod: Asks for NPUs.
        names: Candidate nodes. Unknown names are refused.
        now_s: Seconds since the epoch.

    Cost:
        O(names), and one step for each node that waits for an Allocate.
    """
    refusal = pod_refusal(cache, pod, now_s)
    if refusal is not None:
        return FilterResult(fitting=(), refused=((refusal, names),))
    reservation = cache.reservations.get(pod.uid)
    if reservation is not None:
        other_names = [name for name in names if name != reservation.node]
        fitting = (reservation.node,) if len(other_names) < len(names) else ()
        why = elsewhere_refusal(cache, reservation)
        return FilterResult(fitting=fitting, refused=((why, other_names),))
    reserved_names = cache.nodes_reserved_from(pod.uid)
    open_to_it = (
        [name for name in names if name not in reserved_names]
        if reserved_names
        else names
    )
    survey = cache.cluster.survey(
        pod.shape.resource, pod.total, open_to_it, avoid=cache.conflicts(pod)
    )
    refused = [*group_refusals(survey.refused), (NOT_BEST, survey.worse)]
    if reserved_names:
        refused.append(
            (RESERVED_NODE, [name for name in names if name in reserved_names])
        )
    return FilterResult(
        fitting=survey.best, refused=[group for group in refused if group[1]]
    )


def elsewhere_refusal(cache: Cache, reservation: Reservation) -> Refusal:
    """Return why a pod with a reservation is refused on all other nodes."""
    if not reservation.planned:
        return OPEN_BIND
    return FREED if cache.gangs.gang_of(reservation.uid) is None else ELSEWHERE


def apply_nomination(cache: Cache, owner: str, result: FilterResult) -> FilterResult:
    """Return the result after refusing what preemption still frees for the pod.

    Args:
        cache: Read only.
        owner: UID of the pod, or its job.
        result: The result without regard to preemption.
    """
    nomination = cache.nominations.get(owner)
    if nomination is None or result.fitting:
        return result
    nominated_names = [
        n for _, names in result.refused for n in names if n in nomination.chips
    ]
    refused = [
        (refusal, [name for name in names if name not in nomination.chips])
        for refusal, names in result.refused
    ]
    refused.append((LEAVING, nominated_names))
    return FilterResult(fitting=(), refused=[group for group in refused if group[1]])


def score_nodes(
    cache: Cache, pod: NpuPod, names: Sequence[str], most: int
) -> dict[str, int]:
    """Score nodes: `most` for the best class, one less for each class after it.

    Args:
        cache: Read only.
        pod: Asks for NPUs.
        names: Candidate nodes.
        most: The highest score. 0 is the lowest, also for nodes that do not fit.

    Returns:
        {name: score}, in the order of `names`.
    """
    scores = dict.fromkeys(names, 0)
    remaining: Sequence[str] = names
    for score in range(most, 0, -1):
        survey = cache.cluster.survey(
            pod.shape.resource, pod.total, remaining, avoid=cache.conflicts(pod)
        )
        scores.update(dict.fromkeys(survey.best, score))
        remaining = survey.worse
        if not remaining:
            break
    return scores


def refuse_unplanned(
    cache: Cache, pod: NpuPod, names: Sequence[str], why: str
) -> FilterResult:
    """Refuse all nodes for a pod whose job has no plan.

    Refusals of single nodes come first, then the reason that holds up the job.

    Args:
        cache: Read only.
        pod: Member of a job that does not fit, or waits.
        names: Candidate nodes.
        why: Why the job does not fit; "" if it only waits.
    """
    survey = cache.cluster.survey(
        pod.shape.resource, pod.total, names, avoid=cache.conflicts(pod)
    )
    refused = [*group_refusals(survey.refused)]
    others = [*survey.best, *survey.worse]
    if others:
        text = f"its job does not fit: {why}" if why else "its job waits"
        refused.append((Refusal(reason=ExtenderReason.JOB, text=text), others))
    return FilterResult(fitting=(), refused=refused)


def refuse_all(refusal: Refusal, names: Sequence[str]) -> FilterResult:
    """Return a result that refuses all nodes for the same reason."""
    return FilterResult(fitting=(), refused=((refusal, names),) if names else ())


def accept_only(node: str, names: Sequence[str]) -> FilterResult:
    """Return a result that accepts the planned node alone, if it is a candidate."""
    if node not in names:
        return refuse_all(ELSEWHERE, names)
    other_names = [name for name in names if name != node]
    refused = ((ELSEWHERE, other_names),) if other_names else ()
    return FilterResult(fitting=(node,), refused=refused)


def pod_refusal(cache: Cache, pod: NpuPod, now_s: float) -> Refusal | None:
    """Return why the pod fits no node now; None if that depends on nodes."""
    if pod.problem:
        return Refusal(reason=ExtenderReason.POD, text=pod.problem)
    if pod.deleting or pod.terminal:
        return ENDING
    back_off = cache.owner_backoff.refusal(pod.owner, now_s)
    if back_off is not None:
        return Refusal(reason=ExtenderReason.BACK_OFF, text=back_off)
    if cache.lost:
        return Refusal(
            reason=ExtenderReason.LOST,
            text=f"the extender waits until it sees the cluster's {cache.lost} again",
        )
    return None


def refusal_of(refusal: reasons.Refusal) -> Refusal:
    """Convert a refusal of the core into one of the extender."""
    return Refusal(reason=refusal.reason, text=refusal.text)


def group_refusals(
    refused: Mapping[str, reasons.Refusal],
) -> list[tuple[Refusal, list[str]]]:
    """Return each distinct refusal with its nodes."""
    # nodes that are equal share one object, so its identity is enough
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for name, refusal in refused.items():
        groups[id(refusal)].append(name)
    return [(refusal_of(refused[names[0]]), names) for names in groups.values()]
