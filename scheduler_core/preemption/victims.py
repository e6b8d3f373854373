"""Whom to evict so that a pod of higher priority fits: never more than is needed.

On each node every set of pods of lower priority is a candidate that makes room and of
which no pod could stay. The best set over all nodes is taken, by this order:

1. how often evictions go beyond what PodDisruptionBudgets allow,
2. the highest priority among the victims, the lowest first,
3. the sum of their priorities,
4. how many gangs lose more pods than they can go on without,
5. how many pods,
6. when the first of those with the highest priority started, the latest first,
7. the node's name.

Values in, values out: who the pods are and what the budgets allow, the caller says.

Source:
    Kubernetes, kube-scheduler's default preemption (`pickOneNodeForPreemption`); gangs
    are ours, since all pods of one that is broken have to begin again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from scheduler_core.index.cluster import Cluster
from scheduler_core.node import chips
from scheduler_core.node.state import NodeState
from scheduler_core.placement.pod import Placement, placement
from scheduler_core.products.columns import Product

#: pods of lower priority on a node up to which all sets are tried; of more, pods are
#: spared one by one, the most important first, as kube-scheduler does
EXACT_UP_TO = 12
_NONE: Mapping[str, int] = MappingProxyType(dict[str, int]())
#: added to priorities before they are summed, so that each pod more counts for more;
#: kube-scheduler adds it too
_LOWEST = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A pod that has chips."""

    #: "namespace/name"; unique
    name: str
    #: mask of its chips
    chips: int
    #: a larger number matters more; below 0 too
    priority: int
    #: when it started, in any unit that grows
    started: float
    #: its job, where that is a gang; "" is none
    gang: str = ""
    #: the PodDisruptionBudgets that count it
    budgets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """Which pods make room, and what for."""

    node: str
    #: the most important first, then by name
    victims: tuple[Running, ...]
    #: evictions beyond what the budgets allow
    violations: int
    #: where the pod would go then
    place: Placement

    @property
    def text(self) -> str:
        """Who goes, for whoever looks at the pod."""
        names = ", ".join(_names(self.victims))
        chips = ", ".join(map(str, self.place.chips))
        return f"{self.node}: chips {chips}" + (f" without {names}" if names else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """The pod that wants room."""

    #: the resource, or the row that its job means, as for `pod.place`
    wanted: Product | str
    #: chips of the whole pod
    chips: int
    #: only pods with a lower one are evicted
    priority: int
    #: whether its job has several pods
    in_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many pods can go without harm; of what is not named, none."""

    #: {budget: pods of it that may go}
    allowed: Mapping[str, int] = field(default_factory=lambda: _NONE)
    #: {gang: pods that it can go on without}
    spare: Mapping[str, int] = field(default_factory=lambda: _NONE)


#: nothing can be lost without harm
STRICT = Limits()
#: what sets of victims are compared by on one node
_Key = tuple[int, int, int, int, int, float]
_Victims = tuple[Running, ...]
#: mask of the chips of those that go -> mask of those that the pod gets; 0 is none
_Room = Callable[[int], int]


def preempt(
    pod: Preemptor,
    cluster: Cluster,
    running: Mapping[str, Sequence[Running]],
    *,
    limits: Limits = STRICT,
    names: Iterable[str] | None = None,
) -> Eviction | None:
    """Choose a node, and the pods that must go there.

    Args:
        pod: Which wants room.
        cluster: The nodes; not changed.
        running: {node: its pods with chips, each once}.
        limits: How many pods can go without harm.
        names: Only these nodes; None is all.

    Returns:
        The best; without victims when there is room already; None when no node has
        pods that would make room.

    Cost:
        For each node a few steps for each set of up to `EXACT_UP_TO` pods.
    """
    nodes = cluster.line(pod.wanted)
    asked = sorted(nodes if names is None else set(names))
    best: tuple[_Key, str] | None = None
    found: Eviction | None = None
    for name in asked:
        node = nodes.get(name)
        here = node and evict(pod, node, running.get(name, ()), limits)
        if here:
            key = _key(here.victims, limits), name
            if best is None or key < best:
                best, found = key, here
    return found


def evict(
    pod: Preemptor,
    node: NodeState,
    running: Sequence[Running],
    limits: Limits = STRICT,
) -> Eviction | None:
    """The best victims on one node; arguments as for `preempt`."""
    row = node.row_for(pod.wanted, in_network=pod.in_network)
    if row is None or node.barred:
        return None
    lower = sorted(
        (each for each in running if each.priority < pod.priority), key=_importance
    )

    usable, unused = node.usable(row), node.free_for(row)

    def room(gone: int) -> int:
        return chips.choose(row, unused | gone & usable, pod.chips)

    if not room(_chips(lower)):
        return None
    if len(lower) <= EXACT_UP_TO:
        sets = _smallest(lower, room)
        victims = min(sets, key=lambda some: (_key(some, limits), sorted(_names(some))))
    else:
        victims = _spared(lower, limits, room)
    gone = _chips(victims)
    return Eviction(
        node=node.name,
        victims=victims,
        violations=_violations(victims, limits),
        place=placement(row, node, unused | gone & usable, room(gone)),
    )


def _smallest(pods: Sequence[Running], room: _Room) -> Iterator[_Victims]:
    """Every set of pods that makes room, and of which no pod could stay."""
    #: sets of pods as masks of their places, and the chips of all subsets of them
    smallest: list[int] = []
    gone = [0]
    for pod in pods:
        gone += [each | pod.chips for each in gone]
    for some in sorted(range(len(gone)), key=int.bit_count):
        if any(some & least == least for least in smallest):
            continue
        if room(gone[some]):
            smallest.append(some)
            yield tuple(pod for at, pod in enumerate(pods) if some >> at & 1)


def _spared(pods: Sequence[Running], limits: Limits, room: _Room) -> _Victims:
    """All but those that can stay, asked one by one: first whom a budget protects."""
    left = dict(limits.allowed)
    protected = []
    for pod in pods:
        for budget in pod.budgets:
            left[budget] = left.get(budget, 0) - 1
        if any(left[budget] < 0 for budget in pod.budgets):
            protected.append(pod)
    victims = tuple(pods)
    for pod in [*protected, *(pod for pod in pods if pod not in protected)]:
        others = tuple(each for each in victims if each is not pod)
        if room(_chips(others)):
            victims = others
    return victims


def _key(victims: _Victims, limits: Limits) -> _Key:
    """What sets are compared by. A set always comes before those that contain it."""
    highest = max((pod.priority for pod in victims), default=-_LOWEST)
    return (
        _violations(victims, limits),
        highest,
        sum(pod.priority + _LOWEST for pod in victims),
        len(_beyond((pod.gang for pod in victims if pod.gang), limits.spare)),
        len(victims),
        -min((pod.started for pod in victims if pod.priority == highest), default=0.0),
    )


def _violations(victims: _Victims, limits: Limits) -> int:
    budgets = (budget for pod in victims for budget in pod.budgets)
    return sum(_beyond(budgets, limits.allowed))


def _beyond(names: Iterable[str], spare: Mapping[str, int]) -> list[int]:
    """How many more times names occur than they may, of those that do."""
    number = Counter(names)
    return [
        n - spare.get(each, 0) for each, n in number.items() if n > spare.get(each, 0)
    ]


def _importance(pod: Running) -> tuple[int, float, str]:
    """Pods that matter more first: a higher priority, then an earlier start."""
    return -pod.priority, pod.started, pod.name


def _chips(pods: Iterable[Running]) -> int:
    mask = 0
    for pod in pods:
        mask |= pod.chips
    return mask


def _names(victims: _Victims) -> tuple[str, ...]:
    return tuple(pod.name for pod in victims)
