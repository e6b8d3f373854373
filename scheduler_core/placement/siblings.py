"""Demands of pods on their nodes and on the other pods of their job there.

kube-scheduler looks at one pod at a time, and counts the pods of a job that it has let
go before. So a plan that ignores these demands has nodes that the scheduler offers to
the first pod, and no longer to the second.

Only demands that concern nodes one by one are here: host ports, and required
(anti-)affinity and spread on the host name.

Source:
    kube-scheduler v1.36, plugins nodeports, interpodaffinity, podtopologyspread.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Address of a host port that stands for all addresses of the node.
ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # compared, never bound to


class HostPort(NamedTuple):
    """Port of the node that a container takes for itself."""

    number: int
    protocol: str = "TCP"
    address: str = ANY_ADDRESS

    def conflicts(self, other: "HostPort") -> bool:
        """Return whether two containers on one node cannot have both ports."""
        is_same = (self.number, self.protocol) == (other.number, other.protocol)
        addresses = {self.address, other.address}
        return is_same and (len(addresses) == 1 or ANY_ADDRESS in addresses)


class Requirement(NamedTuple):
    """Part of a label selector."""

    key: str
    #: `In`, `NotIn`, `Exists` or `DoesNotExist`
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of a pod fulfil it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


#: A label selector; without requirements it matches every pod.
Selector = tuple[Requirement, ...]


class Spread(NamedTuple):
    """Demand to spread the pods that a selector matches evenly over nodes."""

    #: most matching pods of a node beyond those of the node with the fewest
    skew: int
    selector: Selector
    #: with fewer nodes than these, the fewest count as 0
    least_nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """Demands of a pod. Members of a job with equal demands are one *kind*."""

    #: stands for all demands of the pod, also those on nodes alone; "" for none
    kind: str = ""
    ports: tuple[HostPort, ...] = ()
    #: pods that may not be on the pod's node
    apart: tuple[Selector, ...] = ()
    #: pods beside which the pod must be: one that all of these match
    together: tuple[Selector, ...] = ()
    #: pods near which it must be, perhaps only in the same zone. The scheduler offers
    #: no node before one that all of these match has one, unless they match the pod
    awaits: tuple[Selector, ...] = ()
    spreads: tuple[Spread, ...] = ()
    #: stands for the demands on nodes alone; "" for none
    on_nodes: str = ""
    #: whether there are others on pods, such as on those of a zone
    has_unread: bool = False

    def awaits_pod(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels is one near which it must be."""
        return all(
            requirement.matches(labels)
            for selector in self.awaits
            for requirement in selector
        )

    @property
    def concern_siblings(self) -> bool:
        """Whether any demand is about other pods on the node."""
        return bool(self.ports or self.apart or self.together or self.spreads)

    @property
    def selectors(self) -> Iterable[Selector]:
        """All label selectors of these demands."""
        yield from self.apart
        yield from self.together
        yield from (spread.selector for spread in self.spreads)


#: Demands of a pod that has none.
FREE = Demands()
_NONE: frozenset[str] = frozenset()
_NOBODY: frozenset[int] = frozenset()
_NO_LABELS: Mapping[str, str] = {}


class Sibling(NamedTuple):
    """A pod of a job, with what decides which nodes it may share with the others."""

    name: str
    demands: Demands = FREE
    labels: Mapping[str, str] = _NO_LABELS
    #: name of its node; "" if it has none yet
    node: str = ""


class Cap(NamedTuple):
    """Most pods of a kind that the scheduler lets onto some nodes together."""

    kind: str
    nodes: frozenset[str]
    most: int


