"""Filter and score nodes for one pod.

The index of `scheduler_core` finds the nodes with suitable chips. This module also
refuses nodes for other reasons (`ExtenderReason`), such as the back-off of the pod's
controller. Pure: reads the cache and changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from extender.cache.cache import Cache
from extender.cache.reservations import Owner, Reservation
from extender.refusals import (
    ELSEWHERE,
    ENDING,
    FREED,
    LEAVING,
    NOT_BEST,
    OPEN_BIND,
    RESERVED_NODE,
    RESOLVABLE,
    ExtenderReason,
    Refusal,
    refuse_for_job,
)
from scheduler_core.node import reasons
from scheduler_core.node.reasons import Reason
from scheduler_core.wire.pods import NpuPod


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterResult:
    """Result of one filter call: nodes that fit best, or why none does."""

    #: names of the best class, in the order of the request
    fitting: Sequence[str]
    #: each refusal with the names of its nodes. Empty for a filter call in which a node
    #: fits: kube-scheduler reads no refusals then
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
            if (refusal.reason in RESOLVABLE) is is_resolvable:
                texts_by_node.update(dict.fromkeys(names, refusal.text))
        return texts_by_node


def filter_nodes(
    cache: Cache, pod: NpuPod, names: Sequence[str], now_s: float
) -> FilterResult:
    """Return the nodes that fit a pod best; if none fits, each node's refusal.

    Arguments as for `judge_nodes`.

    Cost:
        O(names) steps of C, and a few of Python for each node that fits best; if none
        fits, that of `judge_nodes`.
    """
    if pod_refusal(cache, pod, now_s) is None and cache.reservation(pod.uid) is None:
        best = cache.index.best_class(
            pod.shape.resource,
            pod.total,
            _open_nodes(cache, pod, names),
            avoid=cache.conflicts(pod),
        )
        if best:
            return FilterResult(fitting=best)
    result = judge_nodes(cache, pod, names, now_s)
    return replace(result, refused=()) if result.fitting else result


def judge_nodes(
    cache: Cache, pod: NpuPod, names: Sequence[str], now_s: float
) -> FilterResult:
    """Split nodes into those that fit a pod best and those refused with a reason.

    A pod with a reservation fits its reserved node only. A pod without one is refused
    on nodes where Allocate could mix it up with a pod of another shape. Nothing is
    reserved here.

    Args:
        names: Candidate nodes. Names that are not in the cache are refused.
        now_s: Seconds since the epoch.

    Cost:
        O(names + nodes that have unconfirmed claims).
    """
    refusal = pod_refusal(cache, pod, now_s)
    if refusal is not None:
        return FilterResult(fitting=(), refused=((refusal, names),))
    reservation = cache.reservation(pod.uid)
    if reservation is not None:
        other_names = [name for name in names if name != reservation.node]
        fitting = (reservation.node,) if len(other_names) < len(names) else ()
        why = elsewhere_refusal(reservation)
        return FilterResult(fitting=fitting, refused=((why, other_names),))
    open_names = _open_nodes(cache, pod, names)
    survey = cache.index.survey(
        pod.shape.resource, pod.total, open_names, avoid=cache.conflicts(pod)
    )
    groups = group_refusals(cache, pod.shape.resource, survey.refused)
    refused = [*groups, (NOT_BEST, survey.worse)]
    if open_names is not names:
        closed_names = cache.closed_nodes(pod.uid)
        refused.append(
            (RESERVED_NODE, [name for name in names if name in closed_names])
        )
    return FilterResult(
        fitting=survey.best, refused=[group for group in refused if group[1]]
    )


def _open_nodes(cache: Cache, pod: NpuPod, names: Sequence[str]) -> Sequence[str]:
    """Return the nodes that are not reserved for jobs other than the pod's."""
    closed_names = cache.closed_nodes(pod.uid)
    if not closed_names:
        return names
    return [name for name in names if name not in closed_names]


def elsewhere_refusal(reservation: Reservation) -> Refusal:
    """Return why a pod is refused on all nodes but the node of its reservation."""
    if reservation.is_sent:
        return OPEN_BIND
    return FREED if reservation.owner is Owner.PREEMPTION else ELSEWHERE


