"""Victims of preemption: the pods to evict so that one of higher priority fits.

A candidate is a set of pods of lower priority on one node that frees enough chips.
No pod of a candidate could stay. The best candidate comes first by this order:

1. evictions beyond the PodDisruptionBudgets, the fewest first,
2. the highest priority among the victims, the lowest first,
3. the sum of their priorities, the lowest first,
4. gangs that lose more pods than they can spare, the fewest first,
5. number of victims, the fewest first,
6. earliest start among the victims of the highest priority, the latest first,
7. the node's name.

Source:
    Kubernetes, kube-scheduler's default preemption (`pickOneNodeForPreemption`).
    Step 4 is ours, since all pods of a broken gang have to start again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_core.index.queries import NodeIndex
from scheduler_core.node import chips
from scheduler_core.node.state import NodeState
from scheduler_core.placement.pod import Placement, placement
from scheduler_core.products.columns import Product

#: largest number of pods of lower priority on a node for which all sets are tried;
#: beyond it pods are spared one by one, the most important first, as kube-scheduler
#: does
EXACT_UP_TO = 12
#: added to each priority before the sum, so that each further pod makes the sum larger;
#: kube-scheduler does the same
_LOWEST = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """Pod that has chips on a node."""

    #: "namespace/name"; unique
    name: str
    #: mask of the pod's chips
    chips: int
    #: a larger number is more important; may be negative
    priority: int
    #: start of the pod, in any unit that grows with time
    start_time: float
    #: the pod's job if that is a gang, else ""
    gang: str = ""
    #: names of the PodDisruptionBudgets that cover the pod
    budgets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """Victims on one node, and the place that their chips give to the preemptor."""

    node: str
    #: the most important first, then by name
    victims: tuple[RunningPod, ...]
    #: number of evictions beyond the PodDisruptionBudgets
    violations: int
    #: place of the preemptor after the evictions
    place: Placement

    @property
    def text(self) -> str:
        """Node, chips and names of the victims, for the pod's owner."""
        names = ", ".join(_names(self.victims))
        chips = ", ".join(map(str, self.place.chips))
        return f"{self.node}: chips {chips}" + (f" without {names}" if names else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """Pod that does not fit, and may evict pods of lower priority."""

    #: resource, or the row that the pod's job means, as for `pod.place`
    wanted: Product | str
    #: chips of the whole pod
    chips: int
    #: only pods of lower priority are evicted
    priority: int
    #: whether the pod's job has several pods
    in_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Numbers of pods that can be evicted without harm; 0 for names not listed."""

    #: {PodDisruptionBudget: number of its pods that may be evicted}
    allowed: Mapping[str, int] = field(default_factory=dict)
    #: {gang: number of pods that it can run without}
    spare: Mapping[str, int] = field(default_factory=dict)


#: limits under which every eviction does harm
STRICT = Limits()
#: sort key of a set of victims on one node
_Key = tuple[int, int, int, int, int, float]
_Victims = tuple[RunningPod, ...]
#: (mask of the evicted pods' chips) -> mask of the preemptor's chips; 0 if it does not
#: fit
_ChooseChips = Callable[[int], int]
#: (node, mask of the evicted pods' chips) -> whether the preemptor fits in other ways
Fits = Callable[[str, int], bool]


def preempt(
    pod: Preemptor,
    cluster: NodeIndex,
    pods_by_node: Mapping[str, Sequence[RunningPod]],
    *,
    limits: Limits = STRICT,
    names: Iterable[str] | None = None,
    fits: Fits = lambda _node, _evicted: True,
) -> Eviction | None:
    """Choose a node, and the victims on that node.

    Args:
        pod: Pod that does not fit.
        cluster: Nodes; not changed.
        pods_by_node: {node: its pods with chips, each once}.
        limits: Numbers of pods that can be evicted without harm.
        names: Candidate nodes; None is all.
        fits: Whether the preemptor fits a node in other ways than by its chips, once
            pods are evicted. It still fits if more of them are.

    Returns:
        The best eviction. It has no victims when the pod already fits. None when no
        node has enough pods of lower priority.

    Cost:
        For each node a few steps for each set of up to `EXACT_UP_TO` pods.
    """
    nodes = cluster.nodes(pod.wanted)
    node_names = sorted(nodes if names is None else set(names))
    best: tuple[_Key, str] | None = None
    best_eviction: Eviction | None = None
    for name in node_names:
        node = nodes.get(name)
        eviction = node and choose_victims(
            pod, node, pods_by_node.get(name, ()), limits, fits
        )
        if eviction:
            key = _key(eviction.victims, limits), name
            if best is None or key < best:
                best, best_eviction = key, eviction
    return best_eviction


def choose_victims(
    pod: Preemptor,
    node: NodeState,
    pods: Sequence[RunningPod],
    limits: Limits = STRICT,
    fits: Fits = lambda _node, _evicted: True,
) -> Eviction | None:
    """Choose the best victims on one node; arguments as for `preempt`."""
    row = node.row_for(pod.wanted, in_network=pod.in_network)
    if row is None or node.barred:
        return None
    lower = sorted(
        (pod_on_node for pod_on_node in pods if pod_on_node.priority < pod.priority),
        key=_importance,
    )

    usable, unused = node.usable(row), node.free_for(row)

    def choose(evicted: int) -> int:
        chosen = chips.choose(row, unused | evicted & usable, pod.chips)
        return chosen if chosen and fits(node.name, evicted) else 0

    if not choose(_chips(lower)):
        return None
    if len(lower) <= EXACT_UP_TO:
        sets = _minimal_sets(lower, choose)
        victims = min(
            sets,
            key=lambda candidate: (_key(candidate, limits), sorted(_names(candidate))),
        )
    else:
        victims = _spare_pods(lower, limits, choose)
    evicted_chips = _chips(victims)
    return Eviction(
        node=node.name,
        victims=victims,
        violations=_violations(victims, limits),
        place=placement(
            row, node, unused | evicted_chips & usable, choose(evicted_chips)
        ),
    )


def _minimal_sets(
    pods: Sequence[RunningPod], choose: _ChooseChips
) -> Iterator[_Victims]:
    """Yield the minimal sets of pods whose chips are enough for the preemptor."""
    # Sets of pods are masks of positions in `pods`; `evicted[set]` are their chips.
    minimal: list[int] = []
    evicted = [0]
    for pod in pods:
        evicted += [mask | pod.chips for mask in evicted]
    for chosen in sorted(range(len(evicted)), key=int.bit_count):
        if any(chosen & smaller == smaller for smaller in minimal):
            continue
        if choose(evicted[chosen]):
            minimal.append(chosen)
            yield tuple(
                pod for position, pod in enumerate(pods) if chosen >> position & 1
            )


def _spare_pods(
    pods: Sequence[RunningPod], limits: Limits, choose: _ChooseChips
) -> _Victims:
    """Return the pods without those that can stay, tried first with protected ones."""
    allowance = dict(limits.allowed)
    protected = []
    for pod in pods:
        for budget in pod.budgets:
            allowance[budget] = allowance.get(budget, 0) - 1
        if any(allowance[budget] < 0 for budget in pod.budgets):
            protected.append(pod)
    victims = tuple(pods)
    for pod in [*protected, *(pod for pod in pods if pod not in protected)]:
        rest = tuple(victim for victim in victims if victim is not pod)
        if choose(_chips(rest)):
            victims = rest
    return victims


def _key(victims: _Victims, limits: Limits) -> _Key:
    """Return the sort key of a set of victims; a set comes before its supersets."""
    highest = max((pod.priority for pod in victims), default=-_LOWEST)
    return (
        _violations(victims, limits),
        highest,
        sum(pod.priority + _LOWEST for pod in victims),
        len(_excesses((pod.gang for pod in victims if pod.gang), limits.spare)),
        len(victims),
        -min(
            (pod.start_time for pod in victims if pod.priority == highest), default=0.0
        ),
    )


def _violations(victims: _Victims, limits: Limits) -> int:
    budgets = (budget for pod in victims for budget in pod.budgets)
    return sum(_excesses(budgets, limits.allowed))


def _excesses(names: Iterable[str], spare: Mapping[str, int]) -> list[int]:
    """Return by how much each name occurs more often than allowed, if it does."""
    occurrences = Counter(names)
    return [
        number - spare.get(name, 0)
        for name, number in occurrences.items()
        if number > spare.get(name, 0)
    ]


def _importance(pod: RunningPod) -> tuple[int, float, str]:
    """Return the sort key of a pod: higher priority first, then earlier start."""
    return -pod.priority, pod.start_time, pod.name


def _chips(pods: Iterable[RunningPod]) -> int:
    return chips.union(pod.chips for pod in pods)


def _names(victims: _Victims) -> tuple[str, ...]:
    return tuple(pod.name for pod in victims)