class Level(NamedTuple):
    """Pods of a kind that the scheduler lets onto parts of the cluster evenly only."""

    kind: str
    #: most pods of a part beyond those of the part with the fewest
    skew: int
    #: nodes of each part, such as a zone; of no node twice. Others are parts by
    #: themselves
    parts: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Demands that no pod says, but that the scheduler has shown."""

    #: pairs of kinds that share no node; of one kind twice: one of its pods on a node
    apart: Collection[tuple[str, str]] = ()
    #: nodes that take a number of pods of a kind together, such as those of a zone
    caps: Sequence[Cap] = ()
    levels: Sequence[Level] = ()
    #: whether the lists of nodes are all that the scheduler offers; a spread demand
    #: counts other nodes, too
    has_whole_lists: bool = True
    #: {kind: nodes that refused one of its pods}
    refused: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: kinds that must be beside pods like themselves, and may be beside pods of others
    beside_others: frozenset[str] = frozenset()


#: The scheduler has shown nothing.
NOTHING_LEARNT = Learnt()


class CohortCap(NamedTuple):
    """A cap with the cohorts that count for it."""

    nodes: frozenset[str]
    most: int
    counted: frozenset[int]


class CohortSpread(NamedTuple):
    """A spread demand of a cohort, with the cohorts that count for it."""

    skew: int
    least_nodes: int
    counted: frozenset[int]
    #: {node: part of the cluster}; a node without one is a part by itself
    parts: Mapping[str, str] = _NO_LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Members of one kind that the same selectors match: equal for every demand."""

    #: nodes that the scheduler offers to the kind; None is all
    names: frozenset[str] | None = None
    #: nodes among these that it must not have all the same
    refused: frozenset[str] = frozenset()
    #: numbers of the cohorts with which it shares no node, perhaps its own
    apart: frozenset[int] = frozenset()
    #: numbers of the cohorts beside which it must be; None for no such demand
    together: frozenset[int] | None = None
    spreads: tuple[CohortSpread, ...] = ()

    def may_have(self, name: str) -> bool:
        """Return whether a node is offered to the cohort and has not refused it."""
        is_offered = self.names is None or name in self.names
        return is_offered and name not in self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """The members of a job as cohorts, and the nodes of those that have one."""

    cohorts: tuple[Cohort, ...]
    #: {name of a member: number of its cohort}
    cohort_of: Mapping[str, int]
    #: {node: cohort of each member there}
    bound: Mapping[str, Sequence[int]]
    caps: tuple[CohortCap, ...] = ()
    #: as `Learnt.has_whole_lists`
    has_whole_lists: bool = True

    def common_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the nodes among `names` that all cohorts may have."""
        return tuple(
            name for name in names if all(one.may_have(name) for one in self.cohorts)
        )


def group_siblings(
    pods: Sequence[Sibling],
    names: Mapping[str, frozenset[str]] | None = None,
    learnt: Learnt = NOTHING_LEARNT,
) -> Siblings | None:
    """Return the members of a job as cohorts; None if nothing sets them apart.

    Args:
        pods: All members that have not ended, each once.
        names: {kind: nodes that the scheduler offers to it}. A kind without an entry
            is offered all nodes.
        learnt: Demands that the scheduler has shown. Without cohorts, the caller
            leaves out the nodes that refused the only kind.

    Cost:
        A step for each pod, and a few more for each selector if demands concern
        siblings.
    """
    names = names or {}
    demands = {pod.demands.kind: pod.demands for pod in pods}
    lists = {names.get(kind) for kind in demands}
    concerned = any(one.concern_siblings for one in demands.values())
    refused = {learnt.refused.get(kind) or _NONE for kind in demands}
    is_learnt = bool(learnt.apart or learnt.caps or learnt.levels)
    if not concerned and not is_learnt and max(len(lists), len(refused)) < 2:
        return None
    selectors = tuple(
        dict.fromkeys(s for one in demands.values() for s in one.selectors)
    )
    numbers: dict[tuple[str, tuple[bool, ...]], int] = {}
    cohort_of: dict[str, int] = {}
    bound: dict[str, list[int]] = {}
    matcher = _Matcher(selectors)
    for pod in pods:
        key = pod.demands.kind, matcher.matches(pod.labels)
        number = cohort_of[pod.name] = numbers.setdefault(key, len(numbers))
        if pod.node:
            bound.setdefault(pod.node, []).append(number)
    return Siblings(
        cohorts=_cohorts(list(numbers), demands, selectors, names, learnt),
        cohort_of=cohort_of,
        bound=bound,
        has_whole_lists=learnt.has_whole_lists,
        caps=tuple(
            CohortCap(
                cap.nodes,
                cap.most,
                frozenset(at for (kind, _), at in numbers.items() if kind == cap.kind),
            )
            for cap in learnt.caps
        ),
    )


class _Matcher:
    """Selectors that are compared with the labels of many pods, mostly alike."""

    def __init__(self, selectors: Sequence[Selector]) -> None:
        self._selectors = selectors
        self._keys = tuple({r.key for selector in selectors for r in selector})
        #: {values of the labels that selectors read: which selectors match}
        self._known: dict[tuple[str | None, ...], tuple[bool, ...]] = {}

    def matches(self, labels: Mapping[str, str]) -> tuple[bool, ...]:
        values = tuple(map(labels.get, self._keys))
        known = self._known.get(values)
        if known is None:
            known = self._known[values] = tuple(
                all(requirement.matches(labels) for requirement in selector)
                for selector in self._selectors
            )
        return known


def _cohorts(
    keys: Sequence[tuple[str, tuple[bool, ...]]],
    demands: Mapping[str, Demands],
    selectors: Sequence[Selector],
    names: Mapping[str, frozenset[str]],
    learnt: Learnt,
) -> tuple[Cohort, ...]:
    """Return the cohorts whose (kind, which selectors match) are `keys`."""
    positions = {selector: at for at, selector in enumerate(selectors)}
    numbers = range(len(keys))

    def matched(*wanted: Selector) -> frozenset[int]:
        return frozenset(
            number
            for number in numbers
            if all(keys[number][1][positions[selector]] for selector in wanted)
        )

    def close_to(number: int) -> frozenset[int] | None:
        kind, _ = keys[number]
        wanted = demands[kind].together
        near = matched(*wanted) if wanted else _NOBODY
        # Affinity to pods of others is in the lists of nodes.
        return None if number in near and kind in learnt.beside_others else near or None

    def is_of(number: int, kind: str) -> bool:
        return keys[number][0] == kind

    apart: list[set[int]] = [set() for _ in keys]
    for number, (kind, _) in enumerate(keys):
        rivals = set().union(*map(matched, demands[kind].apart))
        rivals |= {
            other
            for other in numbers
            if _share_a_port(demands[kind], demands[keys[other][0]])
            or (kind, keys[other][0]) in learnt.apart
        }
        for other in rivals:  # the scheduler asks both sides
            apart[number].add(other)
            apart[other].add(number)
    return tuple(
        Cohort(
            names=names.get(kind),
            refused=learnt.refused.get(kind) or _NONE,
            apart=frozenset(apart[number]),
            together=close_to(number),
            spreads=(
                *(
                    CohortSpread(s.skew, s.least_nodes, matched(s.selector))
                    for s in demands[kind].spreads
                ),
                *(
                    _spread_over(level, frozenset(n for n in numbers if is_of(n, kind)))
                    for level in learnt.levels
                    if level.kind == kind
                ),
            ),
        )
        for number, (kind, _) in enumerate(keys)
    )


def _spread_over(level: Level, counted: frozenset[int]) -> CohortSpread:
    parts = {name: min(part) for part in level.parts for name in part}
    return CohortSpread(level.skew, 1, counted, parts)


def _share_a_port(one: Demands, other: Demands) -> bool:
    return any(mine.conflicts(its) for mine in one.ports for its in other.ports)
