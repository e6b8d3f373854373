"""Filter and score nodes for one pod.

The index of `scheduler_core` finds the nodes with suitable chips. This module also
refuses nodes for other reasons (`ExtenderReason`), such as the back-off of the pod's
controller. Pure: reads the cache and changes nothing.
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
    """Reasons of the extender to refuse a node, besides those of `scheduler_core`.

    Both kinds of reason are values of the metric label `reason`.
    """

    POD = "pod"
    BACK_OFF = "storm"
    OPEN_BIND = "open-bind"
    NOT_BEST = "not-best"
    JOB = "job"
    LOST = "lost"
    ROOM = "room"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a pod cannot go to a node: a reason for programs and a text for people."""

    reason: Reason | ExtenderReason
    text: str

    @property
    def is_resolvable(self) -> bool:
        """Whether the scheduler may search for pods to evict because of this refusal.

        True only if the node has too few free chips, or could serve the pod but another
        node fits better. For other refusals the search is useless. For example,
        kube-scheduler only counts chips, so it does not find pods that block a ring.
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
    """Result of one filter call: nodes that fit best, and all others with a refusal."""

    #: names of the best class, in the order of the request
    fitting: Sequence[str]
    #: each refusal with the names of its nodes
    refused: Sequence[tuple[Refusal, Sequence[str]]] = ()

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """Return (refusal text, number of nodes with it), the most frequent first."""
        counts_by_text: Counter[str] = Counter()
        for refusal, names in self.refused:
            counts_by_text[refusal.text] += len(names)
        return tuple(
            sorted(counts_by_text.items(), key=lambda item: (-item[1], item[0]))
        )

    def texts(self, *, is_resolvable: bool) -> dict[str, str]:
        """Return {node: refusal text} of the nodes with one kind of refusal.

        Args:
            is_resolvable: Only refusals with this value of `Refusal.is_resolvable`.
        """
        texts_by_node: dict[str, str] = {}
        for refusal, names in self.refused:
            if refusal.is_resolvable is is_resolvable:
                texts_by_node.update(dict.fromkeys(names, refusal.text))
        return texts_by_node


def filter_nodes(
    cache: Cache, pod: NpuPod, names: Sequence[str], now_s: float
) -> FilterResult:
    """Split nodes into those that fit a pod best and those refused with a reason.

    A pod with a reservation fits its reserved node only. A pod without one is refused
    on nodes where Allocate could mix it up with a pod of another shape. Nothing is
    reserved here.

    Args:
        cache: Read only.
        pod: A pod that asks for NPUs.
        names: Candidate nodes. Names that are not in the cache are refused.
        now_s: Seconds since the epoch.

    Cost:
        O(names + nodes that have unconfirmed claims).
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
    """Return why a pod is refused on all nodes but the node of its reservation."""
    if not reservation.planned:
        return OPEN_BIND
    return FREED if cache.gangs.gang_of(reservation.uid) is None else ELSEWHERE


def apply_nomination(cache: Cache, owner: str, result: FilterResult) -> FilterResult:
    """Refuse nodes where chips are being freed for `owner` with the refusal `LEAVING`.

    It replaces the refusals that these nodes have in `result`. If any node fits,
    `result` is returned unchanged.

    Args:
        cache: Read only.
        owner: UID of a pod, or key of its job, for which chips are being freed.
        result: Result of the filter call for that pod.
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
    """Return a score for each node; the nodes that fit the pod best get `most`.

    The nodes that fit next best get `most` - 1, and so on. Nodes that fit equally well
    have the same score.

    Args:
        cache: Read only.
        pod: A pod that asks for NPUs.
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
    """Return a filter result that refuses all nodes for a pod whose job has no plan.

    A node that cannot serve even this pod alone is refused for that reason. All other
    nodes are refused with "its job does not fit" and `why`, or with "its job waits".

    Args:
        cache: Read only.
        pod: Member of the job.
        names: Candidate nodes.
        why: Why the job does not fit; "" if the job only waits.
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
    """Return a filter result that refuses all nodes `names` with one refusal."""
    return FilterResult(fitting=(), refused=((refusal, names),) if names else ())


def accept_only(node: str, names: Sequence[str]) -> FilterResult:
    """Return a filter result that accepts only `node` and refuses the other nodes.

    The others are refused with `ELSEWHERE`. If `names` lacks `node`, all `names` are
    refused.

    Args:
        node: The node on which the job's plan puts the pod.
        names: Candidate nodes.
    """
    if node not in names:
        return refuse_all(ELSEWHERE, names)
    other_names = [name for name in names if name != node]
    refused = ((ELSEWHERE, other_names),) if other_names else ()
    return FilterResult(fitting=(node,), refused=refused)


def pod_refusal(cache: Cache, pod: NpuPod, now_s: float) -> Refusal | None:
    """Return why a pod is refused on every node; None if some node may take it."""
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
    """Convert a refusal of `scheduler_core` into a refusal of the extender."""
    return Refusal(reason=refusal.reason, text=refusal.text)


def group_refusals(
    refused: Mapping[str, reasons.Refusal],
) -> list[tuple[Refusal, list[str]]]:
    """Return each distinct refusal in `refused` with the names of its nodes.

    Args:
        refused: {node: refusal}. Equal refusals must be the same object.
    """
    # nodes that are equal share one object, so its identity is enough
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for name, refusal in refused.items():
        groups[id(refusal)].append(name)
    return [(refusal_of(refused[names[0]]), names) for names in groups.values()]