def apply_nomination(
    cache: Cache, beneficiary: str, result: FilterResult
) -> FilterResult:
    """Refuse nodes where chips are being freed for a pod with the refusal `LEAVING`.

    It replaces the refusals that these nodes have in `result`. If any node fits,
    `result` is returned unchanged.

    Args:
        beneficiary: UID of a pod, or key of its job, for which chips are being freed.
    """
    if result.fitting:
        return result
    nodes = {
        reservation.node
        for reservation in cache.kept_for(beneficiary)
        if reservation.claim is None
    }
    if not nodes:
        return result
    leaving = [n for _, names in result.refused for n in names if n in nodes]
    refused = [
        (refusal, [name for name in names if name not in nodes])
        for refusal, names in result.refused
    ]
    refused.append((LEAVING, leaving))
    return FilterResult(fitting=(), refused=[group for group in refused if group[1]])


def score_nodes(
    cache: Cache, pod: NpuPod, names: Sequence[str], most: int
) -> dict[str, int]:
    """Return a score for each node; the nodes that fit the pod best get `most`.

    The nodes that fit next best get `most` - 1, and so on. Nodes that fit equally well
    have the same score.

    Args:
        most: The highest score. 0 is the lowest, also for nodes that do not fit.

    Returns:
        {name: score}, in the order of `names`.
    """
    scores = dict.fromkeys(names, 0)
    remaining: Sequence[str] = names
    for score in range(most, 0, -1):
        survey = cache.index.survey(
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
    nodes are refused with `why`.

    Args:
        why: A sentence about the job, as `elastic.why_unplanned` returns it.
    """
    survey = cache.index.survey(
        pod.shape.resource, pod.total, names, avoid=cache.conflicts(pod)
    )
    refused = group_refusals(cache, pod.shape.resource, survey.refused)
    others = [*survey.best, *survey.worse]
    if others:
        refused.append((refuse_for_job(why), others))
    return FilterResult(fitting=(), refused=refused)


def refuse_all(refusal: Refusal, names: Sequence[str]) -> FilterResult:
    """Return a filter result that refuses all nodes `names` with one refusal."""
    return FilterResult(fitting=(), refused=((refusal, names),) if names else ())


def accept_only(node: str, names: Sequence[str]) -> FilterResult:
    """Return a filter result that accepts only `node`; without it all are refused."""
    if node not in names:
        return refuse_all(ELSEWHERE, names)
    return FilterResult(fitting=(node,))


def pod_refusal(cache: Cache, pod: NpuPod, now_s: float) -> Refusal | None:
    """Return why a pod is refused on every node; None if some node may take it."""
    if pod.problem:
        return Refusal(reason=ExtenderReason.POD, text=pod.problem)
    if pod.deleting or pod.terminal:
        return ENDING
    back_off, lost = cache.why_waits(pod, now_s)
    if back_off:
        return Refusal(reason=ExtenderReason.BACK_OFF, text=back_off)
    if lost:
        text = f"the extender waits until it sees the cluster's {lost} again"
        return Refusal(reason=ExtenderReason.WATCH_DOWN, text=text)
    gang = cache.gangs.get(cache.job_of(pod.uid))
    return None if gang is None else gang.predecessor_refusal(pod.uid)


def refusal_of(
    cache: Cache, resource: str, name: str, refusal: reasons.Refusal
) -> Refusal:
    """Convert a refusal of a node by `scheduler_core` into one of the extender.

    An unreadable report is refused with what of it cannot be read.
    """
    text = refusal.text
    if refusal.reason is Reason.BAD_NODE_REPORT:
        resource_state = cache.resource_state(name, resource)
        unreadable = resource_state.find_unreadable() if resource_state else None
        text = unreadable.refusal if unreadable else text
    return Refusal(reason=refusal.reason, text=text)


def group_refusals(
    cache: Cache, resource: str, refused: Mapping[str, reasons.Refusal]
) -> list[tuple[Refusal, Sequence[str]]]:
    """Return each distinct refusal in `refused` with the names of its nodes.

    Args:
        resource: Resource that the pod asks for.
        refused: {node: refusal}. Equal refusals must be the same object.
    """
    # nodes that are equal share one object, so its identity is enough
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for name, refusal in refused.items():
        groups[id(refusal)].append(name)
    found: dict[Refusal, list[str]] = {}
    for names in groups.values():
        refusal = refused[names[0]]
        is_alike = refusal.reason is not Reason.BAD_NODE_REPORT
        for same in [names] if is_alike else [[name] for name in names]:
            ours = refusal_of(cache, resource, same[0], refusal)
            found.setdefault(ours, []).extend(same)
    return list(found.items())
